// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Kinds of waits. The kernel stack of a thread that waits names what for: not its innermost function, which is the
 * scheduler's, nor its outermost, the system call, but the innermost that means something: folio_wait_bit_common below
 * read(2) waits for a disk, pipe_read below the same call for another process. The table below holds those functions
 * as they are called in 5.10 to 6.18; what is not in it is told by the system call, and else is `other`.
 *
 * Three meet in one stack: a page fault waits for I/O, and is the page fault's; a futex with priority inheritance waits in
 * the kernel's lock, and is the futex's; a lock that a page fault or a read takes is the lock's.
 */
#include "../bpf/sysprofd.h"
#include "window/waits.h"

#define MAY_IDLE_NS (100 * NSEC_PER_MSEC)
#define MAY_POOL_NS (500 * NSEC_PER_MSEC)
#define TASK_NOLOAD 0x400U /* an idle thread of the kernel, by its own word */
#define IDLE_DEPTH \
	2 /* functions between kthread() and the scheduler of a thread that waits for work */
#define BASE_NAME_MAX 64
#define FUTEX_CMD_MASK 0x7fU
#define FUTEX_CMD_WAIT_BITSET 9

struct wait_name {
	const char *name;
	struct wait_place place;
};

#define IO                          \
	{                           \
		WAIT_IO, WAIT_WORKS \
	}
#define LOCK                          \
	{                             \
		WAIT_LOCK, WAIT_WORKS \
	}
#define SLEEP                          \
	{                              \
		WAIT_SLEEP, WAIT_IDLES \
	}
#define SIGNAL                            \
	{                                 \
		WAIT_SLEEP, WAIT_MAY_IDLE \
	}
#define POLL                             \
	{                                \
		WAIT_POLL, WAIT_MAY_IDLE \
	}
#define FUTEX                          \
	{                              \
		WAIT_FUTEX, WAIT_WORKS \
	}
#define FAULT                               \
	{                                   \
		WAIT_PAGE_FAULT, WAIT_WORKS \
	}
#define PIPE                          \
	{                             \
		WAIT_PIPE, WAIT_WORKS \
	}
#define SOCKET                          \
	{                               \
		WAIT_SOCKET, WAIT_WORKS \
	}
#define ACCEPT                             \
	{                                  \
		WAIT_SOCKET, WAIT_MAY_IDLE \
	}
#define CHILD                          \
	{                              \
		WAIT_CHILD, WAIT_WORKS \
	}
#define OTHER                          \
	{                              \
		WAIT_OTHER, WAIT_WORKS \
	}
#define HALTED                         \
	{                              \
		WAIT_OTHER, WAIT_IDLES \
	}

