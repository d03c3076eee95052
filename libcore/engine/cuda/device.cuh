/* SPDX-License-Identifier: Apache-2.0
 *
 * What all kernels share: launching, element types, the tensor-core and copy instructions, and the
 * ending "last block adds up the blocks' partial sums".
 *
 * Kernels are compiled twice: by nvcc for GPUs, and by a C++ compiler for the tests on a machine
 * without one (CHEX_GPU_EMULATED, tests/gpu/emulated). So they launch by CHEX_LAUNCH, take dynamic
 * shared memory by CHEX_DYNAMIC_SHARED, and use instructions that have no C++ form only by the
 * functions here.
 */
#ifndef CHEX_ENGINE_CUDA_DEVICE_CUH
#define CHEX_ENGINE_CUDA_DEVICE_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "engine/cuda/gpu.h"

/* CHEX_LAUNCH((kernel<T>), grid, block, shared bytes, stream, arguments...): a cudaError_t. */
#ifdef CHEX_GPU_EMULATED
template <class... P>
static cudaError_t gpu_launch_with(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared,
                                   cudaStream_t stream, P... args) {
    return emulated::launch(kernel, grid, block, shared, stream, args...);
}
#define CHEX_DYNAMIC_SHARED(name) unsigned char *name = emulated::dynamic_shared()
#else
/* Not by <<<>>>, which leaves its result where older ones lie, such as the "not ready" of an event
 * that was asked for: this is the launch's own. */
template <class... P>
static cudaError_t gpu_launch_with(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared,
                                   cudaStream_t stream, P... args) {
    void *at[] = {const_cast<void *>(static_cast<const void *>(&args))...};
    return cudaLaunchKernel(reinterpret_cast<const void *>(kernel), grid, block, at, shared,
                            stream);
}
#define CHEX_DYNAMIC_SHARED(name) extern __shared__ __align__(128) unsigned char name[]
#endif

/* A block has 48 KiB of shared memory unasked. That is for a kernel's static part as well, which
 * takes 128 bytes where it has but gpu_last_block's word in front of the dynamic part's alignment.
 */
enum { GPU_SHARED_UNASKED = (48 << 10) - 1024 };

/* What a multiprocessor of the target has of it, at least. */
#if defined(__CUDA_ARCH__) &&                                                                      \
    (__CUDA_ARCH__ == 860 || __CUDA_ARCH__ == 890 || __CUDA_ARCH__ == 1200)
enum { GPU_SHARED_SM = 100 << 10 };
#else
enum { GPU_SHARED_SM = 164 << 10 };
#endif

template <class... P, class... A>
static cudaError_t gpu_launch(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared,
                              cudaStream_t stream, A... args) {
    if (shared > GPU_SHARED_UNASKED) {
        cudaError_t e =
            cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
        if (e != cudaSuccess)
            return e;
    }
    return gpu_launch_with<P...>(kernel, grid, block, shared, stream, static_cast<P>(args)...);
}
#define CHEX_LAUNCH(kernel, grid, block, shared, stream, ...)                                      \
    gpu_launch(kernel, grid, block, shared, stream, __VA_ARGS__)

#define CHEX_GPU_TRY(call)                                                                         \
    do {                                                                                           \
        cudaError_t gpu_try_ = (call);                                                             \
        if (gpu_try_ != cudaSuccess)                                                               \
            return gpu_try_;                                                                       \
    } while (0)

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

/* Two 16-bit values in a register, x in the low half. */
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

/* ---- batch norm, in the one form of gpu.h ---- */

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
/* NaN passes the ReLU. */
static __device__ __forceinline__ float gpu_relu(float y) { return y < 0.0f ? 0.0f : y; }
/* The greater of both; where one is a NaN a NaN, always the same one; of two zeros -0 only where
 * both are. */
static __device__ __forceinline__ float gpu_greater(float x, float y);

/* ---- tensor cores and asynchronous copies: capability 8.0 and up ---- */

/* The row of 8 elements of 16 bits at `row` is this lane's part: lanes 0..7 address the rows of
 * matrix 0, 8..15 of matrix 1, and so on (x2: lanes 0..15). trans: each matrix transposed. */
