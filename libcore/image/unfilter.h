/* SPDX-License-Identifier: Apache-2.0
 *
 * Undoes PNG's row filters for images of one, three or four bytes per pixel.
 *
 * Problem: a row is one byte with its filter (0 none, 1 sub, 2 up, 3 average, 4 Paeth), then
 * `row_bytes` filtered bytes. Each byte is added to a prediction from the bytes one pixel to the
 * left, above, and above left. So every byte of a row depends on the byte before it.
 *
 * Idea: a wavefront. The kernels handle a group of rows together, with row k delayed by k bytes.
 * Then all inputs of a step are known, for any mix of filters.
 *
 * "plain" is the definition. All kernels give the same bytes.
 */
#ifndef CHEX_IMAGE_UNFILTER_H
#define CHEX_IMAGE_UNFILTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct chex_unfilter {
    const char *name;
    bool (*usable)(void); /* true if this machine can run it */
    /* raw: height rows of 1 + row_bytes, each filter byte at most 4. pixels: (height, row_bytes),
     * not overlapping raw. Reads and writes nothing outside of them. Height is at least 1,
     * pixel_bytes 1, 3 or 4, row_bytes a multiple of pixel_bytes and not 0. */
    void (*run)(const uint8_t *raw, size_t row_bytes, size_t height, size_t pixel_bytes,
                uint8_t *pixels);
};

/* The kernels of this build, fastest first, "plain" last; NULL ends the list. */
extern const struct chex_unfilter *const chex_unfilters[];

/* Returns the first usable kernel with this name. name NULL: the fastest. NULL: there is none. */
const struct chex_unfilter *chex_unfilter_find(const char *name);

/* Runs a kernel on an image. False, and nothing is written, if a filter byte is above 4. */
bool chex_unfilter_run(const struct chex_unfilter *unfilter, const uint8_t *raw, size_t row_bytes,
                       size_t height, size_t pixel_bytes, uint8_t *pixels);

#endif
