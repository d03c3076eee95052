/* SPDX-License-Identifier: Apache-2.0
 *
 * The cuDNN graphs of dnn_graphs.h. Types: operands of a product have the map's type, so prologues
 * round their result. Tensors between the product and the store are fp32. Scale and bias vectors
 * are fp32: in bf16 they would cause errors of 1e-2 if a mean is far from 0.
 */
#include "engine/cuda/cudnn/dnn_graphs.h"

/* ---- plain ---- */

void dnn_plain_forward(struct dnn_graph *g, const struct gpu_map *x, struct gpu_window window,
                       const struct gpu_map *out) {
    const struct dnn_shape w = dnn_shape_filter(out->channels, window.kernel, x->channels);
    dnn_graph_forward(g, window, dnn_graph_tensor(g, DNN_IN, x->type, dnn_shape_map(x)),
                      dnn_graph_tensor(g, DNN_WEIGHT, x->type, w),
                      dnn_graph_tensor(g, DNN_OUT, out->type, dnn_shape_map(out)));
}

void dnn_plain_dgrad(struct dnn_graph *g, const struct gpu_map *in_g, struct gpu_window window,
                     const struct gpu_map *og) {
    const struct dnn_shape w = dnn_shape_filter(og->channels, window.kernel, in_g->channels);
    dnn_graph_dgrad(g, window, dnn_graph_tensor(g, DNN_G, og->type, dnn_shape_map(og)),
                    dnn_graph_tensor(g, DNN_WEIGHT, og->type, w),
                    dnn_graph_tensor(g, DNN_IN_G, in_g->type, dnn_shape_map(in_g)));
}

void dnn_plain_wgrad(struct dnn_graph *g, const struct gpu_map *x, struct gpu_window window,
                     const struct gpu_map *og) {
    const struct dnn_shape w = dnn_shape_filter(og->channels, window.kernel, x->channels);
    dnn_graph_wgrad(g, window, dnn_graph_tensor(g, DNN_IN, x->type, dnn_shape_map(x)),
                    dnn_graph_tensor(g, DNN_G, og->type, dnn_shape_map(og)),
                    dnn_graph_tensor(g, DNN_DWEIGHT, x->type, w));
}

/* ---- fused ---- */

bool dnn_fusible(struct gpu_window window) {
    return window.stride == 1 &&
           ((window.kernel == 1 && window.pad == 0) || (window.kernel == 3 && window.pad == 1));
}

/* The shape of a map in a graph: an image for a 3x3, rows or columns of a matrix for a 1x1. */
typedef struct dnn_shape (*view_fn)(const struct gpu_map *m);

static view_fn view_of(struct gpu_window window) {
    return window.kernel == 1 ? dnn_shape_rows : dnn_shape_map;
}

static dnn_tensor vector(struct dnn_graph *g, int role, view_fn view, int channels) {
    struct dnn_shape s = dnn_shape_vector(view == dnn_shape_map ? 4 : 3, channels);
    if (view == dnn_shape_columns)
        s = (struct dnn_shape){3, {1, channels, 1}, {channels, 1, channels}};
    return dnn_graph_tensor(g, role, GPU_F32, s);
}

/* a x + b in fp32. */
static dnn_tensor normed(struct dnn_graph *g, dnn_tensor x, view_fn view, const struct gpu_map *m,
                         enum gpu_type type) {
    const dnn_tensor ax =
        dnn_graph_binary(g, CUDNN_POINTWISE_MUL, x, vector(g, DNN_A, view, m->channels), GPU_F32);
    return dnn_graph_binary(g, CUDNN_POINTWISE_ADD, ax, vector(g, DNN_B, view, m->channels), type);
}

/* norm(in), rounded as the operand of the product. */
static dnn_tensor activated(struct dnn_graph *g, view_fn view, const struct gpu_map *in,
                            const struct gpu_norm *norm) {
    const dnn_tensor x = dnn_graph_tensor(g, DNN_IN, in->type, view(in));
    if (!norm->mean)
        return x;
    if (!norm->relu)
        return normed(g, x, view, in, in->type);
    return dnn_graph_unary(g, CUDNN_POINTWISE_RELU_FWD, normed(g, x, view, in, GPU_F32), in->type);
}

/* g + bsum x + csum, rounded as the operand of the product. */
static dnn_tensor deferred_grad(struct dnn_graph *g, view_fn view,
                                const struct gpu_deferred_grad *out) {
    const int channels = out->g.channels;
    const dnn_tensor og = dnn_graph_tensor(g, DNN_G, out->g.type, view(&out->g));
    if (!out->bsum)
        return og;
    const dnn_tensor x = dnn_graph_tensor(g, DNN_GX, out->x.type, view(&out->x));
    const dnn_tensor bx =
        dnn_graph_binary(g, CUDNN_POINTWISE_MUL, x, vector(g, DNN_BSUM, view, channels), GPU_F32);
    const dnn_tensor bxc =
        dnn_graph_binary(g, CUDNN_POINTWISE_ADD, bx, vector(g, DNN_CSUM, view, channels), GPU_F32);
    return dnn_graph_binary(g, CUDNN_POINTWISE_ADD, bxc, og, out->g.type);
}

/* Weights (rows, columns) of a 1x1 as the second factor of a product. The first factor is pixels x
 * columns; with `across` it is pixels x rows. */
