/* SPDX-License-Identifier: Apache-2.0
 *
 * The rules of image_flags.h.
 */
#include "infer/image_flags.h"

#include <string.h>

const char *const chex_image_flag_names[CHEX_FLAG_COUNT] = {[CHEX_FLAG_VERY_FAR] = "very_far",
                                                            [CHEX_FLAG_FAR] = "far",
                                                            [CHEX_FLAG_INVERTED] = "inverted",
                                                            [CHEX_FLAG_COLOUR] = "colour",
                                                            [CHEX_FLAG_LATERAL] = "lateral",
                                                            [CHEX_FLAG_BLANK] = "blank",
                                                            [CHEX_FLAG_LOW_CONTRAST] =
                                                                "low_contrast",
                                                            [CHEX_FLAG_NARROW] = "narrow",
                                                            [CHEX_FLAG_SMALL] = "small"};

const char *const chex_image_flag_texts[CHEX_FLAG_COUNT] = {
    [CHEX_FLAG_VERY_FAR] = "farther from the training images than any validation image",
    [CHEX_FLAG_FAR] = "farther from the training images than 99 % of the validation images",
    [CHEX_FLAG_INVERTED] = "inverted grey: bones are dark",
    [CHEX_FLAG_COLOUR] = "colour: a photograph or a screenshot",
    [CHEX_FLAG_LATERAL] = "lateral view, and the network's file names no lateral training images",
    [CHEX_FLAG_BLANK] = "blank",
    [CHEX_FLAG_LOW_CONTRAST] = "low contrast",
    [CHEX_FLAG_NARROW] = "one side more than twice the other: distorted by the resize",
    [CHEX_FLAG_SMALL] = "fewer pixels than half of the stored size"};

enum { BLANK_RANGE = 8, LOW_RANGE = 32, INVERTED_BELOW = -5 };

/* Mean over the part of the image from (x0, y0) to (x1, y1), in shares of the side. */
static double mean_of(const uint8_t *p, int side, double x0, double x1, double y0, double y1) {
    const int left = (int)(x0 * side), right = (int)(x1 * side);
    const int top = (int)(y0 * side), bottom = (int)(y1 * side);
    uint64_t sum = 0, count = 0;
    for (int y = top; y < bottom; y++)
        for (int x = left; x < right; x++, count++)
            sum += p[(size_t)y * (size_t)side + (size_t)x];
    return count ? (double)sum / (double)count : 0;
}

static void add_part(uint64_t histogram[256], const uint8_t *p, int side, int left, int width,
                     int height) {
    for (int y = 0; y < height; y++)
        for (int x = left; x < left + width; x++)
            histogram[p[(size_t)y * (size_t)side + (size_t)x]]++;
}

/* The smallest level with at least `share` of the pixels at or below it. */
static int level_at(const uint64_t histogram[256], double share) {
    uint64_t all = 0, sum = 0;
    for (int i = 0; i < 256; i++)
        all += histogram[i];
    for (int i = 0; i < 256; i++)
        if ((double)(sum += histogram[i]) >= share * (double)all)
            return i;
    return 255;
}

static bool is_inverted(const uint8_t *p, int side) {
    const int eighth = side / 8 > 0 ? side / 8 : 1;
    uint64_t corners[256] = {0};
    add_part(corners, p, side, 0, eighth, eighth);
    add_part(corners, p, side, side - eighth, eighth, eighth);
    const double corner = level_at(corners, 0.5);
    const double middle = mean_of(p, side, 0.45, 0.55, 0.35, 0.85);
    const double lungs =
        (mean_of(p, side, 0.20, 0.35, 0.30, 0.60) + mean_of(p, side, 0.65, 0.80, 0.30, 0.60)) / 2;
    return (middle - lungs + middle - corner) / 2 < INVERTED_BELOW;
}

unsigned chex_image_flags_of_pixels(const uint8_t *stored, int side) {
    uint64_t histogram[256] = {0};
    add_part(histogram, stored, side, 0, side, side);
    if (level_at(histogram, 0.99) - level_at(histogram, 0.01) < BLANK_RANGE)
        return 1u << CHEX_FLAG_BLANK;
    unsigned flags = 0;
    if (level_at(histogram, 0.95) - level_at(histogram, 0.05) < LOW_RANGE)
        flags |= 1u << CHEX_FLAG_LOW_CONTRAST;
    if (is_inverted(stored, side))
        flags |= 1u << CHEX_FLAG_INVERTED;
    return flags;
}

bool chex_image_is_lateral(const char *view) {
    return strcmp(view, "LL") == 0 || strcmp(view, "RL") == 0 || strcmp(view, "LATERAL") == 0;
}

unsigned chex_image_flags_of_file(const struct chex_image *image, int stored_px) {
    const int w = image->width, h = image->height;
    unsigned flags = 0;
    if (image->about.coloured * 100 > image->about.checked)
        flags |= 1u << CHEX_FLAG_COLOUR;
    if (w > 2 * (int64_t)h || h > 2 * (int64_t)w)
        flags |= 1u << CHEX_FLAG_NARROW;
    if (2 * (w < h ? w : h) < stored_px)
        flags |= 1u << CHEX_FLAG_SMALL;
    if (chex_image_is_lateral(image->about.view))
        flags |= 1u << CHEX_FLAG_LATERAL;
    return flags;
}

void chex_image_flags_put(FILE *to, unsigned flags) {
    const char *gap = "";
    for (int i = 0; i < CHEX_FLAG_COUNT; i++)
        if (flags >> i & 1) {
            fprintf(to, "%s%s", gap, chex_image_flag_names[i]);
            gap = ";";
        }
}
