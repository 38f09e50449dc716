// SPDX-License-Identifier: GPL-2.0-or-later
/* The style sheet and the script of flame graphs, as NUL-terminated text. */
#include "export/view.h"

#define ASSET(name, path)                         \
	__asm__(".pushsection .rodata,\"a\"\n"    \
		".globl " #name "\n"              \
		".hidden " #name "\n" #name ":\n" \
		".incbin \"" path "\"\n"          \
		".byte 0\n"                       \
		".popsection\n")

ASSET(view_css, "daemon/export/flame.css");
ASSET(view_js, "daemon/export/flame.js");
