/* SPDX-License-Identifier: Apache-2.0
 *
 * The thread that writes checkpoints. States of the writer:
 *
 *   IDLE --put--> HELD --its time, or result--> WRITING --> DONE --result--> IDLE
 *                 HELD --result with CHEX_HELD_DROP--> IDLE
 *
 * The snapshot belongs to the main thread in IDLE and to the writer otherwise.
 */
#include "train/store/checkpoint_writer.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/thread.h"

enum state { IDLE, HELD, WRITING, DONE };

struct chex_checkpoint_writer {
    struct chex_checkpoint_writer_config c;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* state, begin_ns or leave */
    /* Under the lock: */
    enum state state;
    bool leave;
    uint64_t begin_ns; /* HELD: when the writing begins; UINT64_MAX: by result only */
    struct chex_checkpoint_line line;
    enum chex_status status; /* DONE: of the write */
    struct chex_error fault;
};

static enum chex_status check_finite(const struct chex_checkpoint_writer *w,
                                     struct chex_error *err) {
    for (size_t i = 0; i < w->c.net->state_count; i++)
        if (!isfinite(w->c.snapshot->params[i]))
            return chex_error_set(err, CHEX_E_DIVERGED,
                                  "the parameters are no finite numbers after step %llu: lower "
                                  "--lr, or add --warmup-epochs",
                                  (unsigned long long)w->line.step);
    return CHEX_OK;
}

/* The line is appended only here, after the file is whole. */
static enum chex_status write_one(struct chex_checkpoint_writer *w, struct chex_error *err) {
    struct chex_checkpoint_line *line = &w->line;
    const double from_s = chex_clock_s();
    const uint64_t from_ns = chex_trace_now(w->c.trace);
    CHEX_TRY(check_finite(w, err));
    CHEX_TRY(chex_checkpoint_store_write(w->c.dir, w->c.keep, w->c.net, w->c.snapshot, line->step,
                                         line->best, err));
    chex_checkpoint_store_name(line->step, line->file);
    chex_checkpoint_digest(w->c.net, w->c.snapshot, line->digest);
    line->time_unix_s = chex_clock_unix_s();
    line->write_s = chex_clock_s() - from_s;
    chex_trace_span(w->c.trace, CHEX_TRACE_WRITER, CHEX_TRACE_SAVE, from_ns, line->step);
    return chex_checkpoint_log_add(w->c.log, w->c.dir, line, err);
}

static void *write_all(void *arg) {
    struct chex_checkpoint_writer *w = arg;
    pthread_mutex_lock(&w->lock);
    for (;;) {
        while (!w->leave && (w->state != HELD || chex_clock_ns() < w->begin_ns)) {
            if (w->state == HELD && w->begin_ns != UINT64_MAX)
                chex_clock_cond_wait(&w->changed, &w->lock, w->begin_ns);
            else
                pthread_cond_wait(&w->changed, &w->lock);
        }
        if (w->leave)
            break;
        w->state = WRITING;
        pthread_mutex_unlock(&w->lock);
        struct chex_error fault = {0};
        const enum chex_status st = write_one(w, &fault);
        pthread_mutex_lock(&w->lock);
        w->status = st;
        w->fault = fault;
        w->state = DONE;
        pthread_cond_broadcast(&w->changed);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

enum chex_status chex_checkpoint_writer_create(const struct chex_checkpoint_writer_config *config,
                                               struct chex_checkpoint_writer **out,
                                               struct chex_error *err) {
    struct chex_checkpoint_writer *w = chex_alloc_zeroed(1, sizeof *w);
    CHEX_ALLOCATED(w, err, NULL);
    w->c = *config;
    pthread_mutex_init(&w->lock, NULL);
    chex_clock_cond_init(&w->changed);
    const int rc = chex_thread_start(&w->thread, write_all, w);
    if (rc != 0) {
        pthread_cond_destroy(&w->changed);
        pthread_mutex_destroy(&w->lock);
        free(w);
        return chex_error_errno(err, CHEX_E_RESOURCE, rc, "cannot start a thread for checkpoints");
    }
    *out = w;
    return CHEX_OK;
}

/* Back to IDLE. Under the lock. */
static void release_meta(struct chex_checkpoint_writer *w) {
    free(w->c.snapshot->meta);
    w->c.snapshot->meta = NULL;
    w->state = IDLE;
}

void chex_checkpoint_writer_destroy(struct chex_checkpoint_writer *w) {
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->leave = true;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    release_meta(w);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

void chex_checkpoint_writer_put(struct chex_checkpoint_writer *w,
                                const struct chex_checkpoint_line *about, char *meta,
                                double hold_s) {
    pthread_mutex_lock(&w->lock);
    w->line = *about;
    w->c.snapshot->meta = meta;
    w->begin_ns = isinf(hold_s) ? UINT64_MAX : chex_clock_ns() + (uint64_t)(hold_s * 1e9);
    w->state = HELD;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

enum chex_status chex_checkpoint_writer_result(struct chex_checkpoint_writer *w,
                                               enum chex_held held,
                                               struct chex_checkpoint_line *written_out,
                                               struct chex_error *err) {
    enum chex_status st = CHEX_OK;
    *written_out = (struct chex_checkpoint_line){0};
    pthread_mutex_lock(&w->lock);
    /* One that is due is not held, even if the thread has not begun it yet. */
    if (w->state == HELD && held == CHEX_HELD_DROP && w->begin_ns > chex_clock_ns())
        release_meta(w);
    if (w->state == HELD && held != CHEX_HELD_STAYS) {
        w->begin_ns = 0;
        pthread_cond_broadcast(&w->changed);
    }
    while (held != CHEX_HELD_STAYS && (w->state == HELD || w->state == WRITING))
        pthread_cond_wait(&w->changed, &w->lock);
    if (w->state == DONE) {
        release_meta(w);
        st = w->status;
        if (st == CHEX_OK)
            *written_out = w->line;
        else if (err)
            *err = w->fault;
    }
    pthread_mutex_unlock(&w->lock);
    return st;
}

void chex_checkpoint_writer_linger(struct chex_checkpoint_writer *w, double seconds) {
    if (!w)
        return;
    const uint64_t until_ns = chex_clock_ns() + (uint64_t)(seconds * 1e9);
    pthread_mutex_lock(&w->lock);
    while (w->state == WRITING && chex_clock_ns() < until_ns)
        chex_clock_cond_wait(&w->changed, &w->lock, until_ns);
    pthread_mutex_unlock(&w->lock);
}
