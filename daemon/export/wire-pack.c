// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Ids of the dictionary are indices of the message's tables as they are. The words for causes, system calls
 * and so on are not in the dictionary: they follow its strings, made here and owned by the message.
 */
#include <stdio.h>
#include <xxhash.h>

#include "../bpf/sysprofd.h"
#include "export/wire.h"

_Static_assert((int)SYSPROFD__V1__PROFILE_TYPE__PROFILE_TYPE_FUTEX == PROFILE_FUTEX + 1, "types");
_Static_assert((int)SYSPROFD__V1__BINARY_KIND__BINARY_KIND_UNKNOWN == BINARY_UNKNOWN, "binaries");
_Static_assert((int)SYSPROFD__V1__FRAME_KIND__FRAME_KIND_MARKER == FRAME_MARKER, "frames");

#define WORD_MAX 64

struct packed {
	Sysprofd__V1__Profile m; /* first: callers hold a pointer to it */
	size_t n_borrowed; /* strings of the dictionary */
	size_t cap_strings;
	struct index words; /* of the strings behind them: id = place among them + 1 */
};

/* n messages in one block, and the array of pointers to them that protobuf-c wants. */
static int table_new(const ProtobufCMessageDescriptor *d, size_t n, void *ret)
{
	void **pointers;
	char *block;

	if (n == 0)
		return 0;
	pointers = calloc(n, sizeof(*pointers));
	block = calloc(n, d->sizeof_message);
	if (!pointers || !block) {
		free(pointers);
		free(block);
		return -ENOMEM;
	}
	for (size_t i = 0; i < n; i++) {
		pointers[i] = block + i * d->sizeof_message;
		protobuf_c_message_init(d, pointers[i]);
	}
	*(void ***)ret = pointers;
	return 0;
}

static void table_free(void *table)
{
	if (!table)
		return;
	free(*(void **)table);
	free(table);
}

void wire_coverage_free(Sysprofd__V1__Coverage *m)
{
	if (!m)
		return;
	table_free(m->gaps);
	table_free(m->losses);
	free(m);
}
DEFINE_CLEANUP(Sysprofd__V1__Coverage *, wire_coverage_free)

static int pack_losses(const struct accounting *a, Sysprofd__V1__Coverage *m)
{
	size_t n = 0;
	int r;

	for (unsigned i = 0; i < LOSS_REASONS; i++)
		n += a->lost[i] > 0;
	r = table_new(&sysprofd__v1__loss__descriptor, n, &m->losses);
	if (r < 0)
		return r;
	for (unsigned i = 0; i < LOSS_REASONS; i++) {
		if (a->lost[i] == 0)
			continue;
		m->losses[m->n_losses]->reason = (char *)loss_reason_name(i);
		m->losses[m->n_losses]->folded = loss_keeps_weight(i);
		m->losses[m->n_losses++]->count = a->lost[i];
	}
	return 0;
}

int wire_coverage_pack(const struct profile *p, Sysprofd__V1__Coverage **ret)
{
	_cleanup_(wire_coverage_free_p) Sysprofd__V1__Coverage *m = malloc(sizeof(*m));
	int r;

	if (!m)
		return -ENOMEM;
	sysprofd__v1__coverage__init(m);
	r = table_new(&sysprofd__v1__gap__descriptor, p->n_gaps, &m->gaps);
	if (r < 0)
		return r;
	for (; m->n_gaps < p->n_gaps; m->n_gaps++) {
		const struct gap *g = &p->gaps[m->n_gaps];

		m->gaps[m->n_gaps]->from_ns = g->from_wall_ns;
		m->gaps[m->n_gaps]->until_ns = g->until_wall_ns;
		m->gaps[m->n_gaps]->reason = (char *)gap_reason_name(g->reason);
	}
	r = pack_losses(&p->accounting, m);
	if (r < 0)
		return r;
	m->from_ns = p->from_wall_ns;
	m->until_ns = p->until_wall_ns;
	m->covered_ns = p->covered_ns;
	m->rate_hz = (double)p->rate_mhz / 1000;
	m->total = p->total;
	m->samples = p->samples;
	m->lost = accounting_lost(&p->accounting);
	m->processes_merged = p->coarse;
	m->estimated = p->accounting.sampled;
	m->counted_ns = p->counted_ns;
	m->unit = (char *)profile_unit(p);
	m->type = (Sysprofd__V1__ProfileType)(p->type + 1);
	*ret = TAKE_PTR(m);
	return 0;
}

void wire_profile_free(Sysprofd__V1__Profile *m)
{
	struct packed *k = (struct packed *)m;

	if (!m)
		return;
	for (size_t i = k->n_borrowed; i < m->n_strings; i++)
		free(m->strings[i]);
	free(m->strings);
	wire_coverage_free(m->coverage);
	table_free(m->binaries);
	table_free(m->frames);
	table_free(m->stacks);
	table_free(m->series);
	table_free(m->locks);
	table_free(m->samples);
	table_free(m->instructions);
	index_done(&k->words);
	free(k);
}

