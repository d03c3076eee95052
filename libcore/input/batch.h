/* SPDX-License-Identifier: Apache-2.0
 *
 * What the input hands to an engine.
 */
#ifndef CHEX_INPUT_BATCH_H
#define CHEX_INPUT_BATCH_H

#include <stdint.h>

/* One batch, borrowed for the duration of the call. Host memory. */
struct chex_batch {
    int n;
    const float *pixels;  /* (n, size, size): grey / 255, before mean and std */
    const int8_t *labels; /* (n, classes): 1, 0; below 0: masked, adds nothing. NULL for infer */
};

#endif
