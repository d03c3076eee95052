/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels, written once in GCC vector extensions and compiled once per instruction set.
 *
 * The including file defines
 *   VB            bytes of a vector
 *   MR            rows of the register tile
 *   SPLAT(s)      a vector of equal floats
 *   FMA(a, b, c)  a * b + c, fused if the machine has FMA
 *   TABLE, NAME   the table's symbol and name
 *   DOT2         the variant's bf16 dot products (struct cpu_dot2), or NULL
 */
#include <string.h>

#include "engine/cpu/kernels.h"

enum { VL = VB / 4, NR = 2 * VL };

typedef float vf __attribute__((vector_size(VB)));
typedef int32_t vi __attribute__((vector_size(VB)));
typedef uint32_t vu __attribute__((vector_size(VB)));
typedef uint16_t vh __attribute__((vector_size(VB / 2)));
typedef uint8_t vb __attribute__((vector_size(VB / 4)));
/* The same types in memory, at any address. */
typedef float vf_mem __attribute__((vector_size(VB), aligned(4), may_alias));
typedef uint16_t vh_mem __attribute__((vector_size(VB / 2), aligned(2), may_alias));
typedef uint8_t vb_mem __attribute__((vector_size(VB / 4), aligned(1), may_alias));

/* For loops over the rows of the register tile: it stays in registers only if they are unrolled. */
#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

#define INLINE static inline __attribute__((always_inline))

INLINE vf ld(const float *p) { return *(const vf_mem *)p; }
INLINE void st(float *p, vf v) { *(vf_mem *)p = v; }

/* Widen 16 bits to 32 and 8 bits to 32. Compilers split the general form into half vectors. */
#if defined(__AVX512F__) && VB == 64
INLINE vu widened(const uint16_t *p) {
    return (vu)_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p));
}
INLINE vi ld_bytes(const uint8_t *p) {
    return (vi)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
}
#elif defined(__AVX2__) && VB == 32
INLINE vu widened(const uint16_t *p) {
    return (vu)_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
}
INLINE vi ld_bytes(const uint8_t *p) {
    return (vi)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p));
}
#else
INLINE vu widened(const uint16_t *p) {
    vh h = *(const vh_mem *)p;
    return __builtin_convertvector(h, vu);
}
INLINE vi ld_bytes(const uint8_t *p) { return __builtin_convertvector(*(const vb_mem *)p, vi); }
#endif

/* Rounds to bf16: to nearest even, denormals to zeros, as the AVX-512 instruction does. NaN stays
 * NaN unless its upper mantissa is all ones; arithmetic never produces such a NaN. */
#if defined(__AVX512BF16__) && VB == 64
INLINE __m256i to_half(vf v) { return (__m256i)_mm512_cvtneps_pbh((__m512)v); }
INLINE vf of_half(__m256i half) { return (vf)_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16); }
INLINE vf rounded(vf v) { return of_half(to_half(v)); }
/* Stores v rounded to bf16 and returns the rounded value. */
INLINE vf st_half(uint16_t *p, vf v) {
    __m256i half = to_half(v);
    _mm256_storeu_si256((__m256i *)(void *)p, half);
    return of_half(half);
}
#else
INLINE vf rounded(vf v) {
    vu u = (vu)v, normal = (vu)((u & 0x7f800000u) != 0);
    return (vf)((u + 0x7fff + ((u >> 16) & 1)) & 0xffff0000u & (normal | 0x80000000u));
}
INLINE vf st_half(uint16_t *p, vf v) {
    v = rounded(v);
#if defined(__AVX512F__) && VB == 64
    __m256i half = _mm512_cvtepi32_epi16(_mm512_srli_epi32((__m512i)v, 16));
    _mm256_storeu_si256((__m256i *)(void *)p, half);
#else
    *(vh_mem *)p = __builtin_convertvector((vu)v >> 16, vh);
#endif
    return v;
}
#endif

