/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels of unfilter.h, each in the file with its name.
 */
#ifndef CHEX_IMAGE_UNFILTER_PRIVATE_H
#define CHEX_IMAGE_UNFILTER_PRIVATE_H

#include <stddef.h>
#include <stdint.h>

enum {
    CHEX_FILTER_NONE,
    CHEX_FILTER_SUB,
    CHEX_FILTER_UP,
    CHEX_FILTER_AVERAGE,
    CHEX_FILTER_PAETH,
};

typedef void chex_unfilter_kernel(const uint8_t *raw, size_t row_bytes, size_t height,
                                  size_t pixel_bytes, uint8_t *pixels);

chex_unfilter_kernel chex_unfilter_generic, chex_unfilter_sse41, chex_unfilter_avx2,
    chex_unfilter_avx512;

#endif
