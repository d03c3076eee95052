/* SPDX-License-Identifier: Apache-2.0
 *
 * The optimiser step on the flat vectors, and the weight copies that kernels read.
 *
 * Numerics. The expressions are those of engine/update.c, operation by operation and without
 * contraction. So Adam, AdamW and SGD are bit-identical to the CPU. LARS computes its norms in fp32
 * within a block of 1024 threads and in double over blocks.
 *
 * Clipping by norm. Each of 256 blocks adds the squares of its share in double, in an order that
 * depends on the number of parameters only; one block adds the 256 sums in a tree. So the norm is
 * deterministic, and the CPU's up to the rounding of sums in double.
 *
 * Captured graphs. All scalars of a step are read from device memory. The launch arguments do not
 * change from step to step.
 *
 * Loss scale. Gradients of trained parameters are divided by it; batch statistics are not. If a
 * gradient or statistic is not finite, nothing is updated.
 *
 * Layout. A thread processes 4 elements of every vector, independent of parameter bounds. The
 * parameter is looked up only for LARS, for weight decay that leaves some parameters out, and for
 * learning rates of single parameters.
 * Copies are made from the master weights in tiles of 64 outputs by 64 inputs of one tap: one read,
 * and two writes that are both contiguous.
 */
#include "engine/cuda/kernels/vector.cuh"
#include "engine/engine.h"

enum {
    UPDATE_THREADS = 256,
    NORM_THREADS = 1024,
    CHECK_BLOCKS = 1024,
    TILE = 64,
    GROW_AFTER = 2000, /* good steps before the loss scale doubles */
};
static const float SCALE_MOST = 16777216.0f, SCALE_LEAST = 1.0f / 16777216.0f;

/* ---- loss scale ---- */

static __device__ __forceinline__ bool is_finite(float v) {
    return (__float_as_uint(v) & 0x7f800000u) != 0x7f800000u;
}

static __global__ void __launch_bounds__(UPDATE_THREADS)
    check_finite(const float *g, size_t count, struct gpu_loss_scale *to) {
    gpu_begin();
    const size_t step = (size_t)gridDim.x * UPDATE_THREADS;
    const size_t first = (size_t)blockIdx.x * UPDATE_THREADS + threadIdx.x;
    bool good = true;
    for (size_t i = first; i < count / 4; i += step) {
        const float4 v = reinterpret_cast<const float4 *>(g)[i];
        good = good && is_finite(v.x) && is_finite(v.y) && is_finite(v.z) && is_finite(v.w);
    }
    for (size_t i = count / 4 * 4 + first; i < count; i += step)
        good = good && is_finite(g[i]);
    if (!good)
        to->overflowed = 1; /* all threads write the same value */
}

static __global__ void adapt_scale(struct gpu_loss_scale *s) {
    gpu_begin();
    if (s->overflowed) {
        s->scale = max(s->scale * 0.5f, SCALE_LEAST);
        s->good_steps = 0;
        s->skipped++;
    } else if (++s->good_steps >= GROW_AFTER) {
        s->scale = min(s->scale * 2.0f, SCALE_MOST);
        s->good_steps = 0;
    }
}

/* ---- the step ---- */

static __device__ __forceinline__ bool is_skipped(const gpu_update &u) {
    return u.loss_scale && u.loss_scale->overflowed;
}

/* ---- clipping ---- */

