/* SPDX-License-Identifier: Apache-2.0
 *
 * Convolution: out[o](y, x) = sum over i, kh, kw of w[o][i][kh][kw] *
 * in[i](y * stride - pad + kh, x * stride - pad + kw), and its two gradients.
 *
 * Direct loops, blocked for the caches: PX neighbouring pixels by CH channels of the result are
 * summed in double on the stack. The weights are first rearranged so that the innermost loop, over
 * the channels of the result, is contiguous.
 *
 * One thread sums an element, in the order taps, then channels. The gradient of the weights is
 * summed in pixel order.
 */
#include <assert.h>

#include "engine/ref/ref_ops.h"

enum { PX = 8, CH = 64 };

struct conv_loop {
    const struct chex_ref_ctx *ctx;
    const struct chex_ref_map *x, *y; /* input and output of the convolution, or their gradients */
    const float *weight;
    struct chex_ref_window win;
    bool by_input; /* weights as [kh][kw][out][in] rather than [kh][kw][in][out] */
    float *dweight;
};

static int min_int(int a, int b) { return a < b ? a : b; }

static void lay_out_tap(void *arg, size_t tap, int worker) {
    (void)worker;
    const struct conv_loop *l = arg;
    size_t in = (size_t)l->x->c, out = (size_t)l->y->c;
    size_t taps = (size_t)l->win.kernel * (size_t)l->win.kernel;
    double *to = l->ctx->weights + tap * in * out;
    for (size_t o = 0; o < out; o++)
        for (size_t i = 0; i < in; i++) {
            double w = (double)chex_ref_store(l->ctx, (double)l->weight[(o * in + i) * taps + tap]);
            to[l->by_input ? o * in + i : i * out + o] = w;
        }
}

static void lay_out_weights(struct conv_loop *l) {
    size_t taps = (size_t)l->win.kernel * (size_t)l->win.kernel;
    assert(taps * (size_t)l->x->c * (size_t)l->y->c <= l->ctx->weight_scratch);
    chex_ref_each(l->ctx, taps, lay_out_tap, l);
}

static void axpy(double *restrict acc, double v, const double *restrict w, int count) {
    for (int c = 0; c < count; c++)
        acc[c] += v * w[c];
}

/* One row (image, y) of the output. */
static void forward_row(void *arg, size_t row, int worker) {
    (void)worker;
    const struct conv_loop *l = arg;
    const struct chex_ref_map *x = l->x, *y = l->y;
    const int image = (int)(row / (size_t)y->h), oy = (int)(row % (size_t)y->h);
    const int k = l->win.kernel, s = l->win.stride, pad = l->win.pad;
    for (int x0 = 0; x0 < y->w; x0 += PX)
        for (int c0 = 0; c0 < y->c; c0 += CH) {
            double acc[PX][CH] = {{0}};
            const int px = min_int(PX, y->w - x0), ch = min_int(CH, y->c - c0);
            for (int kh = 0; kh < k; kh++) {
                const int iy = oy * s - pad + kh;
                if (iy < 0 || iy >= x->h)
                    continue;
                for (int kw = 0; kw < k; kw++) {
                    const double *w =
                        l->ctx->weights + (size_t)(kh * k + kw) * (size_t)x->c * (size_t)y->c;
                    for (int i = 0; i < x->c; i++)
                        for (int p = 0; p < px; p++) {
                            const int ix = (x0 + p) * s - pad + kw;
                            if (ix >= 0 && ix < x->w)
                                axpy(acc[p], (double)chex_ref_at(x, image, iy, ix)[i],
                                     w + (size_t)i * (size_t)y->c + c0, ch);
                        }
                }
            }
            for (int p = 0; p < px; p++)
                for (int c = 0; c < ch; c++)
                    chex_ref_at(y, image, oy, x0 + p)[c0 + c] = chex_ref_store(l->ctx, acc[p][c]);
        }
}

void chex_ref_conv_forward(const struct chex_ref_ctx *ctx, const struct chex_ref_map *x,
                           const float *weight, struct chex_ref_window win,
                           const struct chex_ref_map *out) {
    struct conv_loop l = {.ctx = ctx, .x = x, .y = out, .weight = weight, .win = win};
    lay_out_weights(&l);
    chex_ref_each(ctx, (size_t)out->n * (size_t)out->h, forward_row, &l);
}

/* The output coordinate that reads input coordinate i at tap k; -1: none. */
static int output_of(int i, int k, const struct chex_ref_window *win, int size) {
    const int t = i + win->pad - k;
    return t >= 0 && t % win->stride == 0 && t / win->stride < size ? t / win->stride : -1;
}

