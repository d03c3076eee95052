/* SPDX-License-Identifier: Apache-2.0
 *
 * Global average and linear layer, in fp32 with sums in double. One image is one tile.
 */
#include <string.h>

#include "engine/cpu/cpu_engine.h"

void chex_cpu_head_plan(struct cpu_engine *e, int index, struct cpu_need *need) {
    const struct chex_op *op = &e->net->ops[index];
    int hw = e->bufs[op->in].hw;
    /* hw rows at most: a tile never holds two images. */
    e->ops[index].fwd = e->ops[index].bwd = (struct cpu_tiling){hw, hw, 1};
    chex_cpu_need_floats(&need->a, (size_t)hw * (size_t)hw * (size_t)op->in_channels);
}

static void forward_item(void *arg, size_t image, int worker) {
    const struct cpu_job *job = arg;
    struct cpu_engine *e = job->e;
    const struct chex_op *op = job->op;
    float *rows = e->scratch[worker].a;
    int hw = e->bufs[op->in].hw, pixels = hw * hw, classes = e->net->classes;
    size_t channels = (size_t)op->in_channels;
    struct cpu_affine norm = chex_cpu_affine(e, op->in_bn, 0);
    struct cpu_stored x = chex_cpu_x(e, op->in, image * (size_t)pixels, 0, 1);
    e->k->load(rows, channels, &x, pixels, op->in_channels, norm.scale, norm.shift, norm.relu);
    float *feature = e->feature + image * channels;
    for (size_t c = 0; c < channels; c++) {
        double sum = 0;
        for (int p = 0; p < pixels; p++)
            sum += (double)rows[(size_t)p * channels + c];
        feature[c] = (float)(sum / pixels);
    }
    const float *w = e->param + e->net->params[op->weight].offset;
    const float *bias = e->param + e->net->params[op->bias].offset;
    for (int k = 0; k < classes; k++) {
        double sum = (double)bias[k];
        for (size_t c = 0; c < channels; c++)
            sum += (double)w[(size_t)k * channels + c] * (double)feature[c];
        e->logit[image * (size_t)classes + (size_t)k] = (float)sum;
    }
}

void chex_cpu_head_forward(struct cpu_job *job) {
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
    struct cpu_stored g = chex_cpu_g(e, op->in, image * (size_t)pixels, 0, 1);
    struct cpu_stored x = chex_cpu_x(e, op->in, image * (size_t)pixels, 0, 1);
    bool add = e->ops[job->index].add;
    if (op->in_bn < 0) {
        e->k->back(&g, &x, dv, 0, pixels, op->in_channels, NULL, false, add, NULL, NULL);
        return;
    }
    float *s1 = e->part[0] + image * channels, *s2 = e->part[1] + image * channels;
    memset(s1, 0, channels * sizeof *s1);
    memset(s2, 0, channels * sizeof *s2);
    struct cpu_norm norm = chex_cpu_norm_at(e, op->in_bn, 0);
    e->k->back(&g, &x, dv, 0, pixels, op->in_channels, &norm, true, add, s1, s2);
}

void chex_cpu_head_backward(struct cpu_job *job) {
    struct cpu_engine *e = job->e;
    chex_pool_run(e->pool, (size_t)e->net->classes, weight_item, job);
    chex_pool_run(e->pool, (size_t)job->n, map_item, job);
    if (job->op->in_bn >= 0)
        chex_cpu_norm_back(job, job->op->in_bn, 0);
}
