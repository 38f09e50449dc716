// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The life of a collector: options to settings and sizes, load, attach, state.
 *
 * All programs are one object. When the kernel refuses one of them, its source tries its next way or is left
 * out, and the rest is loaded without it, so that one missing feature never costs more than itself.
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "collect/internal.h"

#define LOAD_ATTEMPTS 12
#define MAX_SHRINK 4 /* a sixteenth: below that too little would be counted to be of use */
#define LOG_BYTES 16384
#define MAX_CPU_IDS 8192 /* CONFIG_NR_CPUS of the largest distribution kernel */

static const struct source_ops *const source_ops[SOURCE_N] = {
	[SOURCE_ON_CPU] = &oncpu_ops,
	[SOURCE_OFF_CPU] = &waits_ops,
	[SOURCE_SYSCALLS] = &syscalls_ops,
	[SOURCE_FUTEX] = &futex_ops,
};

static const char *const source_names[SOURCE_N] = {
	[SOURCE_ON_CPU] = "on-cpu",
	[SOURCE_OFF_CPU] = "off-cpu",
	[SOURCE_SYSCALLS] = "syscalls",
	[SOURCE_FUTEX] = "futex",
};

const struct source_ops *source_ops_of(enum source s)
{
	return source_ops[s];
}

void source_off(struct collector *c, enum source s, const char *fmt, ...)
{
	struct source_run *run = &c->sources[s];
	char text[sizeof(run->state.text)]; /* arguments may point into the old text */
	va_list ap;

	run->on = false;
	run->state.running = false;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	memcpy(run->state.text, text, sizeof(text));
}

uint64_t collector_random64(struct collector *c)
{
	uint64_t z = c->random += 0x9e3779b97f4a7c15ULL;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ z >> 27) * 0x94d049bb133111ebULL;
	return z ^ z >> 31;
}

double collector_random(struct collector *c)
{
	return (double)(collector_random64(c) >> 11) / 9007199254740992.0; /* 2^53 */
}

void use_program(struct bpf_program *p)
{
	bpf_program__set_autoload(p, true);
}

int use_map(struct bpf_map *m, uint32_t entries)
{
	int r = bpf_map__set_autocreate(m, true);

	if (r == 0 && entries)
		r = bpf_map__set_max_entries(m, entries);
	return r;
}

uint32_t count_entries(const struct collector *c, double events, uint32_t min, uint32_t max)
{
	/* A window is one slice, six of them when the daemon does not get to drain in time. */
	double n = events * c->cpus_possible * (double)c->o.slice_ns / NSEC_PER_SEC * 6;

	if (c->o.count_entries)
		return MAX(c->o.count_entries >> c->shrink, 1U);
	return (uint32_t)CLAMP(n, min, max) >> c->shrink;
}

static uint32_t power_of_two(double n)
{
	return 1U << (unsigned)ceil(log2(MAX(n, 1.0)));
}

/* ---- load ---------------------------------------------------------------------------------------- */

static bool map_is_shared(const struct sysprofd_bpf *skel, const struct bpf_map *m)
{
	const struct bpf_map *const shared[] = {
		skel->maps.ring,
		skel->maps.seen,
		skel->maps.accounts,
		skel->maps.scratches,
		skel->maps.walk_memos,
		skel->maps.young_scratch,
		skel->maps.unwind_processes,
		skel->maps.unwind_nodes,
		skel->maps.unwind_rules,
		skel->maps.unwind_controls,
		skel->maps.unwind_files,
		skel->maps.unwind_strangers,
		skel->maps.unwind_young,
	};

	for (size_t i = 0; i < ARRAY_SIZE(shared); i++)
		if (m == shared[i])
			return true;
	return bpf_map__is_internal(m);
}

static int leave_all_out(struct sysprofd_bpf *skel)
{
	struct bpf_program *p;
	struct bpf_map *m;
	int r = 0;

	bpf_object__for_each_program (p, skel->obj)
		bpf_program__set_autoload(p, false);
	bpf_object__for_each_map (m, skel->obj)
		if (!map_is_shared(skel, m) && r == 0)
			r = bpf_map__set_autocreate(m, false);
	return r;
}