static int pack_strings(struct packed *k, const struct dict *d)
{
	int r = ARRAY_GROW(k->m.strings, k->cap_strings, d->n_strings + 1);

	if (r < 0)
		return r;
	/* An empty dictionary has no string 0 yet, but its message has. */
	k->m.strings[0] = (char *)"";
	for (size_t i = 1; i < d->n_strings; i++)
		k->m.strings[i] = d->strings[i];
	k->m.n_strings = k->n_borrowed = MAX(d->n_strings, (size_t)1);
	return 0;
}

static bool word_equal(const void *ctx, uint32_t id, const void *key)
{
	const struct packed *k = ctx;

	return streq(k->m.strings[k->n_borrowed + id - 1], key);
}

/* The index of a word among the strings. */
static int put_word(struct packed *k, const char *word, uint32_t *ret)
{
	uint64_t hash = XXH3_64bits(word, strlen(word));
	uint32_t id = index_find(&k->words, hash, word_equal, k, word);
	char *copy;
	int r;

	if (!id) {
		r = ARRAY_GROW(k->m.strings, k->cap_strings, k->m.n_strings + 1);
		if (r < 0)
			return r;
		copy = strdup(word);
		if (!copy)
			return -ENOMEM;
		k->m.strings[k->m.n_strings++] = copy;
		id = (uint32_t)(k->m.n_strings - k->n_borrowed);
		r = index_add(&k->words, hash, id);
		if (r < 0)
			return r;
	}
	*ret = (uint32_t)k->n_borrowed + id - 1;
	return 0;
}

static int pack_binaries(struct packed *k, const struct dict *d)
{
	int r = table_new(&sysprofd__v1__binary__descriptor, d->n_binaries, &k->m.binaries);

	if (r < 0)
		return r;
	k->m.n_binaries = d->n_binaries;
	for (size_t i = 1; i < d->n_binaries; i++) {
		Sysprofd__V1__Binary *m = k->m.binaries[i];

		m->name = d->binaries[i].name;
		m->path = d->binaries[i].path;
		m->build_id = d->binaries[i].build_id;
		m->kind = (Sysprofd__V1__BinaryKind)d->binaries[i].kind;
	}
	return 0;
}

static int pack_frames(struct packed *k, const struct dict *d)
{
	int r = table_new(&sysprofd__v1__frame__descriptor, d->n_frames, &k->m.frames);

	if (r < 0)
		return r;
	k->m.n_frames = d->n_frames;
	for (size_t i = 1; i < d->n_frames; i++) {
		const struct frame *f = &d->frames[i];
		Sysprofd__V1__Frame *m = k->m.frames[i];

		m->binary = f->binary;
		m->offset = f->offset;
		m->name = f->name;
		m->system_name = f->system_name;
		m->file = f->file;
		m->line = f->line;
		m->kind = (Sysprofd__V1__FrameKind)f->kind;
		m->inlined = (f->flags & FRAME_INLINE) != 0;
	}
	return 0;
}

static int pack_stacks(struct packed *k, const struct dict *d)
{
	int r = table_new(&sysprofd__v1__stack__descriptor, d->n_stacks, &k->m.stacks);

	if (r < 0)
		return r;
	k->m.n_stacks = d->n_stacks;
	for (size_t i = 1; i < d->n_stacks; i++) {
		k->m.stacks[i]->parent = d->stacks[i].parent;
		k->m.stacks[i]->frame = d->stacks[i].frame;
	}
	return 0;
}

static int pack_series(struct packed *k, const struct dict *d)
{
	int r = table_new(&sysprofd__v1__series_labels__descriptor, d->n_series, &k->m.series);

	if (r < 0)
		return r;
	k->m.n_series = d->n_series;
	for (size_t i = 1; i < d->n_series; i++) {
		const struct series *s = &d->series[i];
		Sysprofd__V1__SeriesLabels *m = k->m.series[i];

		m->comm = s->label[LABEL_COMM];
		m->exe = s->label[LABEL_EXE];
		m->thread = s->label[LABEL_THREAD];
		m->unit = s->label[LABEL_UNIT];
		m->cgroup = s->label[LABEL_CGROUP];
		m->container = s->label[LABEL_CONTAINER];
		m->pod = s->label[LABEL_POD];
		m->namespace_ = s->label[LABEL_NAMESPACE];
		m->build_id = s->label[LABEL_BUILD_ID];
		m->pid = s->pid;
		m->tid = s->tid;
		m->uid = s->uid;
		m->start_ns = s->start;
		m->kernel_thread = s->flags & SERIES_KERNEL_THREAD;
		m->other = s->flags & SERIES_OTHER;
	}
	return 0;
}

