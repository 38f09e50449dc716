/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The process that parses files of strangers: `sysprofd --symbol-helper FD:BYTES` (the daemon executes itself),
 * with its channel and its limit on memory. Returns the exit status.
 */
#pragma once

int parser_main(const char *how);
