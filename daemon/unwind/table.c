// SPDX-License-Identifier: GPL-2.0-or-later
#include <sys/stat.h>
#include <xxhash.h>

#include "base/io.h"
#include "unwind/table.h"

uint64_t table_size(uint64_t n_segments, uint64_t n_rules, uint64_t n_nodes)
{
	return sizeof(struct table) + n_nodes * UNWIND_NODE_SIZE +
	       n_segments * sizeof(struct table_segment) + n_rules * sizeof(struct unwind_rule);
}

uint64_t table_sum(const struct table *t)
{
	return XXH3_64bits(t + 1, t->bytes - sizeof(*t));
}

const void *table_node(const struct table *t, uint32_t number)
{
	return (const char *)(t + 1) + (uint64_t)(number - 1) * UNWIND_NODE_SIZE;
}

const struct table_segment *table_segments(const struct table *t)
{
	return table_node(t, t->n_leaves + t->n_index + 1);
}

const struct unwind_rule *table_rules(const struct table *t)
{
	return (const struct unwind_rule *)(table_segments(t) + t->n_segments);
}

/* ---- checking ---------------------------------------------------------------------------------- */

static bool is_leaf(const struct table *t, uint32_t number)
{
	return number >= 1 && number <= t->n_leaves;
}

static bool is_index(const struct table *t, uint32_t number)
{
	return number > t->n_leaves && number <= t->n_leaves + t->n_index;
}

static bool segments_right(const struct table *t)
{
	const struct table_segment *s = table_segments(t);
	uint64_t end = 0;

	for (uint32_t i = 0; i < t->n_segments; i++) {
		if (!s[i].size || s[i].size > UNWIND_TABLE_BYTES ||
		    s[i].offset > INT64_MAX - s[i].size || s[i].pc < end ||
		    s[i].pc > UNWIND_TABLE_BYTES - s[i].size)
			return false;
		end = s[i].pc + s[i].size;
	}
	return true;
}

static uint64_t code_end(const struct table *t)
{
	const struct table_segment *s = &table_segments(t)[t->n_segments - 1];

	return s->pc + s->size;
}

static bool is_register(int16_t number)
{
	return number >= 0 && number < TABLE_REGISTERS;
}

static bool rules_right(const struct table *t)
{
	static const struct unwind_rule none;
	const struct unwind_rule *rule = table_rules(t);

	if (memcmp(&rule[0], &none, sizeof(none)) != 0)
		return false;
	for (uint32_t i = 1; i < t->n_rules; i++)
		if (rule[i].cfa == UNWIND_NONE || rule[i].cfa >= UNWIND_CFA_N ||
		    rule[i].fp >= UNWIND_WHERE_N || rule[i].ra >= UNWIND_WHERE_N ||
		    rule[i].base < UNWIND_BASE_LOWEST || rule[i].base > UNWIND_BASE_LOST ||
		    (rule[i].cfa == UNWIND_REG && !is_register(rule[i].cfa_add)) ||
		    (rule[i].ra == UNWIND_IN_REG && !is_register(rule[i].ra_off)))
			return false;
	return true;
}

/* Rows ascend from pc 0, the rest of the leaf repeats the last one at 0xffff. */
static bool rows_right(const struct table *t, const struct unwind_leaf *l)
{
	uint16_t last_rule = 0;
	int last_pc = -1;

	if (!l->rows || l->rows > UNWIND_ROWS || l->group[0].pc[0])
		return false;
	for (uint32_t i = 0; i < UNWIND_ROWS; i++) {
		const struct unwind_group *g = &l->group[i / UNWIND_GROUP];
		uint16_t pc = g->pc[i % UNWIND_GROUP], rule = g->rule[i % UNWIND_GROUP];

		if (i < l->rows ? pc <= last_pc || rule >= t->n_rules
				: pc != 0xffff || rule != last_rule)
			return false;
		last_pc = pc;
		last_rule = rule;
	}
	for (uint32_t i = 0; i < ARRAY_SIZE(l->separator); i++)
		if (l->separator[i] != l->group[i].pc[0])
			return false;
	return true;
}

static uint32_t last_row_pc(const struct unwind_leaf *l)
{
	uint32_t i = l->rows - 1;

	return l->base + l->group[i / UNWIND_GROUP].pc[i % UNWIND_GROUP];
}

static bool leaf_right(const struct table *t, uint32_t number)
{
	const struct unwind_leaf *l = table_node(t, number), *next;

	if (l->base >= UNWIND_TABLE_BYTES || !rows_right(t, l))
		return false;
	if (!l->next)
		return l->next_pc == UINT32_MAX;
	/* A full one at each step through the 4096 addresses of a page: there are at most 16. */
	if (l->rows != UNWIND_ROWS || l->next <= number || !is_leaf(t, l->next))
		return false;
	next = table_node(t, l->next);
	return l->next_pc == next->base && l->next_pc > last_row_pc(l) &&
	       l->next_pc >> UNWIND_PAGE_BITS == l->base >> UNWIND_PAGE_BITS;
}

