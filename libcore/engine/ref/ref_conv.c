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

/* The coordinate that output (by_input: input) coordinate `at` reads at tap k; -1: none. */
static int source_of(const struct conv_loop *l, int at, int k, int size) {
    const int s = l->win.stride;
    int t = l->by_input ? at + l->win.pad - k : at * s - l->win.pad + k;
    if (l->by_input)
        t = t >= 0 && t % s == 0 ? t / s : -1;
    return t < size ? t : -1;
}

/* One row (image, y) of the output; by_input: of the input's gradient. */
static void conv_row(void *arg, size_t row, int worker) {
    (void)worker;
    const struct conv_loop *l = arg;
    const struct chex_ref_map *from = l->by_input ? l->y : l->x, *to = l->by_input ? l->x : l->y;
    const int image = (int)(row / (size_t)to->h), y = (int)(row % (size_t)to->h);
    const int k = l->win.kernel;
    for (int x0 = 0; x0 < to->w; x0 += PX)
        for (int c0 = 0; c0 < to->c; c0 += CH) {
            double acc[PX][CH] = {{0}};
            const int px = min_int(PX, to->w - x0), ch = min_int(CH, to->c - c0);
            for (int tap = 0; tap < k * k; tap++) {
                const int fy = source_of(l, y, tap / k, from->h);
                const double *w =
                    l->ctx->weights + (size_t)tap * (size_t)from->c * (size_t)to->c + c0;
                for (int i = 0; fy >= 0 && i < from->c; i++, w += to->c)
                    for (int p = 0; p < px; p++) {
                        const int fx = source_of(l, x0 + p, tap % k, from->w);
                        if (fx >= 0)
                            axpy(acc[p], (double)chex_ref_at(from, image, fy, fx)[i], w, ch);
                    }
            }
            for (int p = 0; p < px; p++)
                for (int c = 0; c < ch; c++)
                    chex_ref_at(to, image, y, x0 + p)[c0 + c] =
                        l->by_input ? (float)acc[p][c] : chex_ref_store(l->ctx, acc[p][c]);
        }
}

void chex_ref_conv_forward(const struct chex_ref_ctx *ctx, const struct chex_ref_map *x,
                           const float *weight, struct chex_ref_window win,
                           const struct chex_ref_map *out) {
    struct conv_loop l = {.ctx = ctx, .x = x, .y = out, .weight = weight, .win = win};
    lay_out_weights(&l);
    chex_ref_each(ctx, (size_t)out->n * (size_t)out->h, conv_row, &l);
}

void chex_ref_conv_backward_data(const struct chex_ref_ctx *ctx, const struct chex_ref_map *dy,
                                 const float *weight, struct chex_ref_window win,
                                 const struct chex_ref_map *dx) {
    struct conv_loop l = {
        .ctx = ctx, .x = dx, .y = dy, .weight = weight, .win = win, .by_input = true};
    lay_out_weights(&l);
    chex_ref_each(ctx, (size_t)dx->n * (size_t)dx->h, conv_row, &l);
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
