// SPDX-License-Identifier: GPL-2.0
/*
 * All BPF programs of sysprofd, one object for every kernel from 5.10 up. The parts are included in the order
 * in which they build on each other.
 */
#include <stdbool.h>
#include <stddef.h>

#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#include "sysprofd.h"
#include "bits.bpf.h"
#include "maps.bpf.h"
#include "stack.bpf.h"
#include "ration.bpf.h"
#include "reuse.bpf.h"
#include "young.bpf.h"
#include "task.bpf.h"
#include "calls.bpf.h"
#include "hardware.bpf.h"

#include "oncpu.bpf.c"
#include "offcpu.bpf.c"
#include "waker.bpf.c"
#include "iterate.bpf.c"
#include "futex.bpf.c"
#include "detail.bpf.c"
#include "callers.bpf.c"
#include "syscall.bpf.c"
#include "contention.bpf.c"

char LICENSE[] SEC("license") = "GPL";
