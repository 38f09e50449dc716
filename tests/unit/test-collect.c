// SPDX-License-Identifier: GPL-2.0-or-later
/* The parts of collect that need no kernel: CPU lists, idle code, time without ticks, records, balances. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>

#include "collect/internal.h"
#include "collect/load.h"
#include "collect/types.h"

static void write_temp(char *path, const char *text)
{
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

/* ---- CPU lists ------------------------------------------------------------------------------------- */

static void test_cpu_lists(void **state)
{
	static const char *const wrong[] = { "a",    "1-",    "-1",
					     "3-1",  "0,,1",  "0,",
					     "0 1",  "64",    "99999999999999999999",
					     "0-64", "1-2-3", "0x1" };
	_cleanup_(cpu_set_done) struct cpu_set s = {};

	assert_int_equal(cpu_set_parse("0-1,4,62-63\n", 64, &s), 0);
	assert_int_equal(s.n, 64);
	assert_int_equal(cpu_set_count(&s), 5);
	assert_true(cpu_set_has(&s, 0) && cpu_set_has(&s, 1) && cpu_set_has(&s, 4));
	assert_true(cpu_set_has(&s, 63) && !cpu_set_has(&s, 2) && !cpu_set_has(&s, 64));
	cpu_set_done(&s);
	assert_int_equal(cpu_set_parse("\n", 64, &s), 0);
	assert_int_equal(cpu_set_count(&s), 0);
	cpu_set_done(&s);
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
		assert_true(cpu_set_parse(wrong[i], 64, &s) < 0);
	assert_null(s.bits);
}

/* ---- idle code ------------------------------------------------------------------------------------- */

static void tell(struct kernel_places *p, uint64_t start, uint64_t end, const char *name)
{
	places_tell(p, start, end, name);
}

static void test_idle_places(void **state)
{
	struct kernel_places p = {};

	tell(&p, 0x1000, 0x1100, "_stext");
	tell(&p, 0x1100, 0x1110, "pv_native_safe_halt");
	tell(&p, 0x1110, 0x1200, "something_else");
	tell(&p, 0x1200, 0x1280, "__cpuidle_text_start");
	tell(&p, 0x1200, 0x1280, "default_idle");
	tell(&p, 0x1280, 0x12c0, "in_the_section");
	tell(&p, 0x12c0, 0x1300, "mwait_idle");
	tell(&p, 0x1300, 0x1500, "__cpuidle_text_end");
	tell(&p, 0x1500, 0x1580, "cpuidle_enter_state");
	tell(&p, 0x1500, 0x1580, "an_alias");
	tell(&p, 0x1580, 0x1590, "poll_idle");
	assert_int_equal(p.n_idle, 3);
	assert_int_equal(p.idle[0].start, 0x1100);
	assert_int_equal(p.idle[0].size, 0x10);
	assert_int_equal(p.idle[1].start, 0x1200);
	assert_int_equal(p.idle[1].size, 0x100);
	assert_int_equal(p.idle[2].start, 0x1500);
	assert_int_equal(p.idle[2].size, 0x90);
}

static void test_idle_places_many(void **state)
{
	struct kernel_places p = {};

	for (uint64_t i = 1; i <= MAX_IDLE_RANGES + 1; i++)
		tell(&p, i << 8, (i << 8) + 16, "default_idle");
	assert_int_equal(p.n_idle, MAX_IDLE_RANGES);
	assert_int_equal(p.idle[MAX_IDLE_RANGES - 1].start, MAX_IDLE_RANGES << 8);
	/* A section with no end, and an end with no section, are none. */
	p = (struct kernel_places){};
	tell(&p, 0x1000, 0x1100, "__cpuidle_text_end");
	tell(&p, 0x1200, 0x1280, "__cpuidle_text_start");
	assert_int_equal(p.n_idle, 0);
}

