// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Rows become leaves as they come: those of the page that is being filled are kept aside, because only a whole page
 * tells whether it still fits into the leaf before. The nodes grow in the memory that becomes the table, behind its header.
 */
#include <xxhash.h>

#include "base/index.h"
#include "unwind/table.h"

#define PAGE (1U << UNWIND_PAGE_BITS)
#define RECENT 256
#define GAP 16 /* bytes without a rule that are not worth two rows: padding between functions */

struct row {
	uint16_t pc, rule;
};

struct table_builder {
	uint32_t machine;
	uint64_t base;
	struct table_segment segments[TABLE_SEGMENTS_MAX];
	uint32_t n_segments;

	struct unwind_rule *rules;
	size_t n_rules, cap_rules;
	struct index by_rule;
	uint16_t recent[RECENT]; /* a few rules make up nearly all rows */

	struct table *table; /* with room for so many leaves: */
	size_t cap_leaves, n_leaves;
	uint32_t *leaf_of; /* of each page before this one */
	size_t n_pages, cap_pages; /* n_pages is the number of the page that is being filled */
	struct unwind_leaf *open; /* may take more pages; lies in the table */

	struct row page[PAGE];
	uint32_t n_page;
	uint16_t at_start, in_force; /* rules at the page's beginning, and now */
	bool gap; /* from gap_pc on there is no rule, unless the next row comes soon */
	uint32_t gap_pc;
	int64_t last_pc;
	uint64_t rows;
};

int table_builder_new(uint32_t machine, uint64_t base, struct table_builder **ret)
{
	_cleanup_(table_builder_free_p) struct table_builder *b = new0(struct table_builder, 1);
	int r;

	if (!b)
		return -ENOMEM;
	if (base % PAGE)
		return -EINVAL;
	b->machine = machine;
	b->base = base;
	b->last_pc = -1;
	r = ARRAY_GROW(b->rules, b->cap_rules, 1);
	if (r < 0)
		return r;
	b->n_rules = 1;
	*ret = TAKE_PTR(b);
	return 0;
}

struct table_builder *table_builder_free(struct table_builder *b)
{
	if (!b)
		return NULL;
	index_done(&b->by_rule);
	free(b->rules);
	free(b->table);
	free(b->leaf_of);
	free(b);
	return NULL;
}

int table_add_segment(struct table_builder *b, const struct table_segment *s)
{
	uint32_t i = b->n_segments;

	if (i == TABLE_SEGMENTS_MAX)
		return -EFBIG;
	if (!s->size || s->offset > INT64_MAX - s->size)
		return -EINVAL;
	if (s->size > UNWIND_TABLE_BYTES || s->pc > UNWIND_TABLE_BYTES - s->size)
		return -EFBIG;
	if (i && s->pc < b->segments[i - 1].pc + b->segments[i - 1].size)
		return -EINVAL;
	b->segments[b->n_segments++] = *s;
	return 0;
}

/* ---- leaves ------------------------------------------------------------------------------------ */

static void close_leaf(struct table_builder *b)
{
	struct unwind_leaf *l = b->open;
	uint16_t rule;

	if (!l)
		return;
	b->open = NULL;
	rule = l->group[(l->rows - 1) / UNWIND_GROUP].rule[(l->rows - 1) % UNWIND_GROUP];
	for (uint32_t i = l->rows; i < UNWIND_ROWS; i++) {
		l->group[i / UNWIND_GROUP].pc[i % UNWIND_GROUP] = 0xffff;
		l->group[i / UNWIND_GROUP].rule[i % UNWIND_GROUP] = rule;
	}
	for (uint32_t i = 0; i < ARRAY_SIZE(l->separator); i++)
		l->separator[i] = l->group[i].pc[0];
}

/* Not by array_grow(): that would touch the memory of leaves that are perhaps never needed. */
static int grow_nodes(struct table_builder *b)
{
	size_t cap = MAX(b->cap_leaves + b->cap_leaves / 2, (size_t)16);
	struct table *p;

	if (b->n_leaves < b->cap_leaves)
		return 0;
	if (b->n_leaves * UNWIND_NODE_SIZE > TABLE_BYTES_MAX)
		return -EFBIG;
	p = realloc(b->table, sizeof(*p) + cap * UNWIND_NODE_SIZE);
	if (!p)
		return -ENOMEM;
	b->table = p;
	b->cap_leaves = cap;
	return 0;
}

static void *node_at(struct table *t, size_t i)
{
	return (char *)(t + 1) + i * UNWIND_NODE_SIZE;
}

static int open_leaf(struct table_builder *b, uint32_t base)
{
	int r;

	close_leaf(b);
	r = grow_nodes(b);
	if (r < 0)
		return r;
	b->open = node_at(b->table, b->n_leaves++);
	/* All of it is filled when it is closed, but for this. */
	memset(b->open, 0, offsetof(struct unwind_leaf, group));
	b->open->base = base;
	b->open->next_pc = UINT32_MAX;
	return 0;
}

