/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * User registers as the ABI lays them out: struct pt_regs of asm/ptrace.h on x86-64, struct user_pt_regs on
 * arm64. Both are what a perf_event program's context begins with, and the head of the pt_regs that the
 * kernel saves on entry. Words, so that a 16-bit cs (6.9) is read at its offset like any other.
 *
 * REGS_OF_DWARF_TABLE gives the word of each of DWARF's registers (System V ABI, figure 3.36); on arm64 they are the
 * same (AADWARF64, 4.1).
 *
 * SIGNAL_REGS is where the kernel's signal frame keeps the registers, from the stack pointer at the return from the
 * handler: behind the head of ucontext on x86-64 (40 bytes), behind siginfo and the head of ucontext on arm64 (312).
 * SIGNAL_ORDER is the order in which they lie there, by words of the registers (asm/sigcontext.h).
 */
#pragma once

#if defined(__TARGET_ARCH_x86) || (!defined(__bpf__) && defined(__x86_64__))
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
#define X32_BIT 0x40000000 /* in the number of a call */
#define REGS_CALL(words) ((words)[REGS_NR])
#define REGS_CALL_ARG1(words) (REGS_IN_COMPAT(words) ? (words)[11] : (words)[13])
#define REGS_CALL_ARG3(words) (REGS_IN_COMPAT(words) ? (words)[13] : (words)[7])
#define REGS_R9 8
#define REGS_BASE 5 /* bx */
#define DWARF_BASE 3
#define REGS_OF_DWARF_TABLE                                          \
	{                                                            \
		10, 12, 11, 5, 13, 14, 4, 19, 9, 8, 7, 6, 3, 2, 1, 0 \
	}
#define SIGNAL_REGS 40
#define SIGNAL_WORDS 17
/* r8..r15, di, si, bp, bx, dx, ax, cx, sp, ip: the words of pt_regs in this order */
#define SIGNAL_ORDER                                                     \
	{                                                                \
		9, 8, 7, 6, 3, 2, 1, 0, 14, 13, 4, 5, 12, 10, 11, 19, 16 \
	}
/* add $SIZE, %rsp; ret: as it is read from memory, with a size below 128 */
#define FRAME_DROP 0xc300c48348ULL
#define FRAME_DROP_MASK 0xff80ffffffULL
#define FRAME_DROP_BYTES 5
#define FRAME_DROP_SIZE(code) ((code) >> 24 & 0x7f)
#elif defined(__TARGET_ARCH_arm64) || (!defined(__bpf__) && defined(__aarch64__))
#define REGS_WORDS 34
#define REGS_FP 29
#define REGS_LR 30
#define REGS_SP 31
#define REGS_IP 32
#define REGS_CS 33 /* pstate */
#define REGS_IN_USER(words) (((words)[REGS_CS] & 0xf) == 0)
#define REGS_IN_COMPAT(words) (((words)[REGS_CS] & 0x10) != 0)
/* Of a thread in a call: its number lies where the caller put it. */
#define REGS_CALL(words) (REGS_IN_COMPAT(words) ? (words)[7] : (words)[8])
#define REGS_CALL_ARG1(words) ((words)[1])
#define REGS_CALL_ARG3(words) ((words)[3])
#define SIGNAL_REGS 312
#define SIGNAL_WORDS 33 /* x0..x30, sp, pc: as in user_pt_regs */
#else
#error "no register layout for this architecture"
#endif
