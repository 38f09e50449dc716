// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * GET /metrics: the text format of Prometheus, 0.0.4. Totals of the whole host, so that every peer may see them; no
 * label takes values from processes, but for the binaries of user stacks, which are for those who see everything.
 */
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/io.h"
#include "serve/internal.h"

const double duration_bounds[DURATION_BUCKETS] = { 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,
						   0.1,	  0.5,	  1,	 5,    30 };

void duration_add(struct duration_histogram *h, uint64_t us)
{
	size_t i = 0;

	while (i < DURATION_BUCKETS && (double)us > duration_bounds[i] * 1e6)
		i++;
	h->buckets[i]++;
	h->sum_us += us;
}

static void head(struct strbuf *b, const char *name, const char *type, const char *help)
{
	strbuf_printf(b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* A label's value, escaped. */
static void put_label(struct strbuf *b, const char *s)
{
	strbuf_putc(b, '"');
	for (; *s; s++) {
		if (*s == '"' || *s == '\\')
			strbuf_putc(b, '\\');
		if (*s == '\n')
			strbuf_puts(b, "\\n");
		else
			strbuf_putc(b, *s);
	}
	strbuf_putc(b, '"');
}

static void put_real(struct strbuf *b, const char *name, double value)
{
	strbuf_printf(b, "%s %.17g\n", name, value);
}

static void gauge(struct strbuf *b, const char *name, const char *help, uint64_t value)
{
	head(b, name, "gauge", help);
	strbuf_printf(b, "%s %" PRIu64 "\n", name, value);
}

static void counter(struct strbuf *b, const char *name, const char *help, uint64_t value)
{
	head(b, name, "counter", help);
	strbuf_printf(b, "%s %" PRIu64 "\n", name, value);
}

static void put_losses(struct strbuf *b, const Sysprofd__V1__StatusResponse *m, bool folded,
		       const char *name, const char *help)
{
	head(b, name, "counter", help);
	for (size_t i = 0; i < m->n_collectors; i++) {
		const Sysprofd__V1__CollectorStatus *c = m->collectors[i];

		for (size_t l = 0; l < c->n_lost; l++) {
			if (c->lost[l]->folded != folded)
				continue;
			strbuf_printf(b, "%s{type=", name);
			put_label(b, c->name);
			strbuf_puts(b, ",reason=");
			put_label(b, c->lost[l]->reason);
			strbuf_printf(b, "} %" PRIu64 "\n", c->lost[l]->count);
		}
	}
}

static void put_collectors(struct strbuf *b, const Sysprofd__V1__StatusResponse *m)
{
	head(b, "sysprofd_samples_total", "counter", "Samples, waits and calls recorded.");
	for (size_t i = 0; i < m->n_collectors; i++) {
		strbuf_puts(b, "sysprofd_samples_total{type=");
		put_label(b, m->collectors[i]->name);
		strbuf_printf(b, "} %" PRIu64 "\n", m->collectors[i]->samples);
	}
	put_losses(b, m, false, "sysprofd_samples_lost_total",
		   "Samples, waits and calls that were seen but not recorded.");
	put_losses(b, m, true, "sysprofd_samples_folded_total",
		   "Samples, waits and calls recorded, but not in full: without stack, series or "
		   "latency.");
	head(b, "sysprofd_collector_running", "gauge", "Whether the collector runs.");
	for (size_t i = 0; i < m->n_collectors; i++) {
		strbuf_puts(b, "sysprofd_collector_running{type=");
		put_label(b, m->collectors[i]->name);
		strbuf_printf(b, "} %d\n",
			      str_skip_prefix(m->collectors[i]->state, "running") ? 1 : 0);
	}
}

/* Counters that the manager names so say how the walks of user stacks ended. */
static const char *unwind_error(const char *name)
{
	const char *reason = str_skip_prefix(name, "walk-");

	return reason && !streq(reason, "complete") ? reason : NULL;
}

static void put_counters(struct strbuf *b, const Sysprofd__V1__StatusResponse *m)
{
	head(b, "sysprofd_unwind_errors_total", "counter",
	     "User stacks that could not be followed to their root.");
	for (size_t i = 0; i < m->n_counters; i++) {
		const char *reason = unwind_error(m->counters[i]->reason);

		if (!reason)
			continue;
		strbuf_puts(b, "sysprofd_unwind_errors_total{reason=");
		put_label(b, reason);
		strbuf_printf(b, "} %" PRIu64 "\n", m->counters[i]->count);
	}
	head(b, "sysprofd_internal_events_total", "counter",
	     "What was dropped, refused or repaired inside, by name.");
	for (size_t i = 0; i < m->n_counters; i++) {
		if (str_skip_prefix(m->counters[i]->reason, "walk-"))
			continue;
		strbuf_puts(b, "sysprofd_internal_events_total{event=");
		put_label(b, m->counters[i]->reason);
		strbuf_printf(b, "} %" PRIu64 "\n", m->counters[i]->count);
	}
}

static void put_store(struct strbuf *b, const Sysprofd__V1__StoreStatus *m)
{
	if (!m)
		return;
	gauge(b, "sysprofd_store_bytes", "Size of all files of the store.", m->bytes);
	gauge(b, "sysprofd_store_limit_bytes", "Size that the store keeps below.", m->limit_bytes);
	gauge(b, "sysprofd_store_buckets", "Buckets in the store.", m->buckets);
	gauge(b, "sysprofd_store_oldest_timestamp_seconds", "Start of the oldest bucket.",
	      m->oldest_ns / NSEC_PER_SEC);
	counter(b, "sysprofd_store_damaged_total", "Stored values whose checksum failed.",
		m->damaged);
	counter(b, "sysprofd_store_dropped_buckets_total", "Buckets that could not be written.",
		m->dropped);
	counter(b, "sysprofd_store_given_up_buckets_total",
		"Stored buckets that went: too old, or for room.", m->given_up);
}

static void put_durations(struct strbuf *b, const struct duration_histogram *all)
{
	static const char *const others[] = { "/metrics", "/debug/pprof/profile" };

	head(b, "sysprofd_rpc_duration_seconds", "histogram",
	     "Time from a request's first byte to its answer's last.");
	for (int m = 0; m < METRIC_N; m++) {
		const struct duration_histogram *h = &all[m];
		const char *name = m >= METHOD_MAX	   ? others[m - METHOD_MAX]
				   : (size_t)m < n_methods ? methods[m].name
							   : NULL;
		uint64_t n = 0;

		if (!name || ((size_t)m < n_methods && methods[m].server_stream))
			continue;
		for (int i = 0; i < DURATION_BUCKETS; i++) {
			n += h->buckets[i];
			strbuf_printf(b,
				      "sysprofd_rpc_duration_seconds_bucket{method=\"%s\","
				      "le=\"%g\"} %" PRIu64 "\n",
				      name, duration_bounds[i], n);
		}
		n += h->buckets[DURATION_BUCKETS];
		strbuf_printf(b,
			      "sysprofd_rpc_duration_seconds_bucket{method=\"%s\",le=\"+Inf\"} "
			      "%" PRIu64 "\n"
			      "sysprofd_rpc_duration_seconds_sum{method=\"%s\"} %.6f\n"
			      "sysprofd_rpc_duration_seconds_count{method=\"%s\"} %" PRIu64 "\n",
			      name, n, name, (double)h->sum_us / 1e6, name, n);
	}
}

static void put_server(struct strbuf *b, const struct server *s)
{
	struct server_stats st;

	server_stats(s, &st);
	gauge(b, "sysprofd_connections", "Connections that are open.", st.connections);
	counter(b, "sysprofd_connections_accepted_total", "Clients that were accepted.",
		st.accepted);
	counter(b, "sysprofd_connections_refused_total", "Clients that were told \"busy\".",
		st.refused_busy);
	counter(b, "sysprofd_rpc_requests_total", "Requests.", st.requests);
	counter(b, "sysprofd_rpc_errors_total", "Requests that were answered by an error.",
		st.errors);
	counter(b, "sysprofd_rpc_timeouts_total", "Requests whose deadline passed.", st.timeouts);
	counter(b, "sysprofd_rpc_cancelled_total", "Requests whose client left.", st.cancelled);
}

#define STACKS_BINARIES 20 /* told apart in user stacks */

/* ---- process_* --------------------------------------------------------------------------------- */

static uint64_t count_descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	uint64_t n = 0;

	if (!d)
		return 0;
	while (readdir(d))
		n++;
	closedir(d);
	/* ".", ".." and the directory itself. */
	return n > 3 ? n - 3 : 0;
}

/* Fields of /proc/self/stat behind the command's name: 22 start, 23 virtual, 24 resident. */
static bool read_stat(unsigned long long *start, unsigned long long *virtual_bytes,
		      unsigned long long *resident_pages)
{
	_cleanup_(strbuf_done) struct strbuf b = {};
	const char *p;

	if (read_file_at(AT_FDCWD, "/proc/self/stat", 4096, &b) < 0)
		return false;
	p = strrchr(b.data ?: "", ')');
	return p &&
	       sscanf(p + 1,
		      " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d "
		      "%*d %llu %llu %llu",
		      start, virtual_bytes, resident_pages) == 3;
}

static double boot_time_seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_BOOTTIME, &t);
	return (double)wall_now_ns() / 1e9 - ((double)t.tv_sec + (double)t.tv_nsec / 1e9);
}

