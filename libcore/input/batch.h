/* SPDX-License-Identifier: Apache-2.0
 *
 * What the input hands to an engine.
 *
 * A batch comes in one of two forms. With pixels it is finished. Raw (pixels NULL), it is stored
 * rows and what is to be done to them: the engine makes the pixels, and makes those that
 * chex_augment_apply would have made, to the last bit. A raw batch may leave out rows that the
 * engine holds: those that came with an earlier batch.
 */
#ifndef CHEX_INPUT_BATCH_H
#define CHEX_INPUT_BATCH_H

#include <stddef.h>
#include <stdint.h>

struct chex_crop;

/* One batch, borrowed for the duration of the call. Host memory. */
struct chex_batch {
    int n;
    const float *pixels;  /* (n, size, size): grey / 255, before mean and std; NULL: raw */
    const int8_t *labels; /* (n, classes): 1, 0; below 0: masked, adds nothing. NULL for infer */
    /* Raw: */
    int stored_px;                 /* side of a stored row */
    const struct chex_crop *crops; /* (n) */
    const uint8_t *stored;         /* (stored_count, stored_px, stored_px) */
    int stored_count;              /* n, where rows is NULL */
    const size_t *rows; /* (n) row numbers in the set that the engine holds; NULL: image i
                         * is stored row i, and nothing is held */
    const int *places;  /* (stored_count) stored row k is that of image places[k] and
                         * stays; the rows of the other images came before. With rows */
};

#endif
