// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Filters. A selection is compiled once; for each dictionary a verdict per series, frame, stack and lock is
 * found when it is first asked for, so that rows cost a table look-up.
 *
 * A key that a sample does not have has the empty value: `unit=` finds what belongs to no unit. A stack has
 * many functions and binaries: one is enough for a filter, and none may match a negated one.
 *
 * A lens belongs to one query; it never outlives its dictionary.
 */
#include <fnmatch.h>
#include <stdio.h>

#include "../bpf/sysprofd.h"
#include "query/internal.h"

#define TEXT_MAX 512

static const char *const key_names[FILTER_KEY_N] = {
	[FILTER_COMM] = "comm",
	[FILTER_EXE] = "exe",
	[FILTER_PID] = "pid",
	[FILTER_TID] = "tid",
	[FILTER_THREAD] = "thread",
	[FILTER_UID] = "uid",
	[FILTER_UNIT] = "unit",
	[FILTER_CGROUP] = "cgroup",
	[FILTER_CONTAINER] = "container",
	[FILTER_POD] = "pod",
	[FILTER_NAMESPACE] = "namespace",
	[FILTER_BUILD_ID] = "build-id",
	[FILTER_BINARY] = "binary",
	[FILTER_FUNCTION] = "function",
	[FILTER_CAUSE] = "cause",
	[FILTER_SYSCALL] = "syscall",
	[FILTER_ERRNO] = "errno",
	[FILTER_LOCK] = "lock",
	[FILTER_STATE] = "state",
	[FILTER_WAIT] = "wait",
	[FILTER_IDLE] = "idle",
};

/* Keys whose value is a label of the series as it is; unit is not one, since it has two spellings. */
static const struct {
	enum filter_key key;
	enum label label;
} label_keys[] = {
	{ FILTER_COMM, LABEL_COMM },	       { FILTER_EXE, LABEL_EXE },
	{ FILTER_THREAD, LABEL_THREAD },       { FILTER_CGROUP, LABEL_CGROUP },
	{ FILTER_CONTAINER, LABEL_CONTAINER }, { FILTER_POD, LABEL_POD },
	{ FILTER_NAMESPACE, LABEL_NAMESPACE }, { FILTER_BUILD_ID, LABEL_BUILD_ID },
};

enum verdict {
	KNOWN = 1,
	ACCEPTED = 2, /* series, locks, rows */
	STATE_ACCEPTED = 4, /* rows */
	PROCESS_ACCEPTED = 4, /* locks */
	/* Frames and stacks: which sorts of pattern some frame matched. */
	FUNCTION_MATCHED = 2,
	FUNCTION_DENIED = 4,
	BINARY_MATCHED = 8,
	BINARY_DENIED = 16,
};

const char *filter_key_name(enum filter_key key)
{
	return (size_t)key < FILTER_KEY_N ? key_names[key] : NULL;
}

int filter_key_from_name(const char *name)
{
	for (int i = 0; i < FILTER_KEY_N; i++)
		if (streq(name, key_names[i]))
			return i;
	return -EINVAL;
}

void selection_done(struct selection *s)
{
	for (size_t i = 0; i < s->n_filters; i++)
		free(s->filters[i].glob);
	free(s->filters);
	for (size_t i = 0; i < s->visibility.n_units; i++)
		free(s->visibility.units[i]);
	free(s->visibility.units);
	*s = (struct selection){};
}

/* A backslash at the end escapes nothing: fnmatch(3) would never match, and the user would not know why. */
static bool ends_in_escape(const char *glob)
{
	size_t n = strlen(glob), backslashes = 0;

	while (backslashes < n && glob[n - 1 - backslashes] == '\\')
		backslashes++;
	return backslashes % 2 == 1;
}

int selection_check(const struct selection *s, const char **ret_error)
{
	const char *error = NULL;

	if ((unsigned)s->type >= PROFILE_TYPE_N)
		error = "there is no such profile type";
	else if (s->until_wall_ns < s->from_wall_ns)
		error = "the range ends before it begins";
	else if (s->n_filters > QUERY_MAX_FILTERS)
		error = "too many filters: at most 64";
	for (size_t i = 0; !error && i < s->n_filters; i++) {
		const struct filter *f = &s->filters[i];

		if ((unsigned)f->key >= FILTER_KEY_N)
			error = "there is no such filter key";
		else if (!f->glob)
			error = "a filter has no pattern";
		else if (strlen(f->glob) > QUERY_MAX_GLOB)
			error = "a pattern is longer than 1,024 bytes";
		else if (ends_in_escape(f->glob))
			error = "a pattern ends in a single backslash";
	}
	if (!error)
		return 0;
	if (ret_error)
		*ret_error = error;
	return -EINVAL;
}

