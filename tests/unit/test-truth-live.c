// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * User stacks as the kernel's walk gives them against those of libdw, frame by frame. Real programs are stopped at
 * random moments with ptrace; a stop is a wait like any other, so its stack comes out of the off-CPU programs, walked
 * from the very registers that libdw sees. And every return address of theirs follows a call instruction.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "after-call.h"
#include "base/clock.h"
#include "collect/collect.h"
#include "manager/unwinding.h"
#include "parser/parser.h"
#include "places.h"
#include "run-program.h"
#include "truth-libdw.h"

#define SNAPSHOTS 40

struct session {
	struct process_table *processes;
	struct unwinding *unwinding;
	struct collector *collector;
	/* What the kernel's walks gave for the thread in question. */
	uint32_t tid;
	struct stack *seen;
	enum walk_end *ends;
	size_t n_seen, cap_seen, cap_ends;
};

/* ---- the kernel's walk ----------------------------------------------------------------------------- */

static void keep(struct session *s, const struct slice *sl, const struct slice_stack *st)
{
	struct stack *k;

	if (ARRAY_GROW(s->seen, s->cap_seen, s->n_seen + 1) < 0 ||
	    ARRAY_GROW(s->ends, s->cap_ends, s->n_seen + 1) < 0)
		fail();
	s->ends[s->n_seen] = st->walk_end;
	k = &s->seen[s->n_seen++];
	k->n = st->nr_user;
	memcpy(k->ips, sl->ips + st->first_ip + st->nr_kernel, k->n * sizeof(*k->ips));
}

static void turn(struct session *s)
{
	_cleanup_(slice_free_p) struct slice *sl = NULL;

	process_table_poll(s->processes);
	unwinding_follow(s->unwinding);
	assert_int_equal(collector_drain(s->collector, false, &sl), 0);
	process_table_poll(s->processes);
	for (size_t i = 0; i < sl->n_stacks; i++) {
		/* What window_add() does before: it makes the process known. */
		struct process *p = process_find(s->processes, sl->stacks[i].tgid,
						 sl->stacks[i].start);
		struct process_labels l;

		if (p)
			process_labels(p, &l);
		if (sl->stacks[i].tgid == s->tid)
			keep(s, sl, &sl->stacks[i]);
	}
	unwinding_see(s->unwinding, sl);
	process_table_expire(s->processes, sl->mono_end_ns);
}

static int open_session(void **state)
{
	const struct process_options po = { .proc = "/proc", .side_band = true };
	struct collect_options co = {
		.enabled = { [SOURCE_OFF_CPU] = true },
		.off_cpu_threshold_ns = 1,
		.off_cpu_threshold_max_ns = 1,
		.walks_per_second = 1000000,
		.places = kernel_places(),
	};
	struct session *s = new0(struct session, 1);
	char *why = NULL;

	assert_int_equal(process_table_new(&po, &s->processes), 0);
	assert_int_equal(unwinding_new(s->processes, NULL, 64 << 20, &s->unwinding), 0);
	co.tables = unwinding_tables(s->unwinding);
	if (collector_new(&co, &s->collector, &why) < 0)
		fail_msg("%s", why);
	*state = s;
	return 0;
}

static int close_session(void **state)
{
	struct session *s = *state;

	collector_free(s->collector);
	unwinding_free(s->unwinding);
	process_table_free(s->processes);
	free(s->seen);
	free(s->ends);
	free(s);
	return 0;
}

/* ---- one program ---------------------------------------------------------------------------------------- */

/* Until it has begun with what it does without end: while a program starts, its mappings come and go. */
static void wait_for_work(pid_t pid)
{
	uint64_t until = mono_now_ns() + 60 * NSEC_PER_SEC;
	struct timespec ran = {};
	clockid_t clock;

	assert_int_equal(clock_getcpuclockid(pid, &clock), 0);
	while (ran.tv_sec == 0 && ran.tv_nsec < 300000000 && mono_now_ns() < until) {
		sleep_us(50000);
		if (clock_gettime(clock, &ran) < 0)
			break;
	}
}

/*
 * Stops the program where it is, asks libdw, lets it go on. A signal that is on its way is let through: the stop comes
 * when the handler begins. False when the program has ended.
 */
