/* SPDX-License-Identifier: Apache-2.0
 *
 * The forward pass, and the forward convolution: a matrix product of the tile's normalised input
 * with packed weights. The input is loaded once with its border; a kernel position is an offset
 * into it, so no im2col matrix is built.
 */
#include <string.h>

#include "base/clock.h"
#include "engine/cpu/cpu_fusion.h"

/* A tile's normalised input and a panel of weights fit the second-level cache. */
enum { INPUT_BYTES = 192 << 10, MAX_PIXELS = 384, MIN = 24 };

static bool plan(struct cpu_engine *e, int index, struct cpu_need *need) {
    const struct chex_op *op = &e->net->ops[index];
    struct cpu_op *mine = &e->ops[index];
    mine->winograd = chex_cpu_winograd_fits(e, op);
    if (mine->winograd) {
        chex_cpu_winograd_plan(e, index, need);
        return true;
    }
    int in_hw = e->bufs[op->in].hw, hw = e->bufs[op->out].hw;
    size_t in_pitch = chex_cpu_pitch(e, op->in_channels) * e->operand_bytes;
    int per_pixel = (int)in_pitch * (op->kernel > 1 ? op->stride * op->stride : 1);
    int pixels = INPUT_BYTES / per_pixel;
    pixels = pixels > MAX_PIXELS ? MAX_PIXELS : pixels < MIN ? MIN : pixels;
    mine->fwd = chex_cpu_tiling(hw, pixels);
    size_t out = (size_t)mine->fwd.images * (size_t)mine->fwd.rows * (size_t)hw;
    size_t in = op->kernel == 1
                    ? out
                    : (size_t)mine->fwd.images * (size_t)chex_cpu_halo(op, mine->fwd.rows) *
                          (size_t)(in_hw + 2 * op->pad);
    size_t spare = e->dot2 ? (size_t)e->dot2->spare_rows : 0, image = in / (size_t)mine->fwd.images;
    /* If a row has one pixel, the next pixel of the list is a whole image away. */
    size_t apart = op->kernel == 1 ? 1 : hw > 1 ? (size_t)op->stride : image;
    need->a = chex_cpu_max(need->a, (in + spare * apart) * in_pitch);
    chex_cpu_need_floats(&need->c, chex_cpu_block_floats(e));
    need->pixels = chex_cpu_max(need->pixels, out);
    /* Backward tiles divide the input map. A tile holds the output's gradient with a halo, the
     * input and its gradient, in ranges of at most RANGE channels (cpu_backward.c). */
    enum { RANGE = 128, GRAD_BYTES = 256 << 10, MAX_BACK = 160, MIN_BACK = 32 };
    int max_pixels = e->dot2 ? e->dot2->back_pixels : MAX_BACK;
    size_t out_pitch = chex_cpu_pitch(e, op->out_channels) * e->operand_bytes;
    pixels = GRAD_BYTES / (int)out_pitch * op->stride;
    pixels = pixels > max_pixels ? max_pixels : pixels < MIN_BACK ? MIN_BACK : pixels;
    mine->bwd = chex_cpu_tiling(in_hw, pixels);
    size_t rows = (size_t)(mine->bwd.rows + op->kernel) / (size_t)op->stride + 2;
    size_t columns = (size_t)(in_hw + op->kernel) / (size_t)op->stride + 2;
    /* The pixels of each phase of the stride begin at a multiple of this. */
    size_t group = chex_cpu_outer_group(e);
    in = (size_t)mine->bwd.images * (size_t)mine->bwd.rows * (size_t)in_hw +
         (size_t)(op->stride * op->stride) * group;
    apart = in_hw < 2 * op->stride ? rows * columns : 1;
    need->a = chex_cpu_max(need->a,
                           ((size_t)mine->bwd.images * rows * columns + spare * apart) * out_pitch);
    need->b = chex_cpu_max(need->b, in / group * chex_cpu_outer_pitch(e, RANGE) * e->operand_bytes);
    need->pixels = chex_cpu_max(need->pixels, in);
    return true;
}