static void put_row(struct unwind_leaf *l, uint32_t pc, uint16_t rule)
{
	l->group[l->rows / UNWIND_GROUP].pc[l->rows % UNWIND_GROUP] = (uint16_t)(pc - l->base);
	l->group[l->rows / UNWIND_GROUP].rule[l->rows % UNWIND_GROUP] = rule;
	l->rows++;
}

static bool fits_open(const struct table_builder *b, uint32_t start)
{
	return b->open && start - b->open->base < UNWIND_LEAF_PAGES * PAGE &&
	       b->open->rows + b->n_page <= UNWIND_ROWS;
}

static int put_page(struct table_builder *b, uint32_t start)
{
	bool fits = fits_open(b, start);
	int r;

	if (!fits) {
		r = open_leaf(b, start);
		if (r < 0)
			return r;
		if (!b->n_page || b->page[0].pc)
			put_row(b->open, start, b->at_start);
	}
	b->leaf_of[b->n_pages] = (uint32_t)b->n_leaves;
	for (uint32_t i = 0; i < b->n_page; i++) {
		uint32_t pc = start + b->page[i].pc;

		if (b->open->rows == UNWIND_ROWS) {
			b->open->next = (uint32_t)b->n_leaves + 1;
			b->open->next_pc = pc;
			r = open_leaf(b, pc);
			if (r < 0)
				return r;
		}
		put_row(b->open, pc, b->page[i].rule);
	}
	/* What goes on elsewhere cannot take another page. */
	if (b->open->base != start && !fits)
		close_leaf(b);
	return 0;
}

static bool page_is_empty(const struct table_builder *b)
{
	if (!b->n_page)
		return !b->at_start;
	return b->n_page == 1 && !b->page[0].pc && !b->page[0].rule;
}

static int end_page(struct table_builder *b)
{
	int r = ARRAY_GROW(b->leaf_of, b->cap_pages, b->n_pages + 1);

	if (r < 0)
		return r;
	b->leaf_of[b->n_pages] = 0;
	if (page_is_empty(b)) {
		/* No row of it ends what the open leaf says last. */
		if (b->n_page)
			close_leaf(b);
	} else {
		r = put_page(b, (uint32_t)b->n_pages * PAGE);
		if (r < 0)
			return r;
	}
	b->rows += b->n_page;
	b->n_pages++;
	b->n_page = 0;
	b->at_start = b->in_force;
	return 0;
}

/* ---- rows -------------------------------------------------------------------------------------- */

static bool equal_rule(const void *ctx, uint32_t id, const void *key)
{
	const struct table_builder *b = ctx;

	return memcmp(&b->rules[id], key, sizeof(b->rules[id])) == 0;
}

static int find_or_add(struct table_builder *b, const struct unwind_rule *rule, uint16_t *ret)
{
	uint64_t hash = XXH3_64bits(rule, sizeof(*rule));
	uint32_t id = index_find(&b->by_rule, hash, equal_rule, b, rule);
	int r;

	if (!id) {
		if (b->n_rules == UNWIND_RULES)
			return -EFBIG;
		r = ARRAY_GROW(b->rules, b->cap_rules, b->n_rules + 1);
		if (r >= 0)
			r = index_add(&b->by_rule, hash, (uint32_t)b->n_rules);
		if (r < 0)
			return r;
		id = (uint32_t)b->n_rules++;
		b->rules[id] = *rule;
	}
	*ret = (uint16_t)id;
	return 0;
}

static int intern(struct table_builder *b, const struct unwind_rule *rule, uint16_t *ret)
{
	uint64_t words[2];
	uint16_t *recent;

	if (rule->cfa == UNWIND_NONE) {
		*ret = 0;
		return 0;
	}
	static_assert(sizeof(words) == sizeof(*rule), "all of it");
	memcpy(words, rule, sizeof(words));
	recent = &b->recent[((words[0] ^ words[1] << 1) * 0x9e3779b97f4a7c15) >> 56];
	if (!*recent || !equal_rule(b, *recent, rule)) {
		int r = find_or_add(b, rule, recent);

		if (r < 0)
			return r;
	}
	*ret = *recent;
	return 0;
}

static int change_rule(struct table_builder *b, uint32_t pc, uint16_t rule)
{
	if (rule == b->in_force)
		return 0;
	while (pc / PAGE > b->n_pages) {
		int r = end_page(b);

		if (r < 0)
			return r;
	}
	b->page[b->n_page++] = (struct row){ .pc = (uint16_t)(pc % PAGE), .rule = rule };
	b->in_force = rule;
	return 0;
}

/* The ends of these are exact: code right behind them must not look like the end of a stack, or a signal. */
static bool bridges_gaps(const struct table_builder *b)
{
	uint8_t cfa = b->rules[b->in_force].cfa;

	return cfa != UNWIND_NONE && cfa != UNWIND_END && cfa != UNWIND_SIGNAL;
}

