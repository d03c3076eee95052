/* SPDX-License-Identifier: Apache-2.0
 *
 * The definition of the optimisers, element by element, on host memory. An engine with its own
 * fused update must agree with it up to rounding.
 *
 * SGD with momentum (PyTorch's form): g += wd * w; m = mu * m + g (m = g at step 1); w -= lr * m.
 * With Nesterov's momentum: w -= lr * (g + mu * m), with the new m.
 * Adam (Kingma and Ba 2015) with L2 added to g; AdamW (Loshchilov and Hutter 2019) with decoupled
 * decay w -= lr * wd * w first. LARS (You et al. 2017): g scaled per parameter by
 * 0.001 * |w| / (|g| + wd * |w|) for convolution and linear weights, then SGD.
 * Weight decay wd is 0 for batch norms and biases, as in timm, unless decay_norms is set.
 *
 * Moving average (timm's ModelEmaV3 without its warm-up): after each update, for parameters and
 * running statistics: ema += (1 - decay) * (w - ema). It starts as the state of step 0. An update
 * that is skipped (fp16) does not move it.
 *
 * Clipping by norm (PyTorch's clip_grad_norm_): before all that, if the norm of the mean gradient
 * of all trained parameters is larger than X - 1e-6, the gradient is multiplied by
 * X / (norm + 1e-6). Squares are exact in fp64. They are added in an order that depends on the
 * network and the engine (ref, cpu, cuda) only, not on threads, ranks or the engine's variant.
 */
#ifndef CHEX_ENGINE_UPDATE_H
#define CHEX_ENGINE_UPDATE_H

#include "engine/engine.h"

/* Applies one step `u` to parameter p of the net, trainable or running statistic.
 * - w, m, v, g: p->count elements each: values, moments, reduced gradient.
 * - m and v may be NULL if the optimiser does not use them. SGD and LARS use m only.
 * - Elements are computed in fp32, scalars in double. */
void chex_update_param(const struct chex_update *u, const struct chex_net *net,
                       const struct chex_param *p, float *w, float *m, float *v, const float *g);

/* Moves the average by one update, after chex_update_param. w, ema: count elements each. */
void chex_ema_move(double decay, float *ema, const float *w, size_t count);

/* The trained parameters are cut into this many pieces of nearly equal length. */
enum { CHEX_NORM_PIECES = 256 };
struct chex_clip {
    double squares[CHEX_NORM_PIECES]; /* sum of squares of each piece of the reduced gradient */
    struct chex_grad_norms norms;     /* since they were last returned */
};

/* Fills clip->squares[piece]. grad: the reduced gradient, count: of the trained parameters. */
void chex_clip_sum(struct chex_clip *clip, const float *grad, size_t count, int piece);
/* With all squares: adds the norm to clip->norms, and returns the step for trained parameters, with
 * the factor of the clipping in grad_scale. Running statistics take the step u itself. */
struct chex_update chex_clip_apply(struct chex_clip *clip, const struct chex_update *u);
/* Moves clip->norms to *out. */
void chex_clip_take_norms(struct chex_clip *clip, struct chex_grad_norms *out);

/* CHEX_E_USAGE: an optimiser without a rule here; Nesterov's momentum without SGD or without
 * momentum. */
enum chex_status chex_update_check(const struct chex_update *u, struct chex_error *err);

/* Number of moments that the optimiser keeps: 1 (SGD, LARS), 2 (Adam, AdamW) or 0 (no optimiser).
 */
int chex_optim_moments(enum chex_optim optim);

#endif
