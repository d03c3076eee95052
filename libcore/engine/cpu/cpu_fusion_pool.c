/* SPDX-License-Identifier: Apache-2.0
 *
 * Steps of the fusion groups with a pool. Scratch:
 *   convolution of the image, max pool   d  rows of the convolution, normalised
 *   average pool, 1x1 convolution        d  rows of the pool's input, normalised, and a row of
 * means a  operands, c  results
 */
#include <string.h>

#include "base/clock.h"
#include "engine/cpu/cpu_fusion.h"

struct cpu_tiling chex_cpu_fusion_max_plan(struct cpu_engine *e, const struct cpu_fusion *c,
                                           struct cpu_need *need) {
    enum { PIXELS = 128 };
    const struct chex_op *pool = &e->net->ops[c->op[1]];
    struct cpu_tiling t = chex_cpu_tiling(e->bufs[pool->out].hw, PIXELS);
    t.images = 1;
    size_t channels = (size_t)pool->in_channels;
    chex_cpu_need_floats(&need->d, (size_t)chex_cpu_halo(pool, t.rows) *
                                       (size_t)e->bufs[pool->in].hw * channels);
    chex_cpu_need_floats(&need->c, (size_t)t.rows * (size_t)t.hw * channels);
    return t;
}

/* Computes rows [from, to) of the convolution into d. Row 0 of d is row `first`. */
static void make_stem_rows(const struct cpu_fusion_run *r, int image, int from, int to, int first,
                           struct cpu_scratch *s) {
    const struct cpu_engine *e = r->e;
    const struct cpu_job *stem = &r->job[0];
    struct cpu_affine norm = chex_cpu_affine(e, r->job[1].op->in_bn, 0);
    int channels = stem->op->out_channels, hw = stem->tiling.hw;
    struct cpu_stored c = {s->c, (size_t)channels + CPU_PAD, false};
    for (int y = from; y < to; y += stem->tiling.rows) {
        int rows = to - y < stem->tiling.rows ? to - y : stem->tiling.rows;
        chex_cpu_stem_products(stem, (struct cpu_tile){image, 1, y, rows}, s);
        float *dst = (float *)s->d + (size_t)((y - first) * hw) * (size_t)channels;
        e->k->load(dst, (size_t)channels, &c, rows * hw, channels, norm.scale, norm.shift,
                   norm.relu | (e->bf16 ? CPU_STORED : 0));
    }
}

void chex_cpu_fusion_max(const struct cpu_fusion_run *r, struct cpu_tile tile, bool kept,
                         struct cpu_scratch *s) {
    const struct cpu_engine *e = r->e;
    const struct chex_op *pool = r->job[1].op;
    int in_hw = e->bufs[pool->in].hw, from = tile.row * pool->stride - pool->pad;
    int first = from < 0 ? 0 : from, to = from + chex_cpu_halo(pool, tile.rows);
    size_t row = (size_t)in_hw * (size_t)pool->in_channels;
    double start = chex_clock_s();
    to = to > in_hw ? in_hw : to;
    int made = first; /* rows [first, made) are already in d */
    if (kept) {
        int before = from - r->step.rows * pool->stride; /* first row of the previous step */
        int end = before + chex_cpu_halo(pool, r->step.rows);
        end = end > in_hw ? in_hw : end;
        before = before < 0 ? 0 : before;
        if (end > first) {
            memmove(s->d, (float *)s->d + (size_t)(first - before) * row,
                    (size_t)(end - first) * row * sizeof(float));
            made = end;
        }
    }
    make_stem_rows(r, tile.image, made, to, first, s);
    double middle = chex_clock_s();
    float *dst = s->c;
    for (int y = tile.row; y < tile.row + tile.rows; y++, dst += r->step.hw * pool->in_channels)
        chex_cpu_pool_row(&r->job[1], y, s->d, first, dst, NULL);
    struct cpu_stored out =
        chex_cpu_x(e, pool->out, chex_cpu_tile_pixel(r->step, tile), pool->out_first, 1);
    e->k->store(&out, s->c, (size_t)pool->in_channels, chex_cpu_tile_pixels(r->step, tile),
                pool->in_channels, NULL);
    s->spent_s[0] += middle - start;
    s->spent_s[1] += chex_clock_s() - middle;
}

struct cpu_tiling chex_cpu_fusion_average_plan(struct cpu_engine *e, const struct cpu_fusion *c,
                                               struct cpu_need *need) {
    const struct chex_op *pool = &e->net->ops[c->op[0]];
    struct cpu_tiling t = e->ops[c->op[1]].fwd; /* so its scratch a, c and off is large enough */
    size_t rows = (size_t)(pool->kernel * e->bufs[pool->in].hw + e->bufs[pool->out].hw);
    chex_cpu_need_floats(&need->d, rows * (size_t)pool->in_channels);
    return t;
}

/* Computes one row of means and writes it as operands. */
static void make_means(const struct cpu_fusion_run *r, int image, int y, void *dst, size_t pitch,
                       struct cpu_scratch *s) {
    const struct cpu_engine *e = r->e;
    const struct chex_op *pool = r->job[0].op;
    int in_hw = e->bufs[pool->in].hw, channels = pool->in_channels;
    int first = y * pool->stride;
    float *means = (float *)s->d + (size_t)(pool->kernel * in_hw) * (size_t)channels;
    chex_cpu_load(e, pool->in, pool->in_bn, true, chex_cpu_row(in_hw, image, first),
                  pool->kernel * in_hw, channels, s->d);
    chex_cpu_pool_row(&r->job[0], y, s->d, first, means, NULL);
    chex_cpu_fusion_operand(e, CHEX_NET_NONE, means, (size_t)channels, dst, pitch, r->step.hw,
                            channels, false);
}

void chex_cpu_fusion_average(const struct cpu_fusion_run *r, struct cpu_tile tile, bool kept,
                             struct cpu_scratch *s) {
    (void)kept;
    const struct cpu_engine *e = r->e;
    const struct chex_op *conv = r->job[1].op;
    size_t pitch = chex_cpu_pitch(e, conv->in_channels), at = 0;
    size_t c_pitch = (size_t)conv->out_channels + CPU_PAD;
    int pixels = chex_cpu_tile_pixels(r->step, tile);
    double start = chex_clock_s();
    for (int image = tile.image; image < tile.image + tile.images; image++)
        for (int y = tile.row; y < tile.row + tile.rows; y++, at += (size_t)r->step.hw * pitch)
            make_means(r, image, y, chex_cpu_at(e, s->a, at), pitch, s);
    double middle = chex_clock_s();
    chex_cpu_multiply_points(&r->job[1], pixels, 0, conv->out_channels, c_pitch, NULL, s);
    struct cpu_stored out =
        chex_cpu_x(e, conv->out, chex_cpu_tile_pixel(r->step, tile), conv->out_first, 1);
    e->k->store(&out, s->c, c_pitch, pixels, conv->out_channels, NULL);
    s->spent_s[0] += middle - start;
    s->spent_s[1] += chex_clock_s() - middle;
}
