/* SPDX-License-Identifier: GPL-2.0 */
/* Logarithms, without the loops and the wide constants that verifiers and compilers stumble over. */
#pragma once

/* Bits of a number without leading zeros: 0 for 0, else 1 + log2, rounded down. */
static __always_inline u32 significant_bits(u64 v)
{
	u32 bits = 0;

	if (v >> 32) {
		v >>= 32;
		bits += 32;
	}
	if (v >> 16) {
		v >>= 16;
		bits += 16;
	}
	if (v >> 8) {
		v >>= 8;
		bits += 8;
	}
	if (v >> 4) {
		v >>= 4;
		bits += 4;
	}
	if (v >> 2) {
		v >>= 2;
		bits += 2;
	}
	return bits + (v > 1 ? 2 : v);
}
