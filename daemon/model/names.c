// SPDX-License-Identifier: GPL-2.0-or-later
/* What numbers are called. */
#include <stdio.h>

#include "../bpf/sysprofd.h"
#include "model/hardware.h"
#include "model/profile.h"
#include "syscall-names.h" /* generated from the kernel's headers */

/* The name at index i, or NULL. */
#define NAME_AT(table, i) ((size_t)(i) < ARRAY_SIZE(table) ? (table)[i] : NULL)

const char *profile_type_name(enum profile_type type)
{
	static const char *const names[] = { "on-cpu", "off-cpu", "syscalls", "futex" };

	return NAME_AT(names, type);
}

int profile_type_from_name(const char *name)
{
	for (int i = 0; i < PROFILE_TYPE_N; i++)
		if (streq(name, profile_type_name((enum profile_type)i)))
			return i;
	return -EINVAL;
}

const char *profile_type_unit(enum profile_type type)
{
	return type == PROFILE_SYSCALLS ? "calls" : "nanoseconds";
}

const char *loss_reason_name(unsigned reason)
{
	static const char *const names[LOSS_N] = {
		[LOSS_TICK_SKIPPED] = "tick-skipped",
		[LOSS_COUNT_FULL] = "count-map-full",
		[LOSS_COUNT_BUSY] = "count-map-busy",
		[LOSS_STATE_FULL] = "task-state-full",
		[LOSS_SCRATCH_BUSY] = "stack-scratch-busy",
		[LOSS_STACK_RING_FULL] = "stack-ring-full",
		[LOSS_STACK_COLLISION] = "stack-hash-collision",
		[LOSS_STACK_MISSING] = "stack-missing",
		[LOSS_RECURSION] = "program-recursion",
		[LOSS_SHED] = "stack-shed",
		[LOSS_EXIT_RING_FULL] = "exit-ring-full",
		[LOSS_DICT_FULL] = "bucket-limit",
		[LOSS_QUEUE_FULL] = "store-queue-full",
		[LOSS_OTHER] = "other",
		[LOSS_SWITCH_UNSEEN] = "switch-unseen",
		[LOSS_CALL_UNTIMED] = "call-untimed",
	};

	return NAME_AT(names, reason);
}

bool loss_keeps_weight(unsigned reason)
{
	switch (reason) {
	case LOSS_SCRATCH_BUSY:
	case LOSS_STACK_RING_FULL:
	case LOSS_STACK_COLLISION:
	case LOSS_STACK_MISSING:
	case LOSS_SHED:
	case LOSS_DICT_FULL:
	case LOSS_SWITCH_UNSEEN:
	case LOSS_CALL_UNTIMED:
		return true;
	default:
		return false;
	}
}

const char *gap_reason_name(enum gap_reason reason)
{
	static const char *const names[] = {
		[GAP_NONE] = "",
		[GAP_NOT_RUNNING] = "not-running",
		[GAP_STOPPED] = "stopped",
		[GAP_CLOCK_STEP] = "clock-step",
		[GAP_STORE] = "store",
		[GAP_DAMAGED] = "damaged",
		[GAP_NOT_SAMPLED] = "not-sampled",
	};

	return NAME_AT(names, reason) ?: "unknown";
}

const char *label_name(enum label label)
{
	static const char *const names[LABEL_N] = {
		[LABEL_COMM] = "comm",	       [LABEL_EXE] = "exe",
		[LABEL_THREAD] = "thread",     [LABEL_UNIT] = "unit",
		[LABEL_CGROUP] = "cgroup",     [LABEL_CONTAINER] = "container",
		[LABEL_POD] = "pod",	       [LABEL_NAMESPACE] = "namespace",
		[LABEL_BUILD_ID] = "build-id",
	};

	return NAME_AT(names, label);
}

const char *off_cause_name(unsigned cause)
{
	static const char *const names[] = {
		[OFF_BLOCKED] = "blocked",
		[OFF_RUN_QUEUE] = "run-queue",
		[OFF_PREEMPTED] = "preempted",
	};

	return NAME_AT(names, cause) ?: "unknown";
}

