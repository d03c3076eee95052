/* SPDX-License-Identifier: Apache-2.0
 *
 * The pipeline `old`, the first pipeline of the article: map(decode) over all files, shard(V, v),
 * shuffle(500), batch, prefetch(1) in terms of tf.data. It is slow on purpose: shard() comes after
 * map(decode), so every rank decodes all rows and more ranks do not make the input faster.
 *
 * Record i of an epoch belongs to logical rank i % V. The logical ranks of this process share one
 * pass over the rows. Each has its own shuffle buffer. They advance together, so the batches of a
 * step become ready together. Two steps exist at a time: one lent, one ready or being made.
 *
 * The pixels of a record depend on (seed, epoch, row), its position on (seed, epoch, rank). A run
 * that resumes within an epoch reads that epoch from its start.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/thread.h"
#include "input/augment.h"
#include "input/pipeline_private.h"

enum {
    BUFFER = 500, /* records of the shuffle buffer */
    STEPS = 2,    /* steps that exist at a time */
    CHUNK = 64    /* rows of one request to the reader */
};

/* Augmented records of a shuffle buffer or of a batch. */
struct records {
    float *pixels;  /* (capacity, size, size) */
    int8_t *labels; /* (capacity, classes) */
    size_t *rows;   /* (capacity) */
};

struct stream {
    struct records buffer; /* (BUFFER + 1): a record is added before one is removed */
    size_t count, removed; /* records in the buffer; removed in this epoch */
    struct records batches[STEPS];
    uint64_t built; /* batches since the start; guarded by the lock */
};

struct old_pipeline {
    struct chex_pipeline_config c;
    struct chex_reader *reader;
    struct chex_reader_lane *lane;
    void *scratch;
    size_t steps, pixels, classes; /* of an epoch; of an image; of the set */
    int ranks;                     /* logical ranks of this process */
    struct stream *streams;        /* (ranks) */
    uint64_t epoch;                /* current epoch */
    size_t chunk_from;

    pthread_t thread;
    bool started;
    pthread_mutex_t lock;
    pthread_cond_t freed, ready;
    /* guarded by the lock: */
    bool stop;
    uint64_t next_out, released;
    struct chex_error fault;
};

static void copy_record(const struct old_pipeline *p, const struct records *from, size_t i,
                        const struct records *to, size_t k) {
    memcpy(to->pixels + k * p->pixels, from->pixels + i * p->pixels,
           p->pixels * sizeof *to->pixels);
    memcpy(to->labels + k * p->classes, from->labels + i * p->classes, p->classes);
    to->rows[k] = from->rows[i];
}

/* Waits until the buffers of step `n` since the start are free. False: the pipeline ends. */
static bool await_free(struct old_pipeline *p, uint64_t n) {
    pthread_mutex_lock(&p->lock);
    while (!p->stop && n >= p->released / (uint64_t)p->ranks + STEPS)
        pthread_cond_wait(&p->freed, &p->lock);
    bool go_on = !p->stop;
    pthread_mutex_unlock(&p->lock);
    return go_on;
}

static void batch_is_ready(struct old_pipeline *p, struct stream *s) {
    pthread_mutex_lock(&p->lock);
    s->built++;
    pthread_cond_signal(&p->ready);
    pthread_mutex_unlock(&p->lock);
}

/* Moves a record from the buffer of stream v to its batch. Records before the start of the run and
 * after the epoch's last full batch are dropped. */
static void take_out(struct old_pipeline *p, int v) {
    struct stream *s = &p->streams[v];
    size_t batch = (size_t)p->c.batch, step = s->removed / batch, place = s->removed % batch;
    size_t at =
        chex_order_buffer_pick(p->c.order.seed, p->epoch, p->c.rank_from + v, s->removed, s->count);
    bool wanted = step < p->steps && (p->epoch > p->c.epoch || step >= p->c.step);
    if (wanted && (place || await_free(p, s->built)))
        copy_record(p, &s->buffer, at, &s->batches[s->built % STEPS], place);
    if (wanted && place + 1 == batch)
        batch_is_ready(p, s);
    s->removed++;
    if (at != --s->count)
        copy_record(p, &s->buffer, s->count, &s->buffer, at);
}

