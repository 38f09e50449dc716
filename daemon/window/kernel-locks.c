// SPDX-License-Identifier: GPL-2.0-or-later
/* Waits for the kernel's own locks: rows of their process, by kind and place. */
#include "window/internal.h"

static int add_one(struct adding *a, const struct kernel_lock *k)
{
	struct window *w = a->w;
	bool folded;
	int64_t stack, series = resolve_series(w, k->tgid, 0, k->start, a->s->mono_end_ns, &folded);

	if (series < 0)
		return (int)series;
	stack = resolve_kernel_stack(w, k);
	if (stack < 0)
		return (int)stack;
	return columns_add(&w->bucket->columns[SOURCE_FUTEX], (uint32_t)series, (uint32_t)stack,
			   FUTEX_DETAIL(k->kind) | FUTEX_ASPECT(FUTEX_KERNEL), 0, k->waits, k->ns,
			   k->max_ns);
}

void kernel_locks_add(struct adding *a)
{
	for (size_t i = 0; i < a->s->n_kernel_locks; i++) {
		const struct kernel_lock *k = &a->s->kernel_locks[i];
		int r = add_one(a, k);

		if (r == 0)
			continue;
		/* They are in no account: the counter is what tells. */
		a->w->stats.kernel_locks_lost += k->waits;
		if (a->error == 0)
			a->error = r;
	}
	a->w->stats.kernel_locks_lost += a->s->kernel_locks_lost;
}
