// SPDX-License-Identifier: GPL-2.0-or-later
#include <ctype.h>

#include "export/short-name.h"

#define NESTING_MAX 8 /* of "<A as B>" within one another that are looked into */

struct shortening {
	const char *p; /* what is not read yet */
	struct strbuf *out;
	size_t begin; /* of the name, in out */
	size_t path; /* of what follows a return type */
	bool in_name; /* no return type can come any more */
	size_t symbols; /* behind those of an operator; 0: none came yet */
	unsigned nesting;
};

static void shorten(const char *name, const char *end, unsigned nesting, struct strbuf *out);

/* Behind the bracket that closes the one at p, or NULL. "->" and "=>" close nothing. */
static const char *behind_bracket(const char *p, const char *end)
{
	const char open = *p, close = open == '<'   ? '>'
				      : open == '(' ? ')'
				      : open == '{' ? '}'
						    : ']';
	unsigned depth = 0;

	for (; p < end; p++) {
		if (*p == open)
			depth++;
		else if (*p == close && !(close == '>' && (p[-1] == '-' || p[-1] == '=')) &&
			 !--depth)
			return p + 1;
	}
	return NULL;
}

static bool ends_with(const struct shortening *s, const char *word)
{
	size_t n = strlen(word), len = s->out->len - s->begin;

	return len >= n && memcmp(s->out->data + s->out->len - n, word, n) == 0;
}

static bool begins(const char *p, const char *end, const char *word)
{
	return (size_t)(end - p) >= strlen(word) && strncmp(p, word, strlen(word)) == 0;
}

static bool is_word(char c)
{
	return isalnum((unsigned char)c) || c == '_' || c == '$' || c == '}' ||
	       (unsigned char)c >= 0x80;
}

static bool after_word(const struct shortening *s)
{
	return s->out->len > s->begin && is_word(s->out->data[s->out->len - 1]);
}

static void copy(struct shortening *s, const char *to)
{
	strbuf_add(s->out, s->p, (size_t)(to - s->p));
	s->p = to;
}

/* The symbols of operator<, operator->, operator() and others: not brackets. */
static bool take_operator(struct shortening *s, const char *end)
{
	static const char *const symbols[] = { "<<=", "<=>", ">>=", "->*", "<<", ">>", "<=",
					       ">=",  "->",  "()",  "[]",  "<",	 ">" };

	if (!ends_with(s, "operator"))
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(symbols); i++)
		if (begins(s->p, end, symbols[i])) {
			copy(s, s->p + strlen(symbols[i]));
			s->symbols = s->out->len;
			return true;
		}
	return false;
}

/* Whether what lies in angle brackets stands for a type, as Rust's "<A as B>", and is not an argument of one. */
static bool stands_alone(const struct shortening *s, const char *end)
{
	if (s->symbols && s->out->len <= s->symbols + 1) /* "operator< <int>" */
		return false;
	if (ends_with(s, "::"))
		return begins(s->p, end, "<impl ");
	return !after_word(s) && !ends_with(s, ">");
}

static void take_angle(struct shortening *s, const char *end, const char *behind)
{
	if (stands_alone(s, end)) {
		strbuf_putc(s->out, '<');
		if (s->nesting < NESTING_MAX)
			shorten(s->p + 1, behind - 1, s->nesting + 1, s->out);
		else
			strbuf_add(s->out, s->p + 1, (size_t)(behind - s->p - 2));
		strbuf_putc(s->out, '>');
	} else if (ends_with(s, "::")) {
		s->out->len -= 2;
	} else if (ends_with(s, " ")) {
		s->out->len--;
	}
	s->p = behind;
}

static bool is_parameters(const struct shortening *s, const char *end, const char *behind)
{
	/* Of Go: main.(*T).Method */
	if (s->nesting || (behind < end && *behind == '.') ||
	    begins(s->p, end, "(anonymous namespace)"))
		return false;
	return after_word(s) || ends_with(s, ">") || ends_with(s, ")") || ends_with(s, "]") ||
	       (s->symbols && s->symbols == s->out->len);
}

/* Parameters go, what stood before the name, and what follows, but for a name that lies within the function. */
static void take_parenthesis(struct shortening *s, const char *end, const char *behind)
{
	if (!is_parameters(s, end, behind)) {
		copy(s, behind);
		return;
	}
	if (s->path > s->begin) {
		memmove(s->out->data + s->begin, s->out->data + s->path, s->out->len - s->path);
		s->out->len -= s->path - s->begin;
		s->path = s->begin;
	}
	s->p = begins(behind, end, "::") || begins(behind, end, "@plt") ? behind : end;
}

/* Before it may stand a return type. "operator unsigned int", "virtual thunk to f", "guard variable for x" are names. */
static void take_space(struct shortening *s)
{
	bool special = ends_with(s, " to") || ends_with(s, " for");

	s->in_name |= special || s->symbols || ends_with(s, "operator");
	if (special)
		s->path = s->begin;
	else if (!s->in_name)
		s->path = s->out->len + 1;
	copy(s, s->p + 1);
}

static void take(struct shortening *s, const char *end)
{
	const char *behind = NULL;

	if (take_operator(s, end))
		return;
	if (strchr("<([{", *s->p))
		behind = behind_bracket(s->p, end);
	if (*s->p == ' ')
		take_space(s);
	else if (!behind)
		copy(s, s->p + 1);
	else if (*s->p == '<')
		take_angle(s, end, behind);
	else if (*s->p == '(')
		take_parenthesis(s, end, behind);
	else if (*s->p == '[' && after_word(s) && !s->in_name)
		s->p = behind;
	else
		copy(s, behind);
}

static void shorten(const char *name, const char *end, unsigned nesting, struct strbuf *out)
{
	struct shortening s = {
		.p = name, .out = out, .begin = out->len, .path = out->len, .nesting = nesting
	};

	while (s.p < end && !out->error)
		take(&s, end);
}

void short_name(const char *name, struct strbuf *out)
{
	size_t begin = out->len;

	shorten(name, name + strlen(name), 0, out);
	if (out->error)
		return;
	if (out->len == begin)
		strbuf_puts(out, name);
	else
		out->data[out->len] = '\0';
}

int short_names(struct dict *d)
{
	_cleanup_free_ uint32_t *shortened = new0(uint32_t, d->n_strings);
	_cleanup_(strbuf_done) struct strbuf name = {};
	size_t n = d->n_strings;

	if (!shortened)
		return -ENOMEM;
	for (size_t i = 1; i < d->n_frames; i++) {
		uint32_t id = d->frames[i].name;
		int64_t r;

		if (!id || id >= n || d->frames[i].kind == FRAME_MARKER)
			continue;
		if (!shortened[id]) {
			strbuf_reset(&name);
			short_name(dict_str(d, id), &name);
			r = name.error ? name.error : dict_string(d, name.data);
			if (r < 0)
				return (int)r;
			shortened[id] = (uint32_t)r;
		}
		if (!d->frames[i].system_name && shortened[id] != id)
			d->frames[i].system_name = id;
		d->frames[i].name = shortened[id];
	}
	dict_forget_indices(d);
	return 0;
}
