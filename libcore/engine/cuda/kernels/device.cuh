/* SPDX-License-Identifier: Apache-2.0
 *
 * Helpers of all kernels: launching, element types, tensor-core and copy instructions, and sums
 * over blocks.
 *
 * Emulation. Kernels are compiled twice: by nvcc for GPUs, and by a C++ compiler for tests on
 * machines without a GPU (CHEX_GPU_EMULATED, tests/gpu/emulated). So kernels launch with
 * CHEX_LAUNCH, get dynamic shared memory with CHEX_DYNAMIC_SHARED, and use special instructions
 * only through the functions here.
 *
 * Sums over blocks. Each block writes its partial sums to global memory and increments a ticket
 * counter. The last block adds the partial sums of all blocks in a fixed order. The result is
 * therefore the same in every run. Of many blocks, the last one of each group of GPU_GROUP adds
 * those of its group first, so that several multiprocessors share this work.
 */
#ifndef CHEX_ENGINE_CUDA_KERNELS_DEVICE_CUH
#define CHEX_ENGINE_CUDA_KERNELS_DEVICE_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "engine/cuda/host/dependent.h"
#include "engine/cuda/host/gpu.h"

/* CHEX_LAUNCH((kernel<T>), grid, block, shared bytes, stream, arguments...) returns a cudaError_t.
 * cluster: blocks of a cluster; 1: no clusters.
 */
#ifdef CHEX_GPU_EMULATED
template <class... P>
static cudaError_t gpu_launch_with(void (*kernel)(P...), dim3 grid, dim3 block, dim3 cluster,
                                   size_t shared, cudaStream_t stream, P... args) {
    return emulated::launch_cluster(kernel, grid, block, cluster, shared, stream,
                                    gpu_dependents_next(stream), args...);
}
#define CHEX_DYNAMIC_SHARED(name) unsigned char *name = emulated::dynamic_shared()
#else
static inline cudaLaunchAttribute gpu_cluster_attribute(dim3 cluster) {
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = cluster.x;
    attribute.val.clusterDim.y = cluster.y;
    attribute.val.clusterDim.z = cluster.z;
    return attribute;
}
/* cudaLaunchKernelExC returns the status of this launch. <<<>>> would need cudaGetLastError, which
 * may return an older status, such as the "not ready" of a queried event. */
