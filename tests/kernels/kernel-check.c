// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Runs on another kernel, alone in an emulator: loads and attaches all collectors, puts a small workload of
 * known size under them, and says what they counted. The workload stamps its own truth; bounds are wide,
 * because an emulated CPU keeps no time, except for calls, which are counted exactly.
 *
 * Output, one fact a line, for run.sh: "check ok NAME DETAIL", "check fail NAME DETAIL", "insns PROGRAM SIZE
 * VERIFIED", "log TEXT", "done".
 */
#include <bpf/bpf.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "collect/collect.h"
#include "model/profile.h"
#include "../unit/places.h"
#include "../workload/kernel-lock.h"
#include "sysprofd.skel.h"

#define CALLERS 8
#define CALLS 100000
#define SLEEP_NS (50 * NSEC_PER_MSEC)
#define LOCK_ROUNDS 50
#define BURN_NS (3 * NSEC_PER_SEC)
#define TIME_LIMIT_NS (150 * NSEC_PER_SEC)
#define KERNEL_LOCK_ROUNDS 10
#define MAPPERS 8
#define MAP_TURNS 3000
#define ODD_CALLS 1000 /* of each kind of odd_kinds */
#define LOG_TAIL 30
#define LOG_SIZE (4U << 20)

/* What the workload says about itself, shared with its processes. */
struct truth {
	atomic_uint lock; /* 0 free, 1 held, 2 held and waited for */
	atomic_uint waits; /* FUTEX_WAIT that was woken */
	atomic_uint calls;
	struct kernel_lock_truth kernel_lock;
	int kernel_lock_errno;
	int odd_errno; /* of the x32 calls: kernels may be without */
};

/* Calls whose number says little without its ABI, and numbers that nobody has. */
enum odd_kind {
	ODD_WRITEV,
	ODD_MINUS_ONE,
	ODD_UNKNOWN,
#ifdef __x86_64__
	ODD_COMPAT_GETPID, /* 20, which natively is writev */
	ODD_X32_GETPID,
#endif
	ODD_N
};

static const char *const odd_names[ODD_N] = {
	[ODD_WRITEV] = "writev",
	[ODD_MINUS_ONE] = "minus-one",
	[ODD_UNKNOWN] = "9999",
#ifdef __x86_64__
	[ODD_COMPAT_GETPID] = "compat-getpid",
	[ODD_X32_GETPID] = "x32-getpid",
#endif
};

struct child {
	pid_t pid;
	bool running;
};

struct workload {
	struct truth *truth;
	struct child callers[CALLERS], odd, burner, sleeper, locker, holder, mapper;
	int start_fd; /* closed to let them run */
	uint64_t off_ns; /* the sleeper did not run: elapsed time minus what schedstat says */
};

/* What the collectors say. */
struct tally {
	uint64_t on_cpu, burner, burner_user_stacks;
	uint64_t getpid;
	uint64_t timed; /* what the timed ones of them stand for */
	uint64_t drawn; /* and those that were drawn for their stack, as far as it was walked, */
	uint64_t not_walked; /* and as far as it was not */
	uint64_t odd[ODD_N],
		odd_others; /* with the outcome that they must have; of the process's other calls */
	uint64_t off_ns, sleeper_samples;
	uint64_t timer_wakes, odd_wakes; /* of the sleeper; by whomever the timer interrupted */
	uint64_t lock_wakes; /* of the locker's threads, by another one */
	uint64_t lock_waits, lock_stacks;
	struct {
		uint64_t pipe_n, pipe_ns, file_n, file_ns; /* of the holder's process */
		uint64_t all, mapper, lost;
	} kernel_locks;
	struct hardware_value hardware; /* of the burner */
	struct account account[SOURCE_N];
	uint64_t stacks;
};

static const char *const source_names[SOURCE_N] = { "on-cpu", "off-cpu", "syscalls", "futex" };

static bool failed;

__attribute__((format(printf, 3, 4))) static void say(bool ok, const char *name, const char *fmt,
						      ...)
{
	va_list ap;

	failed |= !ok;
	printf("check %s %s ", ok ? "ok" : "fail", name);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	printf("\n");
	fflush(stdout);
}

#include "instructions.h"

/* ---- the workload ------------------------------------------------------------------------------ */

static void run_caller(struct truth *t)
{
	for (int i = 0; i < CALLS; i++)
		syscall(SYS_getpid);
	atomic_fetch_add(&t->calls, CALLS);
}

