// SPDX-License-Identifier: GPL-2.0-or-later
#include <fcntl.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

#include "base/clock.h"
#include "base/io.h"
#include "collect/sideband.h"

/*
 * All rings together, and one. A process that lives for 5 ms leaves about 2 KiB of records, so that a CPU
 * which starts a thousand a second fills 400 KiB between two polls.
 */
#define RINGS_BYTES_MAX (8 << 20)
#define RING_BYTES_MAX (512 << 10)
#define RING_BYTES_MIN (32 << 10)
#define CPU_MAX 8192
#define PENDING_KEPT 16384 /* room for records that is not given back after a storm */
#define CPUS_TEXT_LIMIT 65536
/*
 * How often events are asked whether they still run, which interrupts their CPUs: for a CPU that went offline
 * and came back between two looks at the list of CPUs, which is read at every poll.
 */
#define ALIVE_CHECK_NS NSEC_PER_SEC
#define FUTURE_NS (60 * NSEC_PER_SEC)

/* ---- records ------------------------------------------------------------------------------------------- */

/* sample_id_all with TID and TIME: the trailer of every record. */
struct sample_id {
	uint32_t pid, tid;
	uint64_t time;
};

struct task_record {
	struct perf_event_header header;
	uint32_t pid, ppid, tid, ptid;
	uint64_t time;
};

struct comm_record {
	struct perf_event_header header;
	uint32_t pid, tid;
	char comm[];
};

struct mmap2_record {
	struct perf_event_header header;
	uint32_t pid, tid;
	uint64_t addr, len, pgoff;
	union {
		struct {
			uint32_t maj, min;
			uint64_t ino, ino_generation;
		};
		struct {
			uint8_t build_id_size, reserved[3];
			uint8_t build_id[20];
		};
	};
	uint32_t prot, flags;
	char filename[];
};

struct ksymbol_record {
	struct perf_event_header header;
	uint64_t addr;
	uint32_t len;
	uint16_t ksym_type, flags;
	char name[];
};

struct lost_record {
	struct perf_event_header header;
	uint64_t id, lost;
};

/*
 * Where the trailer begins, 0 if the record is too short: at the end. Not so for KSYMBOL, whose size the kernel
 * forgets to reset between one listener and the next: each sees a longer one, with rubbish at the end.
 */
static size_t trailer_offset(const void *record, size_t size)
{
	const struct perf_event_header *h = record;
	size_t end = size;

	if (size < sizeof(*h) + sizeof(struct sample_id))
		return 0;
	if (h->type == PERF_RECORD_KSYMBOL && size > sizeof(struct ksymbol_record)) {
		const struct ksymbol_record *k = record;
		size_t name = strnlen(k->name, size - sizeof(*k)) + 1;

		end = MIN(size, sizeof(*k) + (name + 7) / 8 * 8 + sizeof(struct sample_id));
	}
	return end - sizeof(struct sample_id);
}

uint64_t sideband_time(const void *record, size_t size)
{
	size_t at = trailer_offset(record, size);
	struct sample_id id = {};

	if (at)
		memcpy(&id, (const char *)record + at, sizeof(id));
	return id.time;
}

/* The text between its field and the trailer. */
static bool take_text(const void *record, size_t size, size_t offset, struct sideband_event *ret)
{
	size_t end = trailer_offset(record, size);

	if (end < offset)
		return false;
	ret->text = (const char *)record + offset;
	ret->text_len = strnlen(ret->text, end - offset);
	return true;
}

static int parse_mmap(const struct mmap2_record *m, size_t size, struct sideband_event *e)
{
	if (!take_text(m, size, sizeof(*m), e))
		return -EBADMSG;
	if (m->len == 0 || m->addr + m->len < m->addr)
		return -EBADMSG;
	e->type = SIDEBAND_MMAP;
	e->pid = m->pid;
	e->tid = m->tid;
	e->start = m->addr;
	e->len = m->len;
	e->offset = m->pgoff;
	if (m->header.misc & PERF_RECORD_MISC_MMAP_BUILD_ID) {
		e->build_id_len = MIN((size_t)m->build_id_size, sizeof(e->build_id));
		memcpy(e->build_id, m->build_id, e->build_id_len);
	} else {
		e->dev = makedev(m->maj, m->min);
		e->ino = m->ino;
	}
	if (e->text_len > 0 && e->text[0] == '/')
		proc_strip_deleted(e->text, &e->text_len);
	return 0;
}

static int parse_task(const struct task_record *t, size_t size, struct sideband_event *e)
{
	if (trailer_offset(t, size) < sizeof(*t))
		return -EBADMSG;
	e->type = t->header.type == PERF_RECORD_FORK ? SIDEBAND_FORK : SIDEBAND_EXIT;
	e->pid = t->pid;
	e->tid = t->tid;
	e->parent = t->ppid;
	e->parent_tid = t->ptid;
	return 0;
}