/* Collectors share the tables. */
static int use_tables(struct collector *c)
{
	const struct walk_tables *t = c->o.tables;
	struct sysprofd_bpf *skel = c->skel;
	int r;

	if (!t)
		return 0;
	skel->rodata->unwinding = true;
	skel->rodata->page_size = (uint32_t)sysconf(_SC_PAGESIZE);
	r = bpf_map__reuse_fd(skel->maps.unwind_processes, t->processes);
	if (r == 0)
		r = bpf_map__reuse_fd(skel->maps.unwind_nodes, t->nodes);
	if (r == 0)
		r = bpf_map__reuse_fd(skel->maps.unwind_files, t->files);
	if (r == 0)
		r = bpf_map__reuse_fd(skel->maps.unwind_strangers, t->strangers);
	if (r == 0)
		r = bpf_map__reuse_fd(skel->maps.unwind_rules, t->rules);
	if (r == 0)
		r = bpf_map__reuse_fd(skel->maps.unwind_controls, t->controls);
	if (r == 0)
		r = bpf_map__reuse_fd(skel->maps.unwind_young, t->young);
	hooks_use_young(c);
	return r;
}

static int configure_shared(struct collector *c)
{
	struct sysprofd_bpf *skel = c->skel;
	uint32_t ring, seen;
	int r;

	ring = c->o.ring_bytes ?: (1U << 20) * ((c->cpus_possible + 3) / 4);
	ring = power_of_two(CLAMP(ring >> c->shrink, 1U << 16, 1U << 28));
	/* Room for the distinct stacks of a window several times over: an entry that is overwritten costs a
	 * repeated record, no more. */
	seen = power_of_two(c->o.count_entries ?: (1U << 14) * ((c->cpus_possible + 1) / 2));
	seen = CLAMP(seen, 1U << 13, 1U << 16) >> c->shrink;
	r = bpf_map__set_max_entries(skel->maps.ring, ring);
	if (r == 0)
		r = bpf_map__set_max_entries(skel->maps.seen, seen);
	skel->rodata->seen_mask = seen - 1;
	skel->rodata->hash_seed = collector_random64(c);
	skel->rodata->hash_mask = c->o.hash_mask ?: UINT64_MAX;
	if (r == 0)
		r = use_tables(c);
#ifdef __aarch64__
	/* Pointer authentication signs bits above the address; user addresses have 48 bits unless asked for. */
	skel->rodata->user_ip_mask = (1ULL << 48) - 1;
#endif
	return r;
}

static int configure(struct collector *c)
{
	int r;

	r = leave_all_out(c->skel);
	if (r < 0)
		return r;
	/* All sources have programs that depend on it. Without type information it is the load that tells. */
	(void)hooks_probe(c);
	r = configure_shared(c);
	for (int s = 0; s < SOURCE_N && r == 0; s++) {
		int k;

		if (!c->sources[s].on)
			continue;
		k = source_ops[s]->configure(c);
		if (k < 0 && c->sources[s].on)
			source_off(c, s, "could not be configured: %s", strerror(-k));
	}
	return r;
}

static enum source source_of_program(const struct bpf_program *p)
{
	for (int s = 0; s < SOURCE_N; s++)
		if (source_ops[s] && str_skip_prefix(bpf_program__name(p), source_ops[s]->prefix))
			return s;
	return SOURCE_N;
}

/* One buffer per program, so that the log tells which program was refused. */
static char *attach_logs(struct collector *c, size_t *ret_n)
{
	struct bpf_program *p;
	size_t n = 0, i = 0;
	char *logs;

	bpf_object__for_each_program (p, c->skel->obj)
		n++;
	logs = calloc(n, LOG_BYTES);
	if (!logs)
		return NULL;
	bpf_object__for_each_program (p, c->skel->obj)
		bpf_program__set_log_buf(p, logs + i++ * LOG_BYTES, LOG_BYTES);
	*ret_n = n;
	return logs;
}

