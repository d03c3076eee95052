/* SPDX-License-Identifier: Apache-2.0
 *
 * The end of a residual block: batch norm of the branch, plus the shortcut, then ReLU.
 */
#include "engine/ref/ref_ops.h"

struct add_loop {
    const struct chex_ref_ctx *ctx;
    const struct chex_ref_map *x, *side, *out;
    const struct chex_ref_bn *bn, *side_bn;
};

static double normalised(const struct chex_ref_bn *bn, double x, int c) {
    if (!bn)
        return x;
    return (x - bn->mean[c]) * bn->inv[c] * (double)bn->gamma[c] + (double)bn->beta[c];
}

static void add_row(void *arg, size_t row, int worker) {
    (void)worker;
    const struct add_loop *l = arg;
    const int image = (int)(row / (size_t)l->out->h), y = (int)(row % (size_t)l->out->h);
    for (int x = 0; x < l->out->w; x++) {
        const float *in = chex_ref_at(l->x, image, y, x);
        const float *side = chex_ref_at(l->side, image, y, x);
        float *out = chex_ref_at(l->out, image, y, x);
        for (int c = 0; c < l->out->c; c++) {
            double v =
                normalised(l->bn, (double)in[c], c) + normalised(l->side_bn, (double)side[c], c);
            out[c] = chex_ref_store(l->ctx, v < 0 ? 0 : v);
        }
    }
}

void chex_ref_residual_add_forward(const struct chex_ref_ctx *ctx, const struct chex_ref_map *x,
                                   const struct chex_ref_bn *bn, const struct chex_ref_map *side,
                                   const struct chex_ref_bn *side_bn,
                                   const struct chex_ref_map *out) {
    struct add_loop l = {
        .ctx = ctx, .x = x, .side = side, .out = out, .bn = bn, .side_bn = side_bn};
    chex_ref_each(ctx, (size_t)out->n * (size_t)out->h, add_row, &l);
}
