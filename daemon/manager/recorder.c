// SPDX-License-Identifier: GPL-2.0-or-later
#include <fcntl.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"
#include "base/thread.h"
#include "manager/recorder-internal.h"

#define FIRST_SLICE_NS (250 * NSEC_PER_MSEC)
#define POLL_NS (200 * NSEC_PER_MSEC)
/* A wall clock that moved by this much against the monotonic one was set, not slewed. */
#define CLOCK_STEP_NS (500 * (int64_t)NSEC_PER_MSEC)

/* ---- calls ------------------------------------------------------------------------------------- */

static void deadline_after(uint64_t ns, struct timespec *ret)
{
	uint64_t at = mono_now_ns() + ns;

	ret->tv_sec = (time_t)(at / NSEC_PER_SEC);
	ret->tv_nsec = (long)(at % NSEC_PER_SEC);
}

static void append_call(struct recorder *r, struct call *c)
{
	*r->calls_tail = c;
	r->calls_tail = &c->next;
	pthread_cond_signal(&r->wake);
}

/* Nobody waits for it, all the same it is run. */
static void recorder_post(struct recorder *r, struct call *c)
{
	c->needed = c->abandoned = true;
	pthread_mutex_lock(&r->lock);
	append_call(r, c);
	pthread_mutex_unlock(&r->lock);
}

int recorder_call(struct recorder *r, struct call *c, uint64_t timeout_ns)
{
	struct timespec until;
	int result;

	deadline_after(timeout_ns, &until);
	pthread_mutex_lock(&r->lock);
	append_call(r, c);
	while (!c->done)
		if (pthread_cond_timedwait(&r->finished, &r->lock, &until) == ETIMEDOUT &&
		    !c->done) {
			c->abandoned = true;
			break;
		}
	result = c->done ? c->result : -ETIME;
	pthread_mutex_unlock(&r->lock);
	return result;
}

static struct call *take_call(struct recorder *r)
{
	struct call *c;

	pthread_mutex_lock(&r->lock);
	while ((c = r->calls)) {
		r->calls = c->next;
		if (!r->calls)
			r->calls_tail = &r->calls;
		c->next = NULL;
		if (!c->abandoned || c->needed)
			break;
		/* A host that is too slow to answer in time must not do the work all the same. */
		c->free(c);
	}
	pthread_mutex_unlock(&r->lock);
	return c;
}

/* Those that came too late: whoever waited for one is gone. */
static void free_calls(struct recorder *r)
{
	struct call *c;

	while ((c = take_call(r)))
		c->free(c);
}

static void run_calls(struct recorder *r)
{
	struct call *c;

	while ((c = take_call(r))) {
		int result = c->fn(r, c);
		bool abandoned;

		pthread_mutex_lock(&r->lock);
		c->result = result;
		c->done = true;
		abandoned = c->abandoned;
		pthread_cond_broadcast(&r->finished);
		pthread_mutex_unlock(&r->lock);
		if (!abandoned)
			continue;
		if (result >= 0 && c->undo)
			c->undo(r, c);
		c->free(c);
	}
}

/* ---- buckets ----------------------------------------------------------------------------------- */

static int64_t sleep_offset(void)
{
	struct timespec boot;

	clock_gettime(CLOCK_BOOTTIME, &boot);
	return (int64_t)boot.tv_sec * (int64_t)NSEC_PER_SEC + boot.tv_nsec - (int64_t)mono_now_ns();
}

static void plan_bucket(struct recorder *r)
{
	uint64_t wall = wall_now_ns(), mono = mono_now_ns(), length = r->options.bucket_ns;

	/* Buckets join where their windows do, however long the drain in between took. */
	r->bucket_start_wall_ns = wall - (mono - r->drained_mono_ns);
	r->bucket_deadline_mono_ns = mono + (wall / length + 1) * length - wall;
	r->wall_offset_ns = (int64_t)wall - (int64_t)mono;
	r->sleep_offset_ns = sleep_offset();
	r->load = r->drained_load;
}

static bool clock_stepped(const struct recorder *r)
{
	int64_t moved = (int64_t)wall_now_ns() - (int64_t)mono_now_ns() - r->wall_offset_ns;

	return moved > CLOCK_STEP_NS || moved < -CLOCK_STEP_NS;
}

static void describe_sources(struct recorder *r, struct bucket_meta *m)
{
	for (size_t i = 0; i < SOURCE_N; i++) {
		struct source_state s;

		collector_source_state(r->collector, (enum source)i, &s);
		m->source[i].active = s.running;
		m->source[i].rate_mhz = (uint64_t)(s.rate_hz * 1000 + 0.5);
	}
}

