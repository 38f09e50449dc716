/* SPDX-License-Identifier: GPL-2.0 */
/*
 * System calls as the kernel keeps them: the saved registers of a thread, which number it called, by which
 * ABI, and the few numbers that mean something to us.
 */
#pragma once

const volatile bool futex_enabled = false;

#define CALL_FUTEX_WAITV 449 /* these have one number everywhere */
#define CALL_FUTEX_WAKE 454
#define CALL_FUTEX_WAIT 455
#define CALL_FUTEX_REQUEUE 456
#define CALL_CLONE3 435

#define HAVE_CURRENT_BTF /* 5.11: the current task as a trusted pointer */ \
	bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_get_current_task_btf)
#define HAVE_TASK_REGS /* 5.15 */ \
	bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_task_pt_regs)

/* The thread that made the call which just returned. */
struct caller {
	u64 start; /* of the process */
	u32 tgid;
	u32 tid;
	bool compat;
};

/* The first arguments of a call. */
struct call_args {
	u64 arg[4];
};

/* Where the kernel saved the user registers of `task`, a trusted pointer to a user thread. */
static __always_inline struct pt_regs *task_regs(struct task_struct *task)
{
	if (HAVE_TASK_REGS)
		return (struct pt_regs *)bpf_task_pt_regs(task);
	return (struct pt_regs *)(task->stack + thread_size - bpf_core_type_size(struct pt_regs));
}

/* The same for the current thread, of which there may be no trusted pointer. */
static __always_inline struct pt_regs *current_regs(struct task_struct *task)
{
	if (HAVE_TASK_REGS)
		return (struct pt_regs *)bpf_task_pt_regs(bpf_get_current_task_btf());
	return (struct pt_regs *)(BPF_CORE_READ(task, stack) + thread_size -
				  bpf_core_type_size(struct pt_regs));
}

/* futex_wake, futex_wait, futex_requeue (6.7) */
static __always_inline bool nr_is_futex2(int nr)
{
	return (u32)(nr - CALL_FUTEX_WAKE) <= CALL_FUTEX_REQUEUE - CALL_FUTEX_WAKE;
}

#if defined(__TARGET_ARCH_x86)

#define TS_COMPAT 2U

static __always_inline bool task_is_compat(struct task_struct *task)
{
	return task->thread_info.status & TS_COMPAT;
}

static __always_inline bool current_is_compat(struct task_struct *task)
{
	return BPF_CORE_READ(task, thread_info.status) & TS_COMPAT;
}

static __always_inline int regs_nr(struct pt_regs *regs)
{
	return regs->orig_ax;
}

static __always_inline void call_args_of(struct task_struct *task, bool compat,
					 struct call_args *ret)
{
	struct pt_regs *r = current_regs(task);

	if (HAVE_TASK_REGS) {
		ret->arg[0] = compat ? r->bx : r->di;
		ret->arg[1] = compat ? r->cx : r->si;
		ret->arg[2] = r->dx;
		ret->arg[3] = compat ? r->si : r->r10;
		return;
	}
	ret->arg[0] = compat ? BPF_CORE_READ(r, bx) : BPF_CORE_READ(r, di);
	ret->arg[1] = compat ? BPF_CORE_READ(r, cx) : BPF_CORE_READ(r, si);
	ret->arg[2] = BPF_CORE_READ(r, dx);
	ret->arg[3] = compat ? BPF_CORE_READ(r, si) : BPF_CORE_READ(r, r10);
}

/* The call that a thread is in; -1 when it entered the kernel by a fault or an interrupt, or never leaves it. */
static __always_inline int task_nr(struct task_struct *task)
{
	unsigned long nr;

	if (task->flags & (PF_KTHREAD | PF_IO_WORKER))
		return -1;
	if (HAVE_TASK_REGS)
		return task_regs(task)->orig_ax;
	if (bpf_core_read(&nr, sizeof(nr), &task_regs(task)->orig_ax))
		return -1;
	return nr;
}

static __always_inline bool nr_is_yield(int nr, bool compat)
{
	return nr == (compat ? 158 : 24);
}

/* Calls in which a thread may wait for a futex (and others of the same number). */
static __always_inline bool nr_is_futex_wait(int nr, bool compat)
{
	if (compat)
		return nr == 240 || nr == 422 || nr == CALL_FUTEX_WAITV || nr == CALL_FUTEX_WAIT;
	nr &= ~X32_BIT;
	return nr == 202 || nr == CALL_FUTEX_WAITV || nr == CALL_FUTEX_WAIT;
}

/* Those, and the calls that wake. */
static __always_inline bool nr_is_futex(int nr, bool compat)
{
	if (compat)
		return nr == 240 || nr == 422 || nr == CALL_FUTEX_WAITV || nr_is_futex2(nr);
	nr &= ~X32_BIT;
	return nr == 202 || nr == CALL_FUTEX_WAITV || nr_is_futex2(nr);
}

/* restart_syscall, which goes on with a wait after a stop. */
static __always_inline bool nr_is_restart(int nr, bool compat)
{
	return compat ? nr == 0 : (nr & ~X32_BIT) == 219;
}