void chex_cpu_load_input(const struct cpu_job *job, void *dst, size_t pitch, size_t pixel, int step,
                         int pixels) {
    const struct cpu_engine *e = job->e;
    const struct chex_op *op = job->op;
    struct cpu_stored x = chex_cpu_x(e, op->in, pixel, 0, step);
    struct cpu_affine norm = chex_cpu_affine(e, op->in_bn, 0);
    int flags = chex_cpu_operand_flags(e, norm);
    if (e->dot2)
        e->dot2->load(dst, pitch, &x, pixels, op->in_channels, norm.scale, norm.shift,
                      flags | chex_cpu_split_flag(e));
    else
        e->k->load(dst, pitch, &x, pixels, op->in_channels, norm.scale, norm.shift, flags);
}

void chex_cpu_load_border(const struct cpu_job *job, struct cpu_tile tile, int hw, int from,
                          int left, int inside, struct cpu_border b, void *dst, cpu_load_fn *load) {
    const size_t pixel = b.pitch * b.element_bytes, row = (size_t)b.width * pixel;
    const size_t begin = (size_t)left * pixel, end = (size_t)(left + inside) * pixel;
    char *at = dst;
    for (int image = tile.image; image < tile.image + tile.images; image++)
        for (int y = from; y < from + b.rows; y++, at += row) {
            if (y < 0 || y >= hw) {
                memset(at, 0, row);
                continue;
            }
            memset(at, 0, begin);
            load(job, at + begin, b.pitch, chex_cpu_row(hw, image, y), inside);
            memset(at + end, 0, row - end);
        }
}

void chex_cpu_windows(const struct cpu_job *job, struct cpu_tile tile, int hw, int rows, int width,
                      int32_t *off, struct cpu_tap taps[CPU_MAX_TAPS]) {
    const struct chex_op *op = job->op;
    size_t pitch = chex_cpu_pitch(job->e, op->in_channels), at = 0;
    for (int image = 0; image < tile.images; image++)
        for (int y = 0; y < tile.rows; y++)
            for (int x = 0; x < hw; x++)
                off[at++] =
                    (int32_t)((size_t)((image * rows + y * op->stride) * width + x * op->stride) *
                              pitch);
    for (int t = 0; t < op->kernel * op->kernel; t++)
        taps[t] =
            (struct cpu_tap){(ptrdiff_t)((size_t)(t / op->kernel * width + t % op->kernel) * pitch),
                             (ptrdiff_t)t * chex_cpu_padded(op->in_channels) * job->e->k->panel};
}

void chex_cpu_multiply(const struct cpu_job *job, struct cpu_product p) {
    p.weight = job->e->ops[job->index].weight;
    p.tap_count = p.positions = job->op->kernel * job->op->kernel;
    p.depth = job->op->in_channels;
    chex_cpu_product_begin(job->e);
    chex_cpu_gemm(job->e, &p);
    chex_cpu_product_end(job->e);
}

/* 1x1 kernel: loads exactly the pixels that are read, contiguously. */
static void fill_points(const struct cpu_job *job, struct cpu_tile tile, struct cpu_scratch *s) {
    const struct chex_op *op = job->op;
    int hw = job->tiling.hw, in_hw = job->e->bufs[op->in].hw;
    size_t pitch = chex_cpu_pitch(job->e, op->in_channels), at = 0;
    int pixels = chex_cpu_tile_pixels(job->tiling, tile);
    for (int i = 0; i < pixels; i++)
        s->off[i] = (int32_t)((size_t)i * pitch);
    if (op->stride == 1) {
        chex_cpu_load_input(job, s->a, pitch, chex_cpu_tile_pixel(job->tiling, tile), 1, pixels);
        return;
    }
    for (int image = tile.image; image < tile.image + tile.images; image++)
        for (int y = tile.row; y < tile.row + tile.rows; y++, at += (size_t)hw * pitch)
            chex_cpu_load_input(job, chex_cpu_at(job->e, s->a, at), pitch,
                                chex_cpu_row(in_hw, image, y * op->stride), op->stride, hw);
}

static void load_row(const struct cpu_job *job, void *dst, size_t pitch, size_t pixel, int pixels) {
    chex_cpu_load_input(job, dst, pitch, pixel, 1, pixels);
}