static bool snapshot(pid_t pid, struct stack *ret)
{
	int status;

	if (ptrace(PTRACE_INTERRUPT, pid, NULL, NULL) < 0)
		return false;
	while (waitpid(pid, &status, __WALL) == pid && WIFSTOPPED(status)) {
		if (status >> 16 == PTRACE_EVENT_STOP) {
			/* A stop that lasts: the resume finds a wait. */
			walk_by_libdw(pid, ret);
			return ptrace(PTRACE_CONT, pid, NULL, NULL) == 0;
		}
		if (ptrace(PTRACE_CONT, pid, NULL, (void *)(long)WSTOPSIG(status)) < 0)
			return false;
	}
	return false;
}

static bool same(const struct stack *a, const struct stack *b)
{
	return a->n == b->n && memcmp(a->ips, b->ips, a->n * sizeof(*a->ips)) == 0;
}

static void show(const char *name, const struct session *s, const struct stack *truth)
{
	print_message("%s: libdw:", name);
	for (size_t i = 0; i < truth->n; i++)
		print_message(" %lx", truth->ips[i]);
	for (size_t k = 0; k < s->n_seen; k++) {
		if (s->seen[k].n == 0 || s->seen[k].ips[0] != truth->ips[0])
			continue;
		print_message("\n  ours (end %d):", s->ends[k]);
		for (size_t i = 0; i < s->seen[k].n; i++)
			print_message(" %lx", s->seen[k].ips[i]);
	}
	print_message("\n");
}

struct tally {
	unsigned same, differ, partial, libdw_failed, not_recorded;
	struct calls calls;
};

/* Of the program, which is still there. */
static bool read_code(void *ctx, void *to, size_t size, uint64_t from)
{
	const struct session *s = ctx;
	struct iovec local = { to, size }, remote = { (void *)from, size };

	return process_vm_readv((pid_t)s->tid, &local, 1, &remote, 1, 0) == (ssize_t)size;
}

static void show_stranger(void *ctx, uint64_t ip)
{
	print_message("no call before %lx\n", ip);
}

static void judge(const char *name, struct session *s, const struct stack *truth, struct tally *t)
{
	bool there = false, partial = false;

	if (!truth->ended || truth->n == 0) {
		t->libdw_failed++;
		return;
	}
	for (size_t k = 0; k < s->n_seen; k++) {
		if (same(&s->seen[k], truth)) {
			t->same++;
			check_calls(truth->ips, truth->n, read_code, s, show_stranger, &t->calls);
			return;
		}
		if (s->seen[k].n == 0 || s->seen[k].ips[0] != truth->ips[0])
			continue;
		there = true;
		partial |= s->ends[k] != WALK_COMPLETE;
	}
	if (partial)
		t->partial++;
	else if (there)
		t->differ++;
	else
		t->not_recorded++;
	if (there)
		show(name, s, truth);
}

/* Until the program's mappings and tables are there: its stacks become complete. */
static void warm_up(struct session *s, pid_t pid)
{
	uint64_t until = mono_now_ns() + 20 * NSEC_PER_SEC;
	struct unwinding_state st;
	struct stack k;

	do {
		if (!snapshot(pid, &k))
			return;
		sleep_us(50000);
		turn(s);
		unwinding_state(s->unwinding, &st);
	} while ((st.unwinder.wanted || !s->n_seen || s->ends[s->n_seen - 1] != WALK_COMPLETE) &&
		 mono_now_ns() < until);
}

static void compare(struct session *s, const char *name, const char *command)
{
	static struct stack truth[SNAPSHOTS];
	struct tally t = {};
	size_t n = 0;
	pid_t pid = start(command);

	s->tid = (uint32_t)pid;
	s->n_seen = 0;
	wait_for_work(pid);
	assert_int_equal(ptrace(PTRACE_SEIZE, pid, NULL, NULL), 0);
	warm_up(s, pid);
	s->n_seen = 0;
	while (n < SNAPSHOTS && snapshot(pid, &truth[n])) {
		n++;
		sleep_us(1000 + (unsigned)(random() % 9000));
		if (n % 10 == 0)
			turn(s);
	}
	turn(s);
	for (size_t i = 0; i < n; i++)
		judge(name, s, &truth[i], &t);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, __WALL);
	print_message(
		"%-22s %3zu stops: %u the same, %u differ, %u partial, %u libdw could not, %u "
		"not recorded; %lu of %lu return addresses follow no call, %lu are of signals\n",
		name, n, t.same, t.differ, t.partial, t.libdw_failed, t.not_recorded,
		t.calls.strangers, t.calls.checked, t.calls.signals);
	assert_int_equal(t.differ, 0);
	assert_true(t.calls.checked >= t.same);
	assert_int_equal(t.calls.strangers + t.calls.unreadable, 0);
	assert_true(t.same >= n / 2);
	assert_true(t.partial <= n / 10);
}