static int pack_locks(struct packed *k, const struct dict *d)
{
	int r = table_new(&sysprofd__v1__lock__descriptor, d->n_locks, &k->m.locks);

	if (r < 0)
		return r;
	k->m.n_locks = d->n_locks;
	for (size_t i = 1; i < d->n_locks; i++) {
		const struct lock *l = &d->locks[i];
		Sysprofd__V1__Lock *m = k->m.locks[i];

		m->name = l->name;
		m->binary = l->binary;
		m->offset = l->offset;
		m->address = l->address;
		m->pid = l->pid;
		m->shared = l->flags & 1;
	}
	return 0;
}

static int pack_off_cpu_key(struct packed *k, uint32_t key, Sysprofd__V1__Sample *m)
{
	int r = put_word(k, off_cause_name(OFF_KEY_CAUSE(key)), &m->cause);

	m->exact_total = OFF_KEY_TOTAL(key);
	if (r < 0 || m->exact_total)
		return r;
	m->idle = OFF_KEY_IDLE(key);
	r = put_word(k, off_state_name(OFF_KEY_STATE(key)), &m->state);
	if (r < 0 || OFF_KEY_WAIT(key) == WAIT_UNKNOWN)
		return r;
	return put_word(k, wait_kind_name(OFF_KEY_WAIT(key)), &m->wait);
}

static int pack_syscall_key(struct packed *k, uint32_t key, Sysprofd__V1__Sample *m)
{
	char buf[WORD_MAX];
	int r = put_word(k, syscall_text(key, buf, sizeof(buf)), &m->syscall);

	m->syscall_number = SYSCALL_KEY_NR(key);
	if (r < 0 || SYSCALL_KEY_ERRNO(key) == 0)
		return r;
	return put_word(k, errno_text(SYSCALL_KEY_ERRNO(key), buf, sizeof(buf)), &m->errno_name);
}

static int pack_futex_key(struct packed *k, uint32_t key, Sysprofd__V1__Sample *m)
{
	int r = put_word(k, futex_class_name(FUTEX_KEY_CLASS(key)), &m->futex_class);

	if (r < 0)
		return r;
	return put_word(k, futex_outcome_name(FUTEX_KEY_OUTCOME(key)), &m->outcome);
}

static int pack_key(struct packed *k, enum profile_type type, uint32_t key, Sysprofd__V1__Sample *m)
{
	switch (type) {
	case PROFILE_OFF_CPU:
		return pack_off_cpu_key(k, key, m);
	case PROFILE_SYSCALLS:
		return pack_syscall_key(k, key, m);
	case PROFILE_FUTEX:
		return pack_futex_key(k, key, m);
	default:
		return 0;
	}
}

static int pack_sample(struct packed *k, const struct profile *p, size_t row,
		       Sysprofd__V1__Sample *m)
{
	const struct columns *c = &p->columns;

	m->series = c->series[row];
	m->stack = c->stack[row];
	m->count = c->count[row];
	m->value = p->type == PROFILE_SYSCALLS ? c->count[row] : c->value[row];
	m->max = c->max[row];
	m->lock = p->type == PROFILE_FUTEX ? c->aux[row] : 0;
	return pack_key(k, p->type, c->key[row], m);
}

static int pack_samples(struct packed *k, const struct profile *p)
{
	size_t n = 0;
	int r;

	for (size_t i = 0; i < p->columns.n; i++)
		n += row_is_instructions(p, i);
	r = table_new(&sysprofd__v1__sample__descriptor, p->columns.n - n, &k->m.samples);
	if (r == 0)
		r = table_new(&sysprofd__v1__sample__descriptor, n, &k->m.instructions);
	for (size_t i = 0; r == 0 && i < p->columns.n; i++)
		r = pack_sample(k, p, i,
				row_is_instructions(p, i) ? k->m.instructions[k->m.n_instructions++]
							  : k->m.samples[k->m.n_samples++]);
	return r;
}

static int pack_tables(struct packed *k, const struct profile *p)
{
	static int (*const steps[])(struct packed *, const struct dict *) = {
		pack_strings, pack_binaries, pack_frames, pack_stacks, pack_series, pack_locks,
	};
	int r;

	for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
		r = steps[i](k, p->dict);
		if (r < 0)
			return r;
	}
	r = pack_samples(k, p);
	if (r < 0)
		return r;
	return wire_coverage_pack(p, &k->m.coverage);
}

int wire_profile_pack(const struct profile *p, Sysprofd__V1__Profile **ret)
{
	struct packed *k = new0(struct packed, 1);
	int r;

	if (!k)
		return -ENOMEM;
	sysprofd__v1__profile__init(&k->m);
	k->m.truncated = p->truncated;
	k->m.omitted = p->omitted;
	k->m.instructions_sampled = p->instructions.sampled;
	k->m.no_instructions = (char *)p->instructions.why_not;
	k->m.instructions_lost = p->instructions.lost;
	r = pack_tables(k, p);
	if (r < 0) {
		wire_profile_free(&k->m);
		return r;
	}
	*ret = &k->m;
	return 0;
}