/* Augments a record, then adds it to the buffer if it belongs to a logical rank of this process. */
static void take_in(void *arg, size_t i, const uint8_t *pixels) {
    struct old_pipeline *p = arg;
    size_t row = p->chunk_from + i;
    int v = (int)(row % (size_t)p->c.order.logical_ranks) - p->c.rank_from;
    bool ours = v >= 0 && v < p->ranks;
    struct stream *s = &p->streams[ours ? v : 0];
    chex_pipeline_place(&p->c, p->epoch, row, pixels, s->buffer.pixels + s->count * p->pixels,
                        p->scratch);
    if (!ours)
        return;
    memcpy(s->buffer.labels + s->count * p->classes, chex_set_labels(p->c.set, row), p->classes);
    s->buffer.rows[s->count++] = row;
    if (s->count == BUFFER)
        take_out(p, v);
}

static bool stopped(struct old_pipeline *p) {
    pthread_mutex_lock(&p->lock);
    bool stop = p->stop;
    pthread_mutex_unlock(&p->lock);
    return stop;
}

/* Empties the buffers at the end of an epoch, one record per rank in turn, so that the ranks stay
 * at the same step. */
static void drain(struct old_pipeline *p) {
    for (size_t i = 0; i < BUFFER && !stopped(p); i++)
        for (int v = 0; v < p->ranks; v++)
            if (p->streams[v].count)
                take_out(p, v);
    for (int v = 0; v < p->ranks; v++)
        p->streams[v].count = p->streams[v].removed = 0;
}

static enum chex_status read_epoch(struct old_pipeline *p, struct chex_error *err) {
    size_t rows[CHUNK], n;
    for (size_t from = 0; from < p->c.set->rows && !stopped(p); from += n) {
        n = p->c.set->rows - from < CHUNK ? p->c.set->rows - from : CHUNK;
        for (size_t i = 0; i < n; i++)
            rows[i] = from + i;
        p->chunk_from = from;
        CHEX_TRY(chex_reader_each(p->reader, p->lane, rows, n, take_in, p, err));
    }
    drain(p);
    return CHEX_OK;
}