static void test_finish_task_switch(void **state)
{
	struct kernel_places p = {};

	tell(&p, 0x1000, 0x1010, "finish_task_switch_other");
	tell(&p, 0x1010, 0x1020, "finish_task_switch.isra.0.cold");
	assert_string_equal(p.finish_task_switch, "");
	tell(&p, 0x1020, 0x1030, "finish_task_switch.isra.0");
	tell(&p, 0x1030, 0x1040, "finish_task_switch.constprop.1");
	assert_string_equal(p.finish_task_switch, "finish_task_switch.isra.0");
}

/* ---- types of the kernel ------------------------------------------------------------------------------ */

static int open_types(const void *data, size_t size, struct kernel_types *ret)
{
	char path[] = "/tmp/test-collect-XXXXXX";
	int fd = mkstemp(path), r;

	assert_true(fd >= 0);
	assert_int_equal(write(fd, data, size), size);
	close(fd);
	r = types_open(path, ret);
	unlink(path);
	return r;
}

/* One of each kind that has a tail, so that a wrong length would lead astray. */
static struct btf *make_types(void)
{
	struct btf *b = btf__new_empty();
	int n = btf__add_int(b, "int", 4, BTF_INT_SIGNED), proto;

	btf__add_array(b, n, n, 3);
	btf__add_enum(b, "some_enum", 4);
	btf__add_enum_value(b, "ONE", 1);
	btf__add_enum64(b, "long_enum", 8, false);
	btf__add_enum64_value(b, "TWO", 2);
	btf__add_struct(b, "some_struct", 8);
	btf__add_field(b, "first", n, 0, 0);
	btf__add_field(b, "second", n, 32, 0);
	proto = btf__add_func_proto(b, 0);
	btf__add_func_param(b, "__data", n);
	btf__add_func_param(b, "preempt", n);
	btf__add_func(b, "some_func", BTF_FUNC_STATIC, proto);
	btf__add_decl_tag(b, "tag", 5, -1);
	btf__add_var(b, "some_var", BTF_VAR_STATIC, n);
	btf__add_datasec(b, ".data", 4);
	btf__add_datasec_var_info(b, 9, 0, 4);
	btf__add_typedef(b, "some_struct", btf__add_ptr(b, proto));
	return b;
}

static void test_types(void **state)
{
	_cleanup_(types_done) struct kernel_types t = {};
	struct btf *b = make_types();
	uint32_t size, id = 0;
	const void *data = btf__raw_data(b, &size);
	const struct btf_type *type;

	assert_int_equal(open_types(data, size, &t), 0);
	type = types_find(&t, "some_struct", BTF_KIND_STRUCT, &id);
	assert_non_null(type);
	assert_int_equal(btf_vlen(type), 2);
	assert_string_equal(types_string(&t, btf_members(type)[1].name_off), "second");
	assert_int_equal(id, btf__find_by_name_kind(b, "some_struct", BTF_KIND_STRUCT));
	type = types_find(&t, "some_struct", BTF_KIND_TYPEDEF, &id);
	assert_non_null(type);
	assert_int_equal(id, btf__find_by_name_kind(b, "some_struct", BTF_KIND_TYPEDEF));
	type = types_get(&t, types_get(&t, type->type)->type);
	assert_true(btf_is_func_proto(type));
	assert_int_equal(btf_vlen(type), 2);
	assert_null(types_find(&t, "some_struct", BTF_KIND_UNION, &id));
	assert_null(types_get(&t, btf__type_cnt(b)));
	assert_null(types_get(&t, 0));
	assert_string_equal(types_string(&t, UINT32_MAX), "");
	btf__free(b);
}

static void test_types_damaged(void **state)
{
	struct btf *b = make_types();
	struct kernel_types t = {};
	uint32_t size, id;
	const char *data = btf__raw_data(b, &size);
	_cleanup_free_ char *copy = malloc(size);

	assert_int_equal(types_open("/nonexistent", &t), -ENOENT);
	for (uint32_t n = 0; n < size; n++)
		assert_int_equal(open_types(data, n, &t), -EBADMSG);
	for (uint32_t i = 0; i < size; i++) {
		memcpy(copy, data, size);
		copy[i] ^= 0xff;
		if (open_types(copy, size, &t) < 0)
			continue;
		types_find(&t, "nothing", BTF_KIND_STRUCT, &id);
		types_get(&t, UINT32_MAX);
		types_done(&t);
	}
	btf__free(b);
}