template <class... P>
static cudaError_t gpu_launch_with(void (*kernel)(P...), dim3 grid, dim3 block, dim3 cluster,
                                   size_t shared, cudaStream_t stream, P... args) {
    void *at[] = {const_cast<void *>(static_cast<const void *>(&args))...};
    cudaLaunchAttribute attributes[2] = {};
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared;
    config.stream = stream;
    config.attrs = attributes;
    if (cluster.x * cluster.y * cluster.z > 1)
        attributes[config.numAttrs++] = gpu_cluster_attribute(cluster);
    if (gpu_dependents_next(stream)) {
        attributes[config.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attributes[config.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
    }
    return cudaLaunchKernelExC(&config, reinterpret_cast<const void *>(kernel), at);
}
#define CHEX_DYNAMIC_SHARED(name) extern __shared__ __align__(128) unsigned char name[]
#endif

/* Dynamic shared memory that a launch may use without the opt-in attribute. The limit of 48 KiB
 * includes static shared memory: 128 bytes for gpu_last_block's word and alignment. */
enum { GPU_SHARED_UNASKED = (48 << 10) - 1024 };

/* Shared memory of a multiprocessor of capability 8.0. Kernels know of later targets only whether
 * they are of capability 9.0 or later (cmake/cuda.cmake). */
enum { GPU_SHARED_SM = 164 << 10 };

/* Allows the kernel this dynamic shared memory. The limit only rises: a captured graph may hold an
 * earlier launch that needs more, and is checked when it is instantiated. */
template <class K> static cudaError_t gpu_allow_shared(K kernel, size_t shared) {
    cudaFuncAttributes now;
    const cudaError_t e = cudaFuncGetAttributes(&now, kernel);
    if (e != cudaSuccess || shared <= (size_t)now.maxDynamicSharedSizeBytes)
        return e;
    return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
}

template <class... P, class... A>
static cudaError_t gpu_launch(void (*kernel)(P...), dim3 grid, dim3 block, dim3 cluster,
                              size_t shared, cudaStream_t stream, A... args) {
    if (shared > GPU_SHARED_UNASKED) {
        const cudaError_t e = gpu_allow_shared(kernel, shared);
        if (e != cudaSuccess)
            return e;
    }
    return gpu_launch_with<P...>(kernel, grid, block, cluster, shared, stream,
                                 static_cast<P>(args)...);
}
#define CHEX_LAUNCH(kernel, grid, block, shared, stream, ...)                                      \
    gpu_launch(kernel, grid, block, dim3(), shared, stream, __VA_ARGS__)

/* The stream for the kernel that adds the parts which the last kernel of `stream` writes. */
static inline cudaError_t gpu_side_stream(gpu_side *side, cudaStream_t stream, cudaStream_t *out) {
    *out = side ? side->stream : stream;
    if (!side)
        return cudaSuccess;
    side->used = true;
    const cudaError_t e = cudaEventRecord(side->parts_written, stream);
    return e == cudaSuccess ? cudaStreamWaitEvent(side->stream, side->parts_written, 0) : e;
}

/* ---- element types ---- */

typedef __nv_bfloat16 gpu_bf16;
typedef __half gpu_f16;

static __device__ __forceinline__ float gpu_float(float v) { return v; }
static __device__ __forceinline__ float gpu_float(gpu_bf16 v) { return __bfloat162float(v); }
static __device__ __forceinline__ float gpu_float(gpu_f16 v) { return __half2float(v); }

template <class T> __device__ __forceinline__ T gpu_round(float v);
template <> __device__ __forceinline__ float gpu_round<float>(float v) { return v; }
template <> __device__ __forceinline__ gpu_bf16 gpu_round<gpu_bf16>(float v) {
    return __float2bfloat16_rn(v);
}
template <> __device__ __forceinline__ gpu_f16 gpu_round<gpu_f16>(float v) {
    return __float2half_rn(v);
}

/* Packs two 16-bit values in a register, x in the low half. */
template <class T> __device__ __forceinline__ uint32_t gpu_pack2(float x, float y);
template <class T> __device__ __forceinline__ float2 gpu_unpack2(uint32_t v);
template <> __device__ __forceinline__ uint32_t gpu_pack2<gpu_bf16>(float x, float y) {
    __nv_bfloat162 p = __floats2bfloat162_rn(x, y);
    uint32_t v;
    memcpy(&v, &p, sizeof v);
    return v;
}
template <> __device__ __forceinline__ uint32_t gpu_pack2<gpu_f16>(float x, float y) {
    __half2 p = __floats2half2_rn(x, y);
    uint32_t v;
    memcpy(&v, &p, sizeof v);
    return v;
}
template <> __device__ __forceinline__ float2 gpu_unpack2<gpu_bf16>(uint32_t v) {
    return make_float2(__uint_as_float(v << 16), __uint_as_float(v & 0xffff0000u));
}
template <> __device__ __forceinline__ float2 gpu_unpack2<gpu_f16>(uint32_t v) {
    __half2 p;
    memcpy(&p, &v, sizeof v);
    return __half22float2(p);
}

/* ---- batch norm, in the form that gpu.h defines ---- */

struct gpu_ab {
    float a, b;
};
static __device__ __forceinline__ gpu_ab gpu_scale(const gpu_norm &n, int c) {
    const float a = __fmul_rn(n.gamma[c], n.inv[c]);
    return gpu_ab{a, __fmaf_rn(-n.mean[c], a, n.beta[c])};
}
static __device__ __forceinline__ float gpu_normed(gpu_ab s, float x) {
    return __fmaf_rn(s.a, x, s.b);
}
/* NaN stays NaN. */
static __device__ __forceinline__ float gpu_relu(float y) { return y < 0.0f ? 0.0f : y; }
/* The maximum. If one is a NaN: always the same NaN. Of two zeros: -0 only if both are -0. */
static __device__ __forceinline__ float gpu_greater(float x, float y);

/* ---- dependent launches (host/dependent.h): capability 9.0 and up ---- */

/* The first statement of every kernel. Waits until the kernels ahead have ended and their writes
 * are visible, then lets the next kernel's blocks start in places that are free. */
static __device__ __forceinline__ void gpu_begin();

/* ---- tensor cores and asynchronous copies: capability 8.0 and up ---- */

/* ldmatrix: loads 8 x 8 matrices of 16-bit elements. row: this lane's row of 8 elements. Lanes 0..7
 * address the rows of matrix 0, lanes 8..15 of matrix 1, and so on (x2: lanes 0..15). trans: each
 * matrix is transposed. */
static __device__ __forceinline__ void gpu_ldmatrix_x4(uint32_t out[4], const void *row);
static __device__ __forceinline__ void gpu_ldmatrix_x4_trans(uint32_t out[4], const void *row);
static __device__ __forceinline__ void gpu_ldmatrix_x2(uint32_t out[2], const void *row);
static __device__ __forceinline__ void gpu_ldmatrix_x2_trans(uint32_t out[2], const void *row);
/* d (16 x 8, fp32) += a (16 x 16) b (16 x 8); the fragments of PTX's mma.m16n8k16. */
template <class T>
__device__ __forceinline__ void gpu_mma_16816(float d[4], const uint32_t a[4], const uint32_t b[2]);
/* gpu_pack2 of max(x, 0) and max(y, 0), in one instruction. NaN stays NaN. */
template <class T> __device__ __forceinline__ uint32_t gpu_pack2_relu(float x, float y);
/* Returns v, opaque to the compiler. So the compiler does not hoist values computed from it out of
 * a loop, which would occupy registers. */
static __device__ __forceinline__ int gpu_fresh(int v);
template <class T> __device__ __forceinline__ T *gpu_fresh(T *global);
/* Returns the same shared memory address, kept in a register instead of recomputed at every use. */
static __device__ __forceinline__ unsigned char *gpu_resident(unsigned char *shared);
/* Asynchronous copy of 16 bytes to shared memory (cp.async); zeros if !on. Both addresses are
 * 16-byte aligned. gpu_copy_wait<N> waits for all of this thread's groups except the N committed
 * last. Other threads may read the data after an additional barrier. */
static __device__ __forceinline__ void gpu_copy16(void *shared, const void *global, bool on);
static __device__ __forceinline__ void gpu_copy_commit();
template <int N> __device__ __forceinline__ void gpu_copy_wait();

#ifdef CHEX_GPU_EMULATED
#include "instructions_emulated.h"
#else
#include "engine/cuda/kernels/instructions.cuh"
#endif

/* ---- sums ---- */

/* Sum over the warp, in every lane; the order is fixed. */
static __device__ __forceinline__ float gpu_warp_sum(float v) {
    for (int by = 16; by > 0; by /= 2)
        v += __shfl_xor_sync(0xffffffffu, v, by);
    return v;
}

/* Returns true in all threads of the block that calls it last; all earlier writes of the other
 * blocks to global memory are then visible.
 *   - Every thread of every block calls it once, after its writes.
 *   - blocks: number of blocks that share the ticket. The ticket is 0 again afterwards. */
static __device__ __forceinline__ bool gpu_last_block(unsigned *ticket, unsigned blocks) {
    __shared__ bool last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0 && threadIdx.y == 0)
        last = atomicInc(ticket, blocks - 1) == blocks - 1;
    __syncthreads();
    if (last)
        __threadfence();
    return last;
}

/* Number of partial sums of a group that a thread loads at a time; limited by registers. */
enum { GPU_GROUP_LOT = 8 };

/* Adds the partial sums of blocks [from, end) of channels [first, first + count) into those of
 * block `from`: in double, in order, rounded once. */
static __device__ __forceinline__ void gpu_add_group(float *partial, int channels, int first,
                                                     int count, int from, int end, int thread,
                                                     int threads) {
    for (int i = thread; i < 2 * count; i += threads) {
        float *const mine = partial + (size_t)from * 2 * (size_t)channels +
                            (size_t)(i / count * channels + first + i % count);
        double sum = 0;
#pragma unroll 1
        for (int k = from; k < end; k += GPU_GROUP_LOT) {
            float v[GPU_GROUP_LOT];
#pragma unroll
            for (int j = 0; j < GPU_GROUP_LOT; j++)
                v[j] = k + j < end ? __ldcg(mine + (size_t)(k - from + j) * 2 * (size_t)channels)
                                   : 0.0f;
#pragma unroll
            for (int j = 0; j < GPU_GROUP_LOT; j++)
                sum += (double)v[j];
        }
        *mine = (float)sum;
    }
}

/* Returns true in all threads of the block that completes the sums of a run of channels. The blocks
 * of the run have numbers 0 to blocks - 1, and each has written partial[block][2][channels] for
 * channels [first, first + count). Then gpu_finish_stats or gpu_finish_sums adds what is left.
 *   - tickets: GPU_TICKETS counters of the map; run: less than GPU_RUNS.
 *   - All `threads` threads of every block call it; `thread` is the linear thread index. */
static __device__ __forceinline__ bool gpu_last_of_run(unsigned *tickets, int run, int block,
                                                       int blocks, float *partial, int channels,
                                                       int first, int count, int thread,
                                                       int threads) {
    if (blocks <= GPU_GROUP)
        return gpu_last_block(tickets + run, (unsigned)blocks);
    const int groups = (blocks + GPU_GROUP - 1) / GPU_GROUP, group = block / GPU_GROUP;
    const int from = group * GPU_GROUP, end = min(from + GPU_GROUP, blocks);
    if (!gpu_last_block(tickets + GPU_RUNS + run * GPU_GROUPS + group, (unsigned)(end - from)))
        return false;
    gpu_add_group(partial, channels, first, count, from, end, thread, threads);
    return gpu_last_block(tickets + run, (unsigned)groups);
}

/* Number of neighbouring lanes that add the partial sums of one channel together, to hide memory
 * latency. A power of two, at most 8. */
static __device__ __forceinline__ int gpu_finish_lanes(int count, int threads) {
    int lanes = 1;
    while (lanes < 8 && threads % 32 == 0 && 2 * lanes * count <= threads)
        lanes *= 2;
    return lanes;
}

/* Number of partial sums that a lane loads at a time. */
enum { GPU_FINISH_LOT = 16 };

/* The two sums of channel c over partial[block][2][channels]; the result is in all `lanes` lanes of
 * the channel. Of more than GPU_GROUP blocks the first one of each group has the group's sums. Lane
 * i adds sums i, i + lanes, ... in order: four in fp32, fours in double. Then the lanes' sums are
 * added in a fixed order. */
static __device__ __forceinline__ double2 gpu_finish_total(const float *partial, int channels,
                                                           int c, bool on, int blocks, int lane,
                                                           int lanes) {
    double2 sum = make_double2(0, 0);
    const int64_t step = (int64_t)(blocks > GPU_GROUP ? GPU_GROUP : 1) * 2 * channels;
    const int sums = blocks > GPU_GROUP ? (blocks + GPU_GROUP - 1) / GPU_GROUP : blocks;
    for (int from = lane; on && from < sums; from += GPU_FINISH_LOT * lanes) {
        float x[GPU_FINISH_LOT], y[GPU_FINISH_LOT];
#pragma unroll
        for (int i = 0; i < GPU_FINISH_LOT; i++) {
            const int b = from + i * lanes;
            const float *const at = partial + b * step + c;
            x[i] = b < sums ? __ldcg(at) : 0.0f;
            y[i] = b < sums ? __ldcg(at + channels) : 0.0f;
        }
#pragma unroll
        for (int i = 0; i < GPU_FINISH_LOT; i += 4) {
            sum.x += (double)((x[i] + x[i + 1]) + (x[i + 2] + x[i + 3]));
            sum.y += (double)((y[i] + y[i + 1]) + (y[i + 2] + y[i + 3]));
        }
    }
    for (int by = 1; by < lanes; by *= 2) {
        sum.x += __shfl_xor_sync(0xffffffffu, sum.x, by);
        sum.y += __shfl_xor_sync(0xffffffffu, sum.y, by);
    }
    return sum;
}

/* Computes the statistics of channels [first, first + count).
 *   - s.partial[block][2][channels]: sum and sum of squares of each of `blocks` blocks; n: values
 *     per channel.
 *   - All `threads` threads of the last block call it; `thread` is the linear thread index. */
static __device__ __forceinline__ void gpu_finish_stats(const gpu_stats &s, int channels, int first,
                                                        int count, int blocks, double n, int thread,
                                                        int threads) {
    const int lanes = gpu_finish_lanes(count, threads), step = threads / lanes;
    const double share = 1.0 / n;
    for (int from = 0; from < count; from += step) {
        const int c = first + from + thread / lanes;
        const bool on = c < first + count;
        const double2 sum =
            gpu_finish_total(s.partial, channels, c, on, blocks, thread % lanes, lanes);
        if (!on || thread % lanes)
            continue;
        const double mean = sum.x * share;
        double var = sum.y * share - mean * mean;
        var = var > 0 ? var : 0;
        s.mean[c] = (float)mean;
        s.var[c] = (float)var;
        s.inv[c] = (float)(1.0 / sqrt(var + (double)s.eps));
    }
}

/* The same for the two sums of a batch norm's backward, S1 and S2 of gpu.h. The channel's vectors
 * are loaded before the sums, so that both loads overlap. */
static __device__ __forceinline__ void gpu_finish_sums(const gpu_sums &s, const gpu_norm &norm,
                                                       int channels, int first, int count,
                                                       int blocks, double n, int thread,
                                                       int threads) {
    const int lanes = gpu_finish_lanes(count, threads), step = threads / lanes;
    const double share = 1.0 / n;
    for (int from = 0; from < count; from += step) {
        const int c = first + from + thread / lanes;
        const bool on = c < first + count, mine = on && thread % lanes == 0;
        float gamma = 0, inv = 0, mean = 0, bsum = 0, csum = 0;
        if (mine) {
            gamma = norm.gamma[c];
            inv = norm.inv[c];
            mean = norm.mean[c];
            bsum = s.bsum[c];
            csum = s.csum[c];
        }
        const double2 sum =
            gpu_finish_total(s.partial, channels, c, on, blocks, thread % lanes, lanes);
        if (!mine)
            continue;
        const double a = (double)__fmul_rn(gamma, inv), slope = sum.y * (double)inv * share;
        s.dbeta[c] = (float)sum.x;
        s.dgamma[c] = (float)sum.y;
        s.bsum[c] = bsum + (float)(-a * slope);
        s.csum[c] = csum + (float)(-a * (sum.x * share - (double)mean * slope));
    }
}

#endif
