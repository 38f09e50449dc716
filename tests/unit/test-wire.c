// SPDX-License-Identifier: GPL-2.0-or-later
/* Profiles as messages and back; and messages that lie. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>

#include "../bpf/sysprofd.h"
#include "export/wire.h"

static uint32_t id(int64_t v)
{
	assert_true(v >= 0);
	return (uint32_t)v;
}

static void add_row(struct profile *p, uint32_t series, uint32_t stack, uint32_t key, uint32_t aux)
{
	size_t n = p->columns.n + 1;

	assert_int_equal(columns_add(&p->columns, series, stack, key, aux, n * 3,
				     p->type == PROFILE_SYSCALLS ? 0 : n * 1000,
				     p->type == PROFILE_FUTEX ? n * 500 : 0),
			 0);
	p->samples += n * 3;
	p->total += n * 1000;
}

static struct profile *make_profile(enum profile_type type)
{
	struct binary elf = { .kind = BINARY_ELF };
	struct frame f = {
		.kind = FRAME_NATIVE, .flags = FRAME_NAMED, .offset = 0x1000, .line = 7
	};
	struct series s = { .pid = 12, .tid = 13, .uid = 14, .start = 15 };
	struct lock lock = { .flags = 1, .address = 0x7f00, .offset = 0x40 };
	struct profile *p;
	struct dict *d;
	uint32_t root, leaf, bare, series, l, marker;

	assert_int_equal(profile_new(type, &p), 0);
	d = p->dict;
	elf.name = id(dict_string(d, "libx.so"));
	elf.path = id(dict_string(d, "/usr/lib/libx.so"));
	/* Two files of one name and without a build-id must not become one. */
	elf.ino = 1;
	f.binary = id(dict_binary(d, &elf));
	f.name = id(dict_string(d, "int foo<char>(char)"));
	f.system_name = id(dict_string(d, "_Z3fooIcEiT_"));
	f.file = id(dict_string(d, "foo.cc"));
	root = id(dict_stack(d, 0, id(dict_frame(d, &f))));
	elf.ino = 2;
	f = (struct frame){ .kind = FRAME_NATIVE, .flags = FRAME_NAMED, .offset = 0x1000 };
	f.binary = id(dict_binary(d, &elf));
	leaf = id(dict_stack(d, root, id(dict_frame(d, &f))));
	marker = id(dict_marker(d, "[truncated]"));
	bare = id(dict_stack(d, 0, marker));
	s.label[LABEL_COMM] = id(dict_string(d, "w\xc3\xb6rker"));
	s.label[LABEL_NAMESPACE] = id(dict_string(d, "kube-system"));
	s.flags = SERIES_KERNEL_THREAD;
	series = id(dict_series(d, &s));
	lock.name = id(dict_string(d, "big_lock"));
	lock.binary = f.binary;
	l = id(dict_lock(d, &lock));
	switch (type) {
	case PROFILE_ON_CPU:
		add_row(p, series, root, 0, 0);
		add_row(p, series, leaf, 0, 0);
		add_row(p, series, bare, 0, 0);
		break;
	case PROFILE_OFF_CPU:
		add_row(p, series, 0, OFF_KEY(OFF_BLOCKED, 0, 1), 0);
		add_row(p, series, leaf, OFF_KEY(OFF_BLOCKED, 1, 0), 0);
		add_row(p, series, leaf, OFF_KEY(OFF_BLOCKED, 0x402, 0), 0);
		add_row(p, series, leaf, OFF_KEY(OFF_PREEMPTED, 0, 0), 0);
		break;
	case PROFILE_SYSCALLS:
		add_row(p, series, 0, SYSCALL_KEY(SYSCALL_ABI_NATIVE, 0, 0), 0);
		add_row(p, series, 0, SYSCALL_KEY(SYSCALL_ABI_NATIVE, 0, 11), 0);
		add_row(p, series, 0, SYSCALL_KEY(SYSCALL_ABI_NATIVE, 0, 4000), 0);
		add_row(p, series, 0, SYSCALL_KEY(SYSCALL_ABI_COMPAT, 20, 0), 0);
		add_row(p, series, 0, SYSCALL_KEY(SYSCALL_ABI_X32, 514, 22), 0);
		add_row(p, series, 0, SYSCALL_KEY(SYSCALL_ABI_NATIVE, 9999, 38), 0);
		add_row(p, series, 0, SYSCALL_KEY(SYSCALL_ABI_NATIVE, SYSCALL_NR_INVALID, 38), 0);
		break;
	default:
		add_row(p, series, leaf, FUTEX_KEY(FUTEX_CLASS_WAIT, FUTEX_WOKEN), l);
		add_row(p, series, leaf, FUTEX_KEY(FUTEX_CLASS_LOCK_PI, FUTEX_TIMED_OUT), l);
	}
	p->from_wall_ns = 10;
	p->until_wall_ns = 20;
	p->covered_ns = 9;
	p->rate_mhz = 19000;
	p->truncated = true;
	p->omitted = 4;
	p->coarse = true;
	p->accounting.lost[LOSS_TICK_SKIPPED] = 5;
	p->accounting.lost[LOSS_SHED] = 6;
	assert_int_equal(ARRAY_GROW(p->gaps, p->cap_gaps, 1), 0);
	p->gaps[p->n_gaps++] = (struct gap){ 12, 13, GAP_STOPPED };
	return p;
}

