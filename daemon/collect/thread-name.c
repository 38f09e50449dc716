// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Names of threads: told by COMM records, inherited from the creator, or read from /proc when somebody asks.
 * The main thread's name is the process's.
 */
#include <stdio.h>

#include "base/io.h"
#include "collect/table.h"

#define NAMES_PER_PROCESS_MAX 32768
#define NAMES_MAX 262144

static size_t lower_bound(const struct process *p, uint32_t tid)
{
	size_t lo = 0, hi = p->n_threads;

	/* Thread ids mostly grow. */
	if (hi > 0 && p->threads[hi - 1].tid < tid)
		return hi;
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (p->threads[mid].tid < tid)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static struct thread_name *find(struct process *p, uint32_t tid)
{
	size_t at = lower_bound(p, tid);

	return at < p->n_threads && p->threads[at].tid == tid ? &p->threads[at] : NULL;
}

void thread_set_name(struct process *p, uint32_t tid, struct name *name)
{
	struct process_table *t = p->table;
	size_t at = lower_bound(p, tid);

	if (at < p->n_threads && p->threads[at].tid == tid) {
		p->threads[at].exit_mono_ns = 0;
		names_set(&t->names, &p->threads[at].name, name_ref(name));
		return;
	}
	if (p->n_threads >= NAMES_PER_PROCESS_MAX || t->n_thread_names >= NAMES_MAX ||
	    ARRAY_GROW(p->threads, p->cap_threads, p->n_threads + 1) < 0) {
		t->refused_names++;
		return;
	}
	memmove(p->threads + at + 1, p->threads + at, (p->n_threads - at) * sizeof(*p->threads));
	p->threads[at] = (struct thread_name){ .tid = tid, .name = name_ref(name) };
	p->n_threads++;
	t->n_thread_names++;
}

struct name *thread_get_name(struct process *p, uint32_t tid)
{
	const struct thread_name *n;

	if (tid == p->tgid)
		return p->comm;
	n = find(p, tid);
	return n ? n->name : NULL;
}

void thread_exit(struct process *p, uint32_t tid, uint64_t mono_ns)
{
	struct thread_name *n = find(p, tid);

	if (!n)
		return;
	n->exit_mono_ns = MAX(mono_ns, (uint64_t)1);
	process_mark_dirty(p);
}

bool threads_expire(struct process *p, uint64_t mono_ns)
{
	size_t kept = 0;
	bool done = true;

	for (size_t i = 0; i < p->n_threads; i++) {
		struct thread_name *n = &p->threads[i];

		if (n->exit_mono_ns && n->exit_mono_ns < mono_ns) {
			names_put(&p->table->names, n->name);
			continue;
		}
		done &= !n->exit_mono_ns;
		p->threads[kept++] = *n;
	}
	p->table->n_thread_names -= p->n_threads - kept;
	p->n_threads = kept;
	if (kept == 0) {
		free(p->threads);
		p->threads = NULL;
		p->cap_threads = 0;
	}
	return done;
}

void threads_done(struct process *p)
{
	for (size_t i = 0; i < p->n_threads; i++)
		names_put(&p->table->names, p->threads[i].name);
	p->table->n_thread_names -= p->n_threads;
	free(p->threads);
	p->threads = NULL;
	p->n_threads = p->cap_threads = 0;
}

static struct name *read_name(struct process *p, uint32_t tid)
{
	_cleanup_(strbuf_done) struct strbuf text = {};
	char path[64];
	size_t len;

	snprintf(path, sizeof(path), "%u/task/%u/comm", p->tgid, tid);
	if (read_file_at(p->table->proc_fd, path, 256, &text) < 0 || text.len == 0)
		return NULL;
	/* The kernel ends it with a newline; the others are the name's own. */
	len = text.data[text.len - 1] == '\n' ? text.len - 1 : text.len;
	return names_get(&p->table->names, text.data, len);
}

const char *process_thread_name(struct process *p, uint32_t tid)
{
	struct name *n = thread_get_name(p, tid);

	if (n || p->exit_mono_ns)
		return name_str(n);
	n = read_name(p, tid);
	if (!n)
		return "";
	thread_set_name(p, tid, n);
	/* The list holds a reference, if it had room. */
	names_put(&p->table->names, n);
	return name_str(thread_get_name(p, tid));
}
