// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Call frame information of strangers: an ELF file, or .eh_frame alone behind one byte that says how to read it. What
 * comes out is a table that the daemon would believe, and in which every address is found. `make fuzz`; the seeds in
 * tests/fuzz/cfi, and changed ELF files, are replayed by tests/unit/test-unwind-fuzz.c.
 */
#include <elf.h>
#include <sys/mman.h>

#include "base/io.h"
#include "unwind/cfi.h"
#include "unwind/compile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define FRAMES 0x500000
#define HEADER 0x4ff000

static void must(bool condition)
{
	if (!condition)
		abort();
}

/* ---- files ------------------------------------------------------------------------------------- */

static void check_table(const struct table *t)
{
	must(table_check(t, t->bytes) == 0);
	for (uint32_t i = 0; i < t->n_segments; i++) {
		const struct table_segment *s = &table_segments(t)[i];
		uint64_t step = MAX(s->size / 512, 1ULL);

		for (uint64_t at = 0; at < s->size; at += step)
			must(table_find(t, (uint32_t)(s->pc + at))->cfa < UNWIND_CFA_N);
	}
}

static void read_file(const uint8_t *data, size_t size)
{
	static int fd = -1;
	_cleanup_free_ struct table *t = NULL;

	if (fd < 0)
		fd = memfd_create("file", MFD_CLOEXEC);
	must(fd >= 0 && ftruncate(fd, 0) == 0 && lseek(fd, 0, SEEK_SET) == 0 &&
	     write_full(fd, data, size) == 0);
	if (table_compile(fd, &t) == 0)
		check_table(t);
}

/* ---- sections ---------------------------------------------------------------------------------- */

struct seen {
	uint64_t start;
};

static int take(void *ctx, const struct cfi_function *f)
{
	struct seen *s = ctx;

	must(f->n && !f->rows[0].pc && f->start >= s->start && f->end > f->start);
	for (size_t i = 1; i < f->n; i++)
		must(f->rows[i].pc > f->rows[i - 1].pc && f->rows[i].pc < f->end - f->start);
	s->start = f->start;
	return 0;
}

/* The section, or its last quarter as a header and the rest. */
static void read_section(uint8_t how, const uint8_t *data, size_t size)
{
	_cleanup_(reader_done) struct reader frames = {}, header = {};
	struct cfi_source s = {
		.machine = how & 1 ? EM_AARCH64 : EM_X86_64,
		.frames = &frames,
		.vaddr = FRAMES,
		.debug = how & 2,
		.unbounded = how & 4,
		.header = how & 8 ? &header : NULL,
		.header_vaddr = HEADER,
	};
	size_t n = how & 8 ? size - size / 4 : size;
	struct cfi_counts counts;
	struct seen seen = {};

	reader_init_memory(&frames, data, n);
	reader_init_memory(&header, data + n, size - n);
	cfi_read(&s, 1, take, &seen, &counts);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size >= SELFMAG && memcmp(data, ELFMAG, SELFMAG) == 0)
		read_file(data, size);
	else if (size)
		read_section(data[0], data + 1, size - 1);
	return 0;
}
