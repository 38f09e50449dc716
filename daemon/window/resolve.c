// SPDX-License-Identifier: GPL-2.0-or-later
/* Addresses become frames, (tgid, tid, start) becomes a series, a futex word becomes a lock. */
#include "base/utf8.h"
#include "symbol/demangle.h"
#include "window/internal.h"

/* Assigns a dict id or returns its error from the caller. */
#define TRY(var, call)                \
	do {                          \
		int64_t _v = (call);  \
		if (_v < 0)           \
			return _v;    \
		(var) = (uint32_t)_v; \
	} while (0)

/* ---- series ---------------------------------------------------------------------------------- */

static int64_t other_series(struct window *w)
{
	struct series s = { .flags = SERIES_OTHER };

	TRY(s.label[LABEL_COMM], dict_string(w->bucket->dict, "[other]"));
	return dict_series(w->bucket->dict, &s);
}

static int64_t make_series(struct window *w, uint32_t tgid, uint32_t tid, uint64_t start,
			   uint64_t mono_ns)
{
	struct dict *d = w->bucket->dict;
	struct process *p = process_find(w->processes, tgid, start);
	struct series s = { .pid = tgid, .tid = tid, .start = start };
	struct process_labels l;

	if (!p)
		return -ENOMEM;
	process_labels(p, &l);
	TRY(s.label[LABEL_COMM], dict_string(d, l.comm));
	TRY(s.label[LABEL_EXE], dict_string(d, l.exe));
	TRY(s.label[LABEL_UNIT], dict_string(d, l.unit));
	TRY(s.label[LABEL_CGROUP], dict_string(d, l.cgroup));
	TRY(s.label[LABEL_CONTAINER], dict_string(d, l.container));
	TRY(s.label[LABEL_POD], dict_string(d, l.pod));
	TRY(s.label[LABEL_NAMESPACE], dict_string(d, l.namespace_));
	TRY(s.label[LABEL_BUILD_ID], dict_string(d, l.build_id));
	if (tid)
		TRY(s.label[LABEL_THREAD], dict_string(d, process_thread_name(p, tid)));
	s.uid = l.uid;
	s.flags = (l.kernel_thread ? SERIES_KERNEL_THREAD : 0) |
		  (l.is_private ? SERIES_PRIVATE : 0);
	return dict_series(d, &s);
}

int64_t resolve_series(struct window *w, uint32_t tgid, uint32_t tid, uint64_t start,
		       uint64_t mono_ns, bool *ret_folded)
{
	uint64_t who = (uint64_t)tgid << 32 | tid;
	uint32_t *known = memo_find(&w->series, start, who);
	int64_t id;
	int r;

	*ret_folded = false;
	if (known)
		return *known;
	if (w->bucket->dict->n_series > w->series_limit ||
	    w->bucket->dict->bytes > w->options.max_bytes) {
		*ret_folded = true;
		w->stats.folded_series++;
		return other_series(w);
	}
	id = make_series(w, tgid, tid, start, mono_ns);
	if (id < 0)
		return id;
	r = memo_add(&w->series, start, who, (uint32_t)id);
	return r < 0 ? r : id;
}

/* ---- frames ---------------------------------------------------------------------------------- */

static int keep_key(struct window *w, uint32_t binary, uint64_t key)
{
	int r = ARRAY_GROW(w->binary_keys, w->cap_keys, (size_t)binary + 1);

	if (r < 0)
		return r;
	w->binary_keys[binary] = key;
	w->n_keys = MAX(w->n_keys, (size_t)binary + 1);
	return 0;
}

static int64_t intern_binary(struct window *w, const struct binary_ref *ref)
{
	struct dict *d = w->bucket->dict;
	uint32_t *known = ref->key ? memo_find(&w->binaries, ref->key, 0) : NULL;
	struct binary b = {
		.kind = (uint32_t)ref->kind,
		.dev = ref->dev,
		.ino = ref->ino,
		.generation = ref->generation,
	};
	uint32_t id;
	int r;

	if (known)
		return *known;
	TRY(b.name, dict_string(d, ref->name));
	TRY(b.path, dict_string(d, ref->path));
	TRY(b.build_id, dict_string(d, ref->build_id));
	TRY(id, dict_binary(d, &b));
	if (!ref->key)
		return id;
	r = memo_add(&w->binaries, ref->key, 0, id);
	if (r >= 0)
		r = keep_key(w, id, ref->key);
	return r < 0 ? r : (int64_t)id;
}

