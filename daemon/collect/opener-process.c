// SPDX-License-Identifier: GPL-2.0-or-later
#include <linux/capability.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>

#include "base/clock.h"
#include "collect/opener-process.h"
#include "helper/child.h"
#include "helper/privileges.h"
#include "helper/process.h"
#include "sysprofd/v1/opener.pb-c.h"

#define MESSAGE_MAX 32768 /* some paths of 4,096 bytes, and the rest */
#define MEMORY (512U << 20) /* of addresses: threads */
#define DESCRIPTORS_MAX 64
/* The opener answers by itself when the time is over; when it does not do that, it hangs. */
#define GRACE_NS (2 * NSEC_PER_SEC)

/* ---- the process ----------------------------------------------------------------------------------- */

static const uint32_t kept[] = {
	CAP_SYS_PTRACE, /* /proc/PID/root, map_files */
	CAP_DAC_READ_SEARCH, /* files that only their owner may read */
#ifdef CAP_CHECKPOINT_RESTORE
	CAP_CHECKPOINT_RESTORE, /* map_files */
#endif
};

static bool is_kept(unsigned long c)
{
	for (size_t i = 0; i < ARRAY_SIZE(kept); i++)
		if (kept[i] == c)
			return true;
	return false;
}

/* What it has of the kept ones stays, all else goes for good. */
static int drop_capabilities(void)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct has[2] = {}, want[2] = {};

	if (syscall(SYS_capget, &head, has) < 0)
		return negative_errno();
	for (unsigned long c = 0; prctl(PR_CAPBSET_READ, c, 0, 0, 0) >= 0; c++)
		if (!is_kept(c))
			(void)prctl(PR_CAPBSET_DROP, c, 0, 0, 0);
	for (size_t i = 0; i < ARRAY_SIZE(kept); i++) {
		uint32_t bit = has[kept[i] / 32].permitted & 1U << kept[i] % 32;

		want[kept[i] / 32].permitted |= bit;
		want[kept[i] / 32].effective |= bit;
	}
	(void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	if (syscall(SYS_capset, &head, want) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return negative_errno();
	return 0;
}

static int confine(uint64_t memory)
{
	int r = privileges_limit(RLIMIT_NOFILE, DESCRIPTORS_MAX);

	/* An arena for each thread would be the larger part of it. */
	mallopt(M_ARENA_MAX, 1);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	if (r >= 0)
		r = privileges_limit(RLIMIT_AS, memory);
#endif
	if (r >= 0)
		r = privileges_limit(RLIMIT_CORE, 0);
	if (r >= 0)
		r = privileges_limit(RLIMIT_FSIZE, 0);
	if (r >= 0)
		r = drop_capabilities();
	if (r >= 0 && prctl(PR_SET_DUMPABLE, 0) < 0)
		r = negative_errno();
	return r;
}

/* Whether there are as many paths as it says, each with its NUL. */
static bool has_paths(const Sysprofd__V1__OpenRequest *q)
{
	size_t n = 0;

	for (size_t i = 0; i < q->path.len; i++)
		n += q->path.data[i] == 0;
	return q->path.len == 0 ? q->n_debug == 0
				: n == MAX(q->n_debug, 1U) && q->path.data[q->path.len - 1] == 0;
}

static int open_asked(struct opener *o, const Sysprofd__V1__OpenRequest *q, int proc_fd,
		      size_t *ret_which)
{
	struct open_request rq = {
		.jit_map = q->jit_map,
		.proc_fd = proc_fd,
		.pids = { q->pid, q->parent },
		.start = q->start,
		.end = q->end,
		.path = q->path.len > 0 ? (const char *)q->path.data : NULL,
		.n_debug = q->n_debug,
		.identity = {
			.author = q->author,
			.dev = q->dev,
			.ino = q->ino,
			.generation = q->generation,
		},
		.slow_dev = q->slow_dev,
	};

	if (proc_fd < 0 || !has_paths(q) || q->build_id.len > sizeof(rq.identity.build_id))
		return -EINVAL;
	rq.identity.build_id_len = q->build_id.len;
	if (q->build_id.len > 0)
		memcpy(rq.identity.build_id, q->build_id.data, q->build_id.len);
	return open_debug_with_deadline(o, &rq, q->timeout_ns, ret_which);
}

static int turn(struct channel *c, struct opener *o)
{
	Sysprofd__V1__OpenResponse answer = SYSPROFD__V1__OPEN_RESPONSE__INIT;
	_cleanup_close_ int proc_fd = -1, fd = -1;
	ProtobufCMessage *m = NULL;
	size_t which = 0;
	int r;

	r = channel_receive(c, &sysprofd__v1__open_request__descriptor, CHANNEL_FOREVER, &m,
			    &proc_fd);
	if (r < 0)
		return r;
	fd = open_asked(o, (const Sysprofd__V1__OpenRequest *)m, proc_fd, &which);
	answer.id = ((const Sysprofd__V1__OpenRequest *)m)->id;
	answer.error = fd < 0 ? (uint32_t)-fd : 0;
	answer.which = (uint32_t)which;
	channel_message_free(c, m);
	return channel_send(c, &answer.base, fd, CHANNEL_FOREVER);
}

int opener_main(const char *how)
{
	struct channel channel;
	struct opener *o;
	uint64_t memory;
	int r;

	if (helper_begin(how, "sysprofd-opener", MESSAGE_MAX, &channel, &memory) < 0 ||
	    opener_new(false, &o) < 0 || confine(memory) < 0)
		return EXIT_FAILURE;
	do
		r = turn(&channel, o);
	while (r >= 0);
	channel_done(&channel);
	/* Threads that hang are none to wait for. */
	_exit(r == -EPIPE ? EXIT_SUCCESS : EXIT_FAILURE);
}

/* ---- in the daemon ------------------------------------------------------------------------------- */

struct opener_process {
	pthread_mutex_t lock;
	struct helper_process process;
	uint64_t last_id;
	atomic_uint_fast64_t failures; /* readable without the lock */
	atomic_int pid;
};

int opener_process_new(struct opener_process **ret)
{
	struct opener_process *p = new0(struct opener_process, 1);

	if (!p)
		return -ENOMEM;
	pthread_mutex_init(&p->lock, NULL);
	helper_process_init(&p->process, "sysprofd-opener", "--opener", MEMORY);
	*ret = p;
	return 0;
}

struct opener_process *opener_process_free(struct opener_process *p)
{
	if (!p)
		return NULL;
	helper_process_done(&p->process);
	pthread_mutex_destroy(&p->lock);
	free(p);
	return NULL;
}

static int send_request(struct opener_process *p, const struct open_request *rq, uint64_t deadline)
{
	Sysprofd__V1__OpenRequest m = SYSPROFD__V1__OPEN_REQUEST__INIT;
	uint64_t now = mono_now_ns();

	m.id = ++p->last_id;
	m.jit_map = rq->jit_map;
	m.pid = rq->pids[0];
	m.parent = rq->pids[1];
	m.start = rq->start;
	m.end = rq->end;
	m.path.data = (uint8_t *)rq->path;
	m.path.len = open_paths_length(rq);
	m.n_debug = (uint32_t)rq->n_debug;
	m.build_id.data = (uint8_t *)rq->identity.build_id;
	m.build_id.len = rq->identity.build_id_len;
	m.author = rq->identity.author;
	m.dev = rq->identity.dev;
	m.ino = rq->identity.ino;
	m.generation = rq->identity.generation;
	m.slow_dev = rq->slow_dev;
	m.timeout_ns = deadline > now ? deadline - now : 0;
	return channel_send(&p->process.channel, &m.base, rq->proc_fd, deadline + GRACE_NS);
}

/* The descriptor, or what kept the opener from opening the file in *ret_error; negative: there is no answer. */
static int receive_answer(struct opener_process *p, const struct open_request *rq,
			  uint64_t deadline, int *ret, size_t *ret_which)
{
	ProtobufCMessage *m = NULL;
	const Sysprofd__V1__OpenResponse *a;
	_cleanup_close_ int fd = -1;
	int r;

	r = channel_receive(&p->process.channel, &sysprofd__v1__open_response__descriptor,
			    deadline + GRACE_NS, &m, &fd);
	if (r < 0)
		return r;
	a = (const Sysprofd__V1__OpenResponse *)m;
	if (a->id != p->last_id || (a->error == 0) != (fd >= 0) || a->error > 4095 ||
	    a->which >= MAX(rq->n_debug, (size_t)1))
		r = -EBADMSG;
	if (r >= 0) {
		*ret = a->error ? -(int)a->error : TAKE_FD(fd);
		*ret_which = a->which;
	}
	channel_message_free(&p->process.channel, m);
	return r;
}

/* One that has died since the last request is replaced. */
static int ask(struct opener_process *p, const struct open_request *rq, uint64_t deadline, int *ret,
	       size_t *ret_which)
{
	int r = -EIO;

	for (int attempt = 0; attempt < 2; attempt++) {
		r = helper_process_ensure(&p->process, deadline);
		if (r < 0)
			return r;
		p->pid = p->process.pid;
		r = send_request(p, rq, deadline);
		if (r >= 0)
			r = receive_answer(p, rq, deadline, ret, ret_which);
		if (r >= 0) {
			helper_process_answered(&p->process);
			return 0;
		}
		helper_process_failed(&p->process);
		p->pid = 0;
		p->failures++;
		if (r != -EPIPE)
			break;
	}
	return r;
}

int opener_process_open(struct opener_process *p, const struct open_request *rq,
			uint64_t timeout_ns, size_t *ret_which)
{
	uint64_t deadline = mono_now_ns() + timeout_ns;
	struct timespec until = { (time_t)(deadline / NSEC_PER_SEC),
				  (long)(deadline % NSEC_PER_SEC) };
	int r, fd = -EIO;

	if (pthread_mutex_clocklock(&p->lock, CLOCK_MONOTONIC, &until) != 0)
		return -EBUSY;
	r = ask(p, rq, deadline, &fd, ret_which);
	pthread_mutex_unlock(&p->lock);
	/* Of a file whose opener hangs or dies nothing is known. */
	return r < 0 ? -EBUSY : fd;
}

void opener_process_stats(const struct opener_process *p, struct opener_stats *ret)
{
	*ret = (struct opener_stats){
		.failures = atomic_load(&p->failures),
		.pid = atomic_load(&p->pid),
	};
}
