// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * On-CPU sampling: one perf event per online CPU that runs oncpu_tick each period.
 *
 * The period is redrawn each second, so that no periodic job can hide from it. Setting a period starts it
 * anew; the program is told when that was, since it judges from the time between ticks whether any are
 * missing. An event dies with its CPU and does not come back by itself: the list of online CPUs is compared
 * each second, and an event whose clock stands still is opened again.
 *
 * Beside cycles or misses a burst samples instructions by an event of their own. Both are one group: where more counters
 * are asked for than there are, the kernel gives both a turn or none, so that they tell of the same time.
 */
#include <linux/perf_event.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "base/clock.h"
#include "collect/internal.h"

#define REDRAW_NS NSEC_PER_SEC
#define PROBE_HZ 19
#define STALE_PERIODS 4 /* without a tick, before the event's own clock is asked */

struct tick_event {
	int fd; /* -1: this CPU is offline */
	int instructions_fd; /* of the same group; -1: not sampled */
	uint64_t running_ns; /* the event's clock when it was asked last */
};

struct oncpu {
	enum sample_event event;
	double hz;
	struct tick_event *events; /* by CPU id */
	unsigned n_events;
	struct tick_cpu *ticks; /* the map, shared with the program */
	size_t ticks_bytes;
	uint64_t *idle_ns,
		*idle_before_ns; /* by CPU id: /proc/stat now, and as of the window's begin */
	uint64_t *silent_ns; /* by CPU id: what the closing window had of a gap that goes on */
	uint64_t redraw_at_ns;
};

static struct oncpu *oncpu_of(struct collector *c)
{
	return c->sources[SOURCE_ON_CPU].priv;
}

/* ---- events ---------------------------------------------------------------------------------------- */

/*
 * The rate at which an event must run. A redraw starts the period anew, which on average costs half a tick; so
 * much is added for the rate to come out as asked for.
 */
static double draw_hz(struct collector *c)
{
	double jitter = c->o.on_cpu_jitter * (2 * collector_random(c) - 1);

	return (oncpu_of(c)->hz + 0.5 * NSEC_PER_SEC / REDRAW_NS) / (1 + jitter);
}

static bool is_hardware(const struct collector *c, enum sample_event event)
{
	return event && !c->o.software_counters;
}

/* What the kernel calls the period: nanoseconds of a clock, else a frequency that it keeps up. */
static uint64_t period_argument(const struct collector *c, enum sample_event event, double hz)
{
	return is_hardware(c, event) ? (uint64_t)(hz + 0.5) : (uint64_t)(NSEC_PER_SEC / hz);
}

/* What a test on a machine without a performance unit samples by: of these clocks each function has as much. */
static uint64_t software_clock(enum sample_event event)
{
	return event == EVENT_INSTRUCTIONS ? PERF_COUNT_SW_TASK_CLOCK : PERF_COUNT_SW_CPU_CLOCK;
}

/* The leader of a group (-1) waits to be enabled, and the others for it. */
static int perf_open(const struct collector *c, enum sample_event event, unsigned cpu, double hz,
		     int leader)
{
	bool hardware = is_hardware(c, event);
	struct perf_event_attr attr = {
		.size = sizeof(attr),
		.type = hardware ? PERF_TYPE_HARDWARE : PERF_TYPE_SOFTWARE,
		/* Kinds are in the kernel's order. */
		.config = hardware ? sample_event_kind(event) : software_clock(event),
		.freq = hardware,
		/* In one union with sample_freq. */
		.sample_period = period_argument(c, event, hz),
		.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING,
		.disabled = leader < 0,
	};
	int fd = syscall(SYS_perf_event_open, &attr, -1, (int)cpu, leader, PERF_FLAG_FD_CLOEXEC);

	return fd < 0 ? negative_errno() : fd;
}

static int set_program(int fd, const struct bpf_program *p)
{
	return ioctl(fd, PERF_EVENT_IOC_SET_BPF, bpf_program__fd(p)) < 0 ? negative_errno() : 0;
}

static void event_close(struct tick_event *e)
{
	e->instructions_fd = close_fd(e->instructions_fd);
	e->fd = close_fd(e->fd);
}

/*
 * A CPU that samples one event alone spoils the quotients of all: processors may be of several kinds. Then they are not
 * told.
 */