/* One row (image, y) of the input's gradient. */
static void data_row(void *arg, size_t row, int worker) {
    (void)worker;
    const struct conv_loop *l = arg;
    const struct chex_ref_map *x = l->x, *y = l->y;
    const int image = (int)(row / (size_t)x->h), iy = (int)(row % (size_t)x->h);
    const int k = l->win.kernel;
    for (int x0 = 0; x0 < x->w; x0 += PX)
        for (int c0 = 0; c0 < x->c; c0 += CH) {
            double acc[PX][CH] = {{0}};
            const int px = min_int(PX, x->w - x0), ch = min_int(CH, x->c - c0);
            for (int kh = 0; kh < k; kh++) {
                const int oy = output_of(iy, kh, &l->win, y->h);
                if (oy < 0)
                    continue;
                for (int kw = 0; kw < k; kw++) {
                    const double *w =
                        l->ctx->weights + (size_t)(kh * k + kw) * (size_t)x->c * (size_t)y->c;
                    for (int o = 0; o < y->c; o++)
                        for (int p = 0; p < px; p++) {
                            const int ox = output_of(x0 + p, kw, &l->win, y->w);
                            if (ox >= 0)
                                axpy(acc[p], (double)chex_ref_at(y, image, oy, ox)[o],
                                     w + (size_t)o * (size_t)x->c + c0, ch);
                        }
                }
            }
            for (int p = 0; p < px; p++)
                for (int c = 0; c < ch; c++)
                    chex_ref_at(x, image, iy, x0 + p)[c0 + c] = (float)acc[p][c];
        }
}

void chex_ref_conv_backward_data(const struct chex_ref_ctx *ctx, const struct chex_ref_map *dy,
                                 const float *weight, struct chex_ref_window win,
                                 const struct chex_ref_map *dx) {
    struct conv_loop l = {
        .ctx = ctx, .x = dx, .y = dy, .weight = weight, .win = win, .by_input = true};
    lay_out_weights(&l);
    chex_ref_each(ctx, (size_t)dx->n * (size_t)dx->h, data_row, &l);
}

/* acc[i][o] += in[i0 + i] * dy[o0 + o] over all pairs of pixels connected by tap (kh, kw). */
static void sum_tap(const struct conv_loop *l, int kh, int kw, int i0, int in, int o0, int out,
                    double acc[PX][CH]) {
    const struct chex_ref_map *x = l->x, *y = l->y;
    for (int image = 0; image < y->n; image++)
        for (int oy = 0; oy < y->h; oy++) {
            const int iy = oy * l->win.stride - l->win.pad + kh;
            if (iy < 0 || iy >= x->h)
                continue;
            for (int ox = 0; ox < y->w; ox++) {
                const int ix = ox * l->win.stride - l->win.pad + kw;
                if (ix < 0 || ix >= x->w)
                    continue;
                double dy[CH];
                for (int o = 0; o < out; o++)
                    dy[o] = (double)chex_ref_at(y, image, oy, ox)[o0 + o];
                for (int i = 0; i < in; i++)
                    axpy(acc[i], (double)chex_ref_at(x, image, iy, ix)[i0 + i], dy, out);
            }
        }
}

/* One item: a tap, PX input channels and CH output channels. */
static void weight_block(void *arg, size_t item, int worker) {
    (void)worker;
    const struct conv_loop *l = arg;
    const int k = l->win.kernel, in_blocks = (l->x->c + PX - 1) / PX;
    const int tap = (int)(item % (size_t)(k * k)), block = (int)(item / (size_t)(k * k));
    const int i0 = block % in_blocks * PX, o0 = block / in_blocks * CH;
    const int in = min_int(PX, l->x->c - i0), out = min_int(CH, l->y->c - o0);
    double acc[PX][CH] = {{0}};
    sum_tap(l, tap / k, tap % k, i0, in, o0, out, acc);
    for (int o = 0; o < out; o++)
        for (int i = 0; i < in; i++) {
            size_t at = (size_t)(o0 + o) * (size_t)l->x->c + (size_t)(i0 + i);
            l->dweight[at * (size_t)(k * k) + (size_t)tap] = (float)acc[i][o];
        }
}

void chex_ref_conv_backward_weight(const struct chex_ref_ctx *ctx, const struct chex_ref_map *x,
                                   const struct chex_ref_map *dy, struct chex_ref_window win,
                                   float *dweight) {
    struct conv_loop l = {.ctx = ctx, .x = x, .y = dy, .win = win, .dweight = dweight};
    size_t blocks = ((size_t)x->c + PX - 1) / PX * (((size_t)dy->c + CH - 1) / CH);
    chex_ref_each(ctx, blocks * (size_t)win.kernel * (size_t)win.kernel, weight_block, &l);
}
