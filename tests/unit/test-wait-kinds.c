// SPDX-License-Identifier: GPL-2.0-or-later
/* What waits are for, by stacks as kernels from 5.10 to 6.18 show them, leaf first. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>
#include <linux/futex.h>
#include <sys/syscall.h>

#include "../bpf/sysprofd.h"
#include "window/waits.h"

#define NATIVE(nr, op) SYSCALL_KEY(SYSCALL_ABI_NATIVE, nr, op)
#define MAX_FUNCTIONS 24
#define IDLE_STATE 0x402U /* TASK_UNINTERRUPTIBLE | TASK_NOLOAD */

static struct wait_place classify(const char *stack, uint32_t call, uint32_t state)
{
	char *copy = strdup(stack), *rest = copy, *function;
	const char *functions[MAX_FUNCTIONS];
	struct wait_place place;
	size_t n = 0;

	while ((function = strsep(&rest, " "))) {
		assert_true(n < MAX_FUNCTIONS);
		functions[n++] = function;
	}
	place = wait_classify(functions, n, call, state);
	free(copy);
	return place;
}

static void test_stacks(void **state)
{
	static const struct {
		const char *stack;
		enum wait_kind kind;
		enum wait_habit habit;
	} stacks[] = {
		/* read(2) of a file: 5.10, 6.12 */
		{ "schedule io_schedule wait_on_page_bit_common generic_file_buffered_read "
		  "new_sync_read vfs_read ksys_read do_syscall_64 entry_SYSCALL_64_after_hwframe",
		  WAIT_IO, WAIT_WORKS },
		{ "schedule io_schedule folio_wait_bit_common filemap_get_pages filemap_read "
		  "vfs_read __x64_sys_pread64 do_syscall_64 entry_SYSCALL_64_after_hwframe",
		  WAIT_IO, WAIT_WORKS },
		/* fsync(2): the journal's thread commits */
		{ "schedule jbd2_log_wait_commit jbd2_complete_transaction ext4_fsync_journal "
		  "ext4_sync_file __x64_sys_fsync do_syscall_64",
		  WAIT_IO, WAIT_WORKS },
		{ "schedule xlog_wait_on_iclog xfs_log_force_seq xfs_file_fsync __arm64_sys_fsync "
		  "invoke_syscall",
		  WAIT_IO, WAIT_WORKS },
		{ "schedule schedule_timeout wait_for_completion_io_timeout blk_wait_io "
		  "submit_bio_wait blkdev_issue_flush",
		  WAIT_IO, WAIT_WORKS },
		{ "schedule request_wait_answer __fuse_simple_request fuse_flush filp_flush "
		  "__x64_sys_close",
		  WAIT_IO, WAIT_WORKS },
		/* a lock of the kernel, also below read(2) and a fault */
		{ "schedule schedule_preempt_disabled __mutex_lock.constprop.0 pipe_write "
		  "vfs_write ksys_write",
		  WAIT_LOCK, WAIT_WORKS },
		{ "schedule rwsem_down_read_slowpath down_read_killable lock_mm_and_find_vma "
		  "do_user_addr_fault exc_page_fault asm_exc_page_fault",
		  WAIT_LOCK, WAIT_WORKS },
		{ "schedule schedule_preempt_disabled rwsem_down_write_slowpath.isra.0 "
		  "down_write_killable vm_mmap_pgoff ksys_mmap_pgoff",
		  WAIT_LOCK, WAIT_WORKS },
		{ "schedule flock_lock_inode_wait locks_lock_inode_wait __do_sys_flock", WAIT_LOCK,
		  WAIT_WORKS },
		{ "schedule do_nanosleep hrtimer_nanosleep common_nsleep __x64_sys_clock_nanosleep",
		  WAIT_SLEEP, WAIT_IDLES },
		{ "schedule do_sigtimedwait.isra.0 __x64_sys_rt_sigtimedwait", WAIT_SLEEP,
		  WAIT_MAY_IDLE },
		{ "schedule __x64_sys_pause do_syscall_64", WAIT_SLEEP, WAIT_MAY_IDLE },
		{ "schedule schedule_hrtimeout_range_clock ep_poll do_epoll_wait "
		  "__x64_sys_epoll_wait",
		  WAIT_POLL, WAIT_MAY_IDLE },
		{ "schedule schedule_hrtimeout_range_clock do_poll.constprop.0 do_sys_poll "
		  "__x64_sys_ppoll",
		  WAIT_POLL, WAIT_MAY_IDLE },
		{ "schedule schedule_hrtimeout_range poll_schedule_timeout.constprop.13 do_select "
		  "core_sys_select __arm64_sys_pselect6",
		  WAIT_POLL, WAIT_MAY_IDLE },
		{ "schedule schedule_timeout wait_woken n_tty_read tty_read new_sync_read vfs_read",
		  WAIT_POLL, WAIT_MAY_IDLE },
		/* futex: 5.10, 6.1, 6.16; with priority inheritance */
		{ "schedule futex_wait_queue_me futex_wait do_futex __x64_sys_futex", WAIT_FUTEX,
		  WAIT_WORKS },
		{ "schedule futex_wait_queue futex_wait do_futex __x64_sys_futex", WAIT_FUTEX,
		  WAIT_WORKS },
		{ "schedule futex_do_wait __futex_wait futex_wait do_futex __x64_sys_futex",
		  WAIT_FUTEX, WAIT_WORKS },
		{ "schedule rt_mutex_schedule rt_mutex_slowlock_block.constprop.0 "
		  "__rt_mutex_slowlock rt_mutex_wait_proxy_lock futex_lock_pi do_futex",
		  WAIT_FUTEX, WAIT_WORKS },
		/* page faults: from a file, from swap, in the middle of read(2) from a pipe */
		{ "schedule io_schedule folio_wait_bit_common __folio_lock_or_retry filemap_fault "
		  "__do_fault __handle_mm_fault handle_mm_fault do_user_addr_fault exc_page_fault "
		  "asm_exc_page_fault",
		  WAIT_PAGE_FAULT, WAIT_WORKS },
		{ "schedule io_schedule wait_on_page_bit_common __lock_page_or_retry do_swap_page "
		  "__handle_mm_fault handle_mm_fault do_page_fault do_translation_fault "
		  "do_mem_abort el0_da",
		  WAIT_PAGE_FAULT, WAIT_WORKS },
		{ "schedule io_schedule folio_wait_bit_common filemap_fault handle_mm_fault "
		  "do_user_addr_fault exc_page_fault asm_exc_page_fault rep_movs_alternative "
		  "_copy_to_iter copy_page_to_iter anon_pipe_read vfs_read",
		  WAIT_PAGE_FAULT, WAIT_WORKS },
		{ "schedule handle_userfault do_anonymous_page __handle_mm_fault handle_mm_fault",
		  WAIT_PAGE_FAULT, WAIT_WORKS },
		/* pipes: 5.10, 6.1, 6.18 */
		{ "schedule pipe_wait_readable pipe_read new_sync_read vfs_read ksys_read",
		  WAIT_PIPE, WAIT_WORKS },
		{ "schedule pipe_read vfs_read ksys_read do_syscall_64", WAIT_PIPE, WAIT_WORKS },
		{ "schedule anon_pipe_read vfs_read ksys_read do_syscall_64", WAIT_PIPE,
		  WAIT_WORKS },
		{ "schedule wait_for_partner fifo_open do_dentry_open vfs_open path_openat",
		  WAIT_PIPE, WAIT_WORKS },
		{ "schedule schedule_timeout wait_woken sk_wait_data tcp_recvmsg_locked "
		  "tcp_recvmsg inet_recvmsg sock_read_iter vfs_read",
		  WAIT_SOCKET, WAIT_WORKS },
		{ "schedule schedule_timeout unix_stream_read_generic unix_stream_recvmsg "
		  "sock_recvmsg __sys_recvfrom",
		  WAIT_SOCKET, WAIT_WORKS },
		{ "schedule schedule_timeout inet_csk_accept inet_accept do_accept __sys_accept4",
		  WAIT_SOCKET, WAIT_MAY_IDLE },
		{ "schedule schedule_timeout __skb_wait_for_more_packets __skb_recv_datagram "
		  "skb_recv_datagram unix_accept do_accept",
		  WAIT_SOCKET, WAIT_MAY_IDLE },
		{ "schedule do_wait kernel_wait4 __do_sys_wait4 __x64_sys_wait4", WAIT_CHILD,
		  WAIT_WORKS },
		{ "schedule schedule_timeout wait_for_completion_state wait_for_vfork_done.isra.0 "
		  "kernel_clone __x64_sys_vfork",
		  WAIT_CHILD, WAIT_WORKS },
		/* threads of the kernel: without work, and at work */
		{ "schedule worker_thread kthread ret_from_fork ret_from_fork_asm",
		  WAIT_KERNEL_IDLE, WAIT_IDLES },
		{ "schedule schedule_timeout rcu_gp_fqs_loop rcu_gp_kthread kthread ret_from_fork",
		  WAIT_KERNEL_IDLE, WAIT_IDLES },
		{ "schedule smpboot_thread_fn kthread ret_from_fork", WAIT_KERNEL_IDLE,
		  WAIT_IDLES },
		{ "schedule kthreadd ret_from_fork ret_from_fork_asm", WAIT_KERNEL_IDLE,
		  WAIT_IDLES },
		{ "schedule schedule_timeout io_wq_worker ret_from_fork", WAIT_KERNEL_IDLE,
		  WAIT_IDLES },
		{ "schedule io_schedule blk_mq_get_tag __blk_mq_alloc_requests submit_bio_noacct "
		  "ext4_writepages wb_writeback wb_workfn process_one_work worker_thread kthread "
		  "ret_from_fork",
		  WAIT_IO, WAIT_WORKS },
		{ "schedule schedule_timeout some_driver_command some_driver_work process_one_work "
		  "worker_thread kthread ret_from_fork",
		  WAIT_OTHER, WAIT_WORKS },
		/* what no table knows, and what hides a call that it would know */
		{ "schedule some_ioctl do_vfs_ioctl __x64_sys_ioctl", WAIT_OTHER, WAIT_WORKS },
		{ "schedule schedule_timeout some_new_name do_sys_some_new_name "
		  "__x64_sys_epoll_wait",
		  WAIT_POLL, WAIT_MAY_IDLE },
		{ "schedule ptrace_stop ptrace_do_notify syscall_trace_enter do_syscall_64",
		  WAIT_OTHER, WAIT_WORKS },
		{ "schedule kvm_vcpu_block kvm_vcpu_halt kvm_arch_vcpu_ioctl_run kvm_vcpu_ioctl",
		  WAIT_OTHER, WAIT_IDLES },
	};

	for (size_t i = 0; i < ARRAY_SIZE(stacks); i++) {
		struct wait_place p = classify(stacks[i].stack, CALL_NONE, 1);

		if (p.kind != stacks[i].kind || p.habit != stacks[i].habit)
			fail_msg("%s: %s, %d", stacks[i].stack, wait_kind_name(p.kind),
				 (int)p.habit);
	}
}