/* ---- programs ---------------------------------------------------------------------------------------------- */

#define COMPARE(name, command)                   \
	static void test_##name(void **state)    \
	{                                        \
		compare(*state, #name, command); \
	}

COMPARE(python, "exec python3 -c '\nimport re\ndef f(n):\n  return 1 if n < 2 else f(n-1) + "
		"f(n-2)\nwhile True:\n  f(12); sorted(str(i) for i in range(500)); "
		"re.findall(\"a+b\", \"aab\" * 99)'")
COMPARE(perl, "exec perl -e 'sub f { my $n = shift; $n < 2 ? 1 : f($n-1) + f($n-2) } while (1) { "
	      "f(10); my @a = sort map { \"x$_\" } 1..300; join(\",\", @a) =~ s/x(\\d)/y$1/gr }'")
COMPARE(bash, "exec bash -c 'f() { local i; for i in {1..50}; do : $((i*i)); done; [[ abc == a* "
	      "]]; }; while :; do f; done'")
COMPARE(openssl, "exec openssl speed -seconds 60 -evp chacha20-poly1305")
COMPARE(sha, "exec openssl speed -seconds 60 sha256 sha512")
COMPARE(xz, "exec xz -9 -c /dev/urandom")

/* ---- one source, built in many ways -------------------------------------------------------------------------- */

static const struct build {
	const char *name, *compiler;
	const char *kinds; /* initials of those that it is tried with */
} builds[] = {
	{ "gcc -O2", "gcc -O2", "pvsdtP" },
	{ "gcc -O0 no-pie", "gcc -O0 -no-pie", "v" },
	{ "gcc -O3 native", "gcc -O3 -march=native -fuse-ld=gold", "vd" },
	{ "gcc lazy", "gcc -O2 -Wl,-z,lazy -fno-plt -fcf-protection=none", "P" },
	{ "gcc static", "gcc -O2 -static", "vs" },
	{ "gcc static-pie", "gcc -O2 -static-pie", "vs" },
	{ "clang -O2 lld", "clang -O2 -fuse-ld=lld", "vsd" },
	{ "clang -O3 bfd", "clang -O3 -march=native -no-pie", "v" },
};

static void test_builds(void **state)
{
	char dir[] = "/tmp/test-truth.XXXXXX", command[512], name[64];

	assert_non_null(mkdtemp(dir));
	for (size_t i = 0; i < ARRAY_SIZE(builds); i++) {
		snprintf(command, sizeof(command),
			 "%s -w -fomit-frame-pointer -o %s/u tests/workload/unwind.c -lrt",
			 builds[i].compiler, dir);
		assert_int_equal(system(command), 0);
		for (const char *k = builds[i].kinds; *k; k++) {
			snprintf(command, sizeof(command), "exec %s/u 60 %s", dir,
				 *k == 'p'   ? "plain"
				 : *k == 'v' ? "variable"
				 : *k == 's' ? "signal"
				 : *k == 'd' ? "deep"
				 : *k == 't' ? "tall"
					     : "plt");
			snprintf(name, sizeof(name), "%s (%c)", builds[i].name, *k);
			compare(*state, name, command);
		}
		snprintf(command, sizeof(command), "%s/u", dir);
		unlink(command);
	}
	rmdir(dir);
}

/* ---- programs that somebody else has built ------------------------------------------------------------------------ */

static const char *programs;

static int is_program(const struct dirent *e)
{
	return *e->d_name != '.';
}

/* Every file of that directory is a program that runs until it is killed. */
static void test_programs(void **state)
{
	_cleanup_free_ struct dirent **found = NULL;
	int n = scandir(programs, &found, is_program, alphasort);
	char command[512];

	assert_true(n > 0);
	for (int i = 0; i < n; i++) {
		snprintf(command, sizeof(command), "exec '%s/%s'", programs, found[i]->d_name);
		compare(*state, found[i]->d_name, command);
		free(found[i]);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_python), cmocka_unit_test(test_perl),
		cmocka_unit_test(test_bash),   cmocka_unit_test(test_openssl),
		cmocka_unit_test(test_sha),    cmocka_unit_test(test_xz),
		cmocka_unit_test(test_builds),
	};
	const struct CMUnitTest given[] = { cmocka_unit_test(test_programs) };

	if (argc == 3 && streq(argv[1], "--symbol-helper"))
		return parser_main(argv[2]);
	if (argc == 2) {
		programs = argv[1];
		return cmocka_run_group_tests(given, open_session, close_session);
	}
	return cmocka_run_group_tests(tests, open_session, close_session);
}
