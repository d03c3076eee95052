/* SPDX-License-Identifier: Apache-2.0
 *
 * Class activation maps: the head applied to each position of its input map. That map is still in
 * memory after infer, because no later operation reuses its memory. The work is a few million
 * products, so one thread does it. Pooled features are what the head has kept.
 */
#include <string.h>

#include "engine/cpu/cpu_engine.h"

static void position(const struct cpu_engine *e, const struct chex_op *op, size_t pixel,
                     float *feature, float *logits_out) {
    const size_t channels = (size_t)op->in_channels;
    const float *w = e->param + e->net->params[op->weight].offset;
    const float *bias = e->param + e->net->params[op->bias].offset;
    const struct cpu_affine norm = chex_cpu_affine(e, op->in_bn, 0);
    const struct cpu_stored x = chex_cpu_x(e, op->in, pixel, 0, 1);
    e->k->load(feature, channels, &x, 1, op->in_channels, norm.scale, norm.shift, norm.relu);
    for (int k = 0; k < e->net->classes; k++) {
        double sum = (double)bias[k];
        for (size_t c = 0; c < channels; c++)
            sum += (double)w[(size_t)k * channels + c] * (double)feature[c];
        logits_out[k] = (float)sum;
    }
}

enum chex_status chex_cpu_class_maps(void *self, int image, float *maps_out,
                                     struct chex_error *err) {
    (void)err;
    const struct cpu_engine *e = self;
    const struct chex_op *op = &e->net->ops[e->net->op_count - 1];
    const size_t hw = (size_t)e->bufs[op->in].hw, positions = hw * hw;
    for (size_t p = 0; p < positions; p++)
        position(e, op, (size_t)image * positions + p, e->scratch[0].a,
                 maps_out + p * (size_t)e->net->classes);
    return CHEX_OK;
}

enum chex_status chex_cpu_features(void *self, int n, float *features_out, struct chex_error *err) {
    (void)err;
    const struct cpu_engine *e = self;
    const struct chex_op *op = &e->net->ops[e->net->op_count - 1];
    memcpy(features_out, e->feature, (size_t)n * (size_t)op->in_channels * sizeof *features_out);
    return CHEX_OK;
}
