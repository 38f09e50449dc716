// SPDX-License-Identifier: GPL-2.0-or-later
/* What a user without privilege can do to others through the server, and hear about them. */
#include "serve-fixture.h"

#include <sys/prctl.h>

static void become(uid_t uid)
{
	if (setgid(uid) < 0 || setuid(uid) < 0)
		_exit(255);
}

/* What `fn` returns in a child of that uid. */
static int as_user(struct fixture *f, uid_t uid, int (*fn)(struct fixture *f))
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		become(uid);
		_exit(fn(f));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

/* A child of that uid, to be killed, that keeps what `take` took. */
static pid_t hold_as_user(struct fixture *f, uid_t uid, bool (*take)(struct fixture *f))
{
	int ready[2];
	pid_t pid;
	char c;

	assert_int_equal(pipe(ready), 0);
	pid = fork();
	if (pid == 0) {
		become(uid);
		if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
			_exit(255);
		if (take(f) && write(ready[1], "", 1) == 1)
			pause();
		_exit(1);
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &c, 1), 1);
	close(ready[0]);
	return pid;
}

/* How many of 40 connections that hang are served at all. */
static int hang(struct fixture *f)
{
	int held = 0;

	for (int i = 0; i < 40; i++) {
		int fd = dial(f);

		put(fd, "P", 1);
		held += !readable(fd, 5);
	}
	return held;
}

/* An answer that fills the budget of users without privilege, left unread. */
static bool take_an_answer(struct fixture *f)
{
	int fd = dial(f);

	send_post(fd, SERVICE "Status", JSON, "{}", 2);
	return readable(fd, 5000);
}

static void test_one_user_holds_no_others_answers(void **state)
{
	struct fixture *f = *state;
	struct reply r;
	pid_t pid;

	need_root();
	f->fake.big_counters = 7000; /* within half a megabyte, more than the socket holds */
	pid = hold_as_user(f, UID_ALICE, take_an_answer);
	f->fake.big_counters = 14000;
	post_json(f, "Status", "{}", &r);
	assert_int_equal(r.status, 200);
	reply_done(&r);
	/* Small answers have room beside a large one, whoever holds that. */
	f->fake.big_counters = 0;
	assert_alive(f);
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void test_one_user_gets_half(void **state)
{
	need_root();
	/* Idle ones are replaced as they age, but never more than half are held at a time. */
	assert_in_range(as_user(*state, UID_ALICE, hang), 32, 40);
	assert_alive(*state);
}

/* As many live streams as there are to be had. */
static bool take_streams(struct fixture *f)
{
	static const char request[] = "\0\0\0\0\2{}";

	for (int i = 0; i < 40; i++)
		send_post(dial(f), SERVICE "Watch", STREAM_JSON, request, 7);
	usleep(300000);
	return true;
}

/* Two users who take all they get leave places to those who look after the host. */
static void test_users_leave_places(void **state)
{
	static const uid_t users[] = { UID_ALICE, UID_BOB };
	pid_t pids[ARRAY_SIZE(users)];

	need_root();
	for (size_t i = 0; i < ARRAY_SIZE(users); i++)
		pids[i] = hold_as_user(*state, users[i], take_streams);
	for (int i = 0; i < 8; i++)
		assert_alive(*state);
	for (size_t i = 0; i < ARRAY_SIZE(users); i++) {
		kill(pids[i], SIGKILL);
		assert_int_equal(waitpid(pids[i], NULL, 0), pids[i]);
	}
}

/* Two recordings by a user without privilege: the second is refused. */
static int record_twice(struct fixture *f)
{
	const char body[] = "\0\0\0\0\16{\"seconds\":30}";
	struct reply r;

	send_post(dial(f), SERVICE "Record", STREAM_JSON, body, sizeof(body) - 1);
	usleep(200000);
	post(f, SERVICE "Record", STREAM_JSON, body, sizeof(body) - 1, &r);
	return r.body.len > 5 && r.body.data[0] == 2 &&
			       strstr(r.body.data + 5, "one recording at a time")
		       ? 0
		       : 1;
}

/* Whether a user without privilege hears how many samples others gave: the burst has 100 a second. */
static int record(struct fixture *f)
{
	const char body[] = "\0\0\0\0\17{\"seconds\":1.5}";
	bool progress, told;
	struct reply r;

	post(f, SERVICE "Record", STREAM_JSON, body, sizeof(body) - 1, &r);
	/* The second frame is the last, with the profile's own 100. */
	progress = r.body.len > 5 && strstr(r.body.data + 5, "\"elapsedSeconds\"");
	told = progress && (strstr(r.body.data + 5, "\"samples\"") ||
			    memmem(r.body.data, r.body.len, "\"samples\":\"200\"", 15));
	return progress && !told && memmem(r.body.data, r.body.len, "\"profile\":{", 11) ? 0 : 1;
}

/* Which binaries others run is told to nobody else. */
static int ask_for_binaries(struct fixture *f)
{
	struct reply r;
	int bad = 0;

	post(f, SERVICE "Stacks", "Content-Type: application/json\r\n", "{}", 2, &r);
	bad |= r.status != 403 || strstr(r.body.data, "secret");
	reply_done(&r);
	get(f, "/metrics", "", &r);
	bad |= r.status != 200 || strstr(r.body.data, "secret") ||
	       !strstr(r.body.data, "sysprofd_user_stacks_total");
	return bad;
}

static void test_binaries_of_others_are_not_told(void **state)
{
	need_root();
	assert_int_equal(as_user(*state, UID_ALICE, ask_for_binaries), 0);
	assert_alive(*state);
}

static void test_counts_of_others_are_not_told(void **state)
{
	need_root();
	assert_int_equal(as_user(*state, UID_ALICE, record), 0);
	assert_alive(*state);
}

static void test_one_recording_per_user(void **state)
{
	need_root();
	assert_int_equal(as_user(*state, UID_ALICE, record_twice), 0);
	assert_alive(*state);
}

/* A megabyte for all answers, half of it for users without privilege. */
static int setup_small_answers(void **state)
{
	struct fixture *f = fixture_new();

	f->options.max_answer_bytes = 1 << 20;
	*state = f;
	return fixture_start(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_one_user_gets_half, setup, teardown),
		cmocka_unit_test_setup_teardown(test_one_user_holds_no_others_answers,
						setup_small_answers, teardown),
		cmocka_unit_test_setup_teardown(test_users_leave_places, setup, teardown),
		cmocka_unit_test_setup_teardown(test_one_recording_per_user, setup, teardown),
		cmocka_unit_test_setup_teardown(test_counts_of_others_are_not_told, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_binaries_of_others_are_not_told, setup,
						teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
