/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The places of the running kernel, as the daemon tells them to its collectors. */
#pragma once

#include <fcntl.h>

#include "collect/places.h"
#include "symbol/kallsyms.h"

static inline const struct kernel_places *kernel_places(void)
{
	static struct kernel_places places;
	static bool known;
	struct kallsyms *k = NULL;
	int fd = known ? -1 : open("/proc/kallsyms", O_RDONLY | O_CLOEXEC);

	if (fd >= 0 && kallsyms_new(fd, &k) == 0)
		kallsyms_each(k, places_tell, &places);
	kallsyms_free(k);
	close_fd(fd);
	known = true;
	return &places;
}
