/* SPDX-License-Identifier: Apache-2.0 */
#include "data/unfilter_private.h"

#include "data/unfilter_vector.inc.h"

void chex_unfilter_sse41(const uint8_t *raw, size_t row_bytes, size_t height, size_t pixel_bytes,
                         uint8_t *pixels) {
    undo_image(raw, row_bytes, height, pixel_bytes, pixels);
}
