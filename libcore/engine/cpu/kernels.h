/* SPDX-License-Identifier: Apache-2.0
 *
 * The inner loops of the cpu engine: one table of functions per instruction set, chosen at run
 * time.
 * - All arithmetic is fp32. Feature maps ("stored" below) are fp32 or bf16, NHWC, and are converted
 *   when they are loaded and stored.
 * - Channel counts are multiples of 16, so there are no vector tails. Rows and columns of packed
 *   weights and of partial weight gradients are padded to multiples of 32, and so are the operands
 *   of cpu_dot2.
 * - The element-wise functions never fuse a multiply with an add, so they give the same bits on
 *   every instruction set. gemm and outer use FMA if the machine has it.
 */
#ifndef CHEX_ENGINE_CPU_KERNELS_H
#define CHEX_ENGINE_CPU_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The channels of a block of products; every channel count is a multiple of CPU_CHANNEL_STEP. */
enum { CPU_CHANNELS = 32, CPU_CHANNEL_STEP = 16 };
static inline int chex_cpu_padded(int channels) {
    return (channels + CPU_CHANNELS - 1) / CPU_CHANNELS * CPU_CHANNELS;
}

/* One position of a convolution kernel: offset in A relative to the pixel's own offset, and offset
 * of its K rows in a panel of B. Both count elements. */
struct cpu_tap {
    ptrdiff_t a, b;
};

enum cpu_load_flags {
    CPU_RELU = 1,   /* max(x, 0) after the affine map; NaN stays NaN */
    CPU_ROUND = 2,  /* round the result to bf16 */
    CPU_SPLIT = 4,  /* write split operands, see cpu_dot2 */
    CPU_STORED = 8, /* src is fp32; first round each value to bf16, as if it had been stored as bf16
                       and loaded again */
};

/* The batch norm before an operation, for its backward. Arrays per channel.
 * u = scale * x + shift; xhat = inv * x + xshift. */
struct cpu_norm {
    const float *scale, *shift, *inv, *xshift;
};

/* Shifted moments per channel, for a variance in one sweep: first = the first pixel, sum = sum of
 * (x - first), square = sum of (x - first)^2. Among n pixels the first is at most sqrt(n) standard
 * deviations from the mean, so cancellation increases the rounding error of the variance at most
 * n-fold. */
struct cpu_moments {
    float *first, *sum, *square;
    bool begun; /* pixels have been added before: first is set */
};

/* Stored pixels: `step` elements from one to the next. */
struct cpu_stored {
    void *at;
    size_t step;
    bool bf16;
};

/* Memory to prefetch during matrix products. The products issue prefetch instructions between their
 * register tiles, a few rows at a time, so that the data arrives while they compute. A NULL pointer
 * to this struct: no prefetch. */
enum { CPU_PREFETCH_PARTS = 3 };
struct cpu_prefetch {
    struct {
        const char *at;
        size_t pitch;    /* bytes from row to row */
        int rows, lines; /* cache lines per row */
    } part[CPU_PREFETCH_PARTS];
    int rows;  /* the largest `rows` of a part */
    int row;   /* next row to prefetch */
    int calls; /* products that share the work */
};

/* Matrix products with bf16 dot products (dot2), for processors that have them; sums are fp32. A
 * pair of B is one 32-bit word with the first value in the lower half.
 *
 * Split operands (CPU_SPLIT) represent an fp32 value by two bf16 values: the rounded value, and the
 * rounded remainder. A row holds the first parts of all channels, then the second parts, as if it
 * had twice as many channels. */
