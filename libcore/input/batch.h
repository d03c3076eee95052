/* SPDX-License-Identifier: Apache-2.0
 *
 * A batch: what the input pipeline passes to an engine. It has one of three forms:
 * - finished: `pixels` is set.
 * - raw: `pixels` is NULL. The batch has stored rows and crops, and the engine makes the pixels.
 *   They must be bit-identical to the result of chex_augment_apply(). With --resident a raw batch
 *   omits rows that came with an earlier batch, because the engine keeps them.
 * - features: `features` is set, and `pixels` is NULL. Only for the engine `head`.
 */
#ifndef CHEX_INPUT_BATCH_H
#define CHEX_INPUT_BATCH_H

#include <stddef.h>
#include <stdint.h>

struct chex_crop;

/* One batch. Host memory, borrowed for the duration of the call. */
struct chex_batch {
    int n;
    const float *pixels;  /* (n, size, size): grey / 255, before mean and std; NULL: another form */
    const int8_t *labels; /* (n, classes): 1, 0; below 0: masked, not in the loss. NULL for infer */
    const float *features; /* (n, channels of the head's input): pooled features */
    /* Raw: */
    int stored_px;                 /* side of a stored row */
    const struct chex_crop *crops; /* (n) */
    const uint8_t *stored;         /* (stored_count, stored_px, stored_px) */
    int stored_count;              /* n if rows is NULL */
    const size_t *rows; /* (n) row numbers in the set; the engine keeps these rows. NULL: image i
                         * is stored row i, and the engine keeps nothing */
    const int *places;  /* (stored_count) stored row k belongs to image places[k]; the rows of the
                         * other images came with earlier batches. Only with rows */
};

#endif
