// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Hardware counters against the running kernel. Needs root and BPF, but no performance unit: software counters, whose
 * truth is known, take the hardware's place: "cycles" are ns of CPU time, "instructions" are page faults.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>

#include "collect-live.h"

#define PAGE 4096
#define AT_ALL_SWITCHES 1000000

static struct collect_options options(uint32_t reads)
{
	return (struct collect_options){
		.enabled = { [SOURCE_ON_CPU] = true, [SOURCE_OFF_CPU] = true },
		.on_cpu_hz = 19,
		.off_cpu_threshold_ns = NSEC_PER_SEC,
		.off_cpu_threshold_max_ns = NSEC_PER_SEC,
		.slice_ns = 2 * NSEC_PER_SEC,
		.places = kernel_places(),
		.counter_reads = reads,
		.software_counters = true,
	};
}

#define CYCLES (COUNTER_CYCLES - COUNTER_CYCLES)
#define FAULTS (COUNTER_INSTRUCTIONS - COUNTER_CYCLES)

static void add(struct hardware_value *sum, const struct slice *s, pid_t tgid)
{
	for (size_t i = 0; i < s->n_hardware; i++) {
		const struct hardware_value *v = &s->hardware[i].value;

		if ((pid_t)s->hardware[i].key.tgid != tgid)
			continue;
		sum->spans += v->spans;
		sum->ns += v->ns;
		for (int k = 0; k < HARDWARE_COUNTERS; k++) {
			sum->counters[k].n += v->counters[k].n;
			sum->counters[k].ns += v->counters[k].ns;
		}
	}
}

struct job {
	unsigned pages, sleep_us;
	uint64_t cpu_ns; /* what it took */
};

/* Touches a new page, sleeps, and so on: each page a fault, each sleep a switch. */
static void touches(void *arg)
{
	struct job *job = arg;
	char *p = mmap(NULL, job->pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		       -1, 0);

	if (p == MAP_FAILED)
		_exit(1);
	madvise(p, job->pages * PAGE, MADV_NOHUGEPAGE);
	for (unsigned i = 0; i < job->pages; i++) {
		p[i * PAGE] = 1;
		if (job->sleep_us)
			usleep(job->sleep_us);
	}
	job->cpu_ns = cpu_now_ns();
}

static struct hardware_value count(uint32_t reads, struct job *job)
{
	struct collect_options o = options(reads);
	struct collector *c = start_or_skip(&o);
	struct hardware_value sum = {};
	bool running = true;
	pid_t pid;

	run_for(c, 100);
	slice_free(drain(c, false));
	pid = start_process(touches, job);
	while (running) {
		struct slice *s;
		int status;

		run_for(c, 100);
		running = waitpid(pid, &status, WNOHANG) == 0;
		assert_true(running || (WIFEXITED(status) && WEXITSTATUS(status) == 0));
		s = drain(c, false);
		assert_conserved(s, SOURCE_ON_CPU);
		add(&sum, s, pid);
		slice_free(s);
	}
	collector_free(c);
	return sum;
}

/* With reads enough for all switches nothing is left to chance. */
static void test_all(void **state)
{
	struct job *job = shared_memory(sizeof(*job));
	struct hardware_value v;

	*job = (struct job){ .pages = 3000, .sleep_us = 100 };
	v = count(AT_ALL_SWITCHES, job);
	print_message("%lu spans, %lu faults, %lu ns of %lu\n", v.spans, v.counters[FAULTS].n, v.ns,
		      job->cpu_ns);
	/* There are switches that the kernel does not show: what lies around one is left out. */
	assert_true(v.spans >= job->pages / 10 * 9);
	assert_in_range(v.counters[FAULTS].n, job->pages / 10 * 9, job->pages + 1000);
	/* What a switch itself takes is time of the one that comes for the kernel, for us of the one that leaves. */
	assert_true(v.ns * 2 > job->cpu_ns);
	assert_in_range(v.counters[CYCLES].ns, v.ns / 2, v.ns * 2);
	assert_in_range(v.counters[CYCLES].n, v.counters[CYCLES].ns / 20 * 19,
			v.counters[CYCLES].ns / 20 * 21);
	assert_int_equal(v.counters[COUNTER_BRANCH_MISSES - COUNTER_CYCLES].ns, 0);
}

/* A budget that is far below the switches: some are read, and stand for all. */
static void test_share(void **state)
{
	struct job *job = shared_memory(sizeof(*job));
	struct hardware_value v;

	*job = (struct job){ .pages = 30000, .sleep_us = 20 };
	v = count(2000, job);
	print_message("%lu spans, %lu faults, %lu ns of %lu\n", v.spans, v.counters[FAULTS].n, v.ns,
		      job->cpu_ns);
	assert_true(v.spans > 0 && v.spans < job->pages / 2);
	assert_in_range(v.counters[FAULTS].n, job->pages / 3, job->pages * 5 / 2);
}

static void test_which(void **state)
{
	struct collect_options o = options(1000);
	struct collector *c = start_or_skip(&o);
	struct hardware_state h;

	collector_hardware_state(c, &h);
	assert_true(h.counted);
	assert_string_equal(h.why, "");
	for (int i = 0; i < HARDWARE_COUNTERS - 1; i++)
		assert_int_equal(h.error[i], 0);
	assert_int_equal(h.error[HARDWARE_COUNTERS - 1], -ENOENT);
	collector_free(c);
}

