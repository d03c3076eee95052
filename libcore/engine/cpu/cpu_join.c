/* SPDX-License-Identifier: Apache-2.0
 *
 * The end of a residual block: out = ReLU(norm(in) + side). The mask of its backward is the output
 * itself.
 */
#include <string.h>

#include "engine/cpu/cpu.h"

void chex_cpu_join_plan(struct cpu_engine *e, int index, struct cpu_need *need) {
    enum { FLOATS = 16384, LEAST = 16 };
    const struct chex_op *op = &e->net->ops[index];
    int pixels = FLOATS / op->out_channels;
    struct cpu_tiling t = chex_cpu_tiling(e->bufs[op->out].hw, pixels < LEAST ? LEAST : pixels);
    e->ops[index].fwd = e->ops[index].bwd = t;
    size_t floats = (size_t)t.images * (size_t)t.rows * (size_t)t.hw * (size_t)op->out_channels;
    chex_cpu_need_floats(&need->a, floats);
    chex_cpu_need_floats(&need->c, floats);
}

static void load(const struct cpu_job *job, int buffer, int bn, size_t pixel, int pixels,
                 float *dst) {
    const struct cpu_engine *e = job->e;
    struct cpu_stored x = chex_cpu_x(e, buffer, pixel, 0, 1);
    int channels = job->op->out_channels;
    e->k->load(dst, (size_t)channels, &x, pixels, channels, bn >= 0 ? e->bns[bn].scale : NULL,
               bn >= 0 ? e->bns[bn].shift : NULL, 0);
}

static void forward_item(void *arg, size_t item, int worker) {
    const struct cpu_job *job = arg;
    struct cpu_engine *e = job->e;
    const struct chex_op *op = job->op;
    struct cpu_scratch *s = &e->scratch[worker];
    struct cpu_tile tile = chex_cpu_tile(job->tiling, job->n, (int)item);
    int pixels = chex_cpu_tile_pixels(job->tiling, tile);
    size_t pixel = chex_cpu_tile_pixel(job->tiling, tile), channels = (size_t)op->out_channels;
    load(job, op->in, op->in_bn, pixel, pixels, s->a);
    load(job, op->side_in, op->side_bn, pixel, pixels, s->c);
    e->k->join(s->a, s->c, (size_t)pixels * channels);
    struct cpu_stored x = chex_cpu_x(e, op->out, pixel, op->out_first, 1);
    e->k->store(&x, s->a, channels, pixels, op->out_channels);
    chex_cpu_norm_tile(job, (int)item, s->a, channels, pixels, 0, op->out_channels);
}

void chex_cpu_join_forward(struct cpu_job *job) {
    chex_pool_run(job->e->pool, (size_t)job->tiles, forward_item, job);
}

/* The masked gradient into one of the two summands; side: 0 or 1. */
static void store_gradient(const struct cpu_job *job, size_t item, int side, size_t pixel,
                           int pixels, const float *du) {
    struct cpu_engine *e = job->e;
    const struct chex_op *op = job->op;
    int buffer = side ? op->side_in : op->in, bn = side ? op->side_bn : op->in_bn;
    bool add = side ? e->ops[job->index].side_add : e->ops[job->index].add;
    size_t channels = (size_t)op->out_channels;
    struct cpu_stored g = chex_cpu_g(e, buffer, pixel, 0, 1);
    struct cpu_stored x = chex_cpu_x(e, buffer, pixel, 0, 1);
    if (bn < 0) {
        e->k->back(&g, &x, du, channels, pixels, op->out_channels, NULL, false, add, NULL, NULL);
        return;
    }
    float *s1 = e->part[2 * side] + item * channels, *s2 = e->part[2 * side + 1] + item * channels;
    memset(s1, 0, channels * sizeof *s1);
    memset(s2, 0, channels * sizeof *s2);
    struct cpu_norm norm = chex_cpu_norm_at(e, bn, 0);
    e->k->back(&g, &x, du, channels, pixels, op->out_channels, &norm, false, add, s1, s2);
}

static void backward_item(void *arg, size_t item, int worker) {
    const struct cpu_job *job = arg;
    struct cpu_engine *e = job->e;
    const struct chex_op *op = job->op;
    struct cpu_scratch *s = &e->scratch[worker];
    struct cpu_tile tile = chex_cpu_tile(job->tiling, job->n, (int)item);
    int pixels = chex_cpu_tile_pixels(job->tiling, tile);
    size_t pixel = chex_cpu_tile_pixel(job->tiling, tile), channels = (size_t)op->out_channels;
    chex_cpu_load_grad(job, s->a, channels, pixel, pixels);
    load(job, op->out, CHEX_NET_NONE, pixel, pixels, s->c);
    e->k->mask(s->a, s->c, (size_t)pixels * channels);
    store_gradient(job, item, 0, pixel, pixels, s->a);
    store_gradient(job, item, 1, pixel, pixels, s->a);
}

void chex_cpu_join_backward(struct cpu_job *job) {
    chex_pool_run(job->e->pool, (size_t)job->tiles, backward_item, job);
    if (job->op->in_bn >= 0)
        chex_cpu_norm_back(job, job->op->in_bn, 0);
    if (job->op->side_bn >= 0)
        chex_cpu_norm_back(job, job->op->side_bn, 1);
}
