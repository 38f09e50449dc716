/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Mappings that the daemon does not know of yet: of processes that have just begun, of libraries that were just
 * loaded. They are noted where they come to be, at exec and at the return of mmap: there the kernel can be asked for a
 * mapping (bpf_find_vma, 5.17), which it cannot in an interrupt. What is noted is the file; its table is looked up
 * when a walk needs it. The oldest notes make room for new ones.
 */
#pragma once

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct unwind_young);
} young_scratch SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct unwind_file_key);
	__type(value, struct unwind_file);
} unwind_files SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct unwind_file_key);
	__type(value, struct unwind_stranger);
} unwind_strangers SEC(".maps");

/* ---- for the walk ----------------------------------------------------------------------------------------- */

/* The daemon knows the binary, but not that this is a file of it, or has yet to build its table. */
static __always_inline void young_stranger(const struct scratch *s,
					   const struct unwind_young_mapping *m)
{
	struct unwind_stranger stranger = {
		.process = { .start = s->rec.start, .tgid = s->rec.tgid },
		.address = m->start,
		.mono_ns = s->rec.mono_ns,
		.owner = m->owner,
	};

	if (!bpf_map_lookup_elem(&unwind_strangers, &m->file))
		bpf_map_update_elem(&unwind_strangers, &m->file, &stranger, BPF_NOEXIST);
}

/* A file's table, and where in it the mapping is: of the segment that it shows most of. False: none is known. */
static __always_inline bool young_table(struct unwind_mapping *at,
					const struct unwind_young_mapping *m)
{
	const struct unwind_file *f = bpf_map_lookup_elem(&unwind_files, &m->file);
	u64 most = 0;

	at->start = m->start;
	at->end = m->end;
	at->delta = 0;
	at->root = 0;
	at->lack = UNWIND_LACK_PENDING;
	if (!f)
		return false;
	at->lack = UNWIND_LACK_CFI;
#pragma unroll
	for (u32 i = 0; i < UNWIND_FILE_SEGMENTS; i++) {
		u64 offset = f->segment[i].offset, end = offset + f->segment[i].size;
		u64 from = m->offset > offset ? m->offset : offset;
		u64 mapped_end = m->offset + (m->end - m->start);
		u64 to = mapped_end < end ? mapped_end : end;

		if (i >= f->n || to <= from || to - from <= most)
			continue;
		most = to - from;
		at->delta = m->start - (f->segment[i].pc + m->offset - offset);
		at->root = f->root;
	}
	return true;
}

__noinline int walk_young(u32 slot)
{
	struct scratch *s = scratch_at(slot);
	struct unwind_process_key key = {};
	const struct unwind_young *y;
	u64 pc;

	if (!s || !unwinding)
		return 1;
	key.start = s->rec.start;
	key.tgid = s->rec.tgid;
	y = bpf_map_lookup_elem(&unwind_young, &key);
	if (!y)
		return 1;
	pc = lookup_pc(&s->walk);
	for (u32 i = 0; i < UNWIND_YOUNG_MAPPINGS; i++) {
		const struct unwind_young_mapping *m = &y->mapping[i];

		if (i >= y->n)
			return 1;
		if (pc - m->start >= m->end - m->start)
			continue;
		if (!young_table(&s->walk.at, m))
			young_stranger(s, m);
		return 0;
	}
	return 1;
}

/* ---- noting ------------------------------------------------------------------------------------------------- */

static __always_inline u64 inode_changed_ns(const struct inode *inode)
{
	const struct inode___before_6_11 *older = (const void *)inode;
	const struct inode___before_6_6 *old = (const void *)inode;

	/* The highest bit of the nanoseconds says that somebody has asked for them (6.13). */
	if (bpf_core_field_exists(inode->i_ctime_sec))
		return BPF_CORE_READ(inode, i_ctime_sec) * 1000000000ULL +
		       (BPF_CORE_READ(inode, i_ctime_nsec) & 0x7fffffff);
	if (bpf_core_field_exists(older->__i_ctime))
		return BPF_CORE_READ(older, __i_ctime.tv_sec) * 1000000000ULL +
		       BPF_CORE_READ(older, __i_ctime.tv_nsec);
	return BPF_CORE_READ(old, i_ctime.tv_sec) * 1000000000ULL +
	       BPF_CORE_READ(old, i_ctime.tv_nsec);
}

