/* SPDX-License-Identifier: Apache-2.0
 *
 * The stem: the convolution that reads the image.
 *
 * Its three input channels are affine maps (g - m_c) / s_c of one grey value g. So it equals a
 * convolution of two channels, g and the constant 1 inside the image (0 in the padding):
 *     sum_c W_c (g - m_c) / s_c  =  (sum_c W_c / s_c) g  +  (sum_c -m_c W_c / s_c) 1,
 *     dW_c = (D_g - m_c D_1) / s_c.
 *
 * The contribution of the constant depends only on which kernel rows and columns lie inside the
 * image, that is on the class of the output row and column (first ones, interior, last ones).
 * Forward adds a precomputed value per class instead of multiplying. Backward sums the gradients
 * of a class instead of multiplying.
 *
 * The grey channel is a matrix product of gathered patches (im2col). With bf16 the three-channel
 * weights are rounded; the image is not.
 */
#include <string.h>

#include "engine/cpu/cpu_engine.h"

/* Floats copied per row of a patch. More than a row has, so that the copy is one vector; the next
 * row overwrites the excess. */
enum { WIDE = 8 };

size_t chex_cpu_stem_depth(const struct chex_op *op) {
    return (size_t)op->kernel * (size_t)op->kernel;
}

/* The kernel rows [lo, hi) inside the image at output row y; the same for columns. */
static struct cpu_reach reach_of(const struct chex_op *op, int size, int y) {
    int lo = op->pad - y * op->stride, hi = size + lo;
    return (struct cpu_reach){lo < 0 ? 0 : lo, hi > op->kernel ? op->kernel : hi};
}

size_t chex_cpu_stem_partial(const struct cpu_engine *e, const struct chex_op *op) {
    size_t classes = (size_t)e->stem->classes;
    return (chex_cpu_stem_depth(op) + classes * classes) * (size_t)op->out_channels;
}

/* Finds the classes of output rows; columns have the same. False: out of memory. */
static bool find_classes(struct cpu_engine *e, const struct chex_op *op) {
    int hw = e->bufs[op->out].hw;
    struct cpu_stem *s = e->stem = chex_cpu_alloc(e, 1, sizeof *s);
    if (!s || !(s->of = chex_cpu_alloc(e, (size_t)hw, 1)))
        return false;
    for (int y = 0; y < hw; y++) {
        struct cpu_reach r = reach_of(op, e->config.image_size, y);
        int k = 0;
        while (k < s->classes && (s->reach[k].lo != r.lo || s->reach[k].hi != r.hi))
            k++;
        s->of[y] = (uint8_t)k;
        s->reach[k] = r;
        s->classes += k == s->classes;
    }
    size_t out = (size_t)op->out_channels;
    s->constant = chex_cpu_alloc(e, (size_t)(s->classes * s->classes) * out, sizeof *s->constant);
    s->one = chex_cpu_alloc(e, chex_cpu_stem_depth(op) * out, sizeof *s->one);
    return s->constant && s->one;
}

static bool plan(struct cpu_engine *e, int index, struct cpu_need *need) {
    enum { PIXELS = 256 };
    const struct chex_op *op = &e->net->ops[index];
    struct cpu_tiling t = chex_cpu_tiling(e->bufs[op->out].hw, PIXELS);
    e->ops[index].fwd = e->ops[index].bwd = t;
    size_t pixels = (size_t)t.images * (size_t)t.rows * (size_t)t.hw;
    size_t width = (size_t)(e->config.image_size + 2 * op->pad);
    chex_cpu_need_floats(&need->a, pixels * chex_cpu_stem_depth(op) + WIDE);
    chex_cpu_need_floats(&need->b, (size_t)chex_cpu_halo(op, t.rows) * width + WIDE);
    chex_cpu_need_floats(&need->c, pixels * ((size_t)op->out_channels + CPU_PAD));
    need->pixels = chex_cpu_max(need->pixels, pixels);
    return find_classes(e, op);
}

/* Computes the contribution of the constant for each class of pixels from its weights
 * (position, out). */
static void sum_constants(struct cpu_engine *e, const struct chex_op *op, const double *one) {
    size_t out = (size_t)op->out_channels;
    const struct cpu_stem *s = e->stem;
    for (int i = 0; i < s->classes * s->classes; i++) {
        struct cpu_reach rows = s->reach[i / s->classes], columns = s->reach[i % s->classes];
        for (size_t o = 0; o < out; o++) {
            double sum = 0;
            for (int r = rows.lo; r < rows.hi; r++)
                for (int c = columns.lo; c < columns.hi; c++)
                    sum += one[(size_t)(r * op->kernel + c) * out + o];
            s->constant[(size_t)i * out + o] = (float)sum;
        }
    }
}