static int parse_comm(const struct comm_record *c, size_t size, struct sideband_event *e)
{
	if (!take_text(c, size, sizeof(*c), e))
		return -EBADMSG;
	e->type = SIDEBAND_COMM;
	e->pid = c->pid;
	e->tid = c->tid;
	e->exec = c->header.misc & PERF_RECORD_MISC_COMM_EXEC;
	return 0;
}

static int parse_ksymbol(const struct ksymbol_record *k, size_t size, struct sideband_event *e)
{
	if (!take_text(k, size, sizeof(*k), e))
		return -EBADMSG;
	e->type = SIDEBAND_KSYMBOL;
	e->start = k->addr;
	e->len = k->len;
	e->gone = k->flags & PERF_RECORD_KSYMBOL_FLAGS_UNREGISTER;
	return 0;
}

int sideband_parse(const void *record, size_t size, struct sideband_event *ret)
{
	const struct perf_event_header *h = record;
	struct sideband_event e = {};
	int r = 1;

	if (size < sizeof(*h) + sizeof(struct sample_id))
		return -EBADMSG;
	e.mono_ns = sideband_time(record, size);
	switch (h->type) {
	case PERF_RECORD_MMAP2:
		r = parse_mmap(record, size, &e);
		break;
	case PERF_RECORD_COMM:
		r = parse_comm(record, size, &e);
		break;
	case PERF_RECORD_FORK:
	case PERF_RECORD_EXIT:
		r = parse_task(record, size, &e);
		break;
	case PERF_RECORD_KSYMBOL:
		r = parse_ksymbol(record, size, &e);
		break;
	case PERF_RECORD_LOST:
		if (trailer_offset(record, size) < sizeof(struct lost_record))
			return -EBADMSG;
		e.len = ((const struct lost_record *)record)->lost;
		r = 2;
		break;
	}
	if (r >= 0)
		*ret = e;
	return r;
}

/* ---- rings ---------------------------------------------------------------------------------------------- */

struct ring {
	int cpu;
	int fd;
	struct perf_event_mmap_page *page;
	uint64_t enabled_ns; /* time enabled at the last look */
};

struct pending {
	uint64_t mono_ns;
	uint32_t seq;
	uint32_t size;
	const void *record;
};

struct sideband {
	struct ring *rings;
	size_t n, cap;
	size_t ring_bytes;
	size_t page_size;
	bool build_id;
	uint64_t lost;
	bool damaged; /* a ring whose records do not fit together was emptied */
	uint64_t checked_mono_ns;
	char *online; /* text of the list at the last look */
	struct pending *pending;
	size_t n_pending, cap_pending;
	/* Records that wrap around the end of a ring, joined. */
	char **joined;
	size_t n_joined, cap_joined;
};

static void ring_close(struct sideband *sb, struct ring *r)
{
	if (r->page)
		munmap(r->page, sb->page_size + sb->ring_bytes);
	r->page = NULL;
	r->fd = close_fd(r->fd);
}

static int open_event(int cpu, bool build_id)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE,
		.size = sizeof(attr),
		.config = PERF_COUNT_SW_DUMMY,
		.sample_type = PERF_SAMPLE_TID | PERF_SAMPLE_TIME,
		.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED,
		.mmap = 1,
		.mmap2 = 1,
		.comm = 1,
		.comm_exec = 1,
		.task = 1,
		.ksymbol = 1,
		.sample_id_all = 1,
		.watermark = 1,
		.wakeup_watermark = UINT32_MAX, /* it is polled */
		.use_clockid = 1,
		.clockid = CLOCK_MONOTONIC,
		.build_id = build_id,
	};
	int fd;

	fd = (int)syscall(SYS_perf_event_open, &attr, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);
	return fd < 0 ? negative_errno() : fd;
}

