/* SPDX-License-Identifier: Apache-2.0
 *
 * Detects the instruction sets of the processor once and applies the limit CHEX_CPU.
 */
#include "base/cpu_features.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "base/fs.h"

static const char *const limits[] = {"generic", "sse41", "avx2", "avx512", "avx512bf16", "amx"};
enum { LIMITS = sizeof limits / sizeof limits[0] };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool has[CHEX_ISA_COUNT];

/* Index into limits; -1: CHEX_CPU has an unknown value. */
static int limit(void) {
    const char *text = getenv("CHEX_CPU");
    for (int i = 0; text && i < LIMITS; i++)
        if (strcmp(text, limits[i]) == 0)
            return i;
    return text ? -1 : LIMITS - 1;
}

#if defined(__x86_64__)
/* Reads CPUID: __builtin_cpu_supports has no name for AMX in the supported compilers. */
static bool has_amx(void) {
    enum { AMX_BF16 = 1 << 22, AMX_TILE = 1 << 24 };
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & AMX_BF16) && (d & AMX_TILE);
}
#endif

static void detect(void) {
#if defined(__x86_64__)
    int limit_index = limit();
    __builtin_cpu_init();
    has[CHEX_ISA_SSE41] = limit_index >= 1 && __builtin_cpu_supports("sse4.1");
    has[CHEX_ISA_AVX2] =
        limit_index >= 2 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    has[CHEX_ISA_AVX512] = limit_index >= 3 && __builtin_cpu_supports("avx512f") &&
                           __builtin_cpu_supports("avx512bw") &&
                           __builtin_cpu_supports("avx512dq") &&
                           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma");
    has[CHEX_ISA_AVX512VNNI] = has[CHEX_ISA_AVX512] && __builtin_cpu_supports("avx512vbmi") &&
                               __builtin_cpu_supports("avx512vnni");
    has[CHEX_ISA_AVX512BF16] =
        limit_index >= 4 && has[CHEX_ISA_AVX512] && __builtin_cpu_supports("avx512bf16");
    has[CHEX_ISA_AMX] = limit_index >= 5 && has[CHEX_ISA_AVX512BF16] && has_amx();
#endif
}

bool chex_cpu_has(enum chex_isa isa) {
    pthread_once(&once, detect);
    return has[isa];
}

enum chex_status chex_cpu_check(struct chex_error *err) {
    if (limit() >= 0)
        return CHEX_OK;
    return chex_error_set(
        err, CHEX_E_USAGE,
        "CHEX_CPU is '%s': expected generic, sse41, avx2, avx512, avx512bf16 or amx",
        getenv("CHEX_CPU"));
}

void chex_cpu_name(const char *root, char *out, size_t size) {
    (void)chex_fs_line(root, "proc/cpuinfo", "model name", out, size);
}
