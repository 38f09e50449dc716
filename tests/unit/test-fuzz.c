// SPDX-License-Identifier: GPL-2.0-or-later
/* The fuzzer's seeds, and every prefix and changed byte of them, without a fuzzer. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>

#include "../tests/fuzz/fuzz-messages.c"
#include "base/io.h"

#define SEEDS "tests/fuzz/messages"

static void run_exactly(const char *data, size_t len)
{
	uint8_t *copy = malloc(len + !len);

	memcpy(copy, data, len);
	LLVMFuzzerTestOneInput(copy, len);
	free(copy);
}

static void run_around(const struct strbuf *seed)
{
	for (size_t i = 0; i <= seed->len; i++)
		run_exactly(seed->data, i);
	for (size_t i = 0; i < seed->len; i++) {
		static const char bytes[] = { 0, 1, 0x7f, (char)0x80, (char)0xff, '"', '{', '\\' };
		char old = seed->data[i];

		for (size_t k = 0; k < sizeof(bytes); k++) {
			seed->data[i] = bytes[k];
			run_exactly(seed->data, seed->len);
		}
		seed->data[i] = old;
	}
}

static void test_seeds(void **state)
{
	DIR *d = opendir(SEEDS);
	struct dirent *e;
	int n = 0;

	assert_non_null(d);
	while ((e = readdir(d))) {
		_cleanup_(strbuf_done) struct strbuf seed = {};

		if (e->d_name[0] == '.')
			continue;
		assert_int_equal(read_file_at(dirfd(d), e->d_name, 1 << 20, &seed), 0);
		run_around(&seed);
		n++;
	}
	closedir(d);
	assert_true(n >= 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_seeds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
