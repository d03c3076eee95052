/* SPDX-License-Identifier: Apache-2.0
 *
 * bf16 of the emulation (cuda_runtime.h beside this).
 */
#ifndef CHEX_TESTS_EMULATED_CUDA_BF16_H
#define CHEX_TESTS_EMULATED_CUDA_BF16_H

#include "cuda_runtime.h"

struct alignas(2) __nv_bfloat16 {
    unsigned short bits;
};
struct alignas(4) __nv_bfloat162 {
    __nv_bfloat16 x, y;
};
typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;

/* To nearest, ties to even; NaN stays NaN. */
static inline __nv_bfloat16 __float2bfloat16_rn(float f) {
    unsigned u = __float_as_uint(f);
    if ((u & 0x7fffffffu) > 0x7f800000u)
        return __nv_bfloat16{(unsigned short)(u >> 16 | 0x40u)};
    return __nv_bfloat16{(unsigned short)((u + 0x7fffu + (u >> 16 & 1u)) >> 16)};
}
static inline __nv_bfloat16 __float2bfloat16(float f) { return __float2bfloat16_rn(f); }
static inline float __bfloat162float(__nv_bfloat16 b) {
    return __uint_as_float((unsigned)b.bits << 16);
}
static inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) {
    return __nv_bfloat162{__float2bfloat16_rn(x), __float2bfloat16_rn(y)};
}
static inline __nv_bfloat162 __float22bfloat162_rn(float2 f) {
    return __floats2bfloat162_rn(f.x, f.y);
}
static inline float2 __bfloat1622float2(__nv_bfloat162 b) {
    return make_float2(__bfloat162float(b.x), __bfloat162float(b.y));
}

#endif
