/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What a blocked thread waits for, read from its kernel stack, and whether it is idle. */
#pragma once

#include "model/profile.h"

/* Whether waiting there is what a thread without work does. */
enum wait_habit {
	WAIT_WORKS = 0, /* somebody waits for the outcome */
	WAIT_MAY_IDLE, /* a server's loop: idle when it is seldom woken */
	WAIT_MAY_POOL, /* a condition variable or a lock: idle when it is woken more seldom still */
	WAIT_IDLES, /* whatever wakes it is not late */
};

struct wait_place {
	enum wait_kind kind;
	enum wait_habit habit;
};

/*
 * From the functions of a kernel stack, leaf first, from behind __schedule; `call` is a SYSCALL_KEY() or CALL_NONE, with
 * CALL_FUTEX_* in the bits of the errno. Without functions (n = 0: kernel addresses are hidden) the call alone decides.
 */
struct wait_place wait_classify(const char *const *functions, size_t n, uint32_t call,
				uint32_t task_state);

/* Of waits in one place, of `ns` together, of which so many (in 1/256) have ended. */
bool wait_is_idle(struct wait_place place, uint64_t ns, uint64_t events_q8);
