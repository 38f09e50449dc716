// SPDX-License-Identifier: GPL-2.0-or-later
#include "base/strbuf.h"
#include "manager/work.h"

#define LABELS_MAX 16

void work_init(struct work *w)
{
	*w = (struct work){};
	pthread_mutex_init(&w->lock, NULL);
}

static void clear(struct work *w)
{
	while (w->n > 0)
		free(w->entries[--w->n].text);
}

void work_done(struct work *w)
{
	clear(w);
	pthread_mutex_destroy(&w->lock);
}

static bool good_word(const char *s, size_t n)
{
	if (n == 0 || n > 128)
		return false;
	for (size_t i = 0; i < n; i++)
		if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.:/-",
			    s[i]))
			return false;
	return true;
}

static int compare_labels(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The canonical text: the same work always reads the same. */
static int make_text(const char *name, const char *const *labels, size_t n_labels,
		     struct strbuf *ret)
{
	const char *sorted[LABELS_MAX];

	if (!good_word(name, strlen(name)) || n_labels > LABELS_MAX)
		return -EINVAL;
	for (size_t i = 0; i < n_labels; i++)
		sorted[i] = labels[i];
	qsort(sorted, n_labels, sizeof(sorted[0]), compare_labels);
	strbuf_puts(ret, name);
	for (size_t i = 0; i < n_labels; i++) {
		const char *eq = strchr(sorted[i], '=');

		if (!eq || !good_word(sorted[i], (size_t)(eq - sorted[i])) ||
		    !good_word(eq + 1, strlen(eq + 1)))
			return -EINVAL;
		strbuf_printf(ret, "%s%.*s=\"%s\"", i ? "," : "{", (int)(eq - sorted[i]), sorted[i],
			      eq + 1);
	}
	if (n_labels > 0)
		strbuf_putc(ret, '}');
	if (ret->len > WORK_TEXT_MAX)
		return -EINVAL;
	return strbuf_error(ret);
}

static int add_locked(struct work *w, struct strbuf *text, uint64_t count, bool privileged)
{
	for (size_t i = 0; i < w->n; i++)
		if (streq(w->entries[i].text, text->data)) {
			w->entries[i].count += count;
			return 0;
		}
	if (w->n == WORK_ENTRIES_MAX || (!privileged && w->n_plain == WORK_ENTRIES_MAX / 2)) {
		w->refused++;
		return -ENOSPC;
	}
	w->n_plain += !privileged;
	w->entries[w->n].text = strbuf_take(text, NULL);
	w->entries[w->n++].count = count;
	return 0;
}

int work_add(struct work *w, const char *name, const char *const *labels, size_t n_labels,
	     uint64_t count, bool privileged)
{
	_cleanup_(strbuf_done) struct strbuf text = {};
	int r = make_text(name, labels, n_labels, &text);

	if (r < 0)
		return r;
	pthread_mutex_lock(&w->lock);
	r = add_locked(w, &text, count, privileged);
	pthread_mutex_unlock(&w->lock);
	return r;
}

uint64_t work_refused(struct work *w)
{
	uint64_t n;

	pthread_mutex_lock(&w->lock);
	n = w->refused;
	pthread_mutex_unlock(&w->lock);
	return n;
}

int work_take(struct work *w, struct bucket *b)
{
	size_t taken = 0;
	int r = 0;

	pthread_mutex_lock(&w->lock);
	for (size_t i = 0; r >= 0 && i < w->n; i++) {
		int64_t frame = dict_marker(b->dict, w->entries[i].text);
		int64_t stack = frame < 0 ? frame : dict_stack(b->dict, 0, (uint32_t)frame);

		r = stack < 0 ? (int)stack
			      : columns_add(&b->columns[COLUMNS_WORK], 0, (uint32_t)stack, 0, 0,
					    w->entries[i].count, 0, 0);
		if (r >= 0)
			free(w->entries[taken++].text);
	}
	w->n -= taken;
	w->n_plain = MIN(w->n_plain, w->n);
	memmove(w->entries, w->entries + taken, w->n * sizeof(w->entries[0]));
	pthread_mutex_unlock(&w->lock);
	return r;
}
