/* SPDX-License-Identifier: Apache-2.0
 *
 * The wavefront of unfilter_vector.inc.h for every processor, with the vector types of the
 * compiler.
 */
#include "image/unfilter_private.h"

#include "image/unfilter_vector.inc.h"

void chex_unfilter_generic(const uint8_t *raw, size_t row_bytes, size_t height, size_t pixel_bytes,
                           uint8_t *pixels) {
    undo_image(raw, row_bytes, height, pixel_bytes, pixels);
}
