/* SPDX-License-Identifier: Apache-2.0
 *
 * The operations of a network as plain loops, one function each. They define the numerics, and the
 * op tests compare the other engines with them. No function depends on a particular network.
 *
 * Layout. A map is NHWC: channel c of pixel (i, y, x) is data[((i * h + y) * w + x) * pitch + c].
 * pitch >= c, so a map may be any range of channels of a wider buffer. Weights are row-major
 * (out, in, kernel, kernel), as in the files.
 *
 * Arithmetic. Storage is fp32. Sums are double and are rounded once, when they are stored. With
 * ctx->bf16 the stored forward maps and the weights of convolutions are rounded to bf16 (nearest,
 * ties to even). Data gradients stay fp32 until chex_ref_round_map.
 *
 * Errors. None: the caller guarantees the shapes.
 *
 * Threads. Results do not depend on their number.
 */
#ifndef CHEX_ENGINE_REF_REF_OPS_H
#define CHEX_ENGINE_REF_REF_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/pool.h"
#include "engine/sync.h"

struct chex_ref_map {
    float *data;
    int n, h, w, c;
    int pitch; /* elements from one pixel to the next */
};

/* The context of every operation. */
struct chex_ref_ctx {
    struct chex_pool *pool;
    bool bf16;             /* round stored values to bf16 */
    double *weights;       /* scratch for the weights of one convolution */
    size_t weight_scratch; /* elements of it */
};

/* weight_scratch: the largest out * in * kernel * kernel of a convolution. Call
 * chex_ref_ctx_release at the end, also after an error. */
enum chex_status chex_ref_ctx_init(struct chex_ref_ctx *ctx, int threads, bool bf16,
                                   size_t weight_scratch, struct chex_error *err);
void chex_ref_ctx_release(struct chex_ref_ctx *ctx);

/* Rounds to the nearest bf16, ties to even. NaN stays NaN. */
float chex_ref_bf16(float x);
static inline float chex_ref_store(const struct chex_ref_ctx *ctx, double x) {
    return ctx->bf16 ? chex_ref_bf16((float)x) : (float)x;
}

static inline size_t chex_ref_pixels(const struct chex_ref_map *m) {
    return (size_t)m->n * (size_t)m->h * (size_t)m->w;
}
static inline float *chex_ref_at(const struct chex_ref_map *m, int i, int y, int x) {
    return m->data +
           (((size_t)i * (size_t)m->h + (size_t)y) * (size_t)m->w + (size_t)x) * (size_t)m->pitch;
}

/* Runs fn for every item on the context's thread pool (base/pool.h). */
void chex_ref_each(const struct chex_ref_ctx *ctx, size_t items, chex_pool_fn fn, void *arg);

/* ---- ref_map.c: whole maps, element by element ---- */

/* out[c] = (grey - mean[c]) / std[c] for three channels; grey: (n, h, w) in [0, 1]. */
void chex_ref_image(const struct chex_ref_ctx *ctx, const float *grey, const float mean[3],
                    const float std[3], const struct chex_ref_map *out);
/* With ctx->bf16, rounds each element to bf16 in place; else does nothing. */
void chex_ref_round_map(const struct chex_ref_ctx *ctx, const struct chex_ref_map *m);
/* to += from. */
void chex_ref_add(const struct chex_ref_ctx *ctx, const struct chex_ref_map *from,
                  const struct chex_ref_map *to);
/* Sets d = 0 where the ReLU's output `act` is not above 0; relu'(0) = 0. In place. */
void chex_ref_relu_backward(const struct chex_ref_ctx *ctx, const struct chex_ref_map *act,
                            const struct chex_ref_map *d);

/* ---- ref_bn.c ---- */

/* y = (x - mean) * inv * gamma + beta per channel; inv = 1 / sqrt(var + eps). */
struct chex_ref_bn {
    const double *mean, *inv;
    const float *gamma, *beta;
};

/* Mean and biased variance of each channel over n, h, w, in two sweeps. */
void chex_ref_bn_stats(const struct chex_ref_ctx *ctx, const struct chex_ref_map *x, double *mean,
                       double *var);
