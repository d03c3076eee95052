/* SPDX-License-Identifier: Apache-2.0
 *
 * The threads of the stall watch. watchdog.h describes the protocol.
 *
 * The watch thread wakes every TICK_MS and compares the age of the last beat and of the stage with
 * the limits. The look-ups of a round may take seconds, so they run on a second thread (scan), one
 * at a time; the watch thread goes on publishing marks meanwhile. Beats come from the main thread
 * and take no lock: they are atomic stores.
 */
#include "train/watch/watchdog.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "train/watch/ras.h"

enum {
    TICK_MS = 200,
    FROZEN_MS = 5000, /* a tick that took longer: the whole process was stopped */
    ROUND_SHARE = 8,  /* marks per shorter limit */
    ROUND_LEAST_MS = 1000,
    ROUND_MOST_MS = 15000,
    LOOK_LEAST_MS = 2000, /* for marks of ranks that are a little late on a busy node */
    LOOK_MOST_MS = 3000,
    LATE_MS = 60000, /* after --stall-abort each rank ends the job alone */
    KEY_BYTES = 64,
    NCCL_MS = 2000,
    KEPT_STARTS = 4, /* of stages; a reader that is later takes a stage for younger */
};

/* Keys of marks: of the present stage, and of the one before. */
enum { PRESENT, BEFORE, KEYS };

struct mark_key {
    uint64_t stage, round;
};

struct chex_watchdog {
    struct chex_launch *launch;
    const struct chex_reduce *_Atomic reduce; /* NULL: not yet */
    const struct chex_rank_sum *_Atomic sums; /* NULL: none */
    uint64_t warn_ms, abort_ms;
    uint64_t first_ms, round_ms, look_ms; /* the shorter limit; between marks; per look-up */
    bool looks;                           /* marks can be published and looked up */
    chex_on_abort_fn on_abort;            /* or NULL */
    void *on_abort_arg;

    /* Written by beats. `stage` is written last and read first: so a reader never combines a new
     * stage number with the start of an old stage. */
    atomic_uint_fast64_t beat_ns, step, stage;
    atomic_uint_fast64_t start_ns[KEPT_STARTS]; /* of stage S: at S modulo KEPT_STARTS */
    atomic_int phase;
    atomic_bool patient; /* chex_watchdog_wait_long: no limit applies */
    atomic_int status;   /* exit status of a process that hangs */

    /* Used by the watch thread only. */
    uint64_t warned_beat_ns;      /* watch_alone: the last beat that a warning was about */
    struct mark_key marked[KEYS]; /* the newest mark of each kind */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool stop;

    /* The scan thread. While `scanning` is set, it owns the members below. */
    pthread_t scanner;
    bool to_join; /* scanner was started and not joined */
    atomic_bool scanning;
    struct mark_key keys[KEYS]; /* of the marks to look up; the second is unused in stage 0 */
    struct chex_mark mine;
    uint64_t warned_stage; /* 1 + the last stage that a warning was about; 0: none */
    struct chex_mark *marks;
    bool *came, *came_before; /* came_before: of a look-up by keys[BEFORE] */
    bool *ended;              /* ranks that chex_launch_ended knows of */
    bool unsure;              /* it does not know all */
};

/* ---- marks ---- */

static uint64_t since_ms(uint64_t then_ns) {
    const uint64_t now_ns = chex_clock_ns();
    return now_ns > then_ns ? (now_ns - then_ns) / 1000000u : 0;
}

static struct chex_mark own_mark(const struct chex_watchdog *w) {
    struct chex_mark m = {.stage = atomic_load(&w->stage),
                          .step = atomic_load(&w->step),
                          .phase = atomic_load(&w->phase)};
    m.silent_ms = since_ms(atomic_load(&w->beat_ns));
    const struct chex_reduce *reduce = atomic_load(&w->reduce);
    const struct chex_rank_sum *sums = atomic_load(&w->sums);
    if (m.phase == CHEX_PHASE_COMPUTE && sums && chex_rank_sum_waits(sums))
        m.phase = CHEX_PHASE_STATISTICS;
    if (m.phase == CHEX_PHASE_REDUCE && reduce) {
        int bucket, buckets;
        chex_reduce_at(reduce, &bucket, &buckets);
        m.bucket = bucket;
        m.buckets = buckets;
    }
    return m;
}

