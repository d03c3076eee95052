/* SPDX-License-Identifier: Apache-2.0
 *
 * The AVX-512 variant. 32 registers of 16 floats: 24 for a 12 x 32 tile, the rest for A and B.
 */
#include <immintrin.h>
#define VB 64
#define MR 12
#define SPLAT(s) ((vf)_mm512_set1_ps(s))
#define FMA(a, b, c) ((vf)_mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(c)))
#define TABLE chex_cpu_kernels_avx512
#define DOT2 NULL
#define NAME "avx512"
#include "engine/cpu/kernels.inc.h"
