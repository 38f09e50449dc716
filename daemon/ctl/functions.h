/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A recording as a table by function. */
#pragma once

#include "ctl/text.h"
#include "model/profile.h"

int functions_text(const struct profile *p, const char *title, const struct text *text,
		   struct strbuf *out);
