/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Whether return addresses follow a call instruction. Not so of those that no call made: what a signal handler returns
 * to, what the signal interrupted, and where goroutines and coroutines begin.
 */
#pragma once

#include "base/util.h"

#define CALL_BYTES 8 /* the longest call, but for prefixes */

#if defined(__x86_64__)
#define SIGNAL_RETURN                                       \
	{                                                   \
		0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05 \
	} /* mov $15, %rax; syscall */

/* The length of the operand that a ModRM byte begins. */
static size_t operand_length(const uint8_t *p)
{
	unsigned mod = p[0] >> 6, rm = p[0] & 7;
	size_t n = 1 + (mod != 3 && rm == 4);

	if (mod == 0 && (rm == 5 || (rm == 4 && (p[1] & 7) == 5)))
		return n + 4;
	return n + (mod == 1 ? 1 : mod == 2 ? 4 : 0);
}

/* The bytes that end where it returns to: call rel32, or call *operand (ff /2). */
static bool is_call(const uint8_t before[static CALL_BYTES])
{
	if (before[CALL_BYTES - 5] == 0xe8)
		return true;
	for (size_t n = 2; n <= 7; n++) {
		const uint8_t *p = before + CALL_BYTES - n;

		if (p[0] == 0xff && (p[1] >> 3 & 7) == 2 && 1 + operand_length(p + 1) == n)
			return true;
	}
	return false;
}
#elif defined(__aarch64__)
#define SIGNAL_RETURN                                    \
	{                                                \
		0x68, 0x11, 0x80, 0xd2, 0x01, 0, 0, 0xd4 \
	} /* mov x8, #139; svc #0 */

static bool is_call(const uint8_t before[static CALL_BYTES])
{
	uint32_t i;

	memcpy(&i, before + CALL_BYTES - 4, sizeof(i));
	/* bl; blr, blraa and so on */
	return (i & 0xfc000000) == 0x94000000 || (i & 0xfefff000) == 0xd63f0000;
}
#endif

struct calls {
	uint64_t checked, signals, unreadable, strangers;
};

/* Reads code. False: it is not to be had. */
typedef bool (*read_code_fn)(void *ctx, void *to, size_t size, uint64_t from);

/* Of a complete stack, leaf first. `show` is called for each address that follows no call, and is of no signal. */
static void check_calls(const uint64_t *ips, size_t n, read_code_fn read_code, void *ctx,
			void (*show)(void *ctx, uint64_t ip), struct calls *c)
{
	static const uint8_t signal_return[] = SIGNAL_RETURN;
	uint8_t code[CALL_BYTES], at[sizeof(signal_return)];
	bool interrupted = false;

	for (size_t i = 0; i < n; i++) {
		/* Like what was interrupted it has 1 added. */
		bool handler = i > 0 && read_code(ctx, at, sizeof(at), ips[i] - 1) &&
			       memcmp(at, signal_return, sizeof(at)) == 0;

		if (handler || interrupted) {
			c->signals += handler;
		} else if (i == 0) {
			;
		} else if (!read_code(ctx, code, sizeof(code), ips[i] - sizeof(code))) {
			c->unreadable++;
		} else {
			c->checked++;
			if (!is_call(code)) {
				c->strangers++;
				show(ctx, ips[i]);
			}
		}
		interrupted = handler;
	}
}