static const char *refused_log(struct collector *c, const char *logs, enum source *ret)
{
	struct bpf_program *p;
	size_t i = 0;

	bpf_object__for_each_program (p, c->skel->obj) {
		const char *log = logs + i++ * LOG_BYTES;

		if (!*log)
			continue;
		*ret = source_of_program(p);
		return log;
	}
	*ret = SOURCE_N;
	return "";
}

static bool any_on(const struct collector *c, enum source from)
{
	for (int s = from; s < SOURCE_N; s++)
		if (c->sources[s].on)
			return true;
	return false;
}

/*
 * After a refused load. Where memory was short (a small machine, a cgroup's limit) all maps get smaller, unless
 * only the full size will do. Else the source whose program was refused gets another attempt or goes; when that is
 * unknown, or the source was gone and another one uses the program, all waits go. False when nothing is left to
 * try.
 */
static bool give_way(struct collector *c, int error, enum source culprit, const char *why)
{
	if (error == -ENOMEM && c->o.full_size)
		return false;
	if (error == -ENOMEM && c->shrink < MAX_SHRINK) {
		c->shrink++;
		return true;
	}
	if (culprit < SOURCE_N && c->sources[culprit].on) {
		/* configure() turns the source off when it has no other way. */
		snprintf(c->sources[culprit].state.text, sizeof(c->sources[culprit].state.text),
			 "%s", why);
		c->sources[culprit].attempt++;
		return true;
	}
	if (c->sources[SOURCE_FUTEX].on && kernel_locks_give_way(c, why))
		return true;
	if (!any_on(c, SOURCE_ON_CPU + 1))
		return false;
	for (int s = SOURCE_ON_CPU + 1; s < SOURCE_N; s++)
		if (c->sources[s].on)
			source_off(c, s, "%s", why);
	return any_on(c, SOURCE_ON_CPU);
}

static int load_once(struct collector *c, char **ret_why, enum source *ret_culprit)
{
	_cleanup_free_ char *logs = NULL;
	size_t n;
	int r;

	c->skel = sysprofd_bpf__open();
	if (!c->skel)
		return negative_errno();
	r = configure(c);
	if (r < 0)
		return r;
	if (!any_on(c, 0))
		return -EOPNOTSUPP;
	logs = attach_logs(c, &n);
	if (!logs)
		return -ENOMEM;
	r = sysprofd_bpf__load(c->skel);
	if (r < 0)
		*ret_why = diagnose_load(r, refused_log(c, logs, ret_culprit));
	else
		for (struct bpf_program *p = NULL; (p = bpf_object__next_program(c->skel->obj, p));)
			bpf_program__set_log_buf(p, NULL, 0);
	return r;
}

static int load(struct collector *c, char **ret_why)
{
	int r = -EOPNOTSUPP;

	for (int i = 0; i < LOAD_ATTEMPTS; i++) {
		_cleanup_free_ char *why = NULL;
		enum source culprit = SOURCE_N;

		r = load_once(c, &why, &culprit);
		if (r == 0)
			return 0;
		sysprofd_bpf__destroy(c->skel);
		c->skel = NULL;
		if (!why || i + 1 == LOAD_ATTEMPTS || !give_way(c, r, culprit, why)) {
			*ret_why = TAKE_PTR(why);
			return r;
		}
	}
	return r;
}

/* ---- new and free -------------------------------------------------------------------------------- */

