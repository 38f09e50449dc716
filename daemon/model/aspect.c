// SPDX-License-Identifier: GPL-2.0-or-later
/* Aspects of rows: what the fields mean that depend on the key. */
#include "../bpf/sysprofd.h"
#include "model/profile.h"

uint32_t aspect_mask(enum profile_type type)
{
	static const uint32_t masks[PROFILE_TYPE_N] = {
		[PROFILE_ON_CPU] = ON_ASPECT(15),
		[PROFILE_OFF_CPU] = OFF_ASPECT(7),
		[PROFILE_SYSCALLS] = CALL_KEY(3, 0, 0, 0),
		[PROFILE_FUTEX] = FUTEX_ASPECT(15),
	};

	return masks[type];
}

unsigned row_aspect(enum profile_type type, uint32_t key)
{
	uint32_t mask = aspect_mask(type);

	if (type == PROFILE_SYSCALLS && key >> 30 == CALL_BASIS && CALL_KEY_BIN(key))
		return CALL_STACKS;
	return mask ? (key & mask) / (mask & -mask) : 0;
}

bool row_is_time(enum profile_type type, uint32_t key)
{
	unsigned aspect = row_aspect(type, key);

	if (type == PROFILE_SYSCALLS)
		return aspect == CALL_LATENCY;
	if (type == PROFILE_FUTEX)
		return aspect != FUTEX_WAKES && aspect != FUTEX_CROWD;
	if (type == PROFILE_ON_CPU)
		return aspect == ON_SAMPLES ||
		       (aspect == ON_COUNTERS && ON_KEY_COUNTER(key) >= COUNTER_SPANS);
	return true;
}

enum aux_kind row_aux(enum profile_type type, uint32_t key)
{
	if (type == PROFILE_FUTEX)
		return AUX_LOCK;
	if (type == PROFILE_OFF_CPU && row_aspect(type, key) == OFF_WAKES)
		return AUX_SERIES;
	return AUX_NONE;
}

int64_t dict_map_aux(struct dict_map *m, enum profile_type type, uint32_t key, uint32_t aux)
{
	switch (row_aux(type, key)) {
	case AUX_LOCK:
		return dict_map_lock(m, aux);
	case AUX_SERIES:
		return dict_map_series(m, aux);
	case AUX_NONE:
		break;
	}
	return aux;
}