/* Ends the job. `rank`, `host`, `m`: the rank to report; culprits: "" or "; " and the late ranks.
 */
_Noreturn static void give_up(struct chex_watchdog *w, int rank, const char *host,
                              const struct chex_mark *m, const char *culprits) {
    char place[128];
    chex_err("stalled: rank %d on %s has been %s, for %.0f s (--stall-abort)%s; ending the job",
             rank, host, chex_stall_place(m, place, sizeof place), (double)m->silent_ms / 1e3,
             culprits);
    const struct chex_mark mine = own_mark(w);
    const int status = atomic_load(&w->status);
    if (w->on_abort)
        w->on_abort(w->on_abort_arg, &mine, (enum chex_status)status);
    chex_launch_abort(w->launch, status);
    /* A single process, or the abort had no effect: the main thread hangs, so exit here. */
    _exit(status);
}

/* ---- scan: look up the marks of other ranks, and report ---- */

static void host_of(void *arg, int rank, char *buf, size_t size) {
    chex_launch_host(arg, rank, buf, size);
}

static void key_text(const struct mark_key *k, char key[KEY_BYTES]) {
    snprintf(key, KEY_BYTES, "chexnet.mark.%llu.%llu", (unsigned long long)k->stage,
             (unsigned long long)k->round);
}

/* The marks of ranks [from, to), at w->marks and w->came. By the keys of the present stage; if some
 * ranks do not answer, those of the stage before find the ranks that are still in it. */
static void look_up(struct chex_watchdog *w, int from, int to) {
    char key[KEY_BYTES];
    int first = from, end = to;
    key_text(&w->keys[PRESENT], key);
    w->unsure |= chex_launch_ended(w->launch, from, to, w->ended + from) < 0;
    chex_launch_lookup(w->launch, key, from, to, sizeof *w->marks, w->marks + from, w->came + from,
                       w->look_ms);
    if (from <= w->launch->rank && w->launch->rank < to) {
        w->came[w->launch->rank] = true;
        w->marks[w->launch->rank] = w->mine;
    }
    while (first < to && w->came[first])
        first++;
    while (end > first && w->came[end - 1])
        end--;
    if (first == end || w->keys[PRESENT].stage == 0)
        return;
    key_text(&w->keys[BEFORE], key);
    chex_launch_lookup(w->launch, key, first, end, sizeof *w->marks, w->marks + first,
                       w->came_before + first, w->look_ms);
    for (int r = first; r < end; r++)
        w->came[r] |= w->came_before[r];
}

/* The lowest rank that answers reports for all. The look-ups start with one rank and double,
 * because rank 0 nearly always answers. */
static bool a_lower_rank_answers(struct chex_watchdog *w) {
    const int rank = w->launch->rank;
    for (int from = 0, n = 1; from < rank; from += n, n *= 2) {
        const int to = rank - from < n ? rank : from + n;
        look_up(w, from, to);
        for (int r = from; r < to; r++)
            if (w->came[r])
                return true;
    }
    return false;
}

/* What NCCL says of the stall, if the gradients are summed by it. */
static void log_nccl(const struct chex_watchdog *w) {
    const struct chex_reduce *reduce = atomic_load(&w->reduce);
    struct chex_reduce_facts facts = {.carrier = ""};
    if (reduce)
        chex_reduce_facts(reduce, &facts);
    chex_ras_log(strcmp(facts.carrier, "nccl") == 0, NCCL_MS);
}

static void log_stall(struct chex_watchdog *w) {
    const uint64_t stage = w->keys[PRESENT].stage;
    const struct chex_stall stall = {.size = w->launch->size,
                                     .marks = w->marks,
                                     .came = w->came,
                                     .ended = w->ended,
                                     .unsure = w->unsure,
                                     .setup = stage == 0,
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
        log_nccl(w);
        give_up(w, waiter, host, m, who);
    }
    if (!w->warn_ms || longest_ms <= w->warn_ms || w->warned_stage == stage + 1)
        return;
    w->warned_stage = stage + 1;
    chex_warn("no progress for %.0f s: %s%s", (double)m->silent_ms / 1e3,
              chex_stall_place(m, place, sizeof place), who);
    log_nccl(w);
}

