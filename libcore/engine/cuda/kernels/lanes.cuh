/* SPDX-License-Identifier: Apache-2.0
 *
 * Building blocks of elementwise kernels in which one thread processes 8 channels of a pixel:
 * loads, stores, batch norm and its backward, and sums over a block.
 *
 * Layout. A block has 32 rows of 8 threads. It processes a run of 64 channels of 32 pixels at a
 * time, so it reads 128 contiguous bytes of a 16-bit map. blockIdx.y is the run. If the map does
 * not fill the last run, the threads without channels have `on` false; they still take part in
 * barriers.
 *
 * Sums over pixels: each thread sums its pixels in fp32; then the block's rows are added in a fixed
 * order.
 */
#ifndef CHEX_ENGINE_CUDA_KERNELS_LANES_CUH
#define CHEX_ENGINE_CUDA_KERNELS_LANES_CUH

#include "engine/cuda/kernels/vector.cuh"

enum {
    LANE = 8,                /* channels per thread */
    LANES = 8,               /* threads along channels */
    LANE_RUN = LANE * LANES, /* channels per block */
    LANE_ROWS = 32,          /* pixels per block */
    LANE_THREADS = 256,      /* LANES * LANE_ROWS */
    LANE_WARPS = LANE_THREADS / 32,
    /* Guesses, not measured: */
    LANE_GRID = 792, /* blocks at most: whole waves of 2 or 3 blocks on 132 multiprocessors */
    LANE_LEAST = 49, /* blocks per run at least, even if there are many runs */
};

template <class T> using lane_run = gpu_run<T, LANE>;

/* ---- pixels and channels of a thread ---- */

struct lane_place {
    int first; /* first channel of the run */
    int c;     /* first channel of the thread */
    bool on;
    unsigned start, step, end; /* pixels of the thread */
};
static __device__ __forceinline__ lane_place lane_here(int channels, unsigned pixels) {
    lane_place l;
    l.first = (int)blockIdx.y * LANE_RUN;
    l.c = l.first + (int)(threadIdx.x % LANES) * LANE;
    l.on = l.c < channels;
    l.start = blockIdx.x * LANE_ROWS + threadIdx.x / LANES;
    l.step = gridDim.x * LANE_ROWS;
    l.end = l.on ? pixels : 0;
    return l;
}
template <class T>
static __device__ __forceinline__ T *lane_at(const gpu_map &m, unsigned p, int c) {
    return static_cast<T *>(m.data) + (int64_t)p * m.pitch + c;
}

/* ---- batch norm ---- */

/* Coefficients of the thread's channels. Without a norm: y = x, relu false. */
struct lane_norm {
    gpu_ab s[LANE];
    bool relu;
    float least; /* lower bound of y: 0 with ReLU, else -infinity */
};
static __device__ __forceinline__ lane_norm lane_norm_of(const gpu_norm &n, const lane_place &l) {
    lane_norm r;
    r.relu = n.mean && n.relu;
    r.least = r.relu ? 0.0f : -INFINITY;
    for (int i = 0; i < LANE; i++)
        r.s[i] = n.mean && l.on ? gpu_scale(n, l.c + i) : gpu_ab{1.0f, 0.0f};
    return r;
}
static __device__ __forceinline__ float lane_normed(const lane_norm &n, int i, float x) {
    return gpu_greater(gpu_normed(n.s[i], x), n.least);
}

/* The deferred terms of a map's gradient. The completed gradient is not rounded, because no
 * convolution reads it. */
struct lane_deferred_grad {
    float bsum[LANE], csum[LANE];
    bool more;
};
static __device__ __forceinline__ lane_deferred_grad
lane_deferred_grad_of(const gpu_deferred_grad &t, const lane_place &l) {
    lane_deferred_grad r;
    r.more = t.bsum != nullptr;
    for (int i = 0; i < LANE; i++) {
        r.bsum[i] = r.more && l.on ? t.bsum[l.c + i] : 0.0f;
        r.csum[i] = r.more && l.on ? t.csum[l.c + i] : 0.0f;
    }
    return r;
}
/* The loaded x and gradient of a pixel, each if needed. Loads are issued early to hide latency. */
template <class T> struct lane_loads { lane_run<T> x, g; };
template <class T>
static __device__ __forceinline__ lane_loads<T>
lane_load(const gpu_map &in, const gpu_map &in_g, bool normed, bool add, unsigned p, int c) {
    lane_loads<T> r = {};
    if (normed)
        r.x = gpu_load_run<LANE>(lane_at<const T>(in, p, c));
    if (add)
        r.g = gpu_load_run<LANE>(lane_at<const T>(in_g, p, c));
    return r;
}

