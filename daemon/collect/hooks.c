// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The kernel hooks that off-CPU, syscalls and futex share, and which of their forms this kernel has.
 *
 * Features are asked for, in the kernel's type information or by a trial load; versions say nothing about
 * kernels that distributions patch. sched_switch and sys_exit serve several sources: each asks for what it
 * needs, and whoever comes first attaches.
 */
#include <stdio.h>
#include <time.h>

#include "collect/internal.h"
#include "collect/types.h"

#define YOUNG_PROCESSES \
	1024 /* whose new mappings are noted; those that began long ago are known by then */

/* ---- what the kernel has -------------------------------------------------------------------------- */

static bool struct_has(const struct kernel_types *types, const char *name, const char *member)
{
	uint32_t id;
	const struct btf_type *t = types_find(types, name, BTF_KIND_STRUCT, &id);

	for (int i = 0; t && i < btf_vlen(t); i++)
		if (streq(types_string(types, btf_members(t)[i].name_off), member))
			return true;
	return false;
}

static bool enum_has(const struct kernel_types *types, const char *name, const char *value)
{
	uint32_t id;
	const struct btf_type *t = types_find(types, name, BTF_KIND_ENUM, &id);

	for (int i = 0; t && i < btf_vlen(t); i++)
		if (streq(types_string(types, btf_enum(t)[i].name_off), value))
			return true;
	return false;
}

static const struct btf_type *tracepoint_type(const struct kernel_types *types, const char *name,
					      uint32_t *ret_id)
{
	char text[64];

	snprintf(text, sizeof(text), "btf_trace_%s", name);
	return types_find(types, text, BTF_KIND_TYPEDEF, ret_id);
}

/* Arguments of a tracepoint, or 0 when there is no such tracepoint. */
static int tracepoint_args(const struct kernel_types *types, const char *name)
{
	uint32_t id;
	const struct btf_type *t = tracepoint_type(types, name, &id);

	/* typedef, pointer, prototype; its first parameter is the kernel's own. */
	for (int i = 0; t && i < 2; i++)
		t = types_get(types, t->type);
	return t && btf_is_func_proto(t) ? btf_vlen(t) - 1 : 0;
}

/* Whether the kernel takes a program that sleeps on a tracepoint. */
static bool may_sleep_on(const struct kernel_types *types, const char *tracepoint)
{
	uint32_t id = 0;
	const struct btf_type *type = tracepoint_type(types, tracepoint, &id);
	const struct bpf_insn nothing[] = {
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0 },
		{ .code = BPF_JMP | BPF_EXIT },
	};
	LIBBPF_OPTS(bpf_prog_load_opts, opts, .expected_attach_type = BPF_TRACE_RAW_TP,
		    .attach_btf_id = id, .prog_flags = BPF_F_SLEEPABLE);
	_cleanup_close_ int fd = bpf_prog_load(BPF_PROG_TYPE_TRACING, "sysprofd_trial", "GPL",
					       nothing, ARRAY_SIZE(nothing), &opts);

	return type && fd >= 0;
}

/*
 * Where the kernel would run a program on sys_exit that sleeps, preemption is not disabled around those that do
 * not (7.2): then a program that was preempted on a CPU makes the calls of other threads there go uncounted.
 * Kernels before 5.18 take the flag on any tracepoint, even where nothing may ever sleep: they do not mean it.
 */
static bool sys_exit_is_preemptible(const struct kernel_types *types)
{
	return may_sleep_on(types, "sys_exit") && !may_sleep_on(types, "sched_switch");
}

/* Task storage whose allocations are fit for a context switch: from caches of its own (6.4), or without locks. */
static bool task_storage_is_fit(const struct kernel_types *types)
{
	uint32_t id;

	return struct_has(types, "bpf_local_storage_map", "bpf_ma") ||
	       types_find(types, "bpf_map_kmalloc_nolock", BTF_KIND_FUNC, &id);
}

