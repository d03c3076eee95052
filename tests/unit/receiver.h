/* SPDX-License-Identifier: Apache-2.0
 *
 * What an engine makes of raw batches, for the tests of the pipelines: it keeps the rows that come
 * and crops them.
 */
#ifndef CHEX_TESTS_UNIT_RECEIVER_H
#define CHEX_TESTS_UNIT_RECEIVER_H

#include "base/alloc.h"
#include "input/augment.h"
#include "input/pipeline.h"
#include "tap.h"

struct receiver {
    size_t row_bytes, area;
    int stored, size;
    uint8_t *rows; /* (rows, row_bytes) */
    bool *there;   /* (rows) */
    int came;      /* rows, each time that they came */
    float *pixels; /* (batch, size, size) */
    void *scratch;
};

static inline struct receiver receiver_create(size_t rows, size_t batch, int stored, int size) {
    struct receiver r = {.row_bytes = (size_t)stored * (size_t)stored,
                         .area = (size_t)size * (size_t)size,
                         .stored = stored,
                         .size = size};
    r.rows = chex_alloc_zeroed(rows, r.row_bytes);
    r.there = chex_alloc_zeroed(rows, sizeof *r.there);
    r.pixels = chex_alloc_zeroed(batch, r.area * sizeof *r.pixels);
    r.scratch = chex_alloc_aligned(1, chex_augment_scratch_bytes(stored, size));
    BAIL_UNLESS(r.rows && r.there && r.pixels && r.scratch, "out of memory");
    return r;
}

static inline void receiver_release(struct receiver *r) {
    free(r->rows);
    free(r->there);
    free(r->pixels);
    free(r->scratch);
}

/* Whether the batch says everything that it should; `ready` has pixels then. */
static inline bool receiver_develop(struct receiver *to, struct chex_ready *ready) {
    const struct chex_batch *b = &ready->batch;
    bool good = !b->pixels && b->stored_px == to->stored && b->stored_count <= b->n &&
                (b->rows ? b->rows == ready->rows : b->stored_count == b->n);
    for (int k = 0; good && k < b->stored_count; k++) {
        const size_t row = b->rows ? b->rows[b->places[k]] : ready->rows[k];
        good = !b->rows || !to->there[row];
        memcpy(to->rows + row * to->row_bytes, b->stored + (size_t)k * to->row_bytes,
               to->row_bytes);
        to->there[row] = true;
        to->came++;
    }
    for (int i = 0; good && i < b->n; i++) {
        const size_t row = ready->rows[i];
        good = to->there[row];
        chex_augment_apply(to->rows + row * to->row_bytes, to->stored, &b->crops[i], to->size,
                           false, to->pixels + (size_t)i * to->area, to->scratch);
    }
    ready->batch.pixels = to->pixels;
    return good;
}

#endif
