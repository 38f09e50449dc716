// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What the programs in the kernel add to a system call, a context switch, a wait: bench-hooks CPU ROUNDS. With the port
 * of a redis-server that is under load: what they take from its requests. Prints for each figure its name and a value for
 * each round; what could not be measured is a line "note".
 *
 * A host's speed may drift by a third within seconds, so that a figure of now cannot be compared with one of then. So
 * collectors are loaded once, and their programs are attached for a block of some 20 ms of operations and detached again;
 * each block is compared with those before and after it in which nothing is attached. The operations run in a process
 * of their own on the one CPU, while this one sleeps.
 *
 * A collector of the daemon's defaults does here what it does there: its stacks are walked by tables, its windows are
 * closed and drained. But it is attached for a part of the time only, so it gets this part of the walks that a
 * second may have. (Rations that are no setting, of futexes 500 looks and 250 walks, are spent in that part: a wait
 * seems dearer by some ns.) Programs that belong to spans of time are attached by us, for whole blocks. Samples of what runs
 * on a CPU are not among it: 19 a second are too few to be seen.
 */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "../unit/places.h"
#include "base/clock.h"
#include "collect/internal.h"
#include "empty.h"
#include "manager/internal.h"
#include "ops.h"
#include "parser/parser.h"

#define BLOCK_NS 18e6
#define FIRST_COUNT 500
#define WARM_PART 8 /* a block begins with an eighth that does not count */
#define SETTLE_US 1000 /* after programs were attached */
#define REQUESTS_US 60000 /* a block of them */
#define WINDOW_NS (2 * NSEC_PER_SEC)
#define SETUPS 5
#define PROGRAMS 128
#define MAX_ROUNDS 400
#define ALWAYS 1.0
#define READS_AT_EVERY_SWITCH 1000000 /* a second */

enum empty { EMPTY_CALL, EMPTY_SWITCH, EMPTY_RESUME, EMPTY_N };

static const char *const empty_tracepoints[EMPTY_N] = { "sys_exit", "sched_switch",
							"sched_exit_tp" };

struct bench {
	size_t rounds;
	int ask, answer; /* the process that runs the operations */
	pid_t subject;
	int redis; /* instead of it, or -1 */
	int empty[EMPTY_N]; /* programs */
	struct config *config;
	struct process_table *processes;
	struct unwinding *unwinding;
};

_Noreturn static void fail(const char *what, const char *why)
{
	fprintf(stderr, "bench-hooks: %s: %s\n", what, why);
	exit(1);
}

static void check(int r, const char *what)
{
	if (r < 0)
		fail(what, strerror(-r));
}

/* ---- the operations ------------------------------------------------------------------------------------ */

struct request {
	enum op op;
	size_t n;
};

static void subject_run(int cpu, int requests, int answers)
{
	struct request q;
	struct ops o;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	ops_init(&o, cpu);
	while (read(requests, &q, sizeof(q)) == sizeof(q)) {
		double ns = ops_block(&o, q.op, q.n);

		must(write(answers, &ns, sizeof(ns)) == sizeof(ns), "answer");
	}
	_exit(0);
}

static void subject_start(struct bench *b, int cpu)
{
	int ask[2], answer[2];

	must(pipe2(ask, O_CLOEXEC) == 0 && pipe2(answer, O_CLOEXEC) == 0, "pipe");
	b->subject = fork();
	must(b->subject >= 0, "fork");
	if (b->subject == 0) {
		close(ask[1]);
		subject_run(cpu, ask[0], answer[1]);
	}
	close(ask[0]);
	close(answer[1]);
	b->ask = ask[1];
	b->answer = answer[0];
}

static double run_ops(struct bench *b, enum op op, size_t n)
{
	struct request q = { op, n };
	double ns;

	must(write(b->ask, &q, sizeof(q)) == sizeof(q) &&
		     read(b->answer, &ns, sizeof(ns)) == sizeof(ns),
	     "the process that is measured");
	return ns;
}

/* ---- redis --------------------------------------------------------------------------------------------- */

static int redis_connect(int port)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;

	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	must(fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0, "redis");
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	return fd;
}