/* Larger kernels: loads the border rows too, and zeros for the padding. */
static void fill_halo(const struct cpu_job *job, struct cpu_tile tile, struct cpu_scratch *s,
                      struct cpu_tap *taps) {
    const struct chex_op *op = job->op;
    int in_hw = job->e->bufs[op->in].hw, width = in_hw + 2 * op->pad;
    const struct cpu_border border = {width, chex_cpu_halo(op, tile.rows),
                                      chex_cpu_pitch(job->e, op->in_channels),
                                      job->e->operand_bytes};
    chex_cpu_windows(job, tile, job->tiling.hw, border.rows, width, s->off, taps);
    chex_cpu_load_border(job, tile, in_hw, tile.row * op->stride - op->pad, op->pad, in_hw, border,
                         s->a, load_row);
}

void chex_cpu_prefetch_next(const struct cpu_job *job, int index, struct cpu_prefetch *h) {
    const struct chex_op *op = job->op;
    int next = index + job->e->config.threads;
    if (job->ranges > 1 || next >= job->tiles)
        return;
    struct cpu_tile tile = chex_cpu_tile(job->tiling, job->n, next);
    int lo = tile.row * op->stride - op->pad;
    chex_cpu_prefetch_rows(h, chex_cpu_x(job->e, op->in, 0, 0, 1), job->e->bufs[op->in].hw, tile,
                           lo, lo + chex_cpu_halo(op, tile.rows) - 1, op->in_channels);
}

static void conv_item(void *arg, size_t item, int worker) {
    const struct cpu_job *job = arg;
    const struct chex_op *op = job->op;
    struct cpu_scratch *s = &job->e->scratch[worker];
    int index = (int)(item / (size_t)job->ranges), first = (int)(item % (size_t)job->ranges);
    first *= job->range_channels;
    int channels = op->out_channels - first < job->range_channels ? op->out_channels - first
                                                                  : job->range_channels;
    struct cpu_tile tile = chex_cpu_tile(job->tiling, job->n, index);
    struct cpu_tap taps[CPU_MAX_TAPS] = {{0, 0}};
    struct cpu_prefetch prefetch = {.calls = 1};
    struct cpu_output out = {job, index, chex_cpu_tile_pixel(job->tiling, tile)};
    chex_cpu_prefetch_next(job, index, &prefetch);
    if (job->e->ops[job->index].winograd) {
        chex_cpu_winograd_forward(job, tile, first, channels, s, &prefetch, &out);
        return;
    }
    if (op->kernel == 1)
        fill_points(job, tile, s);
    else
        fill_halo(job, tile, s, taps);
    chex_cpu_multiply(job, (struct cpu_product){.a = s->a,
                                                .off = s->off,
                                                .taps = taps,
                                                .rows = chex_cpu_tile_pixels(job->tiling, tile),
                                                .first = first,
                                                .n = channels,
                                                .c = s->c,
                                                .prefetch = &prefetch,
                                                .epilogue = chex_cpu_store_results,
                                                .arg = &out});
}

static void forward(struct cpu_job *job) {
    /* With few tiles the output channels are divided too. That changes no result. */
    int wanted = 4 * job->e->config.threads;
    int max_ranges = chex_cpu_padded(job->op->out_channels) / CPU_CHANNELS;
    int ranges = (wanted + job->tiles - 1) / job->tiles;
    ranges = ranges > max_ranges ? max_ranges : ranges;
    job->range_channels = (max_ranges + ranges - 1) / ranges * CPU_CHANNELS;
    job->ranges = (job->op->out_channels + job->range_channels - 1) / job->range_channels;
    if (job->e->ops[job->index].winograd)
        chex_cpu_winograd_prepare(job, false);
    chex_pool_run(job->e->pool, (size_t)job->tiles * (size_t)job->ranges, conv_item, job);
}

const struct cpu_kind chex_cpu_conv = {plan, forward, chex_cpu_conv_backward};

enum chex_status chex_cpu_forward(struct cpu_engine *e, const struct chex_batch *batch,
                                  bool training, struct chex_error *err) {
    for (int i = 0; i < e->net->op_count; i++) {
        if (!training && chex_cpu_fusion_forward(e, i, batch))
            continue;
        double start = chex_clock_s();
        const struct chex_op *op = &e->net->ops[i];
        struct cpu_job job = chex_cpu_job(e, i, batch, e->ops[i].fwd);
        job.training = training;
        chex_cpu_norm_prepare(e, op, training);
        chex_cpu_kind_of(op)->forward(&job);
        if (op->out >= 0)
            CHEX_TRY(chex_cpu_norm_merge(&job, err));
        e->ops[i].forward_s = chex_clock_s() - start;
    }
    return CHEX_OK;
}
