/* SPDX-License-Identifier: Apache-2.0
 *
 * The AVX2 variant, with FMA. 16 registers of 8 floats: 12 for a 6 x 16 tile, 2 for B, 1 for A.
 */
#include <immintrin.h>
#define VB 32
#define MR 6
#define SPLAT(s) ((vf)_mm256_set1_ps(s))
#define FMA(a, b, c) ((vf)_mm256_fmadd_ps((__m256)(a), (__m256)(b), (__m256)(c)))
#define TABLE chex_cpu_kernels_avx2
#define DOT2 NULL
#define NAME "avx2"
#include "engine/cpu/kernels.inc.h"
