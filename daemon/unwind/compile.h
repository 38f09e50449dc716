/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * .eh_frame of one ELF file, and .debug_frame for what that leaves out, become an unwind table. Runs in the parser:
 * input is hostile, everything is read with pread, bounded and checked. Code without call frame information stays
 * without rows, but for what is known by its bytes (gap.h).
 */
#pragma once

#include "unwind/table.h"

/*
 * -ENOEXEC: no ELF program of this machine. -ENODATA: it has no call frame information. -EBADMSG: damaged. -EFBIG,
 * -ENOMEM, or an error of reading. The caller frees the table.
 */
int table_compile(int fd, struct table **ret);
