/* SPDX-License-Identifier: Apache-2.0
 *
 * The interface that each kind of pipeline implements. A kind is one file and one line in the table
 * of pipeline.c.
 */
#ifndef CHEX_INPUT_PIPELINE_PRIVATE_H
#define CHEX_INPUT_PIPELINE_PRIVATE_H

#include "input/pipeline.h"
#include "input/reader.h"

struct chex_pipeline_impl {
    size_t shuffle; /* rows of the shuffle buffer; 0: the order alone shuffles */
    bool reads_all; /* reads every row of the set, on one thread */
    /* Bytes that create allocates for slots and read buffers. */
    uint64_t (*ring_bytes)(const struct chex_pipeline_config *c);
    /* The caller has checked the configuration. `reader` is borrowed. After a failure the caller
     * destroys *self_out unless it is NULL. */
    enum chex_status (*create)(const struct chex_pipeline_config *c, struct chex_reader *reader,
                               void **self_out, struct chex_error *err);
    void (*destroy)(void *self);
    enum chex_status (*next)(void *self, struct chex_ready *ready_out, struct chex_error *err);
    void (*release)(void *self, const struct chex_ready *ready);
};

extern const struct chex_pipeline_impl chex_pipeline_new, chex_pipeline_old;

/* The crop of a row: random for (epoch, row) in training, the centre in evaluation. */
struct chex_crop chex_pipeline_crop(const struct chex_pipeline_config *c, uint64_t epoch,
                                    size_t row);

/* Augments one stored row into `out` (image_size, image_size). Uses non-temporal stores, because
 * another thread reads the batch later. scratch: chex_augment_scratch_bytes(). */
void chex_pipeline_place(const struct chex_pipeline_config *c, uint64_t epoch, size_t row,
                         const uint8_t *pixels, float *out, void *scratch);

#endif
