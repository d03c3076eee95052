/* SPDX-License-Identifier: Apache-2.0
 *
 * The optimisers on host memory; update.h gives the formulas. Scalars are computed in double and
 * rounded to fp32 once, so that each element needs fp32 operations only.
 */
#include "engine/update.h"

#include <math.h>

/* No `default` here and in chex_update_param: the compiler names the optimiser that lacks a case.
 */
int chex_optim_moments(enum chex_optim optim) {
    switch (optim) {
    case CHEX_SGD:
    case CHEX_LARS: return 1;
    case CHEX_ADAM:
    case CHEX_ADAMW: return 2;
    }
    return 0;
}

enum chex_status chex_update_check(const struct chex_update *u, struct chex_error *err) {
    if (chex_optim_moments(u->optim) == 0)
        return chex_error_set(err, CHEX_E_USAGE, "--opt: engine/update.c has no rule for it");
    if (u->nesterov && u->optim != CHEX_SGD)
        return chex_error_set(err, CHEX_E_USAGE, "--nesterov: --opt is %s (expected sgd)",
                              chex_optim_names[u->optim]);
    if (u->nesterov && !(u->momentum > 0))
        return chex_error_set(err, CHEX_E_USAGE,
                              "--nesterov: --momentum is %g (expected more than 0)", u->momentum);
    return CHEX_OK;
}

/* Eight sums, so that the compiler can use vectors; they are added in pairs. */
void chex_clip_sum(struct chex_clip *clip, const float *grad, size_t count, int piece) {
    enum { SUMS = 8 };
    const size_t length = (count + CHEX_NORM_PIECES - 1) / CHEX_NORM_PIECES;
    const size_t first = (size_t)piece * length;
    const size_t from = first < count ? first : count;
    const size_t to = count - from < length ? count : from + length;
    double sums[SUMS] = {0};
    size_t i = from;
    for (; i + SUMS <= to; i += SUMS)
        for (int k = 0; k < SUMS; k++)
            sums[k] += (double)grad[i + (size_t)k] * (double)grad[i + (size_t)k];
    for (int k = 0; i < to; i++, k++)
        sums[k] += (double)grad[i] * (double)grad[i];
    clip->squares[piece] =
        ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

struct chex_update chex_clip_apply(struct chex_clip *clip, const struct chex_update *u) {
    struct chex_update clipped = *u;
    double sum = 0;
    for (int i = 0; i < CHEX_NORM_PIECES; i++)
        sum += clip->squares[i];
    const double norm = sqrt(sum) * u->grad_scale, factor = u->clip_norm / (norm + 1e-6);
    clip->norms.sum += norm;
    clip->norms.largest = fmax(clip->norms.largest, norm);
    clip->norms.updates++;
    if (factor < 1)
        clipped.grad_scale *= factor;
    return clipped;
}

void chex_clip_take_norms(struct chex_clip *clip, struct chex_grad_norms *out) {
    *out = clip->norms;
    clip->norms = (struct chex_grad_norms){0};
}

static bool is_weight(const struct chex_param *p) {
    return p->kind == CHEX_PARAM_CONV || p->kind == CHEX_PARAM_FC_WEIGHT;
}

static void adam(const struct chex_update *u, size_t count, float *w, float *m, float *v,
                 const float *g) {
    float scale = (float)u->grad_scale, b1 = (float)u->beta1, b2 = (float)u->beta2;
    float c1 = (float)(1.0 - u->beta1), c2 = (float)(1.0 - u->beta2);
    float step = (float)(u->lr / (1.0 - pow(u->beta1, (double)u->step)));
    float root = (float)(1.0 / sqrt(1.0 - pow(u->beta2, (double)u->step)));
    float decay = u->optim == CHEX_ADAM ? (float)u->weight_decay : 0;
    float shrink = u->optim == CHEX_ADAMW ? (float)(1.0 - u->lr * u->weight_decay) : 1;
    float eps = (float)u->eps;
    for (size_t i = 0; i < count; i++) {
        float gi = g[i] * scale + decay * w[i];
        m[i] = b1 * m[i] + c1 * gi;
        v[i] = b2 * v[i] + c2 * gi * gi;
        w[i] = shrink * w[i] - step * m[i] / (sqrtf(v[i]) * root + eps);
    }
}

static void sgd(const struct chex_update *u, size_t count, double local_lr, float *w, float *m,
                const float *g) {
    float scale = (float)(u->grad_scale * local_lr), decay = (float)(u->weight_decay * local_lr);
    /* Momentum starts from zero, which gives PyTorch's m = g at step 1. */
    float mu = (float)u->momentum, lr = (float)u->lr;
    if (u->nesterov) {
        for (size_t i = 0; i < count; i++) {
            float gi = g[i] * scale + decay * w[i];
            m[i] = mu * m[i] + gi;
            w[i] -= lr * (gi + mu * m[i]);
        }
        return;
    }
    for (size_t i = 0; i < count; i++) {
        m[i] = mu * m[i] + (g[i] * scale + decay * w[i]);
        w[i] -= lr * m[i];
    }
}

/* The factor by which LARS scales gradient and weight decay of one parameter. 1 for other
 * optimisers, and for batch norms and biases. */
static double trust_ratio(const struct chex_update *u, const struct chex_param *p, const float *w,
                          const float *g) {
    if (u->optim != CHEX_LARS || !is_weight(p))
        return 1;
    double ww = 0, gg = 0;
    for (size_t i = 0; i < p->count; i++) {
        ww += (double)w[i] * (double)w[i];
        gg += (double)g[i] * (double)g[i];
    }
    double bottom = sqrt(gg) * u->grad_scale + u->weight_decay * sqrt(ww);
    return ww > 0 && bottom > 0 ? 0.001 * sqrt(ww) / bottom : 1;
}

void chex_update_param(const struct chex_update *u, const struct chex_net *net,
                       const struct chex_param *p, float *w, float *m, float *v, const float *g) {
    struct chex_update own = *u;
    if (!u->decay_norms && !is_weight(p))
        own.weight_decay = 0;
    if (p->kind == CHEX_PARAM_BN_MEAN || p->kind == CHEX_PARAM_BN_VAR) {
        float scale = (float)u->grad_scale, keep = net->bn_momentum;
        for (size_t i = 0; i < p->count; i++)
            w[i] += keep * (g[i] * scale - w[i]);
        return;
    }
    switch (u->optim) {
    case CHEX_ADAM:
    case CHEX_ADAMW: adam(&own, p->count, w, m, v, g); return;
    case CHEX_SGD:
    case CHEX_LARS: sgd(&own, p->count, trust_ratio(&own, p, w, g), w, m, g); return;
    }
}

void chex_ema_move(double decay, float *ema, const float *w, size_t count) {
    const float rest = (float)(1.0 - decay);
    for (size_t i = 0; i < count; i++)
        ema[i] += rest * (w[i] - ema[i]);
}