/* ---- patterns --------------------------------------------------------------------------------------- */

/* A pattern that is equal to the value matches it, so that [kernel] needs no escapes. */
static bool glob_matches(const char *glob, bool plain, const char *value)
{
	return streq(glob, value) || (!plain && fnmatch(glob, value, 0) == 0);
}

static bool is_plain(const char *glob)
{
	return !strpbrk(glob, "*?[\\");
}

int matcher_init(struct matcher *m, const struct selection *sel)
{
	static const enum filter_key series_keys[] = {
		FILTER_COMM,	  FILTER_EXE, FILTER_PID,	FILTER_TID,
		FILTER_THREAD,	  FILTER_UID, FILTER_UNIT,	FILTER_CGROUP,
		FILTER_CONTAINER, FILTER_POD, FILTER_NAMESPACE, FILTER_BUILD_ID,
	};
	uint16_t n = 0;

	*m = (struct matcher){ .type = sel->type, .visibility = &sel->visibility };
	if (sel->n_filters > QUERY_MAX_FILTERS)
		return -EINVAL;
	m->patterns = new0(struct pattern, sel->n_filters + 1);
	if (!m->patterns)
		return -ENOMEM;
	for (int key = 0; key < FILTER_KEY_N; key++) {
		m->first[key] = n;
		for (size_t i = 0; i < sel->n_filters; i++)
			if ((int)sel->filters[i].key == key)
				m->patterns[n++] = (struct pattern){
					.glob = sel->filters[i].glob,
					.negate = sel->filters[i].negate,
					.plain = is_plain(sel->filters[i].glob),
				};
	}
	m->first[FILTER_KEY_N] = n;
#define HAS(key) (m->first[(key) + 1] > m->first[key])
	m->checks_series = !sel->visibility.all;
	for (size_t i = 0; i < ARRAY_SIZE(series_keys); i++)
		m->checks_series |= HAS(series_keys[i]);
	m->checks_stack = HAS(FILTER_FUNCTION) || HAS(FILTER_BINARY);
	m->checks_row = HAS(FILTER_CAUSE) || HAS(FILTER_SYSCALL) || HAS(FILTER_ERRNO);
	m->checks_state = HAS(FILTER_STATE) || HAS(FILTER_WAIT) || HAS(FILTER_IDLE);
	m->checks_lock = HAS(FILTER_LOCK);
#undef HAS
	for (size_t i = m->first[FILTER_FUNCTION]; i < m->first[FILTER_FUNCTION + 1]; i++)
		m->stack_wanted |= m->patterns[i].negate ? 0 : FUNCTION_MATCHED;
	for (size_t i = m->first[FILTER_BINARY]; i < m->first[FILTER_BINARY + 1]; i++)
		m->stack_wanted |= m->patterns[i].negate ? 0 : BINARY_MATCHED;
	return 0;
}

void matcher_done(struct matcher *m)
{
	free(m->patterns);
	*m = (struct matcher){};
}

/* Which sorts of pattern of the key match either spelling of the value (other may be NULL). */
static void match_key(const struct matcher *m, enum filter_key key, const char *value,
		      const char *other, bool *ret_matched, bool *ret_denied)
{
	for (size_t i = m->first[key]; i < m->first[key + 1]; i++) {
		const struct pattern *p = &m->patterns[i];
		bool *hit = p->negate ? ret_denied : ret_matched;

		if (*hit)
			continue;
		*hit = glob_matches(p->glob, p->plain, value) ||
		       (other && glob_matches(p->glob, p->plain, other));
	}
}

static bool key_accepts(const struct matcher *m, enum filter_key key, const char *value,
			const char *other)
{
	bool matched = false, denied = false, wanted = false;

	for (size_t i = m->first[key]; i < m->first[key + 1]; i++)
		wanted |= !m->patterns[i].negate;
	match_key(m, key, value, other, &matched, &denied);
	return (matched || !wanted) && !denied;
}

static bool number_accepted(const struct matcher *m, enum filter_key key, uint32_t number)
{
	char text[12];

	if (m->first[key] == m->first[key + 1])
		return true;
	snprintf(text, sizeof(text), "%u", number);
	return key_accepts(m, key, text, NULL);
}

/* "nginx" for "nginx.service": written into buf; NULL for units of other kinds. */
static const char *short_unit(const char *unit, char *buf, size_t size)
{
	static const char suffix[] = ".service";
	size_t n = strlen(unit);

	if (n < sizeof(suffix) || !streq(unit + n - strlen(suffix), suffix))
		return NULL;
	snprintf(buf, size, "%.*s", (int)(n - strlen(suffix)), unit);
	return buf;
}

/* ---- series ----------------------------------------------------------------------------------------- */

