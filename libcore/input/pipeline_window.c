/* SPDX-License-Identifier: Apache-2.0
 *
 * Double buffering of windows. Windows are numbered in the order in which batches need them: by
 * epoch, then position in the epoch, then logical rank. Window q uses buffer q mod buffer_count.
 * There are two buffers per logical rank: one in use, one being read. The reading thread fills the
 * next buffer when all batches of its old window are done (left = 0).
 *
 * With --resident, a window has only the rows that no earlier window had. No row is in two windows
 * of an epoch, and windows are read in the order of epochs. So these are exactly the rows that the
 * batches of the window ask for.
 */
#include "input/pipeline_window.h"

#include "base/alloc.h"
#include "base/thread.h"

struct buffer {
    uint64_t number;
    bool loaded;
    size_t from_step, left; /* first step; batches that are not made yet */
    size_t *slots;          /* (steps * batch) index in `pixels` of each row of the order */
    uint8_t *pixels;        /* (steps * batch, row_bytes) in disk order */
};

struct chex_window {
    const struct chex_pipeline_config *c;
    struct chex_reader *reader;
    struct chex_reader_lane *lane;
    chex_window_rows_fn rows_of;
    void *arg;
    size_t steps, per_window, windows; /* of an epoch; steps of a window; windows of an epoch */
    size_t ranks, row_bytes;
    uint64_t first;         /* number of the first window */
    size_t *rows;           /* (per_window * batch) rows of the window that is being read */
    size_t *places, *slots; /* (per_window * batch) of the wanted rows: index in rows, in pixels */
    bool *given;            /* (set's rows) an earlier window had the row; NULL: not resident */
    size_t buffer_count;
    struct buffer *buffers;

    pthread_mutex_t lock;
    pthread_cond_t loaded, emptied;
    bool stop; /* these two under the lock */
    struct chex_error fault;

    pthread_t thread;
    bool started;
};

/* Reduces w->rows to those that must be read and returns their number. */
static size_t choose_wanted(struct chex_window *w, size_t n) {
    size_t wanted = 0;
    for (size_t i = 0; i < n; i++) {
        const size_t row = w->rows[i];
        if (w->given && w->given[row])
            continue;
        if (w->given)
            w->given[row] = true;
        w->places[wanted] = i;
        w->rows[wanted++] = row;
    }
    return wanted;
}

/* Reads window `number` into its buffer, which is empty. */
static enum chex_status load(struct chex_window *w, uint64_t number, struct chex_error *err) {
    struct buffer *b = &w->buffers[number % w->buffer_count];
    uint64_t epoch = number / w->ranks / w->windows;
    int rank = (int)(number % w->ranks);
    size_t step = (size_t)(number / w->ranks % w->windows) * w->per_window;
    size_t end = step + w->per_window < w->steps ? step + w->per_window : w->steps;
    if (number < w->first + w->ranks) /* the run starts within this window */
        step = w->c->step;
    size_t n = (end - step) * (size_t)w->c->batch;
    w->rows_of(w->arg, epoch, rank, step, end - step, w->rows);
    const size_t wanted = choose_wanted(w, n);
    CHEX_TRY(chex_reader_load(w->reader, w->lane, w->rows, wanted, b->pixels, w->slots, err));
    for (size_t k = 0; k < wanted; k++)
        b->slots[w->places[k]] = w->slots[k];
    pthread_mutex_lock(&w->lock);
    b->number = number;
    b->from_step = step;
    b->left = end - step;
    b->loaded = true;
    pthread_cond_broadcast(&w->loaded);
    pthread_mutex_unlock(&w->lock);
    return CHEX_OK;
}

static void *prefetch(void *arg) {
    struct chex_window *w = arg;
    struct chex_error err = {0};
    for (uint64_t number = w->first;; number++) {
        struct buffer *b = &w->buffers[number % w->buffer_count];
        pthread_mutex_lock(&w->lock);
        while (!w->stop && b->left)
            pthread_cond_wait(&w->emptied, &w->lock);
        bool stop = w->stop;
        b->loaded = false;
        pthread_mutex_unlock(&w->lock);
        if (stop)
            return NULL;
        if (load(w, number, &err) == CHEX_OK)
            continue;
        pthread_mutex_lock(&w->lock);
        w->fault = err;
        pthread_cond_broadcast(&w->loaded);
        pthread_mutex_unlock(&w->lock);
        return NULL;
    }
}

/* Waits for the window. NULL if the reading thread failed or was stopped. */
static struct buffer *await(struct chex_window *w, uint64_t number, struct chex_error *err) {
    struct buffer *b = &w->buffers[number % w->buffer_count];
    pthread_mutex_lock(&w->lock);
    while (!w->stop && !w->fault.status && !(b->loaded && b->number == number))
        pthread_cond_wait(&w->loaded, &w->lock);
    bool there = b->loaded && b->number == number;
    if (!there)
        chex_error_set(err, w->fault.status ? w->fault.status : CHEX_E_FAIL, "%s",
                       w->fault.status ? w->fault.text : "the input was stopped");
    pthread_mutex_unlock(&w->lock);
    return there ? b : NULL;
}

