/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What locks prints with --kernel. */
#pragma once

#include "ctl/print.h"

void kernel_locks_json(const struct options *o, const void *answer, struct strbuf *out);
int kernel_locks_text(const struct options *o, const void *answer, struct strbuf *out);