static void put_process(struct strbuf *b)
{
	unsigned long long start = 0, virtual_bytes = 0, pages = 0;
	struct rlimit limit;

	head(b, "process_cpu_seconds_total", "counter", "CPU time of the daemon.");
	put_real(b, "process_cpu_seconds_total", (double)cpu_now_ns() / 1e9);
	gauge(b, "process_open_fds", "Open descriptors.", count_descriptors());
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
		gauge(b, "process_max_fds", "Limit of descriptors.", limit.rlim_cur);
	if (!read_stat(&start, &virtual_bytes, &pages))
		return;
	gauge(b, "process_virtual_memory_bytes", "Virtual memory.", virtual_bytes);
	gauge(b, "process_resident_memory_bytes", "Resident memory.",
	      pages * (uint64_t)sysconf(_SC_PAGESIZE));
	head(b, "process_start_time_seconds", "gauge", "Start of the daemon since the epoch.");
	put_real(b, "process_start_time_seconds",
		 boot_time_seconds() + (double)start / (double)sysconf(_SC_CLK_TCK));
}

/* ---- the call ---------------------------------------------------------------------------------- */

static void put_status(struct strbuf *b, const Sysprofd__V1__StatusResponse *m)
{
	head(b, "sysprofd_build_info", "gauge", "The version that runs.");
	strbuf_puts(b, "sysprofd_build_info{version=");
	put_label(b, m->version);
	strbuf_puts(b, "} 1\n");
	put_collectors(b, m);
	put_counters(b, m);
	put_store(b, m->store);
	counter(b, "sysprofd_windows_total", "Windows of kernel counts that were drained.",
		m->windows);
	gauge(b, "sysprofd_processes", "Processes that are known.", m->processes);
	gauge(b, "sysprofd_bpf_bytes", "Memory of BPF maps.", m->bpf_bytes);
	gauge(b, "sysprofd_proportional_memory_bytes", "Memory of the daemon and its helper (PSS).",
	      m->rss_bytes);
	head(b, "sysprofd_cpu_seconds_total", "counter", "CPU time of the daemon and its helper.");
	put_real(b, "sysprofd_cpu_seconds_total", m->cpu_seconds);
}