#ifdef __x86_64__
#define X32_BIT 0x40000000L

static long call_compat(long nr)
{
	__asm__ volatile("int $0x80" : "+a"(nr) : : "memory", "r8", "r9", "r10", "r11");
	return nr;
}
#endif

static void run_odd(struct truth *t)
{
	for (int i = 0; i < ODD_CALLS; i++) {
		if (syscall(SYS_writev, -1, NULL, 0) != -1 || syscall(-1L) != -1 ||
		    syscall(9999L) != -1)
			_exit(1);
#ifdef __x86_64__
		if (call_compat(20) != getpid())
			_exit(1);
		t->odd_errno = syscall(SYS_getpid | X32_BIT) < 0 ? errno : 0;
#endif
	}
}

/* The kind of a call of run_odd(), ODD_N for any other. */
static enum odd_kind odd_kind_of(uint32_t call, int x32_errno)
{
	const uint32_t calls[ODD_N] = {
		[ODD_WRITEV] = SYSCALL_KEY(SYSCALL_ABI_NATIVE, SYS_writev, EBADF),
		[ODD_MINUS_ONE] = SYSCALL_KEY(SYSCALL_ABI_NATIVE, SYSCALL_NR_INVALID, ENOSYS),
		[ODD_UNKNOWN] = SYSCALL_KEY(SYSCALL_ABI_NATIVE, 9999, ENOSYS),
#ifdef __x86_64__
		[ODD_COMPAT_GETPID] = SYSCALL_KEY(SYSCALL_ABI_COMPAT, 20, 0),
		[ODD_X32_GETPID] = SYSCALL_KEY(SYSCALL_ABI_X32, SYS_getpid, x32_errno),
#endif
	};
	int i = 0;

	while (i < ODD_N && calls[i] != call)
		i++;
	return i;
}

__attribute__((noinline)) static void burn(struct truth *t)
{
	while (cpu_now_ns() < BURN_NS)
		for (volatile int i = 0; i < 100000; i++)
			;
}

/* Until it is killed, so that its end does not count: an exit waits for a CPU too. */
static void run_sleeper(struct truth *t)
{
	struct timespec want = { .tv_nsec = SLEEP_NS };

	for (;;)
		clock_nanosleep(CLOCK_MONOTONIC, 0, &want, NULL);
}

static long futex(atomic_uint *word, int op, unsigned value)
{
	return syscall(SYS_futex, word, op | FUTEX_PRIVATE_FLAG, value, NULL, NULL, 0);
}

__attribute__((noinline)) static void lock(struct truth *t)
{
	unsigned seen = 0;

	if (atomic_compare_exchange_strong(&t->lock, &seen, 1))
		return;
	while (atomic_exchange(&t->lock, 2) != 0)
		if (futex(&t->lock, FUTEX_WAIT, 2) == 0)
			atomic_fetch_add(&t->waits, 1);
}

static void unlock(struct truth *t)
{
	if (atomic_exchange(&t->lock, 0) == 2)
		futex(&t->lock, FUTEX_WAKE, 1);
}

static void *run_rounds(void *arg)
{
	struct timespec held = { .tv_nsec = 5 * NSEC_PER_MSEC };

	for (int i = 0; i < LOCK_ROUNDS; i++) {
		lock(arg);
		nanosleep(&held, NULL);
		unlock(arg);
	}
	return NULL;
}

static void run_locker(struct truth *t)
{
	pthread_t other;

	if (pthread_create(&other, NULL, run_rounds, t) != 0)
		_exit(1);
	run_rounds(t);
	pthread_join(other, NULL);
}

/* Locks of the kernel: some are held for a known time, others are fought over. */
static void run_holder(struct truth *t)
{
	t->kernel_lock_errno = kernel_lock_run("/tmp", KERNEL_LOCK_ROUNDS, &t->kernel_lock);
}

static void *map_and_unmap(void *arg)
{
	for (int i = 0; i < MAP_TURNS; i++) {
		char *p = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			       -1, 0);

		if (p != MAP_FAILED)
			*p = 1;
		munmap(p, 1 << 16);
	}
	return NULL;
}

