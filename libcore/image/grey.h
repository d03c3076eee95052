/* SPDX-License-Identifier: Apache-2.0
 *
 * Converts colour to grey, bit-identical to Pillow's convert("L"):
 * (19595 R + 38470 G + 7471 B + 32768) >> 16.
 */
#ifndef CHEX_IMAGE_GREY_H
#define CHEX_IMAGE_GREY_H

#include <stddef.h>
#include <stdint.h>

/* Converts n pixels to grey (n). pixel_bytes: 3 (R, G, B), or 4 (the fourth byte is ignored).
 * `grey` may be equal to `colour`. */
void chex_grey_of_colour(const uint8_t *colour, size_t pixel_bytes, size_t n, uint8_t *grey);

/* The definition in plain C, for processors without AVX2 and for the test. */
void chex_grey_plain(const uint8_t *colour, size_t pixel_bytes, size_t n, uint8_t *grey);

#endif