INLINE vf ld_stored(const void *p, size_t i, bool bf16) {
    return bf16 ? (vf)(widened((const uint16_t *)p + i) << 16) : ld((const float *)p + i);
}
/* Stores v as bf16 or fp32 and returns the stored value. */
INLINE vf st_stored(void *p, size_t i, vf v, bool bf16) {
    if (bf16)
        return st_half((uint16_t *)p + i, v);
    st((float *)p + i, v);
    return v;
}

INLINE vf relu(vf u) { return (vf)((vi)u & ~(u <= 0)); }
INLINE vf where(vi mask, vf v) { return (vf)((vi)v & mask); }

/* ---- matrix products ---- */

/* Prefetches the next portion of h. Each product calls this `tiles` times, once per register tile.
 */
INLINE void issue_prefetch(struct cpu_prefetch *h, int tiles) {
    if (!h)
        return;
    int portions = tiles * h->calls, end = h->row + (h->rows + portions - 1) / portions;
    for (end = end < h->rows ? end : h->rows; h->row < end; h->row++) {
        int row = h->row;
        for (int k = 0; k < CPU_PREFETCH_PARTS; k++) {
            if (row >= h->part[k].rows)
                continue;
            const char *line = h->part[k].at + (size_t)row * h->part[k].pitch;
            for (int i = 0; i < h->part[k].lines; i++, line += 64)
                __builtin_prefetch(line, 0, 2);
        }
    }
}
INLINE int tiles_of(int rows, int of_rows, int n, int of_n) {
    return (rows + of_rows - 1) / of_rows * ((n + of_n - 1) / of_n);
}

/* One function per row count, so that all accumulators stay in registers. */
#define EACH_COUNT(X)                                                                              \
    X(1)                                                                                           \
    X(2)                                                                                           \
    X(3)                                                                                           \
    X(4)                                                                                           \
    X(5)                                                                                           \
    X(6)                                                                                           \
    X(7)                                                                                           \
    X(8)                                                                                           \
    X(9)                                                                                           \
    X(10)                                                                                          \
    X(11)                                                                                          \
    X(12)

#define PRODUCT(name) name
#define OPERAND float
#define FACTOR vf
#define PAIR 1
#define LD(p) ld(p)
#define BROADCAST(p) SPLAT(*(p))
#define LD_ROWS(d, off, p, count, d0, d1)                                                          \
    do {                                                                                           \
        const float *row = (d) + (off)[p];                                                         \
        d0 = ld(row), d1 = ld(row + VL);                                                           \
    } while (0)
#define ADD_PRODUCT(acc, b, x) FMA(x, b, acc)
#include "engine/cpu/products.inc.h"

/* ---- element-wise; each body is compiled once for fp32 and once for bf16 storage ---- */

INLINE void load_body(float *dst, size_t pitch, const void *src, size_t step, int pixels,
                      int channels, const float *scale, const float *shift, bool do_relu,
                      bool round, bool bf16, bool stored) {
    for (int p = 0; p < pixels; p++)
        for (int c = 0; c < channels; c += VL) {
            vf v = ld_stored(src, (size_t)p * step + (size_t)c, bf16);
            if (stored)
                v = rounded(v);
            if (scale)
                v = FMA(v, ld(scale + c), ld(shift + c));
            if (do_relu)
                v = relu(v);
            if (round)
                v = rounded(v);
            st(dst + (size_t)p * pitch + c, v);
        }
}

