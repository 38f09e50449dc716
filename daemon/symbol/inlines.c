// SPDX-License-Identifier: GPL-2.0-or-later
#include "base/utf8.h"
#include "helper/limits.h"
#include "symbol/demangle.h"
#include "symbol/inlines.h"

void inlines_init(struct inlines *i, struct dict *d)
{
	*i = (struct inlines){ .dict = d };
}

void inlines_done(struct inlines *i)
{
	free(i->of);
	free(i->frames);
	*i = (struct inlines){};
}

/* ---- as text ------------------------------------------------------------------------------------- */

static void write_part(const char *s, struct strbuf *out)
{
	char clean[SYMBOL_NAME_MAX];

	utf8_sanitize(clean, sizeof(clean), s, strlen(s));
	strbuf_puts(out, clean);
	strbuf_putc(out, '\n');
}

void inlines_write(const Sysprofd__V1__Place *p, struct strbuf *out)
{
	for (size_t i = 0; i < p->n_lines && i < HELPER_LINES_MAX; i++) {
		const Sysprofd__V1__Line *l = p->lines[i];

		write_part(l->name, out);
		write_part(l->system_name, out);
		write_part(l->file, out);
		strbuf_printf(out, "%u\n", l->line);
	}
}

/* The id of what lies before the next newline; -EBADMSG when there is none. */
static int64_t take_part(struct dict *d, const char **text)
{
	const char *end = strchr(*text, '\n');
	int64_t id;

	if (!end)
		return -EBADMSG;
	id = dict_string_n(d, *text, (size_t)(end - *text));
	*text = end + 1;
	return id;
}

static int take_line(struct dict *d, const char **text, struct frame *f)
{
	int64_t name = take_part(d, text), system_name = name < 0 ? name : take_part(d, text),
		file = system_name < 0 ? system_name : take_part(d, text);
	char *end;

	if (file < 0)
		return (int)file;
	f->name = (uint32_t)name;
	f->system_name = (uint32_t)system_name;
	f->file = (uint32_t)file;
	f->line = (uint32_t)strtoul(*text, &end, 10);
	if (*end != '\n')
		return -EBADMSG;
	*text = end + 1;
	return 0;
}

int inlines_add(struct inlines *i, uint32_t frame, const char *text)
{
	struct frame lines[HELPER_LINES_MAX];
	struct dict *d = i->dict;
	size_t n = 0;

	for (; *text && n < HELPER_LINES_MAX; n++) {
		int r;

		lines[n] = (struct frame){ .binary = d->frames[frame].binary,
					   .offset = d->frames[frame].offset,
					   .kind = FRAME_NATIVE,
					   .flags = FRAME_NAMED | FRAME_INLINE };
		r = take_line(d, &text, &lines[n]);
		if (r < 0)
			return r;
	}
	if (!n)
		return 0;
	d->frames[frame].file = lines[n - 1].file;
	d->frames[frame].line = lines[n - 1].line;
	if (ARRAY_GROW(i->of, i->cap_of, (size_t)frame + 1) < 0 ||
	    ARRAY_GROW(i->frames, i->cap, i->n + n) < 0)
		return -ENOMEM;
	i->of[frame].first = (uint32_t)i->n;
	for (size_t k = n - 1; k-- > 0;) {
		int64_t id = dict_frame(d, &lines[k]);

		if (id < 0)
			return (int)id;
		i->frames[i->n++] = (uint32_t)id;
	}
	i->of[frame].n = (uint32_t)i->n - i->of[frame].first;
	return 0;
}

/* ---- into stacks ---------------------------------------------------------------------------------- */

static int64_t push(const struct inlines *i, int64_t parent, uint32_t frame)
{
	int64_t id = dict_stack(i->dict, (uint32_t)parent, frame);

	if (frame >= i->cap_of)
		return id;
	for (uint32_t k = 0; id >= 0 && k < i->of[frame].n; k++)
		id = dict_stack(i->dict, (uint32_t)id, i->frames[i->of[frame].first + k]);
	return id;
}

/* Fills map with the new ids of old[0..n). */
static int build(struct inlines *i, const struct stack *old, size_t n, uint32_t *map)
{
	int64_t id = dict_append_stack(i->dict, 0, 0); /* the unused one */

	dict_forget_indices(i->dict);
	for (size_t k = 1; id >= 0 && k < n; k++) {
		id = push(i, old[k].parent < k ? map[old[k].parent] : 0, old[k].frame);
		map[k] = (uint32_t)id;
	}
	return id < 0 ? (int)id : 0;
}

int inlines_expand(struct inlines *i, struct bucket *b)
{
	struct dict *d = i->dict;
	struct stack *old = d->stacks;
	size_t n = d->n_stacks, cap = d->cap_stacks;
	_cleanup_free_ uint32_t *map = NULL;
	int r;

	assert(b->dict == d);
	if (!i->n)
		return 0;
	map = new0(uint32_t, n);
	if (!map)
		return -ENOMEM;
	d->stacks = NULL;
	d->n_stacks = d->cap_stacks = 0;
	r = build(i, old, n, map);
	if (r < 0) {
		free(d->stacks);
		d->stacks = old;
		d->n_stacks = n;
		d->cap_stacks = cap;
		dict_forget_indices(d);
		return r;
	}
	free(old);
	for (size_t c = 0; c < COLUMNS_N; c++) {
		struct columns *columns = &b->columns[c];

		for (size_t k = 0; k < columns->n; k++)
			columns->stack[k] = columns->stack[k] < n ? map[columns->stack[k]] : 0;
		/* Without memory they are only not in order. */
		(void)columns_sort_merge(columns);
	}
	return 0;
}
