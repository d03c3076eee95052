/* SPDX-License-Identifier: Apache-2.0
 *
 * The interface between image.c and the image formats: each format is one struct chex_image_format
 * in a file of its own, and one line in image.c's table.
 */
#ifndef CHEX_IMAGE_IMAGE_FORMAT_H
#define CHEX_IMAGE_IMAGE_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "image/image.h"

struct chex_image_format {
    const char *name;
    bool (*match)(const uint8_t *data, size_t size);
    /* Sets the size of `image` with chex_image_reserve() and fills it. */
    enum chex_status (*decode)(struct chex_image_reader *reader, const uint8_t *data, size_t size,
                               const char *name, struct chex_image *image, struct chex_error *err);
};

extern const struct chex_image_format chex_image_format_png;
extern const struct chex_image_format chex_image_format_jpeg;
extern const struct chex_image_format chex_image_format_dicom;

/* Returns the target size set by chex_image_reader_set_target(); 0: full size. */
int chex_image_reader_target(const struct chex_image_reader *reader);

/* State of the PNG decoder. chex_image_reader_png() returns its place in the reader (NULL at
 * first). The reader destroys it. */
struct chex_png_state;
struct chex_png_state **chex_image_reader_png(struct chex_image_reader *reader);
void chex_png_state_destroy(struct chex_png_state *state); /* NULL allowed */

/* CHEX_E_DATA: a size beyond the limits, or more pixels than deflate's best ratio can store in
 * `file_bytes`. bits: stored bits per pixel. */
enum chex_status chex_image_check_size(const char *name, uint64_t width, uint64_t height,
                                       unsigned bits, uint64_t file_bytes, struct chex_error *err);

#endif
