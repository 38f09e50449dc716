// SPDX-License-Identifier: GPL-2.0-or-later
/* A collector that is made on a thread of its own: here one that cannot be, which needs no kernel. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <poll.h>

#include "base/log.h"
#include "manager/loader.h"

static struct config *config(void)
{
	struct config *c = NULL;

	assert_int_equal(config_new(&c), 0);
	return c;
}

static void wait_for(struct loader *l)
{
	struct pollfd p = { .fd = loader_fd(l), .events = POLLIN };

	assert_int_equal(poll(&p, 1, 60000), 1);
}

static void test_failure_is_told(void **state)
{
	const struct collect_options nothing = {};
	struct loaded made = {};
	struct loader *l = NULL;
	char *why = NULL;

	assert_int_equal(loader_start(config(), &nothing, &l), 0);
	wait_for(l);
	assert_int_equal(loader_take(l, &made, &why), -EOPNOTSUPP);
	assert_null(made.config);
	assert_string_equal(why, "nothing is enabled");
	free(why);
	loader_free(l);
}

static void test_without_a_collector(void **state)
{
	struct loaded made = {};
	struct loader *l = NULL;
	struct config *c = config();
	char *why = NULL;

	assert_int_equal(loader_start(c, NULL, &l), 0);
	wait_for(l);
	assert_int_equal(loader_take(l, &made, &why), 0);
	assert_ptr_equal(made.config, c);
	assert_null(made.collector);
	assert_non_null(made.access);
	loaded_done(&made);
	loader_free(l);
}

/* Whoever lets go early leaves the rest to the thread; twenty at a time, for the sanitizers. */
static void test_letting_go(void **state)
{
	const struct collect_options nothing = {};

	for (int i = 0; i < 20; i++) {
		struct loader *l = NULL;

		assert_int_equal(loader_start(config(), i % 2 ? &nothing : NULL, &l), 0);
		loader_free(l);
	}
	usleep(200000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_failure_is_told),
		cmocka_unit_test(test_without_a_collector),
		cmocka_unit_test(test_letting_go),
	};

	log_set_level(LOG_LEVEL_ERROR); /* the group of the default configuration need not exist */
	return cmocka_run_group_tests(tests, NULL, NULL);
}