static void close_bucket(struct recorder *r)
{
	bool stepped = clock_stepped(r),
	     slept = sleep_offset() - r->sleep_offset_ns > CLOCK_STEP_NS;
	struct filled f = {};

	if (window_close(r->window, &f) == 0) {
		struct bucket_meta *m = &f.bucket->meta;

		load_difference(&r->load, &r->drained_load, m);
		m->length_ns = MAX(m->length_ns, m->covered_ns);
		describe_sources(r, m);
		unwinding_used(r->unwinding, f.binary_keys, f.n_keys);
		r->options.closed(r->options.ctx, &f);
	}
	r->next_gap = slept ? GAP_STOPPED : stepped ? GAP_CLOCK_STEP : GAP_NONE;
	plan_bucket(r);
}

/* ---- windows ----------------------------------------------------------------------------------- */

static void publish_state(struct recorder *r, const struct slice *s, int error)
{
	struct recorder_state *st = &r->state;
	uint64_t bpf_bytes =
		collector_map_bytes(r->collector); /* a file for each map: not under the lock */

	pthread_mutex_lock(&r->lock);
	for (size_t i = 0; i < SOURCE_N; i++)
		collector_source_state(r->collector, (enum source)i, &st->source[i]);
	collector_hardware_state(r->collector, &st->hardware);
	for (size_t i = 0; s && i < SOURCE_N; i++) {
		const struct account *a = &s->source[i].sum;
		uint64_t all_ns = (s->mono_end_ns - s->mono_start_ns) * s->cpus_online;

		st->cost[i] = all_ns ? (double)a->seen * st->source[i].event_ns / (double)all_ns
				     : 0;
		st->total[i].seen += a->seen;
		st->total[i].stored += a->stored;
		st->total[i].idle += a->idle;
		st->walked += a->walked;
		st->reused += a->reused;
		for (size_t k = 0; k < LOSS_N; k++)
			st->total[i].lost[k] += a->lost[k];
	}
	process_table_stats(r->processes, &st->process);
	unwinding_state(r->unwinding, &st->unwinding);
	window_stats(r->window, &st->window);
	st->bpf_bytes = bpf_bytes;
	if (error < 0) {
		st->drain_errors++;
		st->last_error = error;
	} else if (s) {
		st->windows++;
		st->progress_mono_ns = mono_now_ns();
	}
	pthread_mutex_unlock(&r->lock);
}

/*
 * What a host runs is learnt from samples, and until then there are no tables for it: the first slices are short. From
 * each to the next they are twice as long, up to what is set.
 */
static void plan_slice(struct recorder *r)
{
	uint64_t limit = r->options.collect.slice_ns;

	r->slice_ns = MIN(r->slice_ns ? 2 * r->slice_ns : FIRST_SLICE_NS, limit);
	r->slice_deadline_mono_ns = mono_now_ns() + r->slice_ns;
}

/* What was drained, or could not be, becomes part of the open bucket. */
static int take_in(struct recorder *r, int drained, struct slice *s)
{
	struct bucket_meta begin = {
		.start_wall_ns = r->bucket_start_wall_ns,
		.length_ns = r->options.bucket_ns,
		.gap = (uint32_t)r->next_gap,
	};
	int result = drained;

	memcpy(begin.boot_id, r->boot_id, sizeof(begin.boot_id));
	if (result >= 0) {
		r->drained_mono_ns = s->mono_end_ns;
		process_table_poll(r->processes);
		result = window_add(r->window, s, &begin);
		unwinding_see(r->unwinding, s);
		process_table_expire(r->processes, s->mono_end_ns);
	}
	bursts_drain(r);
	publish_state(r, s, result);
	plan_slice(r);
	return result;
}

static int drain_window(struct recorder *r, bool bucket_end)
{
	_cleanup_(slice_free_p) struct slice *s = NULL;
	int result;

	load_read(&r->drained_load);
	result = collector_drain(r->collector, bucket_end, &s);

	return take_in(r, result, s);
}

static void step(struct recorder *r)
{
	uint64_t now = mono_now_ns();
	bool end = now >= r->bucket_deadline_mono_ns || clock_stepped(r);

	process_table_poll(r->processes);
	unwinding_follow(r->unwinding);
	collector_poll(r->collector);
	if (end || now >= r->slice_deadline_mono_ns)
		drain_window(r, end);
	if (end)
		close_bucket(r);
	run_calls(r);
}

static void *drain_thread(void *arg)
{
	struct recorder *r = arg;

	r->drained_mono_ns = mono_now_ns();
	load_read(&r->drained_load);
	plan_bucket(r);
	plan_slice(r);
	for (;;) {
		uint64_t now = mono_now_ns();
		uint64_t next = MIN(MIN(r->slice_deadline_mono_ns, r->bucket_deadline_mono_ns),
				    collector_wake_ns(r->collector));
		struct timespec until;
		bool stop;

		deadline_after(next > now ? MIN(next - now, POLL_NS) : 0, &until);
		pthread_mutex_lock(&r->lock);
		if (!r->stop && !r->calls && next > now)
			pthread_cond_timedwait(&r->wake, &r->lock, &until);
		stop = r->stop;
		pthread_mutex_unlock(&r->lock);
		step(r);
		if (stop)
			break;
	}
	drain_window(r, true);
	close_bucket(r);
	return NULL;
}

