// SPDX-License-Identifier: GPL-2.0-or-later
/* From the configuration to the options of each stage. */
#include "manager/internal.h"

const char *manager_state_directory(const struct manager *m)
{
	return m->options.state_directory ?: m->config->state_directory;
}

/* On the drain thread: on to the archive. */
static void bucket_closed(void *ctx, struct filled *f)
{
	struct manager *m = ctx;

	work_take(&m->work, f->bucket);
	archive_push(m->archive, f);
}

void manager_recorder_options(struct manager *m, const struct config *c,
			      struct recorder_options *ret)
{
	*ret = (struct recorder_options){
		.collect = {
			.enabled = {
				[SOURCE_ON_CPU] = c->on_cpu,
				[SOURCE_OFF_CPU] = c->off_cpu,
				[SOURCE_SYSCALLS] = c->syscalls,
				[SOURCE_FUTEX] = c->futex,
			},
			.on_cpu_hz = c->on_cpu_rate,
			.on_cpu_cycles = c->on_cpu_event == 1,
			.on_cpu_jitter = 0.1,
			.off_cpu_threshold_ns = c->off_cpu_threshold_ns,
			.off_cpu_threshold_max_ns =
				MAX(c->off_cpu_threshold_max_ns, c->off_cpu_threshold_ns),
			.walks_per_second = (uint32_t)c->walks_per_second,
			.cpu_budget = c->cpu_budget,
			.syscall_stacks = (uint32_t)c->syscall_stacks,
			.sample_calls = c->syscall_counts == 1,
			.bucket_ns = c->bucket_ns,
			.syscall_details = c->syscall_details,
			.kernel_locks = c->kernel_locks,
			.counter_reads = (uint32_t)c->counter_reads,
			.off_cpu_wakers = c->off_cpu_wakers,
			.max_threads = (uint32_t)c->max_threads,
			.count_entries = (uint32_t)c->count_entries,
			.ring_bytes = (uint32_t)c->ring_bytes,
			.slice_ns = MIN(c->slice_ns, c->bucket_ns),
		},
		.window = {
			.max_series = (uint32_t)c->max_series,
			.max_stacks = (uint32_t)c->max_stacks,
			.max_bytes = 16 * 1024 * 1024,
		},
		.process = {
			.proc = "/proc",
			.max_processes = (uint32_t)c->max_processes,
			.max_mappings = 4096,
			.max_fds = 512,
			.side_band = true,
			.opener_process = true,
		},
		.table_cache = m->table_cache,
		.table_bytes = c->unwind_bytes,
		.bucket_ns = c->bucket_ns,
		.max_bursts = (uint32_t)c->max_bursts,
		.closed = bucket_closed,
		.ctx = m,
	};
}

void manager_store_options(struct manager *m, const struct config *c, struct store_options *ret)
{
	*ret = (struct store_options){
		.directory = manager_state_directory(m),
		.max_bytes = c->store_max_bytes,
		.max_age_ns = c->store_max_age_ns,
		.repack_buckets = 60,
	};
}