static void run_mapper(struct truth *t)
{
	pthread_t threads[MAPPERS];

	for (int i = 0; i < MAPPERS; i++)
		if (pthread_create(&threads[i], NULL, map_and_unmap, NULL) != 0)
			_exit(1);
	for (int i = 0; i < MAPPERS; i++)
		pthread_join(threads[i], NULL);
}

static void start(struct child *c, struct workload *w, const int gate[2],
		  void (*run)(struct truth *))
{
	char byte;

	c->pid = fork();
	c->running = c->pid > 0;
	if (c->pid)
		return;
	close(gate[1]);
	(void)!read(gate[0], &byte, 1);
	run(w->truth);
	_exit(0);
}

static int start_all(struct workload *w)
{
	int gate[2];

	w->truth = mmap(NULL, sizeof(*w->truth), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
			-1, 0);
	if (w->truth == MAP_FAILED || pipe(gate) < 0)
		return negative_errno();
	for (int i = 0; i < CALLERS; i++)
		start(&w->callers[i], w, gate, run_caller);
	start(&w->odd, w, gate, run_odd);
	start(&w->burner, w, gate, burn);
	start(&w->sleeper, w, gate, run_sleeper);
	start(&w->locker, w, gate, run_locker);
	start(&w->holder, w, gate, run_holder);
	start(&w->mapper, w, gate, run_mapper);
	close(gate[0]);
	w->start_fd = gate[1];
	return 0;
}

static bool is_over(struct child *c)
{
	if (c->running && waitpid(c->pid, NULL, WNOHANG) == c->pid)
		c->running = false;
	return !c->running;
}

static bool all_over(struct workload *w)
{
	bool over = true;

	for (int i = 0; i < CALLERS; i++)
		over &= is_over(&w->callers[i]);
	over &= is_over(&w->odd);
	over &= is_over(&w->burner);
	over &= is_over(&w->locker);
	over &= is_over(&w->holder);
	over &= is_over(&w->mapper);
	return over;
}

/* ---- counting ---------------------------------------------------------------------------------- */

static bool is_caller(const struct workload *w, uint32_t tgid)
{
	for (int i = 0; i < CALLERS; i++)
		if ((uint32_t)w->callers[i].pid == tgid)
			return true;
	return false;
}

static void add_odd(struct tally *t, const struct workload *w, const struct slice *s)
{
	for (size_t i = 0; i < s->n_syscalls; i++) {
		enum odd_kind kind = odd_kind_of(s->syscalls[i].key.call, w->truth->odd_errno);

		if (s->syscalls[i].key.tgid != (uint32_t)w->odd.pid)
			continue;
		if (kind < ODD_N)
			t->odd[kind] += s->syscalls[i].calls;
		else if (SYSCALL_KEY_ERRNO(s->syscalls[i].key.call) ||
			 SYSCALL_KEY_ABI(s->syscalls[i].key.call) != SYSCALL_ABI_NATIVE)
			t->odd_others += s->syscalls[i].calls;
	}
}

static void add_kernel_locks(struct tally *t, const struct workload *w, const struct slice *s)
{
	for (size_t i = 0; i < s->n_kernel_locks; i++) {
		const struct kernel_lock *k = &s->kernel_locks[i];

		t->kernel_locks.all += k->waits;
		if (k->tgid == (uint32_t)w->mapper.pid && k->nr)
			t->kernel_locks.mapper += k->waits;
		if (k->tgid != (uint32_t)w->holder.pid)
			continue;
		if (k->kind == KERNEL_LOCK_MUTEX) {
			t->kernel_locks.pipe_n += k->waits;
			t->kernel_locks.pipe_ns += k->ns;
		} else if (k->kind == KERNEL_LOCK_RWSEM_WRITE) {
			t->kernel_locks.file_n += k->waits;
			t->kernel_locks.file_ns += k->ns;
		}
	}
	t->kernel_locks.lost += s->kernel_locks_lost;
}

static void add_hardware(struct tally *t, const struct workload *w, const struct slice *s)
{
	for (size_t i = 0; i < s->n_hardware; i++) {
		const struct hardware_value *v = &s->hardware[i].value;

		if (s->hardware[i].key.tgid != (uint32_t)w->burner.pid)
			continue;
		t->hardware.spans += v->spans;
		t->hardware.ns += v->ns;
		for (int k = 0; k < HARDWARE_COUNTERS; k++) {
			t->hardware.counters[k].n += v->counters[k].n;
			t->hardware.counters[k].ns += v->counters[k].ns;
		}
	}
}

