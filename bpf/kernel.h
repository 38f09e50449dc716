/* SPDX-License-Identifier: GPL-2.0 */
/* The kernel's types, trimmed by hand to the fields that are used; CO-RE finds the rest at load. */
#pragma once

#include <linux/types.h>
#include <linux/bpf.h>