static int end_gap(struct table_builder *b)
{
	if (!b->gap)
		return 0;
	b->gap = false;
	return change_rule(b, b->gap_pc, 0);
}

int table_add_row(struct table_builder *b, uint32_t pc, const struct unwind_rule *rule)
{
	uint16_t id = 0;
	int r;

	if (pc <= b->last_pc)
		return -EINVAL;
	if (pc > UNWIND_TABLE_BYTES || (pc == UNWIND_TABLE_BYTES && rule->cfa != UNWIND_NONE))
		return -EFBIG;
	r = intern(b, rule, &id);
	if (r < 0)
		return r;
	b->last_pc = pc;
	if (!id) {
		if (!b->gap && bridges_gaps(b)) {
			b->gap = true;
			b->gap_pc = pc;
			return 0;
		}
		return b->gap ? 0 : change_rule(b, pc, 0);
	}
	if (b->gap && pc - b->gap_pc < GAP)
		b->gap = false;
	r = end_gap(b);
	return r < 0 ? r : change_rule(b, pc, id);
}

/* ---- the table --------------------------------------------------------------------------------- */

static uint64_t code_end(const struct table_builder *b)
{
	const struct table_segment *s = &b->segments[b->n_segments - 1];

	return s->pc + s->size;
}

/* No rule holds beyond the code. */
static int end_rows(struct table_builder *b)
{
	uint64_t end = code_end(b);
	int r = end_gap(b);

	if (r >= 0 && b->last_pc < (int64_t)end)
		r = change_rule(b, (uint32_t)end, 0);
	if (r >= 0 && !page_is_empty(b))
		r = end_page(b);
	close_leaf(b);
	return r;
}

#define LOW_PAGES (1U << UNWIND_INDEX_BITS) /* of an index of leaves */

static bool has_leaves(const struct table_builder *b, size_t low)
{
	for (size_t i = low * LOW_PAGES; i < MIN((low + 1) * LOW_PAGES, b->n_pages); i++)
		if (b->leaf_of[i])
			return true;
	return false;
}

/*
 * How many index nodes: one, or where the code, with rows or without, is larger than that covers, one for each part
 * that has leaves, and the root.
 */
static uint32_t count_index(const struct table_builder *b)
{
	uint32_t n = 1;

	if (code_end(b) <= (uint64_t)LOW_PAGES << UNWIND_PAGE_BITS)
		return 1;
	for (size_t low = 0; low * LOW_PAGES < b->n_pages; low++)
		n += has_leaves(b, low);
	return n;
}

/* The root is the last one. */
static void fill_index(const struct table_builder *b, struct unwind_index *nodes, uint32_t n)
{
	uint32_t at = 0;

	for (size_t low = 0; low * LOW_PAGES < b->n_pages; low++) {
		if (!has_leaves(b, low))
			continue;
		for (size_t i = low * LOW_PAGES; i < MIN((low + 1) * LOW_PAGES, b->n_pages); i++)
			nodes[at].entry[i % LOW_PAGES] = b->leaf_of[i];
		if (n > 1)
			nodes[n - 1].entry[low] = (uint32_t)b->n_leaves + 1 + at;
		at++;
	}
}

static void fill_rest(const struct table_builder *b, struct table *t, uint64_t bytes,
		      uint32_t n_index)
{
	struct table_segment *segments = node_at(t, b->n_leaves + n_index);

	*t = (struct table){
		.magic = TABLE_MAGIC,
		.version = TABLE_VERSION,
		.machine = b->machine,
		.bytes = bytes,
		.base = b->base,
		.n_segments = b->n_segments,
		.n_rules = (uint32_t)b->n_rules,
		.n_leaves = (uint32_t)b->n_leaves,
		.n_index = n_index,
		.root = (uint32_t)(b->n_leaves + n_index) | (n_index > 1 ? UNWIND_ROOT_DEEP : 0),
		.rows = (uint32_t)b->rows,
	};
	memcpy(segments, b->segments, b->n_segments * sizeof(b->segments[0]));
	memcpy(segments + b->n_segments, b->rules, b->n_rules * sizeof(b->rules[0]));
}

int table_finish(struct table_builder *b, struct table **ret)
{
	struct table *t;
	uint64_t bytes;
	uint32_t n_index;
	int r;

	if (!b->n_segments)
		return -ENODATA;
	r = end_rows(b);
	if (r < 0)
		return r;
	if (!b->n_leaves)
		return -ENODATA;
	n_index = count_index(b);
	bytes = table_size(b->n_segments, b->n_rules, b->n_leaves + n_index);
	if (bytes > TABLE_BYTES_MAX)
		return -EFBIG;
	t = realloc(b->table, bytes);
	if (!t)
		return -ENOMEM;
	b->table = NULL;
	memset(node_at(t, b->n_leaves), 0, n_index * UNWIND_NODE_SIZE);
	fill_index(b, node_at(t, b->n_leaves), n_index);
	fill_rest(b, t, bytes, n_index);
	t->checksum = table_sum(t);
	*ret = t;
	return 0;
}
