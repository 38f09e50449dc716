/* SPDX-License-Identifier: GPL-2.0-or-later */
#pragma once

/*
 * A query takes some MiB and gives them back. malloc returns such memory to the kernel at once, and the next
 * query pays for every page of it again: more than for its own work. This lets each thread keep a little. To
 * be called before threads are started.
 */
void heap_keep_some(void);

/*
 * Free pages within the heaps of all threads go back to the kernel, which malloc by itself does only at a heap's
 * end. Takes a millisecond or two, and some more when the memory is wanted again: now and then, not often.
 */
void heap_give_back(void);
