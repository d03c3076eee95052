/* SPDX-License-Identifier: Apache-2.0
 *
 * Between the parts of the PNG reader.
 */
#ifndef CHEX_DATA_IMAGE_PNG_PRIVATE_H
#define CHEX_DATA_IMAGE_PNG_PRIVATE_H

#include <stddef.h>
#include <stdint.h>

#include "data/image_format.h"
#include "data/image_png.h"

/* What the PNG reader keeps from image to image. */
struct chex_png_state;

/* Made at the first call for a reader. */
enum chex_status chex_png_state(struct chex_image_reader *reader, struct chex_png_state **state_out,
                                struct chex_error *err);

enum chex_png_path chex_png_path(const struct chex_png_state *state);

/* NULL: `image` holds the pixels. Else why the fast path leaves this file to libpng; the sizes and
 * the content of `image` are then undefined. The sizes in the header have been checked. */
const char *chex_png_fast(struct chex_png_state *state, const uint8_t *data, size_t size,
                          struct chex_image *image);

#endif
