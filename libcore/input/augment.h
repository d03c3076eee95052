/* SPDX-License-Identifier: Apache-2.0
 *
 * Crop, resize, flip and scaling of one stored row into one channel of a batch.
 *
 * The numbers come from (seed, epoch, row) only. Training: a crop of area share [0.5, 1] and aspect
 * ratio [3/4, 4/3] (torchvision's RandomResizedCrop rule, ten tries, then the centre), bilinear
 * without antialias, flipped with probability 1/2. Otherwise: the centre crop, or the row itself.
 *
 * Fixed point, so that every form of the kernel gives the same bits: vertical blend first with
 * 8-bit weights that sum to 256 (exact in u16), horizontal with 14-bit weights that sum to 16384
 * (exact in i32), then one fp32 multiplication by 1 / (256 * 16384 * 255).
 */
#ifndef CHEX_INPUT_AUGMENT_H
#define CHEX_INPUT_AUGMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct chex_crop {
    int top, left, height, width; /* px of the stored row, inside it */
    bool flip;
};

struct chex_crop chex_augment_draw(uint64_t seed, uint64_t epoch, uint64_t row, int stored_size);
struct chex_crop chex_augment_centre(int stored_size, int size);

/* pixels_in (stored, stored) u8 -> out (size, size) in [0, 1]. scratch: stored * 2 + size * 8 bytes
 * or more, from chex_augment_scratch_bytes. A crop of exactly size x size copies pixel by pixel. */
void chex_augment_apply(const uint8_t *pixels_in, int stored, struct chex_crop crop, int size,
                        float *out, void *scratch);
size_t chex_augment_scratch_bytes(int stored, int size);

#endif