/* Requests that the server has answered so far. */
static double redis_requests(int fd)
{
	static const char question[] = "INFO stats\r\n", field[] = "total_commands_processed:";
	char text[16384];
	size_t have = 0, want = SIZE_MAX;
	const char *found;

	must(write(fd, question, sizeof(question) - 1) == sizeof(question) - 1, "redis");
	while (have < want) {
		ssize_t n = read(fd, text + have, sizeof(text) - 1 - have);
		char *body;

		must(n > 0, "redis");
		have += (size_t)n;
		text[have] = 0;
		/* "$LENGTH", the text, and each ends its line. */
		body = strstr(text, "\r\n");
		if (*text == '$' && body)
			want = (size_t)(body - text) + 2 + strtoul(text + 1, NULL, 10) + 2;
	}
	found = strstr(text, field);
	if (!found)
		fail("redis", "does not tell how many requests it answered");
	return strtod(found + sizeof(field) - 1, NULL);
}

/* Of elapsed time. */
static double request_ns(int fd)
{
	double requests = redis_requests(fd);
	uint64_t begin = mono_now_ns(), elapsed;

	usleep(REQUESTS_US);
	requests = redis_requests(fd) - requests;
	elapsed = mono_now_ns() - begin;
	if (requests < 10)
		fail("redis", "is not under load");
	return (double)elapsed / requests;
}

/* ---- a collector whose programs come and go ------------------------------------------------------------- */

struct profiler {
	struct collector *c;
	bool had[PROGRAMS]; /* of its programs: it was attached */
	/* What its windows told. */
	uint64_t details, wakes, lock_waits;
};

static void check_sources(const struct collector *c, const struct collect_options *o)
{
	for (int i = 0; i < SOURCE_N; i++) {
		struct source_state state;

		collector_source_state(c, (enum source)i, &state);
		if (o->enabled[i] && !state.running)
			fail("a source does not run", state.text);
	}
}

static void detach_all(struct profiler *p)
{
	struct bpf_object_skeleton *s = p->c->skel->skeleton;

	details_end(p->c);
	if (p->c->wakers)
		span_program_stop(p->c->wakers);
	for (int i = 0; i < s->prog_cnt; i++) {
		bpf_link__destroy(*s->progs[i].link);
		*s->progs[i].link = NULL;
	}
}

static void profiler_load(struct profiler *p, const struct collect_options *o)
{
	struct bpf_object_skeleton *s;
	char *why = NULL;

	if (collector_new(o, &p->c, &why) < 0)
		fail("collector", why);
	check_sources(p->c, o);
	s = p->c->skel->skeleton;
	if (s->prog_cnt > PROGRAMS)
		fail("collector", "has more programs than we expect");
	for (int i = 0; i < s->prog_cnt; i++)
		p->had[i] = *s->progs[i].link != NULL;
	detach_all(p);
}

static void profiler_unload(struct profiler *p)
{
	collector_free(p->c);
	*p = (struct profiler){};
}

static struct bpf_link *attach_program(struct bpf_program *p)
{
	return streq(bpf_program__name(p), "offcpu_finish_task_switch")
		       ? bpf_program__attach_kprobe(p, false, kernel_places()->finish_task_switch)
		       : bpf_program__attach(p);
}

static void open_spans(struct collector *c)
{
	const struct span s = { .begin = mono_now_ns(), .end = UINT64_MAX };

	check(details_begin(c, &s), "program at the begin of calls");
	if (c->wakers)
		check(span_program_open(c->wakers, &s), "program at wakings");
}

/* Programs whose name begins with `prefix`; NULL: all. */
static void attach_all(struct profiler *p, const char *prefix, bool spans)
{
	struct bpf_object_skeleton *s = p->c->skel->skeleton;

	for (int i = 0; i < s->prog_cnt; i++) {
		if (!p->had[i] || (prefix && !str_skip_prefix(s->progs[i].name, prefix)))
			continue;
		*s->progs[i].link = attach_program(*s->progs[i].prog);
		if (!*s->progs[i].link)
			fail(s->progs[i].name, strerror(errno));
	}
	if (spans)
		open_spans(p->c);
}

/* What the daemon does at the end of a window. */
static void close_window(struct bench *b, struct profiler *p)
{
	_cleanup_(slice_free_p) struct slice *s = NULL;

	process_table_poll(b->processes);
	unwinding_follow(b->unwinding);
	check(collector_drain(p->c, false, &s), "window");
	process_table_poll(b->processes);
	for (size_t i = 0; i < s->n_stacks; i++) {
		struct process *process = process_find(b->processes, s->stacks[i].tgid,
						       s->stacks[i].start);
		struct process_labels l;

		if (process)
			process_labels(process, &l);
	}
	unwinding_see(b->unwinding, s);
	process_table_expire(b->processes, s->mono_end_ns);
	p->details += s->n_details;
	p->wakes += s->n_wakes;
	for (size_t i = 0; i < s->n_kernel_locks; i++)
		if (s->kernel_locks[i].tgid == (uint32_t)b->subject)
			p->lock_waits += s->kernel_locks[i].waits;
}

