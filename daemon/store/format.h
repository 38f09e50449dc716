/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The store on disk, byte by byte.
 *
 * Directory
 *   YYYY-MM-DD.SEQ.db   a day file: buckets whose start lies in that UTC day. SEQ, 16 lower-case hexadecimal
 *                       digits, is the smallest sequence number that it may hold, so that names sort in the
 *                       order of sequence and ranges of files never overlap. Most days are one file; another
 *                       begins when the daemon meets a limit (size, dictionary) or the clock changed the day.
 *   ...db-wal, -shm     SQLite's own
 *   ...db.corrupt       a day file that SQLite could not read any more (-wal.corrupt beside it); never opened
 *   store.id            text: "sysprofd-store 1\nuuid HEX32\nnext N\nreserved N\ntrusted NS\n". Numbers below
 *                       next were given to buckets, none from reserved on. trusted: see retention.c.
 *   reserve             zeros, given up when the disk is full
 *
 * Day file: SQLite, page size 4096, WAL; application_id STORE_APPLICATION_ID, user_version STORE_VERSION.
 *
 *   dict(id PK, kind, first, n, data)
 *       A chunk of a dictionary: elements first .. first + n - 1 of a kind (enum dict_kind), ids sequential
 *       per file from 2 (1 stands for damage: string 1 is "[damaged]", frame 1 the marker of that name, stack
 *       1 that frame alone). Chunks are applied in the order of id; a chunk only refers to what earlier ones
 *       or itself define. Chunks of one bucket are later merged: the same elements under a greater row id.
 *   recent(seq PK, start, meta, on_cpu, off_cpu, syscalls, futex)
 *       One bucket. start: ns since the epoch.
 *   pack(last PK, first, n, min_start, max_start)
 *       n buckets with sequence numbers first .. last (there may be gaps). Every pack of a file precedes
 *       every recent bucket.
 *   packed(id PK, data)
 *       id = last * 16 + slot; slot: enum profile_type, or PACKED_META.
 *
 * Blob (every BLOB above)
 *    0  1  version: BLOB_VERSION
 *    1  1  codec: enum blob_codec
 *    2  2  content: enum blob_content, little endian
 *    4  4  crc32c, little endian, of: the key of the row as 8-byte little-endian integers (below), bytes 0 to
 *          3, bytes 8 to the end
 *    8  4  length of the payload before compression, little endian, at most BLOB_MAX_RAW
 *   12     payload, or a zstd frame of it
 *   The keys: dict {kind, first, n}; recent.meta {seq, start}; recent's types {seq, type};
 *   packed {last, first, n, min_start, max_start, slot}. A blob under a foreign key is damage.
 *
 * Payload pieces
 *   varint   LEB128, at most 10 bytes
 *   stream   n unsigned 64-bit numbers, n known from before:
 *              1 byte: enum stream_mode, plus STREAM_DELTA when the numbers are zigzag differences from the
 *                      predecessor (the first from 0), modulo 2^64
 *              STREAM_CONST   one varint: all n numbers (n = 0: only the mode and a varint 0)
 *              STREAM_BYTES   n bytes
 *              STREAM_BITS    a varint: the base, subtracted from all numbers; n bytes: the length of each number
 *                             in bits, 0 to 64; then the bits below each number's highest, packed from the least
 *                             significant bit of each byte upwards. Lengths have few values, which compress
 *                             well; the rest is noise, which costs what it must.
 *   table    n rows of f fields: f streams of n, field by field
 *
 * CONTENT_META: varint n, b, s, p, l; b streams of n (fields of the bucket), then for each of s sources p
 *   streams (fields of its accounting) and l streams (lost, by reason). A reader takes the fields that it
 *   knows; missing ones are 0. Order: columns.c.
 * CONTENT_SAMPLES: varint buckets, tuples, rows; a stream of `buckets` (1: was damaged before it was packed);
 *   then for the distinct (series, stack, key, aux), ascending: four streams of `tuples` (the stack as distance
 *   from the one before in the same series, the key from the one before in the same series and stack), and a
 *   stream with the number of rows of each, minus 1; then per row, by tuple and bucket: a stream of bucket numbers (the
 *   first of a tuple from 0, the next as distance from the one before, minus 1), and streams of count,
 *   value, max.
 * CONTENT_DICT: strings: a stream of n lengths, then the bytes; others: a table, fields as in dictionary.c.
 */
#pragma once

#include "base/util.h"

#define STORE_APPLICATION_ID 0x73706664 /* "spfd" */
#define STORE_VERSION 1

#define BLOB_VERSION 1
#define BLOB_HEADER 12
#define BLOB_MAX_RAW (64U << 20)

enum blob_codec {
	BLOB_RAW = 0,
	BLOB_ZSTD = 1,
};

enum blob_content {
	CONTENT_META = 1,
	CONTENT_SAMPLES = 2,
	CONTENT_DICT = 3,
};

enum stream_mode {
	STREAM_CONST = 0,
	STREAM_BYTES = 1,
	STREAM_BITS = 2,
};
#define STREAM_DELTA 0x10

/* A blob that claims more is damaged. A bucket has at most 10,000 series; packs are cut at PACK_MAX_ROWS. */
#define SAMPLES_MAX_ROWS (1U << 22)
#define SAMPLES_MAX_BUCKETS 1024
#define PACK_MAX_ROWS (1U << 18)

enum dict_kind {
	DICT_STRINGS = 0,
	DICT_BINARIES = 1,
	DICT_FRAMES = 2,
	DICT_STACKS = 3,
	DICT_SERIES = 4,
	DICT_LOCKS = 5,
	DICT_ELEMENT_KINDS,
	/* Names of earlier frames and locks; first = 0. */
	DICT_FRAME_NAMES = 6,
	DICT_LOCK_NAMES = 7,
	DICT_KINDS
};
#define DICT_CHUNK_MAX (1U << 16) /* elements in one chunk */
#define DICT_MAX (1U << 20) /* elements of a kind in one file */

#define PACKED_META 8
#define PACKED_ID(last, slot) ((last)*16 + (slot))
#define SEQ_MAX (INT64_MAX / 16 - 1)
