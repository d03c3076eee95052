/* SPDX-License-Identifier: Apache-2.0
 *
 * The end of a residual block: out = ReLU(norm(in) + side). The sign of the output is the mask of
 * the backward. No batch norm may read the output (cpu_buffers.c checks this).
 */
#include <string.h>

#include "engine/cpu/cpu_engine.h"

/* Pixels of a run. A tile is processed in runs that stay in the first-level cache. */
static int chunk_of(const struct chex_op *op) {
    enum { FLOATS = 3072 };
    return FLOATS / op->out_channels > 1 ? FLOATS / op->out_channels : 1;
}

void chex_cpu_residual_add_plan(struct cpu_engine *e, int index, struct cpu_need *need) {
    enum { FLOATS = 16384, MIN = 16 };
    const struct chex_op *op = &e->net->ops[index];
    int pixels = FLOATS / op->out_channels;
    e->ops[index].fwd = e->ops[index].bwd =
        chex_cpu_tiling(e->bufs[op->out].hw, pixels < MIN ? MIN : pixels);
    chex_cpu_need_floats(&need->a, (size_t)chunk_of(op) * (size_t)op->out_channels);
    chex_cpu_need_floats(&need->c, (size_t)chunk_of(op) * (size_t)op->out_channels);
}

static void load(const struct cpu_job *job, int buffer, int bn, size_t pixel, int pixels,
                 float *dst) {
    const struct cpu_engine *e = job->e;
    struct cpu_stored x = chex_cpu_x(e, buffer, pixel, 0, 1);
    int channels = job->op->out_channels;
    struct cpu_affine norm = chex_cpu_affine(e, bn, 0);
    e->k->load(dst, (size_t)channels, &x, pixels, channels, norm.scale, norm.shift, 0);
}

/* One run of a tile: pixels [first, first + count) of the batch. */
struct run {
    size_t item, first;
    int count;
};

static void forward_run(const struct cpu_job *job, struct run r, const struct cpu_scratch *s) {
    struct cpu_engine *e = job->e;
    const struct chex_op *op = job->op;
    size_t channels = (size_t)op->out_channels;
    load(job, op->in, op->in_bn, r.first, r.count, s->a);
    load(job, op->side_in, op->side_bn, r.first, r.count, s->c);
    e->k->add_relu(s->a, s->c, (size_t)r.count * channels);
    struct cpu_stored x = chex_cpu_x(e, op->out, r.first, op->out_first, 1);
    e->k->store(&x, s->a, channels, r.count, op->out_channels, NULL);
}

/* Stores the masked gradient for one of the two summands. side: 0 for in, 1 for side_in. */
static void store_gradient(const struct cpu_job *job, int side, struct run r, const float *du) {
    struct cpu_engine *e = job->e;
    const struct chex_op *op = job->op;
    int buffer = side ? op->side_in : op->in, bn = side ? op->side_bn : op->in_bn;
    bool add = side ? e->ops[job->index].side_add : e->ops[job->index].add;
    size_t channels = (size_t)op->out_channels;
    struct cpu_stored g = chex_cpu_g(e, buffer, r.first, 0, 1);
    struct cpu_stored x = chex_cpu_x(e, buffer, r.first, 0, 1);
    if (bn < 0) {
        e->k->back(&g, &x, du, channels, r.count, op->out_channels, NULL, false, add, NULL, NULL);
        return;
    }
    float *s1 = e->part[2 * side] + r.item * channels;
    float *s2 = e->part[2 * side + 1] + r.item * channels;
    struct cpu_norm norm = chex_cpu_norm_at(e, bn, 0);
    e->k->back(&g, &x, du, channels, r.count, op->out_channels, &norm, false, add, s1, s2);
}

static void backward_run(const struct cpu_job *job, struct run r, const struct cpu_scratch *s) {
    const struct chex_op *op = job->op;
    size_t channels = (size_t)op->out_channels;
    chex_cpu_load_grad(job, s->a, channels, r.first, r.count);
    load(job, op->out, CHEX_NET_NONE, r.first, r.count, s->c);
    job->e->k->mask(s->a, s->c, (size_t)r.count * channels);
    store_gradient(job, 0, r, s->a);
    store_gradient(job, 1, r, s->a);
}

static void each_run(const struct cpu_job *job, size_t item, const struct cpu_scratch *s,
                     void (*work)(const struct cpu_job *, struct run, const struct cpu_scratch *)) {
    struct cpu_tile tile = chex_cpu_tile(job->tiling, job->n, (int)item);
    int pixels = chex_cpu_tile_pixels(job->tiling, tile), chunk = chunk_of(job->op);
    size_t first = chex_cpu_tile_pixel(job->tiling, tile);
    for (int done = 0; done < pixels; done += chunk) {
        int count = pixels - done < chunk ? pixels - done : chunk;
        work(job, (struct run){item, first + (size_t)done, count}, s);
    }
}

static void forward_item(void *arg, size_t item, int worker) {
    const struct cpu_job *job = arg;
    each_run(job, item, &job->e->scratch[worker], forward_run);
}

static void backward_item(void *arg, size_t item, int worker) {
    const struct cpu_job *job = arg;
    struct cpu_engine *e = job->e;
    size_t channels = (size_t)job->op->out_channels;
    for (int k = 0; k < 4; k++)
        memset(e->part[k] + item * channels, 0, channels * sizeof *e->part[k]);
    each_run(job, item, &e->scratch[worker], backward_run);
}

void chex_cpu_residual_add_forward(struct cpu_job *job) {
    chex_pool_run(job->e->pool, (size_t)job->tiles, forward_item, job);
}

void chex_cpu_residual_add_backward(struct cpu_job *job) {
    chex_pool_run(job->e->pool, (size_t)job->tiles, backward_item, job);
    if (job->op->in_bn >= 0)
        chex_cpu_norm_back(job, job->op->in_bn, 0);
    if (job->op->side_bn >= 0)
        chex_cpu_norm_back(job, job->op->side_bn, 1);
}
