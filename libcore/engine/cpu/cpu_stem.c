/* SPDX-License-Identifier: Apache-2.0
 *
 * The convolution that reads the image. Its three input channels are one grey value g under three
 * affine maps, (g - m_c) / s_c, so it is exactly a convolution of two channels, g and the constant
 * 1 inside the image:
 *     sum_c W_c (g - m_c) / s_c  =  (sum_c W_c / s_c) g  +  (sum_c -m_c W_c / s_c) 1,
 *     dW_c = (D_g - m_c D_1) / s_c.
 * Rows of the folded weight: (kernel row, channel, kernel column). Patches are gathered into a
 * matrix of that depth. With bf16 the three-channel weights are rounded, the image is not.
 */
#include <string.h>

#include "engine/cpu/cpu.h"

size_t chex_cpu_stem_depth(const struct chex_op *op) {
    return 2 * (size_t)op->kernel * (size_t)op->kernel;
}

static int halo(const struct chex_op *op, int rows) { return (rows - 1) * op->stride + op->kernel; }

void chex_cpu_stem_plan(struct cpu_engine *e, int index, struct cpu_need *need) {
    enum { PIXELS = 256 };
    const struct chex_op *op = &e->net->ops[index];
    struct cpu_tiling t = chex_cpu_tiling(e->bufs[op->out].hw, PIXELS);
    e->ops[index].fwd = e->ops[index].bwd = t;
    size_t pixels = (size_t)t.images * (size_t)t.rows * (size_t)t.hw;
    size_t width = (size_t)(e->config.image_size + 2 * op->pad);
    chex_cpu_need_floats(&need->a, pixels * chex_cpu_stem_depth(op));
    chex_cpu_need_floats(&need->b, 2 * (size_t)halo(op, t.rows) * width);
    chex_cpu_need_floats(&need->c, pixels * ((size_t)op->out_channels + CPU_PAD));
    need->pixels = chex_cpu_max(need->pixels, pixels);
}

static float round_bf16(float v) {
    uint32_t u;
    memcpy(&u, &v, sizeof u);
    u = (u + 0x7fff + ((u >> 16) & 1)) & 0xffff0000u;
    memcpy(&v, &u, sizeof v);
    return v;
}

/* Row of the folded weight for the grey channel of a position; the constant's is `kernel` later. */
static size_t row_of(const struct chex_op *op, int position) {
    return (size_t)(position / op->kernel * 2 * op->kernel + position % op->kernel);
}

void chex_cpu_stem_pack(struct cpu_engine *e, int index) {
    const struct chex_op *op = &e->net->ops[index];
    const struct chex_net *net = e->net;
    const float *w = e->param + net->params[op->weight].offset;
    size_t panel = (size_t)e->k->panel, depth = chex_cpu_stem_depth(op);
    size_t out = (size_t)op->out_channels;
    for (int t = 0; t < op->kernel * op->kernel; t++)
        for (size_t o = 0; o < out; o++) {
            double grey = 0, one = 0;
            for (size_t c = 0; c < 3; c++) {
                float v = w[((size_t)t * 3 + c) * out + o];
                double scaled = (double)(e->bf16 ? round_bf16(v) : v) / (double)net->std[c];
                grey += scaled;
                one -= scaled * (double)net->mean[c];
            }
            float *dst = (float *)e->ops[index].weight +
                         (o / panel * depth + row_of(op, t)) * panel + o % panel;
            dst[0] = (float)grey;
            dst[(size_t)op->kernel * panel] = (float)one;
        }
}

/* The rows that a tile of one image reads, with zeros around: grey values, then ones. */
static void fill_planes(const struct cpu_job *job, int image, struct cpu_tile tile, float *grey,
                        float *one) {
    const struct chex_op *op = job->op;
    int size = job->e->config.image_size, width = size + 2 * op->pad;
    int first = tile.row * op->stride - op->pad, rows = halo(op, tile.rows);
    memset(grey, 0, (size_t)rows * (size_t)width * sizeof *grey);
    memset(one, 0, (size_t)rows * (size_t)width * sizeof *one);
    for (int r = 0; r < rows; r++) {
        int y = first + r;
        if (y < 0 || y >= size)
            continue;
        size_t at = (size_t)r * (size_t)width + (size_t)op->pad;
        memcpy(grey + at, job->pixels + ((size_t)image * (size_t)size + (size_t)y) * (size_t)size,
               (size_t)size * sizeof *grey);
        for (int x = 0; x < size; x++)
            one[at + (size_t)x] = 1;
    }
}

