/* SPDX-License-Identifier: Apache-2.0
 *
 * Batch norm and ReLU as separate kernels, for convolutions that do not fuse them: statistics, the
 * activated input, the completed (deferred) gradient, and the backward.
 *
 * Layout. A thread keeps 8 channels and steps over pixels, with several loads in flight. A block is
 * up to 32 such runs wide; its height is 256 / width pixels. blockIdx.y selects up to 256 channels,
 * blockIdx.x the share of the pixels.
 *
 * Numerics. All arithmetic is fp32, rounded when stored. Sums: per thread over its pixels, then
 * over the block's rows in order, both in fp32, then over blocks in double (device.cuh). S2 is
 * summed as dU (x - mean) and multiplied by inv once per block.
 */
#include "engine/cuda/kernels/vector.cuh"

namespace {

enum {
    V = 8,
    THREADS = 256,
    LANES = 32, /* runs side by side, at most */
    /* Blocks along the pixels, at most: of kernels that sum over blocks, of the others. Guesses. */
    SUM_BLOCKS = 256,
    MAP_BLOCKS = 1024
};

template <class T> using run = gpu_run<T, V>;

/* Pixels that a thread loads at a time; limited by registers. */
template <class T> constexpr int stats_lot = sizeof(T) == 4 ? 4 : 8;
template <class T> constexpr int activate_lot = 4;
template <class T> constexpr int grad_lot = sizeof(T) == 4 ? 2 : 4;
template <class T> constexpr int mask_lot = 2;

/* ---- the shape of a launch ---- */

struct shape {
    dim3 grid, block;
    size_t shared;
};

shape shape_of(const gpu_map &m, int lot, bool sums) {
    const int groups = m.channels / V, runs = (groups + LANES - 1) / LANES;
    const int lanes = (groups + runs - 1) / runs, rows = THREADS / lanes;
    const int64_t tile = (int64_t)rows * lot, tiles = (gpu_map_pixels(&m) + tile - 1) / tile;
    const int64_t most = sums ? SUM_BLOCKS : MAP_BLOCKS;
    shape s;
    s.grid = dim3((unsigned)(tiles < most ? tiles : most), (unsigned)runs);
    s.block = dim3((unsigned)lanes, (unsigned)rows);
    s.shared = sums ? sizeof(float) * 2 * V * (size_t)(lanes * rows) : 0;
    return s;
}

bool supports(const gpu_map &m) { return m.channels >= V && m.channels % V == 0; }

/* ---- channels and pixels of a thread ---- */

struct place {
    int first;           /* first channel */
    bool on;             /* false: past the last channel */
    int64_t pixel, step; /* first pixel; distance to the next lot */
    int rows;            /* distance between the pixels of a lot */
};

template <int LOT> __device__ __forceinline__ place my_place(int channels) {
    place p;
    p.first = (int)(blockIdx.y * blockDim.x + threadIdx.x) * V;
    p.on = p.first < channels;
    p.rows = (int)blockDim.y;
    p.pixel = (int64_t)blockIdx.x * (LOT * p.rows) + threadIdx.y;
    p.step = (int64_t)gridDim.x * (LOT * p.rows);
    return p;
}

/* Loads the pixels at + i * rows that exist, for i < LOT. */
template <int LOT, class T>
__device__ __forceinline__ void load_lot(run<T> lot[LOT], const T *data, int64_t pitch,
                                         const place &p, int64_t at, int64_t pixels) {
#pragma unroll
    for (int i = 0; i < LOT; i++)
        if (at + i * p.rows < pixels)
            lot[i] = gpu_load_run<V>(data + (at + i * p.rows) * pitch + p.first);
}

/* Adds the sums of the block's rows and writes them to partial[blockIdx.x][2][channels]. shared: 2
 * V floats per thread. */
__device__ __forceinline__ void store_partial(float *shared, const float s1[V], const float s2[V],
                                              float *partial, int channels) {
    const int width = (int)blockDim.x * V, rows = (int)blockDim.y;
    const int first = (int)blockIdx.y * width;
    float *mine = shared + (int)threadIdx.y * 2 * width + (int)threadIdx.x * V;
#pragma unroll
    for (int i = 0; i < V; i++) {
        mine[i] = s1[i];
        mine[width + i] = s2[i];
    }
    __syncthreads();
    const int thread = (int)(threadIdx.y * blockDim.x + threadIdx.x);
    for (int c = thread; c < 2 * width; c += (int)(blockDim.x * blockDim.y)) {
        float sum = 0;
        for (int r = 0; r < rows; r++)
            sum += shared[r * 2 * width + c];
        const int channel = first + (c < width ? c : c - width);
        if (channel < channels)
            partial[((size_t)blockIdx.x * 2 + (c >= width)) * (size_t)channels + (size_t)channel] =
                sum;
    }
}

/* Whether this block completes the sums of its channels, [first, first + count). */
struct last_of_run {
    int first, count, thread, threads;
    bool last;
};
__device__ __forceinline__ last_of_run last_here(unsigned *tickets, float *partial, int channels) {
    const int width = (int)blockDim.x * V;
    last_of_run l;
    l.first = (int)blockIdx.y * width;
    l.count = min(channels - l.first, width);
    l.thread = (int)(threadIdx.y * blockDim.x + threadIdx.x);
    l.threads = (int)(blockDim.x * blockDim.y);
    l.last = gpu_last_of_run(tickets, (int)blockIdx.y, (int)blockIdx.x, (int)gridDim.x, partial,
                             channels, l.first, l.count, l.thread, l.threads);
    return l;
}

/* ---- statistics ---- */

template <class T>
__global__ void __launch_bounds__(THREADS, 3)
    stats_kernel(const T *data, int64_t pitch, int channels, int64_t pixels, gpu_stats stats) {
    gpu_begin();
    CHEX_DYNAMIC_SHARED(shared);
    constexpr int LOT = stats_lot<T>;
    const place p = my_place<LOT>(channels);
    float sum[V] = {}, squares[V] = {};
    if (p.on)
        for (int64_t at = p.pixel; at < pixels; at += p.step) {
            run<T> lot[LOT] = {};
            load_lot<LOT, T>(lot, data, pitch, p, at, pixels);
#pragma unroll
            for (int i = 0; i < LOT; i++)
                if (at + i * p.rows < pixels) {
                    float x[V];
                    gpu_unpack_run(x, lot[i]);
#pragma unroll
                    for (int c = 0; c < V; c++) {
                        sum[c] += x[c];
                        squares[c] = __fmaf_rn(x[c], x[c], squares[c]);
                    }
                }
        }
    store_partial((float *)shared, sum, squares, stats.partial, channels);
    const last_of_run l = last_here(stats.ticket, stats.partial, channels);
    if (l.last)
        gpu_finish_stats(stats, channels, l.first, l.count, (int)gridDim.x, (double)pixels,
                         l.thread, l.threads);
}

/* ---- activation ---- */

/* The norm's coefficients of a thread's channels. Without a norm a = 1, b = -0: x keeps its bits,
 * also -0. */
struct scales {
    gpu_ab ab[V];
};
__device__ __forceinline__ scales scales_of(const gpu_norm &norm, const place &p) {
    scales s;
#pragma unroll
    for (int c = 0; c < V; c++)
        s.ab[c] = norm.mean && p.on ? gpu_scale(norm, p.first + c) : gpu_ab{1.0f, -0.0f};
    return s;
}

template <class T, class U>
__global__ void __launch_bounds__(THREADS, 3)
    activate_kernel(const T *in, int64_t in_pitch, gpu_norm norm, U *out, int64_t out_pitch,
                    int channels, int64_t pixels) {
    gpu_begin();
    constexpr int LOT = activate_lot<T>;
    const place p = my_place<LOT>(channels);
    if (!p.on)
        return;
    const scales s = scales_of(norm, p);
    const bool relu = norm.mean && norm.relu;
    for (int64_t at = p.pixel; at < pixels; at += p.step) {
        run<T> lot[LOT] = {};
        load_lot<LOT, T>(lot, in, in_pitch, p, at, pixels);
#pragma unroll
        for (int i = 0; i < LOT; i++)
            if (at + i * p.rows < pixels) {
                float x[V];
                gpu_unpack_run(x, lot[i]);
#pragma unroll
                for (int c = 0; c < V; c++) {
                    x[c] = gpu_normed(s.ab[c], x[c]);
                    x[c] = relu ? gpu_relu(x[c]) : x[c];
                }
                gpu_write_run<V>(out + (at + i * p.rows) * out_pitch + p.first, x);
            }
    }
}

/* ---- gradient with its deferred terms ---- */

template <class T, class U>
__global__ void __launch_bounds__(THREADS, 2)
    finish_grad_kernel(const T *g, int64_t g_pitch, const T *x, int64_t x_pitch, const float *bsum,
                       const float *csum, U *out, int64_t out_pitch, int channels, int64_t pixels) {
    gpu_begin();
    constexpr int LOT = grad_lot<T>;
    const place p = my_place<LOT>(channels);
    if (!p.on)
        return;
    float b[V], k[V];
#pragma unroll
    for (int c = 0; c < V; c++) {
        b[c] = bsum ? bsum[p.first + c] : 0.0f;
        k[c] = bsum ? csum[p.first + c] : 0.0f;
    }
    for (int64_t at = p.pixel; at < pixels; at += p.step) {
        run<T> g_lot[LOT] = {}, x_lot[LOT] = {};
        load_lot<LOT, T>(g_lot, g, g_pitch, p, at, pixels);
        if (bsum)
            load_lot<LOT, T>(x_lot, x, x_pitch, p, at, pixels);
#pragma unroll
        for (int i = 0; i < LOT; i++)
            if (at + i * p.rows < pixels) {
                float gv[V], xv[V];
                gpu_unpack_run(gv, g_lot[i]);
                if (bsum) {
                    gpu_unpack_run(xv, x_lot[i]);
#pragma unroll
                    for (int c = 0; c < V; c++)
                        gv[c] += __fmaf_rn(b[c], xv[c], k[c]);
                }
                gpu_write_run<V>(out + (at + i * p.rows) * out_pitch + p.first, gv);
            }
    }
}

/* ---- backward of norm and ReLU ---- */

/* Pointers and pitches of one launch. */
template <class D, class T> struct masked {
    const D *dv;
    const T *in;
    T *in_g;
    int64_t dv_pitch, in_pitch, in_g_pitch;
};

template <class D, class T>
__global__ void __launch_bounds__(THREADS, 2)
    mask_kernel(masked<D, T> m, gpu_norm norm, bool add, gpu_sums sums, int channels,
                int64_t pixels) {
    gpu_begin();
    CHEX_DYNAMIC_SHARED(shared);
    constexpr int LOT = mask_lot<T>;
    const place p = my_place<LOT>(channels);
    const scales s = scales_of(norm, p);
    const bool relu = norm.mean && norm.relu;
    float mean[V], s1[V] = {}, s2[V] = {};
#pragma unroll
    for (int c = 0; c < V; c++)
        mean[c] = norm.mean && p.on ? norm.mean[p.first + c] : 0.0f;
    if (p.on)
        for (int64_t at = p.pixel; at < pixels; at += p.step) {
            run<D> dv_lot[LOT] = {};
            run<T> x_lot[LOT] = {}, g_lot[LOT] = {};
            load_lot<LOT, D>(dv_lot, m.dv, m.dv_pitch, p, at, pixels);
            if (norm.mean)
                load_lot<LOT, T>(x_lot, m.in, m.in_pitch, p, at, pixels);
            if (add)
                load_lot<LOT, T>(g_lot, m.in_g, m.in_g_pitch, p, at, pixels);
#pragma unroll
            for (int i = 0; i < LOT; i++)
                if (at + i * p.rows < pixels) {
                    float du[V], x[V], g[V] = {};
                    gpu_unpack_run(du, dv_lot[i]);
                    if (norm.mean) {
                        gpu_unpack_run(x, x_lot[i]);
#pragma unroll
                        for (int c = 0; c < V; c++) {
                            const bool open = gpu_normed(s.ab[c], x[c]) > 0.0f;
                            du[c] = relu && !open ? 0.0f : du[c];
                            s1[c] += du[c];
                            s2[c] = __fmaf_rn(du[c], x[c] - mean[c], s2[c]);
                        }
                    }
                    if (add)
                        gpu_unpack_run(g, g_lot[i]);
#pragma unroll
                    for (int c = 0; c < V; c++)
                        g[c] = __fmaf_rn(s.ab[c].a, du[c], g[c]);
                    gpu_write_run<V>(m.in_g + (at + i * p.rows) * m.in_g_pitch + p.first, g);
                }
        }
    if (!sums.partial)
        return;
#pragma unroll
    for (int c = 0; c < V; c++)
        s2[c] *= p.on ? norm.inv[p.first + c] : 0.0f;
    store_partial((float *)shared, s1, s2, sums.partial, channels);
    const last_of_run l = last_here(sums.ticket, sums.partial, channels);
    if (l.last)
        gpu_finish_sums(sums, norm, channels, l.first, l.count, (int)gridDim.x, (double)pixels,
                        l.thread, l.threads);
}

/* ---- vectors of channels ---- */

__global__ void running_inv_kernel(const float *var, int channels, float eps, float *inv_out) {
    gpu_begin();
    const int c = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (c < channels)
        inv_out[c] = (float)(1.0 / sqrt((double)var[c] + (double)eps));
}

__global__ void widen_pair_kernel(const float *first, const float *second, int count, bool squared,
                                  double *out) {
    gpu_begin();
    const int c = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (c >= count)
        return;
    const double a = (double)first[c], b = (double)second[c];
    out[c] = a;
    out[count + c] = squared ? b + a * a : b;
}

__global__ void narrow_pair_kernel(const double *sums, int count, int ranks, float eps,
                                   float *first, float *second, float *inv) {
    gpu_begin();
    const int c = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (c >= count)
        return;
    const double a = sums[c] / ranks, b = sums[count + c] / ranks, var = b - a * a;
    const double moment = var < 0 ? 0 : var; /* NaN stays */
    first[c] = (float)a;
    second[c] = (float)(inv ? moment : b);
    if (inv)
        inv[c] = (float)(1.0 / sqrt(moment + (double)eps));
}

__global__ void report_kernel(const gpu_report_job *jobs, int images, float *vector) {
    gpu_begin();
    const gpu_report_job job = jobs[blockIdx.x];
    const double n = (double)images * (double)job.pixels;
    for (int c = (int)threadIdx.x; c < job.channels; c += (int)blockDim.x) {
        vector[job.mean_at + c] = job.mean[c];
        vector[job.var_at + c] = n > 1 ? (float)((double)job.var[c] * n / (n - 1)) : 0.0f;
    }
}

template <class S> S given(const S *s) { return s ? *s : S{}; }

/* Calls fn with T (the type of `type`) and the type of `other`, which is T or float. */
template <class F> cudaError_t with_pair(enum gpu_type type, enum gpu_type other, F fn) {
    return gpu_with_type(type, [&](auto t) -> cudaError_t {
        if (other == type)
            return fn(t, t);
        if (other == GPU_F32)
            return fn(t, float());
        return cudaErrorInvalidValue;
    });
}

} // namespace