static void add_slice(struct tally *t, const struct workload *w, const struct slice *s)
{
	for (size_t i = 0; i < s->n_on_cpu; i++) {
		t->on_cpu += s->on_cpu[i].value.samples;
		if (s->on_cpu[i].key.tgid == (uint32_t)w->burner.pid)
			t->burner += s->on_cpu[i].value.samples;
	}
	for (size_t i = 0; i < s->n_stacks; i++)
		if (s->stacks[i].tgid == (uint32_t)w->burner.pid && s->stacks[i].nr_user)
			t->burner_user_stacks++;
		else if (s->stacks[i].tgid == (uint32_t)w->locker.pid &&
			 s->stacks[i].source == SOURCE_FUTEX)
			t->lock_stacks++;
	for (size_t i = 0; i < s->n_syscalls; i++)
		if (is_caller(w, s->syscalls[i].key.tgid) &&
		    SYSCALL_KEY_NR(s->syscalls[i].key.call) == SYS_getpid &&
		    SYSCALL_KEY_ABI(s->syscalls[i].key.call) == SYSCALL_ABI_NATIVE)
			t->getpid += s->syscalls[i].calls;
	for (size_t i = 0; i < s->n_details; i++)
		if (is_caller(w, s->details[i].key.tgid) &&
		    SYSCALL_KEY_NR(s->details[i].key.call) == SYS_getpid &&
		    row_aspect(PROFILE_SYSCALLS, s->details[i].key.call) == CALL_LATENCY)
			t->timed += s->details[i].value.calls;
	for (size_t i = 0; i < s->n_callers; i++)
		if (is_caller(w, s->callers[i].key.tgid) &&
		    SYSCALL_KEY_NR(s->callers[i].key.call) == SYS_getpid)
			*(s->callers[i].key.stack == STACK_ID_NONE ? &t->not_walked : &t->drawn) +=
				s->callers[i].calls;
	add_odd(t, w, s);
	add_hardware(t, w, s);
	add_kernel_locks(t, w, s);
	for (size_t i = 0; i < s->n_threads; i++)
		if (s->threads[i].tgid == (uint32_t)w->sleeper.pid)
			t->off_ns += s->threads[i].blocked_ns + s->threads[i].run_queue_ns +
				     s->threads[i].preempted_ns;
	for (size_t i = 0; i < s->n_off_cpu; i++)
		if (s->off_cpu[i].key.tgid == (uint32_t)w->sleeper.pid)
			t->sleeper_samples += s->off_cpu[i].value.samples;
	for (size_t i = 0; i < s->n_wakes; i++) {
		const struct wake_key *k = &s->wakes[i].key;
		uint64_t n = s->wakes[i].value.waits;

		if (k->tgid == (uint32_t)w->sleeper.pid)
			*(k->flags & WAKER_INTERRUPT ? &t->timer_wakes : &t->odd_wakes) += n;
		if (k->tgid == (uint32_t)w->locker.pid && k->by_tgid == k->tgid)
			t->lock_wakes += n;
	}
	for (size_t i = 0; i < s->n_futex; i++)
		if (s->futex[i].key.tgid == (uint32_t)w->locker.pid &&
		    s->futex[i].key.address == (uint64_t)(uintptr_t)&w->truth->lock &&
		    s->futex[i].key.outcome == FUTEX_WOKEN)
			t->lock_waits += s->futex[i].value.waits;
	for (int i = 0; i < SOURCE_N; i++) {
		const struct account *a = &s->source[i].sum;

		t->account[i].seen += a->seen;
		t->account[i].stored += a->stored;
		t->account[i].idle += a->idle;
		for (int k = 0; k < LOSS_N; k++)
			t->account[i].lost[k] += a->lost[k];
	}
	t->stacks += s->n_stacks;
}

static uint64_t cpu_time_of(pid_t pid)
{
	unsigned long ns = 0;
	char path[64];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/schedstat", pid);
	f = fopen(path, "re");
	if (f) {
		if (fscanf(f, "%lu", &ns) != 1)
			ns = 0;
		fclose(f);
	}
	return ns;
}

