/* SPDX-License-Identifier: Apache-2.0
 *
 * The inner loops of the cpu engine as a table of functions, one table per instruction set, chosen
 * at run time. All arithmetic is fp32; feature maps ("stored" below) are fp32 or bf16, NHWC, and
 * are converted where they are loaded and stored. Channel counts are multiples of 32, so there are
 * no vector tails. The element-wise functions never fuse a multiply with an add, so they give the
 * same bits on every instruction set; gemm and outer fuse where the machine can.
 */
#ifndef CHEX_ENGINE_CPU_KERNELS_H
#define CHEX_ENGINE_CPU_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CPU_CHANNELS = 32 }; /* every channel count is a multiple of this */

/* One position of a convolution kernel: where it reads A relative to a pixel's own offset, and
 * where its K rows lie in a panel of B; both in floats. */
struct cpu_tap {
    ptrdiff_t a, b;
};

enum cpu_load_flags {
    CPU_RELU = 1,   /* max(x, 0) after the affine map; a NaN stays one */
    CPU_ROUND = 2,  /* round the result to bf16 */
    CPU_SPLIT = 4,  /* see cpu_pairs */
    CPU_STORED = 8, /* src is fp32, of which each value is rounded to bf16 first: the bits that
                       storing it as bf16 and loading that would give */
};

/* The batch norm in front of an operation, as its backward needs it (each array per channel).
 * u = scale * x + shift; xhat = inv * x + xshift. */
struct cpu_norm {
    const float *scale, *shift, *inv, *xshift;
};

/* Sums over pixels of what differs from the first of them, and of its squares, per channel. With n
 * pixels the first is at most sqrt(n) standard deviations from their mean, so that cancellation
 * costs the variance a factor of n in rounding errors at the worst, in one sweep. */
struct cpu_moments {
    float *first, *sum, *square;
    bool begun; /* some pixels have been added already */
};

/* Stored pixels: `step` elements from one to the next. */
struct cpu_stored {
    void *at;
    size_t step;
    bool bf16;
};

/* Memory that is wanted soon: of each part `rows` rows of cache lines, `pitch` bytes apart. The
 * products ask the caches for it between their register tiles, a few rows at a time, so that it
 * arrives while they compute; it is not touched. `rows` is the most of any part, `row` the next;
 * `calls` products share the work. NULL instead: nothing is wanted. */
enum { CPU_AHEAD = 3 };
struct cpu_ahead {
    struct {
        const char *at;
        size_t pitch;
        int rows, lines;
    } part[CPU_AHEAD];
    int rows, row, calls;
};

/* Products of bf16 operands, for processors that multiply those; sums are fp32. One pair of B
 * stands in 32 bits, the first in the lower half.
 *
 * Split operands (CPU_SPLIT): an fp32 value is nearly the sum of two of bf16, the value rounded and
 * what that left, rounded too. A row holds the first of all its channels, then the others, as if
 * there were twice as many. */
struct cpu_pairs {
    int group;           /* pixels that stand beside each other in v of outer */
    int outer_rows;      /* so many rows a call of outer, or what is left of them */
    int back_pixels;     /* of a tile of the backward pass, at most */
    int spare_rows;      /* gemm may read so many rows behind the last, at the distance of the last
                            two, and does not use them */
    bool three_products; /* fp32 is made of three products of split operands */
    /* On each thread around the other calls; NULL: nothing is needed. */
    void (*begin)(void);
    void (*end)(void);
    /* How many of `rows` rows gemm makes together (NULL: any number is good), and of how many
     * columns a block of results is best. */
    int (*together)(const int32_t *off, int rows);
    int columns;
    /* As gemm, with a in bf16, depth a multiple of 32 and B as [t][k / 2][panel][2]; offsets in
     * elements. */
    void (*gemm)(const uint16_t *a, const int32_t *off, int rows, const struct cpu_tap *taps,
                 int tap_count, int depth, const uint16_t *b, size_t b_panel, int n, float *c,
                 size_t c_pitch, struct cpu_ahead *ahead);
    /* As outer, with pixels in groups: v[i / group][r][i % group], v_pitch elements from one group
     * to the next and zeros behind the last pixel; d in bf16, n a multiple of 32. */
    void (*outer)(const uint16_t *v, size_t v_pitch, const uint16_t *d, const int32_t *off,
                  int count, int rows, int n, float *w, size_t w_pitch, bool fresh,
                  struct cpu_ahead *ahead);
    /* As load and load_grad, into bf16 from what is stored as bf16 (load: or CPU_STORED); split
     * from fp32. */
    void (*load)(uint16_t *dst, size_t pitch, const struct cpu_stored *src, int pixels,
                 int channels, const float *scale, const float *shift, int flags);
    void (*load_grad)(uint16_t *dst, size_t pitch, const struct cpu_stored *g,
                      const struct cpu_stored *x, int pixels, int channels, const float *b,
                      const float *mean, const float *c, int flags);
    /* As load, into pixels [at, at + pixels) of v of outer; the rest of the last group becomes
     * zeros, so pixels come in their order. */
    void (*load_pairs)(uint16_t *v, size_t v_pitch, int at, const struct cpu_stored *src,
                       int pixels, int channels, const float *scale, const float *shift, int flags);
    /* A panel of B, of `rows` rows (pack_columns: a multiple of 32): dst[r / 2][j] becomes the pair
     * w[r][j], w[r + 1][j], or with columns w[j][r], w[j][r + 1]; `pitch` floats are from one row
     * of w to the next. rest: as dst, of what rounding leaves; NULL: not wanted. */
    void (*pack)(uint32_t *dst, uint32_t *rest, const float *w, size_t pitch, int rows);
    void (*pack_columns)(uint32_t *dst, uint32_t *rest, const float *w, size_t pitch, int rows);
};

