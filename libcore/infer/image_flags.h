/* SPDX-License-Identifier: Apache-2.0
 *
 * Warnings about an image: reasons why a prediction on it may be worthless. Each flag is one rule
 * with fixed limits, so equal files have equal flags.
 *
 * Rules on the pixels use the stored image: (side, side) u8, after decoding and resizing, before
 * the crop. Shares of the side are shares of the image, from its upper left corner.
 * - blank: the 99th percentile of the pixels is less than 8 grey levels above the 1st.
 * - low_contrast: the 95th percentile is less than 32 grey levels above the 5th; not blank.
 * - inverted: bones are dark. T is the mean of the mediastinum and spine (x 0.45 to 0.55, y 0.35 to
 *   0.85), L the mean of the lung fields (x 0.20 to 0.35 and 0.65 to 0.80, y 0.30 to 0.60), C the
 *   median of the two upper corners (1/8 of the side). Inverted: ((T - L) + (T - C)) / 2 < -5.
 *   Of 1,064 radiographs of the NIH set no one has this flag, and 99.9 % have it after inversion.
 *   Not for blank images.
 * - colour: in more than 1 % of the pixels the channels differ by more than 32 levels: a photograph
 *   or a screenshot.
 * - narrow: one side of the file is more than twice the other. The resize to a square distorts it.
 * - small: the shorter side of the file is less than half of the stored size.
 * Rules on other facts:
 * - lateral: DICOM's ViewPosition is LL, RL or LATERAL, and the file of the network names no
 *   lateral training images.
 * - far, very_far: the feature distance (infer/features.h).
 */
#ifndef CHEX_INFER_IMAGE_FLAGS_H
#define CHEX_INFER_IMAGE_FLAGS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "image/image.h"

enum chex_image_flag {
    CHEX_FLAG_VERY_FAR,
    CHEX_FLAG_FAR,
    CHEX_FLAG_INVERTED,
    CHEX_FLAG_COLOUR,
    CHEX_FLAG_LATERAL,
    CHEX_FLAG_BLANK,
    CHEX_FLAG_LOW_CONTRAST,
    CHEX_FLAG_NARROW,
    CHEX_FLAG_SMALL,
    CHEX_FLAG_COUNT
};
extern const char *const chex_image_flag_names[CHEX_FLAG_COUNT];
/* What the flag says about images, for a summary: "look like negatives: bones are dark". */
extern const char *const chex_image_flag_texts[CHEX_FLAG_COUNT];

/* The flags of the stored pixels (side, side): a bit mask, 1 << flag. */
unsigned chex_image_flags_of_pixels(const uint8_t *stored, int side);

/* The flags of the decoded image: colour, narrow, small, lateral. A JPEG may have been decoded at a
 * reduced size, which is never below 4 times the stored size. */
unsigned chex_image_flags_of_file(const struct chex_image *image, int stored_px);

/* Whether a DICOM ViewPosition is a lateral view. */
bool chex_image_is_lateral(const char *view);

/* Writes the names with ';' between, in the order of the enum. */
void chex_image_flags_put(FILE *to, unsigned flags);

#endif
