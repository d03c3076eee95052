/* SPDX-License-Identifier: Apache-2.0
 *
 * The threads of the input: born with all signals blocked, because signals are for the main thread.
 */
#ifndef CHEX_INPUT_THREAD_H
#define CHEX_INPUT_THREAD_H

#include <pthread.h>

/* 0, or an errno value. */
int chex_input_thread(pthread_t *thread_out, void *(*main)(void *), void *arg);

#endif
