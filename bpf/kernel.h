/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The kernel's types, trimmed by hand to the fields that are used. Offsets, sizes and presence are those of
 * the running kernel: CO-RE relocates every access. A suffix ___name marks another kernel's shape of a type.
 */
#pragma once

#include <linux/types.h>
#include <linux/bpf.h>

#include "regs.h"

#define PF_KTHREAD 0x00200000
#define PF_EXITING 0x00000004
#define PF_IO_WORKER 0x00000010

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct thread_info {
	unsigned long flags;
	__u32 status; /* x86 */
};

typedef struct {
	void *vdso;
} mm_context_t;

struct mm_struct {
	unsigned long start_code;
	mm_context_t context;
};

struct timespec64 {
	long long tv_sec;
	long tv_nsec;
};

struct super_block {
	__u32 s_dev;
};

typedef struct {
	__u32 val;
} kuid_t;

struct inode {
	kuid_t i_uid;
	struct super_block *i_sb;
	unsigned long i_ino;
	long long i_size;
	long long i_ctime_sec; /* 6.11 */
	__u32 i_ctime_nsec;
};

struct inode___before_6_11 {
	struct timespec64 __i_ctime;
};

struct inode___before_6_6 {
	struct timespec64 i_ctime;
};

struct file {
	struct inode *f_inode;
};

#define VM_EXEC 4UL

struct vm_area_struct {
	unsigned long vm_start;
	unsigned long vm_end;
	struct mm_struct *vm_mm;
	unsigned long vm_flags;
	unsigned long vm_pgoff;
	struct file *vm_file;
};

struct sched_info {
	unsigned long pcount;
	unsigned long long run_delay;
};

struct cred {
	kuid_t uid;
};

struct sched_entity {
	__u64 sum_exec_runtime;
	__u64 nr_migrations;
};

struct signal_set {
	unsigned long sig[1];
};

struct sigpending {
	struct signal_set signal;
};

struct signal_struct {
	struct sigpending shared_pending;
};

/* An array of structures that begin with the handler. */
struct k_sigaction {
	unsigned long handler;
};

struct sighand_struct {
	struct k_sigaction action[64];
};

struct restart_block {
	struct {
		unsigned int *uaddr;
	} futex;
};

struct pid {
	unsigned int level; /* of the innermost namespace; the host's is 0 */
};

struct task_struct {
	struct thread_info thread_info;
	unsigned int __state;
	void *stack;
	unsigned int flags;
	unsigned int on_cpu; /* a byte since 7.3: CO-RE narrows loads of unsigned fields only */
	struct sched_entity se;
	struct sched_info sched_info;
	struct mm_struct *mm;
	int exit_state;
	int pid;
	int tgid;
	unsigned long nvcsw;
	unsigned long nivcsw;
	unsigned long min_flt;
	unsigned long maj_flt;
	const struct cred *real_cred;
	__u64 start_boottime;
	struct task_struct *group_leader;
	struct pid *thread_pid;
	struct restart_block restart_block;
	struct signal_struct *signal;
	struct sighand_struct *sighand;
	struct signal_set blocked;
	struct sigpending pending;
};

/* Before 5.14 the state was `volatile long state`. */
struct task_struct___state {
	long state;
};

/* arm64; the half above is another thing. */
struct thread_info___counted {
	__u64 preempt_count;
};
struct task_struct___counted {
	struct thread_info___counted thread_info;
};

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
	__u64 session_id;
	__u64 seq_num;
};

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

#pragma clang attribute pop

/* What a perf_event program gets. */
struct perf_context {
	__u64 regs[REGS_WORDS];
	__u64 sample_period;
	__u64 addr;
};

/* As the kernel saves them on entry; its size alone matters before bpf_task_pt_regs (5.15). */
struct pt_regs {
#if defined(__TARGET_ARCH_x86)
	unsigned long r10;
	unsigned long bx;
	unsigned long cx;
	unsigned long dx;
	unsigned long si;
	unsigned long di;
	unsigned long orig_ax;
#else
	__u64 regs[31];
	__u64 orig_x0;
	__s32 syscallno;
#endif
} __attribute__((preserve_access_index));
