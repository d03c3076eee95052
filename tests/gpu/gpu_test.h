/* SPDX-License-Identifier: Apache-2.0
 *
 * What the kernel tests share: maps with random contents on both sides, and distances. The same
 * programs run on emulated devices (everywhere) and on a real one (tests/gpu/run.sh).
 */
#ifndef CHEX_TESTS_GPU_GPU_TEST_H
#define CHEX_TESTS_GPU_GPU_TEST_H

#include <cuda_runtime_api.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "engine/cuda/host/gpu.h"
#include "tap.h"

#define GT_OK(call)                                                                                \
    do {                                                                                           \
        cudaError_t gt_e_ = (call);                                                                \
        if (gt_e_ != cudaSuccess) {                                                                \
            printf("Bail out! %s:%d: %s: %s\n", __FILE__, __LINE__, #call,                         \
                   cudaGetErrorString(gt_e_));                                                     \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* Memory of the running test, released together. That of the device has its contents when a
 * function returns: tests launch on streams of their own, too, which do not wait for the default
 * one. */
enum { GT_MOST = 4096 };
static void *gt_on_device[GT_MOST], *gt_on_host[GT_MOST];
static int gt_device_count, gt_host_count;

static inline void *gt_alloc(size_t bytes) {
    void *p = NULL;
    GT_OK(cudaMalloc(&p, bytes ? bytes : 1));
    GT_OK(cudaMemset(p, 0xff, bytes)); /* NaN: values that are not written show */
    GT_OK(cudaDeviceSynchronize());
    BAIL_UNLESS(gt_device_count < GT_MOST, "more than %d allocations", GT_MOST);
    return gt_on_device[gt_device_count++] = p;
}
/* Of malloc, to be released with the rest. */
static inline void *gt_keep(void *p) {
    BAIL_UNLESS(p && gt_host_count < GT_MOST, "out of memory");
    return gt_on_host[gt_host_count++] = p;
}
/* Zeros on the host. */
static inline void *gt_take(size_t count, size_t bytes) {
    return gt_keep(calloc(count ? count : 1, bytes));
}
static inline float *gt_host(size_t count) { return gt_take(count, sizeof(float)); }
static inline void gt_release_all(void) {
    while (gt_device_count)
        GT_OK(cudaFree(gt_on_device[--gt_device_count]));
    while (gt_host_count)
        free(gt_on_host[--gt_host_count]);
}
static inline void *gt_upload(const void *host, size_t bytes) {
    void *p = gt_alloc(bytes);
    GT_OK(cudaMemcpy(p, host, bytes, cudaMemcpyHostToDevice));
    GT_OK(cudaDeviceSynchronize());
    return p;
}
static inline void *gt_zeros(size_t bytes) {
    void *p = gt_alloc(bytes);
    GT_OK(cudaMemset(p, 0, bytes));
    GT_OK(cudaDeviceSynchronize());
    return p;
}
static inline void gt_download(void *host, const void *device, size_t bytes) {
    GT_OK(cudaDeviceSynchronize());
    GT_OK(cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost));
}
static inline float *gt_floats(const void *device, size_t count) {
    float *h = gt_host(count);
    gt_download(h, device, count * sizeof *h);
    return h;
}

/* FNV-1a over all results: equal whatever the order of threads (EMULATED_ORDER). */
static uint64_t gt_digest = 14695981039346656037u;
static inline void gt_digest_add(const void *data, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        gt_digest = (gt_digest ^ ((const uint8_t *)data)[i]) * 1099511628211u;
}

/* ---- the 16-bit types on the host ---- */
static inline uint16_t gt_to_bf16(float f) {
    uint32_t u;
    memcpy(&u, &f, 4);
    if ((u & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(u >> 16 | 0x40u);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}
static inline float gt_from_bf16(uint16_t b) {
    uint32_t u = (uint32_t)b << 16;
    float f;
    memcpy(&f, &u, 4);
    return f;
}
static inline float gt_from_f16(uint16_t h) {
    int e = h >> 10 & 31, m = h & 1023;
    float v = e == 31 ? (m ? NAN : INFINITY)
              : e     ? ldexpf((float)(m + 1024), e - 25)
                      : ldexpf((float)m, -24);
    return h & 0x8000 ? -v : v;
}
static inline uint16_t gt_to_f16(float f) {
    uint16_t sign = signbit(f) ? 0x8000 : 0;
    float a = fabsf(f);
    if (isnan(f))
        return 0x7e00;
    if (a >= 65520.0f)
        return sign | 0x7c00;
    int e;
    frexpf(a, &e); /* a in [2^(e-1), 2^e) */
    e = e < -13 ? -13 : e;
    float ulp = ldexpf(1.0f, e - 11);
    float r = rintf(a / ulp) * ulp;
    if (r == 0)
        return sign;
    frexpf(r, &e);
    if (e < -13)
        return sign | (uint16_t)ldexpf(r, 24);
    return sign | (uint16_t)((e + 14) << 10 | ((int)ldexpf(r, 11 - e) - 1024));
}
static inline float gt_rounded(enum gpu_type type, float f) {
    return type == GPU_F32    ? f
           : type == GPU_BF16 ? gt_from_bf16(gt_to_bf16(f))
                              : gt_from_f16(gt_to_f16(f));
}
static const char *const gt_type_names[] = {"f32", "bf16", "f16"};

/* Host floats (already rounded to the type) to device memory of that type, and back. */
static inline void *gt_upload_as(enum gpu_type type, const float *host, size_t count) {
    if (type == GPU_F32)
        return gt_upload(host, count * 4);
    uint16_t *half = gt_take(count, 2);
    for (size_t i = 0; i < count; i++)
        half[i] = type == GPU_BF16 ? gt_to_bf16(host[i]) : gt_to_f16(host[i]);
    return gt_upload(half, count * 2);
}
static inline float *gt_download_as(enum gpu_type type, const void *device, size_t count) {
    if (type == GPU_F32)
        return gt_floats(device, count);
    uint16_t *half = gt_take(count, 2);
    float *host = gt_host(count);
    gt_download(half, device, count * 2);
    for (size_t i = 0; i < count; i++)
        host[i] = type == GPU_BF16 ? gt_from_bf16(half[i]) : gt_from_f16(half[i]);
    return host;
}

/* ---- random contents ---- */
static inline float gt_normal(uint64_t seed, uint64_t i) {
    const float a = chex_rng_unit(chex_rng(seed, CHEX_RNG_TEST, i, 0).v[0]);
    const float b = chex_rng_unit(chex_rng(seed, CHEX_RNG_TEST, i, 0).v[1]);
    return sqrtf(-2.0f * logf(a > 0 ? a : 1e-9f)) * cosf(6.28318530718f * b);
}

/* count values around `mean`. */
static inline float *gt_normals(size_t count, uint64_t seed, float mean, float sigma) {
    float *v = gt_host(count);
    for (size_t i = 0; i < count; i++)
        v[i] = mean + sigma * gt_normal(seed, i);
    return v;
}

/* A buffer (n, hw, hw, pitch) on both sides; host holds what the device does, as floats. */
struct gt_buffer {
    enum gpu_type type;
    int n, hw, pitch;
    size_t count;
    float *host;
    void *device;
};
static inline struct gt_buffer gt_buffer(enum gpu_type type, int n, int hw, int pitch,
                                         uint64_t seed, float mean, float sigma) {
    struct gt_buffer b = {type, n,   hw, pitch, (size_t)n * (size_t)(hw * hw) * (size_t)pitch,
                          NULL, NULL};
    b.host = gt_host(b.count);
    for (size_t i = 0; i < b.count; i++)
        b.host[i] = gt_rounded(type, mean + sigma * gt_normal(seed, i));
    b.device = gt_upload_as(type, b.host, b.count);
    return b;
}
/* Channels [first, first + channels) of it. */
static inline struct gpu_map gt_slice(const struct gt_buffer *b, int first, int channels) {
    return (struct gpu_map){.data = (char *)b->device + (size_t)first * gpu_type_bytes(b->type),
                            .type = b->type,
                            .n = b->n,
                            .hw = b->hw,
                            .channels = channels,
                            .pitch = b->pitch};
}

static inline double *gt_doubles(const float *v, size_t count) {
    double *wide = gt_take(count, sizeof *wide);
    for (size_t i = 0; i < count; i++)
        wide[i] = (double)v[i];
    return wide;
}
/* |a - b| / |b| over vectors; NaN where either has one. */
static inline double gt_rel_l2(const float *a, const double *b, size_t n) {
    double d = 0, s = 0;
    for (size_t i = 0; i < n; i++) {
        d += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        s += b[i] * b[i];
    }
    return s > 0 ? sqrt(d / s) : sqrt(d);
}

#endif
