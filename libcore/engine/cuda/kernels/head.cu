/* SPDX-License-Identifier: Apache-2.0
 *
 * The end of the network: global mean, linear layer, loss, and their backward. All arithmetic is
 * fp32. Only the input map and its gradient have the network's type.
 *
 * Shapes: pooled (n, channels), logits (n, classes), weight (classes, channels). The map uses the
 * layout of lanes.cuh.
 *
 * Order of sums. For a mean, 32 rows of threads each sum every 32nd pixel; then the rows are added
 * in order. Sums over images work the same way. One block computes the loss, because there are only
 * some thousands of values; it sums in double.
 */
#include "engine/cuda/kernels/lanes.cuh"

enum { HEAD_THREADS = 256, HEAD_WARPS = HEAD_THREADS / 32, LOSS_THREADS = 1024 };

/* ---- forward ---- */

/* grid (n, runs) */
template <class T>
__global__ void __launch_bounds__(LANE_THREADS)
    head_pool(gpu_map in, gpu_norm norm, float *pooled, unsigned pixels) {
    gpu_begin();
    __shared__ float parts[LANE_ROWS][LANE_RUN];
    const lane_place l = lane_here(in.channels, pixels);
    const lane_norm n = lane_norm_of(norm, l);
    const T *image = static_cast<const T *>(in.data) + (int64_t)blockIdx.x * pixels * in.pitch;
    const int row = (int)threadIdx.x / LANES, column = (int)threadIdx.x % LANES * LANE;
    float sum[LANE] = {};
    for (unsigned p = (unsigned)row; p < l.end; p += LANE_ROWS) {
        float x[LANE];
        gpu_read_run<LANE>(x, image + (int64_t)p * in.pitch + l.c);
        for (int i = 0; i < LANE; i++)
            sum[i] += lane_normed(n, i, x[i]);
    }
    for (int i = 0; i < LANE; i++)
        parts[row][column + i] = sum[i];
    __syncthreads();
    const int c = (int)threadIdx.x;
    if (c < LANE_RUN && l.first + c < in.channels) {
        float total = 0;
        for (int r = 0; r < LANE_ROWS; r++)
            total += parts[r][c];
        pooled[(size_t)blockIdx.x * (size_t)in.channels + (size_t)(l.first + c)] =
            __fdiv_rn(total, (float)pixels);
    }
}

/* grid (n); one warp per class */
static __global__ void __launch_bounds__(HEAD_THREADS)
    head_linear(const float *pooled, const float *weight, const float *bias, int channels,
                int classes, float *logits) {
    gpu_begin();
    const int lane = (int)threadIdx.x % 32;
    const float *x = pooled + (size_t)blockIdx.x * (size_t)channels;
    for (int k = (int)threadIdx.x / 32; k < classes; k += HEAD_WARPS) {
        const float *w = weight + (size_t)k * (size_t)channels;
        float sum = 0;
        for (int c = lane; c < channels; c += 32)
            sum = __fmaf_rn(x[c], w[c], sum);
        sum = gpu_warp_sum(sum);
        if (lane == 0)
            logits[(size_t)blockIdx.x * (size_t)classes + (size_t)k] = sum + bias[k];
    }
}

/* ---- loss (engine/loss.h): factors for P and N, and their values and slopes ---- */

struct logistic {
    float p, q, log_p, log_q; /* sigmoid, 1 - sigmoid; log_p = -log(p), log_q = -log(q) */
};

static __device__ __forceinline__ logistic logistic_of(float z) {
    const float small = expf(-fabsf(z)), rest = log1pf(small);
    const float large = __fdiv_rn(1.0f, 1.0f + small), other = __fdiv_rn(small, 1.0f + small);
    return {z >= 0 ? large : other, z <= 0 ? large : other, (z < 0 ? -z : 0.0f) + rest,
            (z > 0 ? z : 0.0f) + rest};
}

struct loss_part {
    float value, slope;
};

static __device__ __forceinline__ loss_part positive_part(const logistic &x, float gamma) {
    const float power = powf(x.q, gamma);
    return {power * x.log_p, -power * (gamma * x.p * x.log_p + x.q)};
}

static __device__ __forceinline__ loss_part negative_part(const logistic &x, float gamma,
                                                          float clip) {
    const float m = x.p - clip;
    if (m <= 0)
        return {0, 0};
    const float power = powf(m, gamma), log_rest = clip > 0 ? -log1pf(-m) : x.log_q;
    const float ratio = clip > 0 ? __fdiv_rn(x.q, x.q + clip) : 1.0f;
    return {power * log_rest, x.p * (__fdiv_rn(gamma * power, m) * x.q * log_rest + power * ratio)};
}

