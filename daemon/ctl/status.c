// SPDX-License-Identifier: GPL-2.0-or-later
/* status: what the daemon does, what it lost, what it costs. */
#include <inttypes.h>

#include "base/clock.h"
#include "ctl/command.h"
#include "ctl/coverage.h"
#include "ctl/hardware.h"
#include "export/human.h"

static const Sysprofd__V1__StoreStatus no_store = SYSPROFD__V1__STORE_STATUS__INIT;
static const Sysprofd__V1__Host no_host = SYSPROFD__V1__HOST__INIT;

/* ---- JSON ------------------------------------------------------------------------------------ */

static void put_double(struct json *j, const char *key, double v)
{
	json_key(j, key);
	json_double(j, v);
}

static void collector_json(struct json *j, const Sysprofd__V1__CollectorStatus *c)
{
	json_key(j, c->name);
	json_object(j);
	json_key(j, "state");
	json_string(j, c->state);
	json_key(j, "rate_hz");
	json_double(j, c->rate_hz);
	if (c->share > 0) {
		json_key(j, "share");
		json_double(j, c->share);
	}
	json_key(j, "event");
	json_string(j, c->event);
	json_key(j, "seen");
	json_unsigned(j, c->seen);
	json_key(j, "samples");
	json_unsigned(j, c->samples);
	json_key(j, "idle");
	json_unsigned(j, c->idle);
	if (c->threshold_ns) {
		json_key(j, "threshold");
		json_unsigned(j, c->threshold_ns);
		json_key(j, "walked");
		json_unsigned(j, c->walked);
		json_key(j, "reused");
		json_unsigned(j, c->reused);
	}
	if (c->event_ns > 0) {
		put_double(j, "event_ns", c->event_ns);
		put_double(j, "cost", c->cost);
		put_double(j, "budget", c->budget);
		put_double(j, "over_budget", c->budget > 0 ? MAX(c->cost - c->budget, 0.0) : 0);
	}
	if (!str_empty(c->kernel_locks))
		json_put_string(j, "kernel_locks", c->kernel_locks);
	losses_json(j, "lost", c->lost, c->n_lost, false);
	losses_json(j, "folded", c->lost, c->n_lost, true);
	json_object_end(j);
}

static void store_json(struct json *j, const Sysprofd__V1__StoreStatus *s)
{
	json_key(j, "store");
	json_object(j);
	json_key(j, "bytes");
	json_unsigned(j, s->bytes);
	json_key(j, "buckets");
	json_unsigned(j, s->buckets);
	json_key(j, "oldest");
	if (s->oldest_ns)
		json_time(j, s->oldest_ns);
	else
		json_null(j);
	json_key(j, "limit_bytes");
	json_unsigned(j, s->limit_bytes);
	json_key(j, "damaged");
	json_unsigned(j, s->damaged);
	json_key(j, "dropped");
	json_unsigned(j, s->dropped);
	json_key(j, "given_up");
	json_unsigned(j, s->given_up);
	json_key(j, "state");
	json_string(j, s->state);
	json_object_end(j);
}

static void unwind_json(struct json *j, const Sysprofd__V1__UnwindStatus *u)
{
	const struct {
		const char *key;
		uint64_t value;
	} values[] = {
		{ "tables", u->tables }, { "wanted", u->wanted },
		{ "bytes", u->bytes },	 { "limit_bytes", u->limit_bytes },
		{ "rules", u->rules },	 { "processes", u->processes },
		{ "stacks", u->stacks }, { "complete", u->complete },
	};

	json_key(j, "unwind");
	json_object(j);
	for (size_t i = 0; i < ARRAY_SIZE(values); i++) {
		json_key(j, values[i].key);
		json_unsigned(j, values[i].value);
	}
	losses_json(j, "lacking", u->lacking, u->n_lacking, false);
	json_object_end(j);
}

