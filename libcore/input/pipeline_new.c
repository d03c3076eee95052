/* SPDX-License-Identifier: Apache-2.0
 *
 * The pipeline `new`: a ring of slots that several workers fill.
 *
 * Ticket t is batch t since the start. It uses slot t mod slots. A worker waits until the slot of
 * the next ticket is free. Then it takes the ticket and copies its row numbers under the lock, and
 * fills the slot without the lock. next() returns the slots in the order of tickets.
 *
 *   SLOT_FREE --assign()--> SLOT_FILLING --fill()--> SLOT_READY --next()--> SLOT_LENT
 *   SLOT_LENT --release()--> SLOT_FREE
 *
 * Invariants:
 * - Everything that depends on the order happens in assign(), under the lock and ticket by ticket.
 *   So the content of a batch does not depend on which worker fills it.
 * - The lock is taken per batch, not per image.
 *
 * The first thread that needs the order of an epoch computes it under the lock (0.25 ms for 112,120
 * rows). The orders of three epochs are kept, because prefetching crosses the end of an epoch.
 */
#include <pthread.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/thread.h"
#include "input/augment.h"
#include "input/pipeline_private.h"
#include "input/pipeline_window.h"

enum {
    PREFETCH = 2, /* prefetch distance: batches after those that the workers fill */
    ORDERS = 3    /* epochs whose order is kept */
};

enum slot_state { SLOT_FREE, SLOT_FILLING, SLOT_READY, SLOT_LENT };

struct slot {
    enum slot_state state;
    uint64_t ticket;
    float *pixels;           /* (batch, size, size) or features (batch, count), unless raw */
    uint8_t *stored;         /* (batch, row_bytes): the rows that are read; only raw */
    struct chex_crop *crops; /* (batch), raw */
    int8_t *labels;
    size_t *rows;     /* (batch) */
    size_t *wanted;   /* (batch) the rows that are read */
    int *places;      /* (batch) their positions in `rows` */
    size_t *prefetch; /* (batch) rows of a later batch to prefetch */
    uint64_t *sums;   /* (batch) of the stored pixels; NULL in training */
    int n, wanted_count, prefetch_count;
    uint64_t epoch;
    size_t step;
    int rank; /* counts from rank_from */
    enum chex_status status;
    struct chex_error err;
};

struct worker {
    struct new_pipeline *p;
    pthread_t thread;
    struct chex_reader_lane *lane;
    void *scratch;
    struct slot *slot; /* the slot that it fills */
};

struct order {
    bool known;
    uint64_t epoch;
    size_t *rows; /* (rank_to - rank_from, steps * batch) */
};

struct new_pipeline {
    struct chex_pipeline_config c;
    struct chex_reader *reader;
    struct chex_window *window; /* NULL: each batch reads its own rows */
    size_t row_bytes;
    size_t steps;   /* of an epoch */
    uint64_t first; /* training: ticket 0 is this one since epoch 0, step 0 */
    uint64_t end;   /* number of tickets; training: UINT64_MAX */
    struct slot *slots;
    struct worker *workers;
    int started;

    pthread_mutex_t lock;
    pthread_cond_t freed, ready;
    /* guarded by the lock: */
    bool stop;
    uint64_t next_fill; /* the ticket that the next worker takes */
    uint64_t next_out;  /* the ticket that next() returns */
    struct order orders[ORDERS];
    size_t *order_scratch; /* (rows) */
    bool *given; /* (set's rows) a ticket below next_fill has the row; NULL: not resident */
};

/* ---- which rows ---- */

struct place {
    uint64_t epoch;
    size_t step;
    int rank; /* counts from rank_from */
};

static struct place place_of(const struct new_pipeline *p, uint64_t ticket) {
    uint64_t ranks = (uint64_t)(p->c.rank_to - p->c.rank_from), at = p->first + ticket;
    uint64_t per_epoch = ranks * p->steps;
    return (struct place){.epoch = at / per_epoch,
                          .step = (size_t)(at % per_epoch / ranks),
                          .rank = (int)(at % ranks)};
}