/* ---- from other threads ---------------------------------------------------------------------------- */

struct snapshot_call {
	struct call call;
	struct filled filled;
};

static int run_snapshot(struct recorder *r, struct call *call)
{
	struct snapshot_call *c = (struct snapshot_call *)call;
	int result = drain_window(r, false);

	if (result >= 0)
		result = window_snapshot(r->window, &c->filled);
	if (result == 0) {
		struct bucket_meta *m = &c->filled.bucket->meta;

		load_difference(&r->load, &r->drained_load, m);
		describe_sources(r, m);
		m->length_ns = m->covered_ns; /* so far */
	}
	return result;
}

static void free_snapshot(struct call *call)
{
	filled_done(&((struct snapshot_call *)call)->filled);
	free(call);
}

int recorder_snapshot(struct recorder *r, uint64_t timeout_ns, struct filled *ret)
{
	struct snapshot_call *c = new0(struct snapshot_call, 1);
	int result;

	if (!c)
		return -ENOMEM;
	c->call.fn = run_snapshot;
	c->call.free = free_snapshot;
	result = recorder_call(r, &c->call, timeout_ns);
	if (result == -ETIME)
		return result;
	if (result == 0) {
		*ret = c->filled;
		c->filled = (struct filled){};
	}
	free_snapshot(&c->call);
	return result;
}

int recorder_open_binary(struct recorder *r, uint64_t key)
{
	return process_table_open_binary(r->processes, key);
}

int recorder_open_debug_file(struct recorder *r, uint64_t key, const char *paths, size_t n,
			     size_t *ret_which)
{
	return process_table_open_debug_file(r->processes, key, paths, n, ret_which);
}

int recorder_quality(struct recorder *r, struct quality_row **ret, size_t *ret_n)
{
	return quality_rows(r->quality, ret, ret_n);
}

void recorder_get_state(struct recorder *r, struct recorder_state *ret)
{
	pthread_mutex_lock(&r->lock);
	*ret = r->state;
	pthread_mutex_unlock(&r->lock);
}

struct replace_call {
	struct call call;
	struct recorder_options options;
	struct collector *collector; /* the new one, then the old one */
	replaced_fn replaced;
	void *ctx;
};

static int hand_over(struct recorder *r, struct replace_call *c)
{
	_cleanup_(window_free_p) struct window *window = NULL;
	_cleanup_(slice_free_p) struct slice *last = NULL;
	struct collector *old = r->collector;
	int result;

	/* What fails up to here leaves everything as it was. */
	c->options.window.quality = r->quality;
	result = window_new(&c->options.window, r->processes, r->kallsyms, &window);
	load_read(&r->drained_load);
	if (result >= 0)
		result = collector_hand_over(old, c->collector, &last);
	if (result < 0)
		return result;
	take_in(r, 0, last);
	r->options.collect = c->options.collect;
	r->options.collect.places = &r->places;
	r->options.collect.tables = unwinding_tables(r->unwinding);
	r->options.window = c->options.window;
	r->options.bucket_ns = c->options.bucket_ns;
	r->options.max_bursts = c->options.max_bursts;
	close_bucket(r);
	r->collector = c->collector;
	c->collector = old;
	window_free(r->window);
	r->window = TAKE_PTR(window);
	plan_slice(r);
	publish_state(r, NULL, 0);
	return 0;
}

static int run_replace(struct recorder *r, struct call *call)
{
	struct replace_call *c = (struct replace_call *)call;
	int result = hand_over(r, c);

	c->replaced(c->ctx, result);
	return result;
}

static void free_replace(struct call *call)
{
	collector_free(((struct replace_call *)call)->collector);
	free(call);
}

int recorder_replace(struct recorder *r, const struct recorder_options *o,
		     struct collector *collector, replaced_fn replaced, void *ctx)
{
	struct replace_call *c = new0(struct replace_call, 1);

	if (!c) {
		collector_free(collector);
		return -ENOMEM;
	}
	c->call.fn = run_replace;
	c->call.free = free_replace;
	c->options = *o;
	c->collector = collector;
	c->replaced = replaced;
	c->ctx = ctx;
	recorder_post(r, &c->call);
	return 0;
}

const struct kernel_places *recorder_places(const struct recorder *r)
{
	return &r->places;
}

const struct walk_tables *recorder_tables(const struct recorder *r)
{
	return unwinding_tables(r->unwinding);
}

