/* SPDX-License-Identifier: Apache-2.0
 *
 * 16 blended pixels and 8 outputs at a time. Both steps are integer arithmetic that cannot overflow
 * and one conversion and multiplication, each rounded as the plain form rounds it.
 */
#include <immintrin.h>

#include "input/augment_private.h"

static void blend_avx2(const uint8_t *upper, const uint8_t *lower, int weight, int width,
                       int16_t *row) {
    const __m256i u_weight = _mm256_set1_epi16((int16_t)(256 - weight));
    const __m256i l_weight = _mm256_set1_epi16((int16_t)weight);
    const __m256i sign = _mm256_set1_epi16(INT16_MIN);
    int x = 0;
    for (; x + 16 <= width; x += 16) {
        __m256i u =
            _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(const void *)(upper + x)));
        __m256i l =
            _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(const void *)(lower + x)));
        __m256i sum =
            _mm256_add_epi16(_mm256_mullo_epi16(u, u_weight), _mm256_mullo_epi16(l, l_weight));
        /* The sum is below 2^16; turning its top bit over takes 32768 away. */
        _mm256_storeu_si256((__m256i *)(void *)(row + x), _mm256_xor_si256(sum, sign));
    }
    chex_augment_plain.blend(upper + x, lower + x, weight, width - x, row + x);
}

static void pick_avx2(const int16_t *row, const int32_t *at, const int16_t *weights, int size,
                      float *out) {
    const __m256i offset = _mm256_set1_epi32(1 << 29);
    const __m256 scale = _mm256_set1_ps(CHEX_AUGMENT_SCALE);
    int x = 0;
    for (; x + 8 <= size; x += 8) {
        __m256i index = _mm256_loadu_si256((const __m256i *)(const void *)(at + x));
        __m256i pair = _mm256_i32gather_epi32((const int *)(const void *)row, index, 2);
        __m256i weight = _mm256_loadu_si256((const __m256i *)(const void *)(weights + 2 * x));
        __m256i sum = _mm256_add_epi32(_mm256_madd_epi16(pair, weight), offset);
        _mm256_storeu_ps(out + x, _mm256_mul_ps(_mm256_cvtepi32_ps(sum), scale));
    }
    chex_augment_plain.pick(row, at + x, weights + 2 * x, size - x, out + x);
}

const struct chex_augment_kernels chex_augment_avx2 = {"avx2", blend_avx2, pick_avx2};