static void answer_json(const Sysprofd__V1__StatusResponse *m, struct strbuf *out)
{
	struct json j = { .out = out };

	json_object(&j);
	json_key(&j, "version");
	json_string(&j, m->version);
	json_key(&j, "uptime_seconds");
	json_double(&j, m->uptime_seconds);
	json_key(&j, "collectors");
	json_object(&j);
	for (size_t i = 0; i < m->n_collectors; i++)
		collector_json(&j, m->collectors[i]);
	json_object_end(&j);
	json_key(&j, "windows");
	json_unsigned(&j, m->windows);
	store_json(&j, m->store ?: &no_store);
	json_key(&j, "memory");
	json_object(&j);
	json_key(&j, "rss_bytes");
	json_unsigned(&j, m->rss_bytes);
	json_key(&j, "bpf_bytes");
	json_unsigned(&j, m->bpf_bytes);
	json_object_end(&j);
	json_key(&j, "cpu_seconds");
	json_double(&j, m->cpu_seconds);
	if (m->unwind)
		unwind_json(&j, m->unwind);
	hardware_json(&j, m->hardware, m->n_hardware, m->no_hardware);
	losses_json(&j, "counters", m->counters, m->n_counters, false);
	json_object_end(&j);
	strbuf_putc(out, '\n');
}

/* ---- text ------------------------------------------------------------------------------------ */

static void head_text(const Sysprofd__V1__StatusResponse *m, const struct text *t,
		      struct strbuf *out)
{
	const Sysprofd__V1__Host *h = m->host ?: &no_host;
	_cleanup_(strbuf_done) struct strbuf line = {};
	char up[HUMAN_MAX], n[HUMAN_MAX];

	strbuf_printf(&line, "sysprofd %s", m->version);
	if (!str_empty(h->host_name))
		strbuf_printf(&line, " on %s", h->host_name);
	strbuf_printf(&line, ", up %s, %s windows, %s processes known",
		      human_duration((uint64_t)(MAX(m->uptime_seconds, 0.0) * NSEC_PER_SEC), up),
		      human_count(m->windows, n), human_count(m->processes, (char[HUMAN_MAX]){}));
	text_wrap(t, line.data ?: "", 2, out);
	if (!h->clock_synchronized)
		text_wrap(t, "clock: not synchronised", 2, out);
}

static uint64_t sum_of(Sysprofd__V1__Loss *const *losses, size_t n, bool folded)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < n; i++)
		if (losses[i]->folded == folded)
			sum += losses[i]->count;
	return sum;
}

static void collector_row(struct table *t, const Sysprofd__V1__CollectorStatus *c)
{
	char buf[HUMAN_MAX];

	table_cell(t, c->name);
	table_cell(t, human_count(c->seen, buf));
	table_cell(t, human_count(c->samples, buf));
	table_cell(t, human_count(c->idle, buf));
	table_cell(t, human_count(sum_of(c->lost, c->n_lost, false), buf));
	table_cell(t, human_count(sum_of(c->lost, c->n_lost, true), buf));
	if (c->rate_hz > 0)
		table_cellf(t, "%g Hz", c->rate_hz);
	else if (c->threshold_ns)
		table_cellf(t, "T=%s", human_duration(c->threshold_ns, buf));
	else if (c->share > 0)
		table_cell(t, human_share(c->share, 1, buf));
	else
		table_cell(t, "all");
	table_cell(t, str_empty(c->event) ? "-" : c->event);
	table_cell(t, c->state);
}

static int collectors_text(const Sysprofd__V1__StatusResponse *m, const struct text *text,
			   struct strbuf *out)
{
	struct table_column columns[] = {
		{ .head = "COLLECTOR" },
		{ .head = "SEEN", .right = true, .keep = 1 },
		{ .head = "STORED", .right = true, .keep = 6 },
		{ .head = "IDLE", .right = true, .keep = 4 },
		{ .head = "LOST", .right = true, .keep = 7 },
		{ .head = "FOLDED", .right = true, .keep = 5 },
		{ .head = "RATE", .right = true, .keep = 3 },
		{ .head = "EVENT", .keep = 2, .max = 24 },
		{ .head = "STATE", .flexible = true },
	};
	_cleanup_(table_done) struct table t = { .columns = columns,
						 .n_columns = ARRAY_SIZE(columns) };

	for (size_t i = 0; i < m->n_collectors; i++)
		collector_row(&t, m->collectors[i]);
	return table_print(&t, text, out);
}