static void load(float *dst, size_t pitch, const struct cpu_stored *src, int pixels, int channels,
                 const float *scale, const float *shift, int flags) {
    const void *s = src->at;
    size_t step = src->step;
    if (flags == CPU_RELU && scale && !src->bf16)
        load_body(dst, pitch, s, step, pixels, channels, scale, shift, true, false, false, false);
    else if (flags == (CPU_RELU | CPU_ROUND) && scale && src->bf16)
        load_body(dst, pitch, s, step, pixels, channels, scale, shift, true, true, true, false);
    else if (src->bf16)
        load_body(dst, pitch, s, step, pixels, channels, scale, shift, flags & CPU_RELU,
                  flags & CPU_ROUND, true, false);
    else
        load_body(dst, pitch, s, step, pixels, channels, scale, shift, flags & CPU_RELU,
                  flags & CPU_ROUND, false, flags & CPU_STORED);
}

INLINE void load_grad_body(float *dst, size_t pitch, struct cpu_stored g, struct cpu_stored x,
                           int pixels, int channels, const float *b, const float *mean,
                           const float *c, bool round, bool bf16) {
    for (int p = 0; p < pixels; p++)
        for (int i = 0; i < channels; i += VL) {
            vf v = ld_stored(g.at, (size_t)p * g.step + (size_t)i, bf16);
            if (b) {
                vf xv = ld_stored(x.at, (size_t)p * x.step + (size_t)i, bf16);
                v = FMA(ld(b + i), xv - ld(mean + i), v) + ld(c + i);
            }
            if (round)
                v = rounded(v);
            st(dst + (size_t)p * pitch + i, v);
        }
}

static void load_grad(float *dst, size_t pitch, const struct cpu_stored *g,
                      const struct cpu_stored *x, int pixels, int channels, const float *b,
                      const float *mean, const float *c, bool round) {
    if (g->bf16)
        load_grad_body(dst, pitch, *g, *x, pixels, channels, b, mean, c, round, true);
    else
        load_grad_body(dst, pitch, *g, *x, pixels, channels, b, mean, c, round, false);
}

/* Vectors of channels processed together, so that whole cache lines of distant pixels are read;
 * half as many are left if the channels are an odd multiple of CPU_CHANNEL_STEP. The
 * values per channel are loaded before the loop over pixels, because the compiler must assume that
 * a store changes them. */
enum { WIDE = VL < 16 ? 4 : 2 };

INLINE void store_body(struct cpu_stored dst, const float *src, size_t pitch, int pixels,
                       int channels, bool bf16) {
    for (int p = 0; p < pixels; p++)
        for (int c = 0; c < channels; c += VL)
            (void)st_stored(dst.at, (size_t)p * dst.step + (size_t)c,
                            ld(src + (size_t)p * pitch + c), bf16);
}

INLINE void store_columns(struct cpu_stored dst, const float *src, size_t pitch, int pixels,
                          int from, int to, int wide, const struct cpu_moments *m, bool bf16) {
    for (int c0 = from; c0 < to; c0 += wide * VL) {
        vf first[WIDE], sum[WIDE], square[WIDE];
        UNROLL
        for (int j = 0; j < wide; j++) {
            int c = c0 + j * VL;
            vf v = ld(src + c);
            first[j] = m->begun ? ld(m->first + c) : bf16 ? rounded(v) : v;
            sum[j] = m->begun ? ld(m->sum + c) : (vf){0};
            square[j] = m->begun ? ld(m->square + c) : (vf){0};
        }
        for (int p = 0; p < pixels; p++) {
            UNROLL
            for (int j = 0; j < wide; j++) {
                size_t c = (size_t)(c0 + j * VL);
                vf v = st_stored(dst.at, (size_t)p * dst.step + c, ld(src + (size_t)p * pitch + c),
                                 bf16);
                v -= first[j];
                sum[j] += v;
                square[j] += v * v;
            }
        }
        UNROLL
        for (int j = 0; j < wide; j++) {
            st(m->first + c0 + j * VL, first[j]);
            st(m->sum + c0 + j * VL, sum[j]);
            st(m->square + c0 + j * VL, square[j]);
        }
    }
}

