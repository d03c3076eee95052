/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm and outer of struct cpu_kernels or struct cpu_dot2, for one type of operands. They keep an
 * MR x 2-vector tile of results in registers: per step two vectors of B (or d) and MR broadcast
 * values of A (or v). kernels.inc.h includes this file for fp32, kernels_avx512bf16.c for bf16.
 *
 * The including file defines
 *   PRODUCT(name)            the name of a function
 *   OPERAND, FACTOR          the type of an operand, of a vector of PAIR operands per fp32 lane
 *   PAIR                     operands that one step multiplies in each lane
 *   LD(p), BROADCAST(p)      a vector of B; PAIR operands in all lanes
 *   LD_ROWS(d, off, p, count, d0, d1)
 *                            sets d0 and d1 to the two vectors of rows [p, p + PAIR) of d
 *   ADD_PRODUCT(acc, b, x)   acc + b * x
 */
INLINE void PRODUCT(gemm_tile)(int mr, const OPERAND *a, const int32_t *off,
                               const struct cpu_tap *taps, int tap_count, int depth,
                               const OPERAND *b, float *c, size_t c_pitch) {
    vf acc[MR][2];
    const OPERAND *row[MR];
    UNROLL
    for (int i = 0; i < mr; i++)
        acc[i][0] = acc[i][1] = (vf){0};
    for (int t = 0; t < tap_count; t++) {
        UNROLL
        for (int i = 0; i < mr; i++)
            row[i] = a + off[i] + taps[t].a;
        const OPERAND *bp = b + taps[t].b;
        for (int k = 0; k < depth; k += PAIR, bp += PAIR * NR) {
            FACTOR b0 = LD(bp), b1 = LD(bp + PAIR * VL);
            UNROLL
            for (int i = 0; i < mr; i++) {
                FACTOR x = BROADCAST(row[i] + k);
                acc[i][0] = ADD_PRODUCT(acc[i][0], b0, x);
                acc[i][1] = ADD_PRODUCT(acc[i][1], b1, x);
            }
        }
    }
    UNROLL
    for (int i = 0; i < mr; i++) {
        st(c + (size_t)i * c_pitch, acc[i][0]);
        st(c + (size_t)i * c_pitch + VL, acc[i][1]);
    }
}

static void PRODUCT(gemm_rows)(int mr, const OPERAND *a, const int32_t *off,
                               const struct cpu_tap *taps, int tap_count, int depth,
                               const OPERAND *b, float *c, size_t c_pitch) {
#define CASE(N)                                                                                    \
    case N:                                                                                        \
        PRODUCT(gemm_tile)(N <= MR ? N : MR, a, off, taps, tap_count, depth, b, c, c_pitch);       \
        break;
    switch (mr) { EACH_COUNT(CASE) }
#undef CASE
}

static void PRODUCT(gemm)(const OPERAND *a, const int32_t *off, int rows,
                          const struct cpu_tap *taps, int tap_count, int depth, const OPERAND *b,
                          size_t b_panel, int n, float *c, size_t c_pitch,
                          struct cpu_prefetch *prefetch) {
    int tiles = tiles_of(rows, MR, n, NR);
    for (int j = 0; j < n; j += NR, b += b_panel)
        for (int i = 0; i < rows; i += MR) {
            issue_prefetch(prefetch, tiles);
            PRODUCT(gemm_rows)
            (rows - i < MR ? rows - i : MR, a, off + i, taps, tap_count, depth, b,
             c + (size_t)i * c_pitch + j, c_pitch);
        }
}

INLINE void PRODUCT(outer_tile)(int mr, const OPERAND *v, size_t v_pitch, const OPERAND *d,
                                const int32_t *off, int count, float *w, size_t w_pitch,
                                bool fresh) {
    vf acc[MR][2];
    UNROLL
    for (int i = 0; i < mr; i++) {
        acc[i][0] = fresh ? (vf){0} : ld(w + (size_t)i * w_pitch);
        acc[i][1] = fresh ? (vf){0} : ld(w + (size_t)i * w_pitch + VL);
    }
    for (int p = 0; p < count; p += PAIR, v += v_pitch) {
        FACTOR d0, d1;
        LD_ROWS(d, off, p, count, d0, d1);
        UNROLL
        for (int i = 0; i < mr; i++) {
            FACTOR x = BROADCAST(v + PAIR * i);
            acc[i][0] = ADD_PRODUCT(acc[i][0], d0, x);
            acc[i][1] = ADD_PRODUCT(acc[i][1], d1, x);
        }
    }
    UNROLL
    for (int i = 0; i < mr; i++) {
        st(w + (size_t)i * w_pitch, acc[i][0]);
        st(w + (size_t)i * w_pitch + VL, acc[i][1]);
    }
}

static void PRODUCT(outer_rows)(int mr, const OPERAND *v, size_t v_pitch, const OPERAND *d,
                                const int32_t *off, int count, float *w, size_t w_pitch,
                                bool fresh) {
#define CASE(N)                                                                                    \
    case N:                                                                                        \
        PRODUCT(outer_tile)(N <= MR ? N : MR, v, v_pitch, d, off, count, w, w_pitch, fresh);       \
        break;
    switch (mr) { EACH_COUNT(CASE) }
#undef CASE
}

static void PRODUCT(outer)(const OPERAND *v, size_t v_pitch, const OPERAND *d, const int32_t *off,
                           int count, int rows, int n, float *w, size_t w_pitch, bool fresh,
                           struct cpu_prefetch *prefetch) {
    int tiles = tiles_of(rows, MR, n, NR);
    for (int j = 0; j < n; j += NR)
        for (int r = 0; r < rows; r += MR) {
            issue_prefetch(prefetch, tiles);
            PRODUCT(outer_rows)
            (rows - r < MR ? rows - r : MR, v + PAIR * r, v_pitch, d + j, off, count,
             w + (size_t)r * w_pitch + j, w_pitch, fresh);
        }
}

#undef PRODUCT
#undef OPERAND
#undef FACTOR
#undef PAIR
#undef LD
#undef BROADCAST
#undef LD_ROWS
#undef ADD_PRODUCT
