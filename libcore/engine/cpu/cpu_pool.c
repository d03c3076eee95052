/* SPDX-License-Identifier: Apache-2.0
 *
 * Maximum and average pooling of a normalised map. Forward tiles divide the output map, backward
 * tiles the input map. In both directions each pixel gathers its sum, so threads never write to the
 * same pixel.
 */
#include "engine/cpu/cpu_engine.h"

enum { PIXELS = 128, BACK_PIXELS = 512, MAX_WINDOWS = CPU_MAX_TAPS };

/* Rows of the other map that share a window with rows [from, to] of this one, inside [0, hw). */
struct span {
    int from, count;
};
static struct span inputs_of(const struct chex_op *op, int from, int to, int hw) {
    int lo = from * op->stride - op->pad, hi = to * op->stride - op->pad + op->kernel - 1;
    lo = lo < 0 ? 0 : lo;
    hi = hi > hw - 1 ? hw - 1 : hi;
    return (struct span){lo, hi - lo + 1};
}
static struct span outputs_of(const struct chex_op *op, int from, int to, int hw) {
    int lo = chex_cpu_floor_div(from + op->pad - op->kernel, op->stride) + 1;
    int hi = (to + op->pad) / op->stride;
    lo = lo < 0 ? 0 : lo;
    hi = hi > hw - 1 ? hw - 1 : hi;
    return (struct span){lo, hi >= lo ? hi - lo + 1 : 0};
}

static bool plan(struct cpu_engine *e, int index, struct cpu_need *need) {
    const struct chex_op *op = &e->net->ops[index];
    struct cpu_op *mine = &e->ops[index];
    int in_hw = e->bufs[op->in].hw, hw = e->bufs[op->out].hw;
    mine->fwd = chex_cpu_tiling(hw, PIXELS);
    mine->bwd = chex_cpu_tiling(in_hw, BACK_PIXELS);
    size_t channels = (size_t)op->in_channels;
    size_t in_rows = (size_t)((mine->fwd.rows - 1) * op->stride + op->kernel);
    size_t out_rows = (size_t)(mine->bwd.rows / op->stride + op->kernel);
    size_t forward = (size_t)mine->fwd.images * in_rows * (size_t)in_hw;
    size_t backward = (size_t)mine->bwd.images * out_rows * (size_t)hw;
    chex_cpu_need_floats(&need->a, chex_cpu_max(forward, backward) * channels);
    chex_cpu_need_floats(&need->c,
                         (size_t)mine->fwd.images * (size_t)mine->fwd.rows * (size_t)hw * channels);
    chex_cpu_need_floats(&need->c, (size_t)in_hw * channels);
    return true;
}

static float share_of(const struct chex_op *op) { return 1.0f / (float)(op->kernel * op->kernel); }

/* One output pixel from the normalised rows of its image. */
static void pool_pixel(const struct cpu_job *job, int y, int x, const float *rows, int first_row,
                       float *dst, uint8_t *arg) {
    const struct chex_op *op = job->op;
    int hw = job->e->bufs[op->in].hw, count = 0;
    const float *taps[CPU_MAX_TAPS];
    uint8_t ids[CPU_MAX_TAPS];
    for (int t = 0; t < op->kernel * op->kernel; t++) {
        int iy = y * op->stride - op->pad + t / op->kernel;
        int ix = x * op->stride - op->pad + t % op->kernel;
        if (iy < 0 || iy >= hw || ix < 0 || ix >= hw)
            continue;
        ids[count] = (uint8_t)t;
        taps[count++] = rows + (size_t)((iy - first_row) * hw + ix) * (size_t)op->in_channels;
    }
    if (op->kind == CHEX_OP_MAXPOOL)
        job->e->k->max(dst, arg, taps, ids, count, op->in_channels);
    else
        job->e->k->average(dst, taps, count, share_of(op), op->in_channels);
}

void chex_cpu_pool_row(const struct cpu_job *job, int y, const float *rows, int first_row,
                       float *dst, uint8_t *argmax) {
    size_t channels = (size_t)job->op->in_channels;
    int hw = job->e->bufs[job->op->out].hw;
    for (int x = 0; x < hw; x++, dst += channels)
        pool_pixel(job, y, x, rows, first_row, dst, argmax ? argmax + (size_t)x * channels : NULL);
}

