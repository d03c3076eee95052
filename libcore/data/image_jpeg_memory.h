/* SPDX-License-Identifier: Apache-2.0
 *
 * libjpeg's memory manager on the blocks of an image reader: a decoder that is made anew for each
 * image, so that no table of one file can leak into the next, still allocates nothing big once the
 * reader is warm. Whole-image coefficient arrays of progressive files are bounded.
 *
 * Included behind jpeglib.h, which needs stdio.h before it.
 */
#ifndef CHEX_DATA_IMAGE_JPEG_MEMORY_H
#define CHEX_DATA_IMAGE_JPEG_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "data/image_format.h"

enum {
    CHEX_JPEG_MAX_BYTES = 1 << 30, /* of one decoder */
    CHEX_JPEG_MEMORY_BLOCKS = 128,
};

/* Start with {.reader = reader}. */
struct chex_jpeg_memory {
    struct chex_image_reader *reader;
    void *blocks[CHEX_JPEG_MEMORY_BLOCKS];
    int block_count;
    uint8_t *chunk; /* small objects are cut off here */
    size_t chunk_left;
    size_t bytes;
    bool over_limit; /* CHEX_JPEG_MAX_BYTES */
};

/* Redirects what `jpeg`, fresh from jpeg_create_decompress, allocates from now on. Takes its
 * client_data. A request that cannot be met goes to jpeg's error_exit with JERR_OUT_OF_MEMORY. */
void chex_jpeg_memory_attach(struct chex_jpeg_memory *memory, struct jpeg_decompress_struct *jpeg);

/* Gives the blocks back; behind jpeg_destroy_decompress. */
void chex_jpeg_memory_release(struct chex_jpeg_memory *memory);

#endif
