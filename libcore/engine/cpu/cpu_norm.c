/* SPDX-License-Identifier: Apache-2.0
 *
 * Batch norm: statistics of an output while it is stored, scale and shift for its readers, and the
 * two sums of the backward (cpu_engine.h explains the deferred terms). All sums over tiles are in
 * double and in the order of tiles.
 */
#include <math.h>
#include <string.h>

#include "engine/cpu/cpu_engine.h"

static void prepare(struct cpu_engine *e, int index, bool training) {
    const struct chex_bn *bn = &e->net->bns[index];
    const struct chex_param *params = e->net->params;
    const struct cpu_buf *buf = &e->bufs[bn->buffer];
    const float *gamma = e->param + params[bn->weight].offset;
    const float *beta = e->param + params[bn->bias].offset;
    const float *mean = training ? buf->mean : e->param + params[bn->mean].offset;
    const float *var = e->param + params[bn->var].offset;
    for (int c = 0; c < bn->channels; c++) {
        double inv =
            training ? (double)buf->inv[c] : 1.0 / sqrt((double)var[c] + (double)e->net->bn_eps);
        double scale = (double)gamma[c] * inv;
        e->bns[index].scale[c] = (float)scale;
        e->bns[index].shift[c] = (float)((double)beta[c] - (double)mean[c] * scale);
    }
}

void chex_cpu_norm_prepare(struct cpu_engine *e, const struct chex_op *op, bool training) {
    if (op->in_bn >= 0)
        prepare(e, op->in_bn, training);
    if (op->side_bn >= 0)
        prepare(e, op->side_bn, training);
}

void chex_cpu_store_results(void *output, const struct cpu_results *r) {
    const struct cpu_output *to = output;
    const struct cpu_job *job = to->job;
    struct cpu_engine *e = job->e;
    const struct chex_op *op = job->op;
    struct cpu_stored x =
        chex_cpu_x(e, op->out, to->pixel + (size_t)r->row, op->out_first + r->column, 1);
    size_t at = (size_t)to->tile * (size_t)op->out_channels + (size_t)r->column;
    bool normed = job->training && e->bufs[op->out].normed;
    const struct cpu_moments m =
        normed ? (struct cpu_moments){e->part[0] + at, e->part[1] + at, e->part[2] + at, r->row > 0}
               : (struct cpu_moments){0};
    e->k->store(&x, r->c, r->pitch, r->rows, r->columns, normed ? &m : NULL);
}

/* The mean of a tile's channel from its shifted moments at index i. */
static double tile_mean(const struct cpu_engine *e, size_t i, double pixels) {
    return (double)e->part[0][i] + (double)e->part[1][i] / pixels;
}

/* The sum of squared deviations of a tile's channel. */
static double tile_deviation(const struct cpu_engine *e, size_t i, double pixels) {
    double sum = (double)e->part[1][i], m2 = (double)e->part[2][i] - sum * sum / pixels;
    return m2 < 0 ? 0 : m2;
}

/* Merges the moments of the tiles by the rule of Chan, Golub and LeVeque (1979): first the mean of
 * the means, then the deviations within and between tiles. */
enum chex_status chex_cpu_norm_merge(const struct cpu_job *job, struct chex_error *err) {
    struct cpu_engine *e = job->e;
    const struct chex_op *op = job->op;
    struct cpu_buf *buf = &e->bufs[op->out];
    if (!job->training || !buf->normed)
        return CHEX_OK;
    size_t channels = (size_t)op->out_channels;
    double *mean = e->row_sum, *m2 = e->row_sum + channels;
    double all = (double)job->n * buf->hw * buf->hw;
    memset(mean, 0, 2 * channels * sizeof *mean);
    for (int t = 0; t < job->tiles; t++) {
        double pixels = chex_cpu_tile_pixels(job->tiling, chex_cpu_tile(job->tiling, job->n, t));
        for (size_t c = 0; c < channels; c++)
            mean[c] += pixels / all * tile_mean(e, (size_t)t * channels + c, pixels);
    }
    for (int t = 0; t < job->tiles; t++) {
        double pixels = chex_cpu_tile_pixels(job->tiling, chex_cpu_tile(job->tiling, job->n, t));
        for (size_t c = 0; c < channels; c++) {
            size_t i = (size_t)t * channels + c;
            double d = tile_mean(e, i, pixels) - mean[c];
            m2[c] += tile_deviation(e, i, pixels) + pixels * d * d;
        }
    }
    double *var = m2;
    for (size_t c = 0; c < channels; c++)
        var[c] = m2[c] / all;
    CHEX_TRY(chex_sync_moments(e->config.sync, e->row_sum, channels, err));
    for (size_t c = 0; c < channels; c++) {
        size_t to = (size_t)op->out_first + c;
        double inv = 1.0 / sqrt(var[c] + (double)e->net->bn_eps);
        buf->mean[to] = (float)mean[c];
        buf->var[to] = (float)var[c];
        buf->inv[to] = (float)inv;
        buf->xshift[to] = (float)(-mean[c] * inv);
        buf->bsum[to] = buf->csum[to] = 0;
    }
    return CHEX_OK;
}

