/* SPDX-License-Identifier: Apache-2.0
 *
 * What an image format is to image.c: one of these in one file, and one line in image.c's table.
 */
#ifndef CHEX_DATA_IMAGE_FORMAT_H
#define CHEX_DATA_IMAGE_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "data/image.h"

struct chex_image_format {
    const char *name;
    bool (*match)(const uint8_t *data, size_t size);
    /* Sizes `image` with chex_image_reserve and fills it. */
    enum chex_status (*decode)(struct chex_image_reader *reader, const uint8_t *data, size_t size,
                               const char *name, struct chex_image *image, struct chex_error *err);
};

extern const struct chex_image_format chex_image_format_png;
extern const struct chex_image_format chex_image_format_jpeg;
extern const struct chex_image_format chex_image_format_dicom;

/* What chex_image_reader_set_target said last, or 0. */
int chex_image_reader_target(const struct chex_image_reader *reader);

/* malloc and free out of blocks that the reader keeps from image to image: for a library's own
 * state. NULL for lack of memory. */
void *chex_image_block_alloc(struct chex_image_reader *reader, size_t bytes);
void chex_image_block_free(struct chex_image_reader *reader, void *block); /* NULL allowed */

/* What the PNG reader keeps in `reader`, NULL at first; destroyed with the reader. */
struct chex_png_state;
struct chex_png_state **chex_image_reader_png(struct chex_image_reader *reader);
void chex_png_state_destroy(struct chex_png_state *state); /* NULL allowed */

/* Refuses sizes beyond the limits, and pixels that even the best deflate ratio could not have put
 * into `file_bytes`. `bits` is bits a pixel as stored. */
enum chex_status chex_image_check_size(const char *name, uint64_t width, uint64_t height,
                                       unsigned bits, uint64_t file_bytes, struct chex_error *err);

#endif
