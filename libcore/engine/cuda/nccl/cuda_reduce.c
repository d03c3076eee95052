/* SPDX-License-Identifier: Apache-2.0
 *
 * The communication stream: enqueues the additions and messages that launch/reduce.c requests. With
 * one rank there are only additions, and NCCL is not used. The protocol is described in
 * cuda_reduce.h.
 */
#include "engine/cuda/nccl/cuda_reduce.h"

#include <stdatomic.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "engine/cuda/host/device.h"
#include "engine/cuda/host/ranges.h"
#include "engine/cuda/nccl/nccl.h"

struct gpu_reduce {
    struct gpu_reduce_config config;
    struct chex_reduce_memory memory;
    cudaStream_t stream;
    struct gpu_nccl *nccl; /* NULL with one rank */
    cudaEvent_t joined;    /* position of the communication stream that compute last waited for */
    cudaEvent_t wait_begun, wait_ended; /* on the compute stream, around finish's wait */
    bool measured;                      /* both have been recorded */
    double exposed_s;                   /* time between them, as last read */
    atomic_bool busy;                   /* work was enqueued since the last join */
    atomic_uint_fast64_t bytes;
};

/* Selects the device. It is per thread, and the reduce thread has not selected one yet. */
static enum chex_status select_device(struct gpu_reduce *r, struct chex_error *err) {
    CHEX_CUDA(cudaSetDevice(r->config.device));
    return CHEX_OK;
}

static float *vector_alloc(void *self, size_t count) {
    struct gpu_reduce *r = self;
    void *data = NULL;
    size_t bytes;
    if (__builtin_mul_overflow(count, sizeof(float), &bytes) || select_device(r, NULL) != CHEX_OK)
        return NULL;
    if (r->nccl)
        data = gpu_nccl_alloc(r->nccl, bytes);
    else if (cudaMalloc(&data, bytes) != cudaSuccess)
        data = NULL;
    if (!data)
        (void)cudaGetLastError(); /* clear the error, or the engine's next launch reports it */
    else
        atomic_fetch_add(&r->bytes, bytes);
    return data;
}

static void vector_free(void *self, float *vector) {
    struct gpu_reduce *r = self;
    if (select_device(r, NULL) != CHEX_OK)
        return;
    if (r->nccl)
        gpu_nccl_free(r->nccl, vector);
    else
        cudaFree(vector);
}

static enum chex_status after(void *self, size_t from, struct chex_error *err) {
    struct gpu_reduce *r = self;
    CHEX_TRY(select_device(r, err));
    cudaEvent_t event = r->config.event_of(r->config.engine, from);
    if (!event)
        return chex_error_set(err, CHEX_E_FAIL,
                              "gradient reduction: no event for elements from %zu on", from);
    CHEX_CUDA(cudaStreamWaitEvent(r->stream, event, 0));
    return CHEX_OK;
}

/* Every function that enqueues work on the communication stream calls begin before and end after.
 */
static enum chex_status begin(struct gpu_reduce *r, struct chex_error *err) {
    CHEX_TRY(select_device(r, err));
    cuda_range_begin("reduce");
    return CHEX_OK;
}
static enum chex_status end(struct gpu_reduce *r, enum chex_status st) {
    cuda_range_end();
    if (st == CHEX_OK)
        atomic_store(&r->busy, true);
    return st;
}

static enum chex_status add(void *self, float *to, const float *from, size_t count,
                            struct chex_error *err) {
    struct gpu_reduce *r = self;
    CHEX_TRY(begin(r, err));
    const cudaError_t e = gpu_add(to, from, count, r->stream);
    return end(r, e == cudaSuccess ? CHEX_OK : gpu_error(e, "gpu_add", err));
}

static enum chex_status message(struct gpu_reduce *r, struct gpu_nccl_message m,
                                struct chex_error *err) {
    CHEX_TRY(begin(r, err));
    return end(r, gpu_nccl_enqueue(r->nccl, &m, err));
}

static enum chex_status send(void *self, const float *data, size_t count, int to, int tag,
                             struct chex_error *err) {
    void *from = (void *)(uintptr_t)data;
    return message(self, (struct gpu_nccl_message){GPU_NCCL_SEND, from, count, to, tag, false},
                   err);
}

static enum chex_status receive(void *self, float *data, size_t count, int from, int tag,
                                struct chex_error *err) {
    return message(self, (struct gpu_nccl_message){GPU_NCCL_RECEIVE, data, count, from, tag, false},
                   err);
}

static enum chex_status broadcast(void *self, float *data, size_t count, int root,
                                  struct chex_error *err) {
    return message(self, (struct gpu_nccl_message){GPU_NCCL_BROADCAST, data, count, root, 0, false},
                   err);
}

static enum chex_status sum(void *self, float *data, size_t count, struct chex_error *err) {
    return message(
        self, (struct gpu_nccl_message){.kind = GPU_NCCL_SUM, .data = data, .count = count}, err);
}

/* Makes the compute stream wait for all work that the reduce thread has enqueued so far. */
static enum chex_status join_streams(struct gpu_reduce *r, struct chex_error *err) {
    if (!atomic_exchange(&r->busy, false))
        return CHEX_OK;
    CHEX_CUDA(cudaEventRecord(r->joined, r->stream));
    CHEX_CUDA(cudaStreamWaitEvent(r->config.compute, r->joined, 0));
    return CHEX_OK;
}

