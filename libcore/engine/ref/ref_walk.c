/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs the op list forward and backward, one op after another.
 *
 * Precision bf16 rounds:
 *   - the normalised image and every stored buffer
 *   - relu(bn(x)) if a convolution reads it, and the weights of convolutions
 *   - a buffer's gradient, once: when the sum over all readers is complete, before the op that
 * wrote the buffer uses it It does not round: relu(bn(x)) if a pool or the head reads it, the
 * gradient of relu(bn(x)), sums, statistics, parameter gradients, the head.
 */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "engine/frozen.h"
#include "engine/ref/engine_ref.h"

/* Channels [first, first + channels) of a buffer (of: r->buffers) or of its gradient (r->grads). */
static struct chex_ref_map slice(const struct chex_ref_engine *r, float *const *of, int buffer,
                                 int n, int first, int channels) {
    int hw = r->hw[buffer];
    return (struct chex_ref_map){.data = of[buffer] + first,
                                 .n = n,
                                 .h = hw,
                                 .w = hw,
                                 .c = channels,
                                 .pitch = r->base.net->buffers[buffer].channels};
}

static struct chex_ref_map dense(float *data, const struct chex_ref_map *like) {
    struct chex_ref_map m = *like;
    m.data = data;
    m.pitch = m.c;
    return m;
}

static struct chex_ref_map input_of(const struct chex_ref_engine *r, const struct chex_op *op,
                                    int n) {
    int size = r->base.config.image_size;
    if (op->in == CHEX_NET_IMAGE)
        return (struct chex_ref_map){r->image, n, size, size, 3, 3};
    return slice(r, r->buffers, op->in, n, 0, op->in_channels);
}

static float *param(const struct chex_ref_engine *r, float *vector, int index) {
    return vector + r->base.net->params[index].offset;
}

static float *weight_of(const struct chex_ref_engine *r, int index) {
    return param(r, r->base.parts[CHEX_STATE_PARAMS], index);
}

static struct chex_ref_bn bn_of(const struct chex_ref_engine *r, int bn) {
    const struct chex_bn *b = &r->base.net->bns[bn];
    return (struct chex_ref_bn){.mean = r->bns[bn].mean,
                                .inv = r->bns[bn].inv,
                                .gamma = weight_of(r, b->weight),
                                .beta = weight_of(r, b->bias)};
}

/* Fills mean and inv of a batch norm from the batch, or from the running statistics. */
static enum chex_status prepare_bn(struct chex_ref_engine *r, int bn, int n, bool training,
                                   struct chex_error *err) {
    const struct chex_bn *b = &r->base.net->bns[bn];
    struct chex_ref_norm *norm = &r->bns[bn];
    if (training) {
        struct chex_ref_map x = slice(r, r->buffers, b->buffer, n, 0, b->channels);
        chex_ref_bn_stats(&r->base.ctx, &x, norm->mean, norm->var);
        CHEX_TRY(chex_sync_moments(r->base.config.sync, norm->mean, (size_t)b->channels, err));
    }
    for (int c = 0; c < b->channels; c++) {
        if (!training) {
            norm->mean[c] = (double)weight_of(r, b->mean)[c];
            norm->var[c] = (double)weight_of(r, b->var)[c];
        }
        norm->inv[c] = 1 / sqrt(norm->var[c] + (double)r->base.net->bn_eps);
    }
    return CHEX_OK;
}

/* The operand of the op: relu(bn(input)) in r->act, or the input itself if it has no batch norm. */
static struct chex_ref_map activated(struct chex_ref_engine *r, const struct chex_op *op, int n) {
    struct chex_ref_map x = input_of(r, op, n);
    if (op->in_bn < 0)
        return x;
    struct chex_ref_map act = dense(r->act, &x);
    struct chex_ref_bn bn = bn_of(r, op->in_bn);
    chex_ref_bn_forward(op->kind == CHEX_OP_CONV ? &r->base.ctx : &r->plain, &x, &bn, true, &act);
    return act;
}

static struct chex_ref_window window_of(const struct chex_op *op) {
    return (struct chex_ref_window){op->kernel, op->stride, op->pad};
}

static void forward_residual_add(struct chex_ref_engine *r, const struct chex_op *op, int n,
                                 const struct chex_ref_map *out) {
    struct chex_ref_map x = input_of(r, op, n);
    struct chex_ref_map side = slice(r, r->buffers, op->side_in, n, 0, op->out_channels);
    struct chex_ref_bn bn = {0}, side_bn = {0};
    if (op->in_bn >= 0)
        bn = bn_of(r, op->in_bn);
    if (op->side_bn >= 0)
        side_bn = bn_of(r, op->side_bn);
    chex_ref_residual_add_forward(&r->base.ctx, &x, op->in_bn >= 0 ? &bn : NULL, &side,
                                  op->side_bn >= 0 ? &side_bn : NULL, out);
}