static bool visible(const struct visibility *v, const struct dict *d, const struct series *s)
{
	const char *unit = dict_str(d, s->label[LABEL_UNIT]), *other;
	char buf[TEXT_MAX];

	if (v->all)
		return true;
	if (s->flags & (SERIES_PRIVATE | SERIES_OTHER))
		return false;
	if (s->uid == v->uid)
		return true;
	if (!*unit)
		return false;
	other = short_unit(unit, buf, sizeof(buf));
	for (size_t i = 0; i < v->n_units; i++)
		if (glob_matches(v->units[i], false, unit) ||
		    (other && glob_matches(v->units[i], false, other)))
			return true;
	return false;
}

static bool series_accepted(const struct matcher *m, const struct dict *d, uint32_t id)
{
	const struct series *s = &d->series[id];
	const char *unit = dict_str(d, s->label[LABEL_UNIT]);
	char buf[TEXT_MAX];

	/* Series 0 is nobody's: only those who see everything see it. */
	if (!m->visibility->all && (id == 0 || !visible(m->visibility, d, s)))
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(label_keys); i++)
		if (!key_accepts(m, label_keys[i].key, dict_str(d, s->label[label_keys[i].label]),
				 NULL))
			return false;
	return key_accepts(m, FILTER_UNIT, unit, short_unit(unit, buf, sizeof(buf))) &&
	       number_accepted(m, FILTER_PID, s->pid) && number_accepted(m, FILTER_TID, s->tid) &&
	       number_accepted(m, FILTER_UID, s->uid);
}

/* ---- a dictionary through the selection ---------------------------------------------------------------- */

void lens_init(struct lens *l, const struct matcher *m)
{
	*l = (struct lens){ .m = m };
}

void lens_done(struct lens *l)
{
	free(l->series);
	free(l->frame);
	free(l->stack);
	free(l->lock);
	*l = (struct lens){};
}

int lens_use(struct lens *l, const struct dict *d)
{
	if (l->dict != d) {
		const struct matcher *m = l->m;

		lens_done(l);
		l->m = m;
		l->dict = d;
	}
	if (ARRAY_GROW(l->series, l->cap_series, d->n_series) < 0 ||
	    ARRAY_GROW(l->lock, l->cap_lock, d->n_locks) < 0)
		return -ENOMEM;
	if (l->m->checks_stack && (ARRAY_GROW(l->frame, l->cap_frame, d->n_frames) < 0 ||
				   ARRAY_GROW(l->stack, l->cap_stack, d->n_stacks) < 0))
		return -ENOMEM;
	return 0;
}

bool lens_series(struct lens *l, uint32_t series)
{
	uint8_t *v = &l->series[series];

	if (!*v)
		*v = KNOWN | (series_accepted(l->m, l->dict, series) ? ACCEPTED : 0);
	return *v & ACCEPTED;
}

bool lens_sees(const struct lens *l, uint32_t series)
{
	return l->m->visibility->all ||
	       (series && visible(l->m->visibility, l->dict, &l->dict->series[series]));
}

const char *query_frame_name(const struct dict *d, uint32_t frame, char *buf, size_t size)
{
	if (frame < d->n_frames && d->frames[frame].name)
		return dict_str(d, d->frames[frame].name);
	return frame_text(d, frame, buf, size);
}

bool query_in_c_library(const struct dict *d, const struct frame *f)
{
	/* glibc as it is, and was named up to 2.33; musl */
	static const char *const prefixes[] = {
		"libc.so", "libc-2",  "libpthread.so", "libpthread-2", "ld-linux",
		"ld-2",	   "ld64.so", "libc.musl",     "ld-musl",
	};
	const char *binary = f->binary < d->n_binaries ? dict_str(d, d->binaries[f->binary].name)
						       : "";

	for (size_t i = 0; i < ARRAY_SIZE(prefixes); i++)
		if (strncmp(binary, prefixes[i], strlen(prefixes[i])) == 0)
			return true;
	return false;
}

static uint8_t frame_verdict(const struct lens *l, uint32_t id)
{
	const struct dict *d = l->dict;
	const struct frame *f = &d->frames[id];
	bool matched = false, denied = false;
	uint8_t v = KNOWN;
	char buf[TEXT_MAX];

	match_key(l->m, FILTER_FUNCTION, query_frame_name(d, id, buf, sizeof(buf)),
		  f->system_name ? dict_str(d, f->system_name) : NULL, &matched, &denied);
	v |= (matched ? FUNCTION_MATCHED : 0) | (denied ? FUNCTION_DENIED : 0);
	if (f->binary == 0 || f->binary >= d->n_binaries)
		return v;
	matched = denied = false;
	match_key(l->m, FILTER_BINARY, dict_str(d, d->binaries[f->binary].name),
		  dict_str(d, d->binaries[f->binary].path), &matched, &denied);
	return v | (matched ? BINARY_MATCHED : 0) | (denied ? BINARY_DENIED : 0);
}