const char *wait_kind_name(unsigned kind)
{
	static const char *const names[WAIT_KIND_N] = {
		[WAIT_UNKNOWN] = "",
		[WAIT_IO] = "io",
		[WAIT_LOCK] = "lock",
		[WAIT_SLEEP] = "sleep",
		[WAIT_POLL] = "poll",
		[WAIT_FUTEX] = "futex",
		[WAIT_PAGE_FAULT] = "page-fault",
		[WAIT_PIPE] = "pipe",
		[WAIT_SOCKET] = "socket",
		[WAIT_CHILD] = "child",
		[WAIT_KERNEL_IDLE] = "kernel-idle",
		[WAIT_OTHER] = "other",
	};

	return NAME_AT(names, kind) ?: "";
}

/* The letters of ps(1); bits from include/linux/sched.h, the same since 4.14. */
const char *off_state_name(unsigned state)
{
	if (state == OFF_STATE_UNKNOWN)
		return "";
	if (state == 0)
		return "R";
	if (state & 0x0002)
		return state & 0x0400 ? "I" : "D"; /* TASK_NOLOAD: an idle kernel thread */
	if (state & 0x0001)
		return "S";
	if (state & 0x0004)
		return "T";
	if (state & 0x0008)
		return "t";
	if (state & 0x0040)
		return "P";
	return "X";
}

const char *counter_name(unsigned counter)
{
	static const char *const names[] = {
		[COUNTER_MINOR_FAULTS] = "minor-faults",
		[COUNTER_MAJOR_FAULTS] = "major-faults",
		[COUNTER_VOLUNTARY_SWITCHES] = "voluntary-switches",
		[COUNTER_INVOLUNTARY_SWITCHES] = "involuntary-switches",
		[COUNTER_MIGRATIONS] = "migrations",
		[COUNTER_SPANS] = "spans",
		[COUNTER_CYCLES] = "cycles",
		[COUNTER_INSTRUCTIONS] = "instructions",
		[COUNTER_CACHE_REFERENCES] = "cache-references",
		[COUNTER_CACHE_MISSES] = "cache-misses",
		[COUNTER_BRANCHES] = "branches",
		[COUNTER_BRANCH_MISSES] = "branch-misses",
	};

	return NAME_AT(names, counter) ?: "unknown";
}

const char *kernel_lock_name(unsigned kind)
{
	static const char *const names[KERNEL_LOCK_KINDS] = {
		[KERNEL_LOCK_OTHER] = "other",
		[KERNEL_LOCK_SPINLOCK] = "spinlock",
		[KERNEL_LOCK_RWLOCK_READ] = "rwlock-read",
		[KERNEL_LOCK_RWLOCK_WRITE] = "rwlock-write",
		[KERNEL_LOCK_MUTEX] = "mutex",
		[KERNEL_LOCK_RWSEM_READ] = "rwsem-read",
		[KERNEL_LOCK_RWSEM_WRITE] = "rwsem-write",
		[KERNEL_LOCK_PERCPU_READ] = "percpu-rwsem-read",
		[KERNEL_LOCK_PERCPU_WRITE] = "percpu-rwsem-write",
		[KERNEL_LOCK_RT_MUTEX] = "rt-mutex",
		[KERNEL_LOCK_SEMAPHORE] = "semaphore",
	};

	return kind < KERNEL_LOCK_KINDS ? names[kind] : names[KERNEL_LOCK_OTHER];
}

const char *hardware_name(unsigned kind)
{
	return counter_name(COUNTER_CYCLES + kind);
}

