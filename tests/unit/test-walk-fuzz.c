// SPDX-License-Identifier: GPL-2.0-or-later
/* The walk's fuzzer without a fuzzer: made-up stacks and tables from a fixed sequence. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "../tests/fuzz/fuzz-walk.c"

static uint64_t state = 88172645463325252ULL;

static uint64_t next(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	return state ^= state << 17;
}

static void test_made_up(void **unused)
{
	uint8_t data[4096];

	for (int round = 0; round < 20000; round++) {
		size_t n = 16 + next() % (sizeof(data) - 16);
		/* Small numbers make rules, indices and offsets that are believed. */
		uint8_t mask = round % 3 == 0 ? 0xff : round % 3 == 1 ? 0x07 : 0x1f;

		for (size_t i = 0; i < n; i++)
			data[i] = (uint8_t)(next() >> 20) & (i < 64 ? 0xff : mask);
		LLVMFuzzerTestOneInput(data, n);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_made_up) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
