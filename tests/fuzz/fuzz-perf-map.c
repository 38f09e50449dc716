// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Maps of code made at run time. An input is a byte that says where the file is cut, and the file: read in two steps it
 * says the same as at once. `make fuzz`; the seeds in tests/fuzz/perf-map are replayed by tests/unit/test-perf-map.c.
 */
#include <sys/mman.h>

#include "base/io.h"
#include "symbol/perf-map.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool condition)
{
	if (!condition)
		abort();
}

static int read_map(struct perf_map *m, int fd)
{
	int r;

	while ((r = perf_map_read(m, fd, 4096)) == 1)
		;
	return r;
}

static bool same_name(const char *a, const char *b)
{
	return a && b ? streq(a, b) : a == b;
}

/* Around everything in the input that may have been taken for an address. */
static void compare(const struct perf_map *a, const struct perf_map *b, const uint8_t *data,
		    size_t size)
{
	for (size_t i = 0; i < size; i++) {
		char text[17] = "";
		uint64_t address = 0;

		memcpy(&address, data + i, MIN(size - i, sizeof(address)));
		must(same_name(perf_map_find(a, address), perf_map_find(b, address)));
		memcpy(text, data + i, MIN(size - i, sizeof(text) - 1));
		address = strtoull(text, NULL, 16);
		for (uint64_t k = address - 2; k != address + 3; k++)
			must(same_name(perf_map_find(a, k), perf_map_find(b, k)));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_(perf_map_free_p) struct perf_map *once = NULL, *twice = NULL;
	_cleanup_close_ int fd = memfd_create("map", MFD_CLOEXEC);
	size_t cut;
	int first, second;

	if (size < 1)
		return 0;
	cut = (size - 1) * *data++ / 256;
	size--;
	must(fd >= 0 && perf_map_new(&once) == 0 && perf_map_new(&twice) == 0);
	must(write_full(fd, data, cut) == 0);
	first = read_map(twice, fd);
	must(write_full(fd, data + cut, size - cut) == 0);
	second = read_map(twice, fd);
	must(second == read_map(once, fd));
	/* What could not be read is begun anew. */
	must(first >= 0 || first == -EBADMSG);
	if (second == 0)
		compare(once, twice, data, size);
	return 0;
}