static int copy_options(struct collector *c, const struct collect_options *o)
{
	c->o = *o;
	c->o.only_tgids = NULL;
	c->o.slice_ns = o->slice_ns ?: 2 * NSEC_PER_SEC;
	c->o.bucket_ns = o->bucket_ns ?: 10 * NSEC_PER_SEC;
	if (o->n_only_tgids) {
		uint32_t *copy = new0(uint32_t, o->n_only_tgids);

		if (!copy)
			return -ENOMEM;
		memcpy(copy, o->only_tgids, o->n_only_tgids * sizeof(*copy));
		c->o.only_tgids = copy;
	}
	for (int s = 0; s < SOURCE_N; s++) {
		bool on = o->burst ? s == SOURCE_ON_CPU : o->enabled[s];

		c->sources[s].on = on && source_ops[s];
		if (!on)
			source_off(c, s, "off");
	}
	return 0;
}

static int count_cpus(struct collector *c)
{
	_cleanup_(cpu_set_done) struct cpu_set possible = {};
	int r = cpu_set_read("/sys/devices/system/cpu/possible", MAX_CPU_IDS, &possible);

	if (r < 0)
		return r;
	c->cpu_ids = possible.n;
	r = libbpf_num_possible_cpus();
	if (r < 0)
		return r;
	c->cpus_possible = r;
	c->accounts = new0(struct account, c->cpus_possible);
	c->possible = new0(unsigned, c->cpus_possible);
	if (!c->accounts || !c->possible)
		return -ENOMEM;
	for (unsigned cpu = 0, i = 0; cpu < possible.n && i < c->cpus_possible; cpu++)
		if (cpu_set_has(&possible, cpu))
			c->possible[i++] = cpu;
	return 0;
}

/* The kernel frees no map-in-map slot before an RCU grace period: rewriting one waits for it. */
static int open_grace(struct collector *c)
{
	LIBBPF_OPTS(bpf_map_create_opts, opts);

	c->grace_slot_fd = bpf_map_create(BPF_MAP_TYPE_ARRAY, "sysprofd_slot", 4, 4, 1, NULL);
	if (c->grace_slot_fd < 0)
		return negative_errno();
	opts.inner_map_fd = c->grace_slot_fd;
	c->grace_fd = bpf_map_create(BPF_MAP_TYPE_ARRAY_OF_MAPS, "sysprofd_grace", 4, 4, 1, &opts);
	return c->grace_fd < 0 ? negative_errno() : 0;
}

static int find_programs(struct collector *c)
{
	struct bpf_program *p;
	int r;

	bpf_object__for_each_program (p, c->skel->obj) {
		enum source s = source_of_program(p);

		if (bpf_program__fd(p) < 0 || s == SOURCE_N ||
		    (source_ops[s]->counts && !source_ops[s]->counts(c, p)))
			continue;
		r = ARRAY_GROW(c->misses, c->cap_misses, c->n_misses + 1);
		if (r < 0)
			return r;
		c->misses[c->n_misses++] = (struct program_misses){ .program = p, .source = s };
	}
	return 0;
}

static void attach(struct collector *c)
{
	hooks_attach_young(c);
	for (int s = 0; s < SOURCE_N; s++) {
		struct source_run *run = &c->sources[s];
		int r;

		if (!run->on)
			continue;
		if (c->shrink)
			snprintf(run->state.text, sizeof(run->state.text),
				 "running (memory is short: maps have 1/%u of their size)",
				 1U << c->shrink);
		else
			snprintf(run->state.text, sizeof(run->state.text), "running");
		r = source_ops[s]->attach(c);
		if (r < 0 && run->on)
			source_off(c, s, "could not be attached: %s", strerror(-r));
		run->state.running = run->on;
	}
}

static char *first_reason(const struct collector *c)
{
	char *why = NULL;

	for (int s = 0; s < SOURCE_N && !why; s++)
		if ((c->o.burst ? s == SOURCE_ON_CPU : c->o.enabled[s]) &&
		    asprintf(&why, "%s: %s", source_names[s], c->sources[s].state.text) < 0)
			why = NULL;
	return why ?: strdup("nothing is enabled");
}

