/* SPDX-License-Identifier: Apache-2.0
 *
 * Barriers in shared memory, bulk copies and clusters of capability 9.0 (PTX ISA, "mbarrier",
 * "cp.async.bulk", "barrier.cluster").
 *
 * Proxies. Loads and stores of threads go through the generic proxy; bulk copies (and wgmma) go
 * through the async proxy. A store by a thread is visible to the async proxy only after a
 * gpu_async_fence on the path from the store to the copy, for example: store, fence, barrier, copy.
 * What a bulk copy wrote is visible to threads that have waited for its barrier.
 *
 * A pipeline stage with a producer:
 *     producer:  wait(empty, parity);  expect(full, bytes);  copies that report to full
 *     consumer:  wait(full, parity);  read the stage;  arrive(empty)
 */
#ifndef CHEX_ENGINE_CUDA_KERNELS_HOPPER_COPY_CUH
#define CHEX_ENGINE_CUDA_KERNELS_HOPPER_COPY_CUH

#include <cuda.h>

#include "engine/cuda/kernels/device.cuh"

/* ---- barriers ---- */

/* Counts arrivals and bytes. A phase is complete when all arrivals of the phase and all expected
 * bytes have come; then the next phase begins. Phases are numbered from 0; the parity of a phase is
 * its number modulo 2. In shared memory; used only through these functions. */
struct alignas(8) gpu_barrier {
    uint64_t state;
};

/* One thread calls it, once for each barrier. arrivals: of each phase, 1 to 2^20 - 1. */
static __device__ __forceinline__ void gpu_barrier_init(gpu_barrier *b, unsigned arrivals);
/* The same thread calls it after its last init: the barriers can then be used by copies and, after
 * a gpu_cluster_sync, by other blocks of the cluster. Threads of the block need a __syncthreads (or
 * that gpu_cluster_sync) before they use a barrier. */
static __device__ __forceinline__ void gpu_barrier_init_fence();
/* Arrives. What the thread did before is visible to threads that have waited for the phase. */
static __device__ __forceinline__ void gpu_barrier_arrive(gpu_barrier *b);
/* The same at the barrier with the same offset in the shared memory of block `block` of the
 * cluster, which must not have ended. It says that a buffer is free: loads before it are complete.
 * Stores before it become visible to other blocks only by gpu_cluster_sync. (With a release of
 * cluster scope each arrival would wait for all stores of the thread to global memory.) */
static __device__ __forceinline__ void gpu_barrier_arrive_in(gpu_barrier *b, unsigned block);
/* Arrives, and adds `bytes` to what the phase expects from copies. bytes < 2^20. */
static __device__ __forceinline__ void gpu_barrier_expect(gpu_barrier *b, unsigned bytes);
/* Waits until the phase with this parity is complete: returns at once if the phase that is in
 * progress has the other parity. So a first wait for `empty` takes parity 1. */
static __device__ __forceinline__ void gpu_barrier_wait(gpu_barrier *b, unsigned parity);
/* __syncthreads of some warps of the block. id: 1 to 15; threads: a multiple of 32. All threads of
 * these warps call it. */
static __device__ __forceinline__ void gpu_warps_sync(int id, int threads);

/* ---- bulk copies: one thread issues each ----
 * `to` is in this block's shared memory. The copy adds its bytes to what has come at barrier b of
 * the same block. Bytes outside a tensor map count too; they are zero. mask: bit i set: the data
 * go to the same offset in the shared memory of block i of the cluster, and their bytes to the
 * barrier at the same offset there. */

/* bytes: a multiple of 16; both addresses 16-byte aligned. */
static __device__ __forceinline__ void gpu_bulk_load(void *to, const void *from, unsigned bytes,
                                                     gpu_barrier *b);
static __device__ __forceinline__ void gpu_bulk_load_all(void *to, const void *from, unsigned bytes,
                                                         gpu_barrier *b, unsigned mask);
/* Copies the box of a tensor map (host/tensor_map.h) that begins at this column and row. map: in a
 * __grid_constant__ parameter. to: 128-byte aligned; with a swizzle of 32, 64 or 128 bytes aligned
 * to 256, 512 or 1024 bytes. */
static __device__ __forceinline__ void gpu_tile_load(void *to, const CUtensorMap *map, int column,
                                                     int row, gpu_barrier *b);
static __device__ __forceinline__ void gpu_tile_load_all(void *to, const CUtensorMap *map,
                                                         int column, int row, gpu_barrier *b,
                                                         unsigned mask);