void chex_cpu_stem_pack(struct cpu_engine *e, int index) {
    const struct chex_op *op = &e->net->ops[index];
    const struct chex_net *net = e->net;
    const float *w = e->param + net->params[op->weight].offset;
    size_t panel = (size_t)e->k->panel, depth = chex_cpu_stem_depth(op);
    size_t out = (size_t)op->out_channels;
    for (size_t t = 0; t < depth; t++)
        for (size_t o = 0; o < out; o++) {
            double grey = 0, one = 0;
            for (size_t c = 0; c < 3; c++) {
                float v = w[(t * 3 + c) * out + o];
                double scaled =
                    (double)(e->bf16 ? chex_cpu_round_bf16(v) : v) / (double)net->std[c];
                grey += scaled;
                one -= scaled * (double)net->mean[c];
            }
            float *dst = (float *)e->ops[index].weight + (o / panel * depth + t) * panel;
            dst[o % panel] = (float)grey;
            e->stem->one[t * out + o] = one;
        }
    sum_constants(e, op, e->stem->one);
}

/* Copies the rows that a tile of one image reads, with zero padding. */
static void fill_plane(const struct cpu_job *job, int image, struct cpu_tile tile, float *grey) {
    const struct chex_op *op = job->op;
    int size = job->e->config.image_size, width = size + 2 * op->pad;
    int first = tile.row * op->stride - op->pad, rows = chex_cpu_halo(op, tile.rows);
    memset(grey, 0, (size_t)rows * (size_t)width * sizeof *grey);
    for (int r = 0; r < rows; r++) {
        int y = first + r;
        if (y >= 0 && y < size)
            memcpy(grey + (size_t)r * (size_t)width + (size_t)op->pad,
                   job->pixels + chex_cpu_row(size, image, y), (size_t)size * sizeof *grey);
    }
}

/* Gathers the patches of a tile into s->a, and their offsets into s->off. */
static void gather(const struct cpu_job *job, struct cpu_tile tile, struct cpu_scratch *s) {
    const struct chex_op *op = job->op;
    size_t depth = chex_cpu_stem_depth(op), k = (size_t)op->kernel, at = 0;
    size_t width = (size_t)(job->e->config.image_size + 2 * op->pad);
    float *grey = s->b;
    for (int image = tile.image; image < tile.image + tile.images; image++) {
        fill_plane(job, image, tile, grey);
        for (int y = 0; y < tile.rows; y++)
            for (int x = 0; x < job->tiling.hw; x++, at++) {
                float *dst = (float *)s->a + at * depth;
                const float *from = grey + (size_t)(y * op->stride) * width + x * op->stride;
                s->off[at] = (int32_t)(at * depth);
                for (size_t r = 0; r < k; r++, from += width, dst += k)
                    memcpy(dst, from, WIDE * sizeof *dst);
            }
    }
}

/* For each pixel of a tile: adds the constant of its class to its row of `sums`, or the reverse if
 * into_constants. */
static void each_class(const struct cpu_job *job, struct cpu_tile tile, float *sums, size_t pitch,
                       float *constants, bool into_constants) {
    const struct cpu_stem *s = job->e->stem;
    size_t out = (size_t)job->op->out_channels;
    for (int image = 0; image < tile.images; image++)
        for (int y = tile.row; y < tile.row + tile.rows; y++)
            for (int x = 0; x < job->tiling.hw; x++, sums += pitch) {
                float *constant = constants + (size_t)(s->of[y] * s->classes + s->of[x]) * out;
                float *to = into_constants ? constant : sums;
                const float *from = into_constants ? sums : constant;
                for (size_t o = 0; o < out; o++)
                    to[o] += from[o];
            }
}