static const size_t *order_of(struct new_pipeline *p, uint64_t epoch) {
    struct order *o = &p->orders[epoch % ORDERS];
    if (o->known && o->epoch == epoch)
        return o->rows;
    for (int v = p->c.rank_from; v < p->c.rank_to; v++)
        chex_order_epoch(&p->c.order, v, epoch,
                         o->rows + (size_t)(v - p->c.rank_from) * p->steps * p->c.order.batch,
                         p->order_scratch);
    o->epoch = epoch;
    o->known = true;
    return o->rows;
}

static void copy_rows(struct new_pipeline *p, struct place at, size_t steps, size_t *rows) {
    size_t from = ((size_t)at.rank * p->steps + at.step) * p->c.order.batch;
    memcpy(rows, order_of(p, at.epoch) + from, steps * p->c.order.batch * sizeof *rows);
}

static void window_rows(void *arg, uint64_t epoch, int rank, size_t step, size_t steps,
                        size_t *rows_out) {
    struct new_pipeline *p = arg;
    pthread_mutex_lock(&p->lock);
    copy_rows(p, (struct place){.epoch = epoch, .step = step, .rank = rank}, steps, rows_out);
    pthread_mutex_unlock(&p->lock);
}

static int plain_rows(const struct new_pipeline *p, uint64_t ticket, size_t *rows) {
    if (ticket >= p->end)
        return 0;
    size_t from = p->c.row_from + (size_t)ticket * (size_t)p->c.batch;
    size_t left = p->c.row_to - from;
    int n = left < (size_t)p->c.batch ? (int)left : p->c.batch;
    for (int i = 0; i < n; i++)
        rows[i] = from + (size_t)i;
    return n;
}

/* Chooses the rows to read: all, or with `resident` those that no earlier batch had. */
static void choose_wanted(struct new_pipeline *p, struct slot *s) {
    s->wanted_count = 0;
    for (int i = 0; i < s->n; i++) {
        const size_t row = s->rows[i];
        if (p->given && p->given[row])
            continue;
        if (p->given)
            p->given[row] = true;
        s->places[s->wanted_count] = i;
        s->wanted[s->wanted_count++] = row;
    }
}

/* Chooses the rows of a later ticket to prefetch: those that will be read. */
static void choose_prefetch(struct new_pipeline *p, struct slot *s, struct place at) {
    copy_rows(p, at, 1, s->prefetch);
    s->prefetch_count = 0;
    for (int i = 0; i < p->c.batch; i++)
        if (!p->given || !p->given[s->prefetch[i]])
            s->prefetch[s->prefetch_count++] = s->prefetch[i];
}

/* Gives the ticket to the slot. Requires the lock; called in the order of tickets. */
static void assign(struct new_pipeline *p, struct slot *s, uint64_t ticket) {
    uint64_t later = ticket + PREFETCH + (uint64_t)p->c.workers - 1;
    s->state = SLOT_FILLING;
    s->ticket = ticket;
    s->status = CHEX_OK;
    s->prefetch_count = 0;
    if (!p->c.training) {
        s->step = (size_t)ticket;
        s->n = plain_rows(p, ticket, s->rows);
        s->prefetch_count = plain_rows(p, later, s->prefetch);
        choose_wanted(p, s);
        return;
    }
    struct place at = place_of(p, ticket), next = place_of(p, later);
    s->epoch = at.epoch;
    s->step = at.step;
    s->rank = at.rank;
    s->n = p->c.batch;
    copy_rows(p, at, 1, s->rows);
    choose_wanted(p, s);
    if (!p->window && next.epoch <= at.epoch + 1)
        choose_prefetch(p, s, next);
}

/* ---- filling ---- */

/* A line has at most 16,384 pixels, so its sum fits in 32 bits. */
static uint64_t sum_pixels(const uint8_t *pixels, size_t side) {
    uint64_t sum = 0;
    for (size_t y = 0; y < side; y++) {
        uint32_t line = 0;
        for (size_t x = 0; x < side; x++)
            line += pixels[y * side + x];
        sum += line;
    }
    return sum;
}