/* "on-cpu lost: tick-skipped 12, ..." where there is something to tell. */
static void put_losses(const char *source, const char *what, Sysprofd__V1__Loss *const *losses,
		       size_t n, bool folded, const struct text *t, struct strbuf *out)
{
	_cleanup_(strbuf_done) struct strbuf line = {};

	strbuf_printf(&line, "%s%s: ", source, what);
	if (losses_text(losses, n, folded, &line))
		text_wrap(t, line.data ?: "", 2, out);
}

static void put_reused(const Sysprofd__V1__CollectorStatus *c, const struct text *t,
		       struct strbuf *out)
{
	_cleanup_(strbuf_done) struct strbuf line = {};
	char n[HUMAN_MAX], share[HUMAN_MAX];

	if (!c->walked && !c->reused)
		return;
	strbuf_printf(&line, "%s stacks walked: %s; ", c->name, human_count(c->walked, n));
	strbuf_printf(&line, "known from the same wait before: %s (%s)", human_count(c->reused, n),
		      human_share((double)c->reused, (double)(c->walked + c->reused), share));
	text_wrap(t, line.data ?: "", 2, out);
}

/* Only where counting alone exceeds the budget, which it does on hosts with a million calls a second. */
static void put_cost(const Sysprofd__V1__CollectorStatus *c, const struct text *t,
		     struct strbuf *out)
{
	_cleanup_(strbuf_done) struct strbuf line = {};
	char cost[HUMAN_MAX], budget[HUMAN_MAX], over[HUMAN_MAX];

	if (c->budget <= 0 || c->cost <= c->budget)
		return;
	strbuf_printf(&line,
		      "%s: counting alone takes %s of all CPUs (%.0f ns each); the budget of %s is "
		      "exceeded by %s; syscall-counts=sampled takes a tenth",
		      c->name, human_share(c->cost, 1, cost), c->event_ns,
		      human_share(c->budget, 1, budget), human_share(c->cost - c->budget, 1, over));
	text_wrap(t, line.data ?: "", 2, out);
}

static void put_kernel_locks(const Sysprofd__V1__CollectorStatus *c, const struct text *t,
			     struct strbuf *out)
{
	_cleanup_(strbuf_done) struct strbuf line = {};

	if (str_empty(c->kernel_locks))
		return;
	strbuf_printf(&line, "locks of the kernel: %s", c->kernel_locks);
	text_wrap(t, line.data ?: "", 2, out);
}

/* In groups by how they begin: how the walks of user stacks ended, and what was dropped or refused elsewhere. */
static void counters_text(const Sysprofd__V1__StatusResponse *m, const struct text *t,
			  struct strbuf *out)
{
	static const struct {
		const char *prefix, *heading;
	} groups[] = {
		{ "walk-", "distinct user stacks ended: " },
		{ "debuginfod-", "debug files from servers: " },
		{ "", "also dropped or refused: " },
	};
	struct strbuf lines[ARRAY_SIZE(groups)] = {};
	char n[HUMAN_MAX];

	for (size_t i = 0; i < m->n_counters; i++) {
		const char *rest = NULL;
		size_t g = 0;

		if (m->counters[i]->count == 0)
			continue;
		while (!(rest = str_skip_prefix(m->counters[i]->reason, groups[g].prefix)))
			g++;
		strbuf_puts(&lines[g], lines[g].len ? ", " : groups[g].heading);
		strbuf_printf(&lines[g], "%s %s", rest, human_count(m->counters[i]->count, n));
	}
	for (size_t g = 0; g < ARRAY_SIZE(groups); g++) {
		if (lines[g].len)
			text_wrap(t, lines[g].data ?: "", 2, out);
		strbuf_done(&lines[g]);
	}
}

static void store_text(const Sysprofd__V1__StoreStatus *s, const struct text *t, struct strbuf *out)
{
	_cleanup_(strbuf_done) struct strbuf line = {};
	char a[HUMAN_MAX], b[HUMAN_MAX], n[HUMAN_MAX], at[LOCAL_TIME_MAX];

	strbuf_printf(&line, "store: %s", human_bytes(s->bytes, a));
	if (s->limit_bytes)
		strbuf_printf(&line, " of %s", human_bytes(s->limit_bytes, b));
	strbuf_printf(&line, ", %s bucket%s", human_count(s->buckets, n),
		      s->buckets == 1 ? "" : "s");
	if (s->oldest_ns)
		strbuf_printf(&line, " since %s", local_time(s->oldest_ns, 0, at));
	if (s->damaged)
		strbuf_printf(&line, ", %s damaged", human_count(s->damaged, n));
	if (s->dropped)
		strbuf_printf(&line, ", %s could not be written", human_count(s->dropped, n));
	if (s->given_up)
		strbuf_printf(&line, ", %s given up for age or room", human_count(s->given_up, n));
	if (!str_empty(s->state))
		strbuf_printf(&line, ", state: %s", s->state);
	text_wrap(t, line.data ?: "", 2, out);
}