bool gpu_reduce_connected(const struct gpu_reduce *r) { return r && r->nccl; }

enum chex_status gpu_reduce_sum(struct gpu_reduce *r, double *data, size_t count,
                                struct chex_error *err) {
    CHEX_CUDA(cudaEventRecord(r->joined, r->config.compute));
    CHEX_CUDA(cudaStreamWaitEvent(r->stream, r->joined, 0));
    CHEX_TRY(message(r, (struct gpu_nccl_message){GPU_NCCL_SUM, data, count, 0, 0, true}, err));
    return join_streams(r, err);
}

enum chex_status gpu_reduce_check(struct gpu_reduce *r, struct chex_error *err) {
    return gpu_reduce_connected(r) ? gpu_nccl_check(r->nccl, err) : CHEX_OK;
}

static enum chex_status leaf(void *self, struct chex_error *err) {
    struct gpu_reduce *r = self;
    CHEX_TRY(select_device(r, err));
    CHEX_TRY(gpu_reduce_check(r, err));
    return join_streams(r, err);
}

/* Reads the duration of the last wait if it is already known; never blocks. */
static void read_exposed(struct gpu_reduce *r) {
    float ms;
    if (r->measured && cudaEventQuery(r->wait_ended) == cudaSuccess &&
        cudaEventElapsedTime(&ms, r->wait_begun, r->wait_ended) == cudaSuccess)
        r->exposed_s = (double)ms / 1e3;
}

static enum chex_status finish(void *self, double *exposed_s_out, struct chex_error *err) {
    struct gpu_reduce *r = self;
    CHEX_TRY(select_device(r, err));
    CHEX_TRY(gpu_reduce_check(r, err));
    read_exposed(r);
    CHEX_CUDA(cudaEventRecord(r->wait_begun, r->config.compute));
    CHEX_TRY(join_streams(r, err));
    CHEX_CUDA(cudaEventRecord(r->wait_ended, r->config.compute));
    r->measured = true;
    *exposed_s_out = r->exposed_s;
    return CHEX_OK;
}

/* Waits until the stream is idle. If a rank is lost, the communicator is aborted, so this ends too.
 */
static enum chex_status settle(void *self, struct chex_error *err) {
    struct gpu_reduce *r = self;
    cudaError_t e;
    CHEX_TRY(select_device(r, err));
    while ((e = cudaStreamQuery(r->stream)) == cudaErrorNotReady) {
        if (r->nccl)
            CHEX_TRY(gpu_nccl_check(r->nccl, err));
        chex_clock_sleep_ms(1);
    }
    if (e != cudaSuccess)
        return gpu_error(e, "cudaStreamQuery", err);
    return gpu_reduce_check(r, err);
}

/* What this rank does alone. */
static enum chex_status start(struct gpu_reduce *r, const struct gpu_reduce_config *config,
                              struct chex_error *err) {
    int lowest = 0, highest = 0;
    r->config = *config;
    r->memory = (struct chex_reduce_memory){.name = "nccl",
                                            .self = r,
                                            .alloc = vector_alloc,
                                            .free = vector_free,
                                            .after = after,
                                            .add = add,
                                            .send = send,
                                            .receive = receive,
                                            .broadcast = broadcast,
                                            .sum = sum,
                                            .leaf = leaf,
                                            .finish = finish,
                                            .settle = settle};
    CHEX_TRY(select_device(r, err));
    CHEX_CUDA(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
    CHEX_CUDA(cudaStreamCreateWithPriority(&r->stream, cudaStreamNonBlocking, highest));
    CHEX_CUDA(cudaEventCreateWithFlags(&r->joined, cudaEventDisableTiming));
    CHEX_CUDA(cudaEventCreateWithFlags(&r->wait_begun, 0));
    CHEX_CUDA(cudaEventCreateWithFlags(&r->wait_ended, 0));
    if (r->config.launch->size == 1)
        return CHEX_OK;
    return gpu_nccl_create(r->config.launch, r->stream, r->config.timeout_ms, &r->nccl, err);
}

enum chex_status gpu_reduce_create(const struct gpu_reduce_config *config,
                                   struct gpu_reduce **reduce_out, struct chex_error *err) {
    struct gpu_reduce *r = chex_alloc_zeroed(1, sizeof *r);
    enum chex_status st = r ? start(r, config, err) : chex_error_memory(err, NULL);
    st = chex_group_agree(config->group, st, err);
    if (st == CHEX_OK && r->nccl)
        st = gpu_nccl_connect(r->nccl, config->group, err);
    if (st != CHEX_OK)
        gpu_reduce_destroy(r);
    else
        *reduce_out = r;
    return st;
}

void gpu_reduce_destroy(struct gpu_reduce *r) {
    if (!r)
        return;
    (void)select_device(r, NULL);
    gpu_nccl_close(r->nccl);
    gpu_event_destroy(r->joined);
    gpu_event_destroy(r->wait_begun);
    gpu_event_destroy(r->wait_ended);
    if (r->stream)
        cudaStreamDestroy(r->stream);
    free(r);
}

const struct chex_reduce_memory *gpu_reduce_memory(struct gpu_reduce *r) { return &r->memory; }

uint64_t gpu_reduce_bytes(const struct gpu_reduce *r) { return atomic_load(&r->bytes); }
