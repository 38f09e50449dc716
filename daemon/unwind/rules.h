/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The rules of all tables, each once, with the number of tables that use it. Rule 0 is UNWIND_NONE. What no table
 * uses any more is used anew only after two rules_settle(), between which a grace period must have passed. Not
 * thread-safe.
 */
#pragma once

#include "../bpf/sysprofd.h"
#include "base/util.h"

struct rules;
int rules_new(struct rules **ret);
struct rules *rules_free(struct rules *r);
DEFINE_CLEANUP(struct rules *, rules_free)

int rules_fd(const struct rules *r);

/* The number of a rule, one reference more. -ENOSPC when all UNWIND_RULES are in use. */
int rules_get(struct rules *r, const struct unwind_rule *rule, uint16_t *ret) _warn_unused_;
void rules_put(struct rules *r, uint16_t rule);
void rules_settle(struct rules *r);
int rules_copy(const struct rules *r, uint32_t rule, struct unwind_rule *ret);
uint32_t rules_used(const struct rules *r);
