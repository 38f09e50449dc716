// SPDX-License-Identifier: GPL-2.0-or-later
#include <link.h>
#include <sys/auxv.h>
#include <sys/mman.h>

#include "base/io.h"
#include "symbol/vdso.h"

/* Section headers stand last in the image, behind what they describe. */
static size_t image_size(const ElfW(Ehdr) * e)
{
	return e->e_shoff + (size_t)e->e_shnum * e->e_shentsize;
}

int vdso_open(void)
{
	const ElfW(Ehdr) *e = (const ElfW(Ehdr) *)getauxval(AT_SYSINFO_EHDR);
	_cleanup_close_ int fd = -1;
	int r;

	if (!e)
		return -ENOENT;
	fd = memfd_create("vdso", MFD_CLOEXEC);
	if (fd < 0)
		return negative_errno();
	r = write_full(fd, e, image_size(e));
	if (r < 0)
		return r;
	return TAKE_FD(fd);
}