/* Patches of a tile into s->a; s->off has their places. */
static void gather(const struct cpu_job *job, struct cpu_tile tile, struct cpu_scratch *s) {
    const struct chex_op *op = job->op;
    size_t depth = chex_cpu_stem_depth(op), k = (size_t)op->kernel, at = 0;
    size_t width = (size_t)(job->e->config.image_size + 2 * op->pad);
    float *grey = s->b, *one = grey + (size_t)halo(op, tile.rows) * width;
    for (int image = tile.image; image < tile.image + tile.images; image++) {
        fill_planes(job, image, tile, grey, one);
        for (int y = 0; y < tile.rows; y++)
            for (int x = 0; x < job->tiling.hw; x++, at++) {
                float *dst = (float *)s->a + at * depth;
                size_t from = (size_t)(y * op->stride) * width + (size_t)(x * op->stride);
                s->off[at] = (int32_t)(at * depth);
                for (size_t r = 0; r < k; r++, from += width, dst += 2 * k)
                    for (size_t i = 0; i < k; i++) {
                        dst[i] = grey[from + i];
                        dst[k + i] = one[from + i];
                    }
            }
    }
}

void chex_cpu_stem_products(const struct cpu_job *job, struct cpu_tile tile,
                            struct cpu_scratch *s) {
    const struct cpu_engine *e = job->e;
    const struct chex_op *op = job->op;
    const struct cpu_tap tap = {0, 0};
    int depth = (int)chex_cpu_stem_depth(op);
    gather(job, tile, s);
    e->k->gemm(s->a, s->off, chex_cpu_tile_pixels(job->tiling, tile), &tap, 1, depth,
               e->ops[job->index].weight, (size_t)depth * (size_t)e->k->panel, op->out_channels,
               s->c, (size_t)op->out_channels + CPU_PAD, NULL);
}

static void forward_item(void *arg, size_t item, int worker) {
    const struct cpu_job *job = arg;
    struct cpu_engine *e = job->e;
    const struct chex_op *op = job->op;
    struct cpu_scratch *s = &e->scratch[worker];
    struct cpu_tile tile = chex_cpu_tile(job->tiling, job->n, (int)item);
    int pixels = chex_cpu_tile_pixels(job->tiling, tile);
    size_t pitch = (size_t)op->out_channels + CPU_PAD;
    chex_cpu_stem_products(job, tile, s);
    struct cpu_stored x =
        chex_cpu_x(e, op->out, chex_cpu_tile_pixel(job->tiling, tile), op->out_first, 1);
    e->k->store(&x, s->c, pitch, pixels, op->out_channels);
    chex_cpu_norm_tile(job, (int)item, s->c, pitch, pixels, 0, op->out_channels);
}

void chex_cpu_stem_forward(struct cpu_job *job) {
    chex_pool_run(job->e->pool, (size_t)job->tiles, forward_item, job);
}

/* Item: a run of tiles; their folded weight gradient goes to its place in wpart. */
static void backward_item(void *arg, size_t item, int worker) {
    const struct cpu_job *job = arg;
    struct cpu_engine *e = job->e;
    const struct chex_op *op = job->op;
    struct cpu_scratch *s = &e->scratch[worker];
    size_t depth = chex_cpu_stem_depth(op), out = (size_t)op->out_channels, pitch = out + CPU_PAD;
    float *dw = e->wpart + item * depth * out;
    memset(dw, 0, depth * out * sizeof *dw);
    size_t groups = (size_t)job->tile_groups, tiles = (size_t)job->tiles;
    for (size_t t = item * tiles / groups; t < (item + 1) * tiles / groups; t++) {
        struct cpu_tile tile = chex_cpu_tile(job->tiling, job->n, (int)t);
        int pixels = chex_cpu_tile_pixels(job->tiling, tile);
        gather(job, tile, s);
        chex_cpu_load_grad(job, s->c, pitch, chex_cpu_tile_pixel(job->tiling, tile), pixels);
        for (int i = 0; i < pixels; i++)
            s->off[i] = (int32_t)((size_t)i * pitch);
        e->k->outer(s->a, depth, s->c, s->off, pixels, (int)depth, op->out_channels, dw, out, NULL);
    }
}

void chex_cpu_stem_backward(struct cpu_job *job) {
    struct cpu_engine *e = job->e;
    const struct chex_op *op = job->op;
    job->tile_groups = chex_cpu_conv_groups(e->net, job->index, job->tiles);
    chex_pool_run(e->pool, (size_t)job->tile_groups, backward_item, job);
    size_t depth = chex_cpu_stem_depth(op), out = (size_t)op->out_channels, k = (size_t)op->kernel;
    float *grad = job->grad + e->net->params[op->weight].offset;
    for (int t = 0; t < op->kernel * op->kernel; t++)
        for (size_t o = 0; o < out; o++) {
            double grey = 0, one = 0;
            size_t at = row_of(op, t) * out + o;
            for (int g = 0; g < job->tile_groups; g++, at += depth * out) {
                grey += (double)e->wpart[at];
                one += (double)e->wpart[at + k * out];
            }
            for (size_t c = 0; c < 3; c++)
                grad[((size_t)t * 3 + c) * out + o] =
                    (float)((grey - (double)e->net->mean[c] * one) / (double)e->net->std[c]);
        }
}
