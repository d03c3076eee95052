/* SPDX-License-Identifier: Apache-2.0
 *
 * Converts a crop to the form that kernels read. Values that need a cosine are computed on the host
 * with the CPU kernels' functions, so that the device's pixels are bit-identical to the CPU's.
 */
#include "engine/cuda/host/gpu.h"
#include "input/augment_private.h"

struct gpu_crop gpu_crop_of(const struct chex_crop *c, size_t from) {
    double b_per_mean;
    const struct chex_augment_colour colour = chex_augment_colour_of(c, &b_per_mean);
    const bool rotated = c->degrees != 0;
    const struct chex_augment_angle angle =
        rotated ? chex_augment_angle_of(c) : (struct chex_augment_angle){0};
    return (struct gpu_crop){.from = from,
                             .cosine = angle.cosine,
                             .sine = angle.sine,
                             .b_per_mean = b_per_mean,
                             .top = c->top,
                             .left = c->left,
                             .height = c->height,
                             .width = c->width,
                             .k = colour.k,
                             .flip = c->flip,
                             .antialias = c->antialias,
                             .rotated = rotated,
                             .contrast = c->contrast_more != 0};
}