/* Calls that return once more, with 0, in the child. */
static __always_inline bool nr_returns_twice(int nr, bool compat)
{
	if (compat)
		return nr == 2 || nr == 120 || nr == 190 || nr == CALL_CLONE3;
	nr &= ~X32_BIT;
	return nr == 56 || nr == 57 || nr == 58 || nr == CALL_CLONE3;
}

static __always_inline bool nr_is_exit(int nr, bool compat)
{
	if (compat)
		return nr == 1 || nr == 252;
	nr &= ~X32_BIT;
	return nr == 60 || nr == 231;
}

#define NR_RT_SIGRETURN(compat) ((compat) ? 173 : 15)

/* The kernel puts execve's number back into the new image's registers. */
static __always_inline bool call_was_exec(struct task_struct *task, long ret)
{
	return false;
}
#define NR_EXECVE(compat) 59
#define NR_MMAP 9

#elif defined(__TARGET_ARCH_arm64)

#define TIF_32BIT (1UL << 22)

static __always_inline bool task_is_compat(struct task_struct *task)
{
	return task->thread_info.flags & TIF_32BIT;
}

static __always_inline bool current_is_compat(struct task_struct *task)
{
	return BPF_CORE_READ(task, thread_info.flags) & TIF_32BIT;
}

static __always_inline int regs_nr(struct pt_regs *regs)
{
	return regs->syscallno;
}

static __always_inline void call_args_of(struct task_struct *task, bool compat,
					 struct call_args *ret)
{
	struct pt_regs *r = current_regs(task);

	if (HAVE_TASK_REGS) {
		ret->arg[0] = r->orig_x0;
		ret->arg[1] = r->regs[1];
		ret->arg[2] = r->regs[2];
		ret->arg[3] = r->regs[3];
		return;
	}
	ret->arg[0] = BPF_CORE_READ(r, orig_x0);
	ret->arg[1] = BPF_CORE_READ(r, regs[1]);
	ret->arg[2] = BPF_CORE_READ(r, regs[2]);
	ret->arg[3] = BPF_CORE_READ(r, regs[3]);
}

static __always_inline int task_nr(struct task_struct *task)
{
	int nr;

	if (task->flags & (PF_KTHREAD | PF_IO_WORKER))
		return -1;
	if (HAVE_TASK_REGS)
		return task_regs(task)->syscallno;
	if (bpf_core_read(&nr, sizeof(nr), &task_regs(task)->syscallno))
		return -1;
	return nr;
}

static __always_inline bool nr_is_yield(int nr, bool compat)
{
	return nr == (compat ? 158 : 124);
}

static __always_inline bool nr_is_futex_wait(int nr, bool compat)
{
	if (compat && (nr == 240 || nr == 422))
		return true;
	return (!compat && nr == 98) || nr == CALL_FUTEX_WAITV || nr == CALL_FUTEX_WAIT;
}

static __always_inline bool nr_is_futex(int nr, bool compat)
{
	if (compat && (nr == 240 || nr == 422))
		return true;
	return (!compat && nr == 98) || nr == CALL_FUTEX_WAITV || nr_is_futex2(nr);
}

static __always_inline bool nr_is_restart(int nr, bool compat)
{
	return nr == (compat ? 0 : 128);
}

static __always_inline bool nr_returns_twice(int nr, bool compat)
{
	if (compat)
		return nr == 2 || nr == 120 || nr == 190 || nr == CALL_CLONE3;
	return nr == 220 || nr == CALL_CLONE3;
}

static __always_inline bool nr_is_exit(int nr, bool compat)
{
	return compat ? nr == 1 || nr == 248 : nr == 93 || nr == 94;
}

#define NR_RT_SIGRETURN(compat) ((compat) ? 173 : 139)

/*
 * A new image starts with number -1 in its registers, as rt_sigreturn leaves it too; but all others are zero,
 * the number's own, the frame pointer and the link register among them.
 */
static __always_inline bool call_was_exec(struct task_struct *task, long ret)
{
	struct pt_regs *r = current_regs(task);

	return !ret && !BPF_CORE_READ(r, regs[8]) && !BPF_CORE_READ(r, regs[29]) &&
	       !BPF_CORE_READ(r, regs[30]);
}
#define NR_EXECVE(compat) ((compat) ? 11 : 221)
#define NR_MMAP 222

#endif

static __always_inline struct task_struct *caller_current(struct caller *who)
{
	struct task_struct *task;
	u64 id;

	if (HAVE_CURRENT_BTF) {
		task = bpf_get_current_task_btf();
		who->tgid = task->tgid;
		who->tid = task->pid;
		who->start = task->group_leader->start_boottime;
		who->compat = task_is_compat(task);
		return task;
	}
	task = (struct task_struct *)bpf_get_current_task();
	id = bpf_get_current_pid_tgid();
	who->tgid = id >> 32;
	who->tid = id;
	who->start = BPF_CORE_READ(task, group_leader, start_boottime);
	who->compat = current_is_compat(task);
	return task;
}