/* The sum of parts[0, UPDATE_THREADS), in a tree, on thread 0; 0 on the others. */
static __device__ __forceinline__ double tree_sum(double *parts) {
    for (unsigned by = UPDATE_THREADS / 2; by > 0; by /= 2) {
        __syncthreads();
        if (threadIdx.x < by)
            parts[threadIdx.x] += parts[threadIdx.x + by];
    }
    return threadIdx.x == 0 ? parts[0] : 0.0;
}
static __global__ void __launch_bounds__(UPDATE_THREADS) clip_sum(gpu_update u) {
    gpu_begin();
    __shared__ double parts[UPDATE_THREADS];
    double sum = 0;
    for (size_t i = (size_t)blockIdx.x * UPDATE_THREADS + threadIdx.x; i < u.param_count;
         i += (size_t)GPU_CLIP_BLOCKS * UPDATE_THREADS)
        sum += (double)u.g[i] * (double)u.g[i];
    parts[threadIdx.x] = sum;
    sum = tree_sum(parts);
    if (threadIdx.x == 0)
        u.clip->squares[blockIdx.x] = sum;
}
/* One block. */
static __global__ void __launch_bounds__(UPDATE_THREADS) clip_factor(gpu_update u) {
    gpu_begin();
    static_assert((int)UPDATE_THREADS == (int)GPU_CLIP_BLOCKS, "one thread for each sum");
    __shared__ double parts[UPDATE_THREADS];
    parts[threadIdx.x] = u.clip->squares[threadIdx.x];
    const double sum = tree_sum(parts);
    if (threadIdx.x != 0 || is_skipped(u))
        return;
    const double scale = u.step->clip_scale / (u.loss_scale ? (double)u.loss_scale->scale : 1.0);
    const double norm = sqrt(sum) * scale, factor = u.step->clip_norm / (norm + 1e-6);
    u.clip->sum += norm;
    u.clip->largest = norm > u.clip->largest ? norm : u.clip->largest;
    u.clip->updates++;
    /* The product with grad_scale is rounded once, as on the CPU. */
    u.clip->grad_scale = factor < 1 ? (float)(u.step->clip_scale * factor) : u.step->grad_scale;
}

/* ---- elements ---- */

/* |w| and |g| of one parameter. */
static __global__ void __launch_bounds__(NORM_THREADS) norms_of(gpu_update u) {
    gpu_begin();
    __shared__ float parts[2][NORM_THREADS / 32];
    const gpu_param p = u.params[blockIdx.x];
    if (is_skipped(u) || u.step->optim != CHEX_LARS || !p.is_weight)
        return;
    const float *w = u.w + p.offset, *g = u.g + p.offset;
    float ww = 0, gg = 0;
    for (size_t i = threadIdx.x; i < p.count; i += NORM_THREADS) {
        ww = __fmaf_rn(w[i], w[i], ww);
        gg = __fmaf_rn(g[i], g[i], gg);
    }
    ww = gpu_warp_sum(ww);
    gg = gpu_warp_sum(gg);
    if (threadIdx.x % 32 == 0) {
        parts[0][threadIdx.x / 32] = ww;
        parts[1][threadIdx.x / 32] = gg;
    }
    __syncthreads();
    if (threadIdx.x < 2) {
        double sum = 0;
        for (int i = 0; i < NORM_THREADS / 32; i++)
            sum += (double)parts[threadIdx.x][i];
        u.norms[2 * blockIdx.x + threadIdx.x] = (float)sqrt(sum);
    }
}

/* Four elements of each vector as named members: arrays go to local memory on some targets. */
struct update_four {
    float4 w, m, v, g;
};
template <class F> static __device__ __forceinline__ void four_each(update_four &e, F fn) {
    fn(0, e.w.x, e.m.x, e.v.x, e.g.x);
    fn(1, e.w.y, e.m.y, e.v.y, e.g.y);
    fn(2, e.w.z, e.m.z, e.v.z, e.g.z);
    fn(3, e.w.w, e.m.w, e.v.w, e.g.w);
}

static __device__ __forceinline__ float4 four_load(const float *from, size_t at, size_t count) {
    if (at + 4 <= count)
        return *reinterpret_cast<const float4 *>(from + at);
    return make_float4(from[at], at + 1 < count ? from[at + 1] : 0.0f,
                       at + 2 < count ? from[at + 2] : 0.0f, 0.0f);
}
static __device__ __forceinline__ void four_store(float *to, float4 v, size_t at, size_t count) {
    if (at + 4 <= count) {
        *reinterpret_cast<float4 *>(to + at) = v;
        return;
    }
    to[at] = v.x;
    if (at + 1 < count)
        to[at + 1] = v.y;
    if (at + 2 < count)
        to[at + 2] = v.z;
}

