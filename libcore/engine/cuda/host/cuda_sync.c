/* SPDX-License-Identifier: Apache-2.0
 *
 * Batch statistics of several logical ranks (engine/sync.h): after an operation has computed those
 * of its batch, and before the backward of an operation uses the deferred terms of its output.
 *
 * If the order of additions is free and the ranks are connected, NCCL sums the values of a slice in
 * double on the device, and the host waits for nothing. Otherwise they are copied to the host,
 * summed there over all logical ranks and copied back; the host waits for the device each time. The
 * pinned buffer is free at the next call, because that call waits for the stream first. With both,
 * these parts of a step are no CUDA graphs: NCCL is not captured (nccl/cuda_reduce.h).
 */
#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "engine/cuda/host/cuda_engine.h"

/* Copies two vectors of `count` values to e->sync_values, one after the other, and waits. */
static enum chex_status download(struct cuda_engine *e, const float *first, const float *second,
                                 size_t count, struct chex_error *err) {
    const size_t bytes = count * sizeof(float);
    float *host = e->sync_host;
    CHEX_CUDA(cudaMemcpyAsync(host, first, bytes, cudaMemcpyDeviceToHost, e->stream));
    CHEX_CUDA(cudaMemcpyAsync(host + count, second, bytes, cudaMemcpyDeviceToHost, e->stream));
    CHEX_CUDA(cudaStreamSynchronize(e->stream));
    for (size_t i = 0; i < 2 * count; i++)
        e->sync_values[i] = (double)host[i];
    return CHEX_OK;
}

/* Copies both vectors back. */
static enum chex_status upload(struct cuda_engine *e, float *first, float *second, size_t count,
                               struct chex_error *err) {
    const size_t bytes = count * sizeof(float);
    float *host = e->sync_host;
    for (size_t i = 0; i < 2 * count; i++)
        host[i] = (float)e->sync_values[i];
    CHEX_CUDA(cudaMemcpyAsync(first, host, bytes, cudaMemcpyHostToDevice, e->stream));
    CHEX_CUDA(cudaMemcpyAsync(second, host + count, bytes, cudaMemcpyHostToDevice, e->stream));
    return CHEX_OK;
}

static bool needs_sync(const struct cuda_engine *e, const struct chex_op *op) {
    return e->config.sync && op->out >= 0 && e->bufs[op->out].normed;
}

/* Both vectors become their means over the logical ranks, with the arithmetic of chex_sync_mean.
 * inv not NULL: they are moments, as for chex_sync_moments. */
static enum chex_status mean_on_device(struct cuda_engine *e, float *first, float *second,
                                       float *inv, size_t count, struct chex_error *err) {
    CHEX_CUDA(gpu_widen_pair(first, second, (int)count, inv != NULL, e->sync_sums, e->stream));
    CHEX_TRY(gpu_reduce_sum(e->reduce, e->sync_sums, 2 * count, err));
    CHEX_CUDA(gpu_narrow_pair(e->sync_sums, (int)count, e->config.sync->logical_ranks,
                              e->net->bn_eps, first, second, inv, e->stream));
    return CHEX_OK;
}

/* The same by the host. */
static enum chex_status mean_on_host(struct cuda_engine *e, float *first, float *second, float *inv,
                                     size_t count, struct chex_error *err) {
    float *host = e->sync_host + 2 * count;
    CHEX_TRY(download(e, first, second, count, err));
    CHEX_TRY(inv ? chex_sync_moments(e->config.sync, e->sync_values, count, err)
                 : chex_sync_mean(e->config.sync, e->sync_values, 2 * count, err));
    CHEX_TRY(upload(e, first, second, count, err));
    if (!inv)
        return CHEX_OK;
    for (size_t c = 0; c < count; c++)
        host[c] = (float)(1.0 / sqrt(e->sync_values[count + c] + (double)e->net->bn_eps));
    CHEX_CUDA(cudaMemcpyAsync(inv, host, count * sizeof *inv, cudaMemcpyHostToDevice, e->stream));
    return CHEX_OK;
}

/* Of an operation's slice of three vectors of its output. */
static enum chex_status sync_slice(struct cuda_engine *e, const struct chex_op *op, float *first,
                                   float *second, float *inv, struct chex_error *err) {
    const size_t from = (size_t)op->out_first, count = (size_t)op->out_channels;
    const bool device = e->config.sync->any_order && gpu_reduce_connected(e->reduce);
    return (device ? mean_on_device : mean_on_host)(e, first + from, second + from,
                                                    inv ? inv + from : NULL, count, err);
}

enum chex_status chex_cuda_sync_stats(struct cuda_engine *e, const struct chex_op *op,
                                      struct chex_error *err) {
    if (!needs_sync(e, op))
        return CHEX_OK;
    const struct cuda_buf *buf = &e->bufs[op->out];
    return sync_slice(e, op, buf->mean, buf->var, buf->inv, err);
}

enum chex_status chex_cuda_sync_grad(struct cuda_engine *e, const struct chex_op *op,
                                     struct chex_error *err) {
    if (!needs_sync(e, op))
        return CHEX_OK;
    return sync_slice(e, op, e->bufs[op->out].bsum, e->bufs[op->out].csum, NULL, err);
}

enum chex_status chex_cuda_sync_init(struct cuda_engine *e, struct chex_error *err) {
    size_t widest = 1;
    if (!e->config.sync)
        return CHEX_OK;
    for (int i = 0; i < e->net->buffer_count; i++)
        if ((size_t)e->net->buffers[i].channels > widest)
            widest = (size_t)e->net->buffers[i].channels;
    e->sync_values = chex_alloc_zeroed(2 * widest, sizeof *e->sync_values);
    if (!e->sync_values)
        return chex_error_memory(err, "engine cuda");
    CHEX_CUDA(cudaMallocHost((void **)&e->sync_host, 3 * widest * sizeof *e->sync_host));
    CHEX_CUDA(cudaMalloc((void **)&e->sync_sums, 2 * widest * sizeof *e->sync_sums));
    return CHEX_OK;
}

void chex_cuda_sync_release(struct cuda_engine *e) {
    free(e->sync_values);
    cudaFreeHost(e->sync_host);
    cudaFree(e->sync_sums);
}