static enum chex_status forward_op(struct chex_ref_engine *r, int index, int n, bool training,
                                   struct chex_error *err) {
    const struct chex_op *op = &r->base.net->ops[index];
    if (op->in_bn >= 0)
        CHEX_TRY(prepare_bn(r, op->in_bn, n, training, err));
    if (op->side_bn >= 0)
        CHEX_TRY(prepare_bn(r, op->side_bn, n, training, err));
    struct chex_ref_map out = {0}, x = {0};
    if (op->out >= 0)
        out = slice(r, r->buffers, op->out, n, op->out_first, op->out_channels);
    if (op->kind != CHEX_OP_RESIDUAL_ADD)
        x = activated(r, op, n);
    switch (op->kind) {
    case CHEX_OP_CONV:
        chex_ref_conv_forward(&r->base.ctx, &x, weight_of(r, op->weight), window_of(op), &out);
        break;
    case CHEX_OP_MAXPOOL:
        chex_ref_maxpool_forward(&r->plain, &x, window_of(op), &out, r->argmax[index]);
        chex_ref_round_map(&r->base.ctx, &out);
        break;
    case CHEX_OP_AVGPOOL: chex_ref_avgpool_forward(&r->base.ctx, &x, op->kernel, &out); break;
    case CHEX_OP_RESIDUAL_ADD: forward_residual_add(r, op, n, &out); break;
    case CHEX_OP_HEAD:
        chex_ref_head_forward(&r->plain, &x, weight_of(r, op->weight), weight_of(r, op->bias),
                              r->base.net->classes, r->pooled, r->logits);
        break;
    }
    return CHEX_OK;
}

enum chex_status chex_ref_walk_forward(struct chex_ref_engine *r, const struct chex_batch *batch,
                                       bool training, struct chex_error *err) {
    int size = r->base.config.image_size;
    struct chex_ref_map image = {r->image, batch->n, size, size, 3, 3};
    chex_ref_image(&r->base.ctx, batch->pixels, r->base.net->mean, r->base.net->std, &image);
    for (int i = 0; i < r->base.net->op_count; i++) {
        double start = chex_clock_s();
        CHEX_TRY(forward_op(r, i, batch->n, training, err));
        r->forward_s[i] = chex_clock_s() - start;
    }
    return CHEX_OK;
}

/* Applies the head to each position as if it were an image of one pixel. */
void chex_ref_walk_class_maps(struct chex_ref_engine *r, int image, float *pooled,
                              float *maps_out) {
    const struct chex_op *op = &r->base.net->ops[r->base.net->op_count - 1];
    struct chex_ref_map x = input_of(r, op, image + 1);
    x.data = chex_ref_at(&x, image, 0, 0);
    x.n = x.h * x.w;
    x.h = x.w = 1;
    if (op->in_bn >= 0) {
        const struct chex_ref_map act = dense(r->act, &x);
        const struct chex_ref_bn bn = bn_of(r, op->in_bn);
        chex_ref_bn_forward(&r->plain, &x, &bn, true, &act);
        x = act;
    }
    chex_ref_head_forward(&r->plain, &x, weight_of(r, op->weight), weight_of(r, op->bias),
                          r->base.net->classes, pooled, maps_out);
}

/* Adds the gradient of the buffer that follows from d, the gradient of bn(in). */
static enum chex_status backward_bn(struct chex_ref_engine *r, int bn_index, int buffer, int n,
                                    float *grad, const struct chex_ref_map *d,
                                    struct chex_error *err) {
    struct chex_ref_map to = slice(r, r->grads, buffer, n, 0, d->c);
    if (bn_index < 0) {
        chex_ref_add(&r->base.ctx, d, &to);
        return CHEX_OK;
    }
    const struct chex_bn *b = &r->base.net->bns[bn_index];
    struct chex_ref_map x = slice(r, r->buffers, buffer, n, 0, d->c);
    struct chex_ref_bn bn = bn_of(r, bn_index);
    return chex_ref_bn_backward(&r->base.ctx, &x, &bn, d, r->base.config.sync, r->bn_sums,
                                param(r, grad, b->weight), param(r, grad, b->bias), &to, err);
}