/* The unbiased variance, for running statistics: var * n / (n - 1); 0 for a single value. */
double chex_ref_bn_unbiased(double var, size_t values);
/* out = relu ? max(bn(x), 0) : bn(x). NaN passes the ReLU. */
void chex_ref_bn_forward(const struct chex_ref_ctx *ctx, const struct chex_ref_map *x,
                         const struct chex_ref_bn *bn, bool relu, const struct chex_ref_map *out);
/* Backward if mean and variance are those of x itself, or of the batches of all logical ranks
 * (sync NULL: none). With xhat = (x - mean) * inv, m = n h w: dbeta = sum dy, dgamma = sum dy *
 * xhat, dx += gamma * inv * (dy - dbeta/m - xhat * dgamma/m); there the sums are means over the
 * logical ranks. sums: scratch (2, c). Fails only if sync does. */
enum chex_status chex_ref_bn_backward(const struct chex_ref_ctx *ctx, const struct chex_ref_map *x,
                                      const struct chex_ref_bn *bn, const struct chex_ref_map *dy,
                                      const struct chex_engine_sync *sync, double *sums,
                                      float *dgamma, float *dbeta, const struct chex_ref_map *dx,
                                      struct chex_error *err);

/* ---- ref_conv.c: square kernel, stride, zero padding; sizes are those of the maps ---- */

struct chex_ref_window {
    int kernel, stride, pad;
};

void chex_ref_conv_forward(const struct chex_ref_ctx *ctx, const struct chex_ref_map *x,
                           const float *weight, struct chex_ref_window win,
                           const struct chex_ref_map *out);
/* dx is overwritten (fp32). */
void chex_ref_conv_backward_data(const struct chex_ref_ctx *ctx, const struct chex_ref_map *dy,
                                 const float *weight, struct chex_ref_window win,
                                 const struct chex_ref_map *dx);
/* dweight is overwritten. */
void chex_ref_conv_backward_weight(const struct chex_ref_ctx *ctx, const struct chex_ref_map *x,
                                   const struct chex_ref_map *dy, struct chex_ref_window win,
                                   float *dweight);

/* ---- ref_pool.c ---- */

/* Maximum of each window: the first in row order, NaN above all numbers, padding excluded.
 * arg: y * w + x of the maximum for each output, dense (n, out h, out w, c). May be NULL. */
void chex_ref_maxpool_forward(const struct chex_ref_ctx *ctx, const struct chex_ref_map *x,
                              struct chex_ref_window win, const struct chex_ref_map *out,
                              int32_t *arg);
void chex_ref_maxpool_backward(const struct chex_ref_ctx *ctx, const struct chex_ref_map *dy,
                               const int32_t *arg, struct chex_ref_window win,
                               const struct chex_ref_map *dx); /* overwritten */
/* kernel = stride, no padding. Rows and columns after the last whole window are ignored. */
void chex_ref_avgpool_forward(const struct chex_ref_ctx *ctx, const struct chex_ref_map *x,
                              int kernel, const struct chex_ref_map *out);
void chex_ref_avgpool_backward(const struct chex_ref_ctx *ctx, const struct chex_ref_map *dy,
                               int kernel, const struct chex_ref_map *dx); /* overwritten */

/* ---- ref_residual_add.c ---- */

/* out = max(bn(x) + s, 0), where s = side_bn(side), or side if side_bn is NULL. */
void chex_ref_residual_add_forward(const struct chex_ref_ctx *ctx, const struct chex_ref_map *x,
                                   const struct chex_ref_bn *bn, const struct chex_ref_map *side,
                                   const struct chex_ref_bn *side_bn,
                                   const struct chex_ref_map *out);
/* Its backward: chex_ref_relu_backward with act = out, then chex_ref_bn_backward for x and for
 * side; chex_ref_add for a summand without batch norm. */

/* ---- ref_head.c: fp32 in every precision; weight (classes, c), bias (classes) ---- */

/* Writes pooled (n, c) and logits (n, classes). */
void chex_ref_head_forward(const struct chex_ref_ctx *ctx, const struct chex_ref_map *x,
                           const float *weight, const float *bias, int classes, float *pooled,
                           float *logits);
/* dx, dweight and dbias are overwritten. dx without data: only the parameters' gradients. */
void chex_ref_head_backward(const struct chex_ref_ctx *ctx, const float *pooled,
                            const float *dlogits, const float *weight, int classes, float *dweight,
                            float *dbias, const struct chex_ref_map *dx);

#endif
