/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products of a warpgroup on capability 9.0 (PTX ISA, "Asynchronous warpgroup level matrix
 * multiply-accumulate instructions"), and the hand-over of registers between warpgroups.
 *
 * A warpgroup is four warps; the first one's number is a multiple of 4. Every function here except
 * gpu_matrix is called by all 32 lanes of a warp, and all four warps call the same products in the
 * same order with the same arguments (registers excepted).
 *
 * Products are asynchronous. Between gpu_wgmma and the gpu_wgmma_wait that covers it:
 *   - nothing may write the matrices in shared memory;
 *   - nothing may read or write the registers d and a, except further products into the same d of
 *     the same N: these are added in order.
 * Before the first product, and again after other accesses to the registers d or a, the warp calls
 * gpu_wgmma_fence. Products read shared memory through the async proxy: a thread that has written a
 * matrix by stores or gpu_copy16 calls gpu_async_fence (hopper_copy.cuh) before the barrier.
 *
 * Matrices in shared memory are made of core matrices: 8 rows of 16 bytes (8 elements). A 16-byte
 * row holds 8 values of k ("k-major", the usual form) or, if transposed, 8 rows of A or columns of
 * B for one k. Offsets in bytes:
 *
 *                                       k-major                   transposed, no swizzle
 *   next 16 bytes of a core matrix      next row of A, col of B   next k
 *   `leading`                           next 8 of k               next 8 of k
 *   `stride`                            next 8 rows or columns    next 8 rows or columns
 *
 * With a swizzle of 32, 64 or 128 bytes the 16-byte units of a row are permuted as tensor maps do
 * it: address bits 4.. are xored with bits 7... k-major: a row has so many bytes, `leading` is not
 * used, `stride` is the offset of the next 8 rows or columns. Transposed: `leading` is the offset
 * of the next 16, 32 or 64 rows or columns, `stride` that of the next 8 of k.
 */
#ifndef CHEX_ENGINE_CUDA_KERNELS_HOPPER_WGMMA_CUH
#define CHEX_ENGINE_CUDA_KERNELS_HOPPER_WGMMA_CUH

#include "engine/cuda/kernels/device.cuh"

/* Orders accesses to registers before the products that follow. */
static __device__ __forceinline__ void gpu_wgmma_fence();
/* Ends a group of products: those since the last commit. */
static __device__ __forceinline__ void gpu_wgmma_commit();
/* Waits for all groups of this warp except the N committed last. */
template <int N> __device__ __forceinline__ void gpu_wgmma_wait();

/* Descriptor of a matrix in shared memory. shared: its first element, a multiple of 16 bytes;
 * leading, stride: see above, multiples of 16 below 2^18; swizzle: 0, 32, 64 or 128 bytes, whose
 * pattern begins at multiples of 256, 512 or 1024 bytes. */
static __device__ __forceinline__ uint64_t gpu_matrix(const void *shared, unsigned leading,
                                                      unsigned stride, int swizzle);
/* The same matrix `bytes` further; a multiple of 16, perhaps negative. */
static __device__ __forceinline__ uint64_t gpu_matrix_at(uint64_t matrix, int bytes) {
    return matrix + (uint64_t)(int64_t)(bytes / 16);
}

/* d (64 x N, fp32) = a (64 x 16) b (16 x N), + d if accumulate. T: 16-bit type of a and b.
 *   - N: 32, 64 or 128. d: N / 2 registers. Lane l of warp w of the group has, in d[4 j +
 *     2 h + i], row 16 w + l / 4 + 8 h and column 8 j + 2 (l % 4) + i, as after gpu_mma_16816.
 *   - A_T, B_T: the matrix in shared memory is transposed (see above).
 *   - gpu_wgmma_a: a in registers; those of gpu_mma_16816 for the warp's 16 rows. */
template <class T, int N, bool A_T = false, bool B_T = false>
__device__ __forceinline__ void gpu_wgmma(float *d, uint64_t a, uint64_t b, bool accumulate);
template <class T, int N, bool B_T = false>
__device__ __forceinline__ void gpu_wgmma_a(float *d, const uint32_t a[4], uint64_t b,
                                            bool accumulate);

/* setmaxnreg: this warpgroup gives registers back (fewer), or takes what others have given back and
 * waits until they are free (more). N: registers of each thread afterwards, a multiple of 8, 24 to
 * 240. All warps of the warpgroup call it; the kernel must have __launch_bounds__. */
template <int N> __device__ __forceinline__ void gpu_registers_more();
template <int N> __device__ __forceinline__ void gpu_registers_fewer();

/* Whether a block of `more_threads` with `more` registers and one warpgroup with `fewer` each needs
 * no more than its launch has, which ptxas makes 65,536 / threads, a multiple of 8. Else the
 * warpgroups that ask for more wait for ever. */
constexpr bool gpu_registers_suffice(int more_threads, int more, int fewer) {
    const int threads = more_threads + 128;
    return more_threads * more + 128 * fewer <= threads * (65536 / threads / 8 * 8);
}

#ifdef CHEX_GPU_EMULATED
#include "hopper_wgmma_emulated.h"
#else

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define CHEX_GPU_PTX90A(...) asm volatile(__VA_ARGS__)
#else
#define CHEX_GPU_PTX90A(...) __trap()
#endif

static __device__ __forceinline__ void gpu_wgmma_fence() {
    CHEX_GPU_PTX90A("wgmma.fence.sync.aligned;" ::: "memory");
}
static __device__ __forceinline__ void gpu_wgmma_commit() {
    CHEX_GPU_PTX90A("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int N> __device__ __forceinline__ void gpu_wgmma_wait() {
    CHEX_GPU_PTX90A("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
template <int N> __device__ __forceinline__ void gpu_registers_more() {
    CHEX_GPU_PTX90A("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N> __device__ __forceinline__ void gpu_registers_fewer() {
    CHEX_GPU_PTX90A("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

static __device__ __forceinline__ uint64_t gpu_matrix(const void *shared, unsigned leading,
                                                      unsigned stride, int swizzle) {
    const uint64_t mode = swizzle == 128 ? 1 : swizzle == 64 ? 2 : swizzle == 32 ? 3 : 0;
    return (uint64_t)((gpu_shared_address(shared) & 0x3ffff) >> 4) |
           (uint64_t)(leading >> 4) << 16 | (uint64_t)(stride >> 4) << 32 | mode << 62;
}

template <class T> struct gpu_is_bf16 { static constexpr bool value = false; };
template <> struct gpu_is_bf16<gpu_bf16> { static constexpr bool value = true; };

/* Lists of 16 registers: their names in the text, and the operands. */
#define WGMMA_D(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define WGMMA_D16(i) WGMMA_D(i), WGMMA_D(i + 4), WGMMA_D(i + 8), WGMMA_D(i + 12)
#define WGMMA_D32 WGMMA_D16(0), WGMMA_D16(16)
#define WGMMA_D64 WGMMA_D32, WGMMA_D16(32), WGMMA_D16(48)
#define WGMMA_16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define WGMMA_32                                                                                   \
    WGMMA_16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define WGMMA_48                                                                                   \
    WGMMA_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define WGMMA_64                                                                                   \
    WGMMA_48 ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
/* One product. LIST: names of d; A, ON, FLAGS: text of the operand a, of accumulate, and of the
 * immediate values. */
#define WGMMA_TEXT(TYPE, N, LIST, A, B, ON, FLAGS)                                                 \
    "{\n.reg .pred p;\nsetp.ne.b32 p, " ON ", 0;\n"                                                \
    "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" LIST "}, " A ", " B       \
    ", p, 1, 1, " FLAGS ";\n}"
/* A and B in shared memory; or A in registers. N is a number; F0, F1... are the names of the
 * operands after those of d. */
#define WGMMA_SHARED(TYPE, N, LIST, F0, F1, F2, F3, F4, ...)                                       \
    CHEX_GPU_PTX90A(WGMMA_TEXT(TYPE, N, LIST, F0, F1, F2, F3 ", " F4)                              \
                    : __VA_ARGS__                                                                  \
                    : "l"(a), "l"(b), "r"((int)accumulate), "n"((int)A_T), "n"((int)B_T))
#define WGMMA_REGISTERS(TYPE, N, LIST, F0, F1, F2, F3, F4, F5, F6, ...)                            \
    CHEX_GPU_PTX90A(WGMMA_TEXT(TYPE, N, LIST, "{" F0 ", " F1 ", " F2 ", " F3 "}", F4, F5, F6)      \
                    : __VA_ARGS__                                                                  \
                    : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((int)accumulate),    \
                      "n"((int)B_T))

#define WGMMA_OF_SHARED(TYPE)                                                                      \
    do {                                                                                           \
        if constexpr (N == 32)                                                                     \
            WGMMA_SHARED(TYPE, 32, WGMMA_16, "%16", "%17", "%18", "%19", "%20", WGMMA_D16(0));     \
        if constexpr (N == 64)                                                                     \
            WGMMA_SHARED(TYPE, 64, WGMMA_32, "%32", "%33", "%34", "%35", "%36", WGMMA_D32);        \
        if constexpr (N == 128)                                                                    \
            WGMMA_SHARED(TYPE, 128, WGMMA_64, "%64", "%65", "%66", "%67", "%68", WGMMA_D64);       \
    } while (0)
#define WGMMA_OF_REGISTERS(TYPE)                                                                   \
    do {                                                                                           \
        if constexpr (N == 32)                                                                     \
            WGMMA_REGISTERS(TYPE, 32, WGMMA_16, "%16", "%17", "%18", "%19", "%20", "%21", "%22",   \
                            WGMMA_D16(0));                                                         \
        if constexpr (N == 64)                                                                     \
            WGMMA_REGISTERS(TYPE, 64, WGMMA_32, "%32", "%33", "%34", "%35", "%36", "%37", "%38",   \
                            WGMMA_D32);                                                            \
        if constexpr (N == 128)                                                                    \
            WGMMA_REGISTERS(TYPE, 128, WGMMA_64, "%64", "%65", "%66", "%67", "%68", "%69", "%70",  \
                            WGMMA_D64);                                                            \
    } while (0)

template <class T, int N, bool A_T, bool B_T>
__device__ __forceinline__ void gpu_wgmma(float *d, uint64_t a, uint64_t b, bool accumulate) {
    static_assert(N == 32 || N == 64 || N == 128, "see the declaration");
    if constexpr (gpu_is_bf16<T>::value)
        WGMMA_OF_SHARED("bf16");
    else
        WGMMA_OF_SHARED("f16");
}
template <class T, int N, bool B_T>
__device__ __forceinline__ void gpu_wgmma_a(float *d, const uint32_t a[4], uint64_t b,
                                            bool accumulate) {
    static_assert(N == 32 || N == 64 || N == 128, "see the declaration");
    if constexpr (gpu_is_bf16<T>::value)
        WGMMA_OF_REGISTERS("bf16");
    else
        WGMMA_OF_REGISTERS("f16");
}

#endif
#endif