/* Only what has a file, and the vDSO, which has the key of zeros. */
static long on_mapping(struct task_struct *task, struct vm_area_struct *vma, void *context)
{
	struct unwind_young_mapping *m = context;
	const struct inode *inode;
	const struct file *file;

	if (!(vma->vm_flags & VM_EXEC))
		return 0;
	file = vma->vm_file;
	if (!file && (u64)BPF_CORE_READ(vma, vm_mm, context.vdso) != vma->vm_start)
		return 0;
	m->start = vma->vm_start;
	m->end = vma->vm_end;
	if (!file)
		return 0;
	inode = BPF_CORE_READ(file, f_inode);
	m->offset = vma->vm_pgoff * page_size;
	m->file.ino = BPF_CORE_READ(inode, i_ino);
	m->file.size = BPF_CORE_READ(inode, i_size);
	m->file.changed_ns = inode_changed_ns(inode);
	m->file.dev = BPF_CORE_READ(inode, i_sb, s_dev);
	m->owner = BPF_CORE_READ(inode, i_uid.val);
	return 0;
}

/* Where to note it: in place of what lay there before, or behind all others. */
static __always_inline u32 young_place(const struct unwind_young *y,
				       const struct unwind_young_mapping *m)
{
	for (u32 i = 0; i < UNWIND_YOUNG_MAPPINGS; i++) {
		if (i >= y->n || (m->start < y->mapping[i].end && y->mapping[i].start < m->end))
			return i;
	}
	return UNWIND_YOUNG_MAPPINGS;
}

static __always_inline void young_note(struct unwind_young *y, struct task_struct *task,
				       u64 address)
{
	struct unwind_young_mapping m = {};
	u32 n;

	bpf_find_vma(task, address, on_mapping, &m, 0);
	if (!m.end)
		return;
	n = young_place(y, &m);
	asm volatile("" : "+r"(n));
	if (n >= UNWIND_YOUNG_MAPPINGS)
		return;
	y->mapping[n] = m;
	if (n >= y->n)
		y->n = n + 1;
}

/* A new program: its first mappings. */
static __always_inline void young_begins(struct task_struct *task, u64 entry)
{
	struct unwind_process_key key = {
		.start = BPF_CORE_READ(task, group_leader, start_boottime),
		.tgid = bpf_get_current_pid_tgid() >> 32,
	};
	struct unwind_young *y;
	u32 zero = 0;

	y = bpf_map_lookup_elem(&young_scratch, &zero);
	if (!y)
		return;
	y->n = 0;
	y->parent.tgid = 0;
	young_note(y, task, BPF_CORE_READ(task, mm, start_code));
	young_note(y, task, entry);
	young_note(y, task, (u64)BPF_CORE_READ(task, mm, context.vdso));
	bpf_map_update_elem(&unwind_young, &key, y, BPF_ANY);
}

/* A process that was forked has what its parent has: what is noted, and what the daemon knows of the parent. */
static __always_inline void young_forks(struct task_struct *parent, struct task_struct *child)
{
	struct unwind_process_key key = {
		.start = BPF_CORE_READ(parent, group_leader, start_boottime),
		.tgid = parent->tgid,
	};
	const struct unwind_young *noted;
	struct unwind_young *y;
	u32 zero = 0;

	if (child->pid != child->tgid)
		return;
	y = bpf_map_lookup_elem(&young_scratch, &zero);
	if (!y)
		return;
	noted = bpf_map_lookup_elem(&unwind_young, &key);
	y->n = 0;
	if (noted)
		bpf_probe_read_kernel(y, sizeof(*y), noted);
	/* The parent may itself be one that only its parent is known of. */
	if (!noted || !noted->parent.tgid || bpf_map_lookup_elem(&unwind_processes, &key))
		y->parent = key;
	key.start = child->start_boottime;
	key.tgid = child->tgid;
	bpf_map_update_elem(&unwind_young, &key, y, BPF_ANY);
}

#define PROT_EXEC_BIT 4

/* mmap returned an address. Programs that the daemon knows are followed by it, but half a second later. */
static __always_inline void young_maps(struct task_struct *task, u32 tgid, u64 start, u64 prot,
				       s64 address)
{
	struct unwind_process_key key = { .start = start, .tgid = tgid };
	struct unwind_young *y;

	if (!(prot & PROT_EXEC_BIT) || (address < 0 && address > -4096))
		return;
	y = bpf_map_lookup_elem(&unwind_young, &key);
	if (y)
		young_note(y, task, address);
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(young_exec, struct task_struct *task, u32 old_pid, void *bprm)
{
	u64 regs[REGS_WORDS];

	if (bpf_probe_read_kernel(regs, sizeof(regs),
				  (void *)bpf_task_pt_regs(bpf_get_current_task_btf())))
		return 0;
	young_begins(bpf_get_current_task_btf(), regs[REGS_IP]);
	return 0;
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(young_fork, struct task_struct *parent, struct task_struct *child)
{
	young_forks(parent, child);
	return 0;
}
