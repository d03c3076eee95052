/* SPDX-License-Identifier: Apache-2.0
 *
 * The end of a residual block: out = ReLU(norm(in) + side). The sign of the output is the mask of
 * the backward. No batch norm may read the output (cpu_buffers.c checks this).
 */
#include "engine/cpu/cpu_engine.h"

/* Pixels of a run. A tile is processed in runs that stay in the first-level cache. */
static int chunk_of(const struct chex_op *op) {
    enum { FLOATS = 3072 };
    return FLOATS / op->out_channels > 1 ? FLOATS / op->out_channels : 1;
}

static bool plan(struct cpu_engine *e, int index, struct cpu_need *need) {
    enum { FLOATS = 16384, MIN = 16 };
    const struct chex_op *op = &e->net->ops[index];
    int pixels = FLOATS / op->out_channels;
    e->ops[index].fwd = e->ops[index].bwd =
        chex_cpu_tiling(e->bufs[op->out].hw, pixels < MIN ? MIN : pixels);
    chex_cpu_need_floats(&need->a, (size_t)chunk_of(op) * (size_t)op->out_channels);
    chex_cpu_need_floats(&need->c, (size_t)chunk_of(op) * (size_t)op->out_channels);
    return true;
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
    chex_cpu_load(e, op->in, op->in_bn, false, r.first, r.count, op->out_channels, s->a);
    chex_cpu_load(e, op->side_in, op->side_bn, false, r.first, r.count, op->out_channels, s->c);
    e->k->add_relu(s->a, s->c, (size_t)r.count * channels);
    struct cpu_stored x = chex_cpu_x(e, op->out, r.first, op->out_first, 1);
    e->k->store(&x, s->a, channels, r.count, op->out_channels, NULL);
}

static void backward_run(const struct cpu_job *job, struct run r, const struct cpu_scratch *s) {
    const struct chex_op *op = job->op;
    size_t channels = (size_t)op->out_channels;
    chex_cpu_load_grad(job, s->a, channels, r.first, r.count);
    chex_cpu_load(job->e, op->out, CHEX_NET_NONE, false, r.first, r.count, op->out_channels, s->c);
    job->e->k->mask(s->a, s->c, (size_t)r.count * channels);
    for (int side = 0; side < 2; side++)
        chex_cpu_back_store(job, (int)r.item, side, 0, op->out_channels,
                            (struct cpu_run){r.first, 0, r.count, 1}, s->a, channels);
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
    chex_cpu_clear_sums(job, (int)item, 0, job->op->in_channels);
    each_run(job, item, &job->e->scratch[worker], backward_run);
}

static void forward(struct cpu_job *job) {
    chex_pool_run(job->e->pool, (size_t)job->tiles, forward_item, job);
}

static void backward(struct cpu_job *job) {
    chex_pool_run(job->e->pool, (size_t)job->tiles, backward_item, job);
}

const struct cpu_kind chex_cpu_residual_add = {plan, forward, backward};