template <class T>
static __device__ __forceinline__ void lane_finish_grad(const lane_deferred_grad &t,
                                                        const lane_loads<T> &from, float d[LANE]) {
    gpu_unpack_run(d, from.g);
    if (!t.more)
        return;
    float x[LANE];
    gpu_unpack_run(x, from.x);
    for (int i = 0; i < LANE; i++)
        d[i] = __fmaf_rn(t.bsum[i], x[i], __fadd_rn(d[i], t.csum[i]));
}
template <class T>
static __device__ __forceinline__ void lane_read_grad(const lane_deferred_grad &t,
                                                      const gpu_deferred_grad &from, unsigned p,
                                                      int c, float d[LANE]) {
    lane_finish_grad<T>(t, lane_load<T>(from.x, from.g, t.more, true, p, c), d);
}

/* ---- sums over the block's pixels ---- */

/* Writes the block's two sums of each channel to partial[blockIdx.x][2][channels]. Every thread of
 * the block calls it. */
static __device__ __forceinline__ void lane_block_sums(const float one[LANE], const float two[LANE],
                                                       const lane_place &l, int channels,
                                                       float *partial) {
    __shared__ float parts[LANE_WARPS][2][LANE_RUN];
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    for (int i = 0; i < LANE; i++) {
        float a = one[i], b = two[i];
        for (int by = LANES; by < 32; by *= 2) {
            a += __shfl_xor_sync(0xffffffffu, a, by);
            b += __shfl_xor_sync(0xffffffffu, b, by);
        }
        if (lane < LANES) {
            parts[warp][0][lane * LANE + i] = a;
            parts[warp][1][lane * LANE + i] = b;
        }
    }
    __syncthreads();
    const int which = (int)threadIdx.x / LANE_RUN, c = (int)threadIdx.x % LANE_RUN;
    if (which < 2 && l.first + c < channels) {
        float sum = 0;
        for (int w = 0; w < LANE_WARPS; w++)
            sum += parts[w][which][c];
        partial[((size_t)blockIdx.x * 2 + (size_t)which) * (size_t)channels +
                (size_t)(l.first + c)] = sum;
    }
    __syncthreads();
}
static __device__ __forceinline__ int lane_run_channels(const lane_place &l, int channels) {
    return channels - l.first < LANE_RUN ? channels - l.first : LANE_RUN;
}
/* Whether this block completes the sums that lane_block_sums has written. */
static __device__ __forceinline__ bool lane_last_of_run(unsigned *tickets, float *partial,
                                                        const lane_place &l, int channels) {
    return gpu_last_of_run(tickets, (int)blockIdx.y, (int)blockIdx.x, (int)gridDim.x, partial,
                           channels, l.first, lane_run_channels(l, channels), (int)threadIdx.x,
                           LANE_THREADS);
}

/* Sum and sum of squares of the values that the thread has stored. */
struct lane_stats {
    float sum[LANE], squares[LANE];
};
static __device__ __forceinline__ void lane_stats_add(lane_stats &s, const float v[LANE]) {
    for (int i = 0; i < LANE; i++) {
        s.sum[i] += v[i];
        s.squares[i] = __fmaf_rn(v[i], v[i], s.squares[i]);
    }
}
static __device__ __forceinline__ void lane_stats_finish(const lane_stats &s, const gpu_stats &to,
                                                         const lane_place &l, int channels,
                                                         unsigned pixels) {
    if (!to.partial)
        return;
    lane_block_sums(s.sum, s.squares, l, channels, to.partial);
    if (lane_last_of_run(to.ticket, to.partial, l, channels))
        gpu_finish_stats(to, channels, l.first, lane_run_channels(l, channels), (int)gridDim.x,
                         (double)pixels, (int)threadIdx.x, LANE_THREADS);
}

