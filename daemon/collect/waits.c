// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Off-CPU time: exact totals of every thread, weighted stacks of the waits that were kept.
 *
 * Totals are read by a task iterator just before the window is closed; threads that end send theirs through
 * the ring buffer. At a bucket's end the iterator also tells the waits in progress that are kept, with kernel
 * stack and user registers; their user stacks are read from outside (remote.c), once per wait, and believed
 * when a second reading finds the thread in the same wait still.
 */
#include <stdio.h>

#include <xxhash.h>

#include "base/clock.h"
#include "collect/internal.h"
#include "collect/remote.h"
#include "collect/threads.h"
#include "collect/threshold.h"

#define READ_BYTES 65536
#define MAX_RECORD                                                   \
	(sizeof(struct thread_record) + sizeof(struct wait_record) + \
	 MAX_KERNEL_FRAMES * sizeof(uint64_t))
#define REMOTE_TIMEOUT_NS (100 * NSEC_PER_MSEC)
#define MAX_STACKED_WAITS 65536 /* in progress at one bucket's end; those beyond lose their stack */

/* A wait in progress that this bucket is told. */
struct open_wait {
	struct off_cpu_key key;
	uint64_t ns;
	uint64_t thread_start, since_ns, now_ns;
	uint64_t ip, sp, fp;
	uint32_t word;
	uint32_t call;
	uint32_t first_ip; /* its kernel frames in ips */
	uint16_t nr_kernel;
	bool shed; /* beyond MAX_STACKED_WAITS */
};

struct waits {
	struct thread_table threads;
	const struct thread_table *before; /* those of the collector that hands over, meanwhile */
	struct bpf_link *totals, *waits; /* the iterators */
	struct remote_reader *reader;
	struct threshold threshold;
	/* For the window that is being closed. */
	struct slice_thread *told;
	size_t n_told, cap_told;
	struct open_wait *open;
	size_t n_open, cap_open;
	uint64_t *ips;
	size_t n_ips, cap_ips;
};

static struct waits *waits_of(struct collector *c)
{
	return c->sources[SOURCE_OFF_CPU].priv;
}

/* ---- records --------------------------------------------------------------------------------------- */

static int tell(struct waits *w, struct thread *th, const struct thread_record *rec)
{
	/* Room first: what was told is remembered, and told once. */
	int r = ARRAY_GROW(w->told, w->cap_told, w->n_told + 1);

	if (r == 0 && thread_tell(th, rec, &w->told[w->n_told]))
		w->n_told++;
	return r;
}

static bool waits_record(struct collector *c, uint32_t type, const void *data, size_t size)
{
	struct waits *w = waits_of(c);
	struct thread_record rec;
	struct thread *th;

	if (type != RECORD_THREAD_EXIT)
		return false;
	if (!w || size < sizeof(rec))
		return true;
	memcpy(&rec, data, sizeof(rec));
	th = thread_get(&w->threads, &rec);
	if (!th)
		return true;
	if (tell(w, th, &rec) < 0)
		w->threads.refused++;
	thread_drop(&w->threads, rec.tid, rec.thread_start);
	return true;
}

static int keep_open_wait(struct waits *w, const struct thread_record *rec,
			  const struct wait_record *wait, const uint64_t *ips)
{
	bool shed = w->n_open >= MAX_STACKED_WAITS;
	uint32_t nr_kernel = shed ? 0 : wait->nr_kernel;
	int r;

	r = ARRAY_GROW(w->open, w->cap_open, w->n_open + 1);
	if (r == 0)
		r = ARRAY_GROW(w->ips, w->cap_ips, w->n_ips + nr_kernel);
	if (r < 0)
		return r;
	w->open[w->n_open++] = (struct open_wait){
		.key = {
			.start = rec->start,
			.tgid = rec->tgid,
			.tid = rec->tid,
			.cause = rec->state >> 8 & 0xff,
			.task_state = wait->task_state,
		},
		.ns = wait->ns,
		.thread_start = rec->thread_start,
		.since_ns = rec->since_mono_ns,
		.now_ns = rec->now_mono_ns,
		.ip = wait->ip,
		.sp = wait->sp,
		.fp = wait->fp,
		.word = wait->word,
		.call = wait->call,
		.first_ip = w->n_ips,
		.nr_kernel = nr_kernel,
		.shed = shed,
	};
	if (nr_kernel)
		memcpy(w->ips + w->n_ips, ips, nr_kernel * sizeof(*ips));
	w->n_ips += nr_kernel;
	return 0;
}