INLINE void store_moments(struct cpu_stored dst, const float *src, size_t pitch, int pixels,
                          int channels, const struct cpu_moments *m, bool bf16) {
    const int whole = channels - channels % (WIDE * VL);
    store_columns(dst, src, pitch, pixels, 0, whole, WIDE, m, bf16);
    store_columns(dst, src, pitch, pixels, whole, channels, WIDE / 2, m, bf16);
}

static void store(const struct cpu_stored *dst, const float *src, size_t pitch, int pixels,
                  int channels, const struct cpu_moments *m) {
    if (dst->bf16 && m)
        store_moments(*dst, src, pitch, pixels, channels, m, true);
    else if (m)
        store_moments(*dst, src, pitch, pixels, channels, m, false);
    else if (dst->bf16)
        store_body(*dst, src, pitch, pixels, channels, true);
    else
        store_body(*dst, src, pitch, pixels, channels, false);
}

INLINE void back_columns(struct cpu_stored g, struct cpu_stored x, const float *dv, size_t pitch,
                         int pixels, int from, int to, int wide, const struct cpu_norm *norm,
                         bool do_relu, bool add, float *s1, float *s2, bool bf16) {
    for (int c0 = from; c0 < to; c0 += wide * VL) {
        vf sum1[WIDE], sum2[WIDE], scale[WIDE], shift[WIDE], inv[WIDE], xshift[WIDE];
        UNROLL
        for (int j = 0; j < wide; j++) {
            int c = c0 + j * VL;
            sum1[j] = ld(s1 + c);
            sum2[j] = ld(s2 + c);
            scale[j] = ld(norm->scale + c);
            shift[j] = ld(norm->shift + c);
            inv[j] = ld(norm->inv + c);
            xshift[j] = ld(norm->xshift + c);
        }
        for (int p = 0; p < pixels; p++) {
            size_t at_x = (size_t)p * x.step, at_g = (size_t)p * g.step;
            UNROLL
            for (int j = 0; j < wide; j++) {
                int c = c0 + j * VL;
                vf xv = ld_stored(x.at, at_x + (size_t)c, bf16);
                vf du = ld(dv + (size_t)p * pitch + c);
                if (do_relu)
                    du = where(~(FMA(xv, scale[j], shift[j]) <= 0), du);
                sum1[j] += du;
                sum2[j] = FMA(du, FMA(xv, inv[j], xshift[j]), sum2[j]);
                vf out = scale[j] * du;
                if (add)
                    out = FMA(scale[j], du, ld_stored(g.at, at_g + (size_t)c, bf16));
                st_stored(g.at, at_g + (size_t)c, out, bf16);
            }
        }
        UNROLL
        for (int j = 0; j < wide; j++) {
            st(s1 + c0 + j * VL, sum1[j]);
            st(s2 + c0 + j * VL, sum2[j]);
        }
    }
}

INLINE void back_body(struct cpu_stored g, struct cpu_stored x, const float *dv, size_t pitch,
                      int pixels, int channels, const struct cpu_norm *norm, bool do_relu, bool add,
                      float *s1, float *s2, bool bf16) {
    const int whole = channels - channels % (WIDE * VL);
    back_columns(g, x, dv, pitch, pixels, 0, whole, WIDE, norm, do_relu, add, s1, s2, bf16);
    back_columns(g, x, dv, pitch, pixels, whole, channels, WIDE / 2, norm, do_relu, add, s1, s2,
                 bf16);
}

INLINE void back_plain(struct cpu_stored g, const float *dv, size_t pitch, int pixels, int channels,
                       bool add, bool bf16) {
    for (int p = 0; p < pixels; p++)
        for (int c = 0; c < channels; c += VL) {
            size_t i = (size_t)p * g.step + (size_t)c;
            vf out = ld(dv + (size_t)p * pitch + c);
            if (add)
                out += ld_stored(g.at, i, bf16);
            st_stored(g.at, i, out, bf16);
        }
}

