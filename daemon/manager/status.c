// SPDX-License-Identifier: GPL-2.0-or-later
/* What the daemon says of itself, measured when asked. */
#include <fcntl.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/io.h"
#include "manager/internal.h"

/* Proportional share of memory: pages that both processes map count once. */
static uint64_t read_pss(int pid)
{
	_cleanup_(strbuf_done) struct strbuf b = {};
	unsigned long long kib;
	const char *line;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/smaps_rollup", pid);
	if (read_file_at(AT_FDCWD, path, 64 * 1024, &b) < 0)
		return 0;
	line = strstr(b.data, "\nPss:");
	return line && sscanf(line, "\nPss: %llu kB", &kib) == 1 ? kib * 1024 : 0;
}

static double read_cpu_seconds(int pid)
{
	_cleanup_(strbuf_done) struct strbuf b = {};
	unsigned long long utime, stime;
	const char *behind_comm;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	if (read_file_at(AT_FDCWD, path, 4096, &b) < 0)
		return 0;
	behind_comm = strrchr(b.data, ')');
	if (!behind_comm ||
	    sscanf(behind_comm, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu", &utime,
		   &stime) != 2)
		return 0;
	return (double)(utime + stime) / (double)sysconf(_SC_CLK_TCK);
}

static int add_loss(Sysprofd__V1__Loss ***list, size_t *n, const char *reason, uint64_t count,
		    bool folded)
{
	Sysprofd__V1__Loss **grown, *l;

	if (count == 0)
		return 0;
	grown = reallocarray(*list, *n + 1, sizeof(**list));
	if (!grown)
		return -ENOMEM;
	*list = grown;
	l = malloc(sizeof(*l));
	if (!l)
		return -ENOMEM;
	sysprofd__v1__loss__init(l);
	l->reason = strdup(reason);
	l->count = count;
	l->folded = folded;
	grown[(*n)++] = l;
	return l->reason ? 0 : -ENOMEM;
}

/* Totals count what was drained: `dropped` of it, in buckets that the store could not take, is lost after all. */
static int add_collector(const struct recorder_state *st, enum source i, uint64_t dropped,
			 Sysprofd__V1__StatusResponse *ret)
{
	Sysprofd__V1__CollectorStatus *c = malloc(sizeof(*c));

	if (!c)
		return -ENOMEM;
	sysprofd__v1__collector_status__init(c);
	ret->collectors[ret->n_collectors++] = c;
	c->name = strdup(profile_type_name((enum profile_type)i));
	c->state = strdup(st->source[i].text);
	c->event = strdup(st->source[i].hook);
	if (!c->name || !c->state || !c->event)
		return -ENOMEM;
	c->rate_hz = st->source[i].rate_hz;
	c->samples = st->total[i].stored - MIN(dropped, st->total[i].stored);
	c->seen = st->total[i].seen;
	c->idle = st->total[i].idle;
	c->threshold_ns = st->source[i].threshold_ns;
	for (unsigned k = 0; k < LOSS_REASONS; k++) {
		uint64_t n = st->total[i].lost[k] + (k == LOSS_QUEUE_FULL ? dropped : 0);
		int r = add_loss(&c->lost, &c->n_lost, loss_reason_name(k), n,
				 loss_keeps_weight(k));

		if (r < 0)
			return r;
	}
	return 0;
}

static int add_store(const struct archive_stats *a, Sysprofd__V1__StatusResponse *ret)
{
	Sysprofd__V1__StoreStatus *s = malloc(sizeof(*s));

	if (!s)
		return -ENOMEM;
	sysprofd__v1__store_status__init(s);
	ret->store = s;
	s->bytes = a->store.bytes;
	s->limit_bytes = a->store.limit_bytes;
	s->buckets = a->store.buckets;
	s->oldest_ns = a->store.oldest_wall_ns;
	s->damaged = a->store.damaged_blobs;
	s->dropped = a->dropped + a->store.dropped_buckets;
	s->state = strdup(a->store.state);
	return s->state ? 0 : -ENOMEM;
}

static uint64_t stream_dropped(struct manager *m)
{
	uint64_t n;

	pthread_mutex_lock(&m->stored_lock);
	n = m->stored_dropped;
	pthread_mutex_unlock(&m->stored_lock);
	return n;
}