/* ---- reading an iterator --------------------------------------------------------------------------- */

typedef int (*reading_fn)(struct waits *w, const struct thread_record *rec,
			  const struct wait_record *wait, const uint64_t *ips);

/* One record at the front of `size` bytes; the bytes it takes, 0 when it is not complete yet. */
static int take_record(struct waits *w, const char *data, size_t size, reading_fn each)
{
	uint64_t ips[MAX_KERNEL_FRAMES];
	struct thread_record rec;
	struct wait_record wait;
	size_t used = sizeof(rec);
	int r;

	if (size < used)
		return 0;
	memcpy(&rec, data, sizeof(rec));
	if (!(rec.state & THREAD_WAIT_FOLLOWS)) {
		r = each(w, &rec, NULL, NULL);
		return r < 0 ? r : (int)used;
	}
	if (size < used + sizeof(wait))
		return 0;
	memcpy(&wait, data + used, sizeof(wait));
	used += sizeof(wait);
	if (wait.nr_kernel > MAX_KERNEL_FRAMES)
		return -EBADMSG;
	if (size < used + wait.nr_kernel * sizeof(*ips))
		return 0;
	memcpy(ips, data + used, wait.nr_kernel * sizeof(*ips));
	used += wait.nr_kernel * sizeof(*ips);
	r = each(w, &rec, &wait, ips);
	return r < 0 ? r : (int)used;
}

static int take_records(struct waits *w, const char *data, size_t size, reading_fn each,
			size_t *ret_used)
{
	size_t used = 0;

	for (;;) {
		int r = take_record(w, data + used, size - used, each);

		if (r < 0)
			return r;
		if (r == 0)
			break;
		used += r;
	}
	*ret_used = used;
	return 0;
}

