/* SPDX-License-Identifier: Apache-2.0
 *
 * The special instructions of device.cuh, in PTX. Tensor-core and copy instructions trap below
 * capability 8.0, so launchers check the device first.
 */
#ifndef CHEX_ENGINE_CUDA_KERNELS_INSTRUCTIONS_CUH
#define CHEX_ENGINE_CUDA_KERNELS_INSTRUCTIONS_CUH

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define CHEX_GPU_PTX80(...) asm volatile(__VA_ARGS__)
#else
#define CHEX_GPU_PTX80(...) __trap()
#endif
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 750
#define CHEX_GPU_PTX75(...) asm volatile(__VA_ARGS__)
#else
#define CHEX_GPU_PTX75(...) __trap()
#endif

static __device__ __forceinline__ void gpu_begin() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

static __device__ __forceinline__ float gpu_greater(float x, float y) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    float v;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(v) : "f"(x), "f"(y));
    return v;
#else
    if (x != x || y != y)
        return __uint_as_float(0x7fffffffu);
    if (x == y)
        return __uint_as_float(__float_as_uint(x) & __float_as_uint(y));
    return x > y ? x : y;
#endif
}

static __device__ __forceinline__ unsigned gpu_shared_address(const void *p) {
    return (unsigned)__cvta_generic_to_shared(p);
}

static __device__ __forceinline__ void gpu_ldmatrix_x4(uint32_t out[4], const void *row) {
    CHEX_GPU_PTX75("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                   : "r"(gpu_shared_address(row))
                   : "memory");
}
static __device__ __forceinline__ void gpu_ldmatrix_x4_trans(uint32_t out[4], const void *row) {
    CHEX_GPU_PTX75("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                   : "r"(gpu_shared_address(row))
                   : "memory");
}
static __device__ __forceinline__ void gpu_ldmatrix_x2(uint32_t out[2], const void *row) {
    CHEX_GPU_PTX75("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                   : "=r"(out[0]), "=r"(out[1])
                   : "r"(gpu_shared_address(row))
                   : "memory");
}
static __device__ __forceinline__ void gpu_ldmatrix_x2_trans(uint32_t out[2], const void *row) {
    CHEX_GPU_PTX75("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                   : "=r"(out[0]), "=r"(out[1])
                   : "r"(gpu_shared_address(row))
                   : "memory");
}

template <>
__device__ __forceinline__ void gpu_mma_16816<gpu_bf16>(float d[4], const uint32_t a[4],
                                                        const uint32_t b[2]) {
    CHEX_GPU_PTX80("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
                   "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                   : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
template <>
__device__ __forceinline__ void gpu_mma_16816<gpu_f16>(float d[4], const uint32_t a[4],
                                                       const uint32_t b[2]) {
    CHEX_GPU_PTX80("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
                   "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                   : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

template <> __device__ __forceinline__ uint32_t gpu_pack2_relu<gpu_bf16>(float x, float y) {
    uint32_t v = 0;
    CHEX_GPU_PTX80("cvt.rn.relu.bf16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(y), "f"(x));
    return v;
}
template <> __device__ __forceinline__ uint32_t gpu_pack2_relu<gpu_f16>(float x, float y) {
    uint32_t v = 0;
    CHEX_GPU_PTX80("cvt.rn.relu.f16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(y), "f"(x));
    return v;
}

static __device__ __forceinline__ int gpu_fresh(int v) {
    asm volatile("" : "+r"(v));
    return v;
}

template <class T> __device__ __forceinline__ T *gpu_fresh(T *global) {
    size_t at = __cvta_generic_to_global(global);
    asm volatile("" : "+l"(at));
    return static_cast<T *>(__cvta_global_to_generic(at));
}
static __device__ __forceinline__ unsigned char *gpu_resident(unsigned char *shared) {
    unsigned at = gpu_shared_address(shared);
    asm volatile("" : "+r"(at));
    return static_cast<unsigned char *>(__cvta_shared_to_generic(at));
}

static __device__ __forceinline__ void gpu_copy16(void *shared, const void *global, bool on) {
    CHEX_GPU_PTX80(
        "cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(gpu_shared_address(shared)),
        "l"(global), "r"(on ? 16 : 0)
        : "memory");
}
static __device__ __forceinline__ void gpu_copy_commit() {
    CHEX_GPU_PTX80("cp.async.commit_group;" ::: "memory");
}
template <int N> __device__ __forceinline__ void gpu_copy_wait() {
    CHEX_GPU_PTX80("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

#endif
