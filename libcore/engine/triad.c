/* SPDX-License-Identifier: Apache-2.0
 *
 * The STREAM triad, with non-temporal stores on x86-64.
 */
#include "engine/triad.h"

#if defined(__x86_64__)
#include <emmintrin.h>

void chex_triad(float *restrict a, const float *restrict b, const float *restrict c, size_t n) {
    const __m128 s = _mm_set1_ps(0.5f);
    for (size_t i = 0; i < n; i += 4) {
        __m128 v = _mm_load_ps(b + i);
        _mm_stream_ps(a + i, c ? _mm_add_ps(v, _mm_mul_ps(s, _mm_load_ps(c + i))) : v);
    }
    _mm_sfence();
}
#else
void chex_triad(float *restrict a, const float *restrict b, const float *restrict c, size_t n) {
    for (size_t i = 0; i < n; i++)
        a[i] = c ? b[i] + 0.5f * c[i] : b[i];
}
#endif
