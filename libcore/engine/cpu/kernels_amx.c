/* SPDX-License-Identifier: Apache-2.0
 *
 * The AMX variant: bf16 products in tiles of 16 x 16 sums. Four tiles (32 x 32) are computed at a
 * time, so each loaded tile is used twice. Everything else is AVX-512.
 *
 * Rounding. An instruction sums 16 products of the first values of the pairs and 16 of the second
 * ones, adds the two sums, and adds the result to the accumulator. Denormals count as zeros. So the
 * order of additions differs from that of the vector kernels.
 *
 * Strips. The rows of a tile must lie at one distance in memory. The pixels of a list do not always
 * (at the end of an image row there is a halo). Then the positions between them are multiplied as
 * if they were pixels, and their results are dropped. This wastes 2 rows in 58 at 56 pixels per
 * row, 2 in 30 at 28, and 2 in 16 at 14 and at 7. Copying the pixels instead would cost more: a
 * cache line per row for each of nine kernel positions, against 4 cycles per row for the product.
 *
 * Caches. A pair of tiles from the second-level cache takes about as long as two products, one from
 * the first-level cache a third of that. So the loops reuse a small operand that stays in the
 * first-level cache (CHUNK). Measured rates: doc/performance.md.
 */
#include <immintrin.h>

#include "engine/cpu/amx.h"
#include "engine/cpu/kernels.h"

static const struct cpu_dot2 dot2;

#define VB 64
#define MR 12
#define SPLAT(s) ((vf)_mm512_set1_ps(s))
#define FMA(a, b, c) ((vf)_mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(c)))
#define DOT2 &dot2
#ifdef CHEX_AMX_EMULATED
#define TABLE chex_cpu_kernels_amx_emulated
#define NAME "amx-emulated"
extern const struct cpu_kernels TABLE;
#else
#define TABLE chex_cpu_kernels_amx
#define NAME "amx"
#endif
#include "engine/cpu/kernels.inc.h"

#include "engine/cpu/dot2.inc.h"

enum {
    ROWS = AMX_ROWS,              /* rows of a tile */
    DEPTH = AMX_ROW_BYTES / 2,    /* bf16 values in a row: pixels or channels of one product */
    PAIR_ROW = 2 * NR,            /* bf16 values in a row of pairs: two adjacent tiles */
    PAIR_STEP = 2 * PAIR_ROW,     /* the same in bytes */
    BLOCK = PAIR_ROW * DEPTH / 2, /* bf16 values in the rows of one product */
};

static void begin(void) { AMX_CONFIGURE(); }
static void end(void) { AMX_RELEASE(); }

/* Up to 16 equidistant positions that contain the next `count` pixels of the list. */
struct strip {
    ptrdiff_t first;   /* element of a */
    size_t step;       /* bytes from position to position */
    int count;         /* pixels */
    uint8_t row[ROWS]; /* position of each pixel */
};

static struct strip strip_of(const int32_t *off, int pixels) {
    struct strip s = {off[0], 0, 1, {0}};
    if (pixels == 1)
        return s;
    int32_t step = off[1] - off[0];
    if (pixels > 2 && off[2] - off[1] < step) /* the first is the last of its row */
        step = off[2] - off[1];
    s.step = (size_t)step * sizeof(uint16_t);
    /* The position of a pixel is its distance divided by the step, if that is a whole number. The
     * quotient of floats is exact for the positions of a strip. */
    __mmask16 all = pixels < ROWS ? (__mmask16)((1u << pixels) - 1) : 0xffff;
    __m512i distance =
        _mm512_sub_epi32(_mm512_maskz_loadu_epi32(all, off), _mm512_set1_epi32(*off));
    __m512i position = _mm512_cvtps_epi32(
        _mm512_div_ps(_mm512_cvtepi32_ps(distance), _mm512_set1_ps((float)step)));
    __mmask16 fits = _mm512_mask_cmplt_epu32_mask(all, position, _mm512_set1_epi32(ROWS));
    fits = _mm512_mask_cmpeq_epi32_mask(fits, _mm512_mullo_epi32(position, _mm512_set1_epi32(step)),
                                        distance);
    s.count = __builtin_ctz(~((unsigned)fits | 1));
    _mm_storeu_si128((__m128i *)(void *)s.row, _mm512_cvtepi32_epi8(position));
    return s;
}

/* The number of pixels in the next two strips. */
static int together(const int32_t *off, int rows) {
    int count = strip_of(off, rows).count;
    return count < rows ? count + strip_of(off + count, rows - count).count : count;
}

