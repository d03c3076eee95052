/* SPDX-License-Identifier: Apache-2.0
 *
 * The resize in plain C, which defines the result, and the choice of the kernel (resize.h).
 *
 * The order of the double operations in fill_taps() is part of the definition: weights must round
 * as in Pillow's Resample.c. A side that keeps its size gets the weight 1 for each pixel, so its
 * pixels do not change.
 */
#include "image/resize.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/cpu_features.h"
#include "image/resize_private.h"

struct chex_resizer {
    const struct chex_resize_kernel *kernel; /* NULL: plain C */
    struct chex_resize_axis x, y;
    struct chex_resize_packed packed;
    bool is_packed;             /* `packed` has the tables of x and y */
    struct chex_scratch shares; /* weights of one output pixel before rounding */
    struct chex_scratch pairs;  /* (2, src_w): two pairs of rows */
    struct chex_scratch narrow; /* (src_h, dst_w): result of the horizontal pass */
    struct chex_scratch sums;   /* (dst_w): sums of one output row */
};

bool chex_scratch_fit(struct chex_scratch *scratch, size_t count, size_t size) {
    if (count <= scratch->bytes / size)
        return true;
    chex_scratch_release(scratch);
    scratch->at = chex_alloc_aligned(count, size);
    scratch->bytes = scratch->at ? count * size : 0;
    return scratch->at;
}

void chex_scratch_release(struct chex_scratch *scratch) {
    free(scratch->at);
    *scratch = (struct chex_scratch){0};
}

const struct chex_resize_kernel *chex_resize_kernel(int i) {
    const struct chex_resize_kernel *usable[3] = {0};
    int count = 0;
#if defined(__x86_64__)
    if (chex_cpu_has(CHEX_ISA_AVX512VNNI))
        usable[count++] = &chex_resize_avx512vnni;
    if (chex_cpu_has(CHEX_ISA_AVX2))
        usable[count++] = &chex_resize_avx2;
#endif
    return i < count ? usable[i] : NULL;
}

enum chex_status chex_resizer_create_with(const struct chex_resize_kernel *kernel,
                                          struct chex_resizer **resizer_out,
                                          struct chex_error *err) {
    struct chex_resizer *r = calloc(1, sizeof *r);
    if (!r)
        return chex_error_memory(err, "a resizer");
    r->kernel = kernel;
    *resizer_out = r;
    return CHEX_OK;
}

enum chex_status chex_resizer_create(struct chex_resizer **resizer_out, struct chex_error *err) {
    return chex_resizer_create_with(chex_resize_kernel(0), resizer_out, err);
}

void chex_resizer_destroy(struct chex_resizer *r) {
    if (!r)
        return;
    chex_scratch_release(&r->x.scratch);
    chex_scratch_release(&r->y.scratch);
    chex_resize_release(&r->packed);
    chex_scratch_release(&r->shares);
    chex_scratch_release(&r->pairs);
    chex_scratch_release(&r->narrow);
    chex_scratch_release(&r->sums);
    free(r);
}

static double triangle(double x) {
    x = fabs(x);
    return x < 1.0 ? 1.0 - x : 0.0;
}

static void fill_taps(struct chex_resize_axis *a, double *shares) {
    double scale = (double)a->in / a->out;
    double support = scale < 1.0 ? 1.0 : scale; // half the triangle's base, in input pixels
    double shrink = 1.0 / support;
    for (int i = 0; i < a->out; i++) {
        double centre = (i + 0.5) * scale, total = 0.0;
        int from = (int)(centre - support + 0.5), to = (int)(centre + support + 0.5);
        from = from < 0 ? 0 : from;
        to = to > a->in ? a->in : to;
        for (int k = 0; k < to - from; k++) {
            shares[k] = triangle((k + from - centre + 0.5) * shrink);
            total += shares[k];
        }
        int32_t *w = a->weights + (ptrdiff_t)i * a->pitch;
        for (int k = 0; k < to - from; k++) {
            double share = total != 0.0 ? shares[k] / total : shares[k];
            w[k] = (int32_t)(0.5 + share * (1 << CHEX_RESIZE_WEIGHT_BITS));
        }
        a->first[i] = from;
        a->count[i] = to - from;
        a->max_taps = to - from > a->max_taps ? to - from : a->max_taps;
    }
}

/* Computes the weights of an axis, unless the sides are those of the last image. False: out of
 * memory. */
static bool set_axis(struct chex_resizer *r, struct chex_resize_axis *a, int in, int out) {
    if (a->in == in && a->out == out)
        return true;
    double scale = (double)in / out;
    int pitch = (int)ceil(scale < 1.0 ? 1.0 : scale) * 2 + 1;
    size_t n = (size_t)out, weights = n * (size_t)pitch;
    r->is_packed = false;
    a->in = a->out = 0; // invalid until the weights are complete
    if (!chex_scratch_fit(&r->shares, (size_t)pitch, sizeof(double)) ||
        !chex_scratch_fit(&a->scratch, 2 * n + weights, sizeof(int32_t)))
        return false;
    a->first = a->scratch.at;
    a->count = a->first + n;
    a->weights = a->count + n;
    memset(a->weights, 0, weights * sizeof *a->weights);
    a->in = in, a->out = out, a->pitch = pitch, a->max_taps = 0;
    fill_taps(a, r->shares.at);
    return true;
}

