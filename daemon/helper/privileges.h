/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What a helper gives up of what the daemon may do. For a process with one thread. */
#pragma once

#include "base/util.h"

int privileges_limit(int resource, uint64_t value);
/*
 * The user, where there is a capability for that, and all capabilities for good. What must hold everywhere does, or it
 * fails; the death signal and the dumpable flag go with the user.
 */
int privileges_drop_all(void) _warn_unused_;
