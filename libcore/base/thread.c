/* SPDX-License-Identifier: Apache-2.0
 *
 * Starts threads with all signals blocked, so that the kernel delivers signals to the main thread.
 */
#include "base/thread.h"

#include <signal.h>

int chex_thread_start(pthread_t *thread_out, void *(*main)(void *), void *arg) {
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int rc = pthread_create(thread_out, NULL, main, arg);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return rc;
}
