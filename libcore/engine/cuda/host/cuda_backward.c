/* SPDX-License-Identifier: Apache-2.0
 *
 * Backward operations: launches the kernels of one operation's backward on the engine's stream.
 * cuda_run.c calls it from the last operation to the first. gpu.h describes which gradients
 * accumulate where.
 */
#include "engine/cuda/host/cuda_engine.h"

static enum chex_status backward_conv(struct cuda_engine *e, int index,
                                      const struct cuda_slot *slot, int n, float *grad,
                                      struct chex_error *err) {
    const struct chex_op *op = &e->net->ops[index];
    const struct cuda_op *mine = &e->ops[index];
    struct gpu_conv_backward b = chex_cuda_conv_backward(e, index, n, grad);
    void *workspace;
    float *dweight = grad + e->net->params[op->weight].offset;
    CHEX_TRY(chex_cuda_take_workspace(e, mine->backward_bytes, &workspace, err));
    if (mine->own_stem) {
        CHEX_CUDA(gpu_stem_backward(&e->device, slot->pixels, n, e->config.image_size, &b.out,
                                    e->net->mean, e->net->std, dweight, workspace, e->stream));
        return CHEX_OK;
    }
    if (e->side.stream && op->in != CHEX_NET_IMAGE)
        b.side = &e->side;
    CHEX_CUDA(mine->kernel[1].algo->backward(&e->device, mine->kernel[1].state, &b, workspace,
                                             e->stream));
    if (op->in == CHEX_NET_IMAGE)
        CHEX_CUDA(gpu_unpad(b.dweight, (size_t)(op->out_channels * op->kernel * op->kernel),
                            e->image_channels, op->in_channels, dweight, e->stream));
    return CHEX_OK;
}

static enum chex_status backward_pool(struct cuda_engine *e, int index, int n, float *grad,
                                      struct chex_error *err) {
    const struct chex_op *op = &e->net->ops[index];
    const struct cuda_op *mine = &e->ops[index];
    const struct gpu_deferred_grad out = chex_cuda_deferred_grad(e, op, n);
    const struct gpu_map in = chex_cuda_in(e, op, n);
    const struct gpu_map in_g = chex_cuda_g(e, op->in, n, 0, op->in_channels);
    const struct gpu_norm norm = chex_cuda_norm(e, op->in_bn, true, true);
    const struct gpu_sums sums = chex_cuda_sums(e, op->in_bn, 0, grad);
    const struct gpu_window window = {op->kernel, op->stride, op->pad};
    if (op->kind == CHEX_OP_MAXPOOL)
        CHEX_CUDA(gpu_maxpool_backward(&out, mine->argmax, window, &in, &norm, &in_g, mine->add,
                                       &sums, e->stream));
    else
        CHEX_CUDA(
            gpu_avgpool_backward(&out, op->kernel, &in, &norm, &in_g, mine->add, &sums, e->stream));
    return CHEX_OK;
}

static enum chex_status backward_residual_add(struct cuda_engine *e, int index, int n, float *grad,
                                              struct chex_error *err) {
    const struct chex_op *op = &e->net->ops[index];
    const struct gpu_deferred_grad out = chex_cuda_deferred_grad(e, op, n);
    const struct gpu_map out_x = chex_cuda_x(e, op->out, n, op->out_first, op->out_channels);
    const struct gpu_map in = chex_cuda_in(e, op, n);
    const struct gpu_map in_g = chex_cuda_g(e, op->in, n, 0, op->in_channels);
    const struct gpu_map side = chex_cuda_x(e, op->side_in, n, 0, op->out_channels);
    const struct gpu_map side_g = chex_cuda_g(e, op->side_in, n, 0, op->out_channels);
    const struct gpu_norm norm = chex_cuda_norm(e, op->in_bn, false, true);
    const struct gpu_norm side_norm = chex_cuda_norm(e, op->side_bn, false, true);
    const struct gpu_sums sums = chex_cuda_sums(e, op->in_bn, 0, grad);
    const struct gpu_sums side_sums = chex_cuda_sums(e, op->side_bn, 1, grad);
    CHEX_CUDA(gpu_residual_add_backward(&out, &out_x, &in, &norm, &in_g, e->ops[index].add, &sums,
                                        &side, &side_norm, &side_g, e->ops[index].side_add,
                                        &side_sums, e->stream));
    return CHEX_OK;
}

static enum chex_status backward_head(struct cuda_engine *e, int index, int n, float *grad,
                                      struct chex_error *err) {
    const struct chex_op *op = &e->net->ops[index];
    const struct chex_param *p = e->net->params;
    const struct gpu_map in = chex_cuda_in(e, op, n);
    const struct gpu_map in_g = chex_cuda_g(e, op->in, n, 0, op->in_channels);
    const struct gpu_norm norm = chex_cuda_norm(e, op->in_bn, true, true);
    const struct gpu_sums sums = chex_cuda_sums(e, op->in_bn, 0, grad);
    CHEX_CUDA(gpu_head_backward(&in, &norm, e->w + p[op->weight].offset, e->net->classes, e->pooled,
                                e->dlogits, e->dpooled, grad + p[op->weight].offset,
                                grad + p[op->bias].offset, &in_g, e->ops[index].add, &sums,
                                e->stream));
    return CHEX_OK;
}

enum chex_status chex_cuda_backward_op(struct cuda_engine *e, int index,
                                       const struct cuda_slot *slot, int n, float *grad,
                                       struct chex_error *err) {
    switch (e->net->ops[index].kind) {
    case CHEX_OP_CONV: return backward_conv(e, index, slot, n, grad, err);
    case CHEX_OP_MAXPOOL:
    case CHEX_OP_AVGPOOL: return backward_pool(e, index, n, grad, err);
    case CHEX_OP_RESIDUAL_ADD: return backward_residual_add(e, index, n, grad, err);
    case CHEX_OP_HEAD: return backward_head(e, index, n, grad, err);
    }
    return CHEX_OK;
}