/* Copies a box from shared memory to global memory; nothing is written outside the map. The stores
 * that a thread issued since its last gpu_bulk_commit are a group. */
static __device__ __forceinline__ void gpu_tile_store(const CUtensorMap *map, int column, int row,
                                                      const void *from);
static __device__ __forceinline__ void gpu_bulk_commit();
/* Waits until all groups of this thread except the last N have read shared memory (_read), or are
 * complete. A thread calls the second before it ends or the block does. */
template <int N> __device__ __forceinline__ void gpu_bulk_wait_read();
template <int N> __device__ __forceinline__ void gpu_bulk_wait();
/* Orders this thread's earlier stores to shared memory, and those that it knows of by barriers,
 * before async accesses that follow. */
static __device__ __forceinline__ void gpu_async_fence();

/* ---- clusters: CHEX_LAUNCH_CLUSTER ---- */

/* Index of the block in its cluster, and number of blocks of the cluster. */
static __device__ __forceinline__ unsigned gpu_cluster_block();
static __device__ __forceinline__ unsigned gpu_cluster_blocks();
/* A barrier of all threads of the cluster. No block may end while others still use its shared
 * memory or its barriers. */
static __device__ __forceinline__ void gpu_cluster_sync();
/* The same offset in the shared memory of another block of the cluster. */
template <class T> __device__ __forceinline__ T *gpu_cluster_shared(T *shared, unsigned block);

/* Dynamic shared memory for boxes with a swizzle: CHEX_DYNAMIC_SHARED aligned to 1024 bytes. CUDA
 * wants another name than that of a CHEX_DYNAMIC_SHARED in the same source. */
#ifdef CHEX_GPU_EMULATED
#define CHEX_DYNAMIC_SHARED_1024(name) unsigned char *name = emulated::dynamic_shared_1024()
#else
#define CHEX_DYNAMIC_SHARED_1024(name) extern __shared__ __align__(1024) unsigned char name[]
#endif

/* CHEX_LAUNCH with clusters of `cluster` blocks (dim3; at most 8 in all). The grid is a multiple of
 * the cluster in each dimension. Kernels wait in gpu_begin as always. */
#define CHEX_LAUNCH_CLUSTER(kernel, grid, block, cluster, shared, stream, ...)                     \
    gpu_launch(kernel, grid, block, cluster, shared, stream, __VA_ARGS__)

/* Number of clusters of this shape that the device can run at once; 0 if none. */
template <class... P>
static cudaError_t gpu_active_clusters(void (*kernel)(P...), dim3 block, dim3 cluster,
                                       size_t shared, int *clusters_out) {
    *clusters_out = 0;
    const cudaError_t e = gpu_allow_shared(kernel, shared);
    if (e != cudaSuccess)
        return e;
#ifdef CHEX_GPU_EMULATED
    (void)block;
    return emulated::active_clusters(cluster, clusters_out);
#else
    cudaLaunchAttribute attribute = gpu_cluster_attribute(cluster);
    cudaLaunchConfig_t config = {};
    config.gridDim = cluster;
    config.blockDim = block;
    config.dynamicSmemBytes = shared;
    config.attrs = &attribute;
    config.numAttrs = 1;
    return cudaOccupancyMaxActiveClusters(clusters_out, reinterpret_cast<const void *>(kernel),
                                          &config);
#endif
}

#ifdef CHEX_GPU_EMULATED
#include "hopper_copy_emulated.h"
#else

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define CHEX_GPU_PTX90(...) asm volatile(__VA_ARGS__)
#else
#define CHEX_GPU_PTX90(...) __trap()
#endif

