/* SPDX-License-Identifier: Apache-2.0 */
#include "train/watchdog.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

enum {
    TICK_MS = 200,
    FROZEN_MS = 5000, /* a tick that lasted for so long: the whole process stood still */
    ROUND_SHARE = 8,  /* of the shorter limit, between two marks */
    ROUND_LEAST_MS = 1000,
    ROUND_MOST_MS = 15000,
    LOOK_LEAST_MS = 2000, /* for marks of ranks that may be a little late on a busy node */
    LOOK_MOST_MS = 3000,
    LATE_MS = 60000, /* after --stall-abort: whoever should have ended the job has not */
    KEY_BYTES = 64,
};

struct chex_watchdog {
    struct chex_launch *launch;
    const struct chex_reduce *reduce;
    uint64_t warn_ms, abort_ms;
    uint64_t first_ms, round_ms, look_ms; /* the shorter limit; between marks; for others' marks */
    bool looks;
    chex_last_words_fn last_words; /* or NULL */
    void *last_words_arg;

    /* Written by beats. stage is written last, so that who reads it first never takes a new stage
     * for an old one. */
    atomic_uint_fast64_t beat_ns, step, stage, stage_ns;
    atomic_int phase;

    /* The watch's own. */
    uint64_t warned_beat_ns;             /* the beat that was warned of, where nobody looks */
    uint64_t marked_stage, marked_round; /* the newest mark */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool stop;

    /* A look round is a thread of its own: the watch goes on leaving marks meanwhile. */
    pthread_t looker;
    bool looked; /* looker is to be joined */
    atomic_bool looking;
    char key[KEY_BYTES]; /* of the marks that it looks for, */
    uint64_t stage_seen; /* their stage, */
    struct chex_mark mine;
    uint64_t warned_stage; /* the stage after the one that was warned of */
    struct chex_mark *marks;
    bool *came;
};

/* ---- marks ---- */

static uint64_t since_ms(uint64_t then_ns) {
    const uint64_t now_ns = chex_clock_ns();
    return now_ns > then_ns ? (now_ns - then_ns) / 1000000u : 0;
}

static struct chex_mark own_mark(const struct chex_watchdog *w) {
    struct chex_mark m = {.step = atomic_load(&w->step), .phase = atomic_load(&w->phase)};
    m.silent_ms = since_ms(atomic_load(&w->beat_ns));
    int bucket, buckets;
    chex_reduce_at(w->reduce, &bucket, &buckets);
    if (m.phase == CHEX_PHASE_REDUCE) {
        m.bucket = bucket;
        m.buckets = buckets;
    }
    return m;
}

/* `culprits`: "" or "; " and who they are. */
_Noreturn static void give_up(struct chex_watchdog *w, int rank, const char *host,
                              const struct chex_mark *m, const char *culprits) {
    char place[128];
    chex_err("stalled: rank %d on %s has been %s, for %.0f s (--stall-abort)%s; ending the job",
             rank, host, chex_stall_place(m, place, sizeof place), (double)m->silent_ms / 1e3,
             culprits);
    const struct chex_mark mine = own_mark(w);
    if (w->last_words)
        w->last_words(w->last_words_arg, &mine);
    chex_launch_abort(w->launch, CHEX_E_LOST);
    /* One rank alone, or an abort that did not take: the main thread hangs, so leave from here. */
    _exit(CHEX_E_LOST);
}

/* ---- looking round ---- */

static void host_of(void *arg, int rank, char *buf, size_t size) {
    chex_launch_host(arg, rank, buf, size);
}

/* The lowest rank that answers speaks for all. Few are asked at first: the first of them answers,
 * but for the rare case. */
static bool a_lower_rank_answers(struct chex_watchdog *w) {
    const int rank = w->launch->rank;
    for (int from = 0, n = 1; from < rank; from += n, n *= 2) {
        const int to = rank - from < n ? rank : from + n;
        chex_launch_look(w->launch, w->key, from, to, 0, NULL, w->came, w->look_ms);
        for (int i = 0; i < to - from; i++)
            if (w->came[i])
                return true;
    }
    return false;
}

static void look_at_all(struct chex_watchdog *w) {
    const int size = w->launch->size, rank = w->launch->rank;
    chex_launch_look(w->launch, w->key, 0, size, sizeof *w->marks, w->marks, w->came, w->look_ms);
    w->came[rank] = true;
    w->marks[rank] = w->mine;
}

