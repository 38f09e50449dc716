/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The kernel's types, trimmed by hand to the fields that are used. Offsets, sizes and presence are those of
 * the running kernel: CO-RE relocates every access. A suffix ___name marks another kernel's shape of a type.
 */
#pragma once

#include <linux/types.h>
#include <linux/bpf.h>

#define PF_KTHREAD 0x00200000
#define PF_EXITING 0x00000004
#define PF_IO_WORKER 0x00000010

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct thread_info {
	unsigned long flags;
	__u32 status; /* x86 */
};

struct mm_struct {
	unsigned long start_code;
};

struct sched_info {
	unsigned long pcount;
	unsigned long long run_delay;
};

struct sched_entity {
	__u64 sum_exec_runtime;
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
	__u64 start_boottime;
	struct task_struct *group_leader;
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

/*
 * User registers as the ABI lays them out: struct pt_regs of asm/ptrace.h on x86-64, struct user_pt_regs on
 * arm64. Both are what a perf_event program's context begins with, and the head of the pt_regs that the
 * kernel saves on entry. Words, so that a 16-bit cs (6.9) is read at its offset like any other.
 */
#if defined(__TARGET_ARCH_x86)
#define REGS_WORDS 21
#define REGS_FP 4
#define REGS_NR 15 /* orig_ax */
#define REGS_IP 16
#define REGS_CS 17
#define REGS_SP 19
#define REGS_ARG0 14
#define REGS_ARG1 13
#define REGS_IN_USER(words) (((words)[REGS_CS] & 3) == 3)
#define REGS_IN_COMPAT(words) (((words)[REGS_CS] & 0xffff) == 0x23) /* __USER32_CS */
#elif defined(__TARGET_ARCH_arm64)
#define REGS_WORDS 34
#define REGS_FP 29
#define REGS_SP 31
#define REGS_IP 32
#define REGS_CS 33 /* pstate */
#define REGS_IN_USER(words) (((words)[REGS_CS] & 0xf) == 0)
#define REGS_IN_COMPAT(words) (((words)[REGS_CS] & 0x10) != 0)
#else
#error "no register layout for this architecture"
#endif

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
