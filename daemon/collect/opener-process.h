/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The process that opens files of strangers: `sysprofd --opener FD:BYTES` (the daemon executes itself). It reads no
 * file but for its build-id, and may do nothing but look into other processes and read what is theirs; it may crash,
 * hang or be killed, and another one is started. Requests are made one after another, each within its time; files
 * that do not answer hold up threads over there (opener.h).
 */
#pragma once

#include <stdatomic.h>

#include "collect/opener.h"

/* Returns the exit status. */
int opener_main(const char *how);

/* ---- in the daemon ------------------------------------------------------------------------------- */

struct opener_process;
int opener_process_new(struct opener_process **ret) _warn_unused_;
struct opener_process *opener_process_free(struct opener_process *p);
/* As open_debug_with_deadline(). -EBUSY also when others took the time. */
int opener_process_open(struct opener_process *p, const struct open_request *rq,
			uint64_t timeout_ns, size_t *ret_which) _warn_unused_;
void opener_process_stats(const struct opener_process *p, struct opener_stats *ret);
