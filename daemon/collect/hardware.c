// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Hardware counters: an event for each that exists on each CPU, which the program at the context switch reads.
 *
 * Processors have four to eight counters, of which the kernel's watchdog and others want some. So cycles and
 * instructions are on all the time, and of the other two pairs one, drawn at random every few seconds: four at
 * most. Events are flexible: where somebody asks for more than there are, the kernel has all take turns, and what
 * was counted is put in relation to the time in which it was.
 */
#include <linux/perf_event.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "base/clock.h"
#include "collect/internal.h"

#define FOLLOW_NS NSEC_PER_SEC
#define TURN_NS (5 * NSEC_PER_SEC) /* of a pair, on average */
#define INTERVALS_PER_SECOND 100 /* of the program */

_Static_assert(HARDWARE_COUNTERS == 6 &&
		       COUNTER_INSTRUCTIONS - COUNTER_CYCLES == PERF_COUNT_HW_INSTRUCTIONS &&
		       COUNTER_CACHE_MISSES - COUNTER_CYCLES == PERF_COUNT_HW_CACHE_MISSES &&
		       COUNTER_BRANCH_MISSES - COUNTER_CYCLES == PERF_COUNT_HW_BRANCH_MISSES,
	       "counters are the kernel's, in pairs");

struct counted_cpu {
	int fds[HARDWARE_COUNTERS]; /* -1: there is none */
	uint64_t enabled_ns; /* the first one's clock when it was asked last */
};

struct hardware {
	struct counted_cpu *counted; /* by CPU id */
	struct hardware_cpu *cpus; /* one per possible CPU */
	uint64_t refused; /* spans, up to the last drain */
	unsigned pair; /* that is on beside the first */
	uint64_t follow_at_ns, turn_at_ns;
};

/* ---- what there is ---------------------------------------------------------------------------------- */

/* What a test on a machine without a performance unit counts instead. */
static const uint32_t software[HARDWARE_COUNTERS] = {
	PERF_COUNT_SW_CPU_CLOCK,      PERF_COUNT_SW_PAGE_FAULTS,     PERF_COUNT_SW_CONTEXT_SWITCHES,
	PERF_COUNT_SW_CPU_MIGRATIONS, PERF_COUNT_SW_PAGE_FAULTS_MIN, UINT32_MAX,
};

static int open_counter(const struct collector *c, unsigned counter, unsigned cpu, bool on)
{
	struct perf_event_attr attr = {
		.size = sizeof(attr),
		.type = c->o.software_counters ? PERF_TYPE_SOFTWARE : PERF_TYPE_HARDWARE,
		.config = c->o.software_counters ? software[counter] : counter,
		.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING,
		.disabled = !on,
	};
	int fd = syscall(SYS_perf_event_open, &attr, -1, (int)cpu, -1, PERF_FLAG_FD_CLOEXEC);

	return fd < 0 ? negative_errno() : fd;
}

/* Processors may be of several kinds: it is there when one has it. */
static int probe_counter(const struct collector *c, unsigned counter, const struct cpu_set *online)
{
	int first = -ENODEV;

	for (unsigned cpu = 0, tried = 0; cpu < online->n; cpu++) {
		_cleanup_close_ int fd = -1;

		if (!cpu_set_has(online, cpu))
			continue;
		fd = open_counter(c, counter, cpu, false);
		if (fd >= 0)
			return 0;
		if (!tried++)
			first = fd;
	}
	return first;
}

/* A host without them says so in many ways. */
static bool is_absent(int error)
{
	return error == -ENOENT || error == -ENODEV || error == -EOPNOTSUPP || error == -EINVAL;
}

static void explain(struct hardware_state *h)
{
	_cleanup_free_ char *why = NULL;
	int error = h->error[0];

	for (unsigned i = 0; i < HARDWARE_COUNTERS; i++)
		if (!is_absent(h->error[i]))
			error = h->error[i];
	if (is_absent(error)) {
		snprintf(h->why, sizeof(h->why),
			 "the performance unit of the processor is not visible to this (virtual) "
			 "machine");
		return;
	}
	why = diagnose_perf(error);
	snprintf(h->why, sizeof(h->why), "%s", why ?: strerror(-error));
}

/* At a reload there are two collectors, and half of the descriptors are for everything else. */
static bool has_descriptors(const struct collector *c)
{
	struct rlimit limit;

	return getrlimit(RLIMIT_NOFILE, &limit) < 0 ||
	       limit.rlim_cur / 4 >= HARDWARE_COUNTERS * c->cpus_possible;
}