/* ---- blocks in turn --------------------------------------------------------------------------------------- */

struct setup {
	struct profiler *profiler; /* or NULL: empty programs, */
	unsigned empty; /* a bit for each */
	const char *prefix;
	bool spans;
	size_t done[OP_N]; /* operations under it */
};

/* Operations under each of some setups in turn. Where there is redis they are its requests. */
struct phase {
	bool wants[OP_N];
	struct setup setups[SETUPS];
	size_t n_setups;
	size_t n[OP_N]; /* in a block */
	double none[OP_N][MAX_ROUNDS + 1];
	double under[SETUPS][OP_N][MAX_ROUNDS];
	uint64_t window_at_ns;
};

static void measure(struct bench *b, struct phase *p, struct setup *s, double ns[OP_N])
{
	for (enum op op = 0; op < OP_N; op++) {
		if (!p->wants[op])
			continue;
		if (b->redis >= 0) {
			ns[op] = request_ns(b->redis);
			continue;
		}
		run_ops(b, op, p->n[op] / WARM_PART + 1);
		ns[op] = run_ops(b, op, p->n[op]);
		if (s)
			s->done[op] += p->n[op] + p->n[op] / WARM_PART + 1;
	}
}

static void measure_under(struct bench *b, struct phase *p, struct setup *s, double ns[OP_N])
{
	int links[EMPTY_N] = { -1, -1, -1 };

	if (s->profiler)
		attach_all(s->profiler, s->prefix, s->spans);
	for (int i = 0; i < EMPTY_N; i++)
		if (s->empty >> i & 1) {
			links[i] = empty_attach(b->empty[i]);
			check(links[i], "empty program");
		}
	usleep(SETTLE_US);
	measure(b, p, s, ns);
	if (s->profiler)
		detach_all(s->profiler);
	for (int i = 0; i < EMPTY_N; i++)
		close_fd(links[i]);
}

/* There and back: what drifts evenly cancels. */
static size_t place_in_round(const struct phase *p, size_t setup, size_t round)
{
	return round % 2 ? p->n_setups - 1 - setup : setup;
}

static void look_after(struct bench *b, struct phase *p)
{
	bool due = mono_now_ns() >= p->window_at_ns;

	for (size_t i = 0; i < p->n_setups; i++) {
		struct profiler *of = p->setups[i].profiler;

		if (!of || (i && p->setups[i - 1].profiler == of))
			continue;
		check(collector_poll(of->c), "collector");
		if (due)
			close_window(b, of);
	}
	if (due)
		p->window_at_ns = mono_now_ns() + WINDOW_NS;
}

static void run_round(struct bench *b, struct phase *p, size_t round)
{
	double ns[OP_N] = {};

	usleep(SETTLE_US);
	measure(b, p, NULL, ns);
	for (enum op op = 0; op < OP_N; op++)
		p->none[op][round] = ns[op];
	for (size_t i = 0; i < p->n_setups && round < b->rounds; i++) {
		size_t setup = place_in_round(p, i, round);

		measure_under(b, p, &p->setups[setup], ns);
		for (enum op op = 0; op < OP_N; op++)
			p->under[setup][op][round] = ns[op];
	}
}

static bool tables_are_wanted(struct bench *b)
{
	struct unwinding_state st;

	unwinding_state(b->unwinding, &st);
	return st.unwinder.wanted > 0;
}

static void run_phase(struct bench *b, struct phase *p)
{
	for (enum op op = 0; op < OP_N && b->redis < 0; op++)
		if (p->wants[op])
			p->n[op] = (size_t)(BLOCK_NS / run_ops(b, op, FIRST_COUNT)) + 1;
	/* Until it is known how to walk the stacks. */
	for (size_t i = 0; i < 12; i++) {
		run_round(b, p, 0);
		p->window_at_ns = 0;
		look_after(b, p);
		if (i > 3 && !tables_are_wanted(b))
			break;
	}
	for (size_t i = 0; i < p->n_setups; i++)
		memset(p->setups[i].done, 0, sizeof(p->setups[i].done));
	for (size_t i = 0; i < p->n_setups; i++)
		if (p->setups[i].profiler)
			p->setups[i].profiler->lock_waits = 0;
	for (size_t round = 0; round <= b->rounds; round++) {
		run_round(b, p, round);
		look_after(b, p);
	}
	p->window_at_ns = 0;
	look_after(b, p);
}