template <bool FOCUSED>
static __device__ __forceinline__ loss_part loss_of(const gpu_loss_terms &terms,
                                                    const gpu_loss_factors &f, float z) {
    const logistic x = logistic_of(z);
    loss_part pos = {x.log_p, -x.q}, neg = {x.log_q, x.p};
    if (FOCUSED) {
        pos = positive_part(x, terms.gamma_pos);
        neg = negative_part(x, terms.gamma_neg, terms.clip);
    }
    return {f.pos * pos.value + f.neg * neg.value, f.pos * pos.slope + f.neg * neg.slope};
}

/* one block */
template <bool FOCUSED>
static __global__ void __launch_bounds__(LOSS_THREADS)
    loss_mean(const float *logits, const int8_t *labels, int64_t count, int classes,
              gpu_loss_terms terms, const float *scale, double *loss_out, float *dlogits) {
    gpu_begin();
    __shared__ double parts[LOSS_THREADS];
    const float times = scale ? *scale : 1.0f;
    double sum = 0;
    for (int64_t i = (int64_t)threadIdx.x; i < count; i += LOSS_THREADS) {
        const int label = labels[i] > 1 ? 1 : labels[i];
        float d = 0;
        if (label >= -1) {
            const gpu_loss_factors f = terms.factors[(int)(i % classes) * GPU_LABELS + label + 1];
            if (f.pos > 0 || f.neg > 0) {
                const loss_part part = loss_of<FOCUSED>(terms, f, logits[i]);
                sum += (double)part.value;
                d = __fmul_rn(__fdiv_rn(part.slope, (float)count), times);
            }
        }
        dlogits[i] = d;
    }
    parts[threadIdx.x] = sum;
    for (unsigned by = LOSS_THREADS / 2; by > 0; by /= 2) {
        __syncthreads();
        if (threadIdx.x < by)
            parts[threadIdx.x] += parts[threadIdx.x + by];
    }
    if (threadIdx.x == 0)
        *loss_out = parts[0] / (double)count;
}

/* ---- backward ---- */

/* Sum over images of d[i * classes] * x[i * channels] (x NULL: of d). Each of 8 warps sums every
 * eighth image; then the 8 sums are added in order. `parts` is [8][32]; lanes are channels. */
static __device__ __forceinline__ float over_images(const float *d, const float *x, int n,
                                                    int classes, int channels, bool on,
                                                    float parts[HEAD_WARPS][32]) {
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    float sum = 0;
    if (on) {
#pragma unroll 8
        for (int i = warp; i < n; i += HEAD_WARPS) {
            const float g = d[(size_t)i * (size_t)classes];
            sum = x ? __fmaf_rn(g, x[(size_t)i * (size_t)channels], sum) : sum + g;
        }
    }
    parts[warp][lane] = sum;
    __syncthreads();
    float total = 0;
    for (int w = 0; w < HEAD_WARPS; w++)
        total += parts[w][lane];
    __syncthreads();
    return total;
}

/* grid (channels / 32, classes) */
static __global__ void __launch_bounds__(HEAD_THREADS)
    head_weight(const float *pooled, const float *dlogits, int n, int channels, int classes,
                float *dweight, float *dbias) {
    gpu_begin();
    __shared__ float parts[HEAD_WARPS][32];
    const int c = (int)blockIdx.x * 32 + (int)threadIdx.x % 32, k = (int)blockIdx.y;
    const bool on = c < channels;
    const float w = over_images(dlogits + k, pooled + c, n, classes, channels, on, parts);
    if (on && threadIdx.x < 32)
        dweight[(size_t)k * (size_t)channels + (size_t)c] = w;
    if (blockIdx.x > 0)
        return;
    const float b = over_images(dlogits + k, nullptr, n, classes, channels, true, parts);
    if (threadIdx.x == 0)
        dbias[k] = b;
}

