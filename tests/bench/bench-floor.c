// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What the kernel itself takes for running a program: attaches an empty one to the return of system calls and one
 * to context switches, prints "ready" and waits to be killed. No profiler that counts there can cost less.
 */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/bpf.h>
#include <stdio.h>
#include <unistd.h>

#include "base/util.h"

static int attach_empty(const char *tracepoint)
{
	static const struct bpf_insn nothing[] = {
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0 },
		{ .code = BPF_JMP | BPF_EXIT },
	};
	LIBBPF_OPTS(bpf_prog_load_opts, opts, .expected_attach_type = BPF_TRACE_RAW_TP);
	int fd, id = libbpf_find_vmlinux_btf_id(tracepoint, BPF_TRACE_RAW_TP);

	if (id < 0)
		return id;
	opts.attach_btf_id = (uint32_t)id;
	fd = bpf_prog_load(BPF_PROG_TYPE_TRACING, "floor", "GPL", nothing, ARRAY_SIZE(nothing),
			   &opts);
	return fd < 0 ? fd : bpf_raw_tracepoint_open(NULL, fd);
}

int main(void)
{
	static const char *const tracepoints[] = { "sys_exit", "sched_switch" };

	for (size_t i = 0; i < ARRAY_SIZE(tracepoints); i++) {
		int r = attach_empty(tracepoints[i]);

		if (r < 0) {
			fprintf(stderr, "bench-floor: %s: %s\n", tracepoints[i], strerror(-r));
			return 1;
		}
	}
	puts("ready");
	fflush(stdout);
	pause();
	return 0;
}
