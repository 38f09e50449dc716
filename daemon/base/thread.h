/* SPDX-License-Identifier: GPL-2.0-or-later */
#pragma once

#include <pthread.h>

#include "base/util.h"

/* With all signals blocked: they are for the threads that expect them. `ret` may be NULL: the thread is detached. */
int thread_start(pthread_t *ret, void *(*fn)(void *arg), void *arg) _warn_unused_;
/* A condition whose deadlines are those of mono_now_ns(). */
void cond_init_mono(pthread_cond_t *c);
