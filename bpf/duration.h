/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Sampling of waits by their length; also compiled for the host, in tests.
 *
 * A wait of at least T is always kept, a shorter one of length d with probability d / T: when it begins, theta, uniform
 * in (0, T], is drawn, and it is kept when it lasts theta or longer. It then stands for max(d, T) of time, so that sums
 * are unbiased, and everyone who looks at the wait on its way (the iterator at a bucket's end, the resume) agrees on
 * whether it is kept.
 *
 * T is below 2^32 ns, so that no product here overflows.
 */
#pragma once

#include "hash.h"

/* The low bits of a nanosecond stamp are noise; the finalizer spreads them. */
static __always_inline u64 draw_theta(u64 t, u64 stamp, u32 tid)
{
	u64 u = (hash_finish(stamp ^ (u64)tid << 40) >> 40) + 1; /* 1 .. 2^24 */

	return u * t >> 24;
}

/* The time that a kept wait stands for, */
static __always_inline u64 wait_weight(u64 d, u64 t)
{
	return d > t ? d : t;
}

/* that of a part of it, */
static __always_inline u64 wait_part(u64 part, u64 d, u64 t)
{
	return d < t ? part * t / (d ?: 1) : part;
}

/* and how many waits it stands for, times 256. */
static __always_inline u64 wait_events_q8(u64 d, u64 t)
{
	return d >= t ? 256 : 256 * t / (d ?: 1);
}
