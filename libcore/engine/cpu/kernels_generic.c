/* SPDX-License-Identifier: Apache-2.0
 *
 * The generic variant: 16-byte vectors, for any machine. It uses FMA only if the base instruction
 * set has it (aarch64). The build turns contraction off, so FMA is called by its intrinsic.
 */
#define VB 16
#if defined(__aarch64__)
#include <arm_neon.h>
#define MR 6 /* 32 registers: 12 accumulators leave room for everything */
#define FMA(a, b, c) ((vf)vfmaq_f32((float32x4_t)(c), (float32x4_t)(a), (float32x4_t)(b)))
#else
#define MR 4 /* 16 registers: 8 accumulators, 2 of B, 1 of A, and a product */
#define FMA(a, b, c) ((a) * (b) + (c))
#endif
#define SPLAT(s) ((vf){(s), (s), (s), (s)})
#define TABLE chex_cpu_kernels_generic
#define DOT2 NULL
#define NAME "generic"
#include "engine/cpu/kernels.inc.h"
