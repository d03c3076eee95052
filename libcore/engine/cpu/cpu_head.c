/* SPDX-License-Identifier: Apache-2.0
 *
 * Global average and linear layer, in fp32 with sums in double. One image is one tile.
 *
 * Class activation maps apply the linear layer to each position of the input map. That map is still
 * in memory after infer, because no later operation reuses its memory. The work is a few million
 * products, so one thread does it. Pooled features are what the forward pass has kept.
 */
#include <string.h>

#include "engine/cpu/cpu_engine.h"

static bool plan(struct cpu_engine *e, int index, struct cpu_need *need) {
    const struct chex_op *op = &e->net->ops[index];
    int hw = e->bufs[op->in].hw;
    /* hw rows at most: a tile never holds two images. */
    e->ops[index].fwd = e->ops[index].bwd = (struct cpu_tiling){hw, hw, 1};
    chex_cpu_need_floats(&need->a, (size_t)hw * (size_t)hw * (size_t)op->in_channels);
    return true;
}

static void linear(const struct cpu_engine *e, const struct chex_op *op, const float *feature,
                   float *logits_out) {
    const size_t channels = (size_t)op->in_channels;
    const float *w = e->param + e->net->params[op->weight].offset;
    const float *bias = e->param + e->net->params[op->bias].offset;
    for (int k = 0; k < e->net->classes; k++) {
        double sum = (double)bias[k];
        for (size_t c = 0; c < channels; c++)
            sum += (double)w[(size_t)k * channels + c] * (double)feature[c];
        logits_out[k] = (float)sum;
    }
}

static void forward_item(void *arg, size_t image, int worker) {
    const struct cpu_job *job = arg;
    struct cpu_engine *e = job->e;
    const struct chex_op *op = job->op;
    float *rows = e->scratch[worker].a;
    int hw = e->bufs[op->in].hw, pixels = hw * hw;
    size_t channels = (size_t)op->in_channels;
    chex_cpu_load(e, op->in, op->in_bn, true, image * (size_t)pixels, pixels, op->in_channels,
                  rows);
    float *feature = e->feature + image * channels;
    for (size_t c = 0; c < channels; c++) {
        double sum = 0;
        for (int p = 0; p < pixels; p++)
            sum += (double)rows[(size_t)p * channels + c];
        feature[c] = (float)(sum / pixels);
    }
    linear(e, op, feature, e->logit + image * (size_t)e->net->classes);
}

static void forward(struct cpu_job *job) {
    chex_pool_run(job->e->pool, (size_t)job->n, forward_item, job);
}

/* Item: one class. */
static void weight_item(void *arg, size_t k, int worker) {
    (void)worker;
    const struct cpu_job *job = arg;
    struct cpu_engine *e = job->e;
    size_t channels = (size_t)job->op->in_channels, classes = (size_t)e->net->classes;
    float *dw = job->grad + e->net->params[job->op->weight].offset + k * channels;
    double dbias = 0;
    memset(dw, 0, channels * sizeof *dw);
    for (size_t i = 0; i < (size_t)job->n; i++) {
        float d = e->logit[i * classes + k];
        dbias += (double)d;
        for (size_t c = 0; c < channels; c++)
            dw[c] += d * e->feature[i * channels + c];
    }
    job->grad[e->net->params[job->op->bias].offset + k] = (float)dbias;
}

/* Item: one image. All pixels have the same gradient, so it is one row with pitch 0. */
static void map_item(void *arg, size_t image, int worker) {
    (void)worker;
    const struct cpu_job *job = arg;
    struct cpu_engine *e = job->e;
    const struct chex_op *op = job->op;
    int hw = e->bufs[op->in].hw, pixels = hw * hw;
    size_t channels = (size_t)op->in_channels, classes = (size_t)e->net->classes;
    const float *w = e->param + e->net->params[op->weight].offset;
    float *dv = e->feature + ((size_t)e->config.batch + image) * channels;
    for (size_t c = 0; c < channels; c++) {
        double sum = 0;
        for (size_t k = 0; k < classes; k++)
            sum += (double)e->logit[image * classes + k] * (double)w[k * channels + c];
        dv[c] = (float)(sum / pixels);
    }
    chex_cpu_clear_sums(job, (int)image, 0, op->in_channels);
    chex_cpu_back_store(job, (int)image, 0, 0, op->in_channels,
                        (struct cpu_run){image * (size_t)pixels, 0, pixels, 1}, dv, 0);
}

static void backward(struct cpu_job *job) {
    struct cpu_engine *e = job->e;
    chex_pool_run(e->pool, (size_t)e->net->classes, weight_item, job);
    chex_pool_run(e->pool, (size_t)job->n, map_item, job);
}

const struct cpu_kind chex_cpu_head = {plan, forward, backward};

enum chex_status chex_cpu_class_maps(void *self, int image, float *maps_out,
                                     struct chex_error *err) {
    (void)err;
    const struct cpu_engine *e = self;
    const struct chex_op *op = &e->net->ops[e->net->op_count - 1];
    const size_t hw = (size_t)e->bufs[op->in].hw, positions = hw * hw;
    float *feature = e->scratch[0].a;
    for (size_t p = 0; p < positions; p++) {
        chex_cpu_load(e, op->in, op->in_bn, true, (size_t)image * positions + p, 1, op->in_channels,
                      feature);
        linear(e, op, feature, maps_out + p * (size_t)e->net->classes);
    }
    return CHEX_OK;
}

enum chex_status chex_cpu_features(void *self, int n, float *features_out, struct chex_error *err) {
    (void)err;
    const struct cpu_engine *e = self;
    const struct chex_op *op = &e->net->ops[e->net->op_count - 1];
    memcpy(features_out, e->feature, (size_t)n * (size_t)op->in_channels * sizeof *features_out);
    return CHEX_OK;
}