/* The learning rate and what follows from it: rounded from double, as on the CPU. */
struct update_rates {
    float adam_step, adamw_shrink, lr;
    bool frozen;
};
static __device__ __forceinline__ update_rates rates_of(const gpu_update &u, const gpu_step &s,
                                                        int p) {
    if (!s.scaled)
        return {s.adam_step, s.adamw_shrink, s.lr, false};
    const double lr = s.lr64 * u.params[p].lr_scale;
    return {(float)(lr / s.adam_bias), (float)(1.0 - lr * s.decay64), (float)lr,
            !(u.params[p].lr_scale > 0)};
}

/* scale: factor of the gradient. */
static __device__ __forceinline__ void adam(const gpu_step &s, const update_rates &r, float scale,
                                            bool decays, float &w, float &m, float &v, float g) {
    const float decay = decays && s.optim == CHEX_ADAM ? s.weight_decay : 0.0f;
    const float shrink = decays && s.optim == CHEX_ADAMW ? r.adamw_shrink : 1.0f;
    const float d = __fadd_rn(__fmul_rn(g, scale), __fmul_rn(decay, w));
    m = __fadd_rn(__fmul_rn(s.beta1, m), __fmul_rn(s.one_minus_beta1, d));
    v = __fadd_rn(__fmul_rn(s.beta2, v), __fmul_rn(__fmul_rn(s.one_minus_beta2, d), d));
    const float bottom = __fadd_rn(__fmul_rn(__fsqrt_rn(v), s.adam_root), s.eps);
    w = __fsub_rn(__fmul_rn(shrink, w), __fdiv_rn(__fmul_rn(r.adam_step, m), bottom));
}
static __device__ __forceinline__ void sgd(const gpu_step &s, const update_rates &r, float scale,
                                           float decay, float &w, float &m, float g) {
    const float d = __fadd_rn(__fmul_rn(g, scale), __fmul_rn(decay, w));
    m = __fadd_rn(__fmul_rn(s.momentum, m), d);
    const float along = s.nesterov ? __fadd_rn(d, __fmul_rn(s.momentum, m)) : m;
    w = __fsub_rn(w, __fmul_rn(r.lr, along));
}

