/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Configuration: one table of settings, read from sysprofd.conf and the *.conf drop-ins beside it
 * (sysprofd.conf.d/, in order of name, later wins). A line that cannot be used is reported with its file
 * and line and what was expected; the setting keeps its earlier value.
 */
#pragma once

#include <stdio.h>

#include "base/strbuf.h"
#include "serve/serve.h"

struct config {
	/* [collect] */
	bool on_cpu, off_cpu, syscalls, futex, kernel_locks;
	unsigned syscall_counts; /* 0: exact, 1: sampled */
	double cpu_budget; /* share of all CPUs */
	uint64_t syscall_stacks; /* one call in so many */
	double syscall_details, off_cpu_wakers; /* shares of the time */
	uint64_t counter_reads;
	double on_cpu_rate;
	unsigned on_cpu_event; /* 0: cpu-clock, 1: cycles */
	uint64_t off_cpu_threshold_ns, off_cpu_threshold_max_ns;
	uint64_t walks_per_second;
	uint64_t max_threads;
	uint64_t unwind_bytes;
	uint64_t slice_ns;
	uint64_t bucket_ns;
	uint64_t count_entries;
	uint64_t ring_bytes;
	uint64_t max_processes;
	uint64_t max_series;
	uint64_t max_stacks;
	/* [store] */
	char *state_directory;
	uint64_t store_max_bytes;
	uint64_t store_max_age_ns;
	/* [serve] */
	char *socket;
	char *group;
	uint64_t max_connections;
	uint64_t request_timeout_ns;
	uint64_t query_timeout_ns;
	uint64_t max_answer_bytes;
	uint64_t max_bursts;
	/* [symbol] */
	uint64_t symbol_cache_bytes;
	uint64_t symbol_memory;
	uint64_t symbol_timeout_ns;
	char *debuginfod_urls;
	uint64_t debuginfod_bytes;
	/* [access] */
	struct access_rule *rules;
	size_t n_rules, cap_rules;
	/* [log] */
	unsigned log_level; /* enum log_level */
};

int config_new(struct config **ret); /* all defaults */
struct config *config_free(struct config *c);
DEFINE_CLEANUP(struct config *, config_free)

/*
 * Reads path and path + ".d/" "*.conf" into c. Problems are appended to *problems, one line each
 * ("file:line: what was expected"); returns their number, or -errno without memory. A missing file is a
 * problem only when `required`.
 */
int config_load(struct config *c, const char *path, bool required, struct strbuf *problems);

/* Whether the settings of this section, in which there are no rules, have the same values. */
bool config_section_equal(const struct config *a, const struct config *b, const char *section);

/* The sample file: every setting with its default, range and help. */
int config_print_sample(FILE *f);