/* ---- figures -------------------------------------------------------------------------------------------- */

struct figures {
	double of[MAX_ROUNDS];
};

/* What it would have been without, at the moment of that setup's block. */
static double without(const struct phase *p, size_t setup, enum op op, size_t round)
{
	double at = (double)(place_in_round(p, setup, round) + 1) / (double)(p->n_setups + 1);

	return p->none[op][round] * (1 - at) + p->none[op][round + 1] * at;
}

static void print_plain(const struct bench *b, const char *name, const struct phase *p, enum op op)
{
	printf("%s", name);
	for (size_t i = 0; i < b->rounds; i++)
		printf(" %.2f", p->none[op][i]);
	printf("\n");
}

static void print_figures(const struct bench *b, const char *name, const struct figures *f)
{
	printf("%s", name);
	for (size_t i = 0; i < b->rounds; i++)
		printf(" %.2f", f->of[i]);
	printf("\n");
}

/* What a setup adds, and less what another one does. */
static void print_added(const struct bench *b, const char *name, const struct phase *p, enum op op,
			size_t setup, int less, double per)
{
	struct figures f;

	for (size_t i = 0; i < b->rounds; i++) {
		f.of[i] = p->under[setup][op][i] - without(p, setup, op, i);
		if (less >= 0)
			f.of[i] -= p->under[less][op][i] - without(p, (size_t)less, op, i);
		f.of[i] /= per;
	}
	print_figures(b, name, &f);
}

/* On average when a tenth of the time is spent in spans. */
static void print_average(const struct bench *b, const char *name, const struct phase *p,
			  enum op op, size_t between, size_t within, bool percent)
{
	struct figures f;

	for (size_t i = 0; i < b->rounds; i++) {
		double a = without(p, between, op, i), z = without(p, within, op, i);

		f.of[i] = 0.9 * (p->under[between][op][i] - a) / (percent ? a / 100 : 1) +
			  0.1 * (p->under[within][op][i] - z) / (percent ? z / 100 : 1);
	}
	print_figures(b, name, &f);
}

/* The share by which an operation is slower, or requests are fewer. */
static void print_loss(const struct bench *b, const char *name, const struct phase *p, enum op op,
		       size_t setup, bool requests)
{
	struct figures f;

	for (size_t i = 0; i < b->rounds; i++) {
		double than = without(p, setup, op, i), is = p->under[setup][op][i];

		f.of[i] = 100 * (is - than) / (requests ? is : than);
	}
	print_figures(b, name, &f);
}

/* ---- what is measured -------------------------------------------------------------------------------------- */

/* The defaults, for a phase of so many setups; of sources only these. */
static struct collect_options defaults(struct bench *b, size_t n_setups, const char *sources)
{
	struct manager m = {};
	struct recorder_options o;

	manager_recorder_options(&m, b->config, &o);
	for (int i = 0; i < SOURCE_N; i++)
		o.collect.enabled[i] = false;
	o.collect.enabled[SOURCE_OFF_CPU] = strchr(sources, 'o');
	o.collect.enabled[SOURCE_SYSCALLS] = strchr(sources, 's');
	o.collect.enabled[SOURCE_FUTEX] = strchr(sources, 'f');
	/* Their programs are attached when we say so. */
	o.collect.syscall_details = o.collect.off_cpu_wakers = ALWAYS;
	o.collect.walks_per_second /= n_setups + 1;
	o.collect.places = kernel_places();
	o.collect.tables = unwinding_tables(b->unwinding);
	return o.collect;
}