/* Callback of the reader: puts wanted row i into the slot. */
static void place_row(void *arg, size_t i, const uint8_t *pixels) {
    struct worker *w = arg;
    const struct chex_pipeline_config *c = &w->p->c;
    const size_t size = (size_t)c->image_size, row_bytes = w->p->row_bytes;
    struct slot *s = w->slot;
    if (s->sums)
        s->sums[s->places[i]] = sum_pixels(pixels, (size_t)c->set->size);
    if (c->raw)
        memcpy(s->stored + i * row_bytes, pixels, row_bytes);
    else
        chex_pipeline_place(c, s->epoch, s->wanted[i], pixels,
                            s->pixels + (size_t)s->places[i] * size * size, w->scratch);
}

/* Labels and crops of all images, also of those whose rows are not read. */
static void describe_images(const struct new_pipeline *p, struct slot *s) {
    const size_t classes = (size_t)p->c.set->classes;
    for (size_t i = 0; i < (size_t)s->n; i++) {
        memcpy(s->labels + i * classes, chex_set_labels(p->c.set, s->rows[i]), classes);
        if (p->c.raw)
            s->crops[i] = chex_pipeline_crop(&p->c, s->epoch, s->rows[i]);
    }
}

static void copy_features(const struct chex_pipeline_features *f, struct slot *s) {
    const size_t count = (size_t)f->count;
    for (size_t i = 0; i < (size_t)s->n; i++)
        memcpy(s->pixels + i * count, f->rows + (s->rows[i] - f->first) * count,
               count * sizeof *f->rows);
}

static enum chex_status fill(struct worker *w, struct slot *s) {
    struct new_pipeline *p = w->p;
    const size_t wanted = (size_t)s->wanted_count;
    w->slot = s;
    describe_images(p, s);
    if (p->c.features.count) {
        copy_features(&p->c.features, s);
        return CHEX_OK;
    }
    if (p->window)
        return chex_window_each(p->window, s->epoch, s->rank, s->step, s->places, wanted, place_row,
                                w, &s->err);
    chex_reader_prefetch(p->reader, w->lane, s->prefetch, (size_t)s->prefetch_count);
    return chex_reader_each(p->reader, w->lane, s->wanted, wanted, place_row, w, &s->err);
}

static struct slot *slot_of(const struct new_pipeline *p, uint64_t ticket) {
    return &p->slots[ticket % (uint64_t)p->c.slots];
}

static bool can_fill(const struct new_pipeline *p) {
    return p->next_fill < p->end && slot_of(p, p->next_fill)->state == SLOT_FREE;
}

