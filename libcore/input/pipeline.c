/* SPDX-License-Identifier: Apache-2.0
 *
 * Ticket t is batch t since the start; it goes into slot t modulo the number of slots. A worker
 * takes the next ticket under the lock once its slot is free, copies the ticket's row numbers, and
 * fills the slot without the lock. So whoever fills it, a batch holds what its ticket says.
 *
 * The order of an epoch is computed by the worker that takes the epoch's first ticket, under the
 * lock: a quarter of a millisecond for 112,120 rows. Later tickets only look it up, and a ticket of
 * an older epoch has its row numbers already.
 */
#include "input/pipeline.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "input/augment.h"

const char *const chex_pipeline_names[] = {"new", NULL};

enum {
    LEAST_SLOTS = 2,
    MOST_SLOTS = 16,
    MOST_WORKERS = 1024,
    AHEAD = 2,           /* batches beyond those in work whose reads are announced */
    READ_BYTES = 1 << 20 /* the most of one pread; larger ones gain nothing */
};

enum slot_state { SLOT_FREE, SLOT_FILLING, SLOT_READY, SLOT_LENT };

struct slot {
    enum slot_state state;
    uint64_t ticket;
    float *pixels;
    int8_t *labels;
    size_t *rows;       /* (batch) */
    size_t *ahead;      /* (batch) rows to announce */
    int n, ahead_count; /* of rows and ahead */
    uint64_t epoch;
    size_t step;
    int logical_rank;
    enum chex_status status;
    struct chex_error err;
};

struct worker {
    struct chex_pipeline *p;
    pthread_t thread;
    uint8_t *pixels; /* rows as they were stored */
    void *scratch;
};

struct chex_pipeline {
    struct chex_pipeline_config c;
    size_t steps;   /* of an epoch */
    uint64_t first; /* training: ticket 0 is this one since epoch 0, step 0 */
    uint64_t end;   /* evaluation: tickets there are; training: UINT64_MAX */
    size_t run;     /* rows of one read */
    struct slot *slots;
    struct worker *workers;
    int started;

    pthread_mutex_t lock;
    pthread_cond_t freed, ready;
    bool stop;          /* these five under the lock */
    uint64_t next_fill; /* the ticket that the next worker takes */
    uint64_t next_out;
    uint64_t order_epoch; /* whose order `order` holds */
    bool have_order;

    size_t *order;            /* (rank_to - rank_from, steps * batch) */
    size_t *order_scratch;    /* (rows) */
    atomic_uint_fast64_t *ok; /* one bit a row: read and found whole in this run */
};

/* ---- which rows ---- */

struct place {
    uint64_t epoch;
    size_t step;
    int rank; /* counts from rank_from */
};

static struct place place_of(const struct chex_pipeline *p, uint64_t ticket) {
    uint64_t ranks = (uint64_t)(p->c.rank_to - p->c.rank_from), at = p->first + ticket;
    uint64_t per_epoch = ranks * p->steps;
    return (struct place){.epoch = at / per_epoch,
                          .step = (size_t)(at % per_epoch / ranks),
                          .rank = (int)(at % ranks)};
}

static void make_order(struct chex_pipeline *p, uint64_t epoch) {
    if (p->have_order && p->order_epoch == epoch)
        return;
    for (int v = p->c.rank_from; v < p->c.rank_to; v++)
        chex_order_epoch(&p->c.order, v, epoch,
                         p->order + (size_t)(v - p->c.rank_from) * p->steps * p->c.order.batch,
                         p->order_scratch);
    p->order_epoch = epoch;
    p->have_order = true;
}

/* Writes the rows of a ticket of the epoch at hand; 0 where it is of another one. */
static int training_rows(const struct chex_pipeline *p, uint64_t ticket, size_t *rows) {
    struct place at = place_of(p, ticket);
    if (at.epoch != p->order_epoch)
        return 0;
    size_t from = ((size_t)at.rank * p->steps + at.step) * p->c.order.batch;
    memcpy(rows, p->order + from, p->c.order.batch * sizeof *rows);
    return p->c.batch;
}

static int plain_rows(const struct chex_pipeline *p, uint64_t ticket, size_t *rows) {
    if (ticket >= p->end)
        return 0;
    size_t from = p->c.row_from + (size_t)ticket * (size_t)p->c.batch;
    size_t left = p->c.row_to - from;
    int n = left < (size_t)p->c.batch ? (int)left : p->c.batch;
    for (int i = 0; i < n; i++)
        rows[i] = from + (size_t)i;
    return n;
}