static void same_text(const struct dict *a, uint32_t x, const struct dict *b, uint32_t y)
{
	assert_string_equal(dict_str(a, x), dict_str(b, y));
}

static void same_stack(const struct dict *a, uint32_t x, const struct dict *b, uint32_t y)
{
	while (x || y) {
		const struct frame *f = &a->frames[a->stacks[x].frame];
		const struct frame *g = &b->frames[b->stacks[y].frame];

		assert_true(x && y);
		same_text(a, f->name, b, g->name);
		same_text(a, f->system_name, b, g->system_name);
		same_text(a, f->file, b, g->file);
		same_text(a, a->binaries[f->binary].path, b, b->binaries[g->binary].path);
		assert_int_equal(f->kind, g->kind);
		assert_int_equal(f->offset, g->offset);
		assert_int_equal(f->line, g->line);
		x = a->stacks[x].parent;
		y = b->stacks[y].parent;
	}
}

static void same_series(const struct dict *a, uint32_t x, const struct dict *b, uint32_t y)
{
	const struct series *s = &a->series[x], *t = &b->series[y];

	for (int i = 0; i < LABEL_N; i++)
		same_text(a, s->label[i], b, t->label[i]);
	assert_int_equal(s->pid, t->pid);
	assert_int_equal(s->tid, t->tid);
	assert_int_equal(s->uid, t->uid);
	assert_int_equal(s->start, t->start);
	assert_int_equal(s->flags, t->flags);
}

static void same_lock(const struct dict *a, uint32_t x, const struct dict *b, uint32_t y)
{
	const struct lock *l = &a->locks[x], *m = &b->locks[y];

	same_text(a, l->name, b, m->name);
	assert_int_equal(l->address, m->address);
	assert_int_equal(l->offset, m->offset);
	assert_int_equal(l->pid, m->pid);
	assert_int_equal(l->flags & 1, m->flags & 1);
}

static void same_profile(const struct profile *p, const struct profile *q)
{
	assert_int_equal(p->type, q->type);
	assert_int_equal(p->from_wall_ns, q->from_wall_ns);
	assert_int_equal(p->until_wall_ns, q->until_wall_ns);
	assert_int_equal(p->covered_ns, q->covered_ns);
	assert_int_equal(p->rate_mhz, q->rate_mhz);
	assert_int_equal(p->total, q->total);
	assert_int_equal(p->samples, q->samples);
	assert_int_equal(p->truncated, q->truncated);
	assert_int_equal(p->omitted, q->omitted);
	assert_int_equal(p->coarse, q->coarse);
	assert_memory_equal(p->accounting.lost, q->accounting.lost, sizeof(p->accounting.lost));
	assert_int_equal(p->n_gaps, q->n_gaps);
	assert_int_equal(p->gaps[0].reason, q->gaps[0].reason);
	assert_int_equal(p->columns.n, q->columns.n);
	for (size_t i = 0; i < p->columns.n; i++) {
		const struct columns *c = &p->columns, *e = &q->columns;

		assert_int_equal(c->key[i], e->key[i]);
		assert_int_equal(c->count[i], e->count[i]);
		assert_int_equal(c->value[i], e->value[i]);
		assert_int_equal(c->max[i], e->max[i]);
		same_stack(p->dict, c->stack[i], q->dict, e->stack[i]);
		same_series(p->dict, c->series[i], q->dict, e->series[i]);
		same_lock(p->dict, c->aux[i], q->dict, e->aux[i]);
	}
}