static void *work(void *arg) {
    struct worker *w = arg;
    struct new_pipeline *p = w->p;
    pthread_mutex_lock(&p->lock);
    for (;;) {
        while (!p->stop && p->next_fill < p->end && !can_fill(p))
            pthread_cond_wait(&p->freed, &p->lock);
        if (p->stop || p->next_fill >= p->end)
            break;
        struct slot *s = slot_of(p, p->next_fill);
        assign(p, s, p->next_fill++);
        if (can_fill(p)) /* a release wakes only one worker; this one wakes the next */
            pthread_cond_signal(&p->freed);
        pthread_mutex_unlock(&p->lock);
        const uint64_t from_ns = chex_trace_now(p->c.trace);
        enum chex_status st = fill(w, s);
        chex_trace_span(p->c.trace, CHEX_TRACE_INPUT + (unsigned)(w - p->workers), CHEX_TRACE_BATCH,
                        from_ns, s->ticket);
        pthread_mutex_lock(&p->lock);
        s->status = st;
        s->state = SLOT_READY;
        pthread_cond_signal(&p->ready);
    }
    pthread_cond_signal(&p->freed); /* end of an evaluation: wake the next worker to end */
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* ---- the caller's side ---- */

/* Bytes of one image in a slot: its stored row (raw), its features or its pixels. */
static size_t image_bytes(const struct chex_pipeline_config *c) {
    if (c->features.count)
        return (size_t)c->features.count * sizeof(float);
    const size_t side = (size_t)(c->raw ? c->set->size : c->image_size);
    return side * side * (c->raw ? 1 : sizeof(float));
}

/* Whether rows are read in windows, not batch by batch. */
static bool has_window(const struct chex_pipeline_config *c) {
    return c->training && chex_order_window_steps(&c->order) && !c->keep && !c->features.count;
}

static uint64_t ring_bytes(const struct chex_pipeline_config *c) {
    const uint64_t slots = (uint64_t)c->slots * (uint64_t)c->batch * image_bytes(c);
    return slots + (has_window(c) ? chex_window_bytes(c) : 0);
}

static bool allocate_slot(const struct chex_pipeline_config *c, struct slot *s) {
    const size_t batch = (size_t)c->batch;
    if (c->raw) {
        s->stored = chex_alloc_aligned(batch, image_bytes(c));
        s->crops = chex_alloc_zeroed(batch, sizeof *s->crops);
    } else {
        s->pixels = chex_alloc_aligned(batch, image_bytes(c));
    }
    s->labels = chex_alloc_zeroed(batch, (size_t)c->set->classes);
    s->rows = chex_alloc_zeroed(batch, sizeof *s->rows);
    s->wanted = chex_alloc_zeroed(batch, sizeof *s->wanted);
    s->places = chex_alloc_zeroed(batch, sizeof *s->places);
    s->prefetch = chex_alloc_zeroed(batch, sizeof *s->prefetch);
    s->sums = c->training ? NULL : chex_alloc_zeroed(batch, sizeof *s->sums);
    return (c->raw ? s->stored && s->crops : s->pixels != NULL) && s->labels && s->rows &&
           s->wanted && s->places && s->prefetch && (s->sums || c->training);
}

static void free_slot(struct slot *s) {
    CHEX_FREE(s->pixels, s->stored, s->crops, s->labels, s->rows, s->wanted, s->places, s->prefetch,
              s->sums);
}

static bool allocate_orders(struct new_pipeline *p) {
    size_t ranks = (size_t)(p->c.rank_to - p->c.rank_from);
    bool good = (p->order_scratch = chex_alloc_zeroed(p->c.set->rows, sizeof *p->order_scratch));
    for (int i = 0; good && i < ORDERS; i++)
        good = (p->orders[i].rows = chex_alloc_zeroed(
                    ranks * p->steps, p->c.order.batch * sizeof *p->orders[i].rows));
    return good;
}

static bool allocate(struct new_pipeline *p) {
    const struct chex_pipeline_config *c = &p->c;
    size_t scratch = chex_augment_scratch_bytes(c->set->size, c->image_size);
    p->slots = chex_alloc_zeroed((size_t)c->slots, sizeof *p->slots);
    p->workers = chex_alloc_zeroed((size_t)c->workers, sizeof *p->workers);
    if (c->resident)
        p->given = chex_alloc_zeroed(c->set->rows, sizeof *p->given);
    bool good = p->slots && p->workers && (p->given || !c->resident);
    for (int i = 0; good && i < c->slots; i++)
        good = allocate_slot(c, &p->slots[i]);
    for (int i = 0; good && i < c->workers; i++) {
        struct worker *w = &p->workers[i];
        w->p = p;
        w->lane = chex_reader_lane_create(p->reader, (size_t)c->batch);
        w->scratch = chex_alloc_aligned(1, scratch);
        good = w->lane && w->scratch;
    }
    return good && (!c->training || allocate_orders(p));
}

static enum chex_status start(struct new_pipeline *p, struct chex_error *err) {
    int rc = 0;
    if (has_window(&p->c))
        CHEX_TRY(chex_window_create(&p->c, p->reader, window_rows, p, &p->window, err));
    for (int i = 0; !rc && i < p->c.workers; i++) {
        rc = chex_thread_start(&p->workers[i].thread, work, &p->workers[i]);
        p->started += !rc;
    }
    if (rc)
        return chex_error_errno(err, CHEX_E_RESOURCE, rc, "cannot start input worker %d of %d",
                                p->started + 1, p->c.workers);
    return CHEX_OK;
}

static void set_bounds(struct new_pipeline *p) {
    const struct chex_pipeline_config *c = &p->c;
    if (c->training) {
        p->steps = chex_order_steps(&c->order);
        p->c.epoch += c->step / p->steps; /* the end of an epoch is the start of the next one */
        p->c.step = c->step % p->steps;
        p->first = (c->epoch * p->steps + c->step) * (uint64_t)(c->rank_to - c->rank_from);
        p->end = UINT64_MAX;
    } else {
        size_t rows = c->row_to - c->row_from, batch = (size_t)c->batch;
        p->end = rows / batch + (rows % batch != 0);
    }
}

static void destroy(void *self) {
    struct new_pipeline *p = self;
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_cond_broadcast(&p->freed);
    pthread_mutex_unlock(&p->lock);
    chex_window_stop(p->window);
    for (int i = 0; i < p->started; i++)
        pthread_join(p->workers[i].thread, NULL);
    chex_window_destroy(p->window);
    for (int i = 0; p->slots && i < p->c.slots; i++)
        free_slot(&p->slots[i]);
    for (int i = 0; p->workers && i < p->c.workers; i++) {
        free(p->workers[i].lane);
        free(p->workers[i].scratch);
    }
    for (int i = 0; i < ORDERS; i++)
        free(p->orders[i].rows);
    pthread_cond_destroy(&p->ready);
    pthread_cond_destroy(&p->freed);
    pthread_mutex_destroy(&p->lock);
    CHEX_FREE(p->order_scratch, p->given, p->slots, p->workers, p);
}

static enum chex_status create(const struct chex_pipeline_config *c, struct chex_reader *reader,
                               void **self_out, struct chex_error *err) {
    struct new_pipeline *p = *self_out = chex_alloc_zeroed(1, sizeof *p);
    if (!p)
        return chex_error_memory(err, "input pipeline");
    p->c = *c;
    p->reader = reader;
    p->row_bytes = (size_t)c->set->size * (size_t)c->set->size;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->freed, NULL);
    pthread_cond_init(&p->ready, NULL);
    set_bounds(p);
    return allocate(p)
               ? start(p, err)
               : chex_error_memory(err, "input pipeline of %d batches of %d images of %d px",
                                   c->slots, c->batch, c->image_size);
}