enum chex_status chex_window_each(struct chex_window *w, uint64_t epoch, int rank, size_t step,
                                  const int *places, size_t n, chex_reader_fn fn, void *arg,
                                  struct chex_error *err) {
    struct chex_error fault = {0};
    size_t batch = (size_t)w->c->batch;
    struct buffer *b =
        await(w, (epoch * w->windows + step / w->per_window) * w->ranks + (uint64_t)rank, &fault);
    if (!b)
        return chex_error_set(err, fault.status, "%s", fault.text);
    const size_t *slots = b->slots + (step - b->from_step) * batch;
    for (size_t i = 0; i < n; i++)
        fn(arg, i, b->pixels + slots[places[i]] * w->row_bytes);
    pthread_mutex_lock(&w->lock);
    if (--b->left == 0)
        pthread_cond_signal(&w->emptied);
    pthread_mutex_unlock(&w->lock);
    return CHEX_OK;
}

static size_t buffers_of(const struct chex_pipeline_config *c) {
    return 2 * (size_t)(c->rank_to - c->rank_from);
}

uint64_t chex_window_bytes(const struct chex_pipeline_config *c) {
    const uint64_t px = (uint64_t)c->set->size;
    return buffers_of(c) * chex_order_window_steps(&c->order) * (uint64_t)c->batch * px * px;
}

static bool allocate(struct chex_window *w) {
    size_t rows = w->per_window * (size_t)w->c->batch;
    w->lane = chex_reader_lane_create(w->reader, rows);
    w->rows = chex_alloc_zeroed(rows, sizeof *w->rows);
    w->buffers = chex_alloc_zeroed(w->buffer_count, sizeof *w->buffers);
    w->places = chex_alloc_zeroed(rows, sizeof *w->places);
    w->slots = chex_alloc_zeroed(rows, sizeof *w->slots);
    if (w->c->resident)
        w->given = chex_alloc_zeroed(w->c->set->rows, sizeof *w->given);
    bool good =
        w->lane && w->rows && w->buffers && w->places && w->slots && (w->given || !w->c->resident);
    for (size_t i = 0; good && i < w->buffer_count; i++) {
        w->buffers[i].slots = chex_alloc_zeroed(rows, sizeof *w->buffers[i].slots);
        w->buffers[i].pixels = chex_alloc_aligned(rows, w->row_bytes);
        good = w->buffers[i].slots && w->buffers[i].pixels;
    }
    return good;
}

enum chex_status chex_window_create(const struct chex_pipeline_config *c,
                                    struct chex_reader *reader, chex_window_rows_fn rows, void *arg,
                                    struct chex_window **window_out, struct chex_error *err) {
    CHEX_AUTO(chex_window_destroy_at) struct chex_window *w = calloc(1, sizeof *w);
    if (!w)
        return chex_error_memory(err, "input windows");
    w->c = c;
    w->reader = reader;
    w->rows_of = rows;
    w->arg = arg;
    w->steps = chex_order_steps(&c->order);
    w->per_window = chex_order_window_steps(&c->order);
    w->windows = (w->steps + w->per_window - 1) / w->per_window;
    w->ranks = (size_t)(c->rank_to - c->rank_from);
    w->row_bytes = (size_t)c->set->size * (size_t)c->set->size;
    w->buffer_count = buffers_of(c);
    w->first = (c->epoch * w->windows + c->step / w->per_window) * w->ranks;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->loaded, NULL);
    pthread_cond_init(&w->emptied, NULL);
    if (!allocate(w))
        return chex_error_memory(err,
                                 "%zu windows of %zu rows of %zu bytes (a smaller --shuffle-block "
                                 "needs less)",
                                 w->buffer_count, w->per_window * (size_t)c->batch, w->row_bytes);
    const int rc = chex_thread_start(&w->thread, prefetch, w);
    w->started = rc == 0;
    if (rc)
        return chex_error_errno(err, CHEX_E_RESOURCE, rc, "cannot start the input reader");
    *window_out = CHEX_TAKE(w);
    return CHEX_OK;
}

void chex_window_stop(struct chex_window *w) {
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    pthread_cond_broadcast(&w->loaded);
    pthread_cond_broadcast(&w->emptied);
    pthread_mutex_unlock(&w->lock);
}

void chex_window_destroy(struct chex_window *w) {
    if (!w)
        return;
    chex_window_stop(w);
    if (w->started)
        pthread_join(w->thread, NULL);
    for (size_t i = 0; w->buffers && i < w->buffer_count; i++) {
        free(w->buffers[i].slots);
        free(w->buffers[i].pixels);
    }
    pthread_cond_destroy(&w->emptied);
    pthread_cond_destroy(&w->loaded);
    pthread_mutex_destroy(&w->lock);
    CHEX_FREE(w->buffers, w->rows, w->places, w->slots, w->given, w->lane, w);
}