static void test_why_none(void **state)
{
	struct collect_options o = options(0);
	struct collector *c = start_or_skip(&o);
	struct hardware_state h;

	collector_hardware_state(c, &h);
	assert_false(h.counted);
	assert_non_null(strstr(h.why, "counter-reads"));
	collector_free(c);
	o = options(1000);
	o.enabled[SOURCE_OFF_CPU] = false;
	c = start_or_skip(&o);
	collector_hardware_state(c, &h);
	assert_false(h.counted);
	assert_non_null(strstr(h.why, "off-cpu"));
	collector_free(c);
	/* What this machine really has. */
	o = options(1000);
	o.software_counters = false;
	c = start_or_skip(&o);
	collector_hardware_state(c, &h);
	assert_int_equal(h.counted, !*h.why);
	print_message("%s\n", h.why);
	collector_free(c);
}

/* ---- instructions beside another event of a burst --------------------------------------------------- */

#define LOOP_BYTES 256 /* of each of these functions at most; the loop is at their begin */

static __attribute__((noinline, aligned(256))) void spin_short(uint64_t n)
{
	for (; n; n--)
		__asm__ volatile("" ::: "memory");
}

static __attribute__((noinline, aligned(256))) void spin_long(uint64_t n)
{
	for (; n; n--)
		__asm__ volatile("" : "+r"(n)::"memory");
}

static void spins(void *arg)
{
	for (;;) {
		spin_short(1000000);
		spin_long(3000000);
	}
}

struct sum {
	uint64_t samples, weight;
};

static void add_leaves(struct sum *sum, const struct slice *s, const struct slice_on_cpu *rows,
		       size_t n, pid_t tgid, const void *function)
{
	for (size_t i = 0; i < n; i++) {
		const struct slice_stack *k = find_stack(s, rows[i].key.stack);

		if ((pid_t)rows[i].key.tgid != tgid || !k || k->nr_kernel || !k->nr_user ||
		    s->ips[k->first_ip] - (uint64_t)function >= LOOP_BYTES)
			continue;
		sum->samples += rows[i].value.samples;
		sum->weight += rows[i].value.ns;
	}
}

static void assert_instructions_conserved(const struct slice *s)
{
	const struct account *a = &s->instructions_sum;
	uint64_t sum = a->stored + a->idle, rows = 0;

	for (int i = 0; i < LOSS_N; i++)
		if (!loss_keeps_weight(i))
			sum += a->lost[i];
	assert_int_equal(a->seen, sum);
	for (size_t i = 0; i < s->n_instructions; i++)
		rows += s->instructions[i].value.samples;
	assert_int_equal(a->stored, rows);
}

/*
 * Two clocks stand in for cycles and instructions: the quotient of each function is 1, whatever its share.
 */
static void test_beside(void **state)
{
	void *const functions[] = { (void *)spin_short, (void *)spin_long };
	struct collect_options o = options(0);
	struct sum events[2] = {}, instructions[2] = {};
	struct source_state on;
	struct collector *c;
	uint64_t seen = 0;
	pid_t pid;

	o.burst = true;
	o.enabled[SOURCE_OFF_CPU] = false;
	o.event = EVENT_CYCLES;
	o.on_cpu_hz = 499;
	o.on_cpu_jitter = 0; /* a clock's samples weigh the period that it had at first */
	pid = start_process(spins, NULL);
	c = start_or_skip(&o);
	for (int n = 0; n < 3; n++) {
		struct slice *s;

		run_for(c, 1200);
		s = drain(c, false);
		assert_conserved(s, SOURCE_ON_CPU);
		assert_instructions_conserved(s);
		seen += s->instructions_sum.seen;
		for (int i = 0; i < 2; i++) {
			add_leaves(&events[i], s, s->on_cpu, s->n_on_cpu, pid, functions[i]);
			add_leaves(&instructions[i], s, s->instructions, s->n_instructions, pid,
				   functions[i]);
		}
		slice_free(s);
	}
	collector_source_state(c, SOURCE_ON_CPU, &on);
	collector_free(c);
	kill_process(pid);
	assert_string_equal(on.no_instructions, "");
	assert_true(seen > 0);
	for (int i = 0; i < 2; i++) {
		print_message("%lu samples weigh %lu, %lu beside them %lu\n", events[i].samples,
			      events[i].weight, instructions[i].samples, instructions[i].weight);
		assert_true(events[i].samples > 40 && instructions[i].samples > 40);
		/* Four standard errors of either. */
		assert_true(fabs((double)instructions[i].weight / (double)events[i].weight - 1) <
			    4 * sqrt(1 / (double)events[i].samples +
				     1 / (double)instructions[i].samples));
	}
	assert_true(instructions[1].weight > 2 * instructions[0].weight);
}

/* Where they are not asked for, nothing of them is made. */
static void test_not_beside(void **state)
{
	struct collect_options o = options(0);
	struct collector *c;
	struct slice *s;

	o.burst = true;
	o.enabled[SOURCE_OFF_CPU] = false;
	o.event = EVENT_INSTRUCTIONS;
	o.on_cpu_hz = 99;
	c = start_or_skip(&o);
	run_for(c, 200);
	s = drain(c, false);
	assert_int_equal(s->n_instructions, 0);
	assert_int_equal(s->instructions_sum.seen, 0);
	assert_true(s->source[SOURCE_ON_CPU].sum.seen > 0);
	slice_free(s);
	collector_free(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all),    cmocka_unit_test(test_share),
		cmocka_unit_test(test_which),  cmocka_unit_test(test_why_none),
		cmocka_unit_test(test_beside), cmocka_unit_test(test_not_beside),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
