/* SPDX-License-Identifier: Apache-2.0
 *
 * Macros for the AMX tile registers: eight registers of 16 rows x 64 bytes, numbered by literals.
 * With CHEX_AMX_EMULATED the macros are plain C, so that the kernels can be tested on machines
 * without AMX.
 *
 * - AMX_CONFIGURE(): configures this thread's eight tiles at full size; contents are undefined.
 * - AMX_RELEASE(): releases the tiles.
 * - AMX_ZERO(t)
 * - AMX_LOAD(t, p, step): 16 rows of 64 bytes, `step` bytes apart.
 * - AMX_STORE(t, p, step)
 * - AMX_DOT(c, a, b): a and b bf16, c fp32. Over all k < 16,
 *   c[m][n] += a[m][2k] * b[k][2n] + a[m][2k + 1] * b[k][2n + 1].
 * - AMX_FENCE(): put this between ordinary and tile accesses to the same memory, because the
 *   intrinsics of some compilers (gcc 12) do not declare their accesses.
 */
#ifndef CHEX_ENGINE_CPU_AMX_H
#define CHEX_ENGINE_CPU_AMX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { AMX_TILES = 8, AMX_ROWS = 16, AMX_ROW_BYTES = 64 };

#ifndef CHEX_AMX_EMULATED
#include <immintrin.h>

static inline void chex_amx_configure(void) {
    static const struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } __attribute__((aligned(64))) config = {
        .palette = 1,
        .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
        .rows = {16, 16, 16, 16, 16, 16, 16, 16},
    };
    _tile_loadconfig(&config);
}

#define AMX_CONFIGURE() chex_amx_configure()
#define AMX_RELEASE() _tile_release()
#define AMX_ZERO(t) _tile_zero(t)
#define AMX_LOAD(t, p, step) _tile_loadd(t, p, step)
#define AMX_STORE(t, p, step) _tile_stored(t, p, step)
#define AMX_DOT(c, a, b) _tile_dpbf16ps(c, a, b)
#define AMX_FENCE() __asm__ volatile("" ::: "memory")

#else
#include <assert.h>
#include <math.h>
#include <string.h>

static _Thread_local struct {
    bool configured;
    uint32_t tile[AMX_TILES][AMX_ROWS][AMX_ROW_BYTES / 4];
} chex_amx;

static inline void chex_amx_configure(bool on) {
    memset(&chex_amx, 0, sizeof chex_amx);
    chex_amx.configured = on;
}

static inline void chex_amx_zero(int t) {
    assert(chex_amx.configured);
    memset(chex_amx.tile[t], 0, sizeof chex_amx.tile[t]);
}

static inline void chex_amx_load(int t, const void *p, size_t step) {
    assert(chex_amx.configured);
    for (size_t row = 0; row < AMX_ROWS; row++)
        memcpy(chex_amx.tile[t][row], (const char *)p + row * step, AMX_ROW_BYTES);
}

static inline void chex_amx_store(int t, void *p, size_t step) {
    assert(chex_amx.configured);
    for (size_t row = 0; row < AMX_ROWS; row++)
        memcpy((char *)p + row * step, chex_amx.tile[t][row], AMX_ROW_BYTES);
}

/* Denormals become zeros, in operands and in results. */
static inline float chex_amx_flush(uint32_t bits) {
    float v;
    bits = bits & 0x7f800000u ? bits : bits & 0x80000000u;
    memcpy(&v, &bits, sizeof v);
    return v;
}

static inline float chex_amx_flushed(float v) {
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    return chex_amx_flush(bits);
}

/* The first values of the pairs and the second ones have separate sums over k, with fused multiply
 * and add. The two sums are added, and then the result is added to c. */
static inline void chex_amx_dot(int c, int a, int b) {
    enum { COLUMNS = AMX_ROW_BYTES / 4 };
    assert(chex_amx.configured);
    for (int m = 0; m < AMX_ROWS; m++) {
        float first[COLUMNS] = {0}, second[COLUMNS] = {0};
        for (int k = 0; k < AMX_ROWS; k++) {
            uint32_t pair = chex_amx.tile[a][m][k];
            float a0 = chex_amx_flush(pair << 16), a1 = chex_amx_flush(pair & 0xffff0000u);
            for (int n = 0; n < COLUMNS; n++) {
                uint32_t of_b = chex_amx.tile[b][k][n];
                float b0 = chex_amx_flush(of_b << 16), b1 = chex_amx_flush(of_b & 0xffff0000u);
                first[n] = chex_amx_flushed(fmaf(a0, b0, first[n]));
                second[n] = chex_amx_flushed(fmaf(a1, b1, second[n]));
            }
        }
        for (int n = 0; n < COLUMNS; n++) {
            float sum = chex_amx_flushed(first[n] + second[n]);
            sum = chex_amx_flushed(chex_amx_flush(chex_amx.tile[c][m][n]) + sum);
            memcpy(&chex_amx.tile[c][m][n], &sum, sizeof sum);
        }
    }
}

#define AMX_CONFIGURE() chex_amx_configure(true)
#define AMX_RELEASE() chex_amx_configure(false)
#define AMX_ZERO(t) chex_amx_zero(t)
#define AMX_LOAD(t, p, step) chex_amx_load(t, p, step)
#define AMX_STORE(t, p, step) chex_amx_store(t, p, step)
#define AMX_DOT(c, a, b) chex_amx_dot(c, a, b)
#define AMX_FENCE() ((void)0)
#endif

#endif