static int drain(struct collector *c, struct tally *t, struct workload *w, bool bucket_end)
{
	_cleanup_(slice_free_p) struct slice *s = NULL;
	int r = collector_drain(c, bucket_end, &s);

	/* Negative at first: taken from the later one. */
	if (bucket_end && r >= 0)
		w->off_ns = s->mono_end_ns - cpu_time_of(w->sleeper.pid) - w->off_ns;
	if (r < 0)
		say(false, "drain", "%s", strerror(-r));
	else if (t)
		add_slice(t, w, s);
	return r;
}

static int record(struct collector *c, struct workload *w, struct tally *t)
{
	uint64_t begin, drained;
	bool over = false;
	int r;

	/* The processes have been waiting to be let go: that is not what is measured. */
	r = drain(c, NULL, w, true);
	close(w->start_fd);
	begin = drained = mono_now_ns();
	while (!over && r >= 0) {
		over = all_over(w);
		if (mono_now_ns() - begin > TIME_LIMIT_NS) {
			say(false, "workload", "did not end within %llu s",
			    TIME_LIMIT_NS / NSEC_PER_SEC);
			return -ETIMEDOUT;
		}
		r = collector_poll(c);
		if (r < 0)
			say(false, "poll", "%s", strerror(-r));
		if (r >= 0 && (over || mono_now_ns() - drained > NSEC_PER_SEC)) {
			drained = mono_now_ns();
			r = drain(c, t, w, false);
		}
		usleep(100000);
	}
	/* The last window again: what was under way when it was swapped. */
	return r < 0 ? r : drain(c, t, w, true);
}

/* ---- saying ------------------------------------------------------------------------------------ */

static void say_lost(const struct account *a, char *buf, size_t size)
{
	size_t n = 0;

	buf[0] = '\0';
	for (int k = 0; k < LOSS_N && n < size; k++)
		if (a->lost[k])
			n += (size_t)snprintf(buf + n, size - n, " lost[%d]=%lu", k,
					      (unsigned long)a->lost[k]);
}

/* Nothing may be unaccounted for: seen = stored + idle + lost. */
static void judge_balance(const struct account *a, const char *name)
{
	uint64_t booked = a->stored + a->idle;

	for (unsigned k = 0; k < LOSS_N; k++)
		if (!loss_keeps_weight(k))
			booked += a->lost[k];
	if (booked != a->seen)
		say(false, name, "seen=%lu but stored=%lu idle=%lu and booked=%lu in all", a->seen,
		    a->stored, a->idle, booked);
}

/* Exact, and nothing of it under another number, ABI or error. */
static void judge_odd(const struct tally *t)
{
	bool ok = t->odd_others == 0;
	char counts[256] = "";

	for (int i = 0; i < ODD_N; i++) {
		size_t n = strlen(counts);

		ok &= t->odd[i] == ODD_CALLS;
		snprintf(counts + n, sizeof(counts) - n, "%s=%lu ", odd_names[i], t->odd[i]);
	}
	say(ok, "odd-calls", "%selse=%lu", counts, t->odd_others);
}

static void judge_kernel_locks(const struct tally *t, const struct truth *u, const char *source)
{
	const uint64_t held = KERNEL_LOCK_ROUNDS * KERNEL_LOCK_HOLD_NS;
	bool known = !u->kernel_lock_errno;

	if (!streq(source, "contention tracepoints")) {
		say(strstr(source, "no contention tracepoints") && !t->kernel_locks.all,
		    "kernel-locks", "%s", source);
		return;
	}
	/* Other waits for locks of these kinds may be there, and are as long as the emulator is slow. */
	say(t->kernel_locks.all && !t->kernel_locks.lost &&
		    (!known ||
		     (t->kernel_locks.pipe_n >= KERNEL_LOCK_ROUNDS &&
		      t->kernel_locks.file_n >= KERNEL_LOCK_ROUNDS &&
		      t->kernel_locks.pipe_ns >= held && t->kernel_locks.file_ns >= held &&
		      t->kernel_locks.pipe_ns <= 2 * u->kernel_lock.pipe_ns + held &&
		      t->kernel_locks.file_ns <= 2 * u->kernel_lock.file_ns + held)),
	    "kernel-locks",
	    "waits=%lu mapping=%lu lost=%lu pipe=%lums of %lums file=%lums of %lums%s%s",
	    t->kernel_locks.all, t->kernel_locks.mapper, t->kernel_locks.lost,
	    (unsigned long)(t->kernel_locks.pipe_ns / NSEC_PER_MSEC),
	    (unsigned long)(u->kernel_lock.pipe_ns / NSEC_PER_MSEC),
	    (unsigned long)(t->kernel_locks.file_ns / NSEC_PER_MSEC),
	    (unsigned long)(u->kernel_lock.file_ns / NSEC_PER_MSEC),
	    known ? "" : "; userfaultfd: ", known ? "" : strerror(u->kernel_lock_errno));
}