static int start(struct collector *c, const struct collect_options *o, char **ret_why)
{
	struct rlimit unlimited = { RLIM_INFINITY, RLIM_INFINITY };
	int r;

	/* Before 5.11 maps count against this limit. Where it may not be raised, loading tells. */
	setrlimit(RLIMIT_MEMLOCK, &unlimited);
	libbpf_set_print(NULL);
	if (getrandom(&c->random, sizeof(c->random), GRND_NONBLOCK) != sizeof(c->random))
		c->random = mono_now_ns() ^ (uint64_t)getpid() << 32;
	r = copy_options(c, o);
	if (r == 0)
		r = count_cpus(c);
	if (r == 0 && !c->o.burst)
		r = hardware_probe(c);
	if (r == 0)
		r = load(c, ret_why);
	if (r == 0)
		r = open_grace(c);
	if (r == 0)
		r = ring_open(c);
	if (r == 0)
		r = find_programs(c);
	if (r != 0)
		return r;
	c->window = c->skel->bss->window;
	attach(c);
	c->o.places = NULL;
	c->hooks.finish_task_switch = NULL;
	c->window_mono_ns = mono_now_ns();
	return any_on(c, 0) ? 0 : -EOPNOTSUPP;
}

int collector_new(const struct collect_options *o, struct collector **ret, char **ret_why)
{
	_cleanup_(collector_free_p) struct collector *c = new0(struct collector, 1);
	_cleanup_free_ char *why = NULL;
	int r;

	if (!c)
		return -ENOMEM;
	c->grace_fd = c->grace_slot_fd = -1;
	r = start(c, o, &why);
	if (r < 0) {
		if (!why)
			why = r == -EOPNOTSUPP ? first_reason(c) : strdup(strerror(-r));
		*ret_why = TAKE_PTR(why);
		return r;
	}
	*ret = TAKE_PTR(c);
	return 0;
}

struct collector *collector_free(struct collector *c)
{
	if (!c)
		return NULL;
	for (int s = 0; s < SOURCE_N; s++)
		if (source_ops[s] && source_ops[s]->free)
			source_ops[s]->free(c);
	hardware_free(c);
	ring_close(c);
	sysprofd_bpf__destroy(c->skel);
	close_fd(c->grace_fd);
	close_fd(c->grace_slot_fd);
	free((void *)c->o.only_tgids);
	free(c->accounts);
	free(c->possible);
	free(c->misses);
	free(c);
	return NULL;
}

void collector_source_state(const struct collector *c, enum source s, struct source_state *ret)
{
	const struct source_run *run = &c->sources[s];

	*ret = run->state;
	if (run->on && *run->failure)
		snprintf(ret->text, sizeof(ret->text), "running; %s", run->failure);
}

int collector_poll(struct collector *c)
{
	uint64_t now = mono_now_ns();
	int r, first = ring_consume(c);

	hardware_poll(c, now);
	for (int s = 0; s < SOURCE_N; s++) {
		if (!c->sources[s].on || !source_ops[s]->poll)
			continue;
		r = source_ops[s]->poll(c, now);
		if (r < 0 && first == 0)
			first = r;
	}
	return first;
}

uint64_t collector_wake_ns(const struct collector *c)
{
	uint64_t wake = UINT64_MAX;

	for (int s = 0; s < SOURCE_N; s++)
		if (c->sources[s].on && source_ops[s]->wake_ns)
			wake = MIN(wake, source_ops[s]->wake_ns(c));
	return wake;
}

/* ---- memory -------------------------------------------------------------------------------------- */

static uint64_t fd_memlock(int fd)
{
	unsigned long long bytes = 0;
	char path[64], line[128];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	f = fopen(path, "re");
	if (!f)
		return 0;
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "memlock: %llu", &bytes) == 1)
			break;
	fclose(f);
	return bytes;
}

uint64_t collector_map_bytes(const struct collector *c)
{
	struct bpf_map *m;
	uint64_t sum = 0;

	bpf_object__for_each_map (m, c->skel->obj)
		if (bpf_map__fd(m) >= 0)
			sum += fd_memlock(bpf_map__fd(m));
	return sum;
}
