/* SPDX-License-Identifier: Apache-2.0
 *
 * What the measurements share: the device, memory with contents that cost what real ones cost,
 * times by events around replayed graphs, medians, and lines of JSON.
 *
 * A line that begins with "= " is one row of the table that tests/gpu/run.sh prints last; "|"
 * separates its cells.
 */
#ifndef CHEX_TESTS_GPU_BENCH_H
#define CHEX_TESTS_GPU_BENCH_H

#include <cuda_runtime_api.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "engine/cuda/host/device.h"
#include "engine/cuda/host/gpu.h"

#define BENCH_CUDA(call)                                                                           \
    do {                                                                                           \
        cudaError_t bench_e_ = (call);                                                             \
        if (bench_e_ != cudaSuccess) {                                                             \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call,                          \
                    cudaGetErrorString(bench_e_));                                                 \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static const char *const bench_type_names[] = {"fp32", "bf16", "fp16"};

static inline void bench_die(const char *what) {
    fprintf(stderr, "%s\n", what);
    exit(2);
}

/* ---- options: NAME VALUE pairs ---- */
static inline const char *bench_option(int argc, char **argv, const char *name, const char *usual) {
    for (int i = 1; i + 1 < argc; i += 2)
        if (strcmp(argv[i], name) == 0)
            return argv[i + 1];
    return usual;
}
/* Every option must be one of `names` (NULL-terminated) and have a value. */
static inline void bench_check_options(int argc, char **argv, const char *const *names,
                                       const char *usage) {
    for (int i = 1; i < argc; i += 2) {
        int known = 0;
        for (int k = 0; names[k]; k++)
            known |= strcmp(argv[i], names[k]) == 0;
        if (!known || i + 1 == argc)
            bench_die(usage);
    }
}
/* Whether `word` is in the comma-separated list; an empty list has every word. */
static inline bool bench_listed(const char *list, const char *word) {
    const size_t n = strlen(word);
    for (const char *p = list; *p;) {
        const size_t len = strcspn(p, ",");
        if (len == n && memcmp(p, word, n) == 0)
            return true;
        p += len + (p[len] == ',');
    }
    return !*list;
}

/* ---- the device ---- */

/* Exits with 77, saying why, where there is none. */
static inline struct gpu_device bench_device(void) {
    struct gpu_device d = {0};
    struct chex_error err = {0};
    if (gpu_device_open(NULL, &d, &err) != CHEX_OK) {
        printf("skipped: no CUDA device: %s\n", err.text);
        exit(77);
    }
    return d;
}

/* ---- memory: one allocation, handed out from its start and taken back as a whole ---- */
struct bench_arena {
    char *base;
    size_t bytes, at;
    bool full; /* something did not fit since the last reset */
};

/* Normal numbers of `type`, mean 0, all over the arena: zeros would make a GPU faster than it is.
 */
static inline void bench_fill(struct bench_arena *a, enum gpu_type type) {
    const size_t chunk = 1 << 20, count = chunk / gpu_type_bytes(type);
    char *host = malloc(chunk);
    if (!host)
        bench_die("out of memory");
    for (size_t i = 0; i < count; i++) {
        const struct chex_rng4 r = chex_rng(1, CHEX_RNG_TEST, i, 0);
        const float u = chex_rng_unit(r.v[0]), v = chex_rng_unit(r.v[1]);
        const float x = sqrtf(-2.0f * logf(u + 0x1p-25f)) * cosf(6.2831853f * v);
        uint32_t bits;
        memcpy(&bits, &x, 4);
        /* fp16 by truncation: 5 bits of exponent, 10 of mantissa; tiny ones become 0 */
        const int e = (int)(bits >> 23 & 255) - 112;
        const uint16_t half =
            (uint16_t)(e <= 0 ? 0
                              : (bits >> 16 & 0x8000) | (unsigned)e << 10 | (bits >> 13 & 1023));
        if (type == GPU_F32)
            memcpy(host + i * 4, &x, 4);
        else if (type == GPU_BF16)
            memcpy(host + i * 2, (char *)&bits + 2, 2);
        else
            memcpy(host + i * 2, &half, 2);
    }
    size_t done = a->bytes < chunk ? a->bytes : chunk;
    BENCH_CUDA(cudaMemcpy(a->base, host, done, cudaMemcpyHostToDevice));
    free(host);
    while (done < a->bytes) { /* doubles what is there */
        const size_t n = done < a->bytes - done ? done : a->bytes - done;
        BENCH_CUDA(cudaMemcpy(a->base + done, a->base, n, cudaMemcpyDeviceToDevice));
        done += n;
    }
    BENCH_CUDA(cudaDeviceSynchronize());
}

static inline struct bench_arena bench_arena(size_t bytes, enum gpu_type type) {
    struct bench_arena a = {.bytes = bytes & ~(size_t)4095};
    BENCH_CUDA(cudaMalloc((void **)&a.base, a.bytes));
    bench_fill(&a, type);
    return a;
}

/* NULL, and `full`, where it does not fit. */
static inline void *bench_take(struct bench_arena *a, double bytes) {
    const size_t n = ((size_t)bytes + 255) & ~(size_t)255;
    if (a->full || bytes > (double)a->bytes || n > a->bytes - a->at) {
        a->full = true;
        return NULL;
    }
    a->at += n;
    return a->base + a->at - n;
}

/* ---- times ---- */
struct bench_time {
    double ms, low, high; /* median and quartiles of one launch */
    cudaError_t error;
};

static inline int bench_ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
static inline struct bench_time bench_summary(double *ms, int count) {
    qsort(ms, (size_t)count, sizeof *ms, bench_ascending);
    return (struct bench_time){ms[count / 2], ms[count / 4], ms[(3 * count) / 4], cudaSuccess};
}

/* Enqueues what is measured, on its copy number `copy` of the data. */
typedef cudaError_t (*bench_launch_fn)(const void *arg, int copy, cudaStream_t stream);

enum { BENCH_MAX_REPS = 200 };

/* One graph of `copies` launches, replayed: what the host needs to launch does not count. One runs
 * before the capture, which may not load code (cuDNN's plans load theirs when they first run). */
static inline struct bench_time bench_time(bench_launch_fn launch, const void *arg, int copies,
                                           int reps) {
    static double ms[BENCH_MAX_REPS];
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaEvent_t begin, end;
    BENCH_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    cudaError_t e = launch(arg, 0, stream);
    if (e != cudaSuccess) {
        cudaGetLastError();
        cudaStreamDestroy(stream);
        return (struct bench_time){.error = e};
    }
    BENCH_CUDA(cudaStreamSynchronize(stream));
    BENCH_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < copies && e == cudaSuccess; i++)
        e = launch(arg, i, stream);
    const cudaError_t captured = cudaStreamEndCapture(stream, &graph);
    if (e != cudaSuccess || captured != cudaSuccess) {
        cudaGetLastError();
        cudaStreamDestroy(stream);
        return (struct bench_time){.error = e != cudaSuccess ? e : captured};
    }
    BENCH_CUDA(cudaGraphInstantiate(&exec, graph, 0));
    BENCH_CUDA(cudaEventCreate(&begin));
    BENCH_CUDA(cudaEventCreate(&end));
    for (int r = -1; r < reps; r++) { /* the first warms up */
        float took;
        BENCH_CUDA(cudaEventRecord(begin, stream));
        BENCH_CUDA(cudaGraphLaunch(exec, stream));
        BENCH_CUDA(cudaEventRecord(end, stream));
        BENCH_CUDA(cudaEventSynchronize(end));
        BENCH_CUDA(cudaEventElapsedTime(&took, begin, end));
        if (r >= 0)
            ms[r] = (double)took / copies;
    }
    BENCH_CUDA(cudaEventDestroy(begin));
    BENCH_CUDA(cudaEventDestroy(end));
    BENCH_CUDA(cudaGraphExecDestroy(exec));
    BENCH_CUDA(cudaGraphDestroy(graph));
    BENCH_CUDA(cudaStreamDestroy(stream));
    return bench_summary(ms, reps);
}

/* ---- JSON: an object a line ---- */
static inline FILE *bench_json(const char *path) {
    FILE *f = *path ? fopen(path, "a") : NULL;
    if (*path && !f) {
        perror(path);
        exit(2);
    }
    return f;
}

/* The keys that every record has. */
static inline void bench_json_begin(FILE *f, const char *kind, const struct gpu_device *d) {
    int runtime = 0, driver = 0;
    cudaRuntimeGetVersion(&runtime);
    cudaDriverGetVersion(&driver);
    fprintf(
        f,
        "{\"schema\": 1, \"kind\": \"%s\", \"device\": \"%s\", \"capability\": %d, \"sms\": %d, "
        "\"cuda_runtime\": %d, \"cuda_driver\": %d",
        kind, d->name, d->capability, d->sms, runtime, driver);
}

#endif
