/* SPDX-License-Identifier: Apache-2.0
 *
 * Forward operations: launches the kernels of one operation of the network on the engine's stream.
 * cuda_run.c calls it for each operation in order.
 */
#include "engine/cuda/host/cuda_engine.h"

static enum chex_status forward_stem(struct cuda_engine *e, int index, const struct cuda_slot *slot,
                                     int n, bool training, struct chex_error *err) {
    const struct chex_op *op = &e->net->ops[index];
    const struct gpu_map out = chex_cuda_x(e, op->out, n, op->out_first, op->out_channels);
    const struct gpu_stats stats = chex_cuda_stats(e, op, training);
    CHEX_CUDA(gpu_stem_forward(&e->device, slot->pixels, n, e->config.image_size, e->folded, &out,
                               &stats, e->stream));
    return CHEX_OK;
}

static enum chex_status forward_conv(struct cuda_engine *e, int index, const struct cuda_slot *slot,
                                     int n, bool training, struct chex_error *err) {
    const struct cuda_kernel *k = &e->ops[index].kernel[0];
    if (e->ops[index].own_stem)
        return forward_stem(e, index, slot, n, training, err);
    const struct gpu_conv_forward f = chex_cuda_conv_forward(e, index, n, training);
    if (e->net->ops[index].in == CHEX_NET_IMAGE)
        CHEX_CUDA(gpu_image(slot->pixels, e->net->mean, e->net->std, &f.in, e->stream));
    CHEX_CUDA(k->algo->forward(&e->device, k->state, &f, e->workspace, e->stream));
    return CHEX_OK;
}

static enum chex_status forward_pool(struct cuda_engine *e, int index, int n, bool training,
                                     struct chex_error *err) {
    const struct chex_op *op = &e->net->ops[index];
    const struct gpu_map in = chex_cuda_in(e, op, n);
    const struct gpu_map out = chex_cuda_x(e, op->out, n, op->out_first, op->out_channels);
    const struct gpu_norm norm = chex_cuda_norm(e, op->in_bn, true, training);
    const struct gpu_stats stats = chex_cuda_stats(e, op, training);
    const struct gpu_window window = {op->kernel, op->stride, op->pad};
    if (op->kind == CHEX_OP_MAXPOOL)
        CHEX_CUDA(gpu_maxpool_forward(&in, &norm, window, &out,
                                      training ? e->ops[index].argmax : NULL, &stats, e->stream));
    else
        CHEX_CUDA(gpu_avgpool_forward(&in, &norm, op->kernel, &out, &stats, e->stream));
    return CHEX_OK;
}

static enum chex_status forward_residual_add(struct cuda_engine *e, const struct chex_op *op, int n,
                                             bool training, struct chex_error *err) {
    const struct gpu_map in = chex_cuda_in(e, op, n);
    const struct gpu_map side = chex_cuda_x(e, op->side_in, n, 0, op->out_channels);
    const struct gpu_map out = chex_cuda_x(e, op->out, n, op->out_first, op->out_channels);
    const struct gpu_norm norm = chex_cuda_norm(e, op->in_bn, false, training);
    const struct gpu_norm side_norm = chex_cuda_norm(e, op->side_bn, false, training);
    CHEX_CUDA(gpu_residual_add_forward(&in, &norm, &side, &side_norm, &out, e->stream));
    return CHEX_OK;
}

static enum chex_status forward_head(struct cuda_engine *e, const struct chex_op *op, int n,
                                     bool training, struct chex_error *err) {
    const struct gpu_map in = chex_cuda_in(e, op, n);
    const struct gpu_norm norm = chex_cuda_norm(e, op->in_bn, true, training);
    const struct chex_param *p = e->net->params;
    CHEX_CUDA(gpu_head_forward(&in, &norm, e->w + p[op->weight].offset, e->w + p[op->bias].offset,
                               e->net->classes, e->pooled, e->logits, e->stream));
    return CHEX_OK;
}

enum chex_status chex_cuda_forward_op(struct cuda_engine *e, int index,
                                      const struct cuda_slot *slot, int n, bool training,
                                      struct chex_error *err) {
    const struct chex_op *op = &e->net->ops[index];
    switch (op->kind) {
    case CHEX_OP_CONV: return forward_conv(e, index, slot, n, training, err);
    case CHEX_OP_MAXPOOL:
    case CHEX_OP_AVGPOOL: return forward_pool(e, index, n, training, err);
    case CHEX_OP_RESIDUAL_ADD: return forward_residual_add(e, op, n, training, err);
    case CHEX_OP_HEAD: return forward_head(e, op, n, training, err);
    }
    return CHEX_OK;
}