/* ---- time without ticks ------------------------------------------------------------------------------ */

static void test_idle_times(void **state)
{
	char path[] = "/tmp/test-collect-XXXXXX";
	uint64_t ns[4], tick = NSEC_PER_SEC / sysconf(_SC_CLK_TCK);

	write_temp(path, "cpu  1 2 3 4 5 6 7 8 9 10\n"
			 "cpu0 10 0 20 300 5 0 0 0 0 0\n"
			 "cpu2 1 1 1 7 0 1 1\n"
			 "cpu99 1 1 1 7 0 1 1\n"
			 "cpu3 1 1\n"
			 "intr 5 6 7\n");
	assert_int_equal(idle_times_read(path, ns, ARRAY_SIZE(ns)), 0);
	unlink(path);
	assert_int_equal(ns[0], 305 * tick);
	assert_int_equal(ns[1], 0);
	assert_int_equal(ns[2], 7 * tick);
	assert_int_equal(ns[3], 0);
}

static void test_gaps(void **state)
{
	struct account a = { .seen = 40, .stored = 20, .idle = 5, .idle_ns = 500, .lost_ns = 1500 };
	struct account all = { .seen = 10, .lost_ns = 1000 };
	struct account full = { .seen = 3, .lost_ns = 300 };

	a.lost[LOSS_TICK_SKIPPED] = 15;
	account_explain_gaps(&a, 1500); /* 500 of which the idle ticks have shown */
	assert_int_equal(a.idle, 15);
	assert_int_equal(a.idle_ns, 1500);
	assert_int_equal(a.lost[LOSS_TICK_SKIPPED], 5);
	assert_int_equal(a.lost_ns, 500);
	assert_int_equal(a.seen, a.stored + a.idle + a.lost[LOSS_TICK_SKIPPED]);

	all.lost[LOSS_TICK_SKIPPED] = 10;
	account_explain_gaps(&all, UINT64_MAX);
	assert_int_equal(all.idle, 10);
	assert_int_equal(all.lost[LOSS_TICK_SKIPPED], 0);
	assert_int_equal(all.lost_ns, 0);

	/* Time that was lost for another reason stays lost. */
	full.lost[LOSS_COUNT_FULL] = 3;
	account_explain_gaps(&full, 1000);
	assert_int_equal(full.lost_ns, 300);
	assert_int_equal(full.idle, 0);
}

/* ---- records ------------------------------------------------------------------------------------------ */

struct test_record {
	struct stack_record head;
	uint64_t ips[8];
};

static struct test_record record(uint64_t id, uint32_t window, uint64_t leaf)
{
	return (struct test_record){
		.head = { .type = RECORD_STACK,
			  .window = window,
			  .id = id,
			  .tgid = 7,
			  .start = 70,
			  .nr_kernel = 1,
			  .nr_user = 2,
			  .walk_end = WALK_COMPLETE },
		.ips = { leaf, 0x400100, 0x400200 },
	};
}

static void send(struct collector *c, const struct test_record *r, size_t ips)
{
	ring_record(c, r, sizeof(r->head) + ips * sizeof(uint64_t));
}

static void collector_done(struct collector *c)
{
	stack_set_done(&c->open);
	stack_set_done(&c->next);
	stack_set_done(&c->closed);
}