/* Every name is found: the table is in order. */
static void test_call_beside_functions(void **state)
{
	static const char futex[] = "schedule futex_do_wait __futex_wait futex_wait do_futex";
	static const char rests[] =
		"schedule kswapd_try_to_sleep kswapd balance something kthread ret_from_fork";

	assert_int_equal(classify(futex, NATIVE(SYS_futex, FUTEX_WAIT_PRIVATE), 1).habit,
			 WAIT_WORKS);
	assert_int_equal(classify(futex, NATIVE(SYS_futex, FUTEX_WAIT_BITSET_PRIVATE), 1).habit,
			 WAIT_MAY_POOL);
	assert_int_equal(classify(futex, NATIVE(SYS_futex, FUTEX_WAIT | CALL_FUTEX_TIMED), 1).habit,
			 WAIT_MAY_POOL);
	assert_int_equal(classify(rests, CALL_NONE, 1).kind, WAIT_OTHER);
	assert_int_equal(classify(rests, CALL_NONE, IDLE_STATE).kind, WAIT_KERNEL_IDLE);
	/* The call speaks where the functions do not, and not against them. */
	assert_int_equal(classify("schedule renamed", NATIVE(SYS_fsync, 0), 2).kind, WAIT_IO);
	assert_int_equal(classify("schedule mutex_lock", NATIVE(SYS_fsync, 0), 2).kind, WAIT_LOCK);
}