static void speak(struct chex_watchdog *w) {
    const struct chex_stall stall = {.size = w->launch->size,
                                     .marks = w->marks,
                                     .came = w->came,
                                     .setup = w->stage_seen == 0,
                                     .host = host_of,
                                     .arg = w->launch};
    const int waiter = chex_stall_waiter(&stall);
    const struct chex_mark *m = &w->marks[waiter];
    char who[1024] = "; ", host[CHEX_HOST_BYTES], place[128];
    uint64_t longest_ms = 0;
    for (int r = 0; r < stall.size; r++)
        if (w->came[r] && w->marks[r].silent_ms > longest_ms)
            longest_ms = w->marks[r].silent_ms;
    chex_stall_culprits(&stall, who + 2, sizeof who - 2);
    if (w->abort_ms && longest_ms > w->abort_ms) {
        chex_launch_host(w->launch, waiter, host, sizeof host);
        give_up(w, waiter, host, m, who);
    }
    if (!w->warn_ms || longest_ms <= w->warn_ms || w->warned_stage == w->stage_seen + 1)
        return;
    w->warned_stage = w->stage_seen + 1;
    chex_warn("no progress for %.0f s: %s%s", (double)m->silent_ms / 1e3,
              chex_stall_place(m, place, sizeof place), who);
}

static void *look_round(void *arg) {
    struct chex_watchdog *w = arg;
    if (!a_lower_rank_answers(w)) {
        look_at_all(w);
        if (atomic_load(&w->stage) == w->stage_seen) /* else all have moved on meanwhile */
            speak(w);
    }
    atomic_store(&w->looking, false);
    return NULL;
}

static void start_looking(struct chex_watchdog *w, const char key[KEY_BYTES],
                          const struct chex_mark *mark) {
    if (atomic_load(&w->looking))
        return;
    if (w->looked)
        pthread_join(w->looker, NULL);
    w->stage_seen = w->marked_stage;
    w->mine = *mark;
    memcpy(w->key, key, sizeof w->key);
    atomic_store(&w->looking, true);
    w->looked = pthread_create(&w->looker, NULL, look_round, w) == 0;
    if (!w->looked)
        atomic_store(&w->looking, false);
}

/* ---- the watch ---- */

/* Then looks round for the others', if the last look has ended. */
static void leave_mark(struct chex_watchdog *w, uint64_t stage, uint64_t round) {
    const struct chex_mark mark = own_mark(w);
    struct chex_error err = {0};
    char key[KEY_BYTES] = "";
    snprintf(key, sizeof key, "chexnet.mark.%llu.%llu", (unsigned long long)stage,
             (unsigned long long)round);
    if (chex_launch_leave(w->launch, key, &mark, sizeof mark, &err) != CHEX_OK)
        chex_debug("stall watch: %s", err.text);
    w->marked_stage = stage;
    w->marked_round = round;
    start_looking(w, key, &mark);
}

static void watch_together(struct chex_watchdog *w) {
    const uint64_t stage = atomic_load(&w->stage); /* before its start */
    const uint64_t age_ms = since_ms(atomic_load(&w->stage_ns)), round = age_ms / w->round_ms;
    if (age_ms < w->first_ms || (stage == w->marked_stage && round == w->marked_round))
        return;
    leave_mark(w, stage, round);
}

static void watch_alone(struct chex_watchdog *w) {
    const uint64_t beat_ns = atomic_load(&w->beat_ns), silent_ms = since_ms(beat_ns);
    const struct chex_mark mark = own_mark(w);
    char place[128];
    if (!w->warn_ms || silent_ms <= w->warn_ms || beat_ns == w->warned_beat_ns)
        return;
    w->warned_beat_ns = beat_ns;
    chex_warn("no progress for %.0f s: %s", (double)silent_ms / 1e3,
              chex_stall_place(&mark, place, sizeof place));
}

/* Time in which this process was stopped as a whole (scontrol suspend) is nobody's stall. */
static void forgive(atomic_uint_fast64_t *then_ns, uint64_t frozen_ms) {
    uint_fast64_t then = atomic_load(then_ns);
    if (since_ms(then) > frozen_ms / 2) /* else it has been written since */
        atomic_compare_exchange_strong(then_ns, &then, then + frozen_ms * 1000000u);
}

