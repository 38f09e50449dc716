/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The vDSO is in no file. Every process of one architecture maps the kernel's one image, so ours will do. */
#pragma once

/* A memory file that holds the image, or -errno; -ENOENT when this kernel has none. */
int vdso_open(void);
