/* SPDX-License-Identifier: Apache-2.0
 *
 * The part of CUDA C++ that chexnet's kernels use, so that a C++ compiler takes them and they run
 * on the processor: one block at a time, each thread a fiber. A barrier is where fibers change; an
 * operation of a whole warp (a shuffle, a matrix product) happens when its last lane arrives. What
 * the hardware leaves undefined ends the program with a line: a barrier that some threads never
 * reach, lanes of a warp that meet in different operations.
 *
 * Clusters, barriers in shared memory and bulk copies: fibers.cc, hopper.cc.
 *
 * Shared arrays are static, so address sanitizers see their bounds. Fibers and blocks run in an
 * order that EMULATED_ORDER chooses (forward, backward, or a number that seeds a shuffle): a
 * missing barrier, or a block that relies on others before it, shows as a result that depends on
 * it.
 */
#ifndef CHEX_TESTS_EMULATED_CUDA_RUNTIME_H
#define CHEX_TESTS_EMULATED_CUDA_RUNTIME_H

#include "cuda_runtime_api.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __restrict__ __restrict
#define __shared__ static
#define __constant__ static
#define __launch_bounds__(...)
#define __align__(n) alignas(n)
#define __grid_constant__

struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};

#define EMULATED_VECTOR2(name, type, align)                                                        \
    struct alignas(align) name {                                                                   \
        type x, y;                                                                                 \
    };                                                                                             \
    static inline name make_##name(type x, type y) { return name{x, y}; }
#define EMULATED_VECTOR4(name, type, align)                                                        \
    struct alignas(align) name {                                                                   \
        type x, y, z, w;                                                                           \
    };                                                                                             \
    static inline name make_##name(type x, type y, type z, type w) { return name{x, y, z, w}; }
EMULATED_VECTOR2(float2, float, 8)
EMULATED_VECTOR2(double2, double, 16)
EMULATED_VECTOR2(int2, int, 8)
EMULATED_VECTOR2(uint2, unsigned, 8)
EMULATED_VECTOR4(float4, float, 16)
EMULATED_VECTOR4(int4, int, 16)
EMULATED_VECTOR4(uint4, unsigned, 16)
EMULATED_VECTOR4(uchar4, unsigned char, 4)

