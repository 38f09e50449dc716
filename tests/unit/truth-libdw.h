/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The stack of a thread that ptrace has stopped, as libdw walks it. Include after cmocka.h.
 *
 * On arm64 libdw needs help in three things. Before 0.192 it takes a signed return address for an address: whatever it
 * reads loses the bits of the signature. It follows the frame record that the kernel leaves for a signal handler, which
 * has the link register of what was interrupted, but not its address: at the return from a handler a second walk begins
 * with the registers of the signal frame. And stubs of the linkage table and the vDSO, which have no call frame
 * information, change nothing that a caller has: from there a second walk begins at the link register.
 */
#pragma once

#include <elfutils/libdwfl.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <ucontext.h>

#include "../bpf/sysprofd.h"

struct stack {
	uint64_t ips[MAX_USER_FRAMES];
	size_t n;
	bool ended; /* it was followed to its end */
};

struct truth_walk {
	struct stack *stack;
	pid_t pid;
	Dwfl *dwfl;
#ifdef __aarch64__
	int mem; /* of the process */
	uint64_t regs[33]; /* where it begins: x0..x30, sp, pc */
	size_t first; /* frame from there */
	bool interrupted; /* at an instruction that has not run */
	bool again; /* to be gone on with, from regs */
#endif
};

static bool truth_add(struct truth_walk *w, uint64_t pc, bool exact)
{
	struct stack *k = w->stack;

	if (k->n == MAX_USER_FRAMES)
		return false;
	/* As the record has it: of all but the leaf the byte before is meant. */
	k->ips[k->n] = pc + (exact && k->n > 0);
	k->n++;
	return true;
}

#ifdef __aarch64__

#define TRUTH_ADDRESS_MASK ((1ULL << 48) - 1)
/* mov x8, #139; svc #0 */
#define TRUTH_SIGRETURN 0xd4000001d2801168ULL

static bool truth_read(Dwfl *d, Dwarf_Addr at, Dwarf_Word *ret, void *ctx)
{
	const struct truth_walk *w = ctx;

	if (pread(w->mem, ret, sizeof(*ret), (off_t)at) != sizeof(*ret))
		return false;
	*ret &= TRUTH_ADDRESS_MASK;
	return true;
}

static pid_t truth_next_thread(Dwfl *d, void *ctx, void **thread)
{
	const struct truth_walk *w = ctx;

	if (*thread)
		return 0;
	*thread = ctx;
	return w->pid;
}

static bool truth_registers(Dwfl_Thread *t, void *ctx)
{
	struct truth_walk *w = ctx;

	w->regs[30] &= TRUTH_ADDRESS_MASK;
	dwfl_thread_state_register_pc(t, w->regs[32]);
	return dwfl_thread_state_registers(t, 0, 32, w->regs);
}

/* At the return from a handler: before its first instruction, or its second. */
static bool truth_returns(const struct truth_walk *w, uint64_t pc)
{
	uint64_t code[2] = {};

	if (pread(w->mem, code, sizeof(code), (off_t)(pc - 4)) != sizeof(code))
		return false;
	return code[0] == TRUTH_SIGRETURN || (code[0] >> 32 | code[1] << 32) == TRUTH_SIGRETURN;
}

/* Where the kernel has put what was interrupted: siginfo, then ucontext. */
static bool truth_interrupted(struct truth_walk *w, Dwfl_Frame *f)
{
	const size_t at = sizeof(siginfo_t) + offsetof(ucontext_t, uc_mcontext.regs);
	Dwarf_Word sp;

	w->interrupted = true;
	return dwfl_frame_reg(f, 31, &sp) == 0 &&
	       pread(w->mem, w->regs, sizeof(w->regs), (off_t)(sp + at)) == sizeof(w->regs);
}

static bool truth_described(Dwfl_Module *m, uint64_t pc)
{
	Dwarf_Frame *frame = NULL;
	Dwarf_Addr bias = 0;
	Dwarf_CFI *cfi = m ? dwfl_module_eh_cfi(m, &bias) : NULL;
	bool described = cfi && dwarf_cfi_addrframe(cfi, pc - bias, &frame) == 0;

	free(frame);
	return described;
}