static uint8_t round_sum(int32_t sum) {
    int32_t v = sum >> CHEX_RESIZE_WEIGHT_BITS;
    return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
}

/* Stores the pixels of rows a and b in the two halves of 64-bit words: one multiplication by a
 * weight gives two products. Sums of weights times bytes stay below 2^31, so no carry crosses the
 * halves. */
static void pair_rows(const uint8_t *a, const uint8_t *b, int width, uint64_t *pairs) {
    for (int x = 0; x < width; x++)
        pairs[x] = a[x] | (uint64_t)b[x] << 32;
}

/* Horizontal pass: src (rows, a->in) to dst (rows, a->out), four rows at a time. pairs (2, a->in)
 * is scratch. If fewer than four rows are left, the last row is repeated. */
static void horizontal_pass(const struct chex_resize_axis *a, const uint8_t *src, int rows,
                            uint8_t *dst, uint64_t *pairs) {
    const uint64_t both = CHEX_RESIZE_HALF | (uint64_t)CHEX_RESIZE_HALF << 32;
    for (int y = 0; y < rows; y += 4) {
        const uint8_t *from[4];
        uint8_t *to[4];
        for (int j = 0; j < 4; j++) {
            ptrdiff_t row = y + j < rows ? y + j : rows - 1;
            from[j] = src + row * a->in;
            to[j] = dst + row * a->out;
        }
        pair_rows(from[0], from[1], a->in, pairs);
        pair_rows(from[2], from[3], a->in, pairs + a->in);
        for (int i = 0; i < a->out; i++) {
            const uint64_t *p = pairs + a->first[i], *q = p + a->in;
            const int32_t *w = a->weights + (ptrdiff_t)i * a->pitch;
            uint64_t s = both, t = both;
            for (int k = 0; k < a->count[i]; k++) {
                s += (uint32_t)w[k] * p[k];
                t += (uint32_t)w[k] * q[k];
            }
            to[0][i] = round_sum((int32_t)s);
            to[1][i] = round_sum((int32_t)(s >> 32));
            to[2][i] = round_sum((int32_t)t);
            to[3][i] = round_sum((int32_t)(t >> 32));
        }
    }
}

/* Vertical pass: src (a->in, width) to dst (a->out, width). sums (width) is scratch. */
static void vertical_pass(const struct chex_resize_axis *a, const uint8_t *src, int width,
                          uint8_t *dst, int32_t *sums) {
    for (int i = 0; i < a->out; i++, dst += width) {
        const int32_t *w = a->weights + (ptrdiff_t)i * a->pitch;
        for (int x = 0; x < width; x++)
            sums[x] = CHEX_RESIZE_HALF;
        for (int k = 0; k < a->count[i]; k++) {
            const uint8_t *p = src + ((ptrdiff_t)a->first[i] + k) * width;
            for (int x = 0; x < width; x++)
                sums[x] += w[k] * p[x];
        }
        for (int x = 0; x < width; x++)
            dst[x] = round_sum(sums[x]);
    }
}

static bool run_plain(struct chex_resizer *r, const uint8_t *src, uint8_t *dst) {
    size_t rows = (size_t)r->y.in, width = (size_t)r->x.out;
    if (!chex_scratch_fit(&r->pairs, 2 * (size_t)r->x.in, sizeof(uint64_t)) ||
        !chex_scratch_fit(&r->narrow, rows * width, 1) ||
        !chex_scratch_fit(&r->sums, width, sizeof(int32_t)))
        return false;
    horizontal_pass(&r->x, src, r->y.in, r->narrow.at, r->pairs.at);
    vertical_pass(&r->y, r->narrow.at, r->x.out, dst, r->sums.at);
    return true;
}

static bool run(struct chex_resizer *r, const uint8_t *src, uint8_t *dst) {
    if (!r->kernel || r->x.max_taps > CHEX_RESIZE_PACKED_TAPS ||
        r->y.max_taps > CHEX_RESIZE_PACKED_TAPS)
        return run_plain(r, src, dst);
    if (!r->is_packed)
        r->is_packed = chex_resize_pack(&r->packed, r->kernel, &r->x, &r->y);
    return r->is_packed && chex_resize_run(&r->packed, r->kernel, &r->x, &r->y, src, dst);
}

enum chex_status chex_resize(struct chex_resizer *r, const uint8_t *src, int src_w, int src_h,
                             uint8_t *dst, int dst_w, int dst_h, struct chex_error *err) {
    if (src_w == dst_w && src_h == dst_h) {
        memcpy(dst, src, (size_t)src_w * (size_t)src_h);
        return CHEX_OK;
    }
    if (set_axis(r, &r->x, src_w, dst_w) && set_axis(r, &r->y, src_h, dst_h) && run(r, src, dst))
        return CHEX_OK;
    return chex_error_memory(err, "resize from %d x %d to %d x %d px", src_w, src_h, dst_w, dst_h);
}