static int bn_of(const struct chex_op *op, int side) { return side ? op->side_bn : op->in_bn; }

void chex_cpu_clear_sums(const struct cpu_job *job, int tile, int first, int channels) {
    size_t at = (size_t)tile * (size_t)job->op->in_channels + (size_t)first;
    for (int k = 0; k < 4; k++)
        if (bn_of(job->op, k / 2) >= 0)
            memset(job->e->part[k] + at, 0, (size_t)channels * sizeof(float));
}

void chex_cpu_back_store(const struct cpu_job *job, int tile, int side, int first, int channels,
                         struct cpu_run run, const float *dv, size_t pitch) {
    const struct cpu_engine *e = job->e;
    const struct chex_op *op = job->op;
    const int buffer = side ? op->side_in : op->in, bn = bn_of(op, side);
    const bool add = e->adds[side][job->index], relu = op->kind != CHEX_OP_RESIDUAL_ADD;
    struct cpu_stored g = chex_cpu_g(e, buffer, run.pixel, first, run.step);
    struct cpu_stored x = chex_cpu_x(e, buffer, run.pixel, first, run.step);
    if (bn < 0) {
        e->k->back(&g, &x, dv, pitch, run.count, channels, NULL, false, add, NULL, NULL);
        return;
    }
    const struct cpu_buf *buf = &e->bufs[buffer];
    const struct cpu_norm norm = {e->bns[bn].scale + first, e->bns[bn].shift + first,
                                  buf->inv + first, buf->xshift + first};
    size_t at = (size_t)tile * (size_t)op->in_channels + (size_t)first;
    e->k->back(&g, &x, dv, pitch, run.count, channels, &norm, relu, add, e->part[2 * side] + at,
               e->part[2 * side + 1] + at);
}

static void sum_parts(const struct cpu_job *job, int index, int side) {
    struct cpu_engine *e = job->e;
    const struct chex_bn *bn = &e->net->bns[index];
    struct cpu_buf *buf = &e->bufs[bn->buffer];
    size_t channels = (size_t)bn->channels;
    double *s1 = e->row_sum, *s2 = e->row_sum + channels;
    memset(s1, 0, 2 * channels * sizeof *s1);
    for (int t = 0; t < job->tiles; t++) {
        const float *part1 = e->part[2 * side] + (size_t)t * channels;
        const float *part2 = e->part[2 * side + 1] + (size_t)t * channels;
        for (size_t c = 0; c < channels; c++) {
            s1[c] += (double)part1[c];
            s2[c] += (double)part2[c];
        }
    }
    float *dgamma = job->grad + e->net->params[bn->weight].offset;
    float *dbeta = job->grad + e->net->params[bn->bias].offset;
    double all = (double)job->n * buf->hw * buf->hw;
    for (size_t c = 0; c < channels; c++) {
        double scale = (double)e->bns[index].scale[c];
        dgamma[c] = (float)s2[c];
        dbeta[c] = (float)s1[c];
        buf->bsum[c] -= scale * s2[c] * (double)buf->inv[c] / all;
        buf->csum[c] -= scale * s1[c] / all;
    }
}

