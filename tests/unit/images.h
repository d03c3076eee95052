/* SPDX-License-Identifier: Apache-2.0
 *
 * Image files read whole, and their pixels against recorded ones.
 */
#ifndef CHEX_TESTS_UNIT_IMAGES_H
#define CHEX_TESTS_UNIT_IMAGES_H

#include <stdio.h>
#include <string.h>

#include "image/image.h"

static inline enum chex_status image_load(struct chex_image_reader *reader, const char *path,
                                          struct chex_image *image, struct chex_error *err) {
    const uint8_t *data;
    size_t size;
    enum chex_status st = chex_image_read(reader, path, &data, &size, err);
    return st == CHEX_OK ? chex_image_decode(reader, data, size, path, image, err) : st;
}

/* True if the pixels are those of the hexadecimal text. */
static inline bool image_equals_hex(const struct chex_image *image, const char *hex) {
    size_t n = (size_t)image->width * (size_t)image->height;
    if (strlen(hex) != 2 * n)
        return false;
    for (size_t i = 0; i < n; i++) {
        unsigned v;
        if (sscanf(hex + 2 * i, "%2x", &v) != 1 || v != image->pixels[i])
            return false;
    }
    return true;
}

#endif
