/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A host's day, made up but repeatable: what a store or a query is measured with. Per bucket of 10 s about 131
 * on-CPU, 350 off-CPU, 309 syscall and 41 futex rows, from 4,000 distinct stacks of 60 processes.
 */
#pragma once

#include <math.h>
#include <stdio.h>

#include "../../bpf/sysprofd.h"
#include "model/profile.h"

#define MODEL_PROCESSES 60
#define MODEL_THREADS 180
#define MODEL_ON_CPU 2700 /* (thread, stack) that ever run */
#define MODEL_OFF_CPU 1200
#define MODEL_FUTEX 120
#define MODEL_SYSCALLS 500
#define MODEL_FRAMES 6000
#define MODEL_DEPTH 28
#define MODEL_BINARIES 40

struct model {
	uint64_t random;
	uint32_t path[MODEL_ON_CPU + MODEL_OFF_CPU + MODEL_FUTEX][MODEL_DEPTH];
	uint8_t depth[MODEL_ON_CPU + MODEL_OFF_CPU + MODEL_FUTEX];
	double on_sum[MODEL_ON_CPU], off_sum[MODEL_OFF_CPU], sys_sum[MODEL_SYSCALLS];
	char function[MODEL_FRAMES][56], library[MODEL_BINARIES][24];
	/* Ids in the dictionary of the bucket that is being made; 0: not there yet. */
	uint32_t binary[MODEL_BINARIES], frame[MODEL_FRAMES], thread[MODEL_THREADS];
};

static inline uint64_t model_random(struct model *m)
{
	m->random ^= m->random << 13;
	m->random ^= m->random >> 7;
	m->random ^= m->random << 17;
	return m->random;
}

static inline double model_uniform(struct model *m)
{
	return (double)(model_random(m) >> 11) / 9007199254740992.0;
}

static inline void model_init(struct model *m, uint64_t seed)
{
	size_t n = ARRAY_SIZE(m->path);

	memset(m, 0, sizeof(*m));
	m->random = seed * 0x9e3779b97f4a7c15ULL + 1;
	/* Each stack leaves an earlier one somewhere and goes on alone. */
	for (size_t i = 0; i < n; i++) {
		size_t like = i > 0 ? model_random(m) % i : 0;
		size_t shared = i > 0 ? model_random(m) % m->depth[like] : 0;

		m->depth[i] = (uint8_t)(8 + model_random(m) % (MODEL_DEPTH - 7));
		for (size_t k = 0; k < m->depth[i]; k++)
			m->path[i][k] = k < shared ? m->path[like][k]
						   : (uint32_t)(model_random(m) % MODEL_FRAMES);
	}
	for (unsigned i = 0; i < MODEL_FRAMES; i++)
		snprintf(m->function[i], sizeof(m->function[i]),
			 "model::part%u::function_%u(int, char const*)", i % 97, i);
	for (unsigned i = 0; i < MODEL_BINARIES; i++)
		snprintf(m->library[i], sizeof(m->library[i]), "libmodel-%u.so.6", i);
	/* Weights fall with the rank; sums for choosing by bisection. */
	for (size_t i = 0; i < MODEL_ON_CPU; i++)
		m->on_sum[i] = (i ? m->on_sum[i - 1] : 0) + 1.0 / (i + 20.0);
	for (size_t i = 0; i < MODEL_OFF_CPU; i++)
		m->off_sum[i] = (i ? m->off_sum[i - 1] : 0) + 1.0 / (i + 200.0);
	for (size_t i = 0; i < MODEL_SYSCALLS; i++)
		m->sys_sum[i] = (i ? m->sys_sum[i - 1] : 0) + 1.0 / (i + 300.0);
}