/* Under the lock: everything of the ticket that depends on the order. */
static void assign(struct chex_pipeline *p, struct slot *s, uint64_t ticket) {
    uint64_t later = ticket + AHEAD + (uint64_t)p->c.workers - 1;
    *s = (struct slot){.state = SLOT_FILLING,
                       .ticket = ticket,
                       .pixels = s->pixels,
                       .labels = s->labels,
                       .rows = s->rows,
                       .ahead = s->ahead};
    if (!p->c.training) {
        s->step = (size_t)ticket;
        s->n = plain_rows(p, ticket, s->rows);
        s->ahead_count = plain_rows(p, later, s->ahead);
        return;
    }
    struct place at = place_of(p, ticket);
    make_order(p, at.epoch);
    s->epoch = at.epoch;
    s->step = at.step;
    s->logical_rank = p->c.rank_from + at.rank;
    s->n = training_rows(p, ticket, s->rows);
    s->ahead_count = training_rows(p, later, s->ahead);
}

/* ---- reading ---- */

/* Rows [i, i + result) of the batch are neighbours in one shard and fit one read. */
static size_t neighbours(const struct chex_pipeline *p, const size_t *rows, size_t i, size_t n) {
    size_t row_in_shard;
    const struct chex_shard *shard = chex_set_locate(p->c.set, rows[i], &row_in_shard);
    size_t left = chex_shard_rows(shard) - row_in_shard, count = 1;
    while (i + count < n && count < left && count < p->run && rows[i + count] == rows[i] + count)
        count++;
    return count;
}

static bool verified(const struct chex_pipeline *p, size_t row, size_t count) {
    bool all = true;
    for (size_t i = row; i < row + count; i++)
        all = all && atomic_load_explicit(&p->ok[i / 64], memory_order_relaxed) >> i % 64 & 1;
    return all;
}

static void mark_verified(struct chex_pipeline *p, size_t row, size_t count) {
    for (size_t i = row; i < row + count; i++)
        atomic_fetch_or_explicit(&p->ok[i / 64], (uint64_t)1 << i % 64, memory_order_relaxed);
}

static void announce(const struct chex_pipeline *p, const struct slot *s) {
    for (size_t i = 0, n; i < (size_t)s->ahead_count; i += n) {
        size_t row_in_shard;
        n = neighbours(p, s->ahead, i, (size_t)s->ahead_count);
        const struct chex_shard *shard = chex_set_locate(p->c.set, s->ahead[i], &row_in_shard);
        chex_shard_will_need(shard, row_in_shard, n);
    }
}

static void place_row(const struct worker *w, struct slot *s, size_t i, const uint8_t *pixels) {
    const struct chex_pipeline_config *c = &w->p->c;
    int stored = c->set->size, size = c->image_size;
    struct chex_crop crop =
        c->training ? chex_augment_draw(&c->augment, c->order.seed, s->epoch, s->rows[i], stored)
                    : chex_augment_centre(stored, size);
    chex_augment_apply(pixels, stored, &crop, size, false,
                       s->pixels + i * (size_t)size * (size_t)size, w->scratch);
}

static enum chex_status fill(struct worker *w, struct slot *s) {
    struct chex_pipeline *p = w->p;
    size_t classes = (size_t)p->c.set->classes;
    size_t row_bytes = (size_t)p->c.set->size * (size_t)p->c.set->size;
    announce(p, s);
    for (size_t i = 0, n; i < (size_t)s->n; i += n) {
        size_t row_in_shard;
        n = neighbours(p, s->rows, i, (size_t)s->n);
        const struct chex_shard *shard = chex_set_locate(p->c.set, s->rows[i], &row_in_shard);
        bool verify = !verified(p, s->rows[i], n);
        CHEX_TRY(chex_shard_read(shard, row_in_shard, n, verify, w->pixels, &s->err));
        if (verify)
            mark_verified(p, s->rows[i], n);
        for (size_t k = 0; k < n; k++) {
            place_row(w, s, i + k, w->pixels + k * row_bytes);
            memcpy(s->labels + (i + k) * classes, chex_shard_labels(shard, row_in_shard + k),
                   classes);
        }
    }
    return CHEX_OK;
}