static void put_binary_stacks(struct strbuf *b, const Sysprofd__V1__BinaryStacks *s)
{
	const char *const ends[] = { "complete", "partial" };
	const uint64_t values[] = { s->complete, s->samples - s->complete };

	for (size_t i = 0; i < ARRAY_SIZE(ends); i++) {
		strbuf_puts(b, "sysprofd_binary_user_stacks_total{binary=");
		put_label(b, s->binary);
		strbuf_printf(b, ",end=\"%s\"} %" PRIu64 "\n", ends[i], values[i]);
	}
}

static void put_stacks(struct strbuf *b, struct call *c, const Sysprofd__V1__UnwindStatus *u)
{
	Sysprofd__V1__StacksResponse *m = malloc(sizeof(*m));

	if (!m)
		return;
	sysprofd__v1__stacks_response__init(m);
	if (c->server->ops->stacks(c->server->ops_ctx, STACKS_BINARIES, m) >= 0) {
		head(b, "sysprofd_user_stacks_total", "counter",
		     "Samples with a user stack, by how it ended.");
		strbuf_printf(b, "sysprofd_user_stacks_total{end=\"complete\"} %" PRIu64 "\n",
			      m->complete);
		strbuf_printf(b, "sysprofd_user_stacks_total{end=\"partial\"} %" PRIu64 "\n",
			      m->samples - m->complete);
		if (c->peer->visibility.all)
			head(b, "sysprofd_binary_user_stacks_total", "counter",
			     "The same of the binaries that spoil the most stacks.");
		for (size_t i = 0; i < m->n_binaries && c->peer->visibility.all; i++)
			put_binary_stacks(b, m->binaries[i]);
	}
	sysprofd__v1__stacks_response__free_unpacked(m, NULL);
	if (!u)
		return;
	gauge(b, "sysprofd_unwind_tables", "Binaries whose unwind table is installed.", u->tables);
	gauge(b, "sysprofd_unwind_tables_wanted", "Binaries whose unwind table is to be built.",
	      u->wanted);
	gauge(b, "sysprofd_unwind_bytes", "Kernel memory of unwind tables.", u->bytes);
}