static void test_stacks(void **state)
{
	_cleanup_(collector_done) struct collector c = { .window = 5 };
	_cleanup_(slice_free_p) struct slice *s = new0(struct slice, 1), *t = new0(struct slice, 1);
	struct test_record a = record(11, 5, 0x1000), b = record(12, 5, 0x2000),
			   next = record(11, 6, 0x3000), late = record(13, 4, 0x4000);

	send(&c, &a, 3);
	send(&c, &b, 3);
	send(&c, &a, 3); /* the same once more is no other stack */
	send(&c, &next, 3); /* same id in the next window */
	send(&c, &late, 3);
	ring_take(&c, s);
	assert_int_equal(c.window, 6);
	assert_int_equal(s->n_stacks, 3);
	assert_int_equal(s->n_ips, 9);
	assert_int_equal(s->ips[s->stacks[1].first_ip], 0x2000);
	assert_int_equal(slice_stack_id(&c, s, SOURCE_ON_CPU, 11, 1), 11);
	assert_int_equal(slice_stack_id(&c, s, SOURCE_ON_CPU, 13, 1), 13);
	assert_int_equal(slice_stack_id(&c, s, SOURCE_ON_CPU, STACK_ID_NONE, 1), STACK_ID_NONE);
	assert_int_equal(slice_stack_id(&c, s, SOURCE_FUTEX, 99, 4), STACK_ID_NONE);
	assert_int_equal(s->source[SOURCE_FUTEX].sum.lost[LOSS_STACK_MISSING], 4);
	ring_take(&c, t);
	assert_int_equal(t->n_stacks, 1);
	assert_int_equal(t->ips[0], 0x3000);
	assert_int_equal(slice_stack_id(&c, t, SOURCE_ON_CPU, 12, 1), STACK_ID_NONE);
}

static void test_collisions(void **state)
{
	_cleanup_(collector_done) struct collector c = {};
	_cleanup_(slice_free_p) struct slice *s = new0(struct slice, 1);
	struct test_record a = record(1, 0, 0x1000), other_leaf = record(1, 0, 0x1001),
			   b = record(2, 0, 0x1000), other_process = record(2, 0, 0x1000),
			   d = record(3, 0, 0x1000), other_split = record(3, 0, 0x1000),
			   ok = record(4, 0, 0x1000);

	other_process.head.start = 71;
	other_split.head.nr_kernel = 2;
	other_split.head.nr_user = 1;
	send(&c, &a, 3);
	send(&c, &other_leaf, 3);
	send(&c, &b, 3);
	send(&c, &other_process, 3);
	send(&c, &d, 3);
	send(&c, &other_split, 3);
	send(&c, &ok, 3);
	ring_take(&c, s);
	for (uint64_t id = 1; id <= 3; id++)
		assert_int_equal(slice_stack_id(&c, s, SOURCE_OFF_CPU, id, 10), STACK_ID_NONE);
	assert_int_equal(slice_stack_id(&c, s, SOURCE_OFF_CPU, 4, 10), 4);
	assert_int_equal(s->source[SOURCE_OFF_CPU].sum.lost[LOSS_STACK_COLLISION], 30);
}

static void test_malformed_records(void **state)
{
	_cleanup_(collector_done) struct collector c = {};
	struct test_record r = record(1, 0, 0x1000);

	ring_record(&c, &r, 0);
	ring_record(&c, &r, 3);
	ring_record(&c, &r, sizeof(r.head) - 1);
	send(&c, &r, 2); /* shorter than its counts say */
	r.head.nr_user = MAX_USER_FRAMES + 1;
	send(&c, &r, 8);
	r = record(1, 0, 0x1000);
	r.head.nr_kernel = 0xffff;
	send(&c, &r, 8);
	r = record(1, 0, 0x1000);
	r.head.walk_end = WALK_END_N;
	send(&c, &r, 3);
	r = record(1, 0, 0x1000);
	r.head.source = SOURCE_N;
	send(&c, &r, 3);
	r = record(STACK_ID_NONE, 0, 0x1000);
	send(&c, &r, 3);
	r = record(1, 0, 0x1000);
	r.head.type = 77;
	send(&c, &r, 3);
	assert_int_equal(c.open.n_stacks, 0);
	r = record(1, 0, 0x1000);
	send(&c, &r, 3);
	assert_int_equal(c.open.n_stacks, 1);
}