void chex_cpu_norm_back(const struct cpu_job *job) {
    for (int side = 0; side < 2; side++)
        if (bn_of(job->op, side) >= 0)
            sum_parts(job, bn_of(job->op, side), side);
}

/* The terms of a logical rank are linear in its sums S1 and S2, and all logical ranks have the same
 * scale, inv and number of pixels. So the terms of the whole batch are the means of theirs. */
enum chex_status chex_cpu_grad_prepare(struct cpu_engine *e, const struct chex_op *op,
                                       struct chex_error *err) {
    struct cpu_buf *buf = &e->bufs[op->out];
    if (!buf->normed)
        return CHEX_OK;
    const size_t first = (size_t)op->out_first, channels = (size_t)op->out_channels;
    double *b = e->row_sum, *c = e->row_sum + channels;
    memcpy(b, buf->bsum + first, channels * sizeof *b);
    memcpy(c, buf->csum + first, channels * sizeof *c);
    CHEX_TRY(chex_sync_mean(e->config.sync, e->row_sum, 2 * channels, err));
    for (size_t i = 0; i < channels; i++) {
        buf->b[first + i] = (float)b[i];
        buf->c[first + i] = (float)c[i];
    }
    return CHEX_OK;
}

void chex_cpu_load(const struct cpu_engine *e, int buffer, int bn, bool relu, size_t pixel,
                   int pixels, int channels, float *dst) {
    const struct cpu_stored x = chex_cpu_x(e, buffer, pixel, 0, 1);
    const struct cpu_affine norm = chex_cpu_affine(e, bn, 0);
    e->k->load(dst, (size_t)channels, &x, pixels, channels, norm.scale, norm.shift,
               relu ? norm.relu : 0);
}

void chex_cpu_load_grad(const struct cpu_job *job, void *dst, size_t pitch, size_t pixel,
                        int pixels) {
    const struct cpu_engine *e = job->e;
    const struct chex_op *op = job->op;
    const struct cpu_buf *buf = &e->bufs[op->out];
    struct cpu_stored g = chex_cpu_g(e, op->out, pixel, op->out_first, 1);
    struct cpu_stored x = chex_cpu_x(e, op->out, pixel, op->out_first, 1);
    if (buf->normed)
        e->k->load_grad(dst, pitch, &g, &x, pixels, op->out_channels, buf->b + op->out_first,
                        buf->mean + op->out_first, buf->c + op->out_first, e->bf16);
    else
        e->k->load_grad(dst, pitch, &g, &x, pixels, op->out_channels, NULL, NULL, NULL, e->bf16);
}

void chex_cpu_load_grad_operand(const struct cpu_job *job, void *dst, size_t pitch, size_t pixel,
                                int pixels) {
    const struct cpu_engine *e = job->e;
    const struct chex_op *op = job->op;
    const struct cpu_buf *buf = &e->bufs[op->out];
    if (!e->dot2) {
        chex_cpu_load_grad(job, dst, pitch, pixel, pixels);
        return;
    }
    struct cpu_stored g = chex_cpu_g(e, op->out, pixel, op->out_first, 1);
    struct cpu_stored x = chex_cpu_x(e, op->out, pixel, op->out_first, 1);
    const float *b = buf->normed ? buf->b + op->out_first : NULL;
    e->dot2->load_grad(dst, pitch, &g, &x, pixels, op->out_channels, b,
                       b ? buf->mean + op->out_first : NULL, b ? buf->c + op->out_first : NULL,
                       chex_cpu_split_flag(e));
}

void chex_cpu_norm_report(struct cpu_engine *e, int n, float *grad) {
    for (int i = 0; i < e->net->bn_count; i++) {
        const struct chex_bn *bn = &e->net->bns[i];
        const struct cpu_buf *buf = &e->bufs[bn->buffer];
        double all = (double)n * buf->hw * buf->hw * chex_sync_ranks(e->config.sync),
               unbias = all > 1 ? all / (all - 1) : 1;
        float *mean = grad + e->net->params[bn->mean].offset;
        float *var = grad + e->net->params[bn->var].offset;
        for (int c = 0; c < bn->channels; c++) {
            mean[c] = buf->mean[c];
            var[c] = (float)((double)buf->var[c] * unbias);
        }
    }
}
