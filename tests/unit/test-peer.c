// SPDX-License-Identifier: GPL-2.0-or-later
/* Who may see what. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <grp.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "serve/peer.h"

#define ADMINS 7001
#define DEVELOPERS 7002
#define OTHERS 7003

/* As access_policy_init() would make it, without asking this host for groups. */
static void make_policy(struct access_policy *a)
{
	*a = (struct access_policy){ .admin_gid = ADMINS, .has_admin_gid = true };
	a->grants = new0(struct access_grant, 2);
	a->grants[0] = (struct access_grant){ DEVELOPERS, strdup("foo*.service") };
	a->grants[1] = (struct access_grant){ OTHERS, strdup("bar.service") };
	a->n_grants = 2;
}

static struct peer *make_peer(const struct access_policy *a, uid_t uid, const gid_t *gids, size_t n)
{
	struct peer *p;

	assert_int_equal(peer_new_from(a, uid, gids, n, &p), 0);
	assert_int_equal(p->uid, uid);
	return p;
}

static void test_visibility(void **state)
{
	static const gid_t none[] = { 100 }, admin[] = { 100, ADMINS }, dev[] = { DEVELOPERS, 5 };
	struct access_policy a;
	struct peer *p;

	make_policy(&a);
	p = make_peer(&a, 0, none, 1);
	assert_true(p->visibility.all);
	peer_unref(p);
	p = make_peer(&a, 1000, admin, 2);
	assert_true(p->visibility.all);
	peer_unref(p);
	p = make_peer(&a, 1000, none, 1);
	assert_false(p->visibility.all);
	assert_int_equal(p->visibility.uid, 1000);
	assert_int_equal(p->visibility.n_units, 0);
	peer_unref(p);
	p = make_peer(&a, 1000, dev, 2);
	assert_false(p->visibility.all);
	assert_int_equal(p->visibility.n_units, 1);
	assert_string_equal(p->visibility.units[0], "foo*.service");
	peer_unref(p);
	access_policy_done(&a);
}

/* Without a group that exists, gid 0 must not become the administrators' by accident. */
static void test_unknown_groups(void **state)
{
	static const struct access_rule rules[] = { { (char *)"no-such-group-on-any-host",
						      (char *)"*" } };
	static const gid_t zero[] = { 0 };
	struct access_policy a;
	struct peer *p;

	assert_int_equal(access_policy_init(&a, "no-such-group-either", rules, 1), 0);
	assert_false(a.has_admin_gid);
	assert_int_equal(a.n_grants, 0);
	p = make_peer(&a, 1000, zero, 1);
	assert_false(p->visibility.all);
	peer_unref(p);
	access_policy_done(&a);
}

/* Groups are those of the process that connected: supplementary ones, and more of them than fit at first. */
static int connect_as(const struct access_policy *a, size_t n_groups)
{
	gid_t groups[300];
	struct peer *p;
	int fds[2];

	for (size_t i = 0; i < n_groups; i++)
		groups[i] = (gid_t)(20000 + i);
	groups[n_groups - 1] = ADMINS;
	if (setgroups(n_groups, groups) < 0 || setgid(12345) < 0 || setuid(12345) < 0)
		return 10;
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds) < 0 || peer_new(a, fds[0], &p) < 0)
		return 11;
	return p->uid == 12345 && p->visibility.all ? 0 : 12;
}

static void test_groups_of_a_process(void **state)
{
	static const size_t counts[] = { 1, 64, 65, 300 };
	struct access_policy a;

	if (getuid() != 0) {
		print_message("needs root, to become somebody else\n");
		skip();
	}
	make_policy(&a);
	for (size_t i = 0; i < ARRAY_SIZE(counts); i++) {
		pid_t pid = fork();
		int status;

		if (pid == 0)
			_exit(connect_as(&a, counts[i]));
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFEXITED(status));
		assert_int_equal(WEXITSTATUS(status), 0);
	}
	access_policy_done(&a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_visibility),
		cmocka_unit_test(test_unknown_groups),
		cmocka_unit_test(test_groups_of_a_process),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