static const struct {
	const char *name;
	enum counter counter;
} sample_events[EVENT_N] = {
	[EVENT_CPU_CLOCK] = { .name = "cpu-clock" },
	[EVENT_CYCLES] = { "cycles", COUNTER_CYCLES },
	[EVENT_INSTRUCTIONS] = { "instructions", COUNTER_INSTRUCTIONS },
	[EVENT_CACHE_MISSES] = { "cache-misses", COUNTER_CACHE_MISSES },
	[EVENT_BRANCH_MISSES] = { "branch-misses", COUNTER_BRANCH_MISSES },
};

const char *sample_event_name(enum sample_event event)
{
	return sample_events[event].name;
}

int sample_event_from_name(const char *name)
{
	for (int i = 0; i < EVENT_N; i++)
		if (streq(name, sample_events[i].name))
			return i;
	return -EINVAL;
}

const char *profile_unit(const struct profile *p)
{
	return p->event ? sample_event_name((enum sample_event)p->event)
			: profile_type_unit(p->type);
}

unsigned sample_event_kind(enum sample_event event)
{
	return sample_events[event].counter - COUNTER_CYCLES;
}

const char *hardware_absent(int error)
{
	switch (-error) {
	case 0:
		return "";
	case ENOENT:
	case ENODEV:
	case EINVAL:
	case EOPNOTSUPP:
		return "this processor, or virtual machine, does not have it";
	case EACCES:
	case EPERM:
		return "not permitted";
	case EBUSY:
		return "in use by something else";
	default:
		return strerror(-error);
	}
}

const char *futex_class_name(unsigned cls)
{
	static const char *const names[] = {
		[FUTEX_CLASS_WAIT] = "wait",
		[FUTEX_CLASS_LOCK_PI] = "lock-pi",
		[FUTEX_CLASS_REQUEUE_PI] = "requeue-pi",
		[FUTEX_CLASS_WAITV] = "waitv",
	};

	return NAME_AT(names, cls) ?: "unknown";
}

const char *futex_outcome_name(unsigned outcome)
{
	static const char *const names[] = {
		[FUTEX_WOKEN] = "woken",
		[FUTEX_TIMED_OUT] = "timeout",
		[FUTEX_INTERRUPTED] = "interrupted",
		[FUTEX_AGAIN] = "again",
		[FUTEX_FAILED] = "failed",
	};

	return NAME_AT(names, outcome) ?: "unknown";
}

/*
 * Calls newer than the headers of the build host; from 424 on, every architecture has the same numbers
 * (include/uapi/asm-generic/unistd.h).
 */
static const char *recent_syscall(unsigned nr)
{
	static const char *const names[] = {
		"cachestat",	     "fchmodat2",	  "map_shadow_stack", "futex_wake",
		"futex_wait",	     "futex_requeue",	  "statmount",	      "listmount",
		"lsm_get_self_attr", "lsm_set_self_attr", "lsm_list_modules", "mseal",
		"setxattrat",	     "getxattrat",	  "listxattrat",      "removexattrat",
		"open_tree_attr",    "file_getattr",	  "file_setattr",
	};

	return nr >= 451 ? NAME_AT(names, nr - 451) : NULL;
}

static const char *name_of(unsigned abi, unsigned nr)
{
	switch (abi) {
	case SYSCALL_ABI_COMPAT:
		return NAME_AT(compat_syscalls, nr);
	case SYSCALL_ABI_X32:
		return NAME_AT(x32_syscalls, nr);
	default:
		return NAME_AT(native_syscalls, nr);
	}
}

const char *syscall_text(uint32_t key, char *buf, size_t size)
{
	unsigned nr = SYSCALL_KEY_NR(key), abi = SYSCALL_KEY_ABI(key);
	const char *prefix = abi == SYSCALL_ABI_COMPAT ? "compat:"
			     : abi == SYSCALL_ABI_X32  ? "x32:"
						       : "";
	const char *name = NULL;

	if (nr == SYSCALL_NR_INVALID) {
		snprintf(buf, size, "%s[invalid]", prefix);
		return buf;
	}
	name = name_of(abi, nr) ?: recent_syscall(nr);
	if (name)
		snprintf(buf, size, "%s%s", prefix, name);
	else
		snprintf(buf, size, "%ssyscall_%u", prefix, nr);
	return buf;
}

