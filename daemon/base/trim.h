/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Directories of files that can be had again. They share the file system with what cannot: they keep to a part of it,
 * and out of what is left. A file's mtime is the time of its last use.
 */
#pragma once

#include "base/util.h"

#define TRIM_NAME_MAX 71 /* files with longer names are left alone */

/* How many bytes they may be, up to bytes_max; 0 when there is no room for any: a tenth is left to others. */
uint64_t trim_limit(int dir_fd, uint64_t bytes_max);
/* Removes the files whose last use is the longest ago until the rest keeps to that limit. dir may be NULL. */
void trim_directory(const char *dir, uint64_t bytes_max);
