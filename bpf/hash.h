/* SPDX-License-Identifier: GPL-2.0-or-later */
#pragma once

/* Spreads what differs in any bits over all of them: the last step of MurmurHash3, by Austin Appleby, public domain. */
static __always_inline u64 hash_finish(u64 h)
{
	h ^= h >> 33;
	h *= 0xff51afd7ed558ccdULL;
	h ^= h >> 33;
	h *= 0xc4ceb9fe1a85ec53ULL;
	return h ^ h >> 33;
}
