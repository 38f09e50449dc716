/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Profiles into files. */
#pragma once

#include "ctl/options.h"

/*
 * Unpacks the profile, writes it as the options say, and says on standard output what was written (on stderr
 * where the file is standard output). A file appears whole or not at all. An enum ctl_exit.
 */
int file_write_profile(const struct options *o, const Sysprofd__V1__Profile *m,
		       const Sysprofd__V1__Host *host);
