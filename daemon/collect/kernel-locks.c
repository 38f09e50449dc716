// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Waits for the kernel's own locks. The programs add them up in tables that are mapped here and written without locks
 * (bpf/contention.bpf.c says why); nobody writes the set of a closed window any more, and it is emptied in place.
 */
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>

#include "collect/internal.h"

#define SUMS_MIN 1024
#define SUMS_MAX 16384
#define WAITS_MIN 2048
#define WAITS_MAX 16384

struct kernel_locks {
	struct kernel_lock *sets[2];
	size_t n;
	uint64_t lost_before; /* told already */
};

static uint32_t power_of_two_from(uint32_t least, uint32_t wanted, uint32_t most)
{
	while (least < most && least < wanted)
		least *= 2;
	return least;
}

static int use_tables(struct collector *c)
{
	uint32_t sums = power_of_two_from(SUMS_MIN, 512 * c->cpus_possible, SUMS_MAX) >> c->shrink;
	uint32_t waits = power_of_two_from(WAITS_MIN, count_threads(), WAITS_MAX) >> c->shrink;
	int r;

	c->skel->rodata->kernel_locks_mask = sums - 1;
	c->skel->rodata->kernel_waits_mask = waits - 1;
	r = use_map(c->skel->maps.kernel_locks_a, sums);
	if (r == 0)
		r = use_map(c->skel->maps.kernel_locks_b, sums);
	if (r == 0)
		r = use_map(c->skel->maps.kernel_waits, waits);
	if (r == 0)
		r = use_map(c->skel->maps.kernel_spins, 0);
	return r;
}

_printf_(2, 3) static void leave_out(struct collector *c, const char *fmt, ...)
{
	char *text = c->sources[SOURCE_FUTEX].state.kernel_locks;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(c->sources[SOURCE_FUTEX].state.kernel_locks), fmt, ap);
	va_end(ap);
}

int kernel_locks_configure(struct collector *c)
{
	if (!c->o.kernel_locks) {
		leave_out(c, "off (kernel-locks=no)");
		return 0;
	}
	if (c->kernel_locks_refused)
		return 0;
	if (!c->hooks.contention) {
		leave_out(c, "this kernel has no contention tracepoints (Linux 5.19 has)");
		return 0;
	}
	use_program(c->skel->progs.contention_begin);
	use_program(c->skel->progs.contention_end);
	return use_tables(c);
}

bool kernel_locks_give_way(struct collector *c, const char *why)
{
	if (!c->o.kernel_locks || !c->hooks.contention || c->kernel_locks_refused)
		return false;
	leave_out(c, "%s", why);
	c->kernel_locks_refused = true;
	return true;
}

static void unmap(struct kernel_locks *l)
{
	for (int i = 0; i < 2; i++)
		if (l->sets[i])
			munmap(l->sets[i], l->n * sizeof(**l->sets));
	free(l);
}

static int map_set(struct kernel_locks *l, int set, const struct bpf_map *m)
{
	void *p;

	l->n = bpf_map__max_entries(m);
	p = mmap(NULL, l->n * sizeof(**l->sets), PROT_READ | PROT_WRITE, MAP_SHARED, bpf_map__fd(m),
		 0);
	if (p == MAP_FAILED)
		return negative_errno();
	l->sets[set] = p;
	return 0;
}

/* The end first: an end without a begin is nothing, and a begin without an end stands in the way. */
static int attach_programs(struct collector *c)
{
	struct sysprofd_bpf *skel = c->skel;

	skel->links.contention_end = bpf_program__attach(skel->progs.contention_end);
	if (!skel->links.contention_end)
		return negative_errno();
	skel->links.contention_begin = bpf_program__attach(skel->progs.contention_begin);
	return skel->links.contention_begin ? 0 : negative_errno();
}

void kernel_locks_attach(struct collector *c)
{
	struct kernel_locks *l;
	int r;

	if (bpf_program__fd(c->skel->progs.contention_end) < 0)
		return;
	l = new0(struct kernel_locks, 1);
	r = l ? map_set(l, 0, c->skel->maps.kernel_locks_a) : -ENOMEM;
	if (r == 0)
		r = map_set(l, 1, c->skel->maps.kernel_locks_b);
	if (r == 0)
		r = attach_programs(c);
	if (r == 0) {
		c->kernel_locks = l;
		leave_out(c, "contention tracepoints");
		return;
	}
	if (l)
		unmap(l);
	leave_out(c, "could not be attached: %s", strerror(-r));
}

void kernel_locks_free(struct collector *c)
{
	if (c->kernel_locks)
		unmap(c->kernel_locks);
	c->kernel_locks = NULL;
}

/* Runs that the kernel skipped because the program ran on that CPU already (6.1). */
static uint64_t skipped_runs(const struct bpf_program *p)
{
	struct bpf_prog_info info = {};
	uint32_t size = sizeof(info);

	return bpf_obj_get_info_by_fd(bpf_program__fd(p), &info, &size) < 0 ? 0
									    : info.recursion_misses;
}

static uint64_t lost_so_far(const struct collector *c)
{
	return skipped_runs(c->skel->progs.contention_begin) +
	       skipped_runs(c->skel->progs.contention_end) + c->skel->bss->kernel_locks_short +
	       c->skel->bss->kernel_waits_short;
}

int kernel_locks_drain(struct collector *c, unsigned set, struct slice *s)
{
	struct kernel_locks *l = c->kernel_locks;
	struct kernel_lock *e;
	uint64_t lost;
	int r = 0;

	if (!l)
		return 0;
	for (size_t i = 0; i < l->n; i++) {
		e = &l->sets[set][i];
		if (!e->id)
			continue;
		if (r == 0)
			r = ARRAY_GROW(s->kernel_locks, s->cap_kernel_locks, s->n_kernel_locks + 1);
		if (r == 0)
			s->kernel_locks[s->n_kernel_locks++] = *e;
		else
			s->kernel_locks_lost += e->waits;
		*e = (struct kernel_lock){};
	}
	lost = lost_so_far(c);
	s->kernel_locks_lost += lost - l->lost_before;
	l->lost_before = lost;
	return r;
}