/* The limit on addresses holds, and what exceeds it is counted when its counts are drained. */
static void test_stack_limit(void **state)
{
	_cleanup_(collector_done) struct collector c = {};
	_cleanup_(slice_free_p) struct slice *s = new0(struct slice, 1);
	size_t size = sizeof(struct stack_record) + MAX_USER_FRAMES * sizeof(uint64_t);
	_cleanup_free_ struct stack_record *r = calloc(1, size);
	uint64_t n = 5000;

	r->type = RECORD_STACK;
	r->nr_user = MAX_USER_FRAMES;
	for (r->id = 1; r->id <= n; r->id++)
		ring_record(&c, r, size);
	ring_take(&c, s);
	assert_true(s->n_stacks < n && s->n_ips <= 1U << 21);
	assert_int_equal(slice_stack_id(&c, s, SOURCE_ON_CPU, n, 1), STACK_ID_NONE);
	assert_int_equal(s->source[SOURCE_ON_CPU].sum.lost[LOSS_STACK_MISSING], 1);
}

static void test_balance(void **state)
{
	struct slice s = {};
	struct account *a = &s.source[SOURCE_SYSCALLS].sum;

	a->seen = a->stored = 100;
	slice_balance(&s, SOURCE_SYSCALLS, 90);
	assert_int_equal(a->stored, 90);
	assert_int_equal(a->lost[LOSS_OTHER], 10);
	assert_int_equal(a->seen, 100);
	slice_balance(&s, SOURCE_SYSCALLS, 95);
	assert_int_equal(a->stored, 95);
	assert_int_equal(a->seen, 105);
}

static void test_pressure(void **state)
{
	uint64_t some = 1, full = 1;

	assert_true(pressure_parse("some avg10=80.22 avg60=85.96 avg300=71.56 total=28074822813\n"
				   "full avg10=0.00 avg60=0.00 avg300=0.00 total=7\n",
				   &some, &full));
	assert_int_equal(some, 28074822813);
	assert_int_equal(full, 7);
	/* The CPU's file before 5.13. */
	assert_true(
		pressure_parse("some avg10=0.00 avg60=0.00 avg300=0.00 total=5\n", &some, &full));
	assert_int_equal(some, 5);
	assert_int_equal(full, 0);
	assert_false(pressure_parse("", &some, &full));
	assert_false(pressure_parse("some avg10=0.00 total=x", &some, &full));
}

static void test_load(void **state)
{
	const struct load before = { .busy_us = 10,
				     .pressure_known = true,
				     .pressure_us = { 1, 2 } };
	struct load now = { .busy_us = 15, .pressure_known = true, .pressure_us = { 4, 1 } };
	struct bucket_meta m = {};

	load_difference(&before, &now, &m);
	assert_int_equal(m.busy_us, 5);
	assert_true(m.pressure_known);
	assert_int_equal(m.pressure_us[PRESSURE_CPU_SOME], 3);
	/* Totals that went back tell nothing. */
	assert_int_equal(m.pressure_us[PRESSURE_IO_SOME], 0);
	now.pressure_known = false;
	load_difference(&before, &now, &m);
	assert_false(m.pressure_known);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cpu_lists),
		cmocka_unit_test(test_idle_places),
		cmocka_unit_test(test_idle_places_many),
		cmocka_unit_test(test_finish_task_switch),
		cmocka_unit_test(test_types),
		cmocka_unit_test(test_types_damaged),
		cmocka_unit_test(test_idle_times),
		cmocka_unit_test(test_gaps),
		cmocka_unit_test(test_stacks),
		cmocka_unit_test(test_collisions),
		cmocka_unit_test(test_malformed_records),
		cmocka_unit_test(test_stack_limit),
		cmocka_unit_test(test_balance),
		cmocka_unit_test(test_pressure),
		cmocka_unit_test(test_load),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