static __device__ __forceinline__ void gpu_ldmatrix_x4(uint32_t out[4], const void *row);
static __device__ __forceinline__ void gpu_ldmatrix_x4_trans(uint32_t out[4], const void *row);
static __device__ __forceinline__ void gpu_ldmatrix_x2(uint32_t out[2], const void *row);
static __device__ __forceinline__ void gpu_ldmatrix_x2_trans(uint32_t out[2], const void *row);
/* d (16 x 8, fp32) += a (16 x 16) b (16 x 8); the fragments of PTX's mma.m16n8k16. */
template <class T>
__device__ __forceinline__ void gpu_mma_16816(float d[4], const uint32_t a[4], const uint32_t b[2]);
/* Both through the ReLU, then rounded and packed like gpu_pack2: one instruction. NaN passes. */
template <class T> __device__ __forceinline__ uint32_t gpu_pack2_relu(float x, float y);
/* v, of which the compiler knows nothing: what is computed from it in a loop is not kept in
 * registers from before the loop. */
static __device__ __forceinline__ int gpu_fresh(int v);
template <class T> __device__ __forceinline__ T *gpu_fresh(T *global);
/* The same address in shared memory, held in a register instead of made anew at every use. */
static __device__ __forceinline__ unsigned char *gpu_held(unsigned char *shared);
/* 16 bytes into shared memory, zeros where !on; both addresses are multiples of 16. Complete after
 * gpu_copy_wait<n>, which leaves the n groups committed last still on their way; then a barrier for
 * the other threads. */
static __device__ __forceinline__ void gpu_copy16(void *shared, const void *global, bool on);
static __device__ __forceinline__ void gpu_copy_commit();
template <int N> __device__ __forceinline__ void gpu_copy_wait();

#ifdef CHEX_GPU_EMULATED
#include "instructions_emulated.h"
#else
#include "engine/cuda/instructions.cuh"
#endif

/* ---- sums ---- */

/* The sum over the warp, in every lane; always in the same order. */
static __device__ __forceinline__ float gpu_warp_sum(float v) {
    for (int by = 16; by > 0; by /= 2)
        v += __shfl_xor_sync(0xffffffffu, v, by);
    return v;
}

/* True in every thread of the block that comes last, once all others' writes to global memory can
 * be seen. Every thread calls it, after its writes; blocks: of the grid. The ticket is 0 again
 * afterwards. */
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

/* How many neighbouring lanes share a channel's partial sums: one alone would wait for the memory
 * once every few blocks. A power of two. */
static __device__ __forceinline__ int gpu_finish_lanes(int count, int threads) {
    int lanes = 1;
    while (lanes < 8 && threads % 32 == 0 && 2 * lanes * count <= threads)
        lanes *= 2;
    return lanes;
}

/* What a lane reads at once of the blocks' partial sums. */
enum { GPU_FINISH_LOT = 16 };

/* The sums of both numbers of channel c over partial[block][2][channels], in all of its `lanes`
 * lanes: each lane adds up every so many blocks in order, fours of them in fp32, the fours in
 * double; then the lanes come together in order. */
static __device__ __forceinline__ double2 gpu_finish_total(const float *partial, int channels,
                                                           int c, bool on, int blocks, int lane,
                                                           int lanes) {
    double2 sum = make_double2(0, 0);
    for (int from = lane; on && from < blocks; from += GPU_FINISH_LOT * lanes) {
        float x[GPU_FINISH_LOT], y[GPU_FINISH_LOT];
#pragma unroll
        for (int i = 0; i < GPU_FINISH_LOT; i++) {
            const int b = from + i * lanes, at = 2 * b * channels + c;
            x[i] = b < blocks ? __ldcg(partial + at) : 0.0f;
            y[i] = b < blocks ? __ldcg(partial + at + channels) : 0.0f;
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

/* Statistics of channels [first, first + count) from partial[block][2][channels] (sum, sum of
 * squares), `blocks` of them, over n values. Called by all `threads` threads of the last block,
 * which `thread` counts along its warps. */
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

/* The same for the two sums of a batch norm's backward: S1 and S2 of gpu.h. The channel's vectors
 * are read before the sums, which they would wait for otherwise. */
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
