/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The kernel's type information (BTF), looked at where it lies: libbpf copies and indexes all of it for each
 * object that it loads, which for a few questions costs more than everything else here.
 */
#pragma once

#include <bpf/btf.h>

#include "base/util.h"

struct kernel_types {
	void *data;
	size_t size;
	bool mapped;
	const char *types, *types_end;
	const char *strings;
	size_t strings_size;
};

/* -EBADMSG when it is not BTF as this program knows it. path: /sys/kernel/btf/vmlinux */
int types_open(const char *path, struct kernel_types *ret) _warn_unused_;
void types_done(struct kernel_types *t);

/* NULL when there is no such type, or a kind before it that this program does not know. */
const struct btf_type *types_find(const struct kernel_types *t, const char *name, unsigned kind,
				  uint32_t *ret_id);
const struct btf_type *types_get(const struct kernel_types *t, uint32_t id);
const char *types_string(const struct kernel_types *t, uint32_t offset); /* "" beyond the end */