/* In the order of strcmp(). Comments name the kernel's file, and the release that renamed a function. */
static const struct wait_name functions_known[] = {
	{ "__do_wait", CHILD }, /* kernel/exit.c, 6.5 */
	{ "__down", LOCK }, /* kernel/locking/semaphore.c */
	{ "__down_common", LOCK },
	{ "__down_interruptible", LOCK },
	{ "__down_killable", LOCK },
	{ "__down_timeout", LOCK },
	{ "__folio_lock", IO }, /* mm/filemap.c, 5.16 */
	{ "__folio_lock_killable", IO },
	{ "__folio_lock_or_retry", FAULT },
	{ "__fuse_request_send", IO }, /* fs/fuse/dev.c: another process, as a disk */
	{ "__fuse_simple_request", IO },
	{ "__futex_wait", FUTEX }, /* kernel/futex/waitwake.c, 6.7 */
	{ "__get_request", IO },
	{ "__iomap_dio_rw", IO },
	{ "__lock_page", IO }, /* mm/filemap.c, until 5.15 */
	{ "__lock_page_killable", IO },
	{ "__lock_page_or_retry", FAULT },
	{ "__lock_sock", LOCK }, /* net/core/sock.c */
	{ "__mutex_lock", LOCK }, /* kernel/locking/mutex.c */
	{ "__mutex_lock_interruptible_slowpath", LOCK },
	{ "__mutex_lock_killable_slowpath", LOCK },
	{ "__mutex_lock_slowpath", LOCK },
	{ "__percpu_down_read", LOCK }, /* kernel/locking/percpu-rwsem.c */
	{ "__refrigerator", OTHER }, /* kernel/freezer.c */
	{ "__rt_mutex_slowlock", LOCK }, /* kernel/locking/rtmutex.c */
	{ "__skb_wait_for_more_packets", SOCKET }, /* net/core/datagram.c */
	{ "__synchronize_srcu", OTHER },
	{ "__unix_dgram_recvmsg", SOCKET }, /* net/unix/af_unix.c */
	{ "__wait_on_buffer", IO }, /* fs/buffer.c */
	{ "__wait_rcu_gp", OTHER }, /* kernel/rcu/update.c: a grace period */
	{ "__ww_mutex_lock", LOCK },
	{ "anon_pipe_read", PIPE }, /* fs/pipe.c, 6.15 */
	{ "anon_pipe_write", PIPE },
	{ "asm_exc_page_fault", FAULT }, /* arch/x86 */
	{ "balance_dirty_pages", IO }, /* mm/page-writeback.c: the writer is slowed to the disk */
	{ "balance_dirty_pages_ratelimited", IO },
	{ "balance_dirty_pages_ratelimited_flags", IO },
	{ "bit_wait_io", IO }, /* kernel/sched/wait_bit.c */
	{ "bit_wait_io_timeout", IO },
	{ "blk_execute_rq", IO }, /* block/blk-mq.c */
	{ "blk_mq_freeze_queue_wait", IO },
	{ "blk_mq_get_tag", IO },
	{ "blk_wait_io", IO },
	{ "btrfs_wait_ordered_range", IO },
	{ "core_sys_select", POLL }, /* fs/select.c */
	{ "d_alloc_parallel", LOCK }, /* fs/dcache.c: another lookup of the same name */
	{ "devkmsg_read", POLL }, /* kernel/printk */
	{ "dio_await_completion", IO },
	{ "do_epoll_pwait", POLL }, /* fs/eventpoll.c */
	{ "do_epoll_wait", POLL },
	{ "do_futex", FUTEX }, /* kernel/futex */
	{ "do_mem_abort", FAULT }, /* arch/arm64 */
	{ "do_nanosleep", SLEEP }, /* kernel/time/hrtimer.c */
	{ "do_page_fault", FAULT },
	{ "do_poll", POLL }, /* fs/select.c */
	{ "do_select", POLL },
	{ "do_semtimedop", LOCK }, /* ipc/sem.c */
	{ "do_signal_stop", OTHER },
	{ "do_sigtimedwait", SIGNAL }, /* kernel/signal.c */
	{ "do_swap_page", FAULT }, /* mm/memory.c */
	{ "do_sys_poll", POLL },
	{ "do_syslog", POLL },
	{ "do_user_addr_fault", FAULT },
	{ "do_wait", CHILD }, /* kernel/exit.c */
	{ "down", LOCK },
	{ "down_interruptible", LOCK },
	{ "down_killable", LOCK },
	{ "down_read", LOCK }, /* kernel/locking/rwsem.c */
	{ "down_read_interruptible", LOCK },
	{ "down_read_killable", LOCK },
	{ "down_write", LOCK },
	{ "down_write_killable", LOCK },
	{ "ep_poll", POLL },
	{ "evdev_read", POLL },
	{ "eventfd_read", POLL }, /* fs/eventfd.c */
	{ "exc_page_fault", FAULT },
	{ "fanotify_read", POLL },
	{ "fcntl_setlk", LOCK }, /* fs/locks.c */
	{ "fifo_open", PIPE },
	{ "filemap_fault", FAULT }, /* mm/filemap.c */
	{ "flock_lock_inode_wait", LOCK },
	{ "folio_wait_bit", IO },
	{ "folio_wait_bit_common", IO },
	{ "folio_wait_bit_killable", IO },
	{ "folio_wait_writeback", IO },
	{ "fuse_dev_do_read", POLL }, /* fs/fuse/dev.c: a filesystem waits for requests */
	{ "fuse_simple_request", IO },
	{ "futex_do_wait", FUTEX }, /* 6.16 */
	{ "futex_lock_pi", FUTEX }, /* kernel/futex/pi.c */
	{ "futex_sleep_multiple", FUTEX },
	{ "futex_wait", FUTEX },
	{ "futex_wait_multiple", FUTEX },
	{ "futex_wait_queue", FUTEX }, /* 5.17 */
	{ "futex_wait_queue_me", FUTEX },
	{ "futex_wait_requeue_pi", FUTEX },
	{ "get_signal", OTHER },
	{ "handle_mm_fault", FAULT }, /* mm/memory.c */
	{ "handle_userfault", FAULT }, /* fs/userfaultfd.c */
	{ "hrtimer_nanosleep", SLEEP },
	{ "inet_csk_accept", ACCEPT }, /* net/ipv4/inet_connection_sock.c */
	{ "inet_csk_wait_for_connect", ACCEPT },
	{ "inet_stream_connect", SOCKET },
	{ "inet_wait_for_connect", SOCKET },
	{ "inotify_read", POLL },
	{ "io_cqring_wait", POLL }, /* io_uring */
	{ "io_schedule", IO }, /* kernel/sched/core.c */
	{ "io_schedule_timeout", IO },
	{ "iomap_dio_rw", IO },
	{ "jbd2_log_wait_commit", IO }, /* fs/jbd2/journal.c */
	{ "kernel_wait4", CHILD },
	{ "kvm_arch_vcpu_ioctl_run", HALTED },
	{ "kvm_vcpu_block", HALTED }, /* virt/kvm: the guest waits */
	{ "kvm_vcpu_halt", HALTED },
	{ "lock_sock_nested", LOCK },
	{ "locks_lock_inode_wait", LOCK },
	{ "migration_entry_wait", FAULT },
	{ "msleep", SLEEP }, /* kernel/time */
	{ "msleep_interruptible", SLEEP },
	{ "mutex_lock", LOCK },
	{ "mutex_lock_interruptible", LOCK },
	{ "mutex_lock_killable", LOCK },
	{ "n_tty_read", POLL }, /* drivers/tty */
	{ "netlink_recvmsg", SOCKET },
	{ "nfs_wait_bit_killable", IO },
	{ "p9_client_rpc", IO },
	{ "packet_recvmsg", SOCKET },
	{ "percpu_down_write", LOCK },
	{ "percpu_rwsem_wait", LOCK },
	{ "pipe_read", PIPE }, /* fs/pipe.c */
	{ "pipe_wait", PIPE },
	{ "pipe_wait_readable", PIPE },
	{ "pipe_wait_writable", PIPE },
	{ "pipe_write", PIPE },
	{ "poll_schedule_timeout", POLL },
	{ "posix_lock_inode_wait", LOCK },
	{ "ptrace_stop", OTHER },
	{ "read_events", IO }, /* fs/aio.c */
	{ "reclaim_throttle", OTHER }, /* mm/vmscan.c */
	{ "request_wait_answer", IO }, /* fs/fuse/dev.c */
	{ "rpc_wait_bit_killable", IO }, /* net/sunrpc */
	{ "rq_qos_wait", IO }, /* block: the disk is slowed to its quality of service */
	{ "rt_mutex_schedule", LOCK },
	{ "rt_mutex_slowlock", LOCK },
	{ "rt_mutex_wait_proxy_lock", LOCK },
	{ "rt_spin_lock", LOCK }, /* PREEMPT_RT */
	{ "rtlock_slowlock_locked", LOCK },
	{ "rwsem_down_read_slowpath", LOCK },
	{ "rwsem_down_write_slowpath", LOCK },
	{ "semtimedop", LOCK },
	{ "signalfd_read", POLL },
	{ "signalfd_read_iter", POLL },
	{ "sigsuspend", SIGNAL },
	{ "sk_stream_wait_connect", SOCKET }, /* net/core/stream.c */
	{ "sk_stream_wait_memory", SOCKET },
	{ "sk_wait_data", SOCKET }, /* net/core/sock.c */
	{ "sock_alloc_send_pskb", SOCKET },
	{ "sock_wait_for_wmem", SOCKET },
	{ "start_this_handle", IO }, /* fs/jbd2/transaction.c: the journal commits */
	{ "submit_bio_wait", IO },
	{ "synchronize_rcu", OTHER },
	{ "synchronize_rcu_expedited", OTHER },
	{ "tcp_recvmsg", SOCKET },
	{ "timerfd_read", SLEEP }, /* fs/timerfd.c */
	{ "timerfd_read_iter", SLEEP },
	{ "unix_accept", ACCEPT },
	{ "unix_dgram_recvmsg", SOCKET },
	{ "unix_stream_connect", SOCKET },
	{ "unix_stream_data_wait", SOCKET },
	{ "unix_stream_read_generic", SOCKET },
	{ "unix_wait_for_peer", SOCKET },
	{ "usleep_range_state", SLEEP },
	{ "vsock_accept", ACCEPT }, /* net/vmw_vsock */
	{ "vsock_connect", SOCKET },
	{ "vsock_connectible_recvmsg", SOCKET },
	{ "vsock_stream_recvmsg", SOCKET },
	{ "wait_current_trans", IO }, /* fs/btrfs/transaction.c */
	{ "wait_for_commit", IO },
	{ "wait_for_partner", PIPE },
	{ "wait_for_response", IO }, /* fs/smb/client */
	{ "wait_for_vfork_done", CHILD }, /* kernel/fork.c */
	{ "wait_on_page_bit", IO },
	{ "wait_on_page_bit_common", IO },
	{ "wait_on_page_writeback", IO },
	{ "wait_transaction_locked", IO },
	{ "wbt_wait", IO },
	{ "xfs_buf_iowait", IO }, /* fs/xfs */
	{ "xlog_cil_force_seq", IO },
	{ "xlog_force_lsn", IO },
	{ "xlog_wait_on_iclog", IO },
};

