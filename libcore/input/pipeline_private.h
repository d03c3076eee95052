/* SPDX-License-Identifier: Apache-2.0
 *
 * The kinds of pipelines behind pipeline.h. A kind is one file and one line in the table of
 * pipeline.c.
 */
#ifndef CHEX_INPUT_PIPELINE_PRIVATE_H
#define CHEX_INPUT_PIPELINE_PRIVATE_H

#include "input/pipeline.h"
#include "input/reader.h"

struct chex_pipeline_impl {
    /* As chex_pipeline_rows, _width and _threads. */
    void (*rows)(const struct chex_order_config *order, int from, int to, size_t *first_out,
                 size_t *end_out);
    size_t (*width)(const struct chex_order_config *order);
    int (*threads)(const struct chex_pipeline_config *c);
    /* Bytes that create takes for batches, and for what is read for them. */
    uint64_t (*ring_bytes)(const struct chex_pipeline_config *c);
    /* Rows that an epoch of training reads, where none stays. */
    uint64_t (*epoch_rows)(const struct chex_pipeline_config *c);
    /* The configuration was checked. `reader` is borrowed. On failure nothing is left. */
    enum chex_status (*create)(const struct chex_pipeline_config *c, struct chex_reader *reader,
                               void **self_out, struct chex_error *err);
    void (*destroy)(void *self);
    enum chex_status (*next)(void *self, struct chex_ready *ready_out, struct chex_error *err);
    void (*release)(void *self, const struct chex_ready *ready);
};

extern const struct chex_pipeline_impl chex_pipeline_new, chex_pipeline_old;

/* What is done to a row: drawn anew each epoch in training, the centre otherwise. */
struct chex_crop chex_pipeline_crop(const struct chex_pipeline_config *c, uint64_t epoch,
                                    size_t row);

/* One stored row into `out` (image_size, image_size), by its crop; past the caches, since another
 * thread reads it, and later. scratch: chex_augment_scratch_bytes. */
void chex_pipeline_place(const struct chex_pipeline_config *c, uint64_t epoch, size_t row,
                         const uint8_t *pixels, float *out, void *scratch);

#endif