static int add_counters(struct manager *m, const struct recorder_state *st,
			const struct archive_stats *a, const struct symbolizer_stats *sym,
			Sysprofd__V1__StatusResponse *ret)
{
	const struct {
		const char *name;
		uint64_t value;
	} counters[] = {
		{ "side-band-lost", st->process.side_band_lost },
		{ "processes-evicted", st->process.evicted_processes },
		{ "mappings-refused", st->process.refused_mappings },
		{ "images-dropped", st->process.dropped_images },
		{ "thread-names-refused", st->process.refused_names },
		{ "process-resyncs", st->process.resyncs },
		{ "series-folded", st->window.folded_series },
		{ "stacks-folded", st->window.folded_stacks },
		{ "walk-complete", st->window.walks[WALK_COMPLETE] },
		{ "walk-read-failed", st->window.walks[WALK_READ_FAILED] },
		{ "walk-limit", st->window.walks[WALK_LIMIT] },
		{ "walk-not-ascending", st->window.walks[WALK_NOT_ASCENDING] },
		{ "walk-misaligned", st->window.walks[WALK_MISALIGNED] },
		{ "walk-pending", st->window.walks[WALK_PENDING] },
		{ "walk-no-registers", st->window.walks[WALK_NO_REGS] },
		{ "walk-left-code", st->window.cut },
		{ "windows-failed", st->drain_errors },
		{ "frames-unnamed", a->unnamed },
		{ "store-append-errors", a->store.append_errors },
		{ "store-corrupt-files", a->store.corrupt_files },
		{ "symbol-helper-crashes", sym->crashes },
		{ "symbol-helper-timeouts", sym->timeouts },
		{ "symbol-binaries-poisoned", sym->poisoned },
		{ "work-refused", work_refused(&m->work) },
		{ "stream-buckets-dropped", stream_dropped(m) },
	};

	for (size_t i = 0; i < ARRAY_SIZE(counters); i++) {
		int r = add_loss(&ret->counters, &ret->n_counters, counters[i].name,
				 counters[i].value, false);

		if (r < 0)
			return r;
	}
	return 0;
}

int manager_status(void *ctx, Sysprofd__V1__StatusResponse *ret)
{
	struct manager *m = ctx;
	struct recorder_state st;
	struct archive_stats a;
	struct symbolizer_stats sym;
	int r = 0;

	recorder_get_state(m->recorder, &st);
	archive_get_stats(m->archive, &a);
	symbolizer_stats(m->symbolizer, &sym);
	ret->version = strdup(SYSPROFD_VERSION);
	ret->uptime_seconds = (double)(mono_now_ns() - m->start_mono_ns) / 1e9;
	ret->collectors = new0(Sysprofd__V1__CollectorStatus *, SOURCE_N);
	if (!ret->version || !ret->collectors)
		return -ENOMEM;
	for (unsigned i = 0; r >= 0 && i < SOURCE_N; i++)
		r = add_collector(&st, (enum source)i, a.lost[i], ret);
	if (r >= 0)
		r = add_store(&a, ret);
	if (r >= 0)
		r = add_counters(m, &st, &a, &sym, ret);
	ret->windows = st.windows;
	ret->bpf_bytes = st.bpf_bytes;
	ret->processes = st.process.processes;
	ret->rss_bytes = read_pss((int)getpid()) + (sym.helper_pid ? read_pss(sym.helper_pid) : 0);
	ret->cpu_seconds = (double)cpu_now_ns() / 1e9 +
			   (sym.helper_pid ? read_cpu_seconds(sym.helper_pid) : 0);
	return r;
}

void manager_status_line(struct manager *m, char *buf, size_t size)
{
	struct recorder_state st;
	struct archive_stats a;
	size_t n = 0;

	recorder_get_state(m->recorder, &st);
	archive_get_stats(m->archive, &a);
	n += (size_t)snprintf(buf, size, "Recording");
	for (unsigned i = 0; i < SOURCE_N; i++)
		if (st.source[i].running && n < size)
			n += (size_t)snprintf(buf + n, size - n, " %s",
					      profile_type_name((enum profile_type)i));
	if (n < size)
		snprintf(buf + n, size - n, "; store %.1f MiB, %llu buckets, %s",
			 (double)a.store.bytes / 1048576, (unsigned long long)a.store.buckets,
			 a.store.state);
}
