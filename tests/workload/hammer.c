// SPDX-License-Identifier: GPL-2.0-or-later
/* hammer: keeps a CPU inside bpf(2), where ticks are skipped without a trace, until killed. Says "ready" first. */
#include <linux/bpf.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#define N 20000

static uint32_t keys[N], values[N];

static long bpf(int cmd, union bpf_attr *attr)
{
	return syscall(SYS_bpf, cmd, attr, sizeof(*attr));
}

int main(void)
{
	union bpf_attr map = {
		.map_type = BPF_MAP_TYPE_HASH, .key_size = 4, .value_size = 4, .max_entries = N
	};
	union bpf_attr element = { .key = (uintptr_t)keys, .value = (uintptr_t)values };
	int fd = (int)bpf(BPF_MAP_CREATE, &map);
	uint32_t out;

	if (fd < 0) {
		perror("hammer: bpf");
		return 1;
	}
	element.map_fd = (uint32_t)fd;
	for (keys[0] = 0; keys[0] < N; keys[0]++)
		if (bpf(BPF_MAP_UPDATE_ELEM, &element) < 0)
			return 1;
	puts("ready");
	fflush(stdout);
	for (;;) {
		union bpf_attr batch = { .batch = { .out_batch = (uintptr_t)&out,
						    .keys = (uintptr_t)keys,
						    .values = (uintptr_t)values,
						    .count = N,
						    .map_fd = (uint32_t)fd } };

		bpf(BPF_MAP_LOOKUP_BATCH, &batch);
	}
}
