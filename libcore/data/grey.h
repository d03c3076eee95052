/* SPDX-License-Identifier: Apache-2.0
 *
 * Colour to grey as Pillow's convert("L") has it: (19595 R + 38470 G + 7471 B + 32768) >> 16.
 */
#ifndef CHEX_DATA_GREY_H
#define CHEX_DATA_GREY_H

#include <stddef.h>
#include <stdint.h>

/* n pixels of 3 bytes (R, G, B) or 4 (and one that is ignored). `grey` may be `colour`. */
void chex_grey_of_colour(const uint8_t *colour, size_t pixel_bytes, size_t n, uint8_t *grey);

/* The definition, for processors without a faster form and the test. */
void chex_grey_plain(const uint8_t *colour, size_t pixel_bytes, size_t n, uint8_t *grey);

#endif
