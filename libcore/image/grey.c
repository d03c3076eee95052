/* SPDX-License-Identifier: Apache-2.0
 *
 * Colour to grey in plain C, and the choice of the fastest version (grey.h).
 */
#include "image/grey.h"

#include "base/cpu_features.h"
#include "image/grey_private.h"

void chex_grey_plain(const uint8_t *colour, size_t pixel_bytes, size_t n, uint8_t *grey) {
    for (size_t i = 0; i < n; i++, colour += pixel_bytes)
        grey[i] =
            (uint8_t)((colour[0] * (uint32_t)CHEX_GREY_RED + colour[1] * (uint32_t)CHEX_GREY_GREEN +
                       colour[2] * (uint32_t)CHEX_GREY_BLUE + 0x8000u) >>
                      16);
}

void chex_grey_of_colour(const uint8_t *colour, size_t pixel_bytes, size_t n, uint8_t *grey) {
#if defined(__x86_64__)
    if (chex_cpu_has(CHEX_ISA_AVX2)) {
        chex_grey_avx2(colour, pixel_bytes, n, grey);
        return;
    }
#endif
    chex_grey_plain(colour, pixel_bytes, n, grey);
}
