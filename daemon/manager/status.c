// SPDX-License-Identifier: GPL-2.0-or-later
/* What the daemon says of itself, measured when asked. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/resource.h>

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

/* Of helpers that have ended. */
static double reaped_cpu_seconds(void)
{
	struct rusage u;

	if (getrusage(RUSAGE_CHILDREN, &u) < 0)
		return 0;
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static void add_usage(const struct recorder_state *st, const struct symbolizer_stats *sym,
		      const struct fetch_stats *fetch, Sysprofd__V1__StatusResponse *ret)
{
	const int helpers[] = { sym->helper_pid, st->unwinding.supplier.parser_pid,
				st->process.opener_pid, fetch->pid };

	ret->bpf_bytes = st->bpf_bytes + st->unwinding.unwinder.bytes;
	ret->rss_bytes = read_pss((int)getpid());
	ret->cpu_seconds = (double)cpu_now_ns() / 1e9 + reaped_cpu_seconds();
	for (size_t i = 0; i < ARRAY_SIZE(helpers); i++) {
		if (!helpers[i])
			continue;
		ret->rss_bytes += read_pss(helpers[i]);
		ret->cpu_seconds += read_cpu_seconds(helpers[i]);
	}
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
			 double budget, Sysprofd__V1__StatusResponse *ret)
{
	Sysprofd__V1__CollectorStatus *c = malloc(sizeof(*c));

	if (!c)
		return -ENOMEM;
	sysprofd__v1__collector_status__init(c);
	ret->collectors[ret->n_collectors++] = c;
	c->name = strdup(profile_type_name((enum profile_type)i));
	c->state = strdup(st->source[i].text);
	c->event = strdup(st->source[i].hook);
	c->kernel_locks = strdup(st->source[i].kernel_locks);
	if (!c->name || !c->state || !c->event || !c->kernel_locks)
		return -ENOMEM;
	c->rate_hz = st->source[i].rate_hz;
	c->share = st->source[i].share;
	c->event_ns = st->source[i].event_ns;
	c->cost = st->cost[i];
	c->budget = c->event_ns > 0 ? budget : 0;
	c->samples = st->total[i].stored - MIN(dropped, st->total[i].stored);
	c->seen = st->total[i].seen;
	c->idle = st->total[i].idle;
	c->threshold_ns = st->source[i].threshold_ns;
	c->walked = i == SOURCE_OFF_CPU ? st->walked : 0;
	c->reused = i == SOURCE_OFF_CPU ? st->reused : 0;
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
	s->dropped = a->dropped;
	s->given_up = a->store.dropped_buckets;
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
			const struct fetch_stats *fetch, Sysprofd__V1__StatusResponse *ret)
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
		{ "jit-processes-refused", st->process.refused_maps },
		{ "jit-maps-hanging", st->process.hanging_maps },
		{ "process-resyncs", st->process.resyncs },
		{ "series-folded", st->window.folded_series },
		{ "locks-folded", st->window.folded_locks },
		{ "lock-slots-short", st->window.lock_slots_short },
		{ "lock-samples-lost", st->window.lock_samples_lost },
		{ "kernel-locks-lost", st->window.kernel_locks_lost },
		{ "counter-spans-lost", st->window.hardware_lost },
		{ "stacks-folded", st->window.folded_stacks },
		{ "walk-complete", st->window.walks[WALK_COMPLETE] },
		{ "walk-read-failed", st->window.walks[WALK_READ_FAILED] },
		{ "walk-limit", st->window.walks[WALK_LIMIT] },
		{ "walk-not-ascending", st->window.walks[WALK_NOT_ASCENDING] },
		{ "walk-no-row", st->window.walks[WALK_NO_ROW] },
		{ "walk-pending", st->window.walks[WALK_PENDING] },
		{ "walk-no-registers", st->window.walks[WALK_NO_REGS] },
		{ "walk-no-process", st->window.walks[WALK_NO_PROCESS] },
		{ "walk-no-mapping", st->window.walks[WALK_NO_MAPPING] },
		{ "walk-no-table", st->window.walks[WALK_NO_TABLE] },
		{ "walk-runtime-code", st->window.walks[WALK_RUNTIME_CODE] },
		{ "walk-unsupported", st->window.walks[WALK_UNSUPPORTED] },
		{ "unwind-tables-evicted", st->unwinding.unwinder.evicted },
		{ "unwind-refused", st->unwinding.unwinder.refused },
		{ "unwind-tables-failed", st->unwinding.supplier.failed },
		{ "unwind-parser-crashes", st->unwinding.supplier.crashes },
		{ "unwind-parser-timeouts", st->unwinding.supplier.timeouts },
		{ "unwind-binaries-poisoned", st->unwinding.supplier.poisoned },
		{ "walk-left-code", st->window.cut },
		{ "windows-failed", st->drain_errors },
		{ "frames-unnamed", a->unnamed },
		{ "store-append-errors", a->store.append_errors },
		{ "store-corrupt-files", a->store.corrupt_files },
		{ "opener-failures", st->process.opener_failures },
		{ "symbol-helper-crashes", sym->crashes },
		{ "symbol-helper-timeouts", sym->timeouts },
		{ "symbol-binaries-poisoned", sym->poisoned },
		{ "debuginfod-fetched", fetch->fetched },
		{ "debuginfod-missing", fetch->missing },
		{ "debuginfod-failed", fetch->failed },
		{ "debuginfod-refused", fetch->refused },
		{ "jit-map-lines-skipped", sym->map_lines_skipped },
		{ "jit-map-entries-dropped", sym->map_entries_dropped },
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

/* ---- user stacks ------------------------------------------------------------------------------ */

static const char *const walk_end_names[WALK_END_N] = {
	[WALK_NONE] = "none",
	[WALK_COMPLETE] = "complete",
	[WALK_READ_FAILED] = "read-failed",
	[WALK_LIMIT] = "limit",
	[WALK_NOT_ASCENDING] = "not-ascending",
	[WALK_NO_ROW] = "no-row",
	[WALK_PENDING] = "pending",
	[WALK_NO_REGS] = "no-registers",
	[WALK_NO_PROCESS] = "no-process",
	[WALK_NO_MAPPING] = "no-mapping",
	[WALK_NO_TABLE] = "no-table",
	[WALK_RUNTIME_CODE] = "runtime-code",
	[WALK_UNSUPPORTED] = "unsupported",
};

static int add_binary(const struct quality_row *row, Sysprofd__V1__StacksResponse *ret)
{
	Sysprofd__V1__BinaryStacks *b = malloc(sizeof(*b));
	int r = 0;

	if (!b)
		return -ENOMEM;
	sysprofd__v1__binary_stacks__init(b);
	ret->binaries[ret->n_binaries++] = b;
	b->binary = strdup(row->path);
	b->build_id = strdup(row->build_id);
	if (!b->binary || !b->build_id)
		return -ENOMEM;
	b->samples = row->samples;
	b->complete = row->ends[WALK_COMPLETE];
	b->frame_pointer = row->frame_pointer;
	for (unsigned i = 0; i < WALK_END_N && r >= 0; i++)
		if (i != WALK_COMPLETE)
			r = add_loss(&b->partial, &b->n_partial, walk_end_names[i], row->ends[i],
				     false);
	return r;
}

int manager_stacks(void *ctx, uint32_t limit, Sysprofd__V1__StacksResponse *ret)
{
	struct manager *m = ctx;
	struct quality_row *rows;
	size_t n;
	int r = recorder_quality(m->recorder, &rows, &n);

	if (r < 0)
		return r;
	ret->binaries = new0(Sysprofd__V1__BinaryStacks *, n + 1);
	if (!ret->binaries)
		r = -ENOMEM;
	for (size_t i = 0; i < n && r >= 0; i++) {
		ret->samples += rows[i].samples;
		ret->complete += rows[i].ends[WALK_COMPLETE];
		ret->frame_pointer += rows[i].frame_pointer;
		if (!limit || i < limit)
			r = add_binary(&rows[i], ret);
	}
	quality_rows_free(rows, n);
	return r;
}

/* ---- hardware counters ------------------------------------------------------------------------- */

void manager_hardware(void *ctx, struct hardware_state *ret)
{
	struct manager *m = ctx;
	struct recorder_state st;

	recorder_get_state(m->recorder, &st);
	*ret = st.hardware;
}

static int add_hardware(const struct hardware_state *h, Sysprofd__V1__StatusResponse *ret)
{
	ret->no_hardware = strdup(h->why);
	ret->hardware = new0(Sysprofd__V1__HardwareCounter *, HARDWARE_KINDS);
	if (!ret->no_hardware || !ret->hardware)
		return -ENOMEM;
	for (unsigned i = 0; h->counted && i < HARDWARE_KINDS; i++) {
		Sysprofd__V1__HardwareCounter *c = malloc(sizeof(*c));

		if (!c)
			return -ENOMEM;
		sysprofd__v1__hardware_counter__init(c);
		ret->hardware[ret->n_hardware++] = c;
		c->name = strdup(hardware_name(i));
		c->absent = strdup(hardware_absent(h->error[i]));
		if (!c->name || !c->absent)
			return -ENOMEM;
	}
	return 0;
}

/* ---- unwinding ---------------------------------------------------------------------------------- */

static int add_lacking(const struct unwinder_stats *u, Sysprofd__V1__UnwindStatus *ret)
{
	static const char *const names[UNWIND_LACK_N] = {
		[UNWIND_LACK_PENDING] = "pending",   [UNWIND_LACK_CFI] = "no-frame-information",
		[UNWIND_LACK_CODE] = "runtime-code", [UNWIND_LACK_MEMORY] = "no-room",
		[UNWIND_LACK_FILE] = "unreadable",
	};
	int r = 0;

	for (unsigned i = 0; i < UNWIND_LACK_N && r >= 0; i++)
		r = add_loss(&ret->lacking, &ret->n_lacking, names[i], u->lacking[i], false);
	return r;
}

static int add_unwind(struct manager *m, const struct recorder_state *st,
		      Sysprofd__V1__StatusResponse *ret)
{
	const struct unwinder_stats *u = &st->unwinding.unwinder;
	Sysprofd__V1__StacksResponse all = SYSPROFD__V1__STACKS_RESPONSE__INIT;
	Sysprofd__V1__UnwindStatus *s;
	int r;

	if (!st->unwinding.running)
		return 0;
	s = malloc(sizeof(*s));
	if (!s)
		return -ENOMEM;
	sysprofd__v1__unwind_status__init(s);
	ret->unwind = s;
	r = manager_stacks(m, 1, &all);
	*s = (Sysprofd__V1__UnwindStatus){
		.base = s->base,
		.tables = u->tables,
		.wanted = u->wanted,
		.bytes = u->bytes,
		.limit_bytes = u->bytes_max,
		.rules = u->rules,
		.processes = u->processes,
		.stacks = all.samples,
		.complete = all.complete,
	};
	if (r >= 0)
		r = add_lacking(u, s);
	for (size_t i = 0; i < all.n_binaries; i++)
		sysprofd__v1__binary_stacks__free_unpacked(all.binaries[i], NULL);
	free(all.binaries);
	return r;
}

int manager_status(void *ctx, Sysprofd__V1__StatusResponse *ret)
{
	struct manager *m = ctx;
	struct recorder_state st;
	struct archive_stats a;
	struct symbolizer_stats sym;
	struct fetch_stats fetch = {};
	int r = 0;

	recorder_get_state(m->recorder, &st);
	archive_get_stats(m->archive, &a);
	symbolizer_stats(m->symbolizer, &sym);
	if (m->fetch)
		fetch_get_stats(m->fetch, &fetch);
	ret->version = strdup(SYSPROFD_VERSION);
	ret->uptime_seconds = (double)(mono_now_ns() - m->start_mono_ns) / 1e9;
	ret->collectors = new0(Sysprofd__V1__CollectorStatus *, SOURCE_N);
	if (!ret->version || !ret->collectors)
		return -ENOMEM;
	for (unsigned i = 0; r >= 0 && i < SOURCE_N; i++)
		r = add_collector(&st, (enum source)i, a.lost[i],
				  (m->reloaded ?: m->config)->cpu_budget, ret);
	if (r >= 0)
		r = add_store(&a, ret);
	if (r >= 0)
		r = add_counters(m, &st, &a, &sym, &fetch, ret);
	if (r >= 0)
		r = add_unwind(m, &st, ret);
	if (r >= 0)
		r = add_hardware(&st.hardware, ret);
	ret->windows = st.windows;
	ret->processes = st.process.processes;
	add_usage(&st, &sym, &fetch, ret);
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
