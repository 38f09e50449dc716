// SPDX-License-Identifier: GPL-2.0-or-later
#include <malloc.h>

#include "base/heap.h"

#define KEPT (4 << 20) /* free memory at the end of a heap */
#define MAPPED (1 << 20) /* larger blocks are maps of their own, gone when they are freed */

void heap_keep_some(void)
{
	/* Setting one stops malloc from adjusting both by itself. */
	mallopt(M_TRIM_THRESHOLD, KEPT);
	mallopt(M_MMAP_THRESHOLD, MAPPED);
}

void heap_give_back(void)
{
	malloc_trim(0);
}