/* Calls are counted, timed, and have their stacks taken. */
static void measure_calls(struct bench *b)
{
	struct profiler counts = {}, timed = {}, stacks = {};
	struct collect_options o = defaults(b, 5, "s");
	_cleanup_free_ struct phase *p = new0(struct phase, 1);

	must(p, "memory");
	profiler_load(&timed, &o);
	o.syscall_details = 0;
	profiler_load(&counts, &o);
	o.syscall_stacks = 1000;
	profiler_load(&stacks, &o);
	p->wants[OP_CALL] = true;
	p->n_setups = 5;
	p->setups[0] = (struct setup){ .empty = 1U << EMPTY_CALL };
	p->setups[1] = (struct setup){ .profiler = &counts };
	p->setups[2] = (struct setup){ .profiler = &timed };
	p->setups[3] = (struct setup){ .profiler = &timed, .spans = true };
	p->setups[4] = (struct setup){ .profiler = &stacks };
	run_phase(b, p);
	if (!timed.details)
		fail("calls", "none was timed");
	print_plain(b, "call", p, OP_CALL);
	print_added(b, "call-empty", p, OP_CALL, 0, -1, 1);
	print_added(b, "call-counts", p, OP_CALL, 1, -1, 1);
	print_added(b, "call-timed", p, OP_CALL, 3, -1, 1);
	print_average(b, "call-default", p, OP_CALL, 2, 3, false);
	print_added(b, "call-stacks", p, OP_CALL, 4, 1, 1);
	profiler_unload(&counts);
	profiler_unload(&timed);
	profiler_unload(&stacks);
}

static void measure_switches(struct bench *b)
{
	struct profiler off_cpu = {};
	struct collect_options o;
	_cleanup_free_ struct phase *p = new0(struct phase, 1);
	bool resume = b->empty[EMPTY_RESUME] >= 0;
	size_t at = 0;

	must(p, "memory");
	p->n_setups = 3 + resume;
	o = defaults(b, p->n_setups, "o");
	o.counter_reads = 0;
	profiler_load(&off_cpu, &o);
	p->wants[OP_PIPE] = true;
	p->setups[at++] = (struct setup){ .profiler = &off_cpu };
	p->setups[at++] = (struct setup){ .profiler = &off_cpu, .spans = true };
	p->setups[at++] = (struct setup){ .empty = 1U << EMPTY_SWITCH };
	if (resume)
		p->setups[at++] = (struct setup){
			.empty = 1U << EMPTY_SWITCH | 1U << EMPTY_RESUME,
		};
	run_phase(b, p);
	if (!off_cpu.wakes)
		fail("wakers", "none was seen");
	print_plain(b, "pipe", p, OP_PIPE);
	print_added(b, "switch-empty", p, OP_PIPE, 2, -1, 2);
	if (resume)
		print_added(b, "switch-empties", p, OP_PIPE, 3, -1, 2);
	print_added(b, "switch", p, OP_PIPE, 0, -1, 2);
	print_added(b, "switch-wakers", p, OP_PIPE, 1, -1, 2);
	profiler_unload(&off_cpu);
}

static void measure_everything(struct bench *b)
{
	struct profiler all = {}, rest = {};
	struct collect_options o = defaults(b, 3, "osf");
	_cleanup_free_ struct phase *p = new0(struct phase, 1);

	must(p, "memory");
	profiler_load(&all, &o);
	o = defaults(b, 3, "os");
	profiler_load(&rest, &o);
	p->wants[OP_PIPE] = true;
	p->n_setups = 3;
	p->setups[0] = (struct setup){ .profiler = &all };
	p->setups[1] = (struct setup){ .profiler = &all, .spans = true };
	p->setups[2] = (struct setup){ .profiler = &rest };
	run_phase(b, p);
	print_average(b, "pipe-all", p, OP_PIPE, 0, 1, true);
	print_loss(b, "pipe-always", p, OP_PIPE, 1, false);
	p->wants[OP_PIPE] = false;
	p->wants[OP_FUTEX] = true;
	run_phase(b, p);
	if (!all.details || !all.wakes)
		fail("spans", "nothing was seen in them");
	print_plain(b, "futex", p, OP_FUTEX);
	print_average(b, "futex-all", p, OP_FUTEX, 0, 1, true);
	print_added(b, "futex-wait", p, OP_FUTEX, 0, 2, 2);
	profiler_unload(&all);
	profiler_unload(&rest);
}

static void measure_kernel_locks(struct bench *b)
{
	struct profiler futex = {};
	struct collect_options o = defaults(b, 1, "f");
	_cleanup_free_ struct phase *p = new0(struct phase, 1);

	must(p, "memory");
	profiler_load(&futex, &o);
	if (!futex.c->kernel_locks) {
		struct source_state state;

		collector_source_state(futex.c, SOURCE_FUTEX, &state);
		printf("note kernel locks are skipped: %s\n", state.kernel_locks);
	} else {
		p->wants[OP_LOCK] = true;
		p->n_setups = 1;
		p->setups[0] = (struct setup){ .profiler = &futex, .prefix = "contention_" };
		run_phase(b, p);
		if (!futex.lock_waits)
			fail("kernel locks", "no wait was seen");
		print_added(b, "lock-wait", p, OP_LOCK, 0, -1,
			    (double)futex.lock_waits / (double)p->setups[0].done[OP_LOCK]);
	}
	profiler_unload(&futex);
}

