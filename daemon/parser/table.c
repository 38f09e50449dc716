// SPDX-License-Identifier: GPL-2.0-or-later
/* The unwind table of one file, in a memory file for the daemon to read. */
#include <sys/mman.h>

#include "base/io.h"
#include "parser/internal.h"
#include "unwind/compile.h"

int table_answer(int fd, struct answer *a)
{
	_cleanup_free_ struct table *t = NULL;
	_cleanup_close_ int out = -1;
	int r;

	r = elf_build_id(fd, a->build_id);
	if (r < 0)
		return r;
	a->response.build_id = a->build_id;
	r = table_compile(fd, &t);
	if (r < 0)
		return r;
	out = memfd_create("unwind-table", MFD_CLOEXEC);
	if (out < 0)
		return negative_errno();
	r = write_full(out, t, t->bytes);
	if (r < 0)
		return r;
	a->response.table_bytes = t->bytes;
	a->fd = TAKE_FD(out);
	return 0;
}