static void forward_item(void *arg, size_t item, int worker) {
    const struct cpu_job *job = arg;
    struct cpu_engine *e = job->e;
    const struct chex_op *op = job->op;
    struct cpu_scratch *s = &e->scratch[worker];
    struct cpu_tile tile = chex_cpu_tile(job->tiling, job->n, (int)item);
    int hw = job->tiling.hw, in_hw = e->bufs[op->in].hw;
    size_t channels = (size_t)op->in_channels, first = chex_cpu_tile_pixel(job->tiling, tile);
    struct span in = inputs_of(op, tile.row, tile.row + tile.rows - 1, in_hw);
    uint8_t *argmax = job->training ? e->ops[job->index].argmax : NULL;
    float *dst = s->c;
    size_t pixel = first;
    for (int image = tile.image; image < tile.image + tile.images; image++) {
        chex_cpu_load(e, op->in, op->in_bn, true, chex_cpu_row(in_hw, image, in.from),
                      in.count * in_hw, op->in_channels, s->a);
        for (int y = tile.row; y < tile.row + tile.rows; y++) {
            chex_cpu_pool_row(job, y, s->a, in.from, dst,
                              argmax ? argmax + pixel * channels : NULL);
            dst += (size_t)hw * channels;
            pixel += (size_t)hw;
        }
    }
    int pixels = chex_cpu_tile_pixels(job->tiling, tile);
    chex_cpu_store_results(&(struct cpu_output){job, (int)item, first},
                           &(struct cpu_results){0, pixels, 0, op->out_channels, s->c, channels});
}

static void forward(struct cpu_job *job) {
    chex_pool_run(job->e->pool, (size_t)job->tiles, forward_item, job);
}

/* The gradient of one input pixel. ys, xs: outputs whose window contains it. */
static void unpool_pixel(const struct cpu_job *job, int image, int y, int x, struct span ys,
                         struct span xs, const float *rows, int first_row, float *dst) {
    const struct chex_op *op = job->op;
    int hw = job->e->bufs[op->out].hw, count = 0;
    size_t channels = (size_t)op->in_channels;
    const float *from[MAX_WINDOWS];
    const uint8_t *arg[MAX_WINDOWS];
    uint8_t ids[MAX_WINDOWS];
    const uint8_t *argmax = job->e->ops[job->index].argmax;
    for (int oy = ys.from; oy < ys.from + ys.count; oy++)
        for (int ox = xs.from; ox < xs.from + xs.count; ox++, count++) {
            from[count] = rows + (size_t)((oy - first_row) * hw + ox) * channels;
            ids[count] = (uint8_t)((y + op->pad - oy * op->stride) * op->kernel +
                                   (x + op->pad - ox * op->stride));
            size_t pixel = chex_cpu_row(hw, image, oy) + (size_t)ox;
            arg[count] = argmax ? argmax + pixel * channels : NULL;
        }
    if (op->kind == CHEX_OP_MAXPOOL)
        job->e->k->unmax(dst, from, arg, ids, count, op->in_channels);
    else
        job->e->k->average(dst, from, count, share_of(op), op->in_channels);
}

static void backward_item(void *arg, size_t item, int worker) {
    const struct cpu_job *job = arg;
    struct cpu_engine *e = job->e;
    const struct chex_op *op = job->op;
    struct cpu_scratch *s = &e->scratch[worker];
    struct cpu_tile tile = chex_cpu_tile(job->tiling, job->n, (int)item);
    int hw = job->tiling.hw, out_hw = e->bufs[op->out].hw;
    size_t channels = (size_t)op->in_channels, pixel = chex_cpu_tile_pixel(job->tiling, tile);
    struct span out = outputs_of(op, tile.row, tile.row + tile.rows - 1, out_hw);
    chex_cpu_clear_sums(job, (int)item, 0, op->in_channels);
    for (int image = tile.image; image < tile.image + tile.images; image++) {
        chex_cpu_load_grad(job, s->a, channels, chex_cpu_row(out_hw, image, out.from),
                           out.count * out_hw);
        for (int y = tile.row; y < tile.row + tile.rows; y++, pixel += (size_t)hw) {
            struct span ys = outputs_of(op, y, y, out_hw);
            for (int x = 0; x < hw; x++)
                unpool_pixel(job, image, y, x, ys, outputs_of(op, x, x, out_hw), s->a, out.from,
                             s->c + (size_t)x * channels);
            chex_cpu_back_store(job, (int)item, 0, 0, op->in_channels,
                                (struct cpu_run){pixel, 0, hw, 1}, s->c, channels);
        }
    }
}

static void backward(struct cpu_job *job) {
    chex_pool_run(job->e->pool, (size_t)job->tiles, backward_item, job);
}

const struct cpu_kind chex_cpu_pool = {plan, forward, backward};
