// SPDX-License-Identifier: GPL-2.0
/*
 * System calls: exact counts per process, number, ABI and errno, taken when they return.
 *
 * A per-CPU direct-mapped cache stands before the count maps: the few calls that a CPU repeats cost one
 * comparison and one increment, and what a line held moves to the map when another call needs it.
 *
 * The programs run with preemption off, which makes the cache safe without locks. From 7.2 on that holds only
 * for classic tracepoints: there a tp_btf program can be preempted, and the calls of other threads on its CPU
 * are then lost to the kernel's recursion guard. The daemon finds out which kernel it has, and attaches the
 * one or the other.
 *
 * exit and exit_group do not return and are counted where the thread ends. A successful execve returns
 * in the new image.
 *
 * On request calls are counted for a part of the time only (counts_sampled): while the daemon says so.
 */
#pragma once

const volatile bool syscalls_enabled = false; /* else only what other sources need of sys_exit */
const volatile bool counts_sampled = false;
volatile bool counting = false; /* written by the daemon alone */

static __always_inline bool calls_count_now(void)
{
	return !counts_sampled || counting;
}

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2); /* one per window set */
	__type(key, u32);
	__type(value, struct call_cache);
} call_caches SEC(".maps");

static __always_inline void call_evict(u32 w, const struct call_line *line)
{
	struct syscall_key key = line->key;
	u64 calls = line->calls;
	struct account *a;
	int r;

	r = w & 1 ? count_add(&syscalls_b, &key, calls) : count_add(&syscalls_a, &key, calls);
	if (!r)
		return;
	a = account_of(w, SOURCE_SYSCALLS);
	if (a)
		a->lost[r == -7 ? LOSS_COUNT_FULL : LOSS_COUNT_BUSY] += calls;
}

static __always_inline void call_count(u32 w, const struct caller *who, u32 call)
{
	u32 set = w & 1,
	    i = (who->tgid * 0x9e3779b1U + call * 0x85ebca6bU) >> (32 - CALL_LINES_BITS);
	struct call_cache *c = bpf_map_lookup_elem(&call_caches, &set);
	struct call_line *line;

	if (!c)
		return;
	c->seen++;
	line = &c->lines[i & (CALL_LINES - 1)];
	if (line->key.call == call && line->key.tgid == who->tgid &&
	    line->key.start == who->start) {
		line->calls++;
		return;
	}
	if (line->calls)
		call_evict(w, line);
	line->key.start = who->start;
	line->key.tgid = who->tgid;
	line->key.call = call;
	line->calls = 1;
}

static __always_inline u32 call_key(int nr, long ret, bool compat)
{
	u32 abi = compat ? SYSCALL_ABI_COMPAT : SYSCALL_ABI_NATIVE, err = 0, number;

	if (compat)
		ret = (s32)ret;
	if (ret < 0 && ret >= -4095)
		err = -ret;
	/* rt_sigreturn restores registers over its own number; a call of -1 gives ENOSYS. */
	if (nr == -1 && err != 38)
		return SYSCALL_KEY(abi, NR_RT_SIGRETURN(compat), 0);
	number = nr;
#ifdef X32_BIT
	if (!compat && nr > 0 && number & X32_BIT) {
		abi = SYSCALL_ABI_X32;
		number &= ~X32_BIT;
	}
#endif
	if (number >= SYSCALL_NR_INVALID)
		number = SYSCALL_NR_INVALID;
	return SYSCALL_KEY(abi, number, err);
}

/* The current thread's mmap returns. A subprogram, for the sake of the stack of those who call it. */
__noinline int young_mapped(s64 ret)
{
	struct task_struct *task;
	struct call_args args;
	struct caller who;

	task = caller_current(&who);
	call_args_of(task, false, &args);
	young_maps(bpf_get_current_task_btf(), who.tgid, who.start, args.arg[2], ret);
	return 0;
}

/* A call of the current thread returns `ret`. `young`, a constant: new mappings are noted. */
static __always_inline int call_returns(int nr, long ret, bool young)
{
	struct task_struct *task;
	struct caller who;
	u32 w = window, call, weight;
	u64 stamp;

	task = caller_current(&who);
	if (young && nr == NR_MMAP && !who.compat)
		young_mapped(ret);
	if (off_cpu_enabled && resume_hook == RESUME_SPLIT)
		split_returns(task, who.tid);
	if (futex_enabled && (nr_is_futex(nr, who.compat) || nr_is_restart(nr, who.compat)))
		futex_returns(w, task, &who, nr, ret);
	if (!syscalls_enabled || !calls_count_now() || (!ret && nr_returns_twice(nr, who.compat)))
		return 0;
	if (nr == -1 && call_was_exec(task, ret))
		nr = NR_EXECVE(who.compat);
	call = call_key(nr, ret, who.compat);
	call_count(w, &who, call);
	weight = caller_period ? caller_drawn() : 0;
	if (weight)
		caller_taken(w, call, weight);
	stamp = details_enabled ? stamp_take(who.tid) : 0;
	if (stamp && (!counts_sampled || stamp_is_of_span(stamp)))
		call_took(w, call, ret, stamp);
	return 0;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(syscall_exit, struct pt_regs *regs, long ret)
{
	return call_returns(regs_nr(regs), ret, false);
}

SEC("tp_btf/sys_exit")
int BPF_PROG(syscall_exit_young, struct pt_regs *regs, long ret)
{
	return call_returns(regs_nr(regs), ret, true);
}

/* The fields of raw_syscalls/sys_exit as its format file describes them. */
struct sys_exit_event {
	u64 common;
	s64 id;
	s64 ret;
};

SEC("tp/raw_syscalls/sys_exit")
int syscall_exit_classic(struct sys_exit_event *ctx)
{
	return call_returns(ctx->id, ctx->ret, false);
}

SEC("tp/raw_syscalls/sys_exit")
int syscall_exit_classic_young(struct sys_exit_event *ctx)
{
	return call_returns(ctx->id, ctx->ret, true);
}

/* The thread ends: in exit or exit_group, or because something else ended it. */
static __always_inline int call_ends_thread(struct task_struct *task)
{
	struct caller who = {
		.tgid = task->tgid,
		.tid = task->pid,
		.start = task->group_leader->start_boottime,
		.compat = task_is_compat(task),
	};
	int nr = task_nr(task);

	if (details_enabled)
		stamp_take(who.tid);
	if (calls_count_now() && nr_is_exit(nr, who.compat))
		call_count(window, &who, call_key(nr, 0, who.compat));
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(syscall_thread_exit, struct task_struct *task)
{
	return call_ends_thread(task);
}

SEC("tp/sched/sched_process_exit")
int syscall_thread_exit_classic(void *ctx)
{
	return HAVE_CURRENT_BTF ? call_ends_thread(bpf_get_current_task_btf()) : 0;
}