static int run_iterator(struct waits *w, struct bpf_link *link, reading_fn each)
{
	_cleanup_close_ int fd = bpf_iter_create(bpf_link__fd(link));
	_cleanup_free_ char *buf = malloc(READ_BYTES + MAX_RECORD);
	size_t have = 0, used;
	ssize_t n;
	int r;

	if (fd < 0)
		return negative_errno();
	if (!buf)
		return -ENOMEM;
	for (;;) {
		n = read(fd, buf + have, READ_BYTES);
		if (n < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (n < 0)
			return negative_errno();
		if (n == 0)
			return have ? -EBADMSG : 0;
		have += n;
		r = take_records(w, buf, have, each, &used);
		if (r < 0)
			return r;
		memmove(buf, buf + used, have - used);
		have -= used;
	}
}

/*
 * Of a wait in progress the collector before has told the time up to its own reading, a moment ago; of a thread
 * that it does not know yet, nothing.
 */
static int go_on_from(struct waits *w, struct thread *th, const struct thread_record *rec)
{
	const struct thread *before = thread_find(w->before, rec->tid, rec->thread_start);
	struct thread_record then = *rec;

	if (!before)
		return 0;
	then.now_mono_ns = MIN(rec->now_mono_ns, before->now_mono_ns);
	return tell(w, th, &then);
}

static int on_thread(struct waits *w, const struct thread_record *rec,
		     const struct wait_record *wait, const uint64_t *ips)
{
	struct thread *th;

	if (rec->state & THREAD_WAIT_REVOKED) {
		/* Its wait is the last one that was kept, if there was memory for it. */
		if (w->n_open > 0 && w->open[w->n_open - 1].key.tid == rec->tid)
			w->n_open--;
		return 0;
	}
	if (rec->state & THREAD_UNREAD) {
		th = thread_find(&w->threads, rec->tid, rec->thread_start);
		if (th)
			th->seen = w->threads.reading;
		return 0;
	}
	th = thread_get(&w->threads, rec);
	if (!th)
		return 0;
	th->seen = w->threads.reading;
	if (th->stack_since_ns != rec->since_mono_ns)
		thread_forget_stack(&w->threads, th);
	if (w->before)
		return go_on_from(w, th, rec);
	/* Without memory its time is told later, but the wait's part was ours to take now. */
	if (tell(w, th, rec) < 0 || (wait && keep_open_wait(w, rec, wait, ips) < 0))
		w->threads.refused++;
	return 0;
}

static int read_threads(struct waits *w, bool bucket_end)
{
	int r;

	thread_reading_begin(&w->threads);
	r = run_iterator(w, bucket_end ? w->waits : w->totals, on_thread);
	/* A reading that broke off has not seen all that are there. */
	if (r == 0)
		thread_reading_end(&w->threads);
	return r;
}

/* ---- user stacks of waits in progress --------------------------------------------------------------- */

static struct thread *thread_of(struct waits *w, const struct open_wait *o)
{
	return thread_find(&w->threads, o->key.tid, o->thread_start);
}

/* The waits whose user stack is not known yet. */
/* A walk that ended for want of what is being made meanwhile. */
static bool may_improve(uint8_t end)
{
	return end == WALK_NO_PROCESS || end == WALK_NO_TABLE || end == WALK_NO_MAPPING;
}

static int list_unread(struct waits *w, struct remote_stack **ret, size_t *ret_n)
{
	struct remote_stack *stacks = new0(struct remote_stack, w->n_open ?: 1);
	size_t n = 0;

	if (!stacks)
		return -ENOMEM;
	for (size_t i = 0; i < w->n_open; i++) {
		const struct open_wait *o = &w->open[i];
		const struct thread *th = thread_of(w, o);

		if (!o->word || o->shed || !th || (th->stack && !may_improve(th->stack_end)))
			continue;
		stacks[n++] = (struct remote_stack){
			.tgid = o->key.tgid,
			.tid = o->key.tid,
			.start = o->key.start,
			.ip = o->ip,
			.sp = o->sp,
			.fp = o->fp,
			.word = o->word,
			.tag = i,
		};
	}
	*ret = stacks;
	*ret_n = n;
	return 0;
}

static void take_stack(struct waits *w, struct remote_stack *s)
{
	const struct open_wait *o = &w->open[s->tag];
	struct thread *th = thread_of(w, o);

	if (!th || !s->ips || s->end == WALK_PENDING) {
		free(s->ips);
		return;
	}
	thread_keep_stack(&w->threads, th, o->since_ns, s);
}

static int confirm(struct waits *w, const struct thread_record *rec, const struct wait_record *wait,
		   const uint64_t *ips)
{
	struct thread *th = thread_find(&w->threads, rec->tid, rec->thread_start);

	if (th && th->stack && th->stack_since_ns == rec->since_mono_ns)
		th->stack_confirmed = true;
	return 0;
}

static int read_user_stacks(struct waits *w)
{
	_cleanup_free_ struct remote_stack *stacks = NULL;
	size_t n, done;
	int r;

	r = list_unread(w, &stacks, &n);
	if (r < 0 || n == 0)
		return r;
	r = remote_reader_run(w->reader, stacks, n, REMOTE_TIMEOUT_NS, &done);
	if (r == -EBUSY)
		return 0; /* these stay pending */
	if (r < 0)
		return r;
	for (size_t i = 0; i < done; i++)
		take_stack(w, &stacks[i]);
	return run_iterator(w, w->totals, confirm);
}

static int waits_before_swap(struct collector *c, bool bucket_end, struct slice *s)
{
	struct waits *w = waits_of(c);
	int r;

	w->n_open = w->n_ips = 0;
	r = read_threads(w, bucket_end);
	if (r < 0 || !bucket_end)
		return r;
	return read_user_stacks(w);
}

/*
 * One reading right after the other. Both count on: of a wait that ended between the two, which is less than it
 * takes to read all threads once, the part that lies there is told by neither.
 */
static int waits_hand_over(struct collector *old, struct collector *fresh)
{
	struct waits *w = waits_of(old), *next = waits_of(fresh);
	int r, k;

	w->n_open = w->n_ips = 0;
	r = read_threads(w, true);
	/* Marks the waits in progress that are kept as told so far, for their ends. */
	next->before = &w->threads;
	k = read_threads(next, true);
	next->before = NULL;
	if (r == 0)
		r = k;
	k = read_user_stacks(w);
	return r < 0 ? r : k;
}

/* ---- the slice --------------------------------------------------------------------------------------- */

struct drain {
	struct collector *c;
	struct slice *s;
	uint64_t samples;
};

static int add_row(struct slice *s, const struct off_cpu_key *key,
		   const struct off_cpu_value *value)
{
	int r = ARRAY_GROW(s->off_cpu, s->cap_off_cpu, s->n_off_cpu + 1);

	if (r < 0)
		return r;
	s->off_cpu[s->n_off_cpu++] = (struct slice_off_cpu){ *key, *value };
	return 0;
}

static int drain_one(void *ctx, const void *key, const void *value)
{
	struct drain *d = ctx;
	struct off_cpu_value v;
	struct off_cpu_key k;

	memcpy(&k, key, sizeof(k));
	memcpy(&v, value, sizeof(v));
	k.stack = slice_stack_id(d->c, d->s, SOURCE_OFF_CPU, k.stack, v.samples);
	d->samples += v.samples;
	return add_row(d->s, &k, &v);
}

static int add_told(struct waits *w, struct slice *s)
{
	int r = ARRAY_GROW(s->threads, s->cap_threads, s->n_threads + w->n_told);

	if (r < 0)
		return r;
	if (w->n_told)
		memcpy(s->threads + s->n_threads, w->told, w->n_told * sizeof(*w->told));
	s->n_threads += w->n_told;
	w->n_told = 0;
	return 0;
}

static bool same_stack(const struct slice *s, const struct slice_stack *a,
		       const struct slice_stack *b)
{
	return a->tgid == b->tgid && a->start == b->start && a->nr_kernel == b->nr_kernel &&
	       a->nr_user == b->nr_user && a->walk_end == b->walk_end &&
	       !memcmp(s->ips + a->first_ip, s->ips + b->first_ip,
		       (a->nr_kernel + a->nr_user) * sizeof(*s->ips));
}

static bool number_is(const void *ctx, uint32_t number, const void *key)
{
	const struct slice_stack *stacks = ctx;

	return stacks[number - 1].id == *(const uint64_t *)key;
}

/* Appends the frames of a wait in progress and describes them in *ret, which has no id yet. */
static int append_frames(struct waits *w, struct slice *s, const struct open_wait *o,
			 struct slice_stack *ret)
{
	const struct thread *th = thread_of(w, o);
	bool known = th && th->stack && th->stack_confirmed && th->stack_since_ns == o->since_ns;
	const uint64_t *user = known ? th->stack : &o->ip;
	size_t nr_user = known ? th->n_stack : o->word && o->ip ? 1 : 0;
	int r = ARRAY_GROW(s->ips, s->cap_ips, s->n_ips + o->nr_kernel + nr_user);

	if (r < 0)
		return r;
	*ret = (struct slice_stack){
		.mono_ns = o->now_ns,
		.start = o->key.start,
		.tgid = o->key.tgid,
		.nr_kernel = o->nr_kernel,
		.nr_user = nr_user,
		.nr_fp = known ? th->stack_fp : 0,
		.walk_end = known     ? th->stack_end
			    : o->word ? WALK_PENDING
				      : WALK_NONE,
		.source = SOURCE_OFF_CPU,
		.first_ip = s->n_ips,
		.call = o->call,
	};
	if (o->nr_kernel)
		memcpy(s->ips + s->n_ips, w->ips + o->first_ip, o->nr_kernel * sizeof(*s->ips));
	memcpy(s->ips + s->n_ips + o->nr_kernel, user, nr_user * sizeof(*s->ips));
	return 0;
}

static uint64_t stack_hash(const struct collector *c, const struct slice *s,
			   const struct slice_stack *k)
{
	const uint64_t head[] = { k->start, k->tgid, k->nr_kernel, k->nr_user, k->walk_end };
	uint64_t seed = XXH3_64bits_withSeed(head, sizeof(head), c->skel->rodata->hash_seed), id;

	id = XXH3_64bits_withSeed(s->ips + k->first_ip,
				  (k->nr_kernel + k->nr_user) * sizeof(*s->ips), seed);
	return id & c->skel->rodata->hash_mask ?: 1;
}

/*
 * The id of a wait's stack, which joins the slice's. `numbers` holds those that came this way; the ids are of
 * another hash than the kernel's, so the same stack may be there under both.
 */
static int add_stack(struct collector *c, struct slice *s, struct index *numbers,
		     const struct open_wait *o, uint64_t *ret_id)
{
	struct slice_stack k;
	uint32_t number;
	int r = append_frames(waits_of(c), s, o, &k);

	if (r < 0)
		return r;
	k.id = stack_hash(c, s, &k);
	number = index_find(numbers, k.id, number_is, s->stacks, &k.id);
	if (number) {
		*ret_id = k.id;
		if (!same_stack(s, &s->stacks[number - 1], &k)) {
			s->source[SOURCE_OFF_CPU].sum.lost[LOSS_STACK_COLLISION]++;
			*ret_id = STACK_ID_NONE;
		}
		return 0;
	}
	r = ARRAY_GROW(s->stacks, s->cap_stacks, s->n_stacks + 1);
	if (r == 0)
		r = index_add(numbers, k.id, s->n_stacks + 1);
	if (r < 0)
		return r;
	s->stacks[s->n_stacks++] = k;
	s->n_ips += k.nr_kernel + k.nr_user;
	*ret_id = k.id;
	return 0;
}

/*
 * Waits in progress are no events yet: those count when they end. They are samples that reached the daemon by
 * another way than the maps.
 */
static int add_open_waits(struct collector *c, struct slice *s)
{
	_cleanup_(index_done) struct index numbers = {};
	struct account *a = &s->source[SOURCE_OFF_CPU].sum;
	struct waits *w = waits_of(c);
	int first = 0;

	for (size_t i = 0; i < w->n_open; i++) {
		struct open_wait *o = &w->open[i];
		struct off_cpu_value v = { .samples = 1, .ns = o->ns };
		int r = 0;

		if (!o->shed)
			r = add_stack(c, s, &numbers, o, &o->key.stack);
		if (r == 0)
			r = add_row(s, &o->key, &v);
		a->seen++;
		if (r < 0) {
			first = first ?: r;
			a->lost[LOSS_OTHER]++;
			continue;
		}
		a->stored++;
		a->lost[LOSS_SHED] += o->shed;
	}
	w->n_open = 0;
	return first;
}

static void use_threshold(struct collector *c)
{
	uint64_t t = waits_of(c)->threshold.ns;

	c->skel->bss->threshold_ns = t;
	c->sources[SOURCE_OFF_CPU].state.threshold_ns = t;
}

static int waits_drain(struct collector *c, unsigned set, struct slice *s)
{
	struct account *a = &s->source[SOURCE_OFF_CPU].sum;
	struct drain d = { .c = c, .s = s };
	struct waits *w = waits_of(c);
	int r, k;

	s->threshold_ns = w->threshold.ns;
	r = drain_map(c, set ? c->skel->maps.off_cpu_b : c->skel->maps.off_cpu_a, drain_one, &d);
	slice_balance(s, SOURCE_OFF_CPU, d.samples);
	k = wakers_drain(c, set, s);
	if (r == 0)
		r = k;
	stacks_remember(c, s, SOURCE_OFF_CPU);
	threshold_adapt(&w->threshold, &c->o, s);
	use_threshold(c);
	k = add_told(w, s);
	if (r == 0)
		r = k;
	k = add_open_waits(c, s);
	if (r == 0)
		r = k;
	a->seen += w->threads.refused;
	a->lost[LOSS_STATE_FULL] += w->threads.refused;
	w->threads.refused = 0;
	return r;
}

/* ---- the source --------------------------------------------------------------------------------------- */

static const char *hook_name(enum resume_hook hook)
{
	static const char *const names[] = {
		[RESUME_SCHED_EXIT] = "sched_exit_tp",
		[RESUME_KPROBE] = "finish_task_switch",
		[RESUME_SPLIT] = "sched_switch",
	};

	return names[hook];
}

/* The ways to take stacks that this kernel may have, best first; false when there are no more. */
static bool choose_hook(struct collector *c, enum resume_hook *ret)
{
	/* First without what only wakers need. */
	unsigned refused = c->sources[SOURCE_OFF_CPU].attempt;
	unsigned skip = c->o.skip_hooks + refused - (refused > 0 && wakers_wanted(c));
	enum resume_hook ways[3];
	unsigned n = 0;

	if (c->hooks.sched_exit)
		ways[n++] = RESUME_SCHED_EXIT;
	if (c->hooks.finish_task_switch)
		ways[n++] = RESUME_KPROBE;
	ways[n++] = RESUME_SPLIT;
	if (skip >= n)
		return false;
	*ret = ways[skip];
	return true;
}

static int use_resume_hook(struct collector *c, enum resume_hook hook)
{
	struct sysprofd_bpf *skel = c->skel;
	int r = 0;

	skel->rodata->resume_hook = hook;
	if (hook == RESUME_SCHED_EXIT)
		use_program(skel->progs.offcpu_sched_exit);
	else if (hook == RESUME_KPROBE)
		use_program(skel->progs.offcpu_finish_task_switch);
	else
		r = hooks_use_sys_exit(c);
	if (hook == RESUME_SPLIT && r == 0)
		r = use_map(skel->maps.split_waits, 0);
	if (hook == RESUME_SPLIT && r == 0)
		r = use_map(skel->maps.split_scratch, 0);
	return r;
}

#define REUSE_ENTRIES \
	(1U << 15) /* 3 MB; two places share two entries, which serves 10,000 threads well */

static int use_reuse(struct collector *c)
{
	struct sysprofd_bpf *skel = c->skel;
	uint32_t entries = MAX(REUSE_ENTRIES >> c->shrink, 2U);

	skel->rodata->reuse_mask = entries - 1;
	return use_map(skel->maps.reuse_entries, entries);
}

static int waits_configure(struct collector *c)
{
	struct sysprofd_bpf *skel = c->skel;
	uint32_t entries = count_entries(c, (c->o.walks_per_second ?: WALKS_PER_SECOND) / 4.0, 4096,
					 32768);
	enum resume_hook hook;
	int r;

	r = hooks_probe(c);
	if (r < 0)
		return r;
	if (!choose_hook(c, &hook)) {
		source_off(c, SOURCE_OFF_CPU, "%s", c->sources[SOURCE_OFF_CPU].state.text);
		return 0;
	}
	skel->rodata->off_cpu_enabled = true;
	use_program(skel->progs.offcpu_totals);
	use_program(skel->progs.offcpu_waits);
	r = hooks_use_switch(c);
	if (r == 0)
		r = use_resume_hook(c, hook);
	if (r == 0)
		r = use_map(skel->maps.iter_spaces, 0);
	if (r == 0)
		r = use_reuse(c);
	if (r == 0)
		r = use_map(skel->maps.off_cpu_a, entries);
	if (r == 0)
		r = use_map(skel->maps.off_cpu_b, entries);
	if (r == 0 && wakers_wanted(c) && !c->sources[SOURCE_OFF_CPU].attempt)
		r = wakers_configure(c);
	return r;
}

static int attach_iterators(struct collector *c)
{
	struct waits *w = waits_of(c);

	w->totals = bpf_program__attach_iter(c->skel->progs.offcpu_totals, NULL);
	if (!w->totals)
		return negative_errno();
	w->waits = bpf_program__attach_iter(c->skel->progs.offcpu_waits, NULL);
	return w->waits ? 0 : negative_errno();
}

static int waits_attach(struct collector *c)
{
	enum resume_hook hook = c->skel->rodata->resume_hook;
	struct source_state *state = &c->sources[SOURCE_OFF_CPU].state;
	struct remote_options ro = {
		.proc = "/proc",
		.ip_mask = c->skel->rodata->user_ip_mask,
		.tables = c->o.tables,
	};
	struct waits *w = new0(struct waits, 1);
	int r;

	if (!w)
		return -ENOMEM;
	c->sources[SOURCE_OFF_CPU].priv = w;
	w->threads.max = c->o.max_threads;
	w->threads.since_boot_ns = c->skel->rodata->attached_boot_ns;
	threshold_begin(&w->threshold, &c->o);
	use_threshold(c);
	r = remote_reader_new(&ro, &w->reader);
	if (r == 0)
		r = attach_iterators(c);
	if (r == 0)
		r = hooks_attach_resume(c, hook);
	if (r == 0)
		r = hooks_attach_switch(c);
	if (r == 0)
		r = wakers_attach(c);
	/* Threads that wait already are made known; their waits count from now. */
	if (r == 0)
		r = read_threads(w, false);
	if (r < 0)
		return r;
	snprintf(state->hook, sizeof(state->hook), "%s", hook_name(hook));
	wakers_name(c);
	return 0;
}

static void waits_free(struct collector *c)
{
	struct waits *w = waits_of(c);

	wakers_free(c);
	if (!w)
		return;
	bpf_link__destroy(w->totals);
	bpf_link__destroy(w->waits);
	remote_reader_free(w->reader);
	thread_table_done(&w->threads);
	free(w->told);
	free(w->open);
	free(w->ips);
	free(w);
	c->sources[SOURCE_OFF_CPU].priv = NULL;
}

/* A wait whose waker was not looked at is counted all the same. */
static bool waits_counts(const struct collector *c, const struct bpf_program *p)
{
	return p != c->skel->progs.offcpu_waking;
}

const struct source_ops waits_ops = {
	.prefix = "offcpu_",
	.configure = waits_configure,
	.attach = waits_attach,
	.poll = wakers_poll,
	.wake_ns = wakers_wake_ns,
	.counts = waits_counts,
	.before_swap = waits_before_swap,
	.hand_over = waits_hand_over,
	.drain = waits_drain,
	.record = waits_record,
	.free = waits_free,
};