static void test_hidden_addresses(void **state)
{
	static const struct {
		uint32_t call;
		enum wait_kind kind;
	} calls[] = {
		{ NATIVE(SYS_fsync, 0), WAIT_IO },
		{ NATIVE(SYS_futex, FUTEX_WAIT_PRIVATE), WAIT_FUTEX },
		{ NATIVE(SYS_clock_nanosleep, 0), WAIT_SLEEP },
		{ NATIVE(SYS_wait4, 0), WAIT_CHILD },
		{ NATIVE(SYS_accept4, 0), WAIT_SOCKET },
		{ NATIVE(SYS_epoll_pwait, 0), WAIT_POLL },
		{ NATIVE(SYS_read, 0), WAIT_UNKNOWN }, /* from whatever it is */
		{ NATIVE(9999, 0), WAIT_UNKNOWN },
		{ CALL_NONE, WAIT_UNKNOWN },
	};

	for (size_t i = 0; i < ARRAY_SIZE(calls); i++)
		assert_int_equal(wait_classify(NULL, 0, calls[i].call, 1).kind, calls[i].kind);
#ifdef __x86_64__
	assert_int_equal(wait_classify(NULL, 0, SYSCALL_KEY(SYSCALL_ABI_COMPAT, 118, 0), 1).kind,
			 WAIT_IO);
#endif
	assert_int_equal(wait_classify(NULL, 0, CALL_NONE, IDLE_STATE).kind, WAIT_KERNEL_IDLE);
}

