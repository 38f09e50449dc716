// SPDX-License-Identifier: GPL-2.0-or-later
#include <stdio.h>
#include <xxhash.h>

#include "../bpf/sysprofd.h"
#include "export/tree.h"

#define TEXT_MAX 256 /* of made names: module+0x..., a lock's address */

struct builder {
	const struct profile *p;
	struct flame_tree *t;
	uint32_t *frame_labels; /* by frame id of the profile; 0: not yet made */
	uint32_t *process_labels; /* by series id */
	uint32_t *path; /* frames of the stack at hand, leaf first */
	size_t cap_path;
};

static void builder_done(struct builder *b)
{
	free(b->frame_labels);
	free(b->process_labels);
	free(b->path);
}

static uint64_t add_saturating(uint64_t a, uint64_t b)
{
	uint64_t sum;

	return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

/* ---- labels and nodes ------------------------------------------------------------------------ */

static bool label_equal(const void *ctx, uint32_t id, const void *key)
{
	const struct flame_tree *t = ctx;
	const struct flame_label *a = &t->labels[id], *b = key;

	return a->kind == b->kind && streq(a->text, b->text) && streq(a->binary, b->binary);
}

static int64_t intern_label(struct flame_tree *t, enum flame_kind kind, const char *text,
			    const char *binary)
{
	struct flame_label key = { .text = (char *)(str_empty(text) ? "[unknown]" : text),
				   .binary = binary,
				   .kind = kind };
	uint32_t id;
	int r;

	key.hash = XXH3_64bits(key.text, strlen(key.text)) ^
		   XXH3_64bits_withSeed(binary, strlen(binary), (XXH64_hash_t)kind + 1);
	id = index_find(&t->label_index, key.hash, label_equal, t, &key);
	if (id)
		return id;
	if (t->n_labels > INT32_MAX)
		return -ENOSPC;
	r = ARRAY_GROW(t->labels, t->cap_labels, t->n_labels + 1);
	if (r < 0)
		return r;
	key.text = strdup(key.text);
	if (!key.text)
		return -ENOMEM;
	id = (uint32_t)t->n_labels;
	t->labels[t->n_labels++] = key;
	r = index_add(&t->label_index, key.hash, id);
	return r < 0 ? r : id;
}

struct node_key {
	uint32_t parent, label;
};

static bool node_equal(const void *ctx, uint32_t id, const void *key)
{
	const struct flame_tree *t = ctx;
	const struct node_key *k = key;

	return t->nodes[id].parent == k->parent && t->nodes[id].label == k->label;
}

static int64_t child_node(struct flame_tree *t, uint32_t parent, uint32_t label)
{
	struct node_key key = { parent, label };
	uint64_t hash = XXH3_64bits(&key, sizeof(key));
	uint32_t id = index_find(&t->node_index, hash, node_equal, t, &key);
	int r;

	if (id)
		return id;
	if (t->n_nodes > INT32_MAX)
		return -ENOSPC;
	r = ARRAY_GROW(t->nodes, t->cap_nodes, t->n_nodes + 1);
	if (r < 0)
		return r;
	id = (uint32_t)t->n_nodes;
	t->nodes[t->n_nodes++] = (struct flame_node){ .parent = parent,
						      .label = label,
						      .depth = t->nodes[parent].depth + 1 };
	t->max_depth = MAX(t->max_depth, t->nodes[id].depth);
	r = index_add(&t->node_index, hash, id);
	return r < 0 ? r : id;
}

/* Steps from *node to its child of that name. */
static int descend(struct flame_tree *t, uint32_t *node, enum flame_kind kind, const char *text,
		   const char *binary)
{
	int64_t label = intern_label(t, kind, text, binary), id;

	if (label < 0)
		return (int)label;
	id = child_node(t, *node, (uint32_t)label);
	if (id < 0)
		return (int)id;
	*node = (uint32_t)id;
	return 0;
}

/* ---- rows to paths --------------------------------------------------------------------------- */

const char *frame_name(const struct dict *d, uint32_t frame, char *buf, size_t size)
{
	if (frame > 0 && frame < d->n_frames && d->frames[frame].name)
		return dict_str(d, d->frames[frame].name);
	return frame_text(d, frame, buf, size);
}

const char *frame_binary_name(const struct dict *d, uint32_t frame)
{
	uint32_t binary = frame < d->n_frames ? d->frames[frame].binary : 0;

	return binary > 0 && binary < d->n_binaries ? dict_str(d, d->binaries[binary].name) : "";
}

const char *series_process_name(const struct dict *d, uint32_t series)
{
	const struct series *s;
	const char *comm;

	if (series == 0 || series >= d->n_series)
		return "[unknown]";
	s = &d->series[series];
	comm = dict_str(d, s->label[LABEL_COMM]);
	if (!str_empty(comm))
		return comm;
	return s->flags & SERIES_OTHER ? "[other]" : "[unknown]";
}

static enum flame_kind kind_of(const struct dict *d, uint32_t frame)
{
	switch (frame < d->n_frames ? d->frames[frame].kind : FRAME_MARKER) {
	case FRAME_NATIVE:
		return FLAME_USER;
	case FRAME_KERNEL:
		return FLAME_KERNEL;
	case FRAME_JIT:
		return FLAME_JIT;
	default:
		return FLAME_MARKER;
	}
}

static int64_t frame_label(struct builder *b, uint32_t frame)
{
	const struct dict *d = b->p->dict;
	char buf[TEXT_MAX];
	int64_t id;

	if (frame >= d->n_frames)
		frame = 0;
	if (b->frame_labels[frame])
		return b->frame_labels[frame];
	id = intern_label(b->t, kind_of(d, frame), frame_name(d, frame, buf, sizeof(buf)),
			  frame_binary_name(d, frame));
	if (id > 0)
		b->frame_labels[frame] = (uint32_t)id;
	return id;
}

static int descend_process(struct builder *b, uint32_t *node, uint32_t series)
{
	const struct dict *d = b->p->dict;
	int64_t id;

	if (series >= d->n_series)
		series = 0;
	if (!b->process_labels[series]) {
		id = intern_label(b->t, FLAME_PROCESS, series_process_name(d, series), "");
		if (id < 0)
			return (int)id;
		b->process_labels[series] = (uint32_t)id;
	}
	id = child_node(b->t, *node, b->process_labels[series]);
	if (id < 0)
		return (int)id;
	*node = (uint32_t)id;
	return 0;
}

static int descend_stack(struct builder *b, uint32_t *node, uint32_t stack)
{
	const struct dict *d = b->p->dict;
	size_t n = 0;
	int r;

	if (stack == 0 || stack >= d->n_stacks)
		return descend(b->t, node, FLAME_MARKER, "[no stack]", "");
	while (stack > 0) {
		r = ARRAY_GROW(b->path, b->cap_path, n + 1);
		if (r < 0)
			return r;
		b->path[n++] = d->stacks[stack].frame;
		/* A parent that is not smaller would be a loop: no such dictionary is made. */
		if (d->stacks[stack].parent >= stack)
			break;
		stack = d->stacks[stack].parent;
	}
	while (n-- > 0) {
		int64_t id = frame_label(b, b->path[n]);

		if (id >= 0)
			id = child_node(b->t, *node, (uint32_t)id);
		if (id < 0)
			return (int)id;
		*node = (uint32_t)id;
	}
	return 0;
}

static int descend_syscall(struct builder *b, uint32_t *node, uint32_t key, uint32_t stack)
{
	char buf[TEXT_MAX];
	unsigned err = SYSCALL_KEY_ERRNO(key);
	int r = 0;

	if (stack)
		r = descend_stack(b, node, stack);
	if (r >= 0)
		r = descend(b->t, node, FLAME_MARKER, syscall_text(key, buf, sizeof(buf)), "");
	if (r >= 0 && err)
		r = descend(b->t, node, FLAME_MARKER, errno_text(err, buf, sizeof(buf)), "");
	return r;
}

/* The path of one row, and its weight at the end. */
static int add_row(struct builder *b, size_t row)
{
	const struct profile *p = b->p;
	const struct columns *c = &p->columns;
	struct flame_tree *t = b->t;
	char buf[TEXT_MAX];
	uint32_t node = 0;
	int r = descend_process(b, &node, c->series[row]);

	if (r >= 0 && p->type == PROFILE_OFF_CPU) {
		snprintf(buf, sizeof(buf), "[%s]", off_cause_name(OFF_KEY_CAUSE(c->key[row])));
		r = descend(t, &node, FLAME_MARKER, buf, "");
	}
	if (r >= 0 && p->type == PROFILE_SYSCALLS)
		r = descend_syscall(b, &node, c->key[row], c->stack[row]);
	else if (r >= 0)
		r = descend_stack(b, &node, c->stack[row]);
	if (r >= 0 && p->type == PROFILE_FUTEX && c->aux[row])
		r = descend(t, &node, FLAME_MARKER,
			    lock_text(p->dict, c->aux[row], buf, sizeof(buf)), "");
	if (r < 0)
		return r;
	if (row_is_instructions(p, row)) {
		pair_add_row(&t->nodes[node].pair, p, row);
		return 0;
	}
	t->nodes[node].self = add_saturating(t->nodes[node].self, profile_weight(p, row));
	t->nodes[node].count = add_saturating(t->nodes[node].count, c->count[row]);
	if (p->instructions.sampled)
		pair_add_row(&t->nodes[node].pair, p, row);
	return 0;
}

uint64_t profile_weight(const struct profile *p, size_t row)
{
	return p->type == PROFILE_SYSCALLS ? p->columns.count[row] : p->columns.value[row];
}

bool profile_has_sampled_rows(const struct profile *p)
{
	if (p->type != PROFILE_OFF_CPU)
		return true;
	for (size_t i = 0; i < p->columns.n; i++)
		if (!OFF_KEY_TOTAL(p->columns.key[i]))
			return true;
	return false;
}

bool profile_row_shown(const struct profile *p, bool has_sampled_rows, size_t row)
{
	if (row_is_instructions(p, row))
		return false;
	return p->type != PROFILE_OFF_CPU || !has_sampled_rows ||
	       !OFF_KEY_TOTAL(p->columns.key[row]);
}

/* ---- the whole tree -------------------------------------------------------------------------- */

static int compare_siblings(const void *pa, const void *pb, void *ctx)
{
	const struct flame_tree *t = ctx;
	const struct flame_node *a = &t->nodes[*(const uint32_t *)pa];
	const struct flame_node *b = &t->nodes[*(const uint32_t *)pb];
	const struct flame_label *la = &t->labels[a->label], *lb = &t->labels[b->label];
	int r;

	if (a->parent != b->parent)
		return a->parent < b->parent ? -1 : 1;
	if (a->total != b->total)
		return a->total > b->total ? -1 : 1;
	r = strcmp(la->text, lb->text);
	if (r == 0)
		r = strcmp(la->binary, lb->binary);
	return r ? r : (int)la->kind - (int)lb->kind;
}

/* Adds selves up into totals and links siblings in their order. */
static int finish(struct flame_tree *t)
{
	_cleanup_free_ uint32_t *order = new0(uint32_t, t->n_nodes);

	if (!order)
		return -ENOMEM;
	for (size_t i = t->n_nodes; i-- > 0;) {
		struct flame_node *n = &t->nodes[i];

		n->total = add_saturating(n->total, n->self);
		if (i > 0) {
			t->nodes[n->parent].total = add_saturating(t->nodes[n->parent].total,
								   n->total);
			pair_add(&t->nodes[n->parent].pair, &n->pair);
		}
		order[i] = (uint32_t)i;
	}
	qsort_r(order + 1, t->n_nodes - 1, sizeof(*order), compare_siblings, t);
	/* From the last to the first, each becomes the head of its parent's list. */
	for (size_t i = t->n_nodes; i-- > 1;) {
		struct flame_node *n = &t->nodes[order[i]], *parent = &t->nodes[n->parent];

		n->next = parent->child;
		parent->child = order[i];
	}
	return 0;
}

static int build(struct builder *b)
{
	const struct profile *p = b->p;
	bool sampled = profile_has_sampled_rows(p);
	int64_t label;
	int r;

	b->frame_labels = new0(uint32_t, p->dict->n_frames + 1);
	b->process_labels = new0(uint32_t, p->dict->n_series + 1);
	if (!b->frame_labels || !b->process_labels)
		return -ENOMEM;
	/* Label 0 is unused, so that 0 means "not yet made" in the tables. */
	r = ARRAY_GROW(b->t->labels, b->t->cap_labels, 1);
	if (r < 0)
		return r;
	b->t->n_labels = 1;
	label = intern_label(b->t, FLAME_ALL, "all", "");
	if (label < 0)
		return (int)label;
	r = ARRAY_GROW(b->t->nodes, b->t->cap_nodes, 1);
	if (r < 0)
		return r;
	b->t->nodes[b->t->n_nodes++] = (struct flame_node){ .label = (uint32_t)label };
	for (size_t i = 0; i < p->columns.n; i++) {
		if (!profile_row_shown(p, sampled, i) && !row_is_instructions(p, i))
			continue;
		r = add_row(b, i);
		if (r < 0)
			return r;
	}
	return finish(b->t);
}

int flame_tree_new(const struct profile *p, struct flame_tree **ret)
{
	_cleanup_(flame_tree_free_p) struct flame_tree *t = new0(struct flame_tree, 1);
	_cleanup_(builder_done) struct builder b = { .p = p, .t = t };
	int r;

	if (!t)
		return -ENOMEM;
	r = build(&b);
	if (r < 0)
		return r;
	*ret = TAKE_PTR(t);
	return 0;
}

struct flame_tree *flame_tree_free(struct flame_tree *t)
{
	if (!t)
		return NULL;
	for (size_t i = 0; i < t->n_labels; i++)
		free(t->labels[i].text);
	free(t->labels);
	free(t->nodes);
	index_done(&t->node_index);
	index_done(&t->label_index);
	free(t);
	return NULL;
}

uint32_t flame_tree_next(const struct flame_tree *t, uint32_t node)
{
	if (t->nodes[node].child)
		return t->nodes[node].child;
	while (node && !t->nodes[node].next)
		node = t->nodes[node].parent;
	return t->nodes[node].next;
}
