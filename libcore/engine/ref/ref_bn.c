/* SPDX-License-Identifier: Apache-2.0
 *
 * Batch norm in its textbook form (Ioffe and Szegedy, ICML 2015). Each batch norm computes its own
 * statistics and its own backward. Nothing is shared or deferred, unlike in the fast engines.
 *
 * A work item is a run of channels, so one thread computes a sum, in pixel order.
 */
#include <string.h>

#include "engine/ref/ref_ops.h"

enum { RUN = 16 }; /* channels per item: one cache line of a pixel */

struct bn_loop {
    const struct chex_ref_ctx *ctx;
    const struct chex_ref_map *x, *dy, *to;
    const struct chex_ref_bn *bn;
    double *mean, *var;
    double *sum, *dot;
    bool relu;
};

static size_t runs(const struct chex_ref_map *m) { return ((size_t)m->c + RUN - 1) / RUN; }
static int run_length(const struct chex_ref_map *m, size_t run) {
    int left = m->c - (int)run * RUN;
    return left < RUN ? left : RUN;
}

static void stats_run(void *arg, size_t run, int worker) {
    (void)worker;
    const struct bn_loop *l = arg;
    size_t pixels = chex_ref_pixels(l->x), first = run * RUN;
    int channels = run_length(l->x, run);
    double sum[RUN] = {0}, square[RUN] = {0};
    for (size_t p = 0; p < pixels; p++)
        for (int c = 0; c < channels; c++)
            sum[c] += (double)l->x->data[p * (size_t)l->x->pitch + first + (size_t)c];
    for (int c = 0; c < channels; c++)
        sum[c] /= (double)pixels;
    for (size_t p = 0; p < pixels; p++)
        for (int c = 0; c < channels; c++) {
            double d = (double)l->x->data[p * (size_t)l->x->pitch + first + (size_t)c] - sum[c];
            square[c] += d * d;
        }
    for (int c = 0; c < channels; c++) {
        l->mean[first + (size_t)c] = sum[c];
        l->var[first + (size_t)c] = square[c] / (double)pixels;
    }
}

void chex_ref_bn_stats(const struct chex_ref_ctx *ctx, const struct chex_ref_map *x, double *mean,
                       double *var) {
    struct bn_loop l = {.ctx = ctx, .x = x, .mean = mean, .var = var};
    chex_ref_each(ctx, runs(x), stats_run, &l);
}

double chex_ref_bn_unbiased(double var, size_t values) {
    return values > 1 ? var * (double)values / (double)(values - 1) : 0;
}

static void forward_run(void *arg, size_t run, int worker) {
    (void)worker;
    const struct bn_loop *l = arg;
    size_t pixels = chex_ref_pixels(l->x), first = run * RUN;
    int channels = run_length(l->x, run);
    for (size_t p = 0; p < pixels; p++)
        for (size_t c = first; c < first + (size_t)channels; c++) {
            double x = (double)l->x->data[p * (size_t)l->x->pitch + c];
            double y = (x - l->bn->mean[c]) * l->bn->inv[c] * (double)l->bn->gamma[c] +
                       (double)l->bn->beta[c];
            if (l->relu && y < 0)
                y = 0;
            l->to->data[p * (size_t)l->to->pitch + c] = chex_ref_store(l->ctx, y);
        }
}

void chex_ref_bn_forward(const struct chex_ref_ctx *ctx, const struct chex_ref_map *x,
                         const struct chex_ref_bn *bn, bool relu, const struct chex_ref_map *out) {
    struct bn_loop l = {.ctx = ctx, .x = x, .bn = bn, .relu = relu, .to = out};
    chex_ref_each(ctx, runs(x), forward_run, &l);
}

/* sum dy and sum dy * xhat */
static void sums_run(void *arg, size_t run, int worker) {
    (void)worker;
    const struct bn_loop *l = arg;
    size_t pixels = chex_ref_pixels(l->x), first = run * RUN, pitch = (size_t)l->x->pitch;
    size_t count = (size_t)run_length(l->x, run), end = first + count;
    double sum[RUN] = {0}, dot[RUN] = {0};
    for (size_t p = 0; p < pixels; p++)
        for (size_t c = first; c < end; c++) {
            double dy = (double)l->dy->data[p * (size_t)l->dy->pitch + c];
            double xhat = ((double)l->x->data[p * pitch + c] - l->bn->mean[c]) * l->bn->inv[c];
            sum[c - first] += dy;
            dot[c - first] += dy * xhat;
        }
    memcpy(l->sum + first, sum, count * sizeof *sum);
    memcpy(l->dot + first, dot, count * sizeof *dot);
}

static void apply_run(void *arg, size_t run, int worker) {
    (void)worker;
    const struct bn_loop *l = arg;
    size_t pixels = chex_ref_pixels(l->x), first = run * RUN, pitch = (size_t)l->x->pitch;
    size_t end = first + (size_t)run_length(l->x, run);
    for (size_t p = 0; p < pixels; p++)
        for (size_t c = first; c < end; c++) {
            double dy = (double)l->dy->data[p * (size_t)l->dy->pitch + c];
            double xhat = ((double)l->x->data[p * pitch + c] - l->bn->mean[c]) * l->bn->inv[c];
            double dx = (double)l->bn->gamma[c] * l->bn->inv[c] *
                        (dy - l->sum[c] / (double)pixels - xhat * l->dot[c] / (double)pixels);
            float *to = &l->to->data[p * (size_t)l->to->pitch + c];
            *to = (float)((double)*to + dx);
        }
}

enum chex_status chex_ref_bn_backward(const struct chex_ref_ctx *ctx, const struct chex_ref_map *x,
                                      const struct chex_ref_bn *bn, const struct chex_ref_map *dy,
                                      const struct chex_engine_sync *sync, double *sums,
                                      float *dgamma, float *dbeta, const struct chex_ref_map *dx,
                                      struct chex_error *err) {
    struct bn_loop l = {
        .ctx = ctx, .x = x, .bn = bn, .dy = dy, .sum = sums, .dot = sums + (size_t)x->c, .to = dx};
    chex_ref_each(ctx, runs(x), sums_run, &l);
    for (int c = 0; c < x->c; c++) {
        dbeta[c] = (float)l.sum[c];
        dgamma[c] = (float)l.dot[c];
    }
    CHEX_TRY(chex_sync_mean(sync, sums, 2 * (size_t)x->c, err));
    chex_ref_each(ctx, runs(x), apply_run, &l);
    return CHEX_OK;
}