static void back(const struct cpu_stored *g, const struct cpu_stored *x, const float *dv,
                 size_t pitch, int pixels, int channels, const struct cpu_norm *norm, bool do_relu,
                 bool add, float *s1, float *s2) {
    if (!norm && g->bf16)
        back_plain(*g, dv, pitch, pixels, channels, add, true);
    else if (!norm)
        back_plain(*g, dv, pitch, pixels, channels, add, false);
    else if (g->bf16 && do_relu && add)
        back_body(*g, *x, dv, pitch, pixels, channels, norm, true, true, s1, s2, true);
    else if (g->bf16)
        back_body(*g, *x, dv, pitch, pixels, channels, norm, do_relu, add, s1, s2, true);
    else if (do_relu && add)
        back_body(*g, *x, dv, pitch, pixels, channels, norm, true, true, s1, s2, false);
    else
        back_body(*g, *x, dv, pitch, pixels, channels, norm, do_relu, add, s1, s2, false);
}

/* ---- transforms of cpu_winograd.c, with a = sqrt(1/2) and b = sqrt(2) ---- */

static const float root_half = 0.70710678118654752f, root_two = 1.41421356237309505f;

INLINE void winograd_input(vf y[6], const vf x[6]) {
    vf even_a = x[4] - 2 * x[2], odd_a = root_half * (x[3] - 2 * x[1]);
    vf even_b = x[4] - 0.5f * x[2], odd_b = root_two * (x[3] - 0.5f * x[1]);
    y[0] = x[0] + x[4] - 2.5f * x[2];
    y[1] = even_a + odd_a;
    y[2] = even_a - odd_a;
    y[3] = even_b + odd_b;
    y[4] = even_b - odd_b;
    y[5] = x[1] + x[5] - 2.5f * x[3];
}
INLINE void winograd_output(vf y[4], const vf m[6]) {
    vf sum_a = m[1] + m[2], sum_b = m[3] + m[4];
    vf odd_a = root_half * (m[1] - m[2]), odd_b = root_two * (m[3] - m[4]);
    y[0] = m[0] + sum_a + sum_b;
    y[1] = odd_a + odd_b;
    y[2] = 0.5f * sum_a + 2 * sum_b;
    y[3] = 0.5f * odd_a + 2 * odd_b + m[5];
}
INLINE void winograd_output_back(vf m[6], const vf y[4]) {
    vf even_a = y[0] + 0.5f * y[2], odd_a = root_half * (y[1] + 0.5f * y[3]);
    vf even_b = y[0] + 2 * y[2], odd_b = root_two * (y[1] + 2 * y[3]);
    m[0] = y[0];
    m[1] = even_a + odd_a;
    m[2] = even_a - odd_a;
    m[3] = even_b + odd_b;
    m[4] = even_b - odd_b;
    m[5] = y[3];
}
INLINE void winograd_weight(vf u[6], const vf g[3]) {
    vf even_a = (float)(-2.0 / 3) * g[0] - (float)(1.0 / 3) * g[2];
    vf odd_a = (float)(-2.0 / 3) * root_half * g[1];
    vf even_b = (float)(1.0 / 6) * g[0] + (float)(1.0 / 3) * g[2];
    vf odd_b = (float)(1.0 / 6) * root_two * g[1];
    u[0] = g[0];
    u[1] = even_a + odd_a;
    u[2] = even_a - odd_a;
    u[3] = even_b + odd_b;
    u[4] = even_b - odd_b;
    u[5] = g[2];
}
INLINE void winograd_weight_back(vf g[3], const vf u[6]) {
    vf sum_a = u[1] + u[2], sum_b = u[3] + u[4];
    g[0] = u[0] - (float)(2.0 / 3) * sum_a + (float)(1.0 / 6) * sum_b;
    g[1] =
        (float)(1.0 / 6) * root_two * (u[3] - u[4]) - (float)(2.0 / 3) * root_half * (u[1] - u[2]);
    g[2] = u[5] + (float)(1.0 / 3) * (sum_b - sum_a);
}