namespace emulated {
struct thread {
    uint3 index;
    int lane;
};
extern thread *now; /* whose turn it is */
struct block {
    uint3 index;
    dim3 dim, grid_dim;
};
extern block now_block; /* and whose it is */

/* All lanes of the calling thread's warp that have not ended arrive with `in` (bytes long); the
 * last of them calls apply(lane_in, lane_out, present) for the warp, where lane_in[l] and
 * lane_out[l] are the lanes' own memory and present has a bit for each lane; then all go on. `kind`
 * must be the same in all lanes. */
typedef void (*warp_fn)(const void *const in[32], void *const out[32], unsigned present, int arg);
void warp(int kind, int arg, unsigned mask, const void *in, void *out, warp_fn apply);
/* line: of the source that calls it, the same for all lanes of a warp. */
void barrier(int line);                                 /* __syncthreads */
int barrier_count(int p, int line);                     /* __syncthreads_count */
void warps_barrier_sync(int id, int threads, int line); /* barrier.sync of some warps */
void cluster_sync(int line);                            /* barrier.cluster */
unsigned cluster_block(), cluster_blocks();             /* of the thread that runs */
unsigned char *dynamic_shared();                        /* aligned to 128 bytes and no more */
unsigned char *dynamic_shared_1024();                   /* aligned to 1024 bytes */

/* For races.cc: what the compiler does not see, or sees as what it is not. */
void note_read(const void *p, size_t bytes);
void note_atomic(const void *p, bool last = false); /* last: a ticket's count is full */
void note_fence();
#define EMULATED_UNSEEN __attribute__((noinline, no_sanitize("thread")))

/* cp.async: the copy is made when the thread waits for it, so a missing wait shows. */
void copy_later(void *to, const void *from, int bytes, bool on);
void copy_commit();
void copy_wait(int pending_allowed);

/* griddepcontrol.wait. A thread that ends without it, or touches global memory before it
 * (races.cc), ends the program. So does a launch whose static shared memory, which is known by the
 * name of the kernel, leaves less than the dynamic one. */
void begin_kernel(const char *kernel);

struct launch_shape {
    dim3 grid, block;
    size_t shared_bytes;
    const void *kernel;
    dim3 cluster;
};
void run_grid(const launch_shape &shape, const std::function<void()> &body);
cudaError_t enqueue(cudaStream_t stream, std::function<void()> work);
cudaError_t enqueue_kernel(cudaStream_t stream, std::function<void()> work);

/* Whether the stream takes the kernel now. Its code must be there before a capture meets it. Beyond
 * 48 KiB of shared memory it must have asked (allow_shared); of what is static only the least is
 * known here, STATIC_SHARED, which every kernel is taken to have. begin_kernel knows the rest. */
enum { SHARED_UNASKED = 48 << 10, STATIC_SHARED = 128 };
bool watched(dim3 grid, dim3 block, size_t shared_bytes); /* the launch went to a watcher */
cudaError_t may_launch(const void *kernel, size_t shared_bytes, cudaStream_t stream,
                       bool dependent);
cudaError_t allow_shared(const void *kernel, int attribute, int bytes);
int shared_allowed(const void *kernel); /* dynamic bytes */

enum { CLUSTER_MOST = 8 };
bool takes_cluster(dim3 grid, dim3 cluster); /* the device does */
cudaError_t active_clusters(dim3 cluster, int *clusters_out);

/* Arguments are copied now, as a launch does, and the kernel runs when the stream gets there. A
 * dependent one is refused if the operation ahead of it in the stream is not a kernel. */
template <class... P, class... A>
cudaError_t launch_cluster(void (*kernel)(P...), dim3 grid, dim3 block, dim3 cluster,
                           size_t shared_bytes, cudaStream_t stream, bool dependent, A... args) {
    if (!takes_cluster(grid, cluster) || grid.x == 0 || grid.y == 0 || grid.z == 0 ||
        grid.y > 65535 || grid.z > 65535 || block.x * block.y * block.z == 0 ||
        block.x * block.y * block.z > 1024)
        return cudaErrorInvalidValue;
    const void *const code = reinterpret_cast<const void *>(kernel);
    const cudaError_t e = may_launch(code, shared_bytes, stream, dependent);
    if (e != cudaSuccess || watched(grid, block, shared_bytes))
        return e;
    return enqueue_kernel(stream, [=]() {
        run_grid({grid, block, shared_bytes, code, cluster},
                 [=]() { kernel(static_cast<P>(args)...); });
    });
}
} // namespace emulated

#define threadIdx (emulated::now->index)
#define blockIdx (emulated::now_block.index)
#define blockDim (emulated::now_block.dim)
#define gridDim (emulated::now_block.grid_dim)
#define warpSize 32

#define __syncthreads() emulated::barrier(__LINE__)
#define __syncthreads_count(p) emulated::barrier_count(p, __LINE__)
#define __syncthreads_or(p) (emulated::barrier_count(p, __LINE__) > 0)
static inline void __threadfence() { emulated::note_fence(); }
static inline void __threadfence_block() {}

enum { EMULATED_SYNC = 1, EMULATED_SHUFFLE, EMULATED_BALLOT, EMULATED_MATRIX };

static inline void __syncwarp(unsigned mask = 0xffffffffu) {
    emulated::warp(EMULATED_SYNC, 0, mask, nullptr, nullptr, nullptr);
}

namespace emulated {
/* How a shuffle finds its source: absolute, xor, up or down. */
template <class T> struct shuffled {
    T value;
    int by, width;
    int mode;
};
template <class T>
EMULATED_UNSEEN void shuffle_apply(const void *const in[32], void *const out[32], unsigned present,
                                   int) {
    for (int l = 0; l < 32; l++) {
        if (!(present >> l & 1))
            continue;
        const shuffled<T> *mine = static_cast<const shuffled<T> *>(in[l]);
        const int base = l / mine->width * mine->width, at = l - base;
        int from = at;
        switch (mine->mode) {
        case 0: from = mine->by & (mine->width - 1); break;
        case 1: from = at ^ mine->by; break;
        case 2: from = at - mine->by; break;
        default: from = at + mine->by; break;
        }
        if (from < 0 || from >= mine->width)
            from = at;
        if (!(present >> (base + from) & 1)) {
            fprintf(stderr, "emulated: lane %d shuffles from lane %d, which is not there\n", l,
                    base + from);
            abort();
        }
        *static_cast<T *>(out[l]) = static_cast<const shuffled<T> *>(in[base + from])->value;
    }
}
template <class T> T shuffle(unsigned mask, T value, int by, int width, int mode) {
    shuffled<T> in{value, by, width, mode};
    T out{};
    warp(EMULATED_SHUFFLE, mode, mask, &in, &out, shuffle_apply<T>);
    return out;
}
} // namespace emulated

