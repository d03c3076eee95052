/* SPDX-License-Identifier: Apache-2.0
 *
 * PNG's row filters undone for images of one, three or four bytes a pixel.
 *
 * A row is one byte that names its filter (0 none, 1 sub, 2 up, 3 average, 4 Paeth) and
 * `row_bytes` filtered bytes; each is to be added to a guess from the bytes one pixel left, above
 * and above left, so that a row alone is one serial chain. The kernels work on a group of rows at
 * once, row k of the group k bytes behind row 0: then all that a step needs is known, whatever
 * mix of filters the rows have. "plain" is the definition; every kernel gives its bytes.
 */
#ifndef CHEX_DATA_UNFILTER_H
#define CHEX_DATA_UNFILTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct chex_unfilter {
    const char *name;
    bool (*usable)(void); /* on this machine */
    /* raw: height rows of 1 + row_bytes, each filter byte at most 4. pixels: (height, row_bytes),
     * apart from raw. Nothing outside of either is touched. Height is at least 1, pixel_bytes 1, 3
     * or 4, row_bytes a multiple of it and not 0. */
    void (*run)(const uint8_t *raw, size_t row_bytes, size_t height, size_t pixel_bytes,
                uint8_t *pixels);
};

/* Those of this build, the fastest first, "plain" the last; NULL ends the list. */
extern const struct chex_unfilter *const chex_unfilters[];

/* The first usable one of that name; NULL asks for the fastest. NULL when there is none. */
const struct chex_unfilter *chex_unfilter_find(const char *name);

/* False, and nothing is written, where a row's filter byte is above 4. */
bool chex_unfilter_run(const struct chex_unfilter *unfilter, const uint8_t *raw, size_t row_bytes,
                       size_t height, size_t pixel_bytes, uint8_t *pixels);

#endif
