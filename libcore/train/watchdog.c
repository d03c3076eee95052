/* SPDX-License-Identifier: Apache-2.0 */
#include "train/watchdog.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

const char *const chex_phase_names[] = {
    "setting up", "waiting for data", "computing",           "reducing gradients",
    "updating",   "validating",       "saving a checkpoint", NULL};

struct chex_watchdog {
    struct chex_launch *launch;
    uint64_t warn_ms, abort_ms;
    atomic_ullong beat_ns, step;
    atomic_int phase;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool stop;
};

static void sleep_until_stopped(struct chex_watchdog *w, unsigned ms) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_nsec += (long)(ms % 1000) * 1000000;
    t.tv_sec += ms / 1000 + t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&w->wake, &w->lock, &t);
}

static void give_up(struct chex_watchdog *w, double silent_s) {
    chex_err("stalled: rank %d on %s has been %s at step %llu for %.0f s (--stall-abort); ending "
             "the job",
             w->launch->rank, w->launch->host, chex_phase_names[atomic_load(&w->phase)],
             (unsigned long long)atomic_load(&w->step), silent_s);
    chex_launch_abort(w->launch, CHEX_E_LOST);
    /* One rank alone, or an abort that did not take: the main thread hangs, so leave from here. */
    _exit(CHEX_E_LOST);
}

static void *watch(void *arg) {
    struct chex_watchdog *w = arg;
    uint64_t warned_beat = 0;
    pthread_mutex_lock(&w->lock);
    while (!w->stop) {
        sleep_until_stopped(w, 200);
        uint64_t beat = atomic_load(&w->beat_ns), now = chex_clock_ns();
        uint64_t silent_ms = now > beat ? (now - beat) / 1000000 : 0;
        if (w->stop)
            break;
        if (w->abort_ms && silent_ms > w->abort_ms)
            give_up(w, (double)silent_ms / 1e3);
        if (w->warn_ms && silent_ms > w->warn_ms && beat != warned_beat) {
            warned_beat = beat;
            chex_warn("no progress for %.0f s: %s at step %llu", (double)silent_ms / 1e3,
                      chex_phase_names[atomic_load(&w->phase)],
                      (unsigned long long)atomic_load(&w->step));
        }
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

enum chex_status chex_watchdog_create(struct chex_launch *launch, uint64_t warn_ms,
                                      uint64_t abort_ms, struct chex_watchdog **out,
                                      struct chex_error *err) {
    struct chex_watchdog *w = chex_mem_zalloc(1, sizeof *w);
    if (!w)
        return chex_error_set(err, CHEX_E_RESOURCE, "out of memory");
    w->launch = launch;
    w->warn_ms = warn_ms;
    w->abort_ms = abort_ms;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->wake, NULL);
    chex_watchdog_beat(w, CHEX_PHASE_SETUP, 0);
    int rc = pthread_create(&w->thread, NULL, watch, w);
    if (rc) {
        free(w);
        return chex_error_errno(err, CHEX_E_ENV, rc, "cannot start the stall watch");
    }
    *out = w;
    return CHEX_OK;
}

void chex_watchdog_destroy(struct chex_watchdog *w) {
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    pthread_cond_destroy(&w->wake);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

void chex_watchdog_beat(struct chex_watchdog *w, enum chex_phase phase, uint64_t step) {
    if (!w)
        return;
    atomic_store(&w->phase, (int)phase);
    atomic_store(&w->step, step);
    atomic_store(&w->beat_ns, chex_clock_ns());
}
