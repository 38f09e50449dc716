// SPDX-License-Identifier: GPL-2.0-or-later
#include "base/io.h"
#include "unwind/reader.h"

#define BLOCKS_IN_ORDER 4

int reader_init(struct reader *r, int fd, uint64_t offset, uint64_t size, size_t blocks)
{
	struct reader x = { .fd = fd, .offset = offset, .size = size };

	if (offset > INT64_MAX || size > INT64_MAX - offset)
		return -EBADMSG;
	x.n_blocks = (size_t)MIN((uint64_t)blocks, size / READER_BLOCK + 1);
	x.n_used = MIN(x.n_blocks, (size_t)BLOCKS_IN_ORDER);
	x.blocks = malloc(x.n_blocks * READER_BLOCK);
	x.numbers = new0(uint64_t, x.n_blocks);
	if (!x.blocks || !x.numbers) {
		reader_done(&x);
		return -ENOMEM;
	}
	*r = x;
	return 0;
}

void reader_init_memory(struct reader *r, const void *data, size_t size)
{
	*r = (struct reader){ .fd = -1, .size = size, .memory = data };
}

void reader_done(struct reader *r)
{
	free(r->blocks);
	free(r->numbers);
	free(r->scratch);
	*r = (struct reader){ .fd = -1 };
}

static int get_block(struct reader *r, uint64_t number, const uint8_t **ret)
{
	size_t place = (size_t)(number % r->n_used);
	uint64_t start = number * READER_BLOCK;
	uint8_t *block;
	int q;

	if (r->numbers[place] == number + 1) {
		*ret = r->blocks + place * READER_BLOCK;
		return 0;
	}
	/* Perhaps it was read before. */
	if (number < r->last)
		r->n_used = MIN(2 * r->n_used, r->n_blocks);
	r->last = number;
	place = (size_t)(number % r->n_used);
	*ret = block = r->blocks + place * READER_BLOCK;
	r->numbers[place] = 0;
	q = pread_full(r->fd, block, MIN(r->size - start, (uint64_t)READER_BLOCK),
		       r->offset + start);
	if (q < 0)
		return q == -ENODATA ? -EBADMSG : q;
	r->numbers[place] = number + 1;
	return 0;
}

static int gather(struct reader *r, uint64_t at, size_t len, const uint8_t **ret)
{
	int q = ARRAY_GROW(r->scratch, r->cap, len);

	if (q < 0)
		return q;
	for (size_t done = 0; done < len;) {
		size_t skip = (size_t)((at + done) % READER_BLOCK);
		size_t n = MIN(len - done, READER_BLOCK - skip);
		const uint8_t *block;

		q = get_block(r, (at + done) / READER_BLOCK, &block);
		if (q < 0)
			return q;
		memcpy(r->scratch + done, block + skip, n);
		done += n;
	}
	*ret = r->scratch;
	return 0;
}

int reader_get(struct reader *r, uint64_t at, size_t len, const uint8_t **ret)
{
	const uint8_t *block;
	int q;

	if (at > r->size || len > r->size - at)
		return -EBADMSG;
	if (r->memory || !len) {
		*ret = r->memory ? r->memory + at : (const uint8_t *)"";
		return 0;
	}
	if (at % READER_BLOCK + len > READER_BLOCK)
		return gather(r, at, len, ret);
	q = get_block(r, at / READER_BLOCK, &block);
	if (q < 0)
		return q;
	*ret = block + at % READER_BLOCK;
	return 0;
}