/* As bytes, so that what is compared has really travelled. */
static Sysprofd__V1__Profile *travel(const struct profile *p)
{
	Sysprofd__V1__Profile *packed, *m;
	uint8_t *bytes;
	size_t len;

	assert_int_equal(wire_profile_pack(p, &packed), 0);
	len = sysprofd__v1__profile__get_packed_size(packed);
	bytes = malloc(len);
	sysprofd__v1__profile__pack(packed, bytes);
	wire_profile_free(packed);
	m = sysprofd__v1__profile__unpack(NULL, len, bytes);
	assert_non_null(m);
	free(bytes);
	return m;
}

static void test_round_trip(void **state)
{
	for (int type = 0; type < PROFILE_TYPE_N; type++) {
		struct profile *p = make_profile((enum profile_type)type), *q;
		Sysprofd__V1__Profile *m = travel(p);

		assert_int_equal(wire_profile_unpack(m, &q), 0);
		same_profile(p, q);
		assert_int_equal(p->dict->n_binaries, q->dict->n_binaries);
		sysprofd__v1__profile__free_unpacked(m, NULL);
		profile_free(p);
		profile_free(q);
	}
}

/* The unit tells what a recording was driven by. */
static void test_event(void **state)
{
	_cleanup_(profile_free_p) struct profile *p = make_profile(PROFILE_ON_CPU), *q = NULL;
	Sysprofd__V1__Profile *m;

	p->event = EVENT_BRANCH_MISSES;
	m = travel(p);
	assert_string_equal(m->coverage->unit, "branch-misses");
	assert_int_equal(wire_profile_unpack(m, &q), 0);
	assert_int_equal(q->event, EVENT_BRANCH_MISSES);
	sysprofd__v1__profile__free_unpacked(m, NULL);
}

/* Instructions go beside the samples, whose sum is what it was. */
static void test_instructions(void **state)
{
	_cleanup_(profile_free_p) struct profile *p = make_profile(PROFILE_ON_CPU), *q = NULL,
						 *clock = NULL;
	Sysprofd__V1__Profile *m;
	size_t n = p->columns.n;

	p->event = EVENT_CYCLES;
	p->instructions = (struct instructions){ .sampled = true, .lost = 7 };
	for (size_t i = 0; i < 2; i++)
		assert_int_equal(columns_add(&p->columns, p->columns.series[i], p->columns.stack[i],
					     ON_ASPECT(ON_INSTRUCTIONS), 0, 5, 500, 0),
				 0);
	m = travel(p);
	assert_int_equal(m->n_samples, n);
	assert_int_equal(m->n_instructions, 2);
	assert_int_equal(wire_profile_unpack(m, &q), 0);
	assert_true(q->instructions.sampled);
	assert_int_equal(q->instructions.lost, 7);
	assert_int_equal(q->instructions.samples, 10);
	assert_int_equal(q->instructions.total, 1000);
	assert_int_equal(q->columns.n, n + 2);
	assert_true(row_is_instructions(q, n) && !row_is_instructions(q, n - 1));
	assert_int_equal(q->total, p->total);
	/* A stack that is not there. */
	m->instructions[1]->stack = 4711;
	assert_int_equal(wire_profile_unpack(m, &clock), -EBADMSG);
	/* Beside time there are none. */
	free(m->coverage->unit);
	m->coverage->unit = strdup("nanoseconds");
	assert_int_equal(wire_profile_unpack(m, &clock), 0);
	assert_false(clock->instructions.sampled);
	assert_int_equal(clock->columns.n, n);
	sysprofd__v1__profile__free_unpacked(m, NULL);
}