static void *watch(void *arg) {
    struct chex_watchdog *w = arg;
    const uint64_t alone_ms = w->abort_ms + (w->looks ? LATE_MS : 0);
    pthread_mutex_lock(&w->lock);
    while (!w->stop) {
        const uint64_t tick_ns = chex_clock_ns();
        chex_clock_cond_wait(&w->wake, &w->lock, tick_ns + TICK_MS * 1000000u);
        if (w->stop)
            break;
        const uint64_t slept_ms = since_ms(tick_ns);
        if (slept_ms > FROZEN_MS) {
            forgive(&w->beat_ns, slept_ms);
            forgive(&w->stage_ns, slept_ms);
        }
        const struct chex_mark mark = own_mark(w);
        if (w->abort_ms && mark.silent_ms > alone_ms)
            give_up(w, w->launch->rank, w->launch->host, &mark, "");
        if (w->looks)
            watch_together(w);
        else
            watch_alone(w);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

/* ---- the handle ---- */

static void set_limits(struct chex_watchdog *w, uint64_t warn_ms, uint64_t abort_ms) {
    w->warn_ms = warn_ms;
    w->abort_ms = abort_ms;
    w->first_ms = warn_ms && (!abort_ms || warn_ms < abort_ms) ? warn_ms : abort_ms;
    w->round_ms = w->first_ms / ROUND_SHARE;
    if (w->round_ms < ROUND_LEAST_MS)
        w->round_ms = ROUND_LEAST_MS;
    if (w->round_ms > ROUND_MOST_MS)
        w->round_ms = ROUND_MOST_MS;
    w->look_ms = w->round_ms < LOOK_LEAST_MS  ? LOOK_LEAST_MS
                 : w->round_ms > LOOK_MOST_MS ? LOOK_MOST_MS
                                              : w->round_ms;
    w->looks = w->first_ms && chex_launch_can_look(w->launch);
}

static void release(struct chex_watchdog *w) {
    pthread_cond_destroy(&w->wake);
    pthread_mutex_destroy(&w->lock);
    free(w->marks);
    free(w->came);
    free(w);
}

enum chex_status chex_watchdog_create(struct chex_launch *launch, const struct chex_reduce *reduce,
                                      uint64_t warn_ms, uint64_t abort_ms,
                                      struct chex_watchdog **out, struct chex_error *err) {
    struct chex_watchdog *w = chex_mem_zalloc(1, sizeof *w);
    if (!w)
        return chex_error_set(err, CHEX_E_RESOURCE, "out of memory");
    w->launch = launch;
    w->reduce = reduce;
    set_limits(w, warn_ms, abort_ms);
    w->marks = chex_mem_zalloc((size_t)launch->size, sizeof *w->marks);
    w->came = chex_mem_zalloc((size_t)launch->size, sizeof *w->came);
    pthread_mutex_init(&w->lock, NULL);
    chex_clock_cond_init(&w->wake);
    atomic_store(&w->stage_ns, chex_clock_ns());
    chex_watchdog_beat(w, CHEX_PHASE_SETUP, 0);
    int rc = w->marks && w->came ? pthread_create(&w->thread, NULL, watch, w) : ENOMEM;
    if (rc) {
        release(w);
        return chex_error_errno(err, rc == ENOMEM ? CHEX_E_RESOURCE : CHEX_E_ENV, rc,
                                "cannot start the stall watch");
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
    if (w->looked)
        pthread_join(w->looker, NULL);
    release(w);
}

void chex_watchdog_last_words(struct chex_watchdog *w, chex_last_words_fn fn, void *arg) {
    pthread_mutex_lock(&w->lock);
    w->last_words_arg = arg;
    w->last_words = fn;
    pthread_mutex_unlock(&w->lock);
}

static void store(atomic_uint_fast64_t *to, uint64_t value) {
    atomic_store_explicit(to, value, memory_order_release);
}

void chex_watchdog_beat(struct chex_watchdog *w, enum chex_phase phase, uint64_t step) {
    if (!w)
        return;
    const uint64_t now_ns = chex_clock_ns();
    const bool together = phase != CHEX_PHASE_WAIT &&
                          atomic_load_explicit(&w->phase, memory_order_relaxed) == CHEX_PHASE_WAIT;
    atomic_store_explicit(&w->phase, (int)phase, memory_order_release);
    store(&w->step, step);
    store(&w->beat_ns, now_ns);
    if (!together)
        return;
    store(&w->stage_ns, now_ns);
    store(&w->stage, atomic_load_explicit(&w->stage, memory_order_relaxed) + 1);
}

void chex_watchdog_wait(struct chex_watchdog *w) {
    if (w)
        chex_watchdog_beat(w, CHEX_PHASE_WAIT,
                           atomic_load_explicit(&w->step, memory_order_relaxed));
}