int hardware_probe(struct collector *c)
{
	_cleanup_(cpu_set_done) struct cpu_set online = {};
	struct hardware_state *h = &c->hardware_state;
	int r = cpu_set_read("/sys/devices/system/cpu/online", c->cpu_ids, &online);

	if (r < 0)
		return r;
	*h = (struct hardware_state){};
	for (unsigned i = 0; i < HARDWARE_COUNTERS; i++) {
		h->error[i] = probe_counter(c, i, &online);
		h->counted |= h->error[i] == 0;
	}
	if (!h->counted)
		explain(h);
	else if (!c->o.counter_reads)
		snprintf(h->why, sizeof(h->why), "counter-reads=0 in sysprofd.conf");
	else if (!has_descriptors(c))
		snprintf(h->why, sizeof(h->why),
			 "too few file descriptors for six on each of %u CPUs (LimitNOFILE=)",
			 c->cpus_possible);
	h->counted = !*h->why;
	return 0;
}

int hardware_configure(struct collector *c)
{
	uint32_t entries = count_entries(c, 250, 1024, 8192), mask = 0;
	struct sysprofd_bpf *skel = c->skel;
	int r;

	if (!c->hardware_state.counted || skel->rodata->hardware_on)
		return 0;
	for (unsigned i = 0; i < HARDWARE_COUNTERS; i++)
		mask |= (uint32_t)!c->hardware_state.error[i] << i;
	skel->rodata->hardware_on = true;
	skel->rodata->hardware_mask = mask;
	skel->rodata->hardware_cpu_ids = c->cpu_ids;
	skel->rodata->hardware_reads = MAX(c->o.counter_reads / INTERVALS_PER_SECOND, 1U);
	r = use_map(skel->maps.hardware_events, HARDWARE_COUNTERS * c->cpu_ids);
	if (r == 0)
		r = use_map(skel->maps.hardware_cpus, 0);
	if (r == 0)
		r = use_map(skel->maps.hardware_a, entries);
	if (r == 0)
		r = use_map(skel->maps.hardware_b, entries);
	return r;
}

void collector_hardware_state(const struct collector *c, struct hardware_state *ret)
{
	*ret = c->hardware_state;
	ret->counted = c->hardware != NULL;
	if (!ret->counted && !*ret->why)
		snprintf(ret->why, sizeof(ret->why),
			 "they are read at context switches, which are looked at only with off-cpu "
			 "or futex on");
}

/* ---- events ----------------------------------------------------------------------------------------- */

static bool is_on(const struct hardware *h, unsigned counter)
{
	return counter / 2 == 0 || counter / 2 == h->pair;
}

static void close_cpu(struct counted_cpu *p)
{
	for (unsigned i = 0; i < HARDWARE_COUNTERS; i++)
		p->fds[i] = close_fd(p->fds[i]);
	p->enabled_ns = 0;
}

static bool is_open(const struct counted_cpu *p)
{
	for (unsigned i = 0; i < HARDWARE_COUNTERS; i++)
		if (p->fds[i] >= 0)
			return true;
	return false;
}

/* What this CPU does not have is not read on it. */
static void open_cpu(struct collector *c, unsigned cpu)
{
	struct hardware *h = c->hardware;

	for (uint32_t i = 0; i < HARDWARE_COUNTERS; i++) {
		uint32_t key = i * c->cpu_ids + cpu;
		int fd, r;

		if (c->hardware_state.error[i])
			continue;
		fd = open_counter(c, i, cpu, is_on(h, i));
		if (fd < 0)
			continue;
		undisturbed_begin(c);
		r = bpf_map_update_elem(bpf_map__fd(c->skel->maps.hardware_events), &key, &fd,
					BPF_ANY);
		undisturbed_end(c);
		h->counted[cpu].fds[i] = r < 0 ? close_fd(fd) : fd;
	}
}

/* An event whose CPU went away and came back between two looks never counts again. */
static bool is_dead(struct counted_cpu *p)
{
	uint64_t read_format[3], before = p->enabled_ns;

	if (p->fds[0] < 0 || read(p->fds[0], read_format, sizeof(read_format)) < 0)
		return false;
	p->enabled_ns = read_format[1];
	return before && before == p->enabled_ns;
}