static void cost_text(const Sysprofd__V1__StatusResponse *m, const struct text *t,
		      struct strbuf *out)
{
	_cleanup_(strbuf_done) struct strbuf line = {};
	char a[HUMAN_MAX], b[HUMAN_MAX], cpu[HUMAN_MAX], share[HUMAN_MAX];

	strbuf_printf(&line, "cost: %s memory, %s BPF maps, %s CPU (%s of one CPU)",
		      human_bytes(m->rss_bytes, a), human_bytes(m->bpf_bytes, b),
		      human_duration((uint64_t)(MAX(m->cpu_seconds, 0.0) * NSEC_PER_SEC), cpu),
		      human_share(m->cpu_seconds, m->uptime_seconds, share));
	text_wrap(t, line.data ?: "", 2, out);
}

static void unwind_text(const Sysprofd__V1__UnwindStatus *u, const struct text *t,
			struct strbuf *out)
{
	_cleanup_(strbuf_done) struct strbuf line = {};
	char a[HUMAN_MAX], b[HUMAN_MAX], n[HUMAN_MAX], share[HUMAN_MAX];

	strbuf_printf(&line, "user stacks: %s complete; %s unwind table%s",
		      human_share((double)u->complete, (double)u->stacks, share),
		      human_count(u->tables, n), u->tables == 1 ? "" : "s");
	if (u->wanted)
		strbuf_printf(&line, ", %s to be built", human_count(u->wanted, n));
	strbuf_printf(&line, ", %s of %s, for %s processes", human_bytes(u->bytes, a),
		      human_bytes(u->limit_bytes, b), human_count(u->processes, n));
	text_wrap(t, line.data ?: "", 2, out);
	put_losses("binaries", " without unwind table", u->lacking, u->n_lacking, false, t, out);
}

static int answer_text(const Sysprofd__V1__StatusResponse *m, struct strbuf *out)
{
	struct text t;
	int r;

	text_init(&t, STDOUT_FILENO);
	head_text(m, &t, out);
	r = collectors_text(m, &t, out);
	if (r < 0)
		return r;
	for (size_t i = 0; i < m->n_collectors; i++) {
		const Sysprofd__V1__CollectorStatus *c = m->collectors[i];

		put_losses(c->name, " lost", c->lost, c->n_lost, false, &t, out);
		put_losses(c->name, " counted, but not in full", c->lost, c->n_lost, true, &t, out);
		put_reused(c, &t, out);
		put_kernel_locks(c, &t, out);
		put_cost(c, &t, out);
	}
	store_text(m->store ?: &no_store, &t, out);
	cost_text(m, &t, out);
	if (m->unwind)
		unwind_text(m->unwind, &t, out);
	hardware_text(&t, m->hardware, m->n_hardware, m->no_hardware,
		      "hardware counters absent: ", out);
	counters_text(m, &t, out);
	return 0;
}

int command_status(const struct options *o, struct client *c)
{
	Sysprofd__V1__StatusRequest q = SYSPROFD__V1__STATUS_REQUEST__INIT;
	_cleanup_(strbuf_done) struct strbuf out = {};
	ProtobufCMessage *answer = NULL;
	int r = client_call(c, "Status", &q.base, &sysprofd__v1__status_response__descriptor,
			    &answer);

	if (r)
		return command_failed(c, r);
	if (o->json)
		answer_json((Sysprofd__V1__StatusResponse *)answer, &out);
	else if (answer_text((Sysprofd__V1__StatusResponse *)answer, &out) < 0)
		out.error = -ENOMEM;
	protobuf_c_message_free_unpacked(answer, NULL);
	return text_output(&out);
}