int syscall_number(unsigned abi, const char *name)
{
	size_t n = abi == SYSCALL_ABI_COMPAT ? ARRAY_SIZE(compat_syscalls)
		   : abi == SYSCALL_ABI_X32  ? ARRAY_SIZE(x32_syscalls)
					     : ARRAY_SIZE(native_syscalls);

	for (size_t nr = 0; nr < n; nr++) {
		const char *at = name_of(abi, (unsigned)nr);

		if (at && streq(at, name))
			return (int)nr;
	}
	return -ENOENT;
}

const char *errno_text(unsigned err, char *buf, size_t size)
{
	/* Of calls that a signal broke off, and that go on or fail with EINTR after it. */
	static const char *const restarts[] = { "ERESTARTSYS", "ERESTARTNOINTR", "ERESTARTNOHAND",
						NULL, "ERESTART_RESTARTBLOCK" };
	const char *name = err >= 512 ? NAME_AT(restarts, err - 512) : strerrorname_np((int)err);

	if (name)
		snprintf(buf, size, "%s", name);
	else
		snprintf(buf, size, "errno_%u", err);
	return buf;
}

const char *frame_text(const struct dict *d, uint32_t frame, char *buf, size_t size)
{
	const struct frame *f = frame < d->n_frames ? &d->frames[frame] : &d->frames[0];
	const struct binary *b = f->binary < d->n_binaries ? &d->binaries[f->binary]
							   : &d->binaries[0];

	if (f->name)
		snprintf(buf, size, "%s", dict_str(d, f->name));
	else if (b->name)
		snprintf(buf, size, "%s+0x%llx", dict_str(d, b->name),
			 (unsigned long long)f->offset);
	else
		snprintf(buf, size, "[unknown]+0x%llx", (unsigned long long)f->offset);
	return buf;
}

const char *lock_text(const struct dict *d, uint32_t lock, char *buf, size_t size)
{
	const struct lock *l = lock < d->n_locks ? &d->locks[lock] : &d->locks[0];
	const struct binary *b = l->binary < d->n_binaries ? &d->binaries[l->binary]
							   : &d->binaries[0];

	if (l->name)
		snprintf(buf, size, "%s", dict_str(d, l->name));
	else if (b->name && b->kind == BINARY_ELF)
		snprintf(buf, size, "%s+0x%llx", dict_str(d, b->name),
			 (unsigned long long)l->offset);
	else
		snprintf(buf, size, "0x%llx", (unsigned long long)l->address);
	return buf;
}

/* The escapes of folded text: see export_folded(). */
static void frame_add(const struct dict *d, uint32_t frame, struct strbuf *out)
{
	const struct frame *f = frame < d->n_frames ? &d->frames[frame] : &d->frames[0];
	const char *name;
	char buf[512];

	name = f->name ? dict_str(d, f->name) : frame_text(d, frame, buf, sizeof(buf));
	while (*name) {
		size_t n = strcspn(name, ";\\");

		strbuf_add(out, name, n);
		name += n;
		if (*name)
			strbuf_puts(out, *name++ == ';' ? "\\x3b" : "\\\\");
	}
}

void stack_text(const struct dict *d, uint32_t stack, struct strbuf *out)
{
	_cleanup_free_ uint32_t *path = NULL;
	size_t depth = 0, cap = 0;

	/* A parent's id is smaller than its child's, so this ends whatever the dictionary holds. */
	for (uint32_t i = stack; i && i < d->n_stacks;) {
		if (ARRAY_GROW(path, cap, depth + 1) < 0) {
			out->error = -ENOMEM;
			return;
		}
		path[depth++] = d->stacks[i].frame;
		i = d->stacks[i].parent < i ? d->stacks[i].parent : 0;
	}
	while (depth > 0) {
		frame_add(d, path[--depth], out);
		if (depth > 0)
			strbuf_putc(out, ';');
	}
}