/* The chain ends because a parent has a smaller id; a store that says otherwise is cut short here. */
static uint8_t stack_verdict(struct lens *l, uint32_t id)
{
	const struct dict *d = l->dict;
	uint8_t v = KNOWN;

	for (uint32_t i = id; i; i = d->stacks[i].parent < i ? d->stacks[i].parent : 0) {
		uint32_t frame = d->stacks[i].frame;

		if (l->stack[i])
			return v | l->stack[i];
		if (frame == 0 || frame >= d->n_frames)
			continue;
		if (!l->frame[frame])
			l->frame[frame] = frame_verdict(l, frame);
		v |= l->frame[frame];
	}
	return v;
}

bool lens_stack(struct lens *l, uint32_t stack)
{
	uint8_t *v = &l->stack[stack];

	if (!*v)
		*v = stack_verdict(l, stack);
	return (*v & l->m->stack_wanted) == l->m->stack_wanted &&
	       !(*v & (FUNCTION_DENIED | BINARY_DENIED));
}

static bool cause_accepted(const struct matcher *m, uint32_t key)
{
	return key_accepts(m, FILTER_CAUSE,
			   m->type == PROFILE_OFF_CPU ? off_cause_name(OFF_KEY_CAUSE(key)) : "",
			   NULL);
}

static bool call_accepted(const struct matcher *m, uint32_t key)
{
	char call[64] = "", name[32] = "", number[12] = "";

	if (m->type == PROFILE_SYSCALLS)
		syscall_text(key, call, sizeof(call));
	if (m->type == PROFILE_SYSCALLS && row_aspect(m->type, key) == CALL_STACKS)
		key = CALL_OF_STACK_KEY(key);
	/* Other aspects do not tell calls apart by how they ended. */
	if (m->type == PROFILE_SYSCALLS && row_aspect(m->type, key) == CALL_COUNT) {
		uint32_t err = SYSCALL_KEY_ERRNO(key);

		snprintf(number, sizeof(number), "%u", err);
		if (err)
			errno_text(err, name, sizeof(name));
	}
	return key_accepts(m, FILTER_SYSCALL, call, NULL) &&
	       key_accepts(m, FILTER_ERRNO, number, *name ? name : NULL);
}

static bool state_accepted(const struct matcher *m, uint32_t key)
{
	bool off_cpu = m->type == PROFILE_OFF_CPU;

	return key_accepts(m, FILTER_STATE, off_cpu ? off_state_name(OFF_KEY_STATE(key)) : "",
			   NULL) &&
	       key_accepts(m, FILTER_WAIT, off_cpu ? wait_kind_name(OFF_KEY_WAIT(key)) : "",
			   NULL) &&
	       key_accepts(m, FILTER_IDLE, off_cpu && OFF_KEY_IDLE(key) ? "true" : "", NULL);
}

static uint8_t row_verdict(struct lens *l, uint32_t key)
{
	size_t at = key * 2654435761U >> 24;

	if (l->rows[at].verdict == 0 || l->rows[at].key != key) {
		l->rows[at].key = key;
		l->rows[at].verdict =
			KNOWN |
			(cause_accepted(l->m, key) && call_accepted(l->m, key) ? ACCEPTED : 0) |
			(state_accepted(l->m, key) ? STATE_ACCEPTED : 0);
	}
	return l->rows[at].verdict;
}

bool lens_row(struct lens *l, uint32_t key)
{
	return row_verdict(l, key) & ACCEPTED;
}

bool lens_state(struct lens *l, uint32_t key)
{
	return row_verdict(l, key) & STATE_ACCEPTED;
}

static uint8_t lock_verdict(struct lens *l, uint32_t lock)
{
	uint8_t *v = &l->lock[lock];
	char buf[TEXT_MAX] = "";
	uint32_t pid = 0;

	if (*v)
		return *v;
	if (lock && l->m->type == PROFILE_FUTEX) {
		lock_text(l->dict, lock, buf, sizeof(buf));
		pid = l->dict->locks[lock].pid;
	}
	*v = KNOWN | (key_accepts(l->m, FILTER_LOCK, buf, NULL) ? ACCEPTED : 0) |
	     (!pid || number_accepted(l->m, FILTER_PID, pid) ? PROCESS_ACCEPTED : 0);
	return *v;
}

bool lens_lock(struct lens *l, uint32_t lock)
{
	return lock_verdict(l, lock) & ACCEPTED;
}

bool lens_lock_process(struct lens *l, uint32_t lock)
{
	return lock_verdict(l, lock) & PROCESS_ACCEPTED;
}