/* 0: no executable mapping covers the address. */
static int64_t user_frame(struct window *w, struct process *p, uint64_t mono_ns, uint64_t address)
{
	struct frame f = { .kind = FRAME_NATIVE };
	struct binary_ref ref;

	process_resolve(p, mono_ns, address, &ref, &f.offset);
	if (ref.kind == BINARY_UNKNOWN)
		return 0;
	TRY(f.binary, intern_binary(w, &ref));
	if (ref.kind == BINARY_ANON)
		f.kind = FRAME_JIT;
	if (ref.kind == BINARY_ANON && ref.ino) {
		/* By its address until it was named, which is soon. */
		f.offset = address;
	} else if (ref.kind == BINARY_ANON) {
		/* Anonymous code has no identity that outlives the process: one frame for all of it. */
		f.offset = 0;
		f.flags = FRAME_NAMED;
		TRY(f.name, dict_string(w->bucket->dict, "[anon]"));
	}
	return dict_frame(w->bucket->dict, &f);
}

static int64_t kernel_binary(struct window *w, const char *module)
{
	struct dict *d = w->bucket->dict;
	struct binary b = { .kind = BINARY_KERNEL };
	char name[80];

	if (!*module) {
		TRY(b.name, dict_string(d, "[kernel]"));
		TRY(b.build_id, dict_string(d, w->kernel_build_id));
	} else {
		size_t n = utf8_sanitize(name + 1, sizeof(name) - 2, module, strlen(module));

		name[0] = '[';
		name[n + 1] = ']';
		name[n + 2] = 0;
		TRY(b.name, dict_string(d, name));
	}
	return dict_binary(d, &b);
}

static int64_t kernel_frame(struct window *w, uint64_t address)
{
	struct frame f = { .kind = FRAME_KERNEL, .flags = FRAME_NAMED };
	struct kernel_symbol sym = { .name = "[unknown]", .module = "" };
	char name[SYMBOL_NAME_MAX];

	if (w->kallsyms)
		kallsyms_find(w->kallsyms, address, &sym);
	symbol_readable_name(sym.name, name);
	f.offset = sym.offset;
	TRY(f.binary, kernel_binary(w, sym.module));
	TRY(f.name, dict_string(w->bucket->dict, name));
	if (!streq(name, sym.name))
		TRY(f.system_name, dict_string(w->bucket->dict, sym.name));
	return dict_frame(w->bucket->dict, &f);
}

/*
 * How many leading kernel frames of a waiting thread are the switch itself: everything up to __schedule. Its
 * caller (schedule, preempt_schedule_irq, ...) is the first frame that says something. And of a thread that wakes
 * one, everything before try_to_wake_up.
 */
static size_t schedule_depth(struct window *w, const uint64_t *ips, size_t n)
{
	struct kernel_symbol sym;

	if (!w->kallsyms)
		return 0;
	for (size_t i = 0; i < MIN(n, (size_t)8); i++)
		if (kallsyms_find(w->kallsyms, ips[i] - (i > 0), &sym) &&
		    streq(sym.name, "try_to_wake_up"))
			return i;
	for (size_t i = MIN(n, (size_t)16); i > 0; i--)
		if (kallsyms_find(w->kallsyms, ips[i - 1] - 1, &sym) &&
		    streq(sym.name, "__schedule"))
			return i < n ? i : 0;
	return 0;
}

/* ---- stacks ---------------------------------------------------------------------------------- */

static int64_t push(struct window *w, uint32_t parent, int64_t frame)
{
	return frame < 0 ? frame : dict_stack(w->bucket->dict, parent, (uint32_t)frame);
}

