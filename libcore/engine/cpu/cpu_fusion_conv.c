/* SPDX-License-Identifier: Apache-2.0
 *
 * A step of the fusion group 1x1 convolution, 3x3 convolution, and of the end of a residual block
 * that may follow (1x1 convolution, residual add). Scratch:
 *   a  operands of the 1x1 convolutions
 *   d  operands of the 3x3 convolution, with a border of zeros
 *   c  results
 */
#include <string.h>

#include "base/clock.h"
#include "engine/cpu/cpu_fusion.h"

/* Output channels of the third convolution that are computed at a time. */
enum { RANGE = 128 };

/* The layout of the operands of the 3x3 convolution for a tile of its output. */
static struct cpu_border border_of(const struct cpu_engine *e, int three, struct cpu_tile tile) {
    const struct chex_op *op = &e->net->ops[three];
    if (e->ops[three].winograd)
        return chex_cpu_winograd_border(e->bufs[op->out].hw, tile, op->in_channels);
    return (struct cpu_border){e->bufs[op->in].hw + 2, chex_cpu_halo(op, tile.rows),
                               chex_cpu_pitch(e, op->in_channels), e->operand_bytes};
}

static struct cpu_tiling tiling_of(const struct cpu_engine *e, const struct chex_op *one,
                                   int three_index) {
    enum { BYTES = 192 << 10, MAX = 384, MIN = 24 };
    const struct chex_op *three = &e->net->ops[three_index];
    int hw = e->bufs[three->out].hw;
    if (e->ops[three_index].winograd)
        return chex_cpu_winograd_tiling(hw, three->in_channels);
    size_t pixel_bytes =
        chex_cpu_max(chex_cpu_pitch(e, one->in_channels), chex_cpu_pitch(e, three->in_channels)) *
        e->operand_bytes;
    int pixels = BYTES / ((int)pixel_bytes * three->stride * three->stride);
    return chex_cpu_tiling(hw, pixels > MAX ? MAX : pixels < MIN ? MIN : pixels);
}

struct cpu_tiling chex_cpu_fusion_conv_plan(struct cpu_engine *e, const struct cpu_fusion *c,
                                            struct cpu_need *need) {
    const struct chex_op *one = &e->net->ops[c->op[0]], *three = &e->net->ops[c->op[1]];
    struct cpu_tiling t = tiling_of(e, one, c->op[1]);
    struct cpu_border b = border_of(e, c->op[1], (struct cpu_tile){0, t.images, 0, t.rows});
    size_t images = (size_t)t.images, in_hw = (size_t)e->bufs[three->in].hw;
    size_t made = images * (size_t)b.rows * in_hw;
    size_t out = images * (size_t)t.rows * (size_t)t.hw;
    size_t spare = e->dot2 ? (size_t)e->dot2->spare_rows : 0;
    size_t map = images * (size_t)b.rows * (size_t)b.width;
    size_t apart = t.hw > 1 ? (size_t)three->stride : (size_t)(b.rows * b.width);
    size_t sums = out * ((size_t)three->out_channels + CPU_PAD);
    need->a = chex_cpu_max(need->a,
                           (made + spare) * chex_cpu_pitch(e, one->in_channels) * e->operand_bytes);
    need->d = chex_cpu_max(need->d, (map + spare * apart) * b.pitch * b.element_bytes);
    chex_cpu_need_floats(&need->c, made * ((size_t)one->out_channels + CPU_PAD));
    need->pixels = chex_cpu_max(need->pixels, made);
    if (e->ops[c->op[1]].winograd)
        (void)chex_cpu_winograd_need(t, three->in_channels, need);
    else
        chex_cpu_need_floats(&need->c, chex_cpu_block_floats(e));
    if (c->count > 2) {
        size_t third = chex_cpu_pitch(e, three->out_channels) * e->operand_bytes;
        need->a = chex_cpu_max(need->a, sums * sizeof(float) + (out + spare) * third);
        chex_cpu_need_floats(&need->c, 2 * out * RANGE);
    }
    return t;
}

