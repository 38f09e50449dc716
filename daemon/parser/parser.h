/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The process that parses files of strangers: `sysprofd --symbol-helper FD` (the daemon executes itself). Returns
 * the exit status.
 */
#pragma once

int parser_main(int fd);