/* What the machine has counts, and what it has not is named. */
static void judge_hardware(const struct tally *t, const struct collector *c)
{
	bool ok = t->hardware.spans > 0;
	struct hardware_state h;
	char facts[512] = "";

	collector_hardware_state(c, &h);
	if (!h.counted) {
		say(*h.why && !t->hardware.spans, "hardware", "none: %s", h.why);
		return;
	}
	for (unsigned i = 0; i < HARDWARE_COUNTERS; i++) {
		uint64_t n = t->hardware.counters[i].n, ns = t->hardware.counters[i].ns;
		size_t len = strlen(facts);

		if (h.error[i])
			ok &= ns == 0 && *hardware_absent(h.error[i]);
		/* An emulator may know a counter that stands still. */
		else if (i == 0)
			ok &= n > 0 && ns > BURN_NS / 10 && ns <= t->hardware.ns * 2;
		snprintf(facts + len, sizeof(facts) - len,
			 h.error[i] ? " %s=absent" : " %s=%.2f/ns", hardware_name(i),
			 ns ? (double)n / (double)ns : 0);
	}
	say(ok, "hardware", "spans=%lu of %lums%s", t->hardware.spans,
	    (unsigned long)(t->hardware.ns / NSEC_PER_MSEC), facts);
}

static void judge(const struct tally *t, const struct workload *w, const struct collector *c)
{
	struct source_state s[SOURCE_N];
	const struct truth *u = w->truth;
	char lost[256];

	for (int i = 0; i < SOURCE_N; i++) {
		collector_source_state(c, (enum source)i, &s[i]);
		judge_balance(&t->account[i], source_names[i]);
	}
	if (s[SOURCE_ON_CPU].running) {
		say_lost(&t->account[SOURCE_ON_CPU], lost, sizeof(lost));
		say(t->burner >= 10 && t->burner_user_stacks, "on-cpu",
		    "%s samples=%lu burner=%lu%s", s[SOURCE_ON_CPU].hook, t->on_cpu, t->burner,
		    lost);
	}
	if (s[SOURCE_OFF_CPU].running) {
		uint64_t off = w->off_ns, room = off / 20 + 50 * NSEC_PER_MSEC;

		say_lost(&t->account[SOURCE_OFF_CPU], lost, sizeof(lost));
		say(t->off_ns + room > off && t->off_ns < off + room && t->sleeper_samples,
		    "off-cpu", "%s off=%lums of %lums samples=%lu%s", s[SOURCE_OFF_CPU].hook,
		    (unsigned long)(t->off_ns / NSEC_PER_MSEC),
		    (unsigned long)(off / NSEC_PER_MSEC), t->sleeper_samples, lost);
		say(t->timer_wakes && t->timer_wakes >= t->odd_wakes * 8 && t->lock_wakes, "wakers",
		    "timer=%lu odd=%lu lock=%lu", t->timer_wakes, t->odd_wakes, t->lock_wakes);
	}
	judge_hardware(t, c);
	if (s[SOURCE_SYSCALLS].running) {
		say_lost(&t->account[SOURCE_SYSCALLS], lost, sizeof(lost));
		say(t->getpid == CALLERS * CALLS && t->timed * 10 >= t->getpid * 7 &&
			    t->timed * 10 <= t->getpid * 13,
		    "syscalls", "%s getpid=%lu of %d timed=%lu%s", s[SOURCE_SYSCALLS].hook,
		    t->getpid, CALLERS * CALLS, t->timed, lost);
		say(t->drawn * 10 >= t->getpid * 7 && t->drawn * 10 <= t->getpid * 13,
		    "syscall-stacks", "stand for %lu of %lu, %lu without one", t->drawn, t->getpid,
		    t->not_walked);
		judge_odd(t);
	}
	if (s[SOURCE_FUTEX].running) {
		uint64_t waits = atomic_load(&u->waits);

		say_lost(&t->account[SOURCE_FUTEX], lost, sizeof(lost));
		/* A waiter that finds its wake-up on the way did not sleep, so ours may be fewer, never more. */
		say(t->lock_waits && t->lock_waits <= waits && t->lock_waits * 10 >= waits * 8 &&
			    t->lock_stacks,
		    "futex", "%s waits=%lu of %lu%s", s[SOURCE_FUTEX].hook, t->lock_waits, waits,
		    lost);
		judge_kernel_locks(t, u, s[SOURCE_FUTEX].kernel_locks);
	}
}