static void test_idle(void **state)
{
	const struct wait_place works = { WAIT_PIPE, WAIT_WORKS },
				loop = { WAIT_POLL, WAIT_MAY_IDLE },
				pool = { WAIT_FUTEX, WAIT_MAY_POOL },
				sleeps = { WAIT_SLEEP, WAIT_IDLES };

	assert_false(wait_is_idle(works, 10 * NSEC_PER_SEC, 256));
	assert_true(wait_is_idle(sleeps, NSEC_PER_MSEC, 256000));
	/* Ten times a second, and a hundred times. */
	assert_true(wait_is_idle(loop, NSEC_PER_SEC, 10 * 256));
	assert_false(wait_is_idle(loop, NSEC_PER_SEC, 100 * 256));
	assert_false(wait_is_idle(pool, NSEC_PER_SEC, 10 * 256));
	assert_true(wait_is_idle(pool, NSEC_PER_SEC, 256));
	/* In progress. */
	assert_true(wait_is_idle(pool, NSEC_PER_SEC, 0));
	assert_false(wait_is_idle(pool, 20 * NSEC_PER_MSEC, 0));
}

static void test_names(void **state)
{
	assert_string_equal(wait_kind_name(WAIT_UNKNOWN), "");
	assert_string_equal(wait_kind_name(WAIT_KIND_N), "");
	for (unsigned i = WAIT_IO; i < WAIT_KIND_N; i++)
		assert_true(strlen(wait_kind_name(i)) > 0);
	assert_int_equal(OFF_KEY_WAIT(OFF_KEY(15, 0xffff, 1) | OFF_WAIT_KEY(WAIT_OTHER, 1)),
			 WAIT_OTHER);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_stacks),
		cmocka_unit_test(test_call_beside_functions),
		cmocka_unit_test(test_hidden_addresses),
		cmocka_unit_test(test_idle),
		cmocka_unit_test(test_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