/* Each page's leaf begins with a page, at or before that one. */
static bool entries_right(const struct table *t, const struct unwind_index *x, uint32_t first_page)
{
	for (uint32_t i = 0; i < ARRAY_SIZE(x->entry); i++) {
		const struct unwind_leaf *l;
		uint32_t page = first_page + i, base;

		if (!x->entry[i])
			continue;
		if (!is_leaf(t, x->entry[i]))
			return false;
		l = table_node(t, x->entry[i]);
		base = l->base >> UNWIND_PAGE_BITS;
		if (l->base != base << UNWIND_PAGE_BITS || base > page ||
		    page - base >= (l->next ? 1 : UNWIND_LEAF_PAGES))
			return false;
	}
	return true;
}

static bool index_right(const struct table *t)
{
	uint32_t root = t->root & ~UNWIND_ROOT_DEEP;
	const struct unwind_index *x;

	if (!is_index(t, root))
		return false;
	x = table_node(t, root);
	/* The walker does not compare: what lies beyond an index would be looked up in it all the same. */
	if (!(t->root & UNWIND_ROOT_DEEP))
		return code_end(t) <= ARRAY_SIZE(x->entry) << UNWIND_PAGE_BITS &&
		       entries_right(t, x, 0);
	for (uint32_t i = 0; i < ARRAY_SIZE(x->entry); i++) {
		if (!x->entry[i])
			continue;
		if (!is_index(t, x->entry[i]) || x->entry[i] == root ||
		    !entries_right(t, table_node(t, x->entry[i]), i << UNWIND_INDEX_BITS))
			return false;
	}
	return true;
}

int table_check(const void *data, size_t size)
{
	const struct table *t = data;

	if (size < sizeof(*t) || t->magic != TABLE_MAGIC)
		return -EBADMSG;
	if (t->version != TABLE_VERSION)
		return -EPROTONOSUPPORT;
	if (t->bytes != size || size > TABLE_BYTES_MAX || t->base % (1U << UNWIND_PAGE_BITS) ||
	    !t->n_segments || t->n_segments > TABLE_SEGMENTS_MAX || !t->n_rules ||
	    t->n_rules > UNWIND_RULES || !t->n_leaves || !t->n_index ||
	    table_size(t->n_segments, t->n_rules, (uint64_t)t->n_leaves + t->n_index) != size ||
	    table_sum(t) != t->checksum)
		return -EBADMSG;
	if (!segments_right(t) || !rules_right(t))
		return -EBADMSG;
	for (uint32_t i = 1; i <= t->n_leaves; i++)
		if (!leaf_right(t, i))
			return -EBADMSG;
	return index_right(t) ? 0 : -EBADMSG;
}

/* ---- finding ----------------------------------------------------------------------------------- */

static const struct unwind_leaf *find_leaf(const struct table *t, uint32_t pc)
{
	const struct unwind_index *x = table_node(t, t->root & ~UNWIND_ROOT_DEEP);
	uint32_t page = pc >> UNWIND_PAGE_BITS, number;
	const struct unwind_leaf *l;

	if (page >> UNWIND_INDEX_BITS) {
		if (!(t->root & UNWIND_ROOT_DEEP) || page >> (2 * UNWIND_INDEX_BITS))
			return NULL;
	}
	if (t->root & UNWIND_ROOT_DEEP) {
		number = x->entry[page >> UNWIND_INDEX_BITS];
		if (!number)
			return NULL;
		x = table_node(t, number);
	}
	number = x->entry[page & ((1U << UNWIND_INDEX_BITS) - 1)];
	if (!number)
		return NULL;
	for (l = table_node(t, number); l->next && pc >= l->next_pc;)
		l = table_node(t, l->next);
	return l;
}

const struct unwind_rule *table_find(const struct table *t, uint32_t pc)
{
	const struct unwind_leaf *l = find_leaf(t, pc);
	uint32_t low = 0, high;

	if (!l)
		return table_rules(t);
	for (high = l->rows; high - low > 1;) {
		uint32_t mid = (low + high) / 2;

		if (l->group[mid / UNWIND_GROUP].pc[mid % UNWIND_GROUP] <= pc - l->base)
			low = mid;
		else
			high = mid;
	}
	return table_rules(t) + l->group[low / UNWIND_GROUP].rule[low % UNWIND_GROUP];
}

/* ---- reading ------------------------------------------------------------------------------------- */

int table_read(int fd, uint64_t bytes, struct table **ret)
{
	_cleanup_free_ void *data = NULL;
	struct stat st;
	int r;

	if (bytes < sizeof(struct table) || bytes > TABLE_BYTES_MAX || fd < 0 ||
	    fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return -EBADMSG;
	data = aligned_alloc(64, (bytes + 63) & ~63ULL);
	if (!data)
		return -ENOMEM;
	r = pread_full(fd, data, bytes, 0);
	if (r >= 0)
		r = table_check(data, bytes);
	if (r >= 0)
		*ret = TAKE_PTR(data);
	return r;
}