/* The gradient of the op's operand (after batch norm and ReLU) and of its parameters. */
static void backward_core(struct chex_ref_engine *r, int index, const struct chex_ref_map *x,
                          const struct chex_ref_map *dy, float *grad,
                          const struct chex_ref_map *dx) {
    const struct chex_op *op = &r->base.net->ops[index];
    switch (op->kind) {
    case CHEX_OP_CONV:
        chex_ref_conv_backward_weight(&r->base.ctx, x, dy, window_of(op),
                                      param(r, grad, op->weight));
        if (op->in >= 0)
            chex_ref_conv_backward_data(&r->base.ctx, dy, weight_of(r, op->weight), window_of(op),
                                        dx);
        break;
    case CHEX_OP_MAXPOOL:
        chex_ref_maxpool_backward(&r->base.ctx, dy, r->argmax[index], window_of(op), dx);
        break;
    case CHEX_OP_AVGPOOL: chex_ref_avgpool_backward(&r->base.ctx, dy, op->kernel, dx); break;
    case CHEX_OP_HEAD:
        chex_ref_head_backward(&r->base.ctx, r->pooled, r->dlogits, weight_of(r, op->weight),
                               r->base.net->classes, param(r, grad, op->weight),
                               param(r, grad, op->bias), dx);
        break;
    case CHEX_OP_RESIDUAL_ADD: break;
    }
}

static enum chex_status backward_residual_add(struct chex_ref_engine *r, const struct chex_op *op,
                                              int n, const struct chex_ref_map *dy, float *grad,
                                              struct chex_error *err) {
    struct chex_ref_map out = slice(r, r->buffers, op->out, n, op->out_first, op->out_channels);
    struct chex_ref_map d = dense(r->dact, dy);
    memset(d.data, 0, chex_ref_pixels(&d) * (size_t)d.c * sizeof *d.data);
    chex_ref_add(&r->base.ctx, dy, &d);
    chex_ref_relu_backward(&r->base.ctx, &out, &d);
    CHEX_TRY(backward_bn(r, op->in_bn, op->in, n, grad, &d, err));
    return backward_bn(r, op->side_bn, op->side_in, n, grad, &d, err);
}

static enum chex_status backward_op(struct chex_ref_engine *r, int index, int n, float *grad,
                                    struct chex_error *err) {
    const struct chex_op *op = &r->base.net->ops[index];
    struct chex_ref_map dy = {0};
    if (op->out >= 0) {
        dy = slice(r, r->grads, op->out, n, op->out_first, op->out_channels);
        chex_ref_round_map(&r->base.ctx, &dy);
    }
    if (op->kind == CHEX_OP_RESIDUAL_ADD)
        return backward_residual_add(r, op, n, &dy, grad, err);
    struct chex_ref_map x = activated(r, op, n);
    struct chex_ref_map dx = dense(r->dact, &x);
    backward_core(r, index, &x, &dy, grad, &dx);
    if (op->in < 0)
        return CHEX_OK;
    if (op->in_bn >= 0)
        chex_ref_relu_backward(&r->base.ctx, &x, &dx);
    return backward_bn(r, op->in_bn, op->in, n, grad, &dx, err);
}

/* Writes the second part of the gradient vector: the batch statistics. */
static void write_statistics(const struct chex_ref_engine *r, int n, float *grad) {
    for (int i = 0; i < r->base.net->bn_count; i++) {
        const struct chex_bn *b = &r->base.net->bns[i];
        size_t values = (size_t)n * (size_t)r->hw[b->buffer] * (size_t)r->hw[b->buffer] *
                        (size_t)chex_sync_ranks(r->base.config.sync);
        for (int c = 0; c < b->channels; c++) {
            param(r, grad, b->mean)[c] = (float)r->bns[i].mean[c];
            param(r, grad, b->var)[c] = (float)chex_ref_bn_unbiased(r->bns[i].var[c], values);
        }
    }
}

enum chex_status chex_ref_walk_backward(struct chex_ref_engine *r, int n, float *grad,
                                        chex_grad_ready_fn ready, void *ready_arg,
                                        struct chex_error *err) {
    const struct chex_net *net = r->base.net;
    for (int i = 0; i < net->buffer_count; i++) {
        struct chex_ref_map g = slice(r, r->grads, i, n, 0, net->buffers[i].channels);
        memset(g.data, 0, chex_ref_pixels(&g) * (size_t)g.c * sizeof *g.data);
    }
    write_statistics(r, n, grad);
    if (ready)
        ready(ready_arg, net->param_count, net->state_count);
    size_t end = net->param_count;
    const int first = chex_first_trained_op(&r->base.config);
    for (int i = net->op_count - 1; i >= first; i--) {
        double start = chex_clock_s();
        CHEX_TRY(backward_op(r, i, n, grad, err));
        r->backward_s[i] = chex_clock_s() - start;
        if (ready && net->ops[i].final_from < end)
            ready(ready_arg, net->ops[i].final_from, end);
        end = net->ops[i].final_from;
    }
    if (ready && end > 0)
        ready(ready_arg, 0, end);
    return CHEX_OK;
}
