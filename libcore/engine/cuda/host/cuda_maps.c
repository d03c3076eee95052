/* SPDX-License-Identifier: Apache-2.0
 *
 * Class maps: the logits of every position of the last feature map. The head's kernels compute
 * them: each position is passed as an image of one pixel. The last map is still in memory after
 * infer, because no operation after the head reuses its memory. Pooled features are what the head's
 * kernel has kept.
 */
#include "engine/cuda/host/cuda_engine.h"

/* scratch: device memory for the features of all positions, then for their logits. */
static enum chex_status compute_maps(struct cuda_engine *e, int image, float *scratch,
                                     float *maps_out, struct chex_error *err) {
    const struct chex_op *op = &e->net->ops[e->net->op_count - 1];
    const struct chex_param *p = e->net->params;
    struct gpu_map in = chex_cuda_in(e, op, 1);
    const size_t positions = (size_t)in.hw * (size_t)in.hw, classes = (size_t)e->net->classes;
    float *logits = scratch + positions * (size_t)in.channels;
    in.data =
        (char *)in.data + (size_t)image * positions * (size_t)in.pitch * gpu_type_bytes(in.type);
    in.n = (int)positions;
    in.hw = 1;
    const struct gpu_norm norm = chex_cuda_norm(e, op->in_bn, true, false);
    CHEX_CUDA(gpu_head_forward(&in, &norm, e->w + p[op->weight].offset, e->w + p[op->bias].offset,
                               e->net->classes, scratch, logits, e->stream));
    CHEX_CUDA(cudaMemcpyAsync(maps_out, logits, positions * classes * sizeof *maps_out,
                              cudaMemcpyDeviceToHost, e->stream));
    CHEX_CUDA(cudaStreamSynchronize(e->stream));
    return CHEX_OK;
}

enum chex_status chex_cuda_class_maps(void *self, int image, float *maps_out,
                                      struct chex_error *err) {
    struct cuda_engine *e = self;
    const struct chex_op *op = &e->net->ops[e->net->op_count - 1];
    const size_t hw = (size_t)e->bufs[op->in].hw;
    float *scratch = NULL;
    CHEX_CUDA(cudaMalloc((void **)&scratch,
                         hw * hw * (size_t)(op->in_channels + e->net->classes) * sizeof *scratch));
    const enum chex_status st = compute_maps(e, image, scratch, maps_out, err);
    cudaStreamSynchronize(e->stream); /* needed before the free if run failed half way */
    cudaFree(scratch);
    return st;
}

enum chex_status chex_cuda_features(void *self, int n, float *features_out,
                                    struct chex_error *err) {
    struct cuda_engine *e = self;
    const struct chex_op *op = &e->net->ops[e->net->op_count - 1];
    CHEX_CUDA(cudaMemcpyAsync(features_out, e->pooled,
                              (size_t)n * (size_t)op->in_channels * sizeof *features_out,
                              cudaMemcpyDeviceToHost, e->stream));
    CHEX_CUDA(cudaStreamSynchronize(e->stream));
    return CHEX_OK;
}
