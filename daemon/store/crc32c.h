/* SPDX-License-Identifier: GPL-2.0-or-later */
#pragma once

#include "base/util.h"

/* Continues crc (0 at the start) over len bytes. */
uint32_t crc32c(uint32_t crc, const void *data, size_t len);
/* The same without the processor's instruction, for tests. */
uint32_t crc32c_portable(uint32_t crc, const void *data, size_t len);
