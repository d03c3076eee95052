/* SPDX-License-Identifier: Apache-2.0
 *
 * Starts threads with all signals blocked, because only the main thread handles signals.
 */
#ifndef CHEX_BASE_THREAD_H
#define CHEX_BASE_THREAD_H

#include <pthread.h>

/* 0, or an errno value. */
int chex_thread_start(pthread_t *thread_out, void *(*main)(void *), void *arg);

#endif