/* Calls that wait for one thing only. What read(2) waits for, its file says. */
static const struct wait_name calls_known[] = {
	{ "accept", ACCEPT },
	{ "accept4", ACCEPT },
	{ "clock_nanosleep", SLEEP },
	{ "clock_nanosleep_time64", SLEEP },
	{ "connect", SOCKET },
	{ "epoll_pwait", POLL },
	{ "epoll_pwait2", POLL },
	{ "epoll_wait", POLL },
	{ "fdatasync", IO },
	{ "flock", LOCK },
	{ "fsync", IO },
	{ "futex", FUTEX },
	{ "futex_time64", FUTEX },
	{ "futex_wait", FUTEX },
	{ "futex_waitv", FUTEX },
	{ "io_getevents", IO },
	{ "io_uring_enter", POLL },
	{ "msync", IO },
	{ "nanosleep", SLEEP },
	{ "pause", SIGNAL },
	{ "poll", POLL },
	{ "ppoll", POLL },
	{ "ppoll_time64", POLL },
	{ "pread64", IO },
	{ "preadv", IO },
	{ "preadv2", IO },
	{ "pselect6", POLL },
	{ "pselect6_time64", POLL },
	{ "pwrite64", IO },
	{ "pwritev", IO },
	{ "pwritev2", IO },
	{ "recvfrom", SOCKET },
	{ "recvmmsg", SOCKET },
	{ "recvmsg", SOCKET },
	{ "rt_sigsuspend", SIGNAL },
	{ "rt_sigtimedwait", SIGNAL },
	{ "select", POLL },
	{ "semop", LOCK },
	{ "semtimedop", LOCK },
	{ "sendmmsg", SOCKET },
	{ "sendmsg", SOCKET },
	{ "sendto", SOCKET },
	{ "sync", IO },
	{ "sync_file_range", IO },
	{ "syncfs", IO },
	{ "vfork", CHILD },
	{ "wait4", CHILD },
	{ "waitid", CHILD },
};