/* The LARS trust ratio of parameter p. */
static __device__ __forceinline__ float trust_of(const gpu_update &u, int p, float scale,
                                                 float decay) {
    if (!u.params[p].is_weight)
        return 1.0f;
    const float w = u.norms[2 * p], g = u.norms[2 * p + 1];
    const float bottom = g * scale + decay * w;
    return w > 0 && bottom > 0 ? 0.001f * w / bottom : 1.0f;
}
/* The parameter that contains element `at`. */
static __device__ __forceinline__ int param_at(const gpu_update &u, size_t at) {
    int low = 0, high = u.param_total - 1;
    while (low < high) {
        const int middle = (low + high + 1) / 2;
        if (u.params[middle].offset <= at)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}
static __device__ __forceinline__ void trained(update_four &e, const gpu_update &u,
                                               const gpu_step &s, size_t at) {
    const float whole = u.clip ? u.clip->grad_scale : s.grad_scale;
    const float scale = u.loss_scale ? __fdiv_rn(whole, u.loss_scale->scale) : whole;
    const bool lars = s.optim == CHEX_LARS, by_param = lars || !s.decays_all || s.scaled;
    int p = by_param ? param_at(u, at) : 0;
    float trust = lars ? trust_of(u, p, scale, s.weight_decay) : 1.0f;
    bool decays = s.decays_all || u.params[p].is_weight;
    update_rates r = rates_of(u, s, p);
    four_each(e, [&](int i, float &w, float &m, float &v, float g) {
        const size_t j = at + (size_t)i;
        if (j >= u.param_count)
            return;
        if (by_param && j >= u.params[p].offset + u.params[p].count) {
            p = param_at(u, j);
            trust = lars ? trust_of(u, p, scale, s.weight_decay) : 1.0f;
            decays = s.decays_all || u.params[p].is_weight;
            r = rates_of(u, s, p);
        }
        if (r.frozen)
            return;
        const float decay = decays ? s.weight_decay : 0.0f;
        switch ((enum chex_optim)s.optim) { /* the cases of gpu_has_optim */
        case CHEX_ADAM:
        case CHEX_ADAMW: adam(s, r, scale, decays, w, m, v, g); break;
        case CHEX_SGD:
        case CHEX_LARS: sgd(s, r, __fmul_rn(scale, trust), __fmul_rn(decay, trust), w, m, g); break;
        }
    });
}
static __device__ __forceinline__ void running(update_four &e, const gpu_update &u,
                                               const gpu_step &s, size_t at) {
    four_each(e, [&](int i, float &w, float &, float &, float g) {
        if (at + (size_t)i >= u.param_count)
            w = __fadd_rn(w, __fmul_rn(s.bn_momentum, __fsub_rn(__fmul_rn(g, s.grad_scale), w)));
    });
}

/* The moving average of four elements after one update of w. */
static __device__ __forceinline__ float ema_moved(float ema, float w, float rest) {
    return __fadd_rn(ema, __fmul_rn(rest, __fsub_rn(w, ema)));
}
static __device__ __forceinline__ void move_ema(const gpu_update &u, const float4 &w, float rest,
                                                size_t at, size_t count) {
    const float4 e = four_load(u.ema, at, count);
    four_store(u.ema,
               make_float4(ema_moved(e.x, w.x, rest), ema_moved(e.y, w.y, rest),
                           ema_moved(e.z, w.z, rest), ema_moved(e.w, w.w, rest)),
               at, count);
}

static __global__ void __launch_bounds__(UPDATE_THREADS) update_elements(gpu_update u) {
    gpu_begin();
    const size_t at = ((size_t)blockIdx.x * UPDATE_THREADS + threadIdx.x) * 4;
    const size_t count = u.state_count;
    if (at >= count || is_skipped(u))
        return;
    const gpu_step s = *u.step;
    const bool two = u.v != nullptr, trains = at < u.param_count;
    update_four e = {};
    e.w = four_load(u.w, at, count);
    e.g = four_load(u.g, at, count);
    if (trains) {
        e.m = four_load(u.m, at, count);
        if (two)
            e.v = four_load(u.v, at, count);
        trained(e, u, s, at);
        four_store(u.m, e.m, at, count);
        if (two)
            four_store(u.v, e.v, at, count);
    }
    if (at + 4 > u.param_count)
        running(e, u, s, at);
    four_store(u.w, e.w, at, count);
    if (u.ema)
        move_ema(u, e.w, s.ema_rest, at, count);
}

/* ---- copies ---- */

/* Copies tap `tap` of outputs [o0, o0 + 64) and inputs [i0, i0 + 64). A thread has eight reads in
 * flight. */
template <class T>
static __device__ __forceinline__ void pack_tile(const gpu_update &u, const gpu_param &p, int taps,
                                                 int tap, int o0, int i0, float (*tile)[TILE + 1]) {
    constexpr int ROWS = UPDATE_THREADS / TILE, LOT = 8;
    const int across = (int)threadIdx.x % TILE, down = (int)threadIdx.x / TILE;
    const int i = i0 + across;
#pragma unroll 1
    for (int r = down; r < TILE; r += LOT * ROWS) {
        const size_t row = (size_t)((o0 + r) * taps + tap);
        const float *from = u.w + p.offset + row * (size_t)p.in + (size_t)i;
        T *copy =
            static_cast<T *>(u.copies) + p.copy_offset + row * (size_t)p.in_padded + (size_t)i;
        float v[LOT];
#pragma unroll
        for (int k = 0; k < LOT; k++)
            v[k] = o0 + r + k * ROWS < p.out && i < p.in ? from[k * ROWS * taps * p.in] : 0.0f;
#pragma unroll
        for (int k = 0; k < LOT; k++) {
            tile[r + k * ROWS][across] = v[k];
            if (o0 + r + k * ROWS < p.out && i < p.in_padded)
                copy[k * ROWS * taps * p.in_padded] = gpu_round<T>(v[k]);
        }
    }
    __syncthreads();
    if (p.copy_t_offset != SIZE_MAX) {
        T *copy_t = static_cast<T *>(u.copies_t) + p.copy_t_offset;
        for (int r = down; r < TILE; r += ROWS) {
            const int in = i0 + r, o = o0 + across;
            const size_t row = (size_t)(in * taps + taps - 1 - tap);
            if (in < p.in_padded && o < p.out)
                copy_t[row * (size_t)p.out + (size_t)o] = gpu_round<T>(tile[across][r]);
        }
    }
    __syncthreads();
}

/* grid (blocks per parameter, parameters) */
template <class T> __global__ void __launch_bounds__(UPDATE_THREADS) pack(gpu_update u) {
    gpu_begin();
    __shared__ float tile[TILE][TILE + 1];
    const gpu_param p = u.params[blockIdx.y];
    if (p.out == 0)
        return;
    const int taps = p.kernel * p.kernel, down = (p.out + TILE - 1) / TILE;
    const int tiles = taps * down * ((p.in_padded + TILE - 1) / TILE);
    for (int t = (int)blockIdx.x; t < tiles; t += (int)gridDim.x) {
        const int tap = t % taps, rest = t / taps;
        pack_tile<T>(u, p, taps, tap, rest % down * TILE, rest / down * TILE, tile);
    }
}

/* ---- small ones ---- */

static __global__ void __launch_bounds__(UPDATE_THREADS)
    unpad(const float *padded, size_t rows, int in_padded, int in, float *out) {
    gpu_begin();
    const size_t step = (size_t)gridDim.x * UPDATE_THREADS;
    for (size_t i = (size_t)blockIdx.x * UPDATE_THREADS + threadIdx.x; i < rows * (size_t)in;
         i += step)
        out[i] = padded[i / (size_t)in * (size_t)in_padded + i % (size_t)in];
}

/* A thread converts 8 values: it reads 16 bytes and writes 32. Both arrays are aligned. */
template <class T>
static __global__ void __launch_bounds__(UPDATE_THREADS)
    widen(const T *from, size_t count, float *out) {
    gpu_begin();
    const size_t i = ((size_t)blockIdx.x * UPDATE_THREADS + threadIdx.x) * 8;
    if (i + 8 <= count) {
        float v[8];
        gpu_read_run<8>(v, from + i);
        gpu_write_run<8>(out + i, v);
        return;
    }
    for (size_t j = i; j < count; j++)
        out[j] = gpu_float(from[j]);
}

static __global__ void __launch_bounds__(UPDATE_THREADS)
    add_elements(float *to, const float *from, size_t count, size_t fours) {
    gpu_begin();
    const size_t step = (size_t)gridDim.x * UPDATE_THREADS;
    const size_t first = (size_t)blockIdx.x * UPDATE_THREADS + threadIdx.x;
    for (size_t i = first; i < fours; i += step) {
        float4 a = reinterpret_cast<float4 *>(to)[i];
        const float4 b = reinterpret_cast<const float4 *>(from)[i];
        a = make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
        reinterpret_cast<float4 *>(to)[i] = a;
    }
    for (size_t i = 4 * fours + first; i < count; i += step)
        to[i] += from[i];
}

/* ---- launchers ---- */

static unsigned blocks_for(size_t items, size_t most) {
    const size_t blocks = (items + UPDATE_THREADS - 1) / UPDATE_THREADS;
    return (unsigned)(blocks < 1 ? 1 : blocks < most ? blocks : most);
}
static bool is_aligned(const void *p) { return (uintptr_t)p % 16 == 0; }

bool gpu_has_optim(int optim) {
    switch ((enum chex_optim)optim) {
    case CHEX_ADAM:
    case CHEX_ADAMW:
    case CHEX_SGD:
    case CHEX_LARS: return true;
    }
    return false;
}

cudaError_t gpu_update_state(const struct gpu_update *u, cudaStream_t stream) {
    if (!is_aligned(u->w) || !is_aligned(u->ema) || !is_aligned(u->m) || !is_aligned(u->v) ||
        !is_aligned(u->g) || u->param_count > u->state_count || u->state_count >= (size_t)1 << 40)
        return cudaErrorInvalidValue;
    if (u->loss_scale) {
        CHEX_GPU_TRY(cudaMemsetAsync(&u->loss_scale->overflowed, 0,
                                     sizeof u->loss_scale->overflowed, stream));
        CHEX_GPU_TRY(CHEX_LAUNCH(check_finite, blocks_for(u->state_count / 4, CHECK_BLOCKS),
                                 UPDATE_THREADS, 0, stream, u->g, u->state_count, u->loss_scale));
    }
    if (u->clip) {
        CHEX_GPU_TRY(CHEX_LAUNCH(clip_sum, GPU_CLIP_BLOCKS, UPDATE_THREADS, 0, stream, *u));
        CHEX_GPU_TRY(CHEX_LAUNCH(clip_factor, 1, UPDATE_THREADS, 0, stream, *u));
    }
    if (u->norms && u->param_total)
        CHEX_GPU_TRY(CHEX_LAUNCH(norms_of, (unsigned)u->param_total, NORM_THREADS, 0, stream, *u));
    CHEX_GPU_TRY(CHEX_LAUNCH(update_elements, blocks_for((u->state_count + 3) / 4, SIZE_MAX),
                             UPDATE_THREADS, 0, stream, *u));
    if (!u->loss_scale)
        return cudaSuccess;
    return CHEX_LAUNCH(adapt_scale, 1, 1, 0, stream, u->loss_scale);
}

/* The number of blocks per parameter follows the mean size: most parameters are small, and a few
 * have most of the elements. */
cudaError_t gpu_pack(const struct gpu_update *u, cudaStream_t stream) {
    if (u->param_total < 1)
        return cudaSuccess;
    if (u->param_total > 65535)
        return cudaErrorInvalidValue;
    size_t blocks = u->param_count / (size_t)u->param_total / 1024;
    blocks = blocks < 4 ? 4 : blocks > 64 ? 64 : blocks;
    const dim3 grid((unsigned)blocks, (unsigned)u->param_total);
    return gpu_with_type(u->type, [&](auto t) {
        return CHEX_LAUNCH(pack<decltype(t)>, grid, UPDATE_THREADS, 0, stream, *u);
    });
}

cudaError_t gpu_unpad(const float *padded, size_t rows, int in_padded, int in, float *out,
                      cudaStream_t stream) {
    return CHEX_LAUNCH(unpad, blocks_for(rows * (size_t)in, 2048), UPDATE_THREADS, 0, stream,
                       padded, rows, in_padded, in, out);
}

cudaError_t gpu_widen(enum gpu_type type, const void *from, size_t count, float *out,
                      cudaStream_t stream) {
    const unsigned blocks = (unsigned)((count + 8 * UPDATE_THREADS - 1) / (8 * UPDATE_THREADS));
    return gpu_with_type(type, [&](auto t) {
        return CHEX_LAUNCH(widen<decltype(t)>, blocks, UPDATE_THREADS, 0, stream,
                           static_cast<const decltype(t) *>(from), count, out);
    });
}

int gpu_code_target(void) {
    cudaFuncAttributes of;
    return cudaFuncGetAttributes(&of, add_elements) == cudaSuccess ? of.ptxVersion : 0;
}

cudaError_t gpu_add(float *to, const float *from, size_t count, cudaStream_t stream) {
    const size_t fours = is_aligned(to) && is_aligned(from) ? count / 4 : 0;
    return CHEX_LAUNCH(add_elements, blocks_for(fours ? fours : count, 2048), UPDATE_THREADS, 0,
                       stream, to, from, count, fours);
}