void chex_cpu_stem_products(const struct cpu_job *job, struct cpu_tile tile,
                            struct cpu_scratch *s) {
    const struct cpu_engine *e = job->e;
    const struct chex_op *op = job->op;
    const struct cpu_tap tap = {0, 0};
    int depth = (int)chex_cpu_stem_depth(op);
    size_t pitch = (size_t)op->out_channels + CPU_PAD;
    gather(job, tile, s);
    e->k->gemm(s->a, s->off, chex_cpu_tile_pixels(job->tiling, tile), &tap, 1, depth,
               e->ops[job->index].weight, (size_t)depth * (size_t)e->k->panel, op->out_channels,
               s->c, pitch, NULL);
    each_class(job, tile, s->c, pitch, e->stem->constant, false);
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
    chex_cpu_store_results(
        &(struct cpu_output){job, (int)item, chex_cpu_tile_pixel(job->tiling, tile)},
        &(struct cpu_results){0, pixels, 0, op->out_channels, s->c, pitch});
}

static void forward(struct cpu_job *job) {
    chex_pool_run(job->e->pool, (size_t)job->tiles, forward_item, job);
}

/* Item: a group of tiles. Writes the gradients of the folded weights and the sums of the classes to
 * the group's part of wpart. */
static void backward_item(void *arg, size_t item, int worker) {
    const struct cpu_job *job = arg;
    struct cpu_engine *e = job->e;
    const struct chex_op *op = job->op;
    struct cpu_scratch *s = &e->scratch[worker];
    size_t depth = chex_cpu_stem_depth(op), out = (size_t)op->out_channels, pitch = out + CPU_PAD;
    size_t partial = chex_cpu_stem_partial(e, op);
    float *dw = e->wpart + item * partial;
    memset(dw, 0, partial * sizeof *dw);
    size_t groups = (size_t)job->tile_runs, tiles = (size_t)job->tiles;
    for (size_t t = item * tiles / groups; t < (item + 1) * tiles / groups; t++) {
        struct cpu_tile tile = chex_cpu_tile(job->tiling, job->n, (int)t);
        int pixels = chex_cpu_tile_pixels(job->tiling, tile);
        gather(job, tile, s);
        chex_cpu_load_grad(job, s->c, pitch, chex_cpu_tile_pixel(job->tiling, tile), pixels);
        for (int i = 0; i < pixels; i++)
            s->off[i] = (int32_t)((size_t)i * pitch);
        e->k->outer(s->a, depth, s->c, s->off, pixels, (int)depth, op->out_channels, dw, out, false,
                    NULL);
        each_class(job, tile, s->c, pitch, dw + depth * out, true);
    }
}

/* The gradient of the constant's weight at kernel position (row, column), output o. */
static double constant_gradient(const struct cpu_job *job, int row, int column, size_t o) {
    const struct cpu_stem *s = job->e->stem;
    size_t out = (size_t)job->op->out_channels, partial = chex_cpu_stem_partial(job->e, job->op);
    double sum = 0;
    for (int i = 0; i < s->classes * s->classes; i++) {
        struct cpu_reach rows = s->reach[i / s->classes], columns = s->reach[i % s->classes];
        if (row < rows.lo || row >= rows.hi || column < columns.lo || column >= columns.hi)
            continue;
        size_t at = (chex_cpu_stem_depth(job->op) + (size_t)i) * out + o;
        for (int g = 0; g < job->tile_runs; g++)
            sum += (double)job->e->wpart[(size_t)g * partial + at];
    }
    return sum;
}

/* Item: a kernel position. Computes the gradients of the three channels from the folded ones. */
static void unfold_item(void *arg, size_t t, int worker) {
    (void)worker;
    const struct cpu_job *job = arg;
    const struct cpu_engine *e = job->e;
    const struct chex_op *op = job->op;
    size_t out = (size_t)op->out_channels, partial = chex_cpu_stem_partial(e, op);
    float *grad = job->grad + e->net->params[op->weight].offset;
    for (size_t o = 0; o < out; o++) {
        double grey = 0;
        double one = constant_gradient(job, (int)t / op->kernel, (int)t % op->kernel, o);
        for (int g = 0; g < job->tile_runs; g++)
            grey += (double)e->wpart[(size_t)g * partial + t * out + o];
        for (size_t c = 0; c < 3; c++)
            grad[(t * 3 + c) * out + o] =
                (float)((grey - (double)e->net->mean[c] * one) / (double)e->net->std[c]);
    }
}

static void backward(struct cpu_job *job) {
    struct cpu_engine *e = job->e;
    job->tile_runs = chex_cpu_conv_groups(e->net, job->index, job->tiles);
    chex_pool_run(e->pool, (size_t)job->tile_runs, backward_item, job);
    chex_pool_run(e->pool, chex_cpu_stem_depth(job->op), unfold_item, job);
}

const struct cpu_kind chex_cpu_stem = {plan, forward, backward};