struct cpu_dot2 {
    int group;           /* pixels of a group in v of outer */
    int outer_rows;      /* best number of rows per call of outer */
    int back_pixels;     /* most pixels of a tile of the backward pass */
    int spare_rows;      /* gemm may read this many rows after the last one, at the distance of the
                            last two; their values are not used */
    bool three_products; /* an fp32 product is made of three products of split operands */
    /* Call these around the other functions, on each thread. NULL: not needed. */
    void (*begin)(void);
    void (*end)(void);
    /* The number of rows, of `rows`, that gemm computes together. NULL: any number is good. */
    int (*together)(const int32_t *off, int rows);
    int columns; /* best number of columns of a block of results */
    /* As gemm, with a in bf16, depth a multiple of 32 and B as [t][k / 2][panel][2]; offsets in
     * elements. */
    void (*gemm)(const uint16_t *a, const int32_t *off, int rows, const struct cpu_tap *taps,
                 int tap_count, int depth, const uint16_t *b, size_t b_panel, int n, float *c,
                 size_t c_pitch, struct cpu_prefetch *prefetch);
    /* As outer, with pixels in groups: v[i / group][r][i % group], v_pitch elements from one group
     * to the next, zeros after the last pixel; d in bf16, n a multiple of 32. */
    void (*outer)(const uint16_t *v, size_t v_pitch, const uint16_t *d, const int32_t *off,
                  int count, int rows, int n, float *w, size_t w_pitch, bool fresh,
                  struct cpu_prefetch *prefetch);
    /* As load and load_grad, to bf16, with zeros after the last channel up to a multiple of 32. The
     * source is stored as bf16, or as fp32 with CPU_SPLIT or (load only) CPU_STORED. */
    void (*load)(uint16_t *dst, size_t pitch, const struct cpu_stored *src, int pixels,
                 int channels, const float *scale, const float *shift, int flags);
    void (*load_grad)(uint16_t *dst, size_t pitch, const struct cpu_stored *g,
                      const struct cpu_stored *x, int pixels, int channels, const float *b,
                      const float *mean, const float *c, int flags);
    /* As load, into pixels [at, at + pixels) of v of outer. The rest of the last group becomes
     * zeros, so calls must come in order of pixels. */
    void (*load_pairs)(uint16_t *v, size_t v_pitch, int at, const struct cpu_stored *src,
                       int pixels, int channels, const float *scale, const float *shift, int flags);
    /* Pack a panel of B with `rows` rows (pack_columns: rounded up to a multiple of 32). pitch:
     * floats from one row of w to the next.
     * pack:         dst[r / 2][j] = pair (w[r][j], w[r + 1][j])
     * pack_columns: dst[r / 2][j] = pair (w[j][r], w[j][r + 1])
     * rest: as dst, for the second parts of split operands; NULL: none. */
    void (*pack)(uint32_t *dst, uint32_t *rest, const float *w, size_t pitch, int rows);
    void (*pack_columns)(uint32_t *dst, uint32_t *rest, const float *w, size_t pitch, int rows);
};

/* A square of vectors: element (i, j) is `count` contiguous floats at `at + i * row + j * column`.
 */
struct cpu_square {
    float *at;
    ptrdiff_t row, column;
};

/* Transforms of cpu_winograd.c: m x m to n x n squares, by a matrix from the left and its transpose
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
    int panel;                   /* columns of one packed panel of B */
    const struct cpu_dot2 *dot2; /* bf16 dot products; NULL: products are fp32 */

    /* c[i][0..n) = sum over taps t and k < depth of a[off[i] + t.a + k] * B[t][k][0..n), i < rows.
     * B is packed: column panels `b_panel` floats apart, in each rows of `panel` floats. */
    void (*gemm)(const float *a, const int32_t *off, int rows, const struct cpu_tap *taps,
                 int tap_count, int depth, const float *b, size_t b_panel, int n, float *c,
                 size_t c_pitch, struct cpu_prefetch *prefetch);
    /* w[r][0..n) += sum over i < count of v[i * v_pitch + r] * d[off[i] + 0..n), r < rows.
     * fresh: w is overwritten instead. */
    void (*outer)(const float *v, size_t v_pitch, const float *d, const int32_t *off, int count,
                  int rows, int n, float *w, size_t w_pitch, bool fresh,
                  struct cpu_prefetch *prefetch);

    /* dst = scale * src + shift (scale NULL: src), then the operations in flags. */
    void (*load)(float *dst, size_t pitch, const struct cpu_stored *src, int pixels, int channels,
                 const float *scale, const float *shift, int flags);
    /* dst = g + b * (x - mean) + c (b NULL: g): the gradient of a feature map; see cpu_engine.h. */
    void (*load_grad)(float *dst, size_t pitch, const struct cpu_stored *g,
                      const struct cpu_stored *x, int pixels, int channels, const float *b,
                      const float *mean, const float *c, bool round);
    /* Stores src, and adds the stored values to the moments m (NULL: none). */
    void (*store)(const struct cpu_stored *dst, const float *src, size_t pitch, int pixels,
                  int channels, const struct cpu_moments *m);
    /* Backward of batch norm and ReLU. dv: gradient of the operation's (normalised) input.
     * du = relu && u <= 0 ? 0 : dv; s1 += du; s2 += du * xhat; g = (add ? g : 0) + scale * du.
     * norm NULL: g = (add ? g : 0) + dv; x, s1 and s2 are unused. */
    void (*back)(const struct cpu_stored *g, const struct cpu_stored *x, const float *dv,
                 size_t pitch, int pixels, int channels, const struct cpu_norm *norm, bool relu,
                 bool add, float *s1, float *s2);

    /* count is a multiple of 32. */
    void (*winograd[CPU_WINOGRAD_COUNT])(struct cpu_square dst, struct cpu_square src, int count);

    /* a = max(a + b, 0), count floats. */
    void (*add_relu)(float *a, const float *b, size_t count);
    /* dv = out > 0 ? dv : 0, count floats. */
    void (*mask)(float *dv, const float *out, size_t count);
    /* dst[c] = share * sum of taps[0..count)[c]. */
    void (*average)(float *dst, const float *const *taps, int count, float share, int channels);
    /* max:   dst[c] = maximum of taps[0..count)[c]; arg[c] = id of the first maximum. arg may be
     *        NULL.
     * unmax: the backward: dst[c] = sum of d[i][c] over the windows i with arg[i][c] == ids[i]. */
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
