/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What keeps a parser that a file has taken over from doing anything with it: no capabilities, no user of the
 * host's, no network, no filesystem, few system calls, bounded memory.
 */
#pragma once

#include "base/util.h"

/*
 * For the process that is to parse, single-threaded, its channel made. memory: RLIMIT_AS, 0 for none. Fails when
 * what must hold everywhere does not; what needs privileges is done as far as they go.
 */
int sandbox_enter(uint64_t memory) _warn_unused_;