/* Backward of batch norm and ReLU: dv is masked to dU, A dU is added to G, and S1 and S2 are
 * summed. */
struct lane_sums {
    float one[LANE], two[LANE]; /* sum dU, sum dU (x - mean) */
    float mean[LANE];
};
static __device__ __forceinline__ lane_sums lane_sums_of(const gpu_norm &n, const lane_place &l) {
    lane_sums s;
    for (int i = 0; i < LANE; i++) {
        s.one[i] = s.two[i] = 0;
        s.mean[i] = n.mean && l.on ? n.mean[l.c + i] : 0.0f;
    }
    return s;
}
static __device__ __forceinline__ void lane_sums_add(lane_sums &s, int i, float du, float x) {
    s.one[i] += du;
    s.two[i] = __fmaf_rn(du, __fsub_rn(x, s.mean[i]), s.two[i]);
}
static __device__ __forceinline__ void lane_sums_finish(lane_sums &s, const gpu_sums &to,
                                                        const gpu_norm &n, const lane_place &l,
                                                        int channels, unsigned pixels) {
    if (!to.partial)
        return;
    for (int i = 0; i < LANE; i++)
        s.two[i] *= l.on ? n.inv[l.c + i] : 0.0f;
    lane_block_sums(s.one, s.two, l, channels, to.partial);
    if (lane_last_of_run(to.ticket, to.partial, l, channels))
        gpu_finish_sums(to, n, channels, l.first, lane_run_channels(l, channels), (int)gridDim.x,
                        (double)pixels, (int)threadIdx.x, LANE_THREADS);
}

/* Applies the backward to dv of one pixel: writes in_g and adds to the sums. */
template <class T>
static __device__ __forceinline__ void
lane_backward(const float dv[LANE], const lane_loads<T> &loads, const lane_norm &n,
              const gpu_map &in_g, bool normed, bool add, unsigned p, int c, lane_sums &s) {
    float v[LANE];
    if (normed) {
        float x[LANE];
        gpu_unpack_run(x, loads.x);
        for (int i = 0; i < LANE; i++) {
            const bool open = (gpu_normed(n.s[i], x[i]) > 0.0f) | !n.relu;
            const float du = open ? dv[i] : 0.0f;
            lane_sums_add(s, i, du, x[i]);
            v[i] = __fmul_rn(n.s[i].a, du);
        }
    } else {
        for (int i = 0; i < LANE; i++)
            v[i] = dv[i];
    }
    if (add) {
        float g[LANE];
        gpu_unpack_run(g, loads.g);
        for (int i = 0; i < LANE; i++)
            v[i] = g[i] + v[i];
    }
    gpu_write_run<LANE>(lane_at<T>(in_g, p, c), v);
}

/* ---- host ---- */

static inline int lane_runs(int channels) { return (channels + LANE_RUN - 1) / LANE_RUN; }
/* Whether these kernels support the map: channels are a multiple of 8, pixel numbers fit in 31
 * bits. */
static inline bool lane_supports(const gpu_map *m) {
    return m->channels > 0 && m->channels % LANE == 0 && m->pitch % LANE == 0 &&
           (uintptr_t)m->data % 16 == 0 && lane_runs(m->channels) <= GPU_RUNS &&
           gpu_map_pixels(m) < (int64_t)1 << 31;
}
static inline bool lane_same(const gpu_map *a, const gpu_map *b) {
    return lane_supports(b) && a->type == b->type && a->n == b->n && a->channels == b->channels;
}
/* Grid in which all blocks have about the same number of pixels. */
static inline dim3 lane_grid(int channels, int64_t pixels) {
    const int runs = lane_runs(channels);
    const int64_t most = LANE_GRID / runs > LANE_LEAST ? LANE_GRID / runs : LANE_LEAST;
    const int64_t tiles = (pixels + LANE_ROWS - 1) / LANE_ROWS, each = (tiles + most - 1) / most;
    return dim3((unsigned)((tiles + each - 1) / each), (unsigned)runs);
}

/* *p, or an empty S if p is NULL. */
template <class S> static inline S lane_given(const S *p) { return p ? *p : S(); }

#endif