/* Tiles 0 to 3: strips x columns. */
INLINE void multiply(const uint16_t *a, const struct strip *s, bool two, const struct cpu_tap *taps,
                     int tap_count, int depth, const uint16_t *b) {
    AMX_FENCE();
    AMX_ZERO(0);
    AMX_ZERO(1);
    if (two) {
        AMX_ZERO(2);
        AMX_ZERO(3);
    }
    for (int t = 0; t < tap_count; t++) {
        const uint16_t *a0 = a + s[0].first + taps[t].a;
        const uint16_t *a1 = two ? a + s[1].first + taps[t].a : NULL;
        const uint16_t *bp = b + taps[t].b;
        for (int k = 0; k < depth; k += DEPTH, bp += BLOCK) {
            AMX_LOAD(6, bp, PAIR_STEP);
            AMX_LOAD(4, a0 + k, s[0].step);
            AMX_LOAD(7, bp + 2 * VL, PAIR_STEP);
            AMX_DOT(0, 4, 6);
            AMX_DOT(1, 4, 7);
            if (two) {
                AMX_LOAD(5, a1 + k, s[1].step);
                AMX_DOT(2, 5, 6);
                AMX_DOT(3, 5, 7);
            }
        }
    }
}

/* Copies the rows of the strip's pixels from a pair of tiles in `sums`. */
static void store_rows(const struct strip *s, const float (*sums)[NR], float *c, size_t c_pitch) {
    for (int i = 0; i < s->count; i++) {
        st(c + (size_t)i * c_pitch, ld(sums[s->row[i]]));
        st(c + (size_t)i * c_pitch + VL, ld(sums[s->row[i]] + VL));
    }
}

#define STORE_STRIP(strip, left, right, c)                                                         \
    do {                                                                                           \
        if ((strip)->count == ROWS) { /* every position is a pixel */                              \
            AMX_STORE(left, c, c_pitch * sizeof(float));                                           \
            AMX_STORE(right, (c) + VL, c_pitch * sizeof(float));                                   \
            AMX_FENCE();                                                                           \
        } else {                                                                                   \
            float sums[ROWS][NR] __attribute__((aligned(64)));                                     \
            AMX_STORE(left, sums[0], sizeof sums[0]);                                              \
            AMX_STORE(right, sums[0] + VL, sizeof sums[0]);                                        \
            AMX_FENCE();                                                                           \
            store_rows(strip, sums, c, c_pitch);                                                   \
        }                                                                                          \
    } while (0)

/* A pair of strips stays in the first-level cache during the loop over the panels of B. */
static void dot2_gemm(const uint16_t *a, const int32_t *off, int rows, const struct cpu_tap *taps,
                      int tap_count, int depth, const uint16_t *b, size_t b_panel, int n, float *c,
                      size_t c_pitch, struct cpu_prefetch *prefetch) {
    int tiles = tiles_of(rows, 2 * ROWS, n, NR);
    for (int done = 0; done < rows;) {
        struct strip s[2];
        s[0] = strip_of(off + done, rows - done);
        int second = done + s[0].count;
        bool two = second < rows;
        if (two)
            s[1] = strip_of(off + second, rows - second);
        for (int j = 0; j < n; j += NR) {
            issue_prefetch(prefetch, tiles);
            float *at = c + (size_t)done * c_pitch + j;
            const uint16_t *panel = b + (size_t)(j / NR) * b_panel;
            if (!two) {
                multiply(a, s, false, taps, tap_count, depth, panel);
                STORE_STRIP(&s[0], 0, 1, at);
                continue;
            }
            multiply(a, s, true, taps, tap_count, depth, panel);
            STORE_STRIP(&s[0], 0, 1, at);
            STORE_STRIP(&s[1], 2, 3, at + (size_t)s[0].count * c_pitch);
        }
        done = second + (two ? s[1].count : 0);
    }
}

/* Pixels that outer packs at a time: their pairs take 8 KiB and stay in the first-level cache for
 * all rows. BACK: pixels of a tile of the backward pass. */
enum { CHUNK = 128, BACK = 512 };

/* Packs 32 columns of d for up to CHUNK pixels as pairs, with zeros after the last pixel. */
static void pair_columns(uint16_t *dst, const uint16_t *d, const int32_t *off, int pixels) {
    int filled = (pixels + DEPTH - 1) / DEPTH * DEPTH;
    for (int p = 0; p < filled; p += 2, dst += PAIR_ROW) {
        static const uint16_t zero[NR];
        vi lo, hi;
        interleave(p < pixels ? d + off[p] : zero, p + 1 < pixels ? d + off[p + 1] : zero, &lo,
                   &hi);
        _mm512_storeu_si512(dst, (__m512i)lo);
        _mm512_storeu_si512(dst + 2 * VL, (__m512i)hi);
    }
}

/* w[0..32)[0..32) += v (transposed, 32 rows of each group) * d (in pairs). */
static void outer_block(const uint16_t *v, size_t v_pitch, const uint16_t *d, int groups, float *w,
                        size_t w_pitch, bool fresh) {
    size_t step = w_pitch * sizeof *w;
    float *below = w + ROWS * w_pitch;
    AMX_FENCE();
    if (fresh) {
        AMX_ZERO(0);
        AMX_ZERO(1);
        AMX_ZERO(2);
        AMX_ZERO(3);
    } else {
        AMX_LOAD(0, w, step);
        AMX_LOAD(1, w + VL, step);
        AMX_LOAD(2, below, step);
        AMX_LOAD(3, below + VL, step);
    }
    for (int g = 0; g < groups; g++, v += v_pitch, d += BLOCK) {
        AMX_LOAD(4, v, AMX_ROW_BYTES);
        AMX_LOAD(6, d, PAIR_STEP);
        AMX_LOAD(7, d + 2 * VL, PAIR_STEP);
        AMX_DOT(0, 4, 6);
        AMX_DOT(1, 4, 7);
        AMX_LOAD(5, v + ROWS * DEPTH, AMX_ROW_BYTES);
        AMX_DOT(2, 5, 6);
        AMX_DOT(3, 5, 7);
    }
    AMX_STORE(0, w, step);
    AMX_STORE(1, w + VL, step);
    AMX_STORE(2, below, step);
    AMX_STORE(3, below + VL, step);
    AMX_FENCE();
}

