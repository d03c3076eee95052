/* SPDX-License-Identifier: Apache-2.0
 *
 * The instruction sets that kernels may use: those of processor and operating system, limited by
 * the environment variable CHEX_CPU (generic, sse41, avx2, avx512, avx512bf16, amx). The limit
 * applies to all kernels of the process; use it to test or measure the other kernels. A file
 * NAME_ISA.c is compiled for one of these sets.
 */
#ifndef CHEX_BASE_CPU_FEATURES_H
#define CHEX_BASE_CPU_FEATURES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

enum chex_isa {
    CHEX_ISA_SSE41,
    CHEX_ISA_AVX2,       /* with FMA; every such processor also has F16C */
    CHEX_ISA_AVX512,     /* F, BW, DQ, VL, with FMA */
    CHEX_ISA_AVX512VNNI, /* and VBMI, VNNI */
    CHEX_ISA_AVX512BF16,
    CHEX_ISA_AMX, /* bf16 tiles; whether the kernel permits the process to use them is checked
                     elsewhere */
    CHEX_ISA_COUNT
};

/* Whether kernels may use `isa`. Always false on processors other than x86-64. Any thread. */
bool chex_cpu_has(enum chex_isa isa);

/* CHEX_E_USAGE if CHEX_CPU has an unknown value. chex_cpu_has treats such a value as generic. */
enum chex_status chex_cpu_check(struct chex_error *err);

/* The name of the processor, as Linux has it in ROOT/proc/cpuinfo; "" if it has none. */
void chex_cpu_name(const char *root, char *out, size_t size);

#endif
