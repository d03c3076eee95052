/* SPDX-License-Identifier: Apache-2.0
 *
 * Colour to grey in plain C, and the choice of the fastest version (grey.h).
 */
#include "image/grey.h"

#include "base/cpu_features.h"
#include "image/grey_private.h"
#include "image/image.h"

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

size_t chex_grey_coloured(const uint8_t *colour, size_t pixel_bytes, size_t n) {
    size_t count = 0;
    for (size_t i = 0; i < n; i++, colour += pixel_bytes) {
        const int r = colour[0], g = colour[1], b = colour[2];
        const int most = r > g ? (r > b ? r : b) : (g > b ? g : b);
        const int least = r < g ? (r < b ? r : b) : (g < b ? g : b);
        count += most - least > CHEX_GREY_CHROMA;
    }
    return count;
}

void chex_grey_note_row(const uint8_t *colour, size_t pixel_bytes, size_t n, size_t y,
                        struct chex_image_about *about) {
    enum { EVERY = 16 };
    if (y % EVERY)
        return;
    about->checked += n;
    about->coloured += chex_grey_coloured(colour, pixel_bytes, n);
}