/* The number of user frames, leaf first, that lie in executable mappings; their frames into ret_frames. */
static int64_t user_frames(struct window *w, const struct slice *s, const struct slice_stack *st,
			   uint32_t ret_frames[MAX_USER_FRAMES])
{
	struct process *p = process_find(w->processes, st->tgid, st->start);
	const uint64_t *ips = s->ips + st->first_ip + st->nr_kernel;
	size_t n = 0;

	if (!p)
		return -ENOMEM;
	for (; n < st->nr_user && n < MAX_USER_FRAMES; n++) {
		/* A return address names the instruction behind the call: look one byte before it. */
		int64_t frame = user_frame(w, p, st->mono_ns, ips[n] - (n > 0));

		if (frame == 0 && n == 0)
			frame = dict_marker(w->bucket->dict, "[unknown]");
		if (frame < 0)
			return frame;
		if (frame == 0) {
			w->stats.cut++;
			break;
		}
		ret_frames[n] = (uint32_t)frame;
	}
	return (int64_t)n;
}

/* Whom the end of this walk counts for: the binary of its outermost frame. */
static void judge(struct window *w, const struct slice *s, const struct slice_stack *st, size_t n)
{
	struct process *p = process_find(w->processes, st->tgid, st->start);
	size_t i = (size_t)(st - s->stacks), last = n > 0 ? n - 1 : 0;
	const uint64_t *ips = s->ips + st->first_ip + st->nr_kernel;
	struct binary_ref ref;
	uint64_t offset;

	if (!w->options.quality || i >= w->cap_ends || !p)
		return;
	process_resolve(p, st->mono_ns, ips[last] - (last > 0), &ref, &offset);
	w->ends[i] = quality_row(w->options.quality, &ref);
}

/* What stands for the frames that a user stack lacks. */
static const char *root_marker(const struct slice_stack *st)
{
	switch (st->walk_end) {
	case WALK_NONE:
	case WALK_COMPLETE:
		return NULL;
	case WALK_LIMIT:
		return "[truncated]";
	case WALK_PENDING:
		return "[user stack pending]";
	default:
		return st->nr_user > 0 ? "[incomplete]" : NULL;
	}
}

static int64_t make_stack(struct window *w, const struct slice *s, const struct slice_stack *st)
{
	const char *marker;
	const uint64_t *kernel = s->ips + st->first_ip;
	uint32_t frames[MAX_USER_FRAMES];
	size_t skip = 0;
	uint32_t leaf = 0;
	int64_t n = 0;

	if (st->nr_user > 0) {
		n = user_frames(w, s, st, frames);
		if (n < 0)
			return n;
		judge(w, s, st, (size_t)n);
	}
	marker = root_marker(st);
	if (marker)
		TRY(leaf, push(w, leaf, dict_marker(w->bucket->dict, marker)));
	while (n > 0)
		TRY(leaf, push(w, leaf, frames[--n]));
	if (st->source == SOURCE_OFF_CPU)
		skip = schedule_depth(w, kernel, st->nr_kernel);
	for (size_t i = st->nr_kernel; i > skip; i--)
		TRY(leaf, push(w, leaf, kernel_frame(w, kernel[i - 1] - (i > 1))));
	if (!leaf)
		TRY(leaf, push(w, leaf, dict_marker(w->bucket->dict, "[no stack]")));
	return leaf;
}

int64_t resolve_stack(struct window *w, const struct slice *s, const struct slice_stack *st,
		      bool *ret_folded)
{
	uint32_t *known = memo_find(&w->stacks, st->id, 0);
	int64_t id;
	int r;

	*ret_folded = false;
	if (known)
		return *known;
	if (st->walk_end < WALK_END_N)
		w->stats.walks[st->walk_end]++;
	if (w->bucket->dict->n_stacks > w->options.max_stacks ||
	    w->bucket->dict->bytes > w->options.max_bytes) {
		*ret_folded = true;
		w->stats.folded_stacks++;
		return push(w, 0, dict_marker(w->bucket->dict, "[other]"));
	}
	id = make_stack(w, s, st);
	if (id < 0)
		return id;
	r = memo_add(&w->stacks, st->id, 0, (uint32_t)id);
	return r < 0 ? r : id;
}