static __device__ __forceinline__ void gpu_barrier_init(gpu_barrier *b, unsigned arrivals) {
    CHEX_GPU_PTX90("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(gpu_shared_address(b)),
                   "r"(arrivals)
                   : "memory");
}
static __device__ __forceinline__ void gpu_barrier_init_fence() {
    CHEX_GPU_PTX90("fence.mbarrier_init.release.cluster;" ::: "memory");
    CHEX_GPU_PTX90("fence.proxy.async.shared::cta;" ::: "memory");
}
static __device__ __forceinline__ void gpu_barrier_arrive(gpu_barrier *b) {
    CHEX_GPU_PTX90("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(gpu_shared_address(b))
                   : "memory");
}
static __device__ __forceinline__ void gpu_barrier_arrive_in(gpu_barrier *b, unsigned block) {
    unsigned there = 0;
    CHEX_GPU_PTX90("mapa.shared::cluster.u32 %0, %1, %2;"
                   : "=r"(there)
                   : "r"(gpu_shared_address(b)), "r"(block));
    CHEX_GPU_PTX90("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(there) : "memory");
}
static __device__ __forceinline__ void gpu_barrier_expect(gpu_barrier *b, unsigned bytes) {
    CHEX_GPU_PTX90(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(gpu_shared_address(b)),
        "r"(bytes)
        : "memory");
}
static __device__ __forceinline__ void gpu_barrier_wait(gpu_barrier *b, unsigned parity) {
    unsigned done = 0;
    do
        CHEX_GPU_PTX90("{\n"
                       ".reg .pred p;\n"
                       "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                       "selp.u32 %0, 1, 0, p;\n"
                       "}"
                       : "=r"(done)
                       : "r"(gpu_shared_address(b)), "r"(parity)
                       : "memory");
    while (!done);
}
static __device__ __forceinline__ void gpu_warps_sync(int id, int threads) {
    CHEX_GPU_PTX90("barrier.cta.sync.aligned %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

static __device__ __forceinline__ void gpu_bulk_load(void *to, const void *from, unsigned bytes,
                                                     gpu_barrier *b) {
    CHEX_GPU_PTX90("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], "
                   "%2, [%3];" ::"r"(gpu_shared_address(to)),
                   "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(gpu_shared_address(b))
                   : "memory");
}
static __device__ __forceinline__ void gpu_bulk_load_all(void *to, const void *from, unsigned bytes,
                                                         gpu_barrier *b, unsigned mask) {
    CHEX_GPU_PTX90("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                   ".multicast::cluster [%0], [%1], %2, [%3], %4;" ::"r"(gpu_shared_address(to)),
                   "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(gpu_shared_address(b)),
                   "h"((uint16_t)mask)
                   : "memory");
}
static __device__ __forceinline__ void gpu_tile_load(void *to, const CUtensorMap *map, int column,
                                                     int row, gpu_barrier *b) {
    CHEX_GPU_PTX90(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile"
        ".mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(gpu_shared_address(to)),
        "l"(map), "r"(column), "r"(row), "r"(gpu_shared_address(b))
        : "memory");
}
static __device__ __forceinline__ void gpu_tile_load_all(void *to, const CUtensorMap *map,
                                                         int column, int row, gpu_barrier *b,
                                                         unsigned mask) {
    CHEX_GPU_PTX90("cp.async.bulk.tensor.2d.shared::cluster.global.tile"
                   ".mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3}], [%4], "
                   "%5;" ::"r"(gpu_shared_address(to)),
                   "l"(map), "r"(column), "r"(row), "r"(gpu_shared_address(b)), "h"((uint16_t)mask)
                   : "memory");
}
static __device__ __forceinline__ void gpu_tile_store(const CUtensorMap *map, int column, int row,
                                                      const void *from) {
    CHEX_GPU_PTX90("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], "
                   "[%3];" ::"l"(map),
                   "r"(column), "r"(row), "r"(gpu_shared_address(from))
                   : "memory");
}
static __device__ __forceinline__ void gpu_bulk_commit() {
    CHEX_GPU_PTX90("cp.async.bulk.commit_group;" ::: "memory");
}
template <int N> __device__ __forceinline__ void gpu_bulk_wait_read() {
    CHEX_GPU_PTX90("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}
template <int N> __device__ __forceinline__ void gpu_bulk_wait() {
    CHEX_GPU_PTX90("cp.async.bulk.wait_group %0;" ::"n"(N) : "memory");
}
static __device__ __forceinline__ void gpu_async_fence() {
    CHEX_GPU_PTX90("fence.proxy.async.shared::cta;" ::: "memory");
}

static __device__ __forceinline__ unsigned gpu_cluster_block() {
    unsigned v = 0;
    CHEX_GPU_PTX90("mov.u32 %0, %%cluster_ctarank;" : "=r"(v));
    return v;
}
static __device__ __forceinline__ unsigned gpu_cluster_blocks() {
    unsigned v = 1;
    CHEX_GPU_PTX90("mov.u32 %0, %%cluster_nctarank;" : "=r"(v));
    return v;
}
static __device__ __forceinline__ void gpu_cluster_sync() {
    CHEX_GPU_PTX90("barrier.cluster.arrive.release.aligned;" ::: "memory");
    CHEX_GPU_PTX90("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
template <class T> __device__ __forceinline__ T *gpu_cluster_shared(T *shared, unsigned block) {
    uint64_t there = 0;
    CHEX_GPU_PTX90("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(shared), "r"(block));
    return reinterpret_cast<T *>(there);
}

#endif
#endif
