/* SPDX-License-Identifier: Apache-2.0
 *
 * An image file's bytes to a row of a shard: what chex-shard does with every image, for whoever
 * wants the very pixels that a shard would hold. create_convert.c.
 */
#ifndef CHEX_DATA_CONVERT_H
#define CHEX_DATA_CONVERT_H

#include <stdbool.h>

#include "data/image.h"
#include "data/resize.h"

/* What one thread needs to make a row of an image file. */
struct chex_create_worker {
    struct chex_image_reader *reader;
    struct chex_resizer *resizer;
    struct chex_image image;
    uint8_t *row; // (size, size)
    int size;
};

/* `count` of them; chex_create_workers_free takes NULL too. */
enum chex_status chex_create_workers(int count, int size, struct chex_create_worker **workers_out,
                                     struct chex_error *err);
void chex_create_workers_free(struct chex_create_worker *workers, int count);

/* The one way from an image file's bytes to w->row: equal bytes give equal rows, wherever the file
 * lies. check_only: the row is not wanted, only whether the image is sound. CHEX_E_DATA: it is bad;
 * `name` stands in the text. */
enum chex_status chex_create_convert(struct chex_create_worker *w, const uint8_t *data,
                                     size_t bytes, const char *name, bool check_only,
                                     struct chex_error *err);

#endif