extern "C" cudaError_t gpu_stats_of(const struct gpu_map *m, const struct gpu_stats *stats,
                                    cudaStream_t stream) {
    if (!supports(*m))
        return cudaErrorInvalidValue;
    return gpu_with_type(m->type, [&](auto t) {
        using T = decltype(t);
        const shape s = shape_of(*m, stats_lot<T>, true);
        return CHEX_LAUNCH((stats_kernel<T>), s.grid, s.block, s.shared, stream,
                           static_cast<const T *>(m->data), m->pitch, m->channels,
                           gpu_map_pixels(m), *stats);
    });
}

extern "C" cudaError_t gpu_activate(const struct gpu_map *in, const struct gpu_norm *norm,
                                    const struct gpu_map *out, cudaStream_t stream) {
    if (!supports(*in))
        return cudaErrorInvalidValue;
    return with_pair(in->type, out->type, [&](auto t, auto u) {
        using T = decltype(t);
        const shape s = shape_of(*in, activate_lot<T>, false);
        using U = decltype(u);
        return CHEX_LAUNCH((activate_kernel<T, U>), s.grid, s.block, s.shared, stream,
                           static_cast<const T *>(in->data), in->pitch, given(norm),
                           static_cast<U *>(out->data), out->pitch, in->channels,
                           gpu_map_pixels(in));
    });
}