static void *work(void *arg) {
    struct worker *w = arg;
    struct chex_pipeline *p = w->p;
    pthread_mutex_lock(&p->lock);
    for (;;) {
        struct slot *s = &p->slots[p->next_fill % (uint64_t)p->c.slots];
        while (!p->stop && p->next_fill < p->end && s->state != SLOT_FREE) {
            pthread_cond_wait(&p->freed, &p->lock);
            s = &p->slots[p->next_fill % (uint64_t)p->c.slots];
        }
        if (p->stop || p->next_fill >= p->end)
            break;
        assign(p, s, p->next_fill++);
        pthread_mutex_unlock(&p->lock);
        enum chex_status st = fill(w, s);
        pthread_mutex_lock(&p->lock);
        s->status = st;
        s->state = SLOT_READY;
        pthread_cond_signal(&p->ready);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* ---- the caller's side ---- */

static enum chex_status check_training(const struct chex_pipeline_config *c,
                                       struct chex_error *err) {
    size_t first, end;
    CHEX_TRY(chex_order_check(&c->order, err));
    if (c->order.rows != c->set->rows || c->order.batch != (size_t)c->batch)
        return chex_error_set(err, CHEX_E_FAIL,
                              "an order of %zu rows, batch %zu, for a set of %zu, batch %d",
                              c->order.rows, c->order.batch, c->set->rows, c->batch);
    if (c->rank_from < 0 || c->rank_from >= c->rank_to || c->rank_to > c->order.logical_ranks)
        return chex_error_set(err, CHEX_E_FAIL, "logical ranks %d to %d of %d", c->rank_from,
                              c->rank_to, c->order.logical_ranks);
    if (c->epoch >= UINT32_MAX || c->step > chex_order_steps(&c->order))
        return chex_error_set(err, CHEX_E_DATA, "start at epoch %llu, step %zu: an epoch has %zu",
                              (unsigned long long)c->epoch, c->step, chex_order_steps(&c->order));
    chex_order_range(&c->order, c->rank_from, c->rank_to, &first, &end);
    for (size_t i = 0; i < c->set->shard_count; i++)
        if (!c->set->shards[i] && c->set->first[i] < end && c->set->first[i + 1] > first)
            return chex_error_set(err, CHEX_E_FAIL,
                                  "%s: shard %zu holds rows of ours but is not "
                                  "open",
                                  c->set->dir, i);
    return CHEX_OK;
}

static enum chex_status check(const struct chex_pipeline_config *c, struct chex_error *err) {
    if (c->workers < 1 || c->workers > MOST_WORKERS)
        return chex_error_set(err, CHEX_E_USAGE, "%d input workers: expected 1 to %d", c->workers,
                              MOST_WORKERS);
    if (c->slots < LEAST_SLOTS || c->slots > MOST_SLOTS)
        return chex_error_set(err, CHEX_E_USAGE, "%d ready batches: expected %d to %d", c->slots,
                              LEAST_SLOTS, MOST_SLOTS);
    if (c->batch < 1 || c->image_size < 1)
        return chex_error_set(err, CHEX_E_USAGE, "batch %d, image size %d: expected 1 or more",
                              c->batch, c->image_size);
    if (c->set->size < c->image_size)
        return chex_error_set(err, CHEX_E_DATA,
                              "%s holds images of %d px, smaller than the image size of %d px: "
                              "shard again with a larger --size or lower --image-size",
                              c->set->dir, c->set->size, c->image_size);
    if (c->training)
        return check_training(c, err);
    if (c->row_from > c->row_to || c->row_to > c->set->rows)
        return chex_error_set(err, CHEX_E_FAIL, "rows %zu to %zu of a set of %zu", c->row_from,
                              c->row_to, c->set->rows);
    return CHEX_OK;
}

static bool allocate(struct chex_pipeline *p) {
    const struct chex_pipeline_config *c = &p->c;
    size_t batch = (size_t)c->batch, stored = (size_t)c->set->size;
    size_t size = (size_t)c->image_size * (size_t)c->image_size;
    p->slots = chex_mem_zalloc((size_t)c->slots, sizeof *p->slots);
    p->workers = chex_mem_zalloc((size_t)c->workers, sizeof *p->workers);
    p->ok = chex_mem_zalloc(c->set->rows / 64 + 1, sizeof *p->ok);
    bool good = p->slots && p->workers && p->ok;
    for (int i = 0; good && i < c->slots; i++) {
        struct slot *s = &p->slots[i];
        s->pixels = chex_mem_alloc_aligned(batch, size * sizeof *s->pixels);
        s->labels = chex_mem_zalloc(batch, (size_t)c->set->classes);
        s->rows = chex_mem_zalloc(batch, sizeof *s->rows);
        s->ahead = chex_mem_zalloc(batch, sizeof *s->ahead);
        good = s->pixels && s->labels && s->rows && s->ahead;
    }
    for (int i = 0; good && i < c->workers; i++) {
        struct worker *w = &p->workers[i];
        w->p = p;
        w->pixels = chex_mem_alloc_aligned(p->run, stored * stored);
        w->scratch =
            chex_mem_alloc_aligned(1, chex_augment_scratch_bytes(c->set->size, c->image_size));
        good = w->pixels && w->scratch;
    }
    if (good && c->training) {
        p->order = chex_mem_zalloc((size_t)(c->rank_to - c->rank_from) * p->steps,
                                   batch * sizeof *p->order);
        p->order_scratch = chex_mem_zalloc(c->set->rows, sizeof *p->order_scratch);
        good = p->order && p->order_scratch;
    }
    return good;
}

/* Signals are for the main thread, so the workers are born with all of them blocked. */
static enum chex_status start(struct chex_pipeline *p, struct chex_error *err) {
    sigset_t all, old;
    int rc = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    for (int i = 0; !rc && i < p->c.workers; i++) {
        rc = pthread_create(&p->workers[i].thread, NULL, work, &p->workers[i]);
        p->started += !rc;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc)
        return chex_error_errno(err, CHEX_E_ENV, rc, "cannot start input worker %d of %d",
                                p->started + 1, p->c.workers);
    return CHEX_OK;
}

static void set_bounds(struct chex_pipeline *p) {
    const struct chex_pipeline_config *c = &p->c;
    size_t row_bytes = (size_t)c->set->size * (size_t)c->set->size;
    p->run = READ_BYTES / row_bytes ? READ_BYTES / row_bytes : 1;
    p->run = p->run < (size_t)c->batch ? p->run : (size_t)c->batch;
    if (c->training) {
        p->steps = chex_order_steps(&c->order);
        p->first = (c->epoch * p->steps + c->step) * (uint64_t)(c->rank_to - c->rank_from);
        p->end = UINT64_MAX;
    } else {
        size_t rows = c->row_to - c->row_from, batch = (size_t)c->batch;
        p->end = rows / batch + (rows % batch != 0);
    }
}

enum chex_status chex_pipeline_create(const struct chex_pipeline_config *config,
                                      struct chex_pipeline **pipeline_out, struct chex_error *err) {
    CHEX_TRY(check(config, err));
    struct chex_pipeline *p = chex_mem_zalloc(1, sizeof *p);
    if (!p)
        return chex_error_errno(err, CHEX_E_FAIL, ENOMEM, "input pipeline");
    p->c = *config;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->freed, NULL);
    pthread_cond_init(&p->ready, NULL);
    set_bounds(p);
    enum chex_status st = CHEX_OK;
    if (!allocate(p))
        st = chex_error_errno(err, CHEX_E_FAIL, ENOMEM,
                              "input pipeline of %d batches of %d images of %d px", config->slots,
                              config->batch, config->image_size);
    if (st == CHEX_OK)
        st = start(p, err);
    if (st != CHEX_OK) {
        chex_pipeline_destroy(p);
        return st;
    }
    *pipeline_out = p;
    return CHEX_OK;
}

void chex_pipeline_destroy(struct chex_pipeline *p) {
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_cond_broadcast(&p->freed);
    pthread_mutex_unlock(&p->lock);
    for (int i = 0; i < p->started; i++)
        pthread_join(p->workers[i].thread, NULL);
    for (int i = 0; p->slots && i < p->c.slots; i++) {
        free(p->slots[i].pixels);
        free(p->slots[i].labels);
        free(p->slots[i].rows);
        free(p->slots[i].ahead);
    }
    for (int i = 0; p->workers && i < p->c.workers; i++) {
        free(p->workers[i].pixels);
        free(p->workers[i].scratch);
    }
    pthread_cond_destroy(&p->ready);
    pthread_cond_destroy(&p->freed);
    pthread_mutex_destroy(&p->lock);
    free(p->slots);
    free(p->workers);
    free((void *)p->ok);
    free(p->order);
    free(p->order_scratch);
    free(p);
}

enum chex_status chex_pipeline_next(struct chex_pipeline *p, struct chex_ready *ready_out,
                                    struct chex_error *err) {
    double start_s = chex_clock_s();
    pthread_mutex_lock(&p->lock);
    if (p->next_out >= p->end) {
        pthread_mutex_unlock(&p->lock);
        *ready_out = (struct chex_ready){.epoch = 0};
        return CHEX_OK;
    }
    struct slot *s = &p->slots[p->next_out % (uint64_t)p->c.slots];
    while (s->state != SLOT_READY || s->ticket != p->next_out)
        pthread_cond_wait(&p->ready, &p->lock);
    enum chex_status st = s->status;
    if (st == CHEX_OK) {
        s->state = SLOT_LENT;
        p->next_out++;
    }
    pthread_mutex_unlock(&p->lock);
    if (st != CHEX_OK)
        return chex_error_set(err, st, "%s", s->err.text);
    *ready_out = (struct chex_ready){.batch = {.n = s->n, .pixels = s->pixels, .labels = s->labels},
                                     .rows = s->rows,
                                     .epoch = s->epoch,
                                     .step = s->step,
                                     .logical_rank = s->logical_rank,
                                     .waited_s = chex_clock_s() - start_s};
    return CHEX_OK;
}

void chex_pipeline_release(struct chex_pipeline *p, const struct chex_ready *ready) {
    pthread_mutex_lock(&p->lock);
    for (int i = 0; i < p->c.slots; i++)
        if (p->slots[i].rows == ready->rows)
            p->slots[i].state = SLOT_FREE;
    pthread_cond_broadcast(&p->freed);
    pthread_mutex_unlock(&p->lock);
}