static void *work(void *arg) {
    struct old_pipeline *p = arg;
    struct chex_error err = {0};
    for (p->epoch = p->c.epoch; !stopped(p); p->epoch++)
        if (read_epoch(p, &err) != CHEX_OK)
            break;
    pthread_mutex_lock(&p->lock);
    p->fault = err;
    pthread_cond_signal(&p->ready);
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* ---- the caller's side ---- */

static bool allocate_records(const struct old_pipeline *p, size_t capacity, struct records *r) {
    r->pixels = chex_alloc_aligned(capacity, p->pixels * sizeof *r->pixels);
    r->labels = chex_alloc_zeroed(capacity, p->classes);
    r->rows = chex_alloc_zeroed(capacity, sizeof *r->rows);
    return r->pixels && r->labels && r->rows;
}

static void free_records(struct records *r) { CHEX_FREE(r->pixels, r->labels, r->rows); }

static uint64_t ring_bytes(const struct chex_pipeline_config *c) {
    const uint64_t pixels = (uint64_t)c->image_size * (uint64_t)c->image_size;
    const uint64_t records = BUFFER + 1 + STEPS * (uint64_t)c->batch;
    return (uint64_t)(c->rank_to - c->rank_from) * records * pixels * sizeof(float);
}

static bool allocate(struct old_pipeline *p) {
    p->lane = chex_reader_lane_create(p->reader, CHUNK);
    p->scratch = chex_alloc_aligned(1, chex_augment_scratch_bytes(p->c.set->size, p->c.image_size));
    p->streams = chex_alloc_zeroed((size_t)p->ranks, sizeof *p->streams);
    bool good = p->lane && p->scratch && p->streams;
    for (int v = 0; good && v < p->ranks; v++) {
        good = allocate_records(p, BUFFER + 1, &p->streams[v].buffer);
        for (int k = 0; good && k < STEPS; k++)
            good = allocate_records(p, (size_t)p->c.batch, &p->streams[v].batches[k]);
    }
    return good;
}

static void destroy(void *self) {
    struct old_pipeline *p = self;
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_cond_signal(&p->freed);
    pthread_mutex_unlock(&p->lock);
    if (p->started)
        pthread_join(p->thread, NULL);
    for (int v = 0; p->streams && v < p->ranks; v++) {
        free_records(&p->streams[v].buffer);
        for (int k = 0; k < STEPS; k++)
            free_records(&p->streams[v].batches[k]);
    }
    pthread_cond_destroy(&p->ready);
    pthread_cond_destroy(&p->freed);
    pthread_mutex_destroy(&p->lock);
    CHEX_FREE(p->streams, p->scratch, p->lane, p);
}

static enum chex_status create(const struct chex_pipeline_config *c, struct chex_reader *reader,
                               void **self_out, struct chex_error *err) {
    struct old_pipeline *p = *self_out = chex_alloc_zeroed(1, sizeof *p);
    if (!p)
        return chex_error_memory(err, "input pipeline");
    p->c = *c;
    p->reader = reader;
    p->steps = chex_order_steps(&c->order);
    p->c.epoch += c->step / p->steps; /* the end of an epoch is the start of the next one */
    p->c.step = c->step % p->steps;
    p->pixels = (size_t)c->image_size * (size_t)c->image_size;
    p->classes = (size_t)c->set->classes;
    p->ranks = c->rank_to - c->rank_from;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->freed, NULL);
    pthread_cond_init(&p->ready, NULL);
    if (!allocate(p))
        return chex_error_memory(err,
                                 "old input pipeline: %d shuffle buffers of %d images of %d px",
                                 p->ranks, BUFFER, c->image_size);
    const int rc = chex_thread_start(&p->thread, work, p);
    p->started = rc == 0;
    if (rc)
        return chex_error_errno(err, CHEX_E_RESOURCE, rc, "cannot start the input reader");
    return CHEX_OK;
}

static enum chex_status next(void *self, struct chex_ready *ready_out, struct chex_error *err) {
    struct old_pipeline *p = self;
    double start_s = chex_clock_s();
    pthread_mutex_lock(&p->lock);
    int v = (int)(p->next_out % (uint64_t)p->ranks);
    uint64_t n = p->next_out / (uint64_t)p->ranks;
    struct stream *s = &p->streams[v];
    while (s->built <= n && !p->fault.status)
        pthread_cond_wait(&p->ready, &p->lock);
    bool there = s->built > n;
    p->next_out += there;
    pthread_mutex_unlock(&p->lock);
    if (!there)
        return chex_error_set(err, p->fault.status, "%s", p->fault.text);
    const struct records *b = &s->batches[n % STEPS];
    uint64_t at = p->c.epoch * p->steps + p->c.step + n;
    *ready_out =
        (struct chex_ready){.batch = {.n = p->c.batch, .pixels = b->pixels, .labels = b->labels},
                            .rows = b->rows,
                            .epoch = at / p->steps,
                            .step = (size_t)(at % p->steps),
                            .logical_rank = p->c.rank_from + v,
                            .waited_s = chex_clock_s() - start_s};
    return CHEX_OK;
}

static void release(void *self, const struct chex_ready *ready) {
    struct old_pipeline *p = self;
    (void)ready;
    pthread_mutex_lock(&p->lock);
    p->released++;
    pthread_cond_signal(&p->freed);
    pthread_mutex_unlock(&p->lock);
}

const struct chex_pipeline_impl chex_pipeline_old = {.shuffle = BUFFER,
                                                     .reads_all = true,
                                                     .ring_bytes = ring_bytes,
                                                     .create = create,
                                                     .destroy = destroy,
                                                     .next = next,
                                                     .release = release};
