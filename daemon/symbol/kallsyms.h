/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Kernel symbols: vmlinux, modules, BPF programs. The kernel is trusted, so this is read in the daemon
 * itself, once (about 5 MB); BPF programs that come later are added and removed as side-band KSYMBOL
 * records tell. Not thread-safe.
 */
#pragma once

#include "base/util.h"

struct kallsyms;

/* -EPERM when all addresses read as 0 (kptr_restrict without CAP_SYSLOG). fd: /proc/kallsyms, kept by caller. */
int kallsyms_new(int fd, struct kallsyms **ret);
struct kallsyms *kallsyms_free(struct kallsyms *k);
DEFINE_CLEANUP(struct kallsyms *, kallsyms_free)

struct kernel_symbol {
	const char *name;
	const char *
		module; /* "" for vmlinux, "bpf" for BPF programs, "__builtin__ftrace" and such for trampolines */
	uint64_t start;
	/*
	 * Of the address from _stext, or from the module's lowest text symbol: the same after a reboot. For BPF
	 * programs from their start, with a hash of the name in the upper half, so that one binary "bpf" holds all.
	 */
	uint64_t offset;
};
/* false: no symbol covers the address. Valid until the next call that changes k. */
bool kallsyms_find(const struct kallsyms *k, uint64_t address, struct kernel_symbol *ret);
/* The address of a name; of static functions with suffixes (".isra.0") the base name matches too. 0: none. */
uint64_t kallsyms_address(const struct kallsyms *k, const char *name);
/* Ends where the next symbol begins. */
bool kallsyms_range(const struct kallsyms *k, const char *name, uint64_t *ret_start,
		    uint64_t *ret_end);
/* Every function of vmlinux in the order of addresses; of aliases each, at the same start. */
typedef void (*kallsyms_fn)(void *ctx, uint64_t start, uint64_t end, const char *name);
void kallsyms_each(const struct kallsyms *k, kallsyms_fn fn, void *ctx);
int kallsyms_add(struct kallsyms *k, uint64_t address, uint32_t len, const char *name,
		 const char *module);
void kallsyms_remove(struct kallsyms *k, uint64_t address);
