/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Symbol names as people read them: C++ (Itanium), Rust (legacy and v0) and D demangled, clone suffixes of the
 * compiler (".cold", ".part.0", ".isra.0", ".constprop.0", ...) and symbol versions ("@@GLIBC_2.14") taken
 * off. Input is untrusted; output and stack are bounded. Run time is not for every input: whoever feeds
 * names of strangers does so in a process with RLIMIT_CPU.
 */
#pragma once

#include "base/util.h"

#define SYMBOL_NAME_MAX 1024 /* with its NUL; longer names end in "..." */

/*
 * Writes the readable form of a symbol table's name, valid UTF-8 without control characters. A name that
 * is not mangled, or mangled wrongly, is taken as it is.
 */
void symbol_readable_name(const char *system_name, char ret[static SYMBOL_NAME_MAX]);

/* The same without demangling: as in the symbol table, made presentable. */
void symbol_plain_name(const char *system_name, char ret[static SYMBOL_NAME_MAX]);

/* The length of name without clone suffixes and version. Never 0 for a name that is not empty. */
size_t symbol_base_length(const char *name);
