/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Bytes of a part of a file, through a cache of blocks: what is read again and again, in nearly any order, is read
 * from the file once, and the memory for it has a limit. Or the same of bytes that lie in memory already.
 */
#pragma once

#include "base/util.h"

#define READER_BLOCK 8192

struct reader {
	int fd;
	uint64_t offset, size; /* of the part, in the file */
	const uint8_t *memory; /* instead of the file */
	uint8_t *blocks;
	uint64_t *numbers; /* of each block the number that is there, plus 1 */
	size_t n_blocks,
		n_used; /* as long as it is read in order, few are used: they stay in the processor's cache */
	uint64_t last; /* number of the last block that was read */
	uint8_t *scratch; /* what crosses blocks */
	size_t cap;
};

int reader_init(struct reader *r, int fd, uint64_t offset, uint64_t size, size_t blocks);
void reader_init_memory(struct reader *r, const void *data, size_t size);
void reader_done(struct reader *r);
/* These bytes, until the next call. -EBADMSG where there are none. */
int reader_get(struct reader *r, uint64_t at, size_t len, const uint8_t **ret);
