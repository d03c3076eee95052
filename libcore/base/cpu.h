/* SPDX-License-Identifier: Apache-2.0
 *
 * Which instruction sets the kernels may use: what the processor and the system have, up to the
 * environment's CHEX_CPU (generic, sse41, avx2, avx512, amx), which holds all kernels of the
 * process back to try or to measure the others. A file NAME_ISA.c is compiled for one of these
 * sets.
 */
#ifndef CHEX_BASE_CPU_H
#define CHEX_BASE_CPU_H

#include <stdbool.h>

#include "base/error.h"

enum chex_isa {
    CHEX_ISA_SSE41,
    CHEX_ISA_AVX2,       /* with FMA; all that have it have F16C too */
    CHEX_ISA_AVX512,     /* F, BW, DQ, VL, with FMA */
    CHEX_ISA_AVX512VNNI, /* and VBMI, VNNI */
    CHEX_ISA_AVX512BF16,
    CHEX_ISA_AMX, /* tiles of bf16; whether the system gives them to a process is not asked here */
    CHEX_ISA_COUNT
};

/* False for all on processors other than x86-64. Any thread. */
bool chex_cpu_has(enum chex_isa isa);

/* CHEX_E_USAGE where CHEX_CPU is none of its values; such a value is taken for generic. */
enum chex_status chex_cpu_check(struct chex_error *err);

#endif