static int instructions_open(struct collector *c, unsigned cpu, int leader)
{
	char *why = c->sources[SOURCE_ON_CPU].state.no_instructions;
	_cleanup_close_ int fd = -1;
	int r;

	if (!c->instructions || *why)
		return -1;
	fd = perf_open(c, EVENT_INSTRUCTIONS, cpu, draw_hz(c), leader);
	r = fd < 0 ? fd : set_program(fd, c->skel->progs.oncpu_instructions);
	if (r == 0)
		return TAKE_FD(fd);
	if (r != -ENODEV) /* it went offline since, and so does the leader */
		snprintf(why, sizeof(c->sources[SOURCE_ON_CPU].state.no_instructions),
			 "CPU %u cannot sample them: %s", cpu, hardware_absent(r));
	return -1;
}

static int event_open(struct collector *c, unsigned cpu)
{
	struct oncpu *o = oncpu_of(c);
	struct tick_cpu *tick = &o->ticks[cpu];
	_cleanup_close_ int fd = -1, instructions = -1;
	double hz = draw_hz(c);
	int r;

	fd = perf_open(c, o->event, cpu, hz, -1);
	if (fd < 0)
		return fd;
	r = set_program(fd, c->skel->progs.oncpu_tick);
	if (r < 0)
		return r;
	instructions = instructions_open(c, cpu, fd);
	tick->period = NSEC_PER_SEC / hz;
	tick->redrawn = tick->opened = mono_now_ns();
	if (ioctl(fd, PERF_EVENT_IOC_ENABLE, 0) < 0)
		return negative_errno();
	o->events[cpu] = (struct tick_event){ .fd = TAKE_FD(fd),
					      .instructions_fd = TAKE_FD(instructions) };
	return 0;
}

static void instructions_redraw(struct collector *c, const struct tick_event *e)
{
	uint64_t period = period_argument(c, EVENT_INSTRUCTIONS, draw_hz(c));

	if (e->instructions_fd >= 0) /* where it fails, the old period goes on */
		(void)ioctl(e->instructions_fd, PERF_EVENT_IOC_PERIOD, &period);
}

static void event_redraw(struct collector *c, unsigned cpu)
{
	struct oncpu *o = oncpu_of(c);
	double hz = draw_hz(c);
	uint64_t period = period_argument(c, o->event, hz);

	instructions_redraw(c, &o->events[cpu]);
	if (ioctl(o->events[cpu].fd, PERF_EVENT_IOC_PERIOD, &period) < 0)
		return; /* the old period goes on */
	o->ticks[cpu].period = NSEC_PER_SEC / hz;
	o->ticks[cpu].redrawn = mono_now_ns();
}

/* An event whose CPU went away and came back between two looks is still there, but never runs again. */
static bool event_is_dead(struct oncpu *o, unsigned cpu, uint64_t now)
{
	struct tick_event *e = &o->events[cpu];
	const struct tick_cpu *tick = &o->ticks[cpu];
	uint64_t read_format[3], before = e->running_ns;

	if (now < tick->opened || now < tick->last)
		return false;
	if (now - MAX(tick->last, tick->opened) < STALE_PERIODS * tick->period)
		return false;
	if (read(e->fd, read_format, sizeof(read_format)) != sizeof(read_format))
		return true;
	e->running_ns = read_format[2];
	return before && before == e->running_ns;
}

/*
 * Events for the CPUs that are online now, and only for them. A CPU that cannot be opened is tried again at
 * the next call; *ret_n counts those that run.
 */
static int follow_cpus(struct collector *c, uint64_t now, unsigned *ret_n)
{
	_cleanup_(cpu_set_done) struct cpu_set online = {};
	struct oncpu *o = oncpu_of(c);
	unsigned n = 0;
	int r, first = 0;

	r = cpu_set_read("/sys/devices/system/cpu/online", o->n_events, &online);
	if (r < 0)
		return r;
	for (unsigned cpu = 0; cpu < o->n_events; cpu++) {
		struct tick_event *e = &o->events[cpu];

		if (e->fd >= 0 && (!cpu_set_has(&online, cpu) || event_is_dead(o, cpu, now)))
			event_close(e);
		if (e->fd < 0 && cpu_set_has(&online, cpu)) {
			r = event_open(c, cpu);
			/* ENODEV: it went offline since. */
			if (r < 0 && r != -ENODEV && first == 0)
				first = r;
		}
		n += e->fd >= 0;
	}
	*ret_n = n;
	return first;
}

/* ---- the source ------------------------------------------------------------------------------------- */