template <class T> T __shfl_sync(unsigned m, T v, int from, int width = 32) {
    return emulated::shuffle(m, v, from, width, 0);
}
template <class T> T __shfl_xor_sync(unsigned m, T v, int by, int width = 32) {
    return emulated::shuffle(m, v, by, width, 1);
}
template <class T> T __shfl_up_sync(unsigned m, T v, unsigned by, int width = 32) {
    return emulated::shuffle(m, v, (int)by, width, 2);
}
template <class T> T __shfl_down_sync(unsigned m, T v, unsigned by, int width = 32) {
    return emulated::shuffle(m, v, (int)by, width, 3);
}
unsigned __ballot_sync(unsigned mask, int p);
static inline int __any_sync(unsigned mask, int p) { return __ballot_sync(mask, p) != 0; }
static inline int __all_sync(unsigned mask, int p) { return __ballot_sync(mask, !p) == 0; }

template <class T> static inline T __ldg(const T *p) { return *p; }
template <class T> static inline T __ldcs(const T *p) { return *p; }
template <class T> static inline T __ldcg(const T *p) { return *p; }
template <class T> static inline void __stcs(T *p, T v) { *p = v; }
template <class T> static inline void __stcg(T *p, T v) { *p = v; }
template <class T> EMULATED_UNSEEN T atomicAdd(T *p, T v) {
    emulated::note_atomic(p);
    T old = *p;
    *p = old + v;
    return old;
}
EMULATED_UNSEEN inline unsigned atomicInc(unsigned *p, unsigned most) {
    emulated::note_atomic(p, *p >= most);
    unsigned old = *p;
    *p = old >= most ? 0 : old + 1;
    return old;
}
template <class T> EMULATED_UNSEEN T atomicMax(T *p, T v) {
    emulated::note_atomic(p);
    T old = *p;
    *p = old > v ? old : v;
    return old;
}
template <class T> EMULATED_UNSEEN T atomicExch(T *p, T v) {
    emulated::note_atomic(p);
    T old = *p;
    *p = v;
    return old;
}
EMULATED_UNSEEN inline unsigned atomicOr(unsigned *p, unsigned v) {
    emulated::note_atomic(p);
    unsigned old = *p;
    *p = old | v;
    return old;
}

static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline float __fsqrt_rn(float a) { return sqrtf(a); }
static inline float __frcp_rn(float a) { return 1.0f / a; }
static inline int __popc(unsigned v) { return __builtin_popcount(v); }
static inline int __ffs(int v) { return __builtin_ffs(v); }
static inline int __clz(int v) { return v ? __builtin_clz((unsigned)v) : 32; }
static inline unsigned __umulhi(unsigned a, unsigned b) {
    return (unsigned)(((uint64_t)a * b) >> 32);
}
static inline int __mul24(int a, int b) { return a * b; }
static inline unsigned __float_as_uint(float f) {
    unsigned u;
    memcpy(&u, &f, sizeof u);
    return u;
}
static inline float __uint_as_float(unsigned u) {
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}
static inline int __float_as_int(float f) { return (int)__float_as_uint(f); }
static inline float __int_as_float(int i) { return __uint_as_float((unsigned)i); }
template <class T> static inline T min(T a, T b) { return b < a ? b : a; }
template <class T> static inline T max(T a, T b) { return a < b ? b : a; }
static inline int __float2int_rn(float f) { return (int)lrintf(f); }
static inline unsigned __vmaxu4(unsigned a, unsigned b) {
    unsigned r = 0;
    for (int i = 0; i < 32; i += 8) {
        unsigned x = a >> i & 255, y = b >> i & 255;
        r |= (x > y ? x : y) << i;
    }
    return r;
}

enum { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
template <class T> static inline cudaError_t cudaFuncSetAttribute(T kernel, int what, int value) {
    return emulated::allow_shared(reinterpret_cast<const void *>(kernel), what, value);
}
struct cudaFuncAttributes {
    int maxDynamicSharedSizeBytes, ptxVersion;
};
template <class T>
static inline cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes, T kernel) {
    attributes->maxDynamicSharedSizeBytes =
        emulated::shared_allowed(reinterpret_cast<const void *>(kernel));
    attributes->ptxVersion = 90;
    return cudaSuccess;
}

#endif
