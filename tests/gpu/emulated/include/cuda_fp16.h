/* SPDX-License-Identifier: Apache-2.0
 *
 * fp16 of the emulation (cuda_runtime.h beside this).
 */
#ifndef CHEX_TESTS_EMULATED_CUDA_FP16_H
#define CHEX_TESTS_EMULATED_CUDA_FP16_H

#include "cuda_runtime.h"

struct alignas(2) __half {
    unsigned short bits;
};
struct alignas(4) __half2 {
    __half x, y;
};
typedef __half half;
typedef __half2 half2;

/* To nearest, ties to even; too large becomes infinity. */
static inline __half __float2half_rn(float f) {
    const unsigned u = __float_as_uint(f), sign = u >> 16 & 0x8000u, a = u & 0x7fffffffu;
    if (a > 0x7f800000u)
        return __half{(unsigned short)(sign | 0x7e00u)};
    if (a >= 0x477ff000u) /* 65520 and above round to infinity */
        return __half{(unsigned short)(sign | 0x7c00u)};
    if (a < 0x38800000u) { /* subnormal: in units of 2^-24 */
        const float scaled = __uint_as_float(a) * 16777216.0f;
        return __half{(unsigned short)(sign | (unsigned)lrintf(scaled))};
    }
    const unsigned r = a + 0xfffu + (a >> 13 & 1u);
    return __half{(unsigned short)(sign | ((r - 0x38000000u) >> 13))};
}
static inline __half __float2half(float f) { return __float2half_rn(f); }
static inline float __half2float(__half h) {
    const unsigned sign = (unsigned)(h.bits & 0x8000u) << 16, e = h.bits >> 10 & 31u;
    const unsigned m = h.bits & 0x3ffu;
    if (e == 31)
        return __uint_as_float(sign | 0x7f800000u | m << 13);
    if (e == 0)
        return __uint_as_float(sign | __float_as_uint((float)m / 16777216.0f));
    return __uint_as_float(sign | (e + 112) << 23 | m << 13);
}
static inline __half2 __floats2half2_rn(float x, float y) {
    return __half2{__float2half_rn(x), __float2half_rn(y)};
}
static inline __half2 __float22half2_rn(float2 f) { return __floats2half2_rn(f.x, f.y); }
static inline float2 __half22float2(__half2 h) {
    return make_float2(__half2float(h.x), __half2float(h.y));
}

#endif
