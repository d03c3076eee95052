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

/* Counts the pixels whose largest and smallest channel differ by more than CHEX_GREY_CHROMA. Grey
 * images in colour files have equal channels, or nearly equal ones after JPEG compression. */
enum { CHEX_GREY_CHROMA = 32 };
size_t chex_grey_coloured(const uint8_t *colour, size_t pixel_bytes, size_t n);

/* The same for row `y` of an image: counts every 16th row into `about`. */
struct chex_image_about;
void chex_grey_note_row(const uint8_t *colour, size_t pixel_bytes, size_t n, size_t y,
                        struct chex_image_about *about);

/* The definition in plain C, for processors without AVX2 and for the test. */
void chex_grey_plain(const uint8_t *colour, size_t pixel_bytes, size_t n, uint8_t *grey);

#endif