static int ring_open(struct sideband *sb, int cpu, struct ring *ret)
{
	_cleanup_close_ int fd = open_event(cpu, sb->build_id);
	void *p;

	/* 5.12 has build-ids in records; may go with 5.10. */
	if (fd == -EINVAL && sb->build_id) {
		fd = open_event(cpu, false);
		if (fd >= 0)
			sb->build_id = false;
	}
	if (fd < 0)
		return fd;
	p = mmap(NULL, sb->page_size + sb->ring_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		return negative_errno();
	*ret = (struct ring){ .cpu = cpu, .fd = TAKE_FD(fd), .page = p };
	return 0;
}

/* A ring's event is dead when its time stands still: its CPU went offline, and maybe came back. */
static bool ring_alive(struct ring *r)
{
	uint64_t v[2];

	if (read(r->fd, v, sizeof(v)) != sizeof(v) || v[1] == r->enabled_ns)
		return false;
	r->enabled_ns = v[1];
	return true;
}

/* ---- CPUs ------------------------------------------------------------------------------------------------ */

static struct ring *ring_of(struct sideband *sb, int cpu)
{
	for (size_t i = 0; i < sb->n; i++)
		if (sb->rings[i].cpu == cpu)
			return &sb->rings[i];
	return NULL;
}

/* 1 when it was opened now. */
static int cpu_ensure(struct sideband *sb, int cpu)
{
	struct ring *have = ring_of(sb, cpu), fresh = {};
	int r;

	if (have && have->page)
		return 0;
	r = ring_open(sb, cpu, &fresh);
	if (r < 0)
		return r;
	if (have) {
		*have = fresh;
		return 1;
	}
	r = ARRAY_GROW(sb->rings, sb->cap, sb->n + 1);
	if (r < 0) {
		ring_close(sb, &fresh);
		return r;
	}
	sb->rings[sb->n++] = fresh;
	return 1;
}

/* Opens an event on each CPU of a list such as "0-3,8". 1 when one was opened, else the last error. */
static int cpus_ensure(struct sideband *sb, const char *list)
{
	int opened = 0, error = 0;

	while (*list) {
		char *end;
		long from = strtol(list, &end, 10), to = from;

		if (end == list)
			break;
		if (*end == '-')
			to = strtol(end + 1, &end, 10);
		for (long cpu = MAX(from, 0L); cpu <= to && cpu < CPU_MAX; cpu++) {
			int r = cpu_ensure(sb, (int)cpu);

			opened |= r > 0;
			error = r < 0 ? r : error;
		}
		list = *end == ',' ? end + 1 : "";
	}
	return opened ?: error;
}

static bool close_dead(struct sideband *sb)
{
	bool dead = false;

	for (size_t i = 0; i < sb->n; i++)
		if (sb->rings[i].page && !ring_alive(&sb->rings[i])) {
			ring_close(sb, &sb->rings[i]);
			dead = true;
		}
	return dead;
}

/* 1 when events were opened or died: what happened on their CPUs meanwhile is not known. */
static int follow_cpus(struct sideband *sb, uint64_t mono_ns)
{
	_cleanup_(strbuf_done) struct strbuf text = {};
	int r = read_file_at(AT_FDCWD, "/sys/devices/system/cpu/online", CPUS_TEXT_LIMIT, &text);
	bool dead;

	/* Without sysfs: the CPUs that there are now. */
	if (r < 0 || !text.data) {
		strbuf_reset(&text);
		strbuf_printf(&text, "0-%ld", sysconf(_SC_NPROCESSORS_CONF) - 1);
		if (strbuf_error(&text) < 0)
			return strbuf_error(&text);
	}
	if (sb->online && streq(sb->online, text.data) &&
	    mono_ns - sb->checked_mono_ns < ALIVE_CHECK_NS)
		return 0;
	sb->checked_mono_ns = mono_ns;
	dead = close_dead(sb);
	r = cpus_ensure(sb, text.data);
	free(sb->online);
	/* With an error it is tried again at the next poll. */
	sb->online = r < 0 ? NULL : strbuf_take(&text, NULL);
	return r < 0 ? r : dead || r > 0;
}

static size_t ring_size(size_t page_size)
{
	long cpus = sysconf(_SC_NPROCESSORS_CONF);
	size_t want = MIN((size_t)RING_BYTES_MAX, (size_t)RINGS_BYTES_MAX / (size_t)MAX(cpus, 1L));
	size_t size = page_size;

	want = MAX(want, (size_t)RING_BYTES_MIN);
	while (size * 2 <= want)
		size *= 2;
	return size;
}

int sideband_new(struct sideband **ret)
{
	_cleanup_(sideband_free_p) struct sideband *sb = new0(struct sideband, 1);
	int r;

	if (!sb)
		return -ENOMEM;
	sb->page_size = (size_t)sysconf(_SC_PAGESIZE);
	sb->ring_bytes = ring_size(sb->page_size);
	sb->build_id = true;
	r = follow_cpus(sb, mono_now_ns());
	if (sb->n == 0)
		return r < 0 ? r : -ENODEV;
	*ret = TAKE_PTR(sb);
	return 0;
}

struct sideband *sideband_free(struct sideband *sb)
{
	if (!sb)
		return NULL;
	for (size_t i = 0; i < sb->n; i++)
		ring_close(sb, &sb->rings[i]);
	for (size_t i = 0; i < sb->n_joined; i++)
		free(sb->joined[i]);
	free(sb->joined);
	free(sb->pending);
	free(sb->rings);
	free(sb->online);
	free(sb);
	return NULL;
}

/* ---- polling --------------------------------------------------------------------------------------------- */

/* The record at `at`, in one piece. NULL without memory. */
static const void *whole_record(struct sideband *sb, const char *data, uint64_t at, size_t size)
{
	size_t offset = at & (sb->ring_bytes - 1), first = MIN(size, sb->ring_bytes - offset);
	char *copy;

	if (first == size)
		return data + offset;
	if (ARRAY_GROW(sb->joined, sb->cap_joined, sb->n_joined + 1) < 0)
		return NULL;
	copy = malloc(size);
	if (!copy)
		return NULL;
	memcpy(copy, data + offset, first);
	memcpy(copy + first, data, size - first);
	sb->joined[sb->n_joined++] = copy;
	return copy;
}

/* Lists the records of a ring up to `until`; returns where the next poll begins. */
static uint64_t list_ring(struct sideband *sb, struct ring *r, uint64_t until_mono_ns)
{
	uint64_t head = __atomic_load_n(&r->page->data_head, __ATOMIC_ACQUIRE),
		 at = r->page->data_tail;
	const char *data = (const char *)r->page + sb->page_size;

	while (at < head) {
		/* Records are aligned to 8 bytes, so that a header never wraps. */
		const struct perf_event_header *h =
			(const void *)(data + (at & (sb->ring_bytes - 1)));
		size_t size = h->size;
		const void *record;
		uint64_t mono_ns;

		if (size < sizeof(*h) || size > head - at) {
			sb->damaged = true;
			return head;
		}
		record = whole_record(sb, data, at, size);
		if (!record || ARRAY_GROW(sb->pending, sb->cap_pending, sb->n_pending + 1) < 0)
			return at;
		mono_ns = sideband_time(record, size);
		if (mono_ns > until_mono_ns && mono_ns - until_mono_ns < FUTURE_NS)
			return at;
		if (mono_ns > until_mono_ns) {
			/* No time at all: it must not stop the ring for ever. */
			sb->damaged = true;
			mono_ns = until_mono_ns;
		}
		sb->pending[sb->n_pending] = (struct pending){ .mono_ns = mono_ns,
							       .seq = (uint32_t)sb->n_pending,
							       .size = (uint32_t)size,
							       .record = record };
		sb->n_pending++;
		at += size;
	}
	return at;
}

static int by_time(const void *a, const void *b)
{
	const struct pending *x = a, *y = b;

	if (x->mono_ns != y->mono_ns)
		return x->mono_ns < y->mono_ns ? -1 : 1;
	return x->seq < y->seq ? -1 : x->seq > y->seq;
}

static bool deliver(struct sideband *sb, sideband_fn fn, void *ctx)
{
	bool lost = sb->damaged;

	sb->damaged = false;
	for (size_t i = 0; i < sb->n_pending; i++) {
		struct sideband_event e;
		int r = sideband_parse(sb->pending[i].record, sb->pending[i].size, &e);

		if (r == 0)
			fn(ctx, &e);
		if (r == 2)
			sb->lost += e.len;
		if (r == 2 || r < 0)
			lost = true;
	}
	return lost;
}

int sideband_poll(struct sideband *sb, sideband_fn fn, void *ctx)
{
	/*
	 * A ring that is read first lacks what happens while the others are read: nothing younger than this
	 * moment is taken from any.
	 */
	uint64_t until = mono_now_ns();
	_cleanup_free_ uint64_t *tails = NULL;
	bool lost;
	int r;

	tails = new0(uint64_t, sb->n);
	if (!tails)
		return -ENOMEM;
	for (size_t i = 0; i < sb->n; i++)
		if (sb->rings[i].page)
			tails[i] = list_ring(sb, &sb->rings[i], until);
	if (sb->n_pending > 1)
		qsort(sb->pending, sb->n_pending, sizeof(*sb->pending), by_time);
	lost = deliver(sb, fn, ctx);
	for (size_t i = 0; i < sb->n; i++)
		if (sb->rings[i].page)
			__atomic_store_n(&sb->rings[i].page->data_tail, tails[i], __ATOMIC_RELEASE);
	sb->n_pending = 0;
	if (sb->cap_pending > PENDING_KEPT) {
		free(sb->pending);
		sb->pending = NULL;
		sb->cap_pending = 0;
	}
	while (sb->n_joined > 0)
		free(sb->joined[--sb->n_joined]);
	r = follow_cpus(sb, until);
	return r < 0 ? r : lost || r > 0;
}

uint64_t sideband_lost(const struct sideband *sb)
{
	return sb->lost;
}

size_t sideband_bytes(const struct sideband *sb)
{
	return sb->n * (sb->page_size + sb->ring_bytes) + sb->cap_pending * sizeof(*sb->pending);
}
