/* SPDX-License-Identifier: Apache-2.0
 *
 * The parameters of an augmentation: random for training, fixed for evaluation. Every random number
 * is a pure function of (seed, epoch, row, draw), so threads and restarts do not change it.
 */
#include <math.h>

#include "base/rng.h"
#include "input/augment.h"

/* Draw numbers within (seed, epoch, row). Never renumber them: resumed runs would change. */
enum { TRIES = 10, FLIP_DRAW = TRIES, ROTATE_DRAW, BRIGHTNESS_DRAW, CONTRAST_DRAW };

static const double log_ratio = 0.28768207245178092744; /* ln(4/3) */

const struct chex_augment_options chex_augment_defaults = {.crop_scale = 0.5, .hflip = 0.5};

struct chex_crop chex_augment_centre(int stored_size, int size) {
    int edge = (int)rint((stored_size - size) / 2.0);
    return (struct chex_crop){.top = edge, .left = edge, .height = size, .width = size};
}

void chex_augment_ten_crop(int stored_size, int size, struct chex_crop crops_out[]) {
    int border = stored_size - size, n = 0;
    crops_out[n++] = chex_augment_centre(stored_size, size);
    crops_out[n++] = crops_out[0];
    for (int corner = 0; corner < 4; corner++, n += 2) {
        crops_out[n] = (struct chex_crop){.top = corner & 2 ? border : 0,
                                          .left = corner & 1 ? border : 0,
                                          .height = size,
                                          .width = size};
        crops_out[n + 1] = crops_out[n];
    }
    for (int i = 1; i < n; i += 2)
        crops_out[i].flip = true;
}

/* RandomResizedCrop: area fraction in [min_area, 1], log-uniform aspect ratio in [3/4, 4/3].
 * After TRIES crops that do not fit, the whole image. */
static struct chex_crop draw_crop(double min_area, uint64_t seed, uint64_t item, int stored) {
    for (uint32_t i = 0; i < TRIES; i++) {
        struct chex_rng4 r = chex_rng(seed, CHEX_RNG_AUGMENT, item, i);
        double area = min_area + (1 - min_area) * (double)chex_rng_unit(r.v[0]);
        double ratio = exp(log_ratio * (2 * (double)chex_rng_unit(r.v[1]) - 1));
        int width = (int)rint(stored * sqrt(area * ratio));
        int height = (int)rint(stored * sqrt(area / ratio));
        if (width < 1 || height < 1 || width > stored || height > stored)
            continue;
        return (struct chex_crop){
            .top = (int)chex_rng_below(r.v[2], (uint32_t)(stored - height) + 1),
            .left = (int)chex_rng_below(r.v[3], (uint32_t)(stored - width) + 1),
            .height = height,
            .width = width};
    }
    return chex_augment_centre(stored, stored);
}

static double draw_between(double from, double to, uint64_t seed, uint64_t item, uint32_t draw) {
    return from +
           (to - from) * (double)chex_rng_unit(chex_rng(seed, CHEX_RNG_AUGMENT, item, draw).v[0]);
}

/* A factor minus 1. As in torchvision, the factor is not below 0. */
static double draw_more(double max, uint64_t seed, uint64_t item, uint32_t draw) {
    return draw_between(max > 1 ? -1 : -max, max, seed, item, draw);
}

/* The upper part of the range flips: with one half, the highest bit decides. */
static bool draw_flip(double probability, uint64_t seed, uint64_t item) {
    return chex_rng(seed, CHEX_RNG_AUGMENT, item, FLIP_DRAW).v[0] >= (1 - probability) * 0x1p32;
}

struct chex_crop chex_augment_draw(const struct chex_augment_options *options, uint64_t seed,
                                   uint64_t epoch, uint64_t row, int stored_size) {
    uint64_t item = epoch << 32 | row;
    struct chex_crop crop = draw_crop(options->crop_scale, seed, item, stored_size);
    crop.flip = draw_flip(options->hflip, seed, item);
    crop.antialias = options->antialias;
    if (options->rotate > 0)
        crop.degrees = draw_between(-options->rotate, options->rotate, seed, item, ROTATE_DRAW);
    if (options->brightness > 0)
        crop.brightness_more = draw_more(options->brightness, seed, item, BRIGHTNESS_DRAW);
    if (options->contrast > 0)
        crop.contrast_more = draw_more(options->contrast, seed, item, CONTRAST_DRAW);
    return crop;
}