static bool truth_stub(Dwfl_Module *m, uint64_t pc)
{
	Dwarf_Addr bias = 0;
	Elf_Scn *scn = m ? dwfl_module_address_section(m, &pc, &bias) : NULL;
	Elf *elf = m ? dwfl_module_getelf(m, &bias) : NULL;
	GElf_Shdr sh;
	size_t names;

	if (m &&
	    str_skip_prefix(dwfl_module_info(m, NULL, NULL, NULL, NULL, NULL, NULL, NULL), "[vdso"))
		return true;
	return scn && gelf_getshdr(scn, &sh) && elf_getshdrstrndx(elf, &names) == 0 &&
	       streq(elf_strptr(elf, names, sh.sh_name), ".plt");
}

static int truth_frame(Dwfl_Frame *f, void *ctx)
{
	struct truth_walk *w = ctx;
	bool exact = false, first = w->stack->n == w->first, returns;
	Dwfl_Module *m;
	Dwarf_Addr pc;

	if (!dwfl_frame_pc(f, &pc, &exact))
		return DWARF_CB_ABORT;
	returns = truth_returns(w, pc);
	if (!truth_add(w, pc, first ? w->interrupted : exact || returns))
		return DWARF_CB_ABORT;
	if (returns) {
		w->again = truth_interrupted(w, f);
		return DWARF_CB_ABORT;
	}
	m = dwfl_addrmodule(w->dwfl, pc);
	if (truth_described(m, pc - !exact))
		return DWARF_CB_OK;
	/* What libdw does without is guessing. */
	w->again = first && truth_stub(m, pc);
	w->interrupted = false;
	w->regs[32] = w->regs[30];
	return DWARF_CB_ABORT;
}

static void truth_follow(struct truth_walk *w)
{
	static const Dwfl_Thread_Callbacks callbacks = {
		.next_thread = truth_next_thread,
		.memory_read = truth_read,
		.set_initial_registers = truth_registers,
	};
	struct user_regs_struct regs; /* in the order that is wanted, pstate behind */
	struct iovec io = { &regs, sizeof(regs) };
	char path[64];
	int r;

	snprintf(path, sizeof(path), "/proc/%d/mem", w->pid);
	w->mem = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(w->mem >= 0);
	assert_int_equal(ptrace(PTRACE_GETREGSET, w->pid, (void *)NT_PRSTATUS, &io), 0);
	memcpy(w->regs, &regs, sizeof(w->regs));
	assert_true(dwfl_attach_state(w->dwfl, NULL, w->pid, &callbacks, w));
	do {
		w->again = false;
		w->first = w->stack->n;
		r = dwfl_getthread_frames(w->dwfl, w->pid, truth_frame, w);
	} while (w->again);
	w->stack->ended = r == 0;
	close(w->mem);
}

#else

static int truth_frame(Dwfl_Frame *f, void *ctx)
{
	bool exact = false;
	Dwarf_Addr pc;

	return dwfl_frame_pc(f, &pc, &exact) && truth_add(ctx, pc, exact) ? DWARF_CB_OK
									  : DWARF_CB_ABORT;
}

static void truth_follow(struct truth_walk *w)
{
	assert_int_equal(dwfl_linux_proc_attach(w->dwfl, w->pid, true), 0);
	w->stack->ended = dwfl_getthread_frames(w->dwfl, w->pid, truth_frame, w) == 0;
}

#endif

static void walk_by_libdw(pid_t pid, struct stack *ret)
{
	static char *debuginfo_path;
	static const Dwfl_Callbacks callbacks = {
		.find_elf = dwfl_linux_proc_find_elf,
		.find_debuginfo = dwfl_standard_find_debuginfo,
		.debuginfo_path = &debuginfo_path,
	};
	Dwfl *d = dwfl_begin(&callbacks);
	struct truth_walk w = { .stack = ret, .pid = pid, .dwfl = d };

	*ret = (struct stack){};
	assert_non_null(d);
	dwfl_report_begin(d);
	assert_int_equal(dwfl_linux_proc_report(d, pid), 0);
	assert_int_equal(dwfl_report_end(d, NULL, NULL), 0);
	truth_follow(&w);
	dwfl_end(d);
}
