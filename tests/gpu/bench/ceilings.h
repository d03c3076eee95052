/* SPDX-License-Identifier: Apache-2.0
 *
 * The two rates that times are held against: how fast the device copies, and how fast it multiplies
 * large matrices of a type. Measured; where cuBLASLt is missing, the second is what the clock and
 * the multiprocessors give by NVIDIA's data sheets (dense), and says so.
 */
#ifndef CHEX_TESTS_GPU_CEILINGS_H
#define CHEX_TESTS_GPU_CEILINGS_H

#include "gpu/bench/bench.h"
#if CHEXNET_HAVE_CUBLASLT
#include <cublasLt.h>
#endif

struct ceilings {
    double copy_gb_s;    /* read and written */
    double gemm_tflop_s; /* 0: unknown */
    const char *gemm_by; /* "cuBLASLt", "data sheet" */
};

struct copy_arg {
    char *base;
    size_t bytes;
};
static inline cudaError_t ceiling_copy(const void *arg, int copy, cudaStream_t stream) {
    const struct copy_arg *a = arg;
    char *from = a->base + (copy % 2 ? a->bytes : 0), *to = a->base + (copy % 2 ? 0 : a->bytes);
    return cudaMemcpyAsync(to, from, a->bytes, cudaMemcpyDeviceToDevice, stream);
}

#if CHEXNET_HAVE_CUBLASLT
enum { GEMM_N = 8192, GEMM_WORKSPACE = 64 << 20 };
struct gemm_arg {
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t layout;
    cublasLtMatmulHeuristicResult_t how;
    char *a, *b, *c, *workspace;
};
static inline cudaError_t ceiling_gemm(const void *arg, int copy, cudaStream_t stream) {
    const struct gemm_arg *g = arg;
    const float one = 1, zero = 0;
    (void)copy;
    return cublasLtMatmul(g->handle, g->product, &one, g->a, g->layout, g->b, g->layout, &zero,
                          g->c, g->layout, g->c, g->layout, &g->how.algo, g->workspace,
                          GEMM_WORKSPACE, stream) == CUBLAS_STATUS_SUCCESS
               ? cudaSuccess
               : cudaErrorLaunchFailure;
}

/* 0 where cuBLASLt cannot. */
static inline double ceiling_gemm_rate(struct bench_arena *arena, enum gpu_type type, int reps) {
    const cudaDataType_t data = type == GPU_F32    ? CUDA_R_32F
                                : type == GPU_BF16 ? CUDA_R_16BF
                                                   : CUDA_R_16F;
    const double bytes = (double)GEMM_N * GEMM_N * (double)gpu_type_bytes(type);
    struct gemm_arg g = {0};
    cublasLtMatmulPreference_t wish = NULL;
    const cublasOperation_t transposed = CUBLAS_OP_T;
    const size_t room = GEMM_WORKSPACE;
    int found = 0;
    double rate = 0;
    g.a = bench_take(arena, bytes);
    g.b = bench_take(arena, bytes);
    g.c = bench_take(arena, bytes);
    g.workspace = bench_take(arena, GEMM_WORKSPACE);
    if (g.workspace && cublasLtCreate(&g.handle) == CUBLAS_STATUS_SUCCESS &&
        cublasLtMatmulDescCreate(&g.product, CUBLAS_COMPUTE_32F, CUDA_R_32F) ==
            CUBLAS_STATUS_SUCCESS &&
        cublasLtMatmulDescSetAttribute(g.product, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                       sizeof transposed) == CUBLAS_STATUS_SUCCESS &&
        cublasLtMatrixLayoutCreate(&g.layout, data, GEMM_N, GEMM_N, GEMM_N) ==
            CUBLAS_STATUS_SUCCESS &&
        cublasLtMatmulPreferenceCreate(&wish) == CUBLAS_STATUS_SUCCESS &&
        cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &room,
                                             sizeof room) == CUBLAS_STATUS_SUCCESS &&
        cublasLtMatmulAlgoGetHeuristic(g.handle, g.product, g.layout, g.layout, g.layout, g.layout,
                                       wish, 1, &g.how, &found) == CUBLAS_STATUS_SUCCESS &&
        found) {
        const struct bench_time t = bench_time(ceiling_gemm, &g, 1, reps);
        if (t.error == cudaSuccess)
            rate = 2.0 * GEMM_N * GEMM_N * GEMM_N / t.ms * 1e-9;
    }
    if (wish)
        cublasLtMatmulPreferenceDestroy(wish);
    if (g.layout)
        cublasLtMatrixLayoutDestroy(g.layout);
    if (g.product)
        cublasLtMatmulDescDestroy(g.product);
    if (g.handle)
        cublasLtDestroy(g.handle);
    arena->at = 0;
    arena->full = false;
    return rate;
}
#endif

/* FLOP a clock and multiprocessor: tensor cores with fp32 sums, or FMA units. */
static inline double ceiling_sheet(const struct gpu_device *d, enum gpu_type type) {
    static const struct {
        int capability, tensor, fma;
    } sheet[] = {{70, 1024, 128}, {75, 1024, 128}, {80, 2048, 128},  {86, 512, 256},
                 {89, 512, 256},  {90, 4096, 256}, {100, 8192, 256}, {120, 512, 256}};
    int khz = 0;
#ifndef CHEX_GPU_EMULATED
    if (cudaDeviceGetAttribute(&khz, cudaDevAttrClockRate, 0) != cudaSuccess)
        return 0;
#endif
    for (size_t i = 0; i < sizeof sheet / sizeof *sheet; i++)
        if (sheet[i].capability == d->capability)
            return (double)(type == GPU_F32 ? sheet[i].fma : sheet[i].tensor) * d->sms * khz * 1e-9;
    return 0;
}

static inline struct ceilings ceilings_of(const struct gpu_device *d, struct bench_arena *arena,
                                          enum gpu_type type, int reps) {
    struct ceilings c = {.gemm_by = "data sheet"};
    struct copy_arg copy = {arena->base, arena->bytes / 4 < (size_t)1 << 30 ? arena->bytes / 4
                                                                            : (size_t)1 << 30};
    const struct bench_time t = bench_time(ceiling_copy, &copy, 2, reps);
    if (t.error == cudaSuccess && t.ms > 0)
        c.copy_gb_s = 2.0 * (double)copy.bytes / t.ms * 1e-6;
#if CHEXNET_HAVE_CUBLASLT
    c.gemm_tflop_s = ceiling_gemm_rate(arena, type, reps);
    if (c.gemm_tflop_s > 0) {
        c.gemm_by = "cuBLASLt";
        return c;
    }
#endif
    c.gemm_tflop_s = ceiling_sheet(d, type);
    return c;
}

#endif