/* dpooled / pixels: the gradient of every pixel of the image. grid (channels / 256, n) */
static __global__ void __launch_bounds__(HEAD_THREADS)
    head_pooled(const float *weight, const float *dlogits, int channels, int classes,
                unsigned pixels, float *dpooled) {
    gpu_begin();
    const int c = (int)(blockIdx.x * HEAD_THREADS + threadIdx.x);
    if (c >= channels)
        return;
    float sum = 0;
    for (int k = 0; k < classes; k++)
        sum = __fmaf_rn(dlogits[(size_t)blockIdx.y * (size_t)classes + (size_t)k],
                        weight[(size_t)k * (size_t)channels + (size_t)c], sum);
    dpooled[(size_t)blockIdx.y * (size_t)channels + (size_t)c] = __fdiv_rn(sum, (float)pixels);
}

template <class T>
__global__ void __launch_bounds__(LANE_THREADS, 2)
    head_map(gpu_map in, gpu_norm norm, const float *dpooled, gpu_map in_g, bool add, gpu_sums sums,
             unsigned pixels, unsigned image_pixels) {
    gpu_begin();
    const lane_place l = lane_here(in.channels, pixels);
    const lane_norm n = lane_norm_of(norm, l);
    lane_sums s = lane_sums_of(norm, l);
    for (unsigned p = l.start; p < l.end; p += l.step) {
        const lane_loads<T> loads = lane_load<T>(in, in_g, norm.mean != nullptr, add, p, l.c);
        float dv[LANE];
        gpu_read_run<LANE>(dv, dpooled + (size_t)(p / image_pixels) * (size_t)in.channels +
                                   (size_t)l.c);
        lane_backward<T>(dv, loads, n, in_g, norm.mean != nullptr, add, p, l.c, s);
    }
    lane_sums_finish(s, sums, norm, l, in.channels, pixels);
}

/* ---- launchers ---- */

cudaError_t gpu_head_forward(const struct gpu_map *in, const struct gpu_norm *norm,
                             const float *weight, const float *bias, int classes, float *pooled,
                             float *logits, cudaStream_t stream) {
    if (!lane_supports(in) || classes < 1)
        return cudaErrorInvalidValue;
    CHEX_GPU_TRY(gpu_with_type(in->type, [&](auto t) {
        return CHEX_LAUNCH(head_pool<decltype(t)>,
                           dim3((unsigned)in->n, (unsigned)lane_runs(in->channels)), LANE_THREADS,
                           0, stream, *in, lane_given(norm), pooled, (unsigned)(in->hw * in->hw));
    }));
    return CHEX_LAUNCH(head_linear, (unsigned)in->n, HEAD_THREADS, 0, stream, pooled, weight, bias,
                       in->channels, classes, logits);
}

cudaError_t gpu_loss(const float *logits, const int8_t *labels, int n, int classes,
                     const struct gpu_loss_terms *terms, const float *scale, double *loss_out,
                     float *dlogits, cudaStream_t stream) {
    return CHEX_LAUNCH((terms->focused ? loss_mean<true> : loss_mean<false>), 1, LOSS_THREADS, 0,
                       stream, logits, labels, (int64_t)n * (int64_t)classes, classes, *terms,
                       scale, loss_out, dlogits);
}

cudaError_t gpu_head_backward(const struct gpu_map *in, const struct gpu_norm *norm,
                              const float *weight, int classes, const float *pooled,
                              const float *dlogits, float *dpooled, float *dweight, float *dbias,
                              const struct gpu_map *in_g, bool add, const struct gpu_sums *sums,
                              cudaStream_t stream) {
    if (!lane_supports(in) || !lane_same(in, in_g) || in->n > 65535 || classes < 1 ||
        classes > 65535 || (uintptr_t)dpooled % 16)
        return cudaErrorInvalidValue;
    const unsigned channels = (unsigned)in->channels, area = (unsigned)(in->hw * in->hw);
    const int64_t pixels = gpu_map_pixels(in);
    CHEX_GPU_TRY(CHEX_LAUNCH(head_weight, dim3((channels + 31) / 32, (unsigned)classes),
                             HEAD_THREADS, 0, stream, pooled, dlogits, in->n, in->channels, classes,
                             dweight, dbias));
    CHEX_GPU_TRY(CHEX_LAUNCH(
        head_pooled, dim3((channels + HEAD_THREADS - 1) / HEAD_THREADS, (unsigned)in->n),
        HEAD_THREADS, 0, stream, weight, dlogits, in->channels, classes, area, dpooled));
    return gpu_with_type(in->type, [&](auto t) {
        return CHEX_LAUNCH(head_map<decltype(t)>, lane_grid(in->channels, pixels), LANE_THREADS, 0,
                           stream, *in, lane_given(norm), dpooled, *in_g, add, lane_given(sums),
                           (unsigned)pixels, area);
    });
}
