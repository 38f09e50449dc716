/* SPDX-License-Identifier: GPL-2.0-or-later */
#pragma once

/*
 * A query takes some MiB and gives them back. malloc returns such memory to the kernel at once, and the next
 * query pays for every page of it again: more than for its own work. This lets each thread keep a little. To
 * be called before threads are started.
 */
void heap_keep_some(void);