void chex_cpu_multiply_points(const struct cpu_job *job, int pixels, int first, int channels,
                              size_t c_pitch, struct cpu_prefetch *prefetch,
                              struct cpu_scratch *s) {
    const struct cpu_tap tap = {0, 0};
    size_t pitch = chex_cpu_pitch(job->e, job->op->in_channels);
    for (int i = 0; i < pixels; i++)
        s->off[i] = (int32_t)((size_t)i * pitch);
    chex_cpu_multiply(job, (struct cpu_product){.a = s->a,
                                                .off = s->off,
                                                .taps = &tap,
                                                .rows = pixels,
                                                .first = first,
                                                .n = channels,
                                                .c = s->c,
                                                .c_pitch = c_pitch,
                                                .prefetch = prefetch});
}

/* Computes rows [from, from + count) of the map between the two convolutions and writes them as
 * operands into d, from its row `at` on. */
static void make_rows(const struct cpu_fusion_run *r, struct cpu_tile tile, int from, int count,
                      int at, struct cpu_border b, struct cpu_scratch *s) {
    const struct cpu_engine *e = r->e;
    const struct cpu_job *one = &r->job[0];
    const struct chex_op *three = r->job[1].op;
    int hw = e->bufs[three->in].hw, channels = three->in_channels;
    int lo = from < 0 ? 0 : from, hi = from + count > hw ? hw : from + count;
    int pixels = hi > lo ? tile.images * (hi - lo) * hw : 0;
    size_t c_pitch = (size_t)channels + CPU_PAD, pixel_bytes = b.pitch * b.element_bytes;
    size_t row_bytes = (size_t)b.width * pixel_bytes, used = (size_t)(hw + 1) * pixel_bytes;
    if (pixels) {
        struct cpu_prefetch prefetch = {.calls = 1};
        chex_cpu_prefetch_rows(&prefetch, chex_cpu_x(e, one->op->in, 0, 0, 1), hw, tile, hi,
                               hi + r->step.rows * three->stride - 1, one->op->in_channels);
        chex_cpu_load_input(one, s->a, chex_cpu_pitch(e, one->op->in_channels),
                            chex_cpu_row(hw, tile.image, lo), 1, pixels);
        chex_cpu_multiply_points(one, pixels, 0, channels, c_pitch,
                                 tile.images > 1 ? NULL : &prefetch, s);
    }
    float *c = s->c;
    for (int image = 0; image < tile.images; image++)
        for (int y = from; y < from + count; y++) {
            char *dst = (char *)s->d + (size_t)(image * b.rows + at + y - from) * row_bytes;
            if (y < 0 || y >= hw) {
                memset(dst, 0, row_bytes);
                continue;
            }
            memset(dst, 0, pixel_bytes);
            chex_cpu_fusion_operand(e, three->in_bn, c, c_pitch, dst + pixel_bytes, b.pitch, hw,
                                    channels, e->ops[r->fusion->op[1]].winograd);
            memset(dst + used, 0, row_bytes - used);
            c += (size_t)hw * c_pitch;
        }
}

/* out = ReLU(norm(sums) + side): channels [first, first + RANGE) of the residual add. */
static void residual_add_range(const struct cpu_fusion_run *r, size_t pixel, int pixels, int first,
                               int channels, float *sums, float *side) {
    const struct cpu_engine *e = r->e;
    const struct chex_op *add = r->job[3].op;
    struct cpu_affine in = chex_cpu_affine(e, add->in_bn, first);
    struct cpu_affine other = chex_cpu_affine(e, add->side_bn, first);
    size_t pitch = (size_t)channels;
    struct cpu_stored c = {sums, pitch, false};
    struct cpu_stored x = chex_cpu_x(e, add->side_in, pixel, first, 1);
    struct cpu_stored out = chex_cpu_x(e, add->out, pixel, add->out_first + first, 1);
    if (in.scale || e->bf16)
        e->k->load(sums, pitch, &c, pixels, channels, in.scale, in.shift, e->bf16 ? CPU_STORED : 0);
    e->k->load(side, pitch, &x, pixels, channels, other.scale, other.shift, 0);
    e->k->add_relu(sums, side, (size_t)pixels * pitch);
    e->k->store(&out, sums, pitch, pixels, channels, NULL);
}

static void add_time(struct cpu_scratch *s, int k, double *since) {
    double now = chex_clock_s();
    s->spent_s[k] += now - *since;
    *since = now;
}