/* ---- looking up ---------------------------------------------------------------------------------- */

static int name_compare(const void *key, const void *element)
{
	return strcmp(key, ((const struct wait_name *)element)->name);
}

#define FIND(table, name) bsearch(name, table, ARRAY_SIZE(table), sizeof((table)[0]), name_compare)

/* Without what a compiler adds: .isra.0, .constprop.0, .part.0, .cold, .llvm.123. */
static const char *base_name(const char *function, char buf[static BASE_NAME_MAX])
{
	size_t n = strcspn(function, ".");

	if (function[n] == '\0')
		return function;
	n = MIN(n, (size_t)BASE_NAME_MAX - 1);
	memcpy(buf, function, n);
	buf[n] = '\0';
	return buf;
}

static bool is_scheduler(const char *name)
{
	return streq(name, "schedule") || str_skip_prefix(name, "schedule_timeout") ||
	       str_skip_prefix(name, "schedule_hrtimeout") ||
	       str_skip_prefix(name, "schedule_preempt_disabled");
}

/* An outer function says what the inner one was done for. */
static bool overrides(enum wait_kind outer, enum wait_kind inner)
{
	return (outer == WAIT_FUTEX && inner == WAIT_LOCK) ||
	       (outer == WAIT_PAGE_FAULT && inner == WAIT_IO);
}

static struct wait_place by_functions(const char *const *functions, size_t n)
{
	struct wait_place found = {};
	char buf[BASE_NAME_MAX];