static void test_no_instructions(void **state)
{
	_cleanup_(profile_free_p) struct profile *p = make_profile(PROFILE_ON_CPU), *q = NULL;
	Sysprofd__V1__Profile *m;

	p->event = EVENT_CACHE_MISSES;
	/* As long as it may be. */
	memset(p->instructions.why_not, 'y', sizeof(p->instructions.why_not) - 1);
	m = travel(p);
	assert_int_equal(wire_profile_unpack(m, &q), 0);
	assert_false(q->instructions.sampled);
	assert_string_equal(q->instructions.why_not, p->instructions.why_not);
	sysprofd__v1__profile__free_unpacked(m, NULL);
}

static void test_words(void **state)
{
	struct profile *p = make_profile(PROFILE_SYSCALLS);
	Sysprofd__V1__Profile *m;

	assert_int_equal(wire_profile_pack(p, &m), 0);
	assert_string_equal(m->strings[0], "");
	assert_string_equal(m->strings[m->samples[0]->syscall], "read");
	assert_int_equal(m->samples[0]->errno_name, 0);
	assert_string_equal(m->strings[m->samples[1]->errno_name], "EAGAIN");
	assert_string_equal(m->strings[m->samples[3]->syscall], "compat:getpid");
	assert_int_equal(m->samples[3]->syscall_number, 20);
	/* One word, one string. */
	assert_int_equal(m->samples[0]->syscall, m->samples[1]->syscall);
	assert_int_equal(m->samples[0]->value, m->samples[0]->count);
	wire_profile_free(m);
	profile_free(p);
}

static void test_empty(void **state)
{
	Sysprofd__V1__Profile *m;
	struct profile *p, *q;

	assert_int_equal(profile_new(PROFILE_FUTEX, &p), 0);
	m = travel(p);
	assert_int_equal(wire_profile_unpack(m, &q), 0);
	assert_int_equal(q->columns.n, 0);
	assert_int_equal(q->type, PROFILE_FUTEX);
	sysprofd__v1__profile__free_unpacked(m, NULL);
	profile_free(p);
	profile_free(q);
}

/* Each index of the message in turn is sent beyond its table. */
static void test_lying_indices(void **state)
{
	struct profile *p = make_profile(PROFILE_FUTEX), *q = NULL;
	Sysprofd__V1__Profile *m = travel(p);
	const struct {
		uint32_t *index;
		uint32_t beyond;
	} lies[] = {
		{ &m->binaries[1]->name, (uint32_t)m->n_strings },
		{ &m->binaries[1]->path, UINT32_MAX },
		{ &m->binaries[1]->build_id, (uint32_t)m->n_strings },
		{ &m->frames[1]->binary, (uint32_t)m->n_binaries },
		{ &m->frames[1]->name, (uint32_t)m->n_strings },
		{ &m->frames[1]->system_name, UINT32_MAX },
		{ &m->frames[1]->file, (uint32_t)m->n_strings },
		{ &m->stacks[1]->frame, (uint32_t)m->n_frames },
		{ &m->stacks[1]->frame, 0 },
		{ &m->stacks[1]->parent, 1 }, /* itself */
		{ &m->stacks[1]->parent, 2 }, /* a cycle */
		{ &m->series[1]->comm, (uint32_t)m->n_strings },
		{ &m->series[1]->build_id, UINT32_MAX },
		{ &m->locks[1]->name, (uint32_t)m->n_strings },
		{ &m->locks[1]->binary, (uint32_t)m->n_binaries },
		{ &m->samples[0]->series, (uint32_t)m->n_series },
		{ &m->samples[0]->stack, (uint32_t)m->n_stacks },
		{ &m->samples[0]->lock, (uint32_t)m->n_locks },
		{ &m->samples[0]->cause, (uint32_t)m->n_strings },
		{ &m->samples[0]->state, (uint32_t)m->n_strings },
		{ &m->samples[0]->syscall, UINT32_MAX },
		{ &m->samples[0]->errno_name, (uint32_t)m->n_strings },
		{ &m->samples[0]->futex_class, (uint32_t)m->n_strings },
		{ &m->samples[0]->outcome, UINT32_MAX },
	};

	for (size_t i = 0; i < ARRAY_SIZE(lies); i++) {
		uint32_t truth = *lies[i].index;

		*lies[i].index = lies[i].beyond;
		assert_int_equal(wire_profile_unpack(m, &q), -EBADMSG);
		assert_null(q);
		*lies[i].index = truth;
	}
	assert_int_equal(wire_profile_unpack(m, &q), 0);
	profile_free(TAKE_PTR(q));

	m->coverage->type = (Sysprofd__V1__ProfileType)9;
	assert_int_equal(wire_profile_unpack(m, &q), -EBADMSG);
	sysprofd__v1__coverage__free_unpacked(m->coverage, NULL);
	m->coverage = NULL;
	assert_int_equal(wire_profile_unpack(m, &q), -EBADMSG);
	sysprofd__v1__profile__free_unpacked(m, NULL);
	profile_free(p);
}

