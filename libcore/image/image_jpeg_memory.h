/* SPDX-License-Identifier: Apache-2.0
 *
 * A memory manager for libjpeg that uses the blocks of an image reader.
 *
 * Every image gets a new decoder, so that no table of one file is used for the next. With this
 * manager the decoder reuses the reader's blocks and allocates nothing large after the first
 * images. It also limits the memory of one decoder: progressive files need the coefficients of the
 * whole image.
 *
 * Include it after <jpeglib.h>, which needs <stdio.h> before it.
 */
#ifndef CHEX_IMAGE_IMAGE_JPEG_MEMORY_H
#define CHEX_IMAGE_IMAGE_JPEG_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "image/image_format.h"

enum {
    CHEX_JPEG_MAX_BYTES = 1 << 30, /* limit for one decoder */
    CHEX_JPEG_MEMORY_BLOCKS = 128,
};

/* Initialise with {.reader = reader}. */
struct chex_jpeg_memory {
    struct chex_image_reader *reader;
    void *blocks[CHEX_JPEG_MEMORY_BLOCKS];
    int block_count;
    uint8_t *chunk; /* the free part of the current block for small objects */
    size_t chunk_left;
    size_t bytes;
    bool over_limit; /* a request exceeded CHEX_JPEG_MAX_BYTES or the number of blocks */
};

/* Redirects all further allocations of `jpeg` to `memory`. Call it directly after
 * jpeg_create_decompress().
 * - Uses jpeg->client_data.
 * - A failed request calls jpeg's error_exit with JERR_OUT_OF_MEMORY. */
void chex_jpeg_memory_attach(struct chex_jpeg_memory *memory, struct jpeg_decompress_struct *jpeg);

/* Returns the blocks to the reader. Call it after jpeg_destroy_decompress(). */
void chex_jpeg_memory_release(struct chex_jpeg_memory *memory);

#endif
