/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The contents of blobs: samples of one type and metadata, both for one or many buckets. */
#pragma once

#include "model/profile.h"
#include "store/blob.h"

/* The samples of several buckets, decoded. Memory is reused from one decoding to the next. */
struct samples {
	size_t n_buckets;
	size_t *first; /* n_buckets + 1: where each bucket's rows begin in `rows` */
	uint8_t *damaged; /* n_buckets: lost before it was packed */
	struct columns rows;

	size_t cap_first, cap_damaged;
	struct columns tuples;
	uint32_t *tuple_of, *place;
	uint64_t *scratch;
	size_t cap_tuple_of, cap_place, cap_scratch;
};
void samples_done(struct samples *s);
/* A window on one bucket's rows, valid until the next decoding. */
struct columns samples_bucket(const struct samples *s, size_t bucket);
int samples_get(struct blob_in *in, struct samples *s) _warn_unused_;
/*
 * Columns of each bucket must be sorted by (series, stack, key, aux) without duplicates; NULL: damaged.
 * One bucket without packing: n = 1.
 */
int samples_put(struct blob_writer *w, const struct columns *const *buckets,
		size_t n) _warn_unused_;

int meta_put(struct blob_writer *w, const struct bucket_meta *metas, size_t n) _warn_unused_;
/* Exactly n, or -EBADMSG. */
int meta_get(struct blob_reader *r, struct blob_in *in, struct bucket_meta *metas,
	     size_t n) _warn_unused_;