static void follow_cpus(struct collector *c)
{
	_cleanup_(cpu_set_done) struct cpu_set online = {};
	struct hardware *h = c->hardware;

	if (cpu_set_read("/sys/devices/system/cpu/online", c->cpu_ids, &online) < 0)
		return;
	for (unsigned cpu = 0; cpu < c->cpu_ids; cpu++) {
		struct counted_cpu *p = &h->counted[cpu];

		if (is_open(p) && (!cpu_set_has(&online, cpu) || is_dead(p)))
			close_cpu(p);
		if (!is_open(p) && cpu_set_has(&online, cpu))
			open_cpu(c, cpu);
	}
}

static bool has_pair(const struct collector *c, unsigned pair)
{
	return !c->hardware_state.error[2 * pair] || !c->hardware_state.error[2 * pair + 1];
}

static void take_turns(struct collector *c)
{
	struct hardware *h = c->hardware;
	unsigned pair = 1 + (collector_random64(c) & 1);

	if (pair == h->pair || !has_pair(c, pair))
		return;
	h->pair = pair;
	for (unsigned cpu = 0; cpu < c->cpu_ids; cpu++)
		for (unsigned i = 2; i < HARDWARE_COUNTERS; i++)
			if (h->counted[cpu].fds[i] >= 0)
				(void)ioctl(h->counted[cpu].fds[i],
					    is_on(h, i) ? PERF_EVENT_IOC_ENABLE
							: PERF_EVENT_IOC_DISABLE,
					    0);
}

void hardware_poll(struct collector *c, uint64_t mono_ns)
{
	struct hardware *h = c->hardware;

	if (!h || mono_ns < h->follow_at_ns)
		return;
	h->follow_at_ns = mono_ns + FOLLOW_NS;
	follow_cpus(c);
	if (mono_ns < h->turn_at_ns)
		return;
	h->turn_at_ns = mono_ns + (uint64_t)((0.5 + collector_random(c)) * TURN_NS);
	take_turns(c);
}

int hardware_attach(struct collector *c)
{
	struct hardware *h;

	if (!c->skel->rodata->hardware_on || c->hardware)
		return 0;
	h = new0(struct hardware, 1);
	if (!h)
		return -ENOMEM;
	c->hardware = h;
	h->counted = new0(struct counted_cpu, c->cpu_ids);
	h->cpus = new0(struct hardware_cpu, c->cpus_possible);
	for (unsigned cpu = 0; h->counted && cpu < c->cpu_ids; cpu++)
		memset(h->counted[cpu].fds, 0xff, sizeof(h->counted[cpu].fds));
	if (!h->counted || !h->cpus) {
		hardware_free(c);
		return -ENOMEM;
	}
	h->pair = has_pair(c, 1) ? 1 : 2;
	follow_cpus(c);
	return 0;
}

void hardware_free(struct collector *c)
{
	struct hardware *h = c->hardware;

	if (!h)
		return;
	for (unsigned cpu = 0; h->counted && cpu < c->cpu_ids; cpu++)
		close_cpu(&h->counted[cpu]);
	free(h->counted);
	free(h->cpus);
	free(h);
	c->hardware = NULL;
}

/* ---- the window ------------------------------------------------------------------------------------- */

static int drain_one(void *ctx, const void *key, const void *value)
{
	struct slice *s = ctx;
	struct slice_hardware *e;
	int r = ARRAY_GROW(s->hardware, s->cap_hardware, s->n_hardware + 1);

	if (r < 0)
		return r;
	e = &s->hardware[s->n_hardware++];
	memcpy(&e->key, key, sizeof(e->key));
	memcpy(&e->value, value, sizeof(e->value));
	return 0;
}

/* Spans are no samples, and in no account. */
static void book_refused(struct collector *c, struct slice *s)
{
	struct hardware *h = c->hardware;
	uint64_t refused = 0;

	if (read_per_cpu(c, c->skel->maps.hardware_cpus, 0, h->cpus) < 0)
		return;
	for (unsigned i = 0; i < c->cpus_possible; i++)
		refused += h->cpus[i].refused;
	s->hardware_lost += refused - h->refused;
	h->refused = refused;
}

int hardware_drain(struct collector *c, unsigned set, struct slice *s)
{
	struct sysprofd_bpf *skel = c->skel;

	if (!c->hardware)
		return 0;
	book_refused(c, s);
	return drain_map(c, set ? skel->maps.hardware_b : skel->maps.hardware_a, drain_one, s);
}