extern "C" cudaError_t gpu_finish_grad(const struct gpu_deferred_grad *deferred_grad,
                                       const struct gpu_map *out, cudaStream_t stream) {
    const gpu_map &g = deferred_grad->g, &x = deferred_grad->x;
    if (!supports(g) || (deferred_grad->bsum && x.type != g.type))
        return cudaErrorInvalidValue;
    return with_pair(g.type, out->type, [&](auto t, auto u) {
        using T = decltype(t);
        const shape s = shape_of(g, grad_lot<T>, false);
        using U = decltype(u);
        return CHEX_LAUNCH((finish_grad_kernel<T, U>), s.grid, s.block, s.shared, stream,
                           static_cast<const T *>(g.data), g.pitch, static_cast<const T *>(x.data),
                           x.pitch, deferred_grad->bsum, deferred_grad->csum,
                           static_cast<U *>(out->data), out->pitch, g.channels, gpu_map_pixels(&g));
    });
}

extern "C" cudaError_t gpu_mask(const struct gpu_map *dv, const struct gpu_map *in,
                                const struct gpu_norm *norm, const struct gpu_map *in_g, bool add,
                                const struct gpu_sums *sums, cudaStream_t stream) {
    if (!supports(*dv) || in->type != in_g->type || (given(sums).partial && !given(norm).mean))
        return cudaErrorInvalidValue;
    return with_pair(in->type, dv->type, [&](auto t, auto d) {
        using T = decltype(t);
        const shape s = shape_of(*dv, mask_lot<T>, true);
        using D = decltype(d);
        const masked<D, T> m = {static_cast<const D *>(dv->data),
                                static_cast<const T *>(in->data),
                                static_cast<T *>(in_g->data),
                                dv->pitch,
                                in->pitch,
                                in_g->pitch};
        return CHEX_LAUNCH((mask_kernel<D, T>), s.grid, s.block, s.shared, stream, m, given(norm),
                           add, given(sums), dv->channels, gpu_map_pixels(dv));
    });
}

