// SPDX-License-Identifier: GPL-2.0-or-later
/* A collector that is made on a thread of its own: here one that cannot be, which needs no kernel. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <poll.h>

#include "manager/loader.h"

static void test_failure_is_told(void **state)
{
	const struct collect_options nothing = {};
	struct collector *c = NULL;
	struct loader *l = NULL;
	struct pollfd p = { .events = POLLIN };
	char *why = NULL;

	assert_int_equal(loader_start(&nothing, &l), 0);
	p.fd = loader_fd(l);
	assert_int_equal(poll(&p, 1, 60000), 1);
	assert_int_equal(loader_take(l, &c, &why), -EOPNOTSUPP);
	assert_null(c);
	assert_string_equal(why, "nothing is enabled");
	free(why);
	loader_free(l);
}

/* Whoever lets go early leaves the rest to the thread; twenty at a time, for the sanitizers. */
static void test_letting_go(void **state)
{
	const struct collect_options nothing = {};

	for (int i = 0; i < 20; i++) {
		struct loader *l = NULL;

		assert_int_equal(loader_start(&nothing, &l), 0);
		loader_free(l);
	}
	usleep(200000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_failure_is_told),
		cmocka_unit_test(test_letting_go),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