static struct dnn_shape factor(int rows, int columns, bool across) {
    return across
               ? (struct dnn_shape){3, {1, rows, columns}, {(int64_t)rows * columns, columns, 1}}
               : (struct dnn_shape){3, {1, columns, rows}, {(int64_t)rows * columns, 1, columns}};
}

void dnn_fused_forward(struct dnn_graph *g, const struct gpu_conv_forward *f) {
    const view_fn view = view_of(f->window);
    const enum gpu_type type = f->in.type;
    const dnn_tensor x = activated(g, view, &f->in, &f->norm);
    const dnn_tensor out = dnn_graph_tensor(g, DNN_OUT, f->out.type, view(&f->out));
    if (f->window.kernel == 1)
        dnn_graph_matmul(
            g, x,
            dnn_graph_tensor(g, DNN_WEIGHT, type, factor(f->out.channels, f->in.channels, false)),
            out);
    else
        dnn_graph_forward(
            g, f->window, x,
            dnn_graph_tensor(g, DNN_WEIGHT, type,
                             dnn_shape_filter(f->out.channels, f->window.kernel, f->in.channels)),
            out);
    if (!f->stats.partial)
        return;
    dnn_graph_sum(g, out, vector(g, DNN_SUM, view, f->out.channels));
    dnn_graph_sum(g, dnn_graph_binary(g, CUDNN_POINTWISE_MUL, out, out, GPU_F32),
                  vector(g, DNN_SUM2, view, f->out.channels));
}

/* Masks dv, adds its sums, and computes in_g (+)= a dv. */
static void backward_of_norm(struct dnn_graph *g, view_fn view, const struct gpu_conv_backward *b,
                             dnn_tensor dv, dnn_tensor in_g) {
    const int channels = b->in.channels;
    const dnn_tensor x = dnn_graph_tensor(g, DNN_IN, b->in.type, view(&b->in));
    const dnn_tensor a = vector(g, DNN_A, view, channels);
    if (b->norm.relu) {
        const dnn_tensor ax = dnn_graph_binary(g, CUDNN_POINTWISE_MUL, x, a, GPU_F32);
        dv = dnn_graph_mask(g, dv,
                            dnn_graph_binary(g, CUDNN_POINTWISE_ADD, ax,
                                             vector(g, DNN_B, view, channels), GPU_F32));
    }
    if (b->sums.partial) {
        /* x - mean, not x: with x the sums would cancel if a mean is far from 0. */
        const dnn_tensor centred = dnn_graph_binary(g, CUDNN_POINTWISE_SUB, x,
                                                    vector(g, DNN_MEAN, view, channels), GPU_F32);
        dnn_graph_sum(g, dv, vector(g, DNN_SUM, view, channels));
        dnn_graph_sum(g, dnn_graph_binary(g, CUDNN_POINTWISE_MUL, dv, centred, GPU_F32),
                      vector(g, DNN_SUM2, view, channels));
    }
    if (!b->add)
        dnn_graph_binary_to(g, CUDNN_POINTWISE_MUL, dv, a, in_g);
    else
        dnn_graph_binary_to(g, CUDNN_POINTWISE_ADD,
                            dnn_graph_binary(g, CUDNN_POINTWISE_MUL, dv, a, GPU_F32),
                            dnn_graph_tensor(g, DNN_IN_G_OLD, b->in_g.type, view(&b->in_g)), in_g);
}

void dnn_fused_dgrad(struct dnn_graph *g, const struct gpu_conv_backward *b) {
    const view_fn view = view_of(b->window);
    const enum gpu_type type = b->out.g.type;
    const int in = b->in.channels, out = b->out.g.channels;
    const bool tail = b->norm.mean || b->add; /* operations between product and store */
    struct gpu_map packed = b->in_g;
    packed.pitch = packed.channels;
    const dnn_tensor og = deferred_grad(g, view, &b->out);
    const dnn_tensor in_g = dnn_graph_tensor(g, DNN_IN_G, b->in_g.type, view(&b->in_g));
    const dnn_tensor dv = tail ? dnn_graph_tensor(g, 0, GPU_F32, view(&packed)) : in_g;
    if (b->window.kernel == 1)
        dnn_graph_matmul(g, og, dnn_graph_tensor(g, DNN_WEIGHT, type, factor(out, in, true)), dv);
    else
        dnn_graph_forward(
            g, b->window, og,
            dnn_graph_tensor(g, DNN_WEIGHT, type, dnn_shape_filter(in, b->window.kernel, out)), dv);
    if (b->norm.mean)
        backward_of_norm(g, view, b, dv, in_g);
    else if (b->add)
        dnn_graph_binary_to(g, CUDNN_POINTWISE_ADD, dv,
                            dnn_graph_tensor(g, DNN_IN_G_OLD, b->in_g.type, view(&b->in_g)), in_g);
}

void dnn_fused_wgrad(struct dnn_graph *g, const struct gpu_conv_backward *b) {
    const int64_t in = b->in.channels, out = b->out.g.channels;
    const dnn_tensor og = deferred_grad(g, dnn_shape_columns, &b->out);
    const dnn_tensor x = activated(g, dnn_shape_rows, &b->in, &b->norm);
    dnn_graph_matmul(g, og, x,
                     dnn_graph_tensor(g, DNN_DWEIGHT, GPU_F32,
                                      (struct dnn_shape){3, {1, out, in}, {out * in, in, 1}}));
}