/* The third convolution and the residual add. sums: results of the 3x3 convolution. */
static void end_of_block(const struct cpu_fusion_run *r, struct cpu_tile tile, float *sums,
                         size_t c_pitch, struct cpu_scratch *s, double *clock) {
    const struct cpu_engine *e = r->e;
    const struct chex_op *third = r->job[2].op;
    int pixels = chex_cpu_tile_pixels(r->step, tile);
    size_t pixel = chex_cpu_tile_pixel(r->step, tile);
    chex_cpu_fusion_operand(e, third->in_bn, sums, c_pitch, s->a,
                            chex_cpu_pitch(e, third->in_channels), pixels, third->in_channels,
                            false);
    for (int first = 0; first < third->out_channels; first += RANGE) {
        int left = third->out_channels - first, channels = left < RANGE ? left : RANGE;
        chex_cpu_multiply_points(&r->job[2], pixels, first, channels, (size_t)channels, NULL, s);
        add_time(s, 2, clock);
        residual_add_range(r, pixel, pixels, first, channels, s->c,
                           s->c + (size_t)pixels * (size_t)channels);
        add_time(s, 3, clock);
    }
}

/* Destination of the results of the 3x3 convolution: rows of `pitch` floats at `sums`, or its map
 * if `sums` is NULL. */
struct output {
    const struct cpu_fusion_run *r;
    size_t pixel, pitch;
    float *sums;
};

static void output_epilogue(void *arg, const struct cpu_results *results) {
    const struct output *to = arg;
    const struct cpu_engine *e = to->r->e;
    const struct chex_op *three = to->r->job[1].op;
    size_t row = (size_t)results->row;
    struct cpu_stored out =
        chex_cpu_x(e, three->out, to->pixel + row, three->out_first + results->column, 1);
    if (to->sums)
        out = (struct cpu_stored){to->sums + row * to->pitch + results->column, to->pitch, false};
    e->k->store(&out, results->c, results->pitch, results->rows, results->columns, NULL);
}

static void multiply_rows(const struct cpu_fusion_run *r, struct cpu_tile tile, struct cpu_border b,
                          struct output *out, struct cpu_scratch *s) {
    const struct cpu_job *three = &r->job[1];
    struct cpu_tap taps[CPU_MAX_TAPS];
    if (r->e->ops[three->index].winograd) {
        chex_cpu_winograd_multiply(three, tile, s->d, 0, three->op->out_channels, s, NULL,
                                   output_epilogue, out);
        return;
    }
    chex_cpu_windows(three, tile, r->step.hw, b.rows, b.width, s->off, taps);
    chex_cpu_multiply(three, (struct cpu_product){.a = s->d,
                                                  .off = s->off,
                                                  .taps = taps,
                                                  .rows = chex_cpu_tile_pixels(r->step, tile),
                                                  .n = three->op->out_channels,
                                                  .c = s->c,
                                                  .epilogue = output_epilogue,
                                                  .arg = out});
}

void chex_cpu_fusion_conv(const struct cpu_fusion_run *r, struct cpu_tile tile, bool kept,
                          struct cpu_scratch *s) {
    const struct cpu_engine *e = r->e;
    const struct chex_op *three = r->job[1].op;
    const struct cpu_border b = border_of(e, r->fusion->op[1], tile);
    int keep = kept ? 3 - three->stride : 0;
    double clock = chex_clock_s();
    if (kept) {
        size_t row = (size_t)b.width * b.pitch * b.element_bytes;
        struct cpu_border last =
            border_of(e, r->fusion->op[1], (struct cpu_tile){0, 1, 0, r->step.rows});
        memmove(s->d, (char *)s->d + (size_t)(last.rows - keep) * row, (size_t)keep * row);
    }
    make_rows(r, tile, tile.row * three->stride - 1 + keep, b.rows - keep, keep, b, s);
    add_time(s, 0, &clock);
    struct output out = {r, chex_cpu_tile_pixel(r->step, tile),
                         (size_t)three->out_channels + CPU_PAD, NULL};
    if (r->fusion->count > 2) {
        const struct chex_op *third = r->job[2].op;
        size_t pixels = (size_t)chex_cpu_tile_pixels(r->step, tile);
        size_t spare = e->dot2 ? (size_t)e->dot2->spare_rows : 0;
        out.sums =
            (float *)((char *)s->a +
                      (pixels + spare) * chex_cpu_pitch(e, third->in_channels) * e->operand_bytes);
    }
    multiply_rows(r, tile, b, &out, s);
    add_time(s, 1, &clock);
    if (r->fusion->count > 2)
        end_of_block(r, tile, out.sums, out.pitch, s, &clock);
}