static inline size_t model_choose(struct model *m, const double *sums, size_t n)
{
	double x = model_uniform(m) * sums[n - 1];
	size_t low = 0, high = n - 1;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (sums[middle] < x)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static inline uint32_t model_ok(int64_t id)
{
	if (id < 0)
		abort();
	return (uint32_t)id;
}

static inline uint32_t model_binary(struct model *m, struct dict *d, uint32_t i)
{
	struct binary b = { .kind = BINARY_ELF };
	char text[64];

	if (m->binary[i])
		return m->binary[i];
	b.name = model_ok(dict_string(d, m->library[i]));
	snprintf(text, sizeof(text), "/usr/lib/x86_64-linux-gnu/%s", m->library[i]);
	b.path = model_ok(dict_string(d, text));
	snprintf(text, sizeof(text), "%08x%08x%08x%08x%08x", i * 2654435761U, i * 40503U, i * 97U,
		 i * 7919U, i);
	b.build_id = model_ok(dict_string(d, text));
	m->binary[i] = model_ok(dict_binary(d, &b));
	return m->binary[i];
}

static inline uint32_t model_frame(struct model *m, struct dict *d, uint32_t i)
{
	struct frame f = { .kind = FRAME_NATIVE, .flags = FRAME_NAMED };

	if (m->frame[i])
		return m->frame[i];
	f.binary = model_binary(m, d, i % MODEL_BINARIES);
	f.name = model_ok(dict_string(d, m->function[i]));
	f.offset = 0x1000 + i * 64ULL + i * i % 60;
	m->frame[i] = model_ok(dict_frame(d, &f));
	return m->frame[i];
}

static inline uint32_t model_stack(struct model *m, struct dict *d, size_t i)
{
	uint32_t stack = 0;

	for (size_t k = 0; k < m->depth[i]; k++)
		stack = model_ok(dict_stack(d, stack, model_frame(m, d, m->path[i][k])));
	return stack;
}

static inline uint32_t model_series(struct model *m, struct dict *d, size_t thread, bool process)
{
	size_t p = thread % MODEL_PROCESSES;
	uint32_t id;
	struct series s = { .pid = (uint32_t)(1000 + p * 7), .uid = p % 5 ? 1000 : 0 };
	char text[64];

	if (!process && m->thread[thread])
		return m->thread[thread];
	s.start = (p + 1) * 1234567890ULL;
	snprintf(text, sizeof(text), "service-%zu", p);
	s.label[LABEL_COMM] = s.label[LABEL_THREAD] = model_ok(dict_string(d, text));
	snprintf(text, sizeof(text), "/usr/sbin/service-%zu", p);
	s.label[LABEL_EXE] = model_ok(dict_string(d, text));
	snprintf(text, sizeof(text), "service-%zu.service", p);
	s.label[LABEL_UNIT] = model_ok(dict_string(d, text));
	snprintf(text, sizeof(text), "/system.slice/service-%zu.service", p);
	s.label[LABEL_CGROUP] = model_ok(dict_string(d, text));
	if (!process) {
		s.tid = (uint32_t)(s.pid + thread / MODEL_PROCESSES);
		snprintf(text, sizeof(text), "worker/%zu", thread / MODEL_PROCESSES);
		s.label[LABEL_THREAD] = model_ok(dict_string(d, text));
	}
	id = model_ok(dict_series(d, &s));
	if (!process)
		m->thread[thread] = id;
	return id;
}

static inline void model_add(struct columns *c, uint32_t series, uint32_t stack, uint32_t key,
			     uint32_t aux, uint64_t count, uint64_t value, uint64_t max)
{
	if (columns_add(c, series, stack, key, aux, count, value, max) < 0)
		abort();
}

static inline void model_on_cpu(struct model *m, struct bucket *b)
{
	struct columns *c = &b->columns[PROFILE_ON_CPU];

	/* 19 Hz on 12 busy CPUs would be 2,280 ticks; a mostly idle host has 190. */
	for (size_t i = 0; i < 152; i++) {
		size_t t = model_choose(m, m->on_sum, MODEL_ON_CPU);
		uint64_t us = (uint64_t)(52631 * (0.9 + 0.2 * model_uniform(m)));

		model_add(c, model_series(m, b->dict, t % MODEL_THREADS, false),
			  model_stack(m, b->dict, t), 0, 0, 1, us, 0);
		b->meta.source[PROFILE_ON_CPU].stored++;
		b->meta.source[PROFILE_ON_CPU].stored_us += us;
	}
	b->meta.source[PROFILE_ON_CPU].idle = 200 + model_random(m) % 50;
	b->meta.source[PROFILE_ON_CPU].seen = b->meta.source[PROFILE_ON_CPU].stored +
					      b->meta.source[PROFILE_ON_CPU].idle;
}

static inline void model_off_cpu(struct model *m, struct bucket *b)
{
	struct columns *c = &b->columns[PROFILE_OFF_CPU];

	for (size_t i = 0; i < 120; i++) {
		size_t t = model_random(m) % MODEL_THREADS;
		uint32_t cause = OFF_BLOCKED + i % 2;

		model_add(c, model_series(m, b->dict, t, false), 0, OFF_KEY(cause, 0, 1), 0,
			  1 + model_random(m) % 300, (uint64_t)exp(model_uniform(m) * 9 + 6), 0);
	}
	for (size_t i = 0; i < 290; i++) {
		size_t t = model_choose(m, m->off_sum, MODEL_OFF_CPU);

		model_add(c, model_series(m, b->dict, t % MODEL_THREADS, false),
			  model_stack(m, b->dict, MODEL_ON_CPU + t), OFF_KEY(OFF_BLOCKED, 1, 0), 0,
			  1 + model_random(m) % 8, (uint64_t)exp(model_uniform(m) * 8 + 6), 0);
	}
}

static inline void model_syscalls(struct model *m, struct bucket *b)
{
	struct columns *c = &b->columns[PROFILE_SYSCALLS];

	for (size_t i = 0; i < 470; i++) {
		size_t t = model_choose(m, m->sys_sum, MODEL_SYSCALLS);
		uint64_t usual = 3 + t * t % 4000;

		model_add(c, model_series(m, b->dict, t % MODEL_PROCESSES, true), 0,
			  SYSCALL_KEY(0, (uint32_t)(t * 7 % 330), t % 9 ? 0 : 11), 0,
			  usual + model_random(m) % (1 + usual / 5), 0, 0);
	}
}

static inline void model_futex(struct model *m, struct bucket *b)
{
	struct columns *c = &b->columns[PROFILE_FUTEX];

	for (size_t i = 0; i < 50; i++) {
		size_t t = model_random(m) % MODEL_FUTEX;
		uint64_t us = (uint64_t)exp(model_uniform(m) * 8 + 4);
		struct lock l = { .pid = (uint32_t)(1000 + t % MODEL_PROCESSES * 7),
				  .address = 0x7f0000000000 + t * 4096 };

		model_add(c, model_series(m, b->dict, t % MODEL_THREADS, false),
			  model_stack(m, b->dict, MODEL_ON_CPU + MODEL_OFF_CPU + t),
			  FUTEX_KEY(0, 1 + t % 2), model_ok(dict_lock(b->dict, &l)),
			  1 + model_random(m) % 40, us, us / (1 + model_random(m) % 4));
	}
}

/* The bucket of one moment; dict and columns belong to the caller's bucket. */
static inline struct bucket *model_bucket(struct model *m, uint64_t start_wall_ns)
{
	struct bucket *b;

	if (bucket_new(&b) < 0)
		abort();
	memset(m->binary, 0, sizeof(m->binary));
	memset(m->frame, 0, sizeof(m->frame));
	memset(m->thread, 0, sizeof(m->thread));
	strcpy(b->meta.boot_id, "0123456789abcdef0123456789abcdef");
	b->meta.start_wall_ns = start_wall_ns;
	b->meta.length_ns = 10 * NSEC_PER_SEC;
	b->meta.covered_ns = 10 * NSEC_PER_SEC - model_random(m) % NSEC_PER_MSEC;
	b->meta.cpus = 12;
	b->meta.busy_us = 10000000 + model_random(m) % 1000000;
	for (size_t t = 0; t < PROFILE_TYPE_N; t++)
		b->meta.source[t].active = true;
	model_on_cpu(m, b);
	model_off_cpu(m, b);
	model_syscalls(m, b);
	model_futex(m, b);
	for (size_t t = 0; t < PROFILE_TYPE_N; t++)
		if (columns_sort_merge(&b->columns[t]) < 0)
			abort();
	return b;
}