	for (size_t i = 0; i < n; i++) {
		const struct wait_name *e = FIND(functions_known, base_name(functions[i], buf));

		if (!e)
			continue;
		if (found.kind == WAIT_UNKNOWN || overrides(e->place.kind, found.kind))
			found = e->place;
		else if (e->place.kind == found.kind)
			found.habit = MAX(found.habit, e->place.habit);
	}
	return found;
}

/* A thread of the kernel that goes to sleep from its own main function, or next to it. */
static bool kernel_thread_rests(const char *const *functions, size_t n)
{
	char buf[BASE_NAME_MAX];
	size_t depth = 0;

	for (size_t i = 0; i < n; i++) {
		const char *name = base_name(functions[i], buf);

		if (depth == 0 && is_scheduler(name))
			continue;
		/* These have no kthread() below them: they were made by a user's thread. */
		if (streq(name, "kthread") || streq(name, "ret_from_fork"))
			return depth <= IDLE_DEPTH;
		if (depth == 0 && (streq(name, "kthreadd") || streq(name, "io_wq_worker") ||
				   streq(name, "io_sq_thread") || streq(name, "vhost_task_fn")))
			return true;
		depth++;
	}
	return false;
}

static bool is_kernel_thread(const char *const *functions, size_t n)
{
	char buf[BASE_NAME_MAX];

	for (size_t i = n; i > 0 && i + 3 > n; i--)
		if (streq(base_name(functions[i - 1], buf), "kthread"))
			return true;
	return false;
}

/* "__x64_sys_pause", "__arm64_sys_pause", "__ia32_sys_pause", "__do_sys_pause" */
static const char *call_in_name(const char *function)
{
	const char *sys = strstr(function, "_sys_");

	return sys && function[0] == '_' ? sys + 5 : NULL;
}

static struct wait_place by_call_name(const char *name)
{
	const struct wait_name *e = FIND(calls_known, name);

	return e ? e->place : (struct wait_place){};
}

static struct wait_place by_call(const char *const *functions, size_t n, uint32_t call)
{
	struct wait_place found = {};
	char text[64];
	const char *name;

	for (size_t i = n; i > 0 && found.kind == WAIT_UNKNOWN; i--)
		if ((name = call_in_name(functions[i - 1])))
			found = by_call_name(name);
	if (found.kind != WAIT_UNKNOWN || call == CALL_NONE)
		return found;
	syscall_text(SYSCALL_KEY(SYSCALL_KEY_ABI(call), SYSCALL_KEY_NR(call), 0), text,
		     sizeof(text));
	name = strchr(text, ':');
	return by_call_name(name ? name + 1 : text);
}

/*
 * What condition variables, semaphores, joins and reader-writer locks wait by, and a wait with an end to it: pools wait
 * for work like that. glibc's, musl's and Go's mutexes do not.
 */
static bool may_be_pool(uint32_t call)
{
	uint32_t op = SYSCALL_KEY_ERRNO(call);

	return call != CALL_NONE &&
	       (op & CALL_FUTEX_TIMED || (op & FUTEX_CMD_MASK) == FUTEX_CMD_WAIT_BITSET);
}

struct wait_place wait_classify(const char *const *functions, size_t n, uint32_t call,
				uint32_t task_state)
{
	struct wait_place found = by_functions(functions, n);

	/* Of a thread that says that it idles, or whose stack has no more to say. */
	if ((found.kind == WAIT_UNKNOWN && kernel_thread_rests(functions, n)) ||
	    (task_state & TASK_NOLOAD && (n == 0 || is_kernel_thread(functions, n))))
		return (struct wait_place){ WAIT_KERNEL_IDLE, WAIT_IDLES };
	if (found.kind == WAIT_UNKNOWN)
		found = by_call(functions, n, call);
	if (found.kind == WAIT_UNKNOWN && n > 0)
		found.kind = WAIT_OTHER;
	if (found.kind == WAIT_FUTEX && may_be_pool(call))
		found.habit = WAIT_MAY_POOL;
	return found;
}

bool wait_is_idle(struct wait_place place, uint64_t ns, uint64_t events_q8)
{
	/* A wait in progress has not ended: it counts as one. */
	double each = (double)ns * 256 / (double)MAX(events_q8, 256U);

	switch (place.habit) {
	case WAIT_MAY_IDLE:
		return each >= MAY_IDLE_NS;
	case WAIT_MAY_POOL:
		return each >= MAY_POOL_NS;
	case WAIT_IDLES:
		return true;
	default:
		return false;
	}
}
