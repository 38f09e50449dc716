// SPDX-License-Identifier: GPL-2.0-or-later
#include "base/util.h"

int array_grow(void **items, size_t *cap, size_t need, size_t size)
{
	size_t n;
	void *p;

	if (need <= *cap)
		return 0;
	n = *cap + *cap / 2;
	if (n < need)
		n = need;
	if (n < 8)
		n = 8;
	if (n > SIZE_MAX / size)
		return -ENOMEM;
	p = realloc(*items, n * size);
	if (!p)
		return -ENOMEM;
	memset((char *)p + *cap * size, 0, (n - *cap) * size);
	*items = p;
	*cap = n;
	return 0;
}
