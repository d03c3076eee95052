/* SPDX-License-Identifier: Apache-2.0
 *
 * The definition of the optimisers, element by element, on host memory. An engine with its own
 * fused update must agree with it up to rounding.
 *
 * SGD with momentum (PyTorch's form): g += wd * w; m = mu * m + g (m = g at step 1); w -= lr * m.
 * Adam (Kingma and Ba 2015) with L2 added to g; AdamW (Loshchilov and Hutter 2019) with decoupled
 * decay w -= lr * wd * w first. LARS (You et al. 2017): g scaled per parameter by
 * 0.001 * |w| / (|g| + wd * |w|) for convolution and linear weights, then SGD.
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

/* Number of moments that the optimiser keeps: 1 (SGD, LARS) or 2 (Adam, AdamW). */
int chex_optim_moments(enum chex_optim optim);

#endif