/* ---- life ---------------------------------------------------------------------------------------- */

static int read_boot_id(char ret[BOOT_ID_LEN + 1])
{
	_cleanup_(strbuf_done) struct strbuf b = {};
	size_t n = 0;
	int r;

	r = read_file_at(AT_FDCWD, "/proc/sys/kernel/random/boot_id", 128, &b);
	if (r < 0)
		return r;
	for (size_t i = 0; i < b.len && n < BOOT_ID_LEN; i++)
		if (b.data[i] != '-' && b.data[i] != '\n')
			ret[n++] = b.data[i];
	ret[n] = 0;
	return 0;
}

static void on_ksymbol(void *ctx, uint64_t address, uint32_t len, const char *name, bool gone)
{
	struct recorder *r = ctx;

	if (!r->kallsyms)
		return;
	if (gone)
		kallsyms_remove(r->kallsyms, address);
	else if (kallsyms_add(r->kallsyms, address, len, name, "bpf") < 0)
		log_debug("no room for kernel symbol %s", name);
}

static int load_kallsyms(struct recorder *r)
{
	_cleanup_close_ int fd = open("/proc/kallsyms", O_RDONLY | O_CLOEXEC);
	int result;

	if (fd < 0)
		return negative_errno();
	result = kallsyms_new(fd, &r->kallsyms);
	if (result < 0)
		log_warning("Kernel frames will have no names: cannot read /proc/kallsyms: %s",
			    strerror(-result));
	else
		kallsyms_each(r->kallsyms, places_tell, &r->places);
	return result;
}

/* Before the collector, which uses them. */
static int make_tables(struct recorder *r)
{
	int result = 0;

	if (r->options.table_bytes)
		result = unwinding_new(r->processes, r->options.table_cache, r->options.table_bytes,
				       &r->unwinding);
	if (result == -ENOMEM)
		return result;
	if (result < 0)
		log_warning("User stacks will go by frame pointers: no unwind tables: %s",
			    strerror(-result));
	r->options.collect.tables = unwinding_tables(r->unwinding);
	return 0;
}

struct recorder *recorder_free(struct recorder *r)
{
	if (!r)
		return NULL;
	recorder_stop(r);
	free_calls(r);
	bursts_free(r);
	window_free(r->window);
	quality_free(r->quality);
	collector_free(r->collector);
	unwinding_free(r->unwinding);
	process_table_free(r->processes);
	kallsyms_free(r->kallsyms);
	pthread_mutex_destroy(&r->lock);
	pthread_cond_destroy(&r->wake);
	pthread_cond_destroy(&r->finished);
	free(r);
	return NULL;
}

static void init_sync(struct recorder *r)
{

	pthread_mutex_init(&r->lock, NULL);
	cond_init_mono(&r->wake);
	cond_init_mono(&r->finished);
}

int recorder_new(const struct recorder_options *o, struct recorder **ret, char **ret_why)
{
	_cleanup_(recorder_free_p) struct recorder *r = new0(struct recorder, 1);
	int result;

	if (!r)
		return -ENOMEM;
	init_sync(r);
	r->options = *o;
	r->options.collect.places = &r->places;
	r->calls_tail = &r->calls;
	r->next_gap = GAP_NOT_RUNNING;
	result = read_boot_id(r->boot_id);
	if (result < 0)
		return result;
	load_kallsyms(r);
	/* Side-band before the collector: no sample may come from a process that nobody heard of. */
	result = process_table_new(&o->process, &r->processes);
	if (result == -EACCES || result == -EPERM || result == -ENOSYS)
		*ret_why = diagnose_perf(result);
	if (result < 0)
		return result;
	process_table_on_ksymbol(r->processes, on_ksymbol, r);
	result = make_tables(r);
	if (result >= 0)
		result = quality_new(&r->quality);
	if (result < 0)
		return result;
	r->options.window.quality = r->quality;
	result = collector_new(&r->options.collect, &r->collector, ret_why);
	if (result >= 0)
		result = window_new(&r->options.window, r->processes, r->kallsyms, &r->window);
	if (result < 0)
		return result;
	publish_state(r, NULL, 0);
	*ret = TAKE_PTR(r);
	return 0;
}

int recorder_start(struct recorder *r)
{
	int result;

	r->state.progress_mono_ns = mono_now_ns();
	result = thread_start(&r->thread, drain_thread, r);
	if (result < 0)
		return result;
	pthread_setname_np(r->thread, "drain");
	r->started = true;
	return 0;
}

void recorder_stop(struct recorder *r)
{
	if (!r || !r->started)
		return;
	pthread_mutex_lock(&r->lock);
	r->stop = true;
	pthread_cond_signal(&r->wake);
	pthread_mutex_unlock(&r->lock);
	pthread_join(r->thread, NULL);
	r->started = false;
}