/* Values that stand in a square: at + i * row + j * column, each `count` floats beside each other.
 */
struct cpu_square {
    float *at;
    ptrdiff_t row, column;
};

/* Transforms of cpu_winograd.c: m x m squares to n x n, by a matrix from the left and its transpose
 * from the right. */
enum cpu_winograd {
    CPU_WINOGRAD_INPUT,       /* B' d B: 6 to 6 */
    CPU_WINOGRAD_OUTPUT,      /* A' m A: 6 to 4 */
    CPU_WINOGRAD_OUTPUT_BACK, /* A y A': 4 to 6 */
    CPU_WINOGRAD_WEIGHT,      /* G g G': 3 to 6 */
    CPU_WINOGRAD_WEIGHT_BACK, /* G' u G: 6 to 3 */
    CPU_WINOGRAD_COUNT
};

struct cpu_kernels {
    const char *name;
    int panel;                     /* columns of one packed panel of B */
    const struct cpu_pairs *pairs; /* how products of bf16 are made; NULL: in fp32 */

    /* c[i][0..n) = sum over taps t and k < depth of a[off[i] + t.a + k] * B[t][k][0..n), i < rows.
     * B is packed: column panels `b_panel` floats apart, in each rows of `panel` floats. */
    void (*gemm)(const float *a, const int32_t *off, int rows, const struct cpu_tap *taps,
                 int tap_count, int depth, const float *b, size_t b_panel, int n, float *c,
                 size_t c_pitch, struct cpu_ahead *ahead);
    /* w[r][0..n) += sum over i < count of v[i * v_pitch + r] * d[off[i] + 0..n), r < rows.
     * fresh: w is not read, it has nothing yet. */
    void (*outer)(const float *v, size_t v_pitch, const float *d, const int32_t *off, int count,
                  int rows, int n, float *w, size_t w_pitch, bool fresh, struct cpu_ahead *ahead);

    /* dst = scale * src + shift (scale NULL: src), then as flags say. */
    void (*load)(float *dst, size_t pitch, const struct cpu_stored *src, int pixels, int channels,
                 const float *scale, const float *shift, int flags);
    /* dst = g + b * (x - mean) + c (b NULL: g): the gradient of a feature map; see cpu.h. */
    void (*load_grad)(float *dst, size_t pitch, const struct cpu_stored *g,
                      const struct cpu_stored *x, int pixels, int channels, const float *b,
                      const float *mean, const float *c, bool round);
    /* Stores src, and gathers what m (NULL: nothing) says of the stored values. */
    void (*store)(const struct cpu_stored *dst, const float *src, size_t pitch, int pixels,
                  int channels, const struct cpu_moments *m);
    /* dv is the gradient at an operation's (normalised) input. du = dv where `relu` is false or
     * u > 0, else 0; s1 += du; s2 += du * xhat; g = (add ? g : 0) + scale * du. Without a norm
     * (NULL): g = (add ? g : 0) + dv, x and sums unused. */
    void (*back)(const struct cpu_stored *g, const struct cpu_stored *x, const float *dv,
                 size_t pitch, int pixels, int channels, const struct cpu_norm *norm, bool relu,
                 bool add, float *s1, float *s2);

    /* count: a multiple of 32. */
    void (*winograd[CPU_WINOGRAD_COUNT])(struct cpu_square dst, struct cpu_square src, int count);

    /* a = max(a + b, 0) and dv = out > 0 ? dv : 0 over count floats. */
    void (*join)(float *a, const float *b, size_t count);
    void (*mask)(float *dv, const float *out, size_t count);
    /* dst[c] = share * the sum of taps[0..count)[c]. */
    void (*average)(float *dst, const float *const *taps, int count, float share, int channels);
    /* dst[c] = the largest of taps[0..count)[c], arg[c] = the first such tap's id (arg may be
     * NULL); and back: dst[c] = sum over the windows of d[i][c] where arg[i][c] == ids[i]. */
    void (*max)(float *dst, uint8_t *arg, const float *const *taps, const uint8_t *ids, int count,
                int channels);
    void (*unmax)(float *dst, const float *const *d, const uint8_t *const *arg, const uint8_t *ids,
                  int count, int channels);
};

extern const struct cpu_kernels chex_cpu_kernels_generic;
extern const struct cpu_kernels chex_cpu_kernels_avx2;
extern const struct cpu_kernels chex_cpu_kernels_avx512;
extern const struct cpu_kernels chex_cpu_kernels_avx512bf16;
extern const struct cpu_kernels chex_cpu_kernels_amx;

#endif