static void *scan(void *arg) {
    struct chex_watchdog *w = arg;
    w->unsure = false;
    if (!a_lower_rank_answers(w)) {
        look_up(w, 0, w->launch->size);
        /* If not, the run has made progress meanwhile. */
        if (atomic_load(&w->stage) == w->keys[PRESENT].stage)
            log_stall(w);
    }
    atomic_store(&w->scanning, false);
    return NULL;
}

/* Does nothing while the last scan still runs. */
static void start_scan(struct chex_watchdog *w, const struct mark_key keys[KEYS],
                       const struct chex_mark *mark) {
    if (atomic_load(&w->scanning))
        return;
    if (w->to_join)
        pthread_join(w->scanner, NULL);
    w->mine = *mark;
    memcpy(w->keys, keys, sizeof w->keys);
    atomic_store(&w->scanning, true);
    w->to_join = pthread_create(&w->scanner, NULL, scan, w) == 0;
    if (!w->to_join)
        atomic_store(&w->scanning, false);
}

/* ---- the watch ---- */

static bool same_key(const struct mark_key *a, const struct mark_key *b) {
    return a->stage == b->stage && a->round == b->round;
}

/* Publishes the mark by this key, once. False: it was before. */
static bool publish_mark(struct chex_watchdog *w, int kind, const struct mark_key *k,
                         const struct chex_mark *mark) {
    struct chex_error err = {0};
    char key[KEY_BYTES];
    const bool new = !same_key(k, &w->marked[PRESENT]) && !same_key(k, &w->marked[BEFORE]);
    w->marked[kind] = *k;
    if (!new)
        return false;
    key_text(k, key);
    if (chex_launch_publish(w->launch, key, mark, sizeof *mark, &err) != CHEX_OK)
        chex_debug("stall watch: %s", err.text);
    return true;
}

static uint64_t age_of(const struct chex_watchdog *w, uint64_t stage) {
    return since_ms(atomic_load(&w->start_ns[stage % KEPT_STARTS]));
}

