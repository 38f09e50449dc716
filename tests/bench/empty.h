/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Empty programs: no profiler that counts at a tracepoint can cost less than one of them there. */
#pragma once

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/bpf.h>

#include "base/util.h"

/* Its program, or -errno; where there is no such tracepoint, -ESRCH. */
static inline int empty_load(const char *tracepoint)
{
	static const struct bpf_insn nothing[] = {
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0 },
		{ .code = BPF_JMP | BPF_EXIT },
	};
	LIBBPF_OPTS(bpf_prog_load_opts, opts, .expected_attach_type = BPF_TRACE_RAW_TP);
	int id = libbpf_find_vmlinux_btf_id(tracepoint, BPF_TRACE_RAW_TP);

	if (id < 0)
		return -ESRCH;
	opts.attach_btf_id = (uint32_t)id;
	return bpf_prog_load(BPF_PROG_TYPE_TRACING, "floor", "GPL", nothing, ARRAY_SIZE(nothing),
			     &opts);
}

/* Attached until what it returns is closed. */
static inline int empty_attach(int program)
{
	return bpf_raw_tracepoint_open(NULL, program);
}
