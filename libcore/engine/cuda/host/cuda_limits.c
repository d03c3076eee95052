/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures the bandwidth limits of a GPU with copies: within device memory, from the host, and to
 * the host. Each result is the best of several rounds. Copies within the device use arrays larger
 * than the L2 cache. Host copies use pinned memory, one direction at a time. Arithmetic limits are
 * not measured.
 */
#include "base/clock.h"
#include "engine/cuda/host/cuda_engine.h"

enum { ROUNDS = 6 /* the first is a warm-up */ };

static const size_t max_device = (size_t)256 << 20, max_host = (size_t)64 << 20,
                    step = (size_t)1 << 20;

struct buffers {
    char *a, *b;                     /* device */
    char *host;                      /* pinned */
    size_t device_bytes, host_bytes; /* of each array */
};

static enum chex_status alloc_buffers(const struct cuda_engine *e, uint64_t max_bytes,
                                      struct buffers *b, struct chex_error *err) {
    size_t free_bytes = 0, total = 0;
    CHEX_CUDA(cudaMemGetInfo(&free_bytes, &total));
    size_t each = max_device < free_bytes / 4 ? max_device : free_bytes / 4;
    each = each < max_bytes / 4 ? each : (size_t)(max_bytes / 4);
    b->device_bytes = each / step * step;
    b->host_bytes = b->device_bytes < max_host ? b->device_bytes : max_host;
    if (b->device_bytes == 0)
        return CHEX_OK;
    CHEX_CUDA(cudaMalloc((void **)&b->a, b->device_bytes));
    CHEX_CUDA(cudaMalloc((void **)&b->b, b->device_bytes));
    CHEX_CUDA(cudaMallocHost((void **)&b->host, b->host_bytes));
    CHEX_CUDA(cudaMemsetAsync(b->a, 0, b->device_bytes, e->stream));
    CHEX_CUDA(cudaMemsetAsync(b->b, 0, b->device_bytes, e->stream));
    return CHEX_OK;
}

static void free_buffers(struct buffers *b) {
    cudaFree(b->a);
    cudaFree(b->b);
    cudaFreeHost(b->host);
}

/* Bytes per second of the fastest round. */
static enum chex_status copy_rate(const struct cuda_engine *e, void *to, const void *from,
                                  size_t bytes, enum cudaMemcpyKind kind, double *rate_out,
                                  struct chex_error *err) {
    double best = 0;
    for (int i = 0; i < ROUNDS; i++) {
        CHEX_CUDA(cudaStreamSynchronize(e->stream));
        const double start = chex_clock_s();
        CHEX_CUDA(cudaMemcpyAsync(to, from, bytes, kind, e->stream));
        CHEX_CUDA(cudaStreamSynchronize(e->stream));
        const double rate = (double)bytes / (chex_clock_s() - start);
        best = i > 0 && rate > best ? rate : best;
    }
    *rate_out = best;
    return CHEX_OK;
}

static enum chex_status measure(const struct cuda_engine *e, const struct buffers *b,
                                struct chex_engine_limits *l, struct chex_error *err) {
    CHEX_TRY(copy_rate(e, b->a, b->host, b->host_bytes, cudaMemcpyHostToDevice,
                       &l->upload_bytes_per_s, err));
    CHEX_TRY(copy_rate(e, b->host, b->a, b->host_bytes, cudaMemcpyDeviceToHost,
                       &l->download_bytes_per_s, err));
    if (b->device_bytes < 2 * e->device.l2_bytes)
        return CHEX_OK;
    CHEX_TRY(
        copy_rate(e, b->b, b->a, b->device_bytes, cudaMemcpyDeviceToDevice, &l->bytes_per_s, err));
    l->bytes_per_s *= 2; /* read and written */
    return CHEX_OK;
}

enum chex_status chex_cuda_limits(void *self, uint64_t max_bytes,
                                  struct chex_engine_limits *limits_out, struct chex_error *err) {
    const struct cuda_engine *e = self;
    struct chex_engine_limits l = {0};
    CHEX_AUTO(free_buffers) struct buffers b = {0};
    CHEX_TRY(alloc_buffers(e, max_bytes, &b, err));
    if (b.device_bytes > 0)
        CHEX_TRY(measure(e, &b, &l, err));
    *limits_out = l;
    return CHEX_OK;
}
