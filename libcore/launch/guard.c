/* SPDX-License-Identifier: Apache-2.0
 *
 * The guard is a thread that checks every 200 ms whether the launcher still runs. See guard.h.
 */
#include "launch/guard.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"

enum { CHECK_MS = 200, GRACE_MS = 10000, LIMIT_MS = 600000 };

struct chex_guard {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    bool ended;
    const struct chex_launch_method *method;
    const char *what;
};

static void *watch(void *arg) {
    struct chex_guard *g = arg;
    uint64_t limit_ns = chex_clock_in_ms(LIMIT_MS);
    bool gone = false;
    pthread_mutex_lock(&g->lock);
    while (!g->ended && chex_clock_ns() < limit_ns) {
        (void)chex_clock_cond_wait(&g->changed, &g->lock, chex_clock_in_ms(CHECK_MS));
        if (!gone && g->method->gone()) {
            gone = true;
            limit_ns = chex_clock_in_ms(GRACE_MS);
        }
    }
    const bool ended = g->ended;
    pthread_mutex_unlock(&g->lock);
    if (ended)
        return NULL;
    chex_err(
        "%s does not return%s: this rank ends", g->what,
        gone ? ": the launcher's server of this node is gone (mpirun or Slurm's step daemon has "
               "ended)"
             : "");
    _exit(CHEX_E_LOST);
}

struct chex_guard *chex_guard_begin(const struct chex_launch_method *method, const char *what) {
    struct chex_guard *g = method && method->gone ? calloc(1, sizeof *g) : NULL;
    if (!g)
        return NULL;
    chex_clock_cond_init(&g->changed);
    pthread_mutex_init(&g->lock, NULL);
    g->method = method;
    g->what = what;
    if (pthread_create(&g->thread, NULL, watch, g) == 0)
        return g;
    pthread_cond_destroy(&g->changed);
    pthread_mutex_destroy(&g->lock);
    free(g);
    return NULL;
}

void chex_guard_end(struct chex_guard *g) {
    if (!g)
        return;
    pthread_mutex_lock(&g->lock);
    g->ended = true;
    pthread_cond_signal(&g->changed);
    pthread_mutex_unlock(&g->lock);
    pthread_join(g->thread, NULL);
    pthread_cond_destroy(&g->changed);
    pthread_mutex_destroy(&g->lock);
    free(g);
}