int hooks_probe(struct collector *c)
{
	_cleanup_(types_done) struct kernel_types types = {};
	struct hooks *h = &c->hooks;
	uint32_t id;
	int r;

	if (h->probed)
		return 0;
	r = types_open("/sys/kernel/btf/vmlinux", &types);
	if (r < 0)
		return r;
	h->task_storage = task_storage_is_fit(&types);
	h->prev_state = tracepoint_args(&types, "sched_switch") >= 4;
	h->sched_exit = tracepoint_args(&types, "sched_exit_tp") >= 1;
	h->classic = c->o.force_classic || sys_exit_is_preemptible(&types);
	if (!h->sched_exit && c->o.places && *c->o.places->finish_task_switch &&
	    access("/sys/bus/event_source/devices/kprobe/type", F_OK) == 0)
		h->finish_task_switch = c->o.places->finish_task_switch;
	h->task_from_pid = types_find(&types, "bpf_task_from_pid", BTF_KIND_FUNC, &id);
	h->task_from_vpid = types_find(&types, "bpf_task_from_vpid", BTF_KIND_FUNC, &id);
	h->contention = tracepoint_args(&types, "contention_begin") == 2 &&
			tracepoint_args(&types, "contention_end") == 2;
	h->find_vma = enum_has(&types, "bpf_func_id", "BPF_FUNC_find_vma");
	h->probed = true;
	return 0;
}

/* ---- thread state ----------------------------------------------------------------------------------- */

uint32_t count_threads(void)
{
	unsigned n = 0;
	FILE *f = fopen("/proc/loadavg", "re");

	if (!f)
		return 0;
	if (fscanf(f, "%*f %*f %*f %*u/%u", &n) != 1)
		n = 0;
	fclose(f);
	return n;
}

#define STATE_ENTRIES_MIN 16384
#define STATE_ENTRIES_MAX 131072

static int use_thread_state(struct collector *c)
{
	uint32_t n = count_threads();

	c->skel->rodata->use_task_storage = c->hooks.task_storage;
	if (c->hooks.task_storage)
		return use_map(c->skel->maps.task_storage, 0);
	return use_map(c->skel->maps.task_table,
		       CLAMP(n * 4, STATE_ENTRIES_MIN, STATE_ENTRIES_MAX));
}

/* ---- rations of walks --------------------------------------------------------------------------------- */

int hooks_use_rations(struct collector *c)
{
	struct timespec tick = {};

	/* This clock goes on with each tick, and says how long one is. */
	if (clock_getres(CLOCK_MONOTONIC_COARSE, &tick) < 0)
		return -errno;
	c->skel->rodata->tick_ns = tick.tv_nsec;
	c->skel->rodata->walks_per_second = c->o.walks_per_second ?: WALKS_PER_SECOND;
	return use_map(c->skel->maps.walk_rations, 0);
}

/* ---- the context switch ------------------------------------------------------------------------------ */

int hooks_use_switch(struct collector *c)
{
	struct sysprofd_bpf *skel = c->skel;
	struct timespec boot;
	int r;

	r = hooks_probe(c);
	if (r == 0)
		r = use_thread_state(c);
	if (r == 0)
		r = hooks_use_rations(c);
	if (r == 0)
		r = use_map(skel->maps.resume_notes, 0);
	if (r < 0)
		return r;
	clock_gettime(CLOCK_BOOTTIME, &boot);
	skel->rodata->attached_boot_ns = boot.tv_sec * NSEC_PER_SEC + boot.tv_nsec;
	skel->rodata->switch_has_prev_state = c->hooks.prev_state;
	use_program(skel->progs.offcpu_sched_switch);
	return hardware_configure(c);
}

static int attach_once(struct bpf_program *p, struct bpf_link **link)
{
	if (*link)
		return 0;
	*link = bpf_program__attach(p);
	return *link ? 0 : negative_errno();
}

/*
 * The return of calls first: it ends the futex waits that switches begin to add up, and one that it did not see would be
 * added to the thread's next.
 */
int hooks_attach_switch(struct collector *c)
{
	int r;

	/* Where it cannot be attached the futex source says so. */
	if (c->sources[SOURCE_FUTEX].on)
		(void)hooks_attach_sys_exit(c);
	r = attach_once(c->skel->progs.offcpu_sched_switch, &c->skel->links.offcpu_sched_switch);
	return r < 0 ? r : hardware_attach(c);
}