static void describe(struct collector *c, unsigned running, int error)
{
	struct source_state *state = &c->sources[SOURCE_ON_CPU].state;

	if (!running)
		snprintf(state->text, sizeof(state->text), "no CPU can be sampled: %s",
			 error ? strerror(-error) : "none is online");
	else if (error)
		snprintf(state->text, sizeof(state->text), "running on %u CPUs; on another: %s",
			 running, strerror(-error));
	else if (c->o.on_cpu_cycles && !oncpu_of(c)->event)
		snprintf(state->text, sizeof(state->text),
			 "running (no cycles counter on this host: cpu-clock)");
	else if (!c->skel->rodata->nr_idle_ranges)
		snprintf(state->text, sizeof(state->text),
			 "running (kernel addresses are hidden: all of pid 0 counts as idle)");
	else if (c->shrink)
		snprintf(state->text, sizeof(state->text),
			 "running (memory is short: maps have 1/%u of their size)",
			 1U << c->shrink);
	else
		snprintf(state->text, sizeof(state->text), "running");
}

static unsigned first_cpu(const struct cpu_set *online)
{
	unsigned cpu = 0;

	while (cpu + 1 < online->n && !cpu_set_has(online, cpu))
		cpu++;
	return cpu;
}

/* Whether the PMU has it here; a host without one says so in many ways. */
static bool probe_event(const struct collector *c, enum sample_event event,
			const struct cpu_set *online)
{
	_cleanup_close_ int fd = perf_open(c, event, first_cpu(online), PROBE_HZ, -1);

	return fd >= 0;
}

/* Whether instructions can be sampled as well, and together with the event; else *ret_why says why not. */
static bool probe_instructions(const struct collector *c, const struct cpu_set *online,
			       char *ret_why, size_t size)
{
	unsigned cpu = first_cpu(online);
	_cleanup_close_ int alone = perf_open(c, EVENT_INSTRUCTIONS, cpu, PROBE_HZ, -1);
	_cleanup_close_ int leader = perf_open(c, c->o.event, cpu, PROBE_HZ, -1), both = -1;

	ret_why[0] = 0;
	if (alone < 0) {
		snprintf(ret_why, size, "instructions cannot be sampled: %s",
			 hardware_absent(alone));
		return false;
	}
	if (leader < 0)
		return false;
	both = perf_open(c, EVENT_INSTRUCTIONS, cpu, PROBE_HZ, leader);
	if (both < 0)
		snprintf(ret_why, size, "the processor cannot count instructions and %s at once",
			 sample_event_name(c->o.event));
	return both >= 0;
}

static int configure_instructions(struct collector *c, const struct cpu_set *online,
				  uint32_t entries)
{
	struct source_state *state = &c->sources[SOURCE_ON_CPU].state;

	c->instructions = c->o.event != EVENT_CPU_CLOCK && c->o.event != EVENT_INSTRUCTIONS &&
			  probe_instructions(c, online, state->no_instructions,
					     sizeof(state->no_instructions));
	return c->instructions ? instructions_configure(c, entries) : 0;
}

static int configure_only(struct collector *c)
{
	c->skel->rodata->only_listed = c->o.n_only_tgids > 0;
	return c->o.n_only_tgids ? use_map(c->skel->maps.only_tgids, c->o.n_only_tgids) : 0;
}

static int oncpu_configure(struct collector *c)
{
	_cleanup_(cpu_set_done) struct cpu_set online = {};
	struct sysprofd_bpf *skel = c->skel;
	uint32_t entries = count_entries(c, c->o.on_cpu_hz, 1024, 65536);
	bool have;
	int r;

	if (c->sources[SOURCE_ON_CPU].attempt) {
		source_off(c, SOURCE_ON_CPU, "%s", c->sources[SOURCE_ON_CPU].state.text);
		return 0;
	}
	r = cpu_set_read("/sys/devices/system/cpu/online", c->cpu_ids, &online);
	if (r < 0)
		return r;
	have = (c->o.event || c->o.on_cpu_cycles) &&
	       probe_event(c, c->o.event ?: EVENT_CYCLES, &online);
	if (c->o.event && !have) {
		source_off(c, SOURCE_ON_CPU, "%s cannot be sampled here",
			   sample_event_name(c->o.event));
		return 0;
	}
	skel->rodata->ticks_are_time = !have;
	skel->rodata->weigh_events = c->o.event != EVENT_CPU_CLOCK;
	if (c->o.places) {
		memcpy((void *)skel->rodata->idle_ranges, c->o.places->idle,
		       sizeof(c->o.places->idle));
		skel->rodata->nr_idle_ranges = (uint32_t)c->o.places->n_idle;
	}
	use_program(skel->progs.oncpu_tick);
	r = use_map(skel->maps.on_cpu_a, entries);
	if (r == 0)
		r = use_map(skel->maps.on_cpu_b, entries);
	if (r == 0)
		r = use_map(skel->maps.tick_cpus, c->cpu_ids);
	if (r == 0)
		r = configure_instructions(c, &online, entries);
	return r < 0 ? r : configure_only(c);
}

