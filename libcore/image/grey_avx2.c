/* SPDX-License-Identifier: Apache-2.0
 *
 * Colour to grey with AVX2, eight pixels at a time. The instruction multiplies pairs of signed
 * 16-bit numbers and adds the two products. Green's weight (38470) does not fit in 16 bits with a
 * sign. So half of it is paired with red and the other half with blue.
 */
#include <immintrin.h>

#include "image/grey.h"
#include "image/grey_private.h"

enum {
    HALF_GREEN = CHEX_GREY_GREEN / 2,
    STEP = 8,
    READ = 10, // pixels that two loads of 16 bytes may touch
};
_Static_assert(CHEX_GREY_GREEN % 2 == 0, "green's halves are equal");

/* Takes two neighbouring bytes (first, first + 1) of each of the four pixels in a 128-bit lane and
 * extends them to 16 bits. */
static inline __m256i byte_pairs(__m256i colour, int pixel_bytes, int first) {
    const int p = pixel_bytes, a = first, b = first + 1;
    const __m128i lane = _mm_setr_epi8((char)a, -1, (char)b, -1, (char)(p + a), -1, (char)(p + b),
                                       -1, (char)(2 * p + a), -1, (char)(2 * p + b), -1,
                                       (char)(3 * p + a), -1, (char)(3 * p + b), -1);
    return _mm256_shuffle_epi8(colour, _mm256_broadcastsi128_si256(lane));
}

static inline __attribute__((always_inline)) void run(const uint8_t *colour, int pixel_bytes,
                                                      size_t n, uint8_t *grey) {
    const __m256i with_red = _mm256_set1_epi32(HALF_GREEN << 16 | CHEX_GREY_RED);
    const __m256i with_blue = _mm256_set1_epi32(CHEX_GREY_BLUE << 16 | HALF_GREEN);
    const __m256i half = _mm256_set1_epi32(0x8000);
    size_t i = 0;
    for (; i + READ <= n; i += STEP) {
        const uint8_t *p = colour + i * (size_t)pixel_bytes;
        const __m128i low = _mm_loadu_si128((const __m128i *)p);
        const __m128i high = _mm_loadu_si128((const __m128i *)(p + 4 * pixel_bytes));
        const __m256i in = _mm256_set_m128i(high, low);
        __m256i sum = _mm256_madd_epi16(byte_pairs(in, pixel_bytes, 0), with_red);
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(byte_pairs(in, pixel_bytes, 1), with_blue));
        sum = _mm256_srli_epi32(_mm256_add_epi32(sum, half), 16);
        const __m128i words =
            _mm_packus_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
        _mm_storel_epi64((__m128i *)(grey + i), _mm_packus_epi16(words, words));
    }
    chex_grey_plain(colour + i * (size_t)pixel_bytes, (size_t)pixel_bytes, n - i, grey + i);
}

void chex_grey_avx2(const uint8_t *colour, size_t pixel_bytes, size_t n, uint8_t *grey) {
    if (pixel_bytes == 3)
        run(colour, 3, n, grey);
    else
        run(colour, 4, n, grey);
}