int hooks_attach_resume(struct collector *c, enum resume_hook hook)
{
	struct sysprofd_bpf *skel = c->skel;

	switch (hook) {
	case RESUME_SCHED_EXIT:
		return attach_once(skel->progs.offcpu_sched_exit, &skel->links.offcpu_sched_exit);
	case RESUME_KPROBE:
		skel->links.offcpu_finish_task_switch = bpf_program__attach_kprobe(
			skel->progs.offcpu_finish_task_switch, false, c->hooks.finish_task_switch);
		return skel->links.offcpu_finish_task_switch ? 0 : negative_errno();
	case RESUME_SPLIT:
		return hooks_attach_sys_exit(c);
	}
	return -EINVAL;
}

/* ---- the return of a system call ---------------------------------------------------------------------- */

/* Each program has two forms: one notes new mappings beside. */
static bool notes_young(const struct collector *c)
{
	return c->o.tables && c->hooks.find_vma && !c->o.burst;
}

static struct bpf_program *sys_exit_program(const struct collector *c, bool classic,
					    struct bpf_link ***ret)
{
	struct sysprofd_bpf *skel = c->skel;

	if (notes_young(c)) {
		*ret = classic ? &skel->links.syscall_exit_classic_young
			       : &skel->links.syscall_exit_young;
		return classic ? skel->progs.syscall_exit_classic_young
			       : skel->progs.syscall_exit_young;
	}
	*ret = classic ? &skel->links.syscall_exit_classic : &skel->links.syscall_exit;
	return classic ? skel->progs.syscall_exit_classic : skel->progs.syscall_exit;
}

int hooks_use_sys_exit(struct collector *c)
{
	struct bpf_link **link;
	int r = hooks_probe(c);

	if (r < 0)
		return r;
	if (c->hooks.classic)
		use_program(sys_exit_program(c, true, &link));
	/* Also there, for a host without tracefs. */
	use_program(sys_exit_program(c, false, &link));
	return 0;
}

static int attach_sys_exit(struct collector *c)
{
	struct bpf_link **link, **classic_link;
	struct bpf_program *p = sys_exit_program(c, false, &link),
			   *classic = sys_exit_program(c, true, &classic_link);
	int r;

	if (*link || *classic_link)
		return 0;
	if (hooks_sys_exit_is_classic(c)) {
		r = attach_once(classic, classic_link);
		if (r == 0 || c->hooks.sys_exit_chosen)
			goto out;
		c->hooks.no_tracefs = true;
	}
	r = attach_once(p, link);
out:
	c->hooks.sys_exit_chosen |= r == 0;
	return r;
}

static bool sys_exit_is_attached(const struct collector *c)
{
	struct bpf_link **link, **classic;

	sys_exit_program(c, false, &link);
	sys_exit_program(c, true, &classic);
	return *link || *classic;
}

int hooks_attach_sys_exit(struct collector *c)
{
	bool measures = c->skel->rodata->syscalls_enabled && !c->o.sample_calls &&
			!sys_exit_is_attached(c);
	double before = measures ? cost_of_call() : 0;
	int r = attach_sys_exit(c);

	if (r == 0 && measures)
		c->hooks.call_ns = MAX(cost_of_call() - before, 0.0);
	return r;
}

void hooks_detach_sys_exit(struct collector *c)
{
	struct bpf_link **link, **classic;

	if (c->sources[SOURCE_FUTEX].on ||
	    (c->sources[SOURCE_OFF_CPU].on && c->skel->rodata->resume_hook == RESUME_SPLIT))
		return;
	sys_exit_program(c, false, &link);
	sys_exit_program(c, true, &classic);
	bpf_link__destroy(*link);
	bpf_link__destroy(*classic);
	*link = *classic = NULL;
}

bool hooks_sys_exit_is_classic(const struct collector *c)
{
	return c->hooks.classic && !c->hooks.no_tracefs;
}

/* ---- new mappings -------------------------------------------------------------------------------------- */

void hooks_use_young(struct collector *c)
{
	if (!notes_young(c))
		return;
	use_program(c->skel->progs.young_exec);
	use_program(c->skel->progs.young_fork);
}

void hooks_attach_young(struct collector *c)
{
	if (!notes_young(c))
		return;
	(void)attach_once(c->skel->progs.young_exec, &c->skel->links.young_exec);
	(void)attach_once(c->skel->progs.young_fork, &c->skel->links.young_fork);
}