static void measure_counters(struct bench *b)
{
	struct profiler none = {}, some = {}, all = {};
	struct collect_options o = defaults(b, 3, "o");
	struct hardware_state h;
	_cleanup_free_ struct phase *p = new0(struct phase, 1);

	must(p, "memory");
	profiler_load(&some, &o);
	collector_hardware_state(some.c, &h);
	if (!h.counted) {
		profiler_unload(&some);
		printf("note hardware counters are stood in for by five of the kernel's own: %s\n",
		       h.why);
		o.software_counters = true;
		profiler_load(&some, &o);
	}
	o.counter_reads = READS_AT_EVERY_SWITCH;
	profiler_load(&all, &o);
	o.counter_reads = 0;
	profiler_load(&none, &o);
	p->wants[OP_PIPE] = true;
	p->n_setups = 3;
	p->setups[0] = (struct setup){ .profiler = &none };
	p->setups[1] = (struct setup){ .profiler = &some };
	p->setups[2] = (struct setup){ .profiler = &all };
	run_phase(b, p);
	print_added(b, "switch-counters", p, OP_PIPE, 1, 0, 2);
	print_added(b, "switch-reads", p, OP_PIPE, 2, 0, 2);
	profiler_unload(&none);
	profiler_unload(&some);
	profiler_unload(&all);
}

static void measure_requests(struct bench *b)
{
	struct profiler all = {};
	struct collect_options o = defaults(b, 3, "osf");
	_cleanup_free_ struct phase *p = new0(struct phase, 1);
	unsigned empty = 1U << EMPTY_CALL | 1U << EMPTY_SWITCH;

	must(p, "memory");
	if (b->empty[EMPTY_RESUME] >= 0)
		empty |= 1U << EMPTY_RESUME;
	profiler_load(&all, &o);
	p->wants[OP_CALL] = true;
	p->n_setups = 3;
	p->setups[0] = (struct setup){ .empty = empty };
	p->setups[1] = (struct setup){ .profiler = &all };
	p->setups[2] = (struct setup){ .profiler = &all, .spans = true };
	run_phase(b, p);
	print_plain(b, "request", p, OP_CALL);
	print_loss(b, "request-empties", p, OP_CALL, 0, true);
	print_loss(b, "request-all", p, OP_CALL, 1, true);
	print_loss(b, "request-always", p, OP_CALL, 2, true);
	profiler_unload(&all);
}

static void open_kernel(struct bench *b)
{
	const struct process_options po = { .proc = "/proc", .side_band = true };

	libbpf_set_print(NULL);
	for (int i = 0; i < EMPTY_N; i++) {
		b->empty[i] = empty_load(empty_tracepoints[i]);
		if (i != EMPTY_RESUME || b->empty[i] != -ESRCH)
			check(b->empty[i], empty_tracepoints[i]);
	}
	check(config_new(&b->config), "settings");
	check(process_table_new(&po, &b->processes), "processes");
	check(unwinding_new(b->processes, NULL, b->config->unwind_bytes, &b->unwinding), "tables");
}

int main(int argc, char **argv)
{
	struct bench b = { .redis = -1 };

	if (argc == 3 && streq(argv[1], "--symbol-helper"))
		return parser_main(argv[2]);
	if (argc < 3) {
		fputs("usage: bench-hooks CPU ROUNDS [PORT]\n", stderr);
		return 2;
	}
	b.rounds = CLAMP((size_t)strtoul(argv[2], NULL, 10), (size_t)1, (size_t)MAX_ROUNDS);
	if (argc > 3)
		b.redis = redis_connect(atoi(argv[3]));
	else
		subject_start(&b, atoi(argv[1]));
	open_kernel(&b);
	if (b.redis >= 0) {
		measure_requests(&b);
	} else {
		measure_calls(&b);
		measure_switches(&b);
		measure_everything(&b);
		measure_kernel_locks(&b);
		measure_counters(&b);
	}
	unwinding_free(b.unwinding);
	process_table_free(b.processes);
	config_free(b.config);
	return 0;
}
