/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Names of functions without what only the compiler needs: template and type arguments, parameters, return types.
 * "void std::vector<int, std::allocator<int> >::push_back<int>(int const&)" is std::vector::push_back,
 * "<alloc::vec::Vec<T> as core::clone::Clone>::clone" is <alloc::vec::Vec as core::clone::Clone>::clone,
 * "main.Map[go.shape.int]" is main.Map. Overloads have one short name.
 */
#pragma once

#include "base/strbuf.h"
#include "model/profile.h"

void short_name(const char *name, struct strbuf *out);
/* Of all frames. Symbol names stay: where they are exported, overloads are told by them. */
int short_names(struct dict *d);