/* Frames of the tracepoint and of what is attached to it, which lie above the function that waits. */
static size_t tracepoint_depth(struct window *w, const uint64_t *ips, size_t n)
{
	struct kernel_symbol sym;
	size_t depth = 0;

	for (size_t i = 0; w->kallsyms && i < n; i++)
		if (kallsyms_find(w->kallsyms, ips[i] - (i > 0), &sym) &&
		    (str_skip_prefix(sym.name, "bpf_prog_") || streq(sym.module, "bpf") ||
		     str_skip_prefix(sym.name, "bpf_trace_run") ||
		     strstr(sym.name, "_contention_begin") || strstr(sym.name, "_contention_end")))
			depth = i + 1;
	return depth < n ? depth : 0;
}

int64_t resolve_kernel_stack(struct window *w, const struct kernel_lock *k)
{
	size_t n = MIN(k->nr, (size_t)KERNEL_LOCK_FRAMES), skip;
	uint32_t leaf = 0;

	if (w->bucket->dict->n_stacks > w->options.max_stacks ||
	    w->bucket->dict->bytes > w->options.max_bytes) {
		w->stats.folded_stacks++;
		return push(w, 0, dict_marker(w->bucket->dict, "[other]"));
	}
	if (n == 0)
		return push(w, 0, dict_marker(w->bucket->dict, "[no stack]"));
	if (n == KERNEL_LOCK_FRAMES)
		TRY(leaf, push(w, leaf, dict_marker(w->bucket->dict, "[truncated]")));
	skip = tracepoint_depth(w, k->ips, n);
	for (size_t i = n; i > skip; i--)
		TRY(leaf, push(w, leaf, kernel_frame(w, k->ips[i - 1] - (i > 1))));
	return leaf;
}

#define WAIT_FUNCTIONS 64

/* Names are known here and nowhere else: frames of the bucket do not say which of them are the scheduler's. */
struct wait_place resolve_wait(struct window *w, const struct slice *s,
			       const struct slice_stack *st, uint32_t task_state)
{
	const uint64_t *ips = s->ips + st->first_ip;
	const char *functions[WAIT_FUNCTIONS];
	struct kernel_symbol sym;
	size_t n = 0;

	for (size_t i = schedule_depth(w, ips, st->nr_kernel);
	     i < st->nr_kernel && n < WAIT_FUNCTIONS; i++)
		if (w->kallsyms && kallsyms_find(w->kallsyms, ips[i] - (i > 0), &sym))
			functions[n++] = sym.name;
	return wait_classify(functions, n, st->call, task_state);
}

bool resolve_own_work(struct window *w, const struct slice *s, const struct slice_stack *st)
{
	const uint64_t *ips = s->ips + st->first_ip;
	struct kernel_symbol sym;

	for (size_t i = 0; i < st->nr_kernel; i++) {
		if (!w->kallsyms || !kallsyms_find(w->kallsyms, ips[i] - (i > 0), &sym))
			continue;
		if (streq(sym.name, "__local_bh_enable_ip") || strstr(sym.name, "page_fault"))
			return true;
		if (strstr(sym.name, "interrupt") || strstr(sym.name, "irq_exit"))
			return false;
	}
	return false;
}

/* ---- locks ----------------------------------------------------------------------------------- */

int64_t resolve_lock(struct window *w, uint32_t tgid, uint64_t start, uint64_t address, bool shared)
{
	struct process *p = process_find(w->processes, tgid, start);
	struct lock l = { .pid = tgid, .address = address };
	struct binary_ref ref;
	bool in_shared = false;

	if (!p)
		return -ENOMEM;
	process_resolve_data(p, address, &ref, &l.offset, &in_shared);
	if (ref.kind == BINARY_ELF)
		TRY(l.binary, intern_binary(w, &ref));
	else
		l.offset = 0;
	if (shared && in_shared && l.binary) {
		/* One lock for all processes that map the file: its place in it is its identity. */
		l.flags |= 1;
		l.pid = 0;
		l.address = 0;
	}
	return dict_lock(w->bucket->dict, &l);
}