static void run_metrics(struct call *c, struct worker *w)
{
	Sysprofd__V1__StatusResponse *m = malloc(sizeof(*m));
	struct strbuf *b = &c->answer.body;
	int r = -ENOMEM;

	if (m) {
		sysprofd__v1__status_response__init(m);
		r = c->server->ops->status(c->server->ops_ctx, m);
	}
	if (r >= 0) {
		put_status(b, m);
		put_stacks(b, c, m->unwind);
		put_durations(b, c->durations);
		put_server(b, c->server);
		put_process(b);
		r = strbuf_error(b);
	}
	if (m)
		sysprofd__v1__status_response__free_unpacked(m, NULL);
	if (r >= 0 && c->format.gzip) {
		r = answer_compress(b, 0);
		c->answer.gzip = r == 1;
	}
	c->answer.status = MHD_HTTP_OK;
	c->answer.content_type = "text/plain; version=0.0.4; charset=utf-8";
	if (r < 0)
		rpc_fail_errno(&c->error, r, "metrics");
}

void metrics_begin(struct exchange *x)
{
	struct call *c = call_new(x, run_metrics);
	struct rpc_error e = {};

	x->metric = METRIC_METRICS;
	if (c)
		c->durations = malloc(sizeof(x->server->durations));
	if (!c || !c->durations) {
		if (c)
			call_free(c);
		rpc_fail_errno(&e, -ENOMEM, "metrics");
		exchange_fail(x, &e);
		return;
	}
	memcpy(c->durations, x->server->durations, sizeof(x->server->durations));
	c->format.gzip = accepts_gzip(http_header(x, "Accept-Encoding"));
	call_submit(c, x, x->start_mono_ns + x->server->o.query_timeout_ns);
}