extern "C" cudaError_t gpu_running_inv(const float *var, int channels, float eps, float *inv_out,
                                       cudaStream_t stream) {
    return CHEX_LAUNCH((running_inv_kernel), dim3((unsigned)(channels + 127) / 128), dim3(128), 0,
                       stream, var, channels, eps, inv_out);
}

extern "C" cudaError_t gpu_widen_pair(const float *first, const float *second, int count,
                                      bool squared, double *out, cudaStream_t stream) {
    return CHEX_LAUNCH((widen_pair_kernel), dim3((unsigned)(count + 127) / 128), dim3(128), 0,
                       stream, first, second, count, squared, out);
}

extern "C" cudaError_t gpu_narrow_pair(const double *sums, int count, int ranks, float eps,
                                       float *first, float *second, float *inv,
                                       cudaStream_t stream) {
    return CHEX_LAUNCH((narrow_pair_kernel), dim3((unsigned)(count + 127) / 128), dim3(128), 0,
                       stream, sums, count, ranks, eps, first, second, inv);
}

extern "C" cudaError_t gpu_report(const struct gpu_report_job *jobs, int count, int images,
                                  float *vector, cudaStream_t stream) {
    return CHEX_LAUNCH((report_kernel), dim3((unsigned)count), dim3(128), 0, stream, jobs, images,
                       vector);
}