static int fill_only(struct collector *c)
{
	uint8_t yes = 1;

	for (size_t i = 0; i < c->o.n_only_tgids; i++)
		if (bpf_map_update_elem(bpf_map__fd(c->skel->maps.only_tgids), &c->o.only_tgids[i],
					&yes, BPF_ANY) < 0)
			return negative_errno();
	return 0;
}

static int oncpu_init(struct collector *c, struct oncpu *o)
{
	size_t page = sysconf(_SC_PAGESIZE);
	void *p;

	if (!c->skel->rodata->ticks_are_time)
		o->event = c->o.event ?: EVENT_CYCLES;
	o->hz = c->o.on_cpu_hz;
	o->n_events = c->cpu_ids;
	o->events = new0(struct tick_event, o->n_events);
	o->idle_ns = new0(uint64_t, o->n_events);
	o->idle_before_ns = new0(uint64_t, o->n_events);
	o->silent_ns = new0(uint64_t, o->n_events);
	if (!o->events || !o->idle_ns || !o->idle_before_ns || !o->silent_ns)
		return -ENOMEM;
	for (unsigned i = 0; i < o->n_events; i++)
		o->events[i] = (struct tick_event){ .fd = -1, .instructions_fd = -1 };
	o->ticks_bytes = (o->n_events * sizeof(*o->ticks) + page - 1) / page * page;
	p = mmap(NULL, o->ticks_bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
		 bpf_map__fd(c->skel->maps.tick_cpus), 0);
	if (p == MAP_FAILED)
		return negative_errno();
	o->ticks = p;
	/* Without /proc/stat all gaps are lost time. */
	(void)idle_times_read("/proc/stat", o->idle_before_ns, o->n_events);
	return 0;
}

static int oncpu_attach(struct collector *c)
{
	struct source_state *state = &c->sources[SOURCE_ON_CPU].state;
	struct oncpu *o = new0(struct oncpu, 1);
	uint64_t now = mono_now_ns();
	unsigned running = 0;
	int r;

	if (!o)
		return -ENOMEM;
	c->sources[SOURCE_ON_CPU].priv = o;
	r = oncpu_init(c, o);
	if (r == 0)
		r = fill_only(c);
	if (r < 0)
		return r;
	r = follow_cpus(c, now, &running);
	if (!running) {
		_cleanup_free_ char *why = diagnose_perf(r);

		source_off(c, SOURCE_ON_CPU, "%s", why ?: strerror(-r));
		return 0;
	}
	o->redraw_at_ns = now + REDRAW_NS;
	snprintf(state->hook, sizeof(state->hook), "%s", sample_event_name(o->event));
	state->rate_hz = o->hz;
	describe(c, running, r);
	return 0;
}

static int oncpu_poll(struct collector *c, uint64_t mono_ns)
{
	struct oncpu *o = oncpu_of(c);
	unsigned running = 0;
	int r;

	if (mono_ns < o->redraw_at_ns)
		return 0;
	o->redraw_at_ns = mono_ns + REDRAW_NS;
	for (unsigned cpu = 0; cpu < o->n_events; cpu++)
		if (o->events[cpu].fd >= 0)
			event_redraw(c, cpu);
	r = follow_cpus(c, mono_ns, &running);
	describe(c, running, r);
	return 0;
}

/*
 * The time since a CPU's last tick belongs to the window that ends now when a tick is overdue: the next one is
 * counted in the window after, and may well come in the moment in which the grace period wakes the CPU. A tick
 * that comes while this is told books the time itself.
 */
static uint64_t end_silence(struct tick_cpu *tick, uint64_t now)
{
	uint64_t last = __atomic_load_n(&tick->last, __ATOMIC_RELAXED);
	uint64_t since = MAX(last, tick->opened);

	if (now < since || now - since < 2 * tick->period)
		return 0;
	__atomic_store_n(&tick->opened, now, __ATOMIC_SEQ_CST);
	return __atomic_load_n(&tick->last, __ATOMIC_SEQ_CST) == last ? now - since : 0;
}