/* Transforms M x M squares to N x N: first the columns, then the rows. */
#define WINOGRAD(NAME, M, N)                                                                       \
    static void NAME##_square(struct cpu_square dst, struct cpu_square src, int count) {           \
        for (int k = 0; k < count; k += VL) {                                                      \
            vf half[N][M];                                                                         \
            for (int j = 0; j < M; j++) {                                                          \
                vf x[M], y[N];                                                                     \
                UNROLL                                                                             \
                for (int i = 0; i < M; i++)                                                        \
                    x[i] = ld(src.at + i * src.row + j * src.column + k);                          \
                NAME(y, x);                                                                        \
                UNROLL                                                                             \
                for (int i = 0; i < N; i++)                                                        \
                    half[i][j] = y[i];                                                             \
            }                                                                                      \
            for (int i = 0; i < N; i++) {                                                          \
                vf y[N];                                                                           \
                NAME(y, half[i]);                                                                  \
                UNROLL                                                                             \
                for (int j = 0; j < N; j++)                                                        \
                    st(dst.at + i * dst.row + j * dst.column + k, y[j]);                           \
            }                                                                                      \
        }                                                                                          \
    }
WINOGRAD(winograd_input, 6, 6)
WINOGRAD(winograd_output, 6, 4)
WINOGRAD(winograd_output_back, 4, 6)
WINOGRAD(winograd_weight, 3, 6)
WINOGRAD(winograd_weight_back, 6, 3)
#undef WINOGRAD

static void add_relu(float *a, const float *b, size_t count) {
    for (size_t i = 0; i < count; i += VL)
        st(a + i, relu(ld(a + i) + ld(b + i)));
}

static void mask(float *dv, const float *out, size_t count) {
    for (size_t i = 0; i < count; i += VL)
        st(dv + i, where(~(ld(out + i) <= 0), ld(dv + i)));
}

static void average(float *dst, const float *const *taps, int count, float share, int channels) {
    for (int c = 0; c < channels; c += VL) {
        vf sum = {0};
        for (int t = 0; t < count; t++)
            sum += ld(taps[t] + c);
        st(dst + c, sum * share);
    }
}

static void max_of(float *dst, uint8_t *arg, const float *const *taps, const uint8_t *ids,
                   int count, int channels) {
    for (int c = 0; c < channels; c += VL) {
        vf best = ld(taps[0] + c);
        vi from = (vi){0} + ids[0];
        for (int t = 1; t < count; t++) {
            vf v = ld(taps[t] + c);
            vi larger = ~(v <= best);
            best = (vf)(((vi)v & larger) | ((vi)best & ~larger));
            from = (((vi){0} + ids[t]) & larger) | (from & ~larger);
        }
        st(dst + c, best);
        if (arg)
            *(vb_mem *)(arg + c) = __builtin_convertvector(from, vb);
    }
}

static void unmax(float *dst, const float *const *d, const uint8_t *const *arg, const uint8_t *ids,
                  int count, int channels) {
    for (int c = 0; c < channels; c += VL) {
        vf sum = {0};
        for (int t = 0; t < count; t++) {
            vi same = ld_bytes(arg[t] + c) == ((vi){0} + ids[t]);
            sum += where(same, ld(d[t] + c));
        }
        st(dst + c, sum);
    }
}

const struct cpu_kernels TABLE = {
    .name = NAME,
    .dot2 = DOT2,
    .panel = NR,
    .gemm = gemm,
    .outer = outer,
    .load = load,
    .load_grad = load_grad,
    .store = store,
    .back = back,
    .winograd = {winograd_input_square, winograd_output_square, winograd_output_back_square,
                 winograd_weight_square, winograd_weight_back_square},
    .add_relu = add_relu,
    .mask = mask,
    .average = average,
    .max = max_of,
    .unmax = unmax,
};