/* Loads one program alone and prints the end of what the verifier says about it. */
static void explain(const char *program)
{
	char *log = calloc(1, LOG_SIZE), *line;
	struct sysprofd_bpf *skel = sysprofd_bpf__open();
	struct bpf_program *p;
	int lines = 0;

	if (!log || !skel)
		goto out;
	bpf_object__for_each_program (p, skel->obj) {
		bool this = streq(bpf_program__name(p), program);

		bpf_program__set_autoload(p, this);
		if (this)
			bpf_program__set_log_buf(p, log, LOG_SIZE);
	}
	if (sysprofd_bpf__load(skel) == 0)
		goto out;
	for (line = log + strlen(log); line > log && lines <= LOG_TAIL; line--)
		lines += line[-1] == '\n';
	printf("log %s:\n", program);
	for (line = strtok(line, "\n"); line; line = strtok(NULL, "\n"))
		printf("log   %s\n", line);
out:
	sysprofd_bpf__destroy(skel);
	free(log);
}

static void explain_source(const char *prefix)
{
	struct sysprofd_bpf *skel = sysprofd_bpf__open();
	struct bpf_program *p;

	if (!skel)
		return;
	bpf_object__for_each_program (p, skel->obj)
		if (str_skip_prefix(bpf_program__name(p), prefix))
			explain(bpf_program__name(p));
	sysprofd_bpf__destroy(skel);
	fflush(stdout);
}

static void judge_sources(const struct collector *c)
{
	static const char *const prefixes[SOURCE_N] = { "oncpu", "offcpu", "syscall", "futex" };

	for (int i = 0; i < SOURCE_N; i++) {
		struct source_state s;

		collector_source_state(c, (enum source)i, &s);
		if (s.running)
			continue;
		say(false, source_names[i], "does not run: %s", s.text);
		explain_source(prefixes[i]);
	}
}

/* Everything that is loaded here is ours: nobody else runs on this kernel. */
static void print_instructions(void)
{
	uint32_t id = 0;

	while (bpf_prog_get_next_id(id, &id) == 0) {
		struct bpf_prog_info info = {};
		uint32_t len = sizeof(info);
		int fd = bpf_prog_get_fd_by_id(id);

		if (fd >= 0 && bpf_obj_get_info_by_fd(fd, &info, &len) == 0)
			printf("insns %s %u %u\n", info.name, info.xlated_prog_len / 8,
			       info.verified_insns);
		close_fd(fd);
	}
}

static struct collect_options options(void)
{
	return (struct collect_options){
		.enabled = { true, true, true, true },
		.on_cpu_hz = 99,
		.on_cpu_jitter = 0.1,
		.off_cpu_threshold_ns = NSEC_PER_MSEC,
		.off_cpu_threshold_max_ns = NSEC_PER_SEC,
		.walks_per_second = 10000,
		.slice_ns = 2 * NSEC_PER_SEC,
		.syscall_details = 1,
		.counter_reads = 1000,
		.syscall_stacks = 100,
		.kernel_locks = true,
		.off_cpu_wakers = 1,
		.places = kernel_places(),
	};
}

int main(void)
{
	struct collect_options o = options();
	_cleanup_(collector_free_p) struct collector *c = NULL;
	struct workload w = {};
	struct tally t = {};
	char *why = NULL;
	int r;

	setvbuf(stdout, NULL, _IOLBF, 0);
	r = start_all(&w);
	if (r < 0) {
		say(false, "workload", "%s", strerror(-r));
		return 1;
	}
	r = collector_new(&o, &c, &why);
	if (r < 0) {
		say(false, "load", "%s (%s)", why ?: "no reason given", strerror(-r));
		explain_source("");
	} else {
		judge_sources(c);
		print_instructions();
		if (record(c, &w, &t) >= 0)
			judge(&t, &w, c);
		kill(w.sleeper.pid, SIGKILL);
		check_instructions(o);
	}
	free(why);
	printf("done\n");
	return failed;
}
