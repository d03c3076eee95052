/* SPDX-License-Identifier: Apache-2.0
 *
 * Converts the bytes of an image file to a row of a shard: decode, then resize. chex-shard uses it
 * for every image. Commands that read image files directly use it to get the same pixels.
 */
#ifndef CHEX_IMAGE_CONVERT_H
#define CHEX_IMAGE_CONVERT_H

#include <stdbool.h>

#include "image/image.h"
#include "image/resize.h"

/* State of one thread. Must not be shared between threads. */
struct chex_convert_worker {
    struct chex_image_reader *reader;
    struct chex_resizer *resizer;
    struct chex_image image;
    uint8_t *row; // (size, size)
    int size;
};

/* Creates `count` workers for rows of size x size pixels. Free them with
 * chex_convert_workers_free(), which allows NULL. */
enum chex_status chex_convert_workers(int count, int size, struct chex_convert_worker **workers_out,
                                      struct chex_error *err);
void chex_convert_workers_free(struct chex_convert_worker *workers, int count);

/* Decodes an image file in memory and resizes it to w->row. Equal bytes give equal rows.
 * - check_only: decode only, to check the image; w->row is not written.
 * - name: the image's name for the error text.
 * - CHEX_E_DATA: the image is damaged or not supported. */
enum chex_status chex_convert_image(struct chex_convert_worker *w, const uint8_t *data,
                                    size_t bytes, const char *name, bool check_only,
                                    struct chex_error *err);

#endif
