/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What a verdict on a lock rests on, as a sentence for people. */
#pragma once

#include "base/strbuf.h"
#include "query/locks.h"

void lock_evidence(const struct lock_facts *f, enum lock_verdict v, struct strbuf *out);