static int oncpu_before_swap(struct collector *c, bool bucket_end, struct slice *s)
{
	struct oncpu *o = oncpu_of(c);
	uint64_t now = mono_now_ns();

	(void)bucket_end, (void)s;
	for (unsigned cpu = 0; !o->event && cpu < o->n_events; cpu++)
		if (o->events[cpu].fd >= 0)
			o->silent_ns[cpu] = end_silence(&o->ticks[cpu], now);
	return 0;
}

static void book_silence(struct account *a, uint64_t ns, uint64_t period)
{
	uint64_t ticks = ns / MAX(period, 1);

	a->seen += ticks;
	a->lost[LOSS_TICK_SKIPPED] += ticks;
	a->lost_ns += ns;
}

static void oncpu_correct(struct collector *c, struct account *per_cpu)
{
	struct oncpu *o = oncpu_of(c);

	if (o->event)
		return;
	if (idle_times_read("/proc/stat", o->idle_ns, o->n_events) < 0)
		memcpy(o->idle_ns, o->idle_before_ns, o->n_events * sizeof(*o->idle_ns));
	for (unsigned i = 0; i < c->cpus_possible; i++) {
		unsigned cpu = c->possible[i];
		uint64_t idle = o->idle_ns[cpu], before = o->idle_before_ns[cpu];

		book_silence(&per_cpu[i], o->silent_ns[cpu], o->ticks[cpu].period);
		o->silent_ns[cpu] = 0;
		account_explain_gaps(&per_cpu[i], idle > before ? idle - before : 0);
	}
	memcpy(o->idle_before_ns, o->idle_ns, o->n_events * sizeof(*o->idle_ns));
}

struct oncpu_drain {
	struct collector *c;
	struct slice *s;
	uint64_t samples, ns;
};

static int drain_one(void *ctx, const void *key, const void *value)
{
	struct oncpu_drain *d = ctx;
	struct slice *s = d->s;
	struct slice_on_cpu *e;
	int r = ARRAY_GROW(s->on_cpu, s->cap_on_cpu, s->n_on_cpu + 1);

	if (r < 0)
		return r;
	e = &s->on_cpu[s->n_on_cpu++];
	memcpy(&e->key, key, sizeof(e->key));
	memcpy(&e->value, value, sizeof(e->value));
	e->key.stack = slice_stack_id(d->c, s, SOURCE_ON_CPU, e->key.stack, e->value.samples);
	d->samples += e->value.samples;
	d->ns += e->value.ns;
	return 0;
}

static int oncpu_drain(struct collector *c, unsigned set, struct slice *s)
{
	struct account *a = &s->source[SOURCE_ON_CPU].sum;
	struct oncpu_drain d = { .c = c, .s = s };
	int r = drain_map(c, set ? c->skel->maps.on_cpu_b : c->skel->maps.on_cpu_a, drain_one, &d);

	slice_balance(s, SOURCE_ON_CPU, d.samples);
	if (d.ns < a->ns)
		a->lost_ns += a->ns - d.ns;
	a->ns = d.ns;
	if (c->instructions) {
		int k = instructions_drain(c, set, s);

		r = r < 0 ? r : k;
	}
	return r;
}

/* Samples of instructions have accounts of their own. */
static bool oncpu_counts(const struct collector *c, const struct bpf_program *p)
{
	return p != c->skel->progs.oncpu_instructions;
}

static void oncpu_free(struct collector *c)
{
	struct oncpu *o = oncpu_of(c);

	if (!o)
		return;
	for (unsigned i = 0; o->events && i < o->n_events; i++)
		event_close(&o->events[i]);
	if (o->ticks)
		munmap(o->ticks, o->ticks_bytes);
	free(o->events);
	free(o->idle_ns);
	free(o->idle_before_ns);
	free(o->silent_ns);
	free(o);
	c->sources[SOURCE_ON_CPU].priv = NULL;
}

const struct source_ops oncpu_ops = {
	.prefix = "oncpu_",
	.configure = oncpu_configure,
	.attach = oncpu_attach,
	.poll = oncpu_poll,
	.counts = oncpu_counts,
	.before_swap = oncpu_before_swap,
	.correct = oncpu_correct,
	.drain = oncpu_drain,
	.free = oncpu_free,
};