static struct chex_batch batch_of(const struct new_pipeline *p, const struct slot *s) {
    struct chex_batch b = {.n = s->n, .labels = s->labels};
    *(p->c.features.count ? &b.features : &b.pixels) = s->pixels;
    if (!p->c.raw)
        return b;
    b.stored_px = p->c.set->size;
    b.crops = s->crops;
    b.stored = s->stored;
    b.stored_count = s->wanted_count;
    if (p->c.resident) {
        b.rows = s->rows;
        b.places = s->places;
    }
    return b;
}

/* Number of ready batches. Requires the lock. */
static int ready_count(const struct new_pipeline *p) {
    int n = 0;
    for (int i = 0; i < p->c.slots; i++)
        n += p->slots[i].state == SLOT_READY;
    return n;
}

static enum chex_status next(void *self, struct chex_ready *ready_out, struct chex_error *err) {
    struct new_pipeline *p = self;
    double start_s = chex_clock_s();
    pthread_mutex_lock(&p->lock);
    if (p->next_out >= p->end) {
        pthread_mutex_unlock(&p->lock);
        *ready_out = (struct chex_ready){.epoch = 0};
        return CHEX_OK;
    }
    struct slot *s = slot_of(p, p->next_out);
    chex_trace_count(p->c.trace, CHEX_TRACE_READY, ready_count(p));
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
    *ready_out = (struct chex_ready){.batch = batch_of(p, s),
                                     .rows = s->rows,
                                     .pixel_sums = s->sums,
                                     .epoch = s->epoch,
                                     .step = s->step,
                                     .logical_rank = p->c.rank_from + s->rank,
                                     .waited_s = chex_clock_s() - start_s};
    return CHEX_OK;
}

static void release(void *self, const struct chex_ready *ready) {
    struct new_pipeline *p = self;
    pthread_mutex_lock(&p->lock);
    for (int i = 0; i < p->c.slots; i++)
        if (p->slots[i].rows == ready->rows)
            p->slots[i].state = SLOT_FREE;
    pthread_cond_signal(&p->freed);
    pthread_mutex_unlock(&p->lock);
}

const struct chex_pipeline_impl chex_pipeline_new = {.ring_bytes = ring_bytes,
                                                     .create = create,
                                                     .destroy = destroy,
                                                     .next = next,
                                                     .release = release};