static void watch_together(struct chex_watchdog *w) {
    const uint64_t stage = atomic_load(&w->stage); /* read before start_ns */
    const uint64_t age_ms = age_of(w, stage), before_ms = stage ? age_of(w, stage - 1) : 0;
    const struct mark_key keys[KEYS] = {
        [PRESENT] = {.stage = stage, .round = age_ms / w->round_ms},
        [BEFORE] = {.stage = stage - 1, .round = before_ms / w->round_ms}};
    const struct chex_mark mark = own_mark(w);
    if (before_ms >= w->first_ms)
        publish_mark(w, BEFORE, &keys[BEFORE], &mark);
    if (age_ms >= w->first_ms && publish_mark(w, PRESENT, &keys[PRESENT], &mark))
        start_scan(w, keys, &mark);
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

/* The time in which this whole process was stopped (scontrol suspend) does not count as a stall:
 * moves *then_ns forward by it. */
static void skip_frozen(atomic_uint_fast64_t *then_ns, uint64_t frozen_ms) {
    uint_fast64_t then = atomic_load(then_ns);
    if (since_ms(then) > frozen_ms / 2) /* else a beat has come after the stop */
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
            skip_frozen(&w->beat_ns, slept_ms);
            for (int i = 0; i < KEPT_STARTS; i++)
                skip_frozen(&w->start_ns[i], slept_ms);
        }
        if (atomic_load(&w->patient))
            atomic_store(&w->beat_ns, chex_clock_ns());
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

static uint64_t clamp(uint64_t v, uint64_t least, uint64_t most) {
    return v < least ? least : v > most ? most : v;
}

static void set_limits(struct chex_watchdog *w, uint64_t warn_ms, uint64_t abort_ms) {
    w->warn_ms = warn_ms;
    w->abort_ms = abort_ms;
    w->first_ms = warn_ms && (!abort_ms || warn_ms < abort_ms) ? warn_ms : abort_ms;
    w->round_ms = clamp(w->first_ms / ROUND_SHARE, ROUND_LEAST_MS, ROUND_MOST_MS);
    w->look_ms = clamp(w->round_ms, LOOK_LEAST_MS, LOOK_MOST_MS);
    w->looks = w->first_ms && chex_launch_can_lookup(w->launch);
}

static void release(struct chex_watchdog *w) {
    pthread_cond_destroy(&w->wake);
    pthread_mutex_destroy(&w->lock);
    free(w->marks);
    free(w->came);
    free(w->came_before);
    free(w->ended);
    free(w);
}

enum chex_status chex_watchdog_create(struct chex_launch *launch, uint64_t warn_ms,
                                      uint64_t abort_ms, struct chex_watchdog **out,
                                      struct chex_error *err) {
    struct chex_watchdog *w = chex_alloc_zeroed(1, sizeof *w);
    CHEX_ALLOCATED(w, err, NULL);
    w->launch = launch;
    atomic_store(&w->status, CHEX_E_LOST);
    set_limits(w, warn_ms, abort_ms);
    w->marks = chex_alloc_zeroed((size_t)launch->size, sizeof *w->marks);
    w->came = chex_alloc_zeroed((size_t)launch->size, sizeof *w->came);
    w->came_before = chex_alloc_zeroed((size_t)launch->size, sizeof *w->came_before);
    w->ended = chex_alloc_zeroed((size_t)launch->size, sizeof *w->ended);
    pthread_mutex_init(&w->lock, NULL);
    chex_clock_cond_init(&w->wake);
    atomic_store(&w->start_ns[0], chex_clock_ns());
    chex_watchdog_beat(w, CHEX_PHASE_SETUP, 0);
    int rc = w->marks && w->came && w->came_before && w->ended
                 ? pthread_create(&w->thread, NULL, watch, w)
                 : ENOMEM;
    if (rc) {
        release(w);
        return chex_error_errno(err, CHEX_E_RESOURCE, rc, "cannot start the stall watch");
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
    if (w->to_join)
        pthread_join(w->scanner, NULL);
    release(w);
}

void chex_watchdog_reduce(struct chex_watchdog *w, const struct chex_reduce *reduce) {
    atomic_store(&w->reduce, reduce);
}

void chex_watchdog_sums(struct chex_watchdog *w, const struct chex_rank_sum *sums) {
    atomic_store(&w->sums, sums);
}

void chex_watchdog_saved(struct chex_watchdog *w) {
    if (w)
        atomic_store(&w->status, CHEX_E_PREEMPTED);
}

void chex_watchdog_on_abort(struct chex_watchdog *w, chex_on_abort_fn fn, void *arg) {
    pthread_mutex_lock(&w->lock);
    w->on_abort_arg = arg;
    w->on_abort = fn;
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
    atomic_store_explicit(&w->patient, false, memory_order_relaxed);
    atomic_store_explicit(&w->phase, (int)phase, memory_order_release);
    store(&w->step, step);
    store(&w->beat_ns, now_ns);
    if (!together)
        return;
    const uint64_t stage = atomic_load_explicit(&w->stage, memory_order_relaxed) + 1;
    store(&w->start_ns[stage % KEPT_STARTS], now_ns);
    store(&w->stage, stage);
}

static enum chex_phase move(struct chex_watchdog *w, enum chex_phase phase) {
    const int before = atomic_load_explicit(&w->phase, memory_order_relaxed);
    chex_watchdog_beat(w, phase, atomic_load_explicit(&w->step, memory_order_relaxed));
    return (enum chex_phase)before;
}

enum chex_phase chex_watchdog_wait(struct chex_watchdog *w) {
    return w ? move(w, CHEX_PHASE_WAIT) : CHEX_PHASE_WAIT;
}

void chex_watchdog_at(struct chex_watchdog *w, enum chex_phase phase) {
    if (w)
        move(w, phase);
}

enum chex_status chex_watchdog_agree(struct chex_watchdog *w, struct chex_group *g,
                                     enum chex_status mine, struct chex_error *err) {
    const enum chex_phase phase = chex_watchdog_wait(w);
    const enum chex_status st = chex_group_agree(g, mine, err);
    chex_watchdog_at(w, phase);
    return st;
}

void chex_watchdog_wait_long(struct chex_watchdog *w) {
    if (!w)
        return;
    move(w, CHEX_PHASE_WAIT);
    atomic_store(&w->patient, true);
}
