/* SPDX-License-Identifier: Apache-2.0
 *
 * The interface between image_png.c (libpng) and image_png_fast.c (fast path).
 */
#ifndef CHEX_IMAGE_IMAGE_PNG_PRIVATE_H
#define CHEX_IMAGE_IMAGE_PNG_PRIVATE_H

#include <stddef.h>
#include <stdint.h>

#include "image/image_format.h"
#include "image/image_png.h"

/* State that is reused for the next image. */
struct chex_png_state;

/* Returns the state of a reader. The first call creates it. */
enum chex_status chex_png_state(struct chex_image_reader *reader, struct chex_png_state **state_out,
                                struct chex_error *err);

enum chex_png_path chex_png_path(const struct chex_png_state *state);

/* Decodes a file by the fast path. The caller has checked the sizes in the header.
 * - NULL: success, `image` has the pixels.
 * - Otherwise the reason why libpng must decode the file. Size and content of `image` are then
 *   undefined. */
const char *chex_png_fast(struct chex_png_state *state, const uint8_t *data, size_t size,
                          struct chex_image *image);

#endif
