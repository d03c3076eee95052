/* SPDX-License-Identifier: Apache-2.0
 *
 * Conversion between the layouts of weights:
 *   files                          row-major (out, in, position)
 *   master copies, gradients       (position, in, out)
 *   packed copies, for the kernels panels of columns, see gemm in kernels.h
 * With precision bf16 the packed copies are rounded to bf16. They are stored as fp32, or as pairs
 * of bf16 if the kernels have bf16 dot products.
 *
 * Packed copies are padded (cpu_engine.h). What their surplus columns hold does not matter. Their
 * surplus rows are multiplied with zeros.
 */
#include <string.h>

#include "engine/cpu/cpu_engine.h"

/* Output channels at a time: a cache line of `own`, and as many sequential streams of `rows`. */
enum { TRANSPOSE_OUTS = 16 };

static void transpose(const struct chex_param *p, float *own, float *rows, bool to_own) {
    const size_t out = (size_t)p->dims[0], in = (size_t)p->dims[1];
    const size_t taps = (size_t)p->dims[2] * (size_t)p->dims[3];
    for (size_t from = 0, to; from < out; from = to) {
        to = from + TRANSPOSE_OUTS < out ? from + TRANSPOSE_OUTS : out;
        for (size_t i = 0; i < in; i++)
            for (size_t t = 0; t < taps; t++)
                for (size_t o = from; o < to; o++) {
                    float *a = &own[(t * in + i) * out + o], *b = &rows[(o * in + i) * taps + t];
                    if (to_own)
                        *a = *b;
                    else
                        *b = *a;
                }
    }
}

static void convert(const struct chex_net *net, float *own, float *rows, bool to_own) {
    for (int i = 0; i < net->param_total; i++) {
        const struct chex_param *p = &net->params[i];
        float *a = own + p->offset, *b = rows + p->offset;
        if (p->kind == CHEX_PARAM_CONV)
            transpose(p, a, b, to_own);
        else
            memcpy(to_own ? a : b, to_own ? b : a, p->count * sizeof *a);
    }
}

void chex_cpu_from_rows(const struct chex_net *net, float *own, const float *rows) {
    convert(net, own, (float *)(uintptr_t)rows, true);
}

void chex_cpu_to_rows(const struct chex_net *net, float *rows, const float *own) {
    convert(net, (float *)(uintptr_t)own, rows, false);
}

static void round_all(float *w, size_t count) {
    for (size_t i = 0; i < count; i++)
        w[i] = chex_cpu_round_bf16(w[i]);
}

/* Packs one op's weight and its transpose. Item: one panel of either. */
struct pack_job {
    struct cpu_engine *e;
    const struct chex_op *op;
    void *weight, *weight_t;
    bool dot2;
    int forward_panels;
};

/* pack_item for bf16 dot products: pairs of rows. */
static void pack_dot2(const struct pack_job *job, size_t item) {
    const struct cpu_engine *e = job->e;
    const struct chex_op *op = job->op;
    size_t panel = (size_t)e->k->panel, in = (size_t)op->in_channels;
    size_t out = (size_t)op->out_channels, taps = (size_t)op->kernel * (size_t)op->kernel;
    const float *w = e->param + e->net->params[op->weight].offset;
    if (item < (size_t)job->forward_panels) {
        size_t tap = (size_t)chex_cpu_padded(op->in_channels) / 2 * panel, half = taps * tap;
        uint32_t *dst = (uint32_t *)job->weight + item * half * chex_cpu_halves(e);
        for (size_t t = 0; t < taps; t++, dst += tap)
            e->dot2->pack(dst, e->split ? dst + half : NULL, w + t * in * out + item * panel, out,
                          (int)in);
        return;
    }
    item -= (size_t)job->forward_panels;
    size_t tap = (size_t)chex_cpu_padded(op->out_channels) / 2 * panel, half = taps * tap;
    uint32_t *dst = (uint32_t *)job->weight_t + item * half * chex_cpu_halves(e);
    for (size_t t = 0; t < taps; t++, dst += tap)
        e->dot2->pack_columns(dst, e->split ? dst + half : NULL, w + (t * in + item * panel) * out,
                              out, (int)out);
}

/* The columns of panel `item` that a weight of `all` columns has. */
static size_t used(size_t all, size_t item, size_t panel) {
    const size_t first = item * panel;
    return first >= all ? 0 : all - first < panel ? all - first : panel;
}

static void pack_item(void *arg, size_t item, int worker) {
    (void)worker;
    const struct pack_job *job = arg;
    if (job->dot2) {
        pack_dot2(job, item);
        return;
    }
    const struct chex_op *op = job->op;
    size_t panel = (size_t)job->e->k->panel, in = (size_t)op->in_channels;
    size_t out = (size_t)op->out_channels, taps = (size_t)op->kernel * (size_t)op->kernel;
    size_t rows = (size_t)chex_cpu_padded(op->in_channels), columns;
    const float *w = job->e->param + job->e->net->params[op->weight].offset;
    float *dst;
    if (item < (size_t)job->forward_panels) { /* (position, in) rows of `panel` outputs */
        dst = (float *)job->weight + item * taps * rows * panel;
        columns = used(out, item, panel);
        for (size_t row = 0; row < taps * in; row++)
            memcpy(dst + (row / in * rows + row % in) * panel, w + row * out + item * panel,
                   columns * sizeof *dst);
    } else { /* (position, out) rows of `panel` inputs */
        item -= (size_t)job->forward_panels;
        rows = (size_t)chex_cpu_padded(op->out_channels);
        dst = (float *)job->weight_t + item * taps * rows * panel;
        columns = used(in, item, panel);
        for (size_t t = 0; t < taps; t++)
            for (size_t j = 0; j < columns; j++) {
                const float *src = w + (t * in + item * panel + j) * out;
                for (size_t o = 0; o < out; o++)
                    dst[(t * rows + o) * panel + j] = src[o];
            }
    }
    if (job->e->bf16)
        round_all(dst, taps * rows * panel);
}

/* In inference, Winograd weights are transformed here, once. The panels are an intermediate. */
static void pack_op(struct cpu_engine *e, int i) {
    const struct chex_op *op = &e->net->ops[i];
    const struct cpu_op *mine = &e->ops[i];
    bool once = mine->winograd && !e->config.training;
    struct pack_job job = {.e = e,
                           .op = op,
                           .weight = once ? e->winograd : mine->weight,
                           .weight_t = mine->weight_t,
                           .dot2 = e->dot2 && !mine->winograd,
                           .forward_panels = chex_cpu_padded(op->out_channels) / e->k->panel};
    int back = job.weight_t ? chex_cpu_padded(op->in_channels) / e->k->panel : 0;
    chex_pool_run(e->pool, (size_t)(job.forward_panels + back), pack_item, &job);
    if (once)
        chex_cpu_winograd_pack(e, e->winograd, op->in_channels, op->out_channels, false,
                               mine->weight);
}

void chex_cpu_pack(struct cpu_engine *e) {
    for (int i = 0; i < e->net->op_count; i++) {
        const struct chex_op *op = &e->net->ops[i];
        if (op->kind != CHEX_OP_CONV)
            continue;
        if (op->in == CHEX_NET_IMAGE) {
            chex_cpu_stem_pack(e, i);
            continue;
        }
        pack_op(e, i);
    }
}