/* A daemon that is not ours may send what would move a terminal's cursor. */
static void test_names_become_printable(void **state)
{
	struct profile *p = make_profile(PROFILE_ON_CPU), *q;
	Sysprofd__V1__Profile *m = travel(p);
	uint32_t name = m->frames[1]->name;

	free(m->strings[name]);
	m->strings[name] = strdup("a\x1b[2J\nb\xff");
	assert_int_equal(wire_profile_unpack(m, &q), 0);
	assert_string_equal(dict_str(q->dict, q->dict->frames[1].name), "a?[2J?b\xef\xbf\xbd");
	sysprofd__v1__profile__free_unpacked(m, NULL);
	profile_free(p);
	profile_free(q);
}

/* As for peers without privilege: kernel frames by name alone. */
static void test_hidden_kernel_addresses(void **state)
{
	struct frame f = { .kind = FRAME_KERNEL, .flags = FRAME_NAMED };
	struct binary kernel = { .kind = BINARY_KERNEL };
	struct profile *p, *q;
	Sysprofd__V1__Profile *m;
	uint32_t stack[2];

	assert_int_equal(profile_new(PROFILE_ON_CPU, &p), 0);
	kernel.name = id(dict_string(p->dict, "[kernel]"));
	f.binary = id(dict_binary(p->dict, &kernel));
	for (int i = 0; i < 2; i++) {
		f.name = id(dict_string(p->dict, i ? "schedule" : "do_syscall_64"));
		f.offset = 0x1000 * (uint64_t)(i + 1);
		stack[i] = id(dict_stack(p->dict, i ? stack[0] : 0, id(dict_frame(p->dict, &f))));
		add_row(p, 0, stack[i], 0, 0);
	}
	for (size_t i = 1; i < p->dict->n_frames; i++)
		p->dict->frames[i].offset = 0;
	m = travel(p);
	assert_int_equal(wire_profile_unpack(m, &q), 0);
	for (int i = 0; i < 2; i++) {
		const struct stack *t = &q->dict->stacks[q->columns.stack[i]];

		assert_string_equal(dict_str(q->dict, q->dict->frames[t->frame].name),
				    i ? "schedule" : "do_syscall_64");
	}
	sysprofd__v1__profile__free_unpacked(m, NULL);
	profile_free(p);
	profile_free(q);
}

/* What a later version says, an older client shows as far as it can. */
static void test_unknown_words(void **state)
{
	struct profile *p = make_profile(PROFILE_SYSCALLS), *q;
	Sysprofd__V1__Profile *m = travel(p);
	char buf[64];

	free(m->strings[m->samples[0]->syscall]);
	m->strings[m->samples[0]->syscall] = strdup("brand_new_call");
	m->samples[0]->syscall_number = 900;
	free(m->coverage->gaps[0]->reason);
	m->coverage->gaps[0]->reason = strdup("aliens");
	free(m->coverage->losses[0]->reason);
	m->coverage->losses[0]->reason = strdup("gremlins");
	assert_int_equal(wire_profile_unpack(m, &q), 0);
	assert_string_equal(syscall_text(q->columns.key[0], buf, sizeof(buf)), "syscall_900");
	assert_int_equal(q->accounting.lost[LOSS_OTHER], 5);
	sysprofd__v1__profile__free_unpacked(m, NULL);
	profile_free(p);
	profile_free(q);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trip),
		cmocka_unit_test(test_event),
		cmocka_unit_test(test_instructions),
		cmocka_unit_test(test_no_instructions),
		cmocka_unit_test(test_words),
		cmocka_unit_test(test_empty),
		cmocka_unit_test(test_lying_indices),
		cmocka_unit_test(test_names_become_printable),
		cmocka_unit_test(test_hidden_kernel_addresses),
		cmocka_unit_test(test_unknown_words),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
