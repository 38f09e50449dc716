/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The process that asks debuginfod servers: `sysprofd --fetcher FD:BYTES` (the daemon executes itself). It has the
 * network and no capability, where possible no user of the host's, and writes to no file but the one that comes with a
 * request. Returns the exit status.
 */
#pragma once

int fetcher_main(const char *how);