/* The pairs of d are packed once for all rows. */
static void dot2_outer(const uint16_t *v, size_t v_pitch, const uint16_t *d, const int32_t *off,
                       int count, int rows, int n, float *w, size_t w_pitch, bool fresh,
                       struct cpu_prefetch *prefetch) {
    int tiles = tiles_of(rows, 2 * ROWS, n, NR) * ((count + CHUNK - 1) / CHUNK);
    uint16_t columns[CHUNK / 2 * PAIR_ROW] __attribute__((aligned(64)));
    for (int from = 0; from < count; from += CHUNK, v += CHUNK / DEPTH * v_pitch) {
        int pixels = count - from < CHUNK ? count - from : CHUNK;
        int groups = (pixels + DEPTH - 1) / DEPTH;
        for (int j = 0; j < n; j += NR) {
            pair_columns(columns, d + j, off + from, pixels);
            for (int r = 0; r < rows; r += 2 * ROWS) {
                issue_prefetch(prefetch, tiles);
                outer_block(v + (size_t)r * DEPTH, v_pitch, columns, groups,
                            w + (size_t)r * w_pitch + j, w_pitch, fresh && from == 0);
            }
        }
    }
}

/* Loads 16 channels of a group. This call supplies pixels [lo, hi) of the group. Pixels before lo
 * stay unchanged, pixels from hi on become zeros. Pixel i of the group is pixel first + i of src.
 */
INLINE void load_group(uint16_t *v, struct cpu_stored src, int first, int lo, int hi, int c,
                       int channels, const float *scale, const float *shift, bool do_relu,
                       bool split) {
    const vf none = {0};
    __m512i high[16], low[16];
    for (int i = 0; i < DEPTH / 2; i++) {
        vf x[2];
        for (int h = 0; h < 2; h++)
            x[h] = 2 * i + h >= lo && 2 * i + h < hi
                       ? normed(src, first + 2 * i + h, c, scale, shift, do_relu, !split)
                       : none;
        high[i] = pixel_pair(x[0], x[1]);
        if (split)
            low[i] = pixel_pair(low_part(x[0]), low_part(x[1]));
    }
    __mmask32 own = 0xffffffffu << lo;
    uint16_t *row = v + (size_t)c * DEPTH;
    transpose(high);
    for (int i = 0; i < 16; i++)
        _mm512_mask_storeu_epi16(row + i * DEPTH, own, high[i]);
    if (!split)
        return;
    row += (size_t)channels * DEPTH;
    transpose(low);
    for (int i = 0; i < 16; i++)
        _mm512_mask_storeu_epi16(row + i * DEPTH, own, low[i]);
}

static void dot2_load_pairs(uint16_t *v, size_t v_pitch, int at, const struct cpu_stored *src,
                            int pixels, int channels, const float *scale, const float *shift,
                            int flags) {
    bool do_relu = flags & CPU_RELU;
    for (int group = at / DEPTH; group * DEPTH < at + pixels; group++) {
        int first =
            group * DEPTH - at; /* pixel of src; negative: the group began in an earlier call */
        int lo = first < 0 ? -first : 0, hi = pixels - first < DEPTH ? pixels - first : DEPTH;
        uint16_t *dst = v + (size_t)group * v_pitch;
        for (int c = 0; c < channels; c += VL) {
            if (flags & CPU_SPLIT)
                load_group(dst, *src, first, lo, hi, c, channels, scale, shift, do_relu, true);
            else if (lo == 0 && hi == DEPTH && scale && do_relu)
                load_group(dst, *src, first, 0, DEPTH, c, channels, scale, shift, true, false);
            else
                load_group(dst, *src, first, lo, hi, c, channels, scale, shift, do_relu, false);
        }
    }
}

static const struct cpu_dot2 dot2 = {
    .group = DEPTH,
    .outer_rows = 128,
    .back_pixels = BACK,
    .spare_rows = ROWS - 1,
    .three_products = true,
    .begin = begin,
    .end = end,
    .together = together,
    .columns = 4 * CPU_CHANNELS,
    .gemm = dot2_gemm,
    .outer = dot2_outer,
    .load = dot2_load,
    .load_grad = dot2_load_grad,
    .load_pairs = dot2_load_pairs,
    .pack = dot2_pack,
    .pack_columns = dot2_pack_columns,
};
