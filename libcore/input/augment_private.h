/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels behind chex_augment_apply. `plain` is the definition; the others give the same bits.
 */
#ifndef CHEX_INPUT_AUGMENT_PRIVATE_H
#define CHEX_INPUT_AUGMENT_PRIVATE_H

#include "input/augment.h"

enum { CHEX_AUGMENT_ROW_BITS = 8, CHEX_AUGMENT_COLUMN_BITS = 14 };

/* What the sum of weights times 255 is divided by. */
#define CHEX_AUGMENT_SCALE (1.0f / (255.0f * 4194304.0f))

struct chex_augment_kernels {
    const char *name;
    /* row[x] = upper[x] * (256 - weight) + lower[x] * weight - 32768: 16 bits with a sign. */
    void (*blend)(const uint8_t *upper, const uint8_t *lower, int weight, int width, int16_t *row);
    /* out[x] = (row[at[x]] * weights[2x] + row[at[x] + 1] * weights[2x + 1] + 2^29) * scale. The
     * weights of a pair sum to 2^14, which makes 2^29 of the 32768 that blend took away. */
    void (*pick)(const int16_t *row, const int32_t *at, const int16_t *weights, int size,
                 float *out);
};

extern const struct chex_augment_kernels chex_augment_plain;
#if defined(__x86_64__)
extern const struct chex_augment_kernels chex_augment_avx2; /* for a CPU that has it */
#endif
const struct chex_augment_kernels *chex_augment_best(void);

void chex_augment_apply_with(const struct chex_augment_kernels *kernels, const uint8_t *pixels_in,
                             int stored, struct chex_crop crop, int size, float *out,
                             void *scratch);

#endif
