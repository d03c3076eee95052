/* SPDX-License-Identifier: Apache-2.0
 *
 * Maximum and average pooling of a normalised map, forward and backward: the windows of DenseNet
 * and ResNet, which are 3x3 maxima after a ReLU and 2x2 means.
 *
 * Layout: lanes.cuh. A thread of a forward kernel computes an output pixel. A thread of a backward
 * kernel computes input pixels: it gathers from all windows that contain them. Nothing is
 * scattered, so sums have a fixed order. Neighbours in x share reads in the L1 cache, neighbours in
 * y in the L2 cache.
 *
 * Numerics. Windows compare and add fp32 values of norm(in) that are not rounded. So the winner is
 * the largest value before rounding. The gradient with its deferred terms is not rounded either.
 * Stored values are rounded once; in_g += adds in fp32.
 */
#include "engine/cuda/kernels/lanes.cuh"

struct pool_pixel {
    int image, y, x;
};
static __device__ __forceinline__ pool_pixel pixel_of(unsigned p, int hw) {
    const unsigned row = p / (unsigned)hw, image = row / (unsigned)hw;
    return pool_pixel{(int)image, (int)(row - image * (unsigned)hw), (int)(p - row * (unsigned)hw)};
}
static __device__ __forceinline__ unsigned pixel_at(int image, int y, int x, int hw) {
    return ((unsigned)image * (unsigned)hw + (unsigned)y) * (unsigned)hw + (unsigned)x;
}

/* ---- maximum ---- */

struct pool_best {
    float v[LANE];
    int at[LANE];
};

/* The maximum of the 3x3 window at (y, x) after a ReLU. Because of the ReLU the search starts with
 * value 0 at the first tap inside the map.
 *   - No branches: a tap outside the map reads the nearest pixel of the window, with that pixel's
 *     tap number. The second read of a pixel never wins.
 *   - A value wins if the bits of the maximum change. gpu_greater makes this exact: it always
 *     returns the same NaN, and keeps 0 against -0. */
template <class T>
static __device__ __forceinline__ pool_best maximum_3x3(const lane_norm &n, const gpu_map &in,
                                                        int image, int y, int x, int c) {
    pool_best best;
    int column[3];
    for (int k = 0; k < 3; k++)
        column[k] = min(max(x + k, 0), in.hw - 1);
    for (int i = 0; i < LANE; i++) {
        best.v[i] = 0.0f;
        best.at[i] = max(-y, 0) * 3 + column[0] - x;
    }
#pragma unroll
    for (int ky = 0; ky < 3; ky++) {
        const int row = min(max(y + ky, 0), in.hw - 1);
        lane_run<T> raw[3];
        for (int k = 0; k < 3; k++)
            raw[k] =
                gpu_load_run<LANE>(lane_at<const T>(in, pixel_at(image, row, column[k], in.hw), c));
        for (int k = 0; k < 3; k++) {
            const int tap = (row - y) * 3 + column[k] - x;
            float v[LANE];
            gpu_unpack_run(v, raw[k]);
            for (int i = 0; i < LANE; i++) {
                const float more = gpu_greater(best.v[i], gpu_normed(n.s[i], v[i]));
                const bool wins = __float_as_int(more) != __float_as_int(best.v[i]);
                best.at[i] = wins ? tap : best.at[i];
                best.v[i] = more;
            }
        }
    }
    return best;
}

static __device__ __forceinline__ void put_arg(uint8_t *arg, const int at[LANE]) {
    uint2 bytes = make_uint2(0, 0);
    for (int i = 0; i < 4; i++) {
        bytes.x |= (uint32_t)at[i] << 8 * i;
        bytes.y |= (uint32_t)at[4 + i] << 8 * i;
    }
    *reinterpret_cast<uint2 *>(arg) = bytes;
}

template <class T>
__global__ void __launch_bounds__(LANE_THREADS, 2)
    maxpool_forward(gpu_map in, gpu_norm norm, gpu_window win, gpu_map out, uint8_t *arg,
                    gpu_stats stats, unsigned pixels) {
    gpu_begin();
    const lane_place l = lane_here(out.channels, pixels);
    const lane_norm n = lane_norm_of(norm, l);
    lane_stats s = {};
    for (unsigned p = l.start; p < l.end; p += l.step) {
        const pool_pixel o = pixel_of(p, out.hw);
        const int y = o.y * win.stride - win.pad, x = o.x * win.stride - win.pad;
        pool_best best = maximum_3x3<T>(n, in, o.image, y, x, l.c);
        const lane_run<T> raw = gpu_pack_run<T, LANE>(best.v);
        gpu_store_run(lane_at<T>(out, p, l.c), raw);
        if (arg)
            put_arg(arg + (int64_t)p * out.channels + l.c, best.at);
        gpu_unpack_run(best.v, raw);
        lane_stats_add(s, best.v);
    }
    lane_stats_finish(s, stats, l, out.channels, pixels);
}

/* ---- maximum of 3x3 windows with stride 2 and padding 1, backward ----
 * The window at (y, x) covers rows 2 y - 1 to 2 y + 1. A thread computes the four pixels from (2 y,
 * 2 x) on. Row 2 y is only in window y; row 2 y + 1 is in windows y and y + 1. Columns likewise. */

/* Whether channel i of 8 has its maximum at the tap: its byte in `won` (arg ^ tap) is 0. */
static __device__ __forceinline__ bool has_won(uint2 won, int i) {
    return ((i < 4 ? won.x : won.y) & 0xffu << 8 * (i % 4)) == 0;
}

/* The gradient and the winning taps of a window. */
template <class T> struct pool_window {
    lane_loads<T> deferred_grad; /* x and g of the output */
    uint2 at;
};
/* Loads the window (y + down, x + right). If there is no such window, it loads the window (y, x)
 * with invalid winning taps. So loads need no branch and overlap. */
template <class T>
static __device__ __forceinline__ pool_window<T>
load_window(const gpu_deferred_grad &out, bool deferred_grad, const uint8_t *arg,
            const pool_pixel &o, int down, int right, int c) {
    const bool there = o.y + down < out.g.hw && o.x + right < out.g.hw;
    const unsigned q =
        pixel_at(o.image, there ? o.y + down : o.y, there ? o.x + right : o.x, out.g.hw);
    pool_window<T> w;
    w.at = *reinterpret_cast<const uint2 *>(arg + (int64_t)q * out.g.channels + c);
    w.deferred_grad = lane_load<T>(out.x, out.g, deferred_grad, true, q, c);
    w.at = there ? w.at : make_uint2(~0u, ~0u);
    return w;
}

/* Adds a window's gradient to those of the four pixels that it covers, dv[2 * row + column]. */
template <class T>
static __device__ __forceinline__ void add_window(const lane_deferred_grad &deferred_grad,
                                                  const pool_window<T> &w, int down, int right,
                                                  float dv[4][LANE]) {
    float d[LANE];
    lane_finish_grad<T>(deferred_grad, w.deferred_grad, d);
    for (int row = down; row < 2; row++)
        for (int column = right; column < 2; column++) {
            const uint32_t tap =
                (uint32_t)((row + 1 - 2 * down) * 3 + column + 1 - 2 * right) * 0x01010101u;
            const uint2 won = make_uint2(w.at.x ^ tap, w.at.y ^ tap);
            for (int i = 0; i < LANE; i++)
                if (has_won(won, i))
                    dv[2 * row + column][i] += d[i];
        }
}

/* windows: number of output pixels; pixels: number of input pixels. */
template <class T>
__global__ void __launch_bounds__(LANE_THREADS, sizeof(T) == 2 ? 2 : 1)
    maxpool_backward(gpu_deferred_grad out, const uint8_t *arg, gpu_map in, gpu_norm norm,
                     gpu_map in_g, bool add, gpu_sums sums, unsigned windows, unsigned pixels) {
    gpu_begin();
    const lane_place l = lane_here(in.channels, windows);
    const lane_norm n = lane_norm_of(norm, l);
    const lane_deferred_grad deferred_grad = lane_deferred_grad_of(out, l);
    const bool normed = norm.mean != nullptr;
    lane_sums s = lane_sums_of(norm, l);
    for (unsigned p = l.start; p < l.end; p += l.step) {
        const pool_pixel o = pixel_of(p, out.g.hw);
        float dv[4][LANE] = {};
        /* The pixels of the first row are complete after the first two windows. */
#pragma unroll
        for (int row = 0; row < 2; row++) {
            pool_window<T> w[2];
            lane_loads<T> loads[2];
            for (int k = 0; k < 2; k++)
                w[k] = load_window<T>(out, deferred_grad.more, arg, o, row, k, l.c);
            const int y = 2 * o.y + row;
            const unsigned q = pixel_at(o.image, min(y, in.hw - 1), 2 * o.x, in.hw);
            const bool two = 2 * o.x + 1 < in.hw;
            for (int k = 0; k < 2; k++)
                loads[k] = lane_load<T>(in, in_g, normed, false, k && two ? q + 1 : q, l.c);
            for (int k = 0; k < 2; k++)
                add_window<T>(deferred_grad, w[k], row, k, dv);
            for (int k = 0; k < 2; k++)
                if (y < in.hw && (k == 0 || two)) {
                    if (add) /* rare, so the load is not issued early */
                        loads[k].g = gpu_load_run<LANE>(lane_at<const T>(in_g, q + k, l.c));
                    lane_backward<T>(dv[2 * row + k], loads[k], n, in_g, normed, add, q + k, l.c,
                                     s);
                }
        }
    }
    lane_sums_finish(s, sums, norm, l, in.channels, pixels);
}

/* ---- average ---- */

enum { MEAN_SIDE = 2 }; /* of a window */

template <class T>
__global__ void __launch_bounds__(LANE_THREADS, sizeof(T) == 2 ? 3 : 2)
    avgpool_forward(gpu_map in, gpu_norm norm, gpu_map out, gpu_stats stats, unsigned pixels) {
    gpu_begin();
    const lane_place l = lane_here(out.channels, pixels);
    const lane_norm n = lane_norm_of(norm, l);
    lane_stats s = {};
    for (unsigned p = l.start; p < l.end; p += l.step) {
        const pool_pixel o = pixel_of(p, out.hw);
        float sum[LANE] = {};
        for (int ky = 0; ky < MEAN_SIDE; ky++)
            for (int kx = 0; kx < MEAN_SIDE; kx++) {
                float v[LANE];
                const unsigned q =
                    pixel_at(o.image, o.y * MEAN_SIDE + ky, o.x * MEAN_SIDE + kx, in.hw);
                gpu_read_run<LANE>(v, lane_at<const T>(in, q, l.c));
                for (int i = 0; i < LANE; i++)
                    sum[i] += lane_normed(n, i, v[i]);
            }
        for (int i = 0; i < LANE; i++)
            sum[i] = sum[i] / (float)(MEAN_SIDE * MEAN_SIDE);
        const lane_run<T> raw = gpu_pack_run<T, LANE>(sum);
        gpu_store_run(lane_at<T>(out, p, l.c), raw);
        gpu_unpack_run(sum, raw);
        lane_stats_add(s, sum);
    }
    lane_stats_finish(s, stats, l, out.channels, pixels);
}

/* Applies dv to all existing pixels of the K x K square at (y, x); their loads overlap. */
template <class T, int K>
static __device__ __forceinline__ void
back_square(const float dv[LANE], const gpu_map &in, const lane_norm &n, const gpu_map &in_g,
            bool normed, bool add, int image, int y, int x, int c, lane_sums &s) {
    lane_loads<T> loads[K * K];
#pragma unroll
    for (int k = 0; k < K * K; k++)
        loads[k] = lane_load<T>(
            in, in_g, normed, add,
            pixel_at(image, min(y + k / K, in.hw - 1), min(x + k % K, in.hw - 1), in.hw), c);
#pragma unroll
    for (int k = 0; k < K * K; k++)
        if (y + k / K < in.hw && x + k % K < in.hw)
            lane_backward<T>(dv, loads[k], n, in_g, normed, add,
                             pixel_at(image, y + k / K, x + k % K, in.hw), c, s);
}

/* A thread computes the input pixels of one window. windows: number of windows, including partial
 * ones at the map's edge; pixels: number of input pixels. */
template <class T>
__global__ void __launch_bounds__(LANE_THREADS, 2)
    avgpool_backward(gpu_deferred_grad out, gpu_map in, gpu_norm norm, gpu_map in_g, bool add,
                     gpu_sums sums, unsigned windows, unsigned pixels) {
    gpu_begin();
    const lane_place l = lane_here(in.channels, windows);
    const lane_norm n = lane_norm_of(norm, l);
    const lane_deferred_grad deferred_grad = lane_deferred_grad_of(out, l);
    const int across = (in.hw + MEAN_SIDE - 1) / MEAN_SIDE;
    constexpr int SIDE = sizeof(T) == 2 ? MEAN_SIDE : 1;
    const bool normed = norm.mean != nullptr;
    lane_sums s = lane_sums_of(norm, l);
    for (unsigned p = l.start; p < l.end; p += l.step) {
        const pool_pixel o = pixel_of(p, across);
        float dv[LANE] = {};
        if (o.y < out.g.hw && o.x < out.g.hw) {
            lane_read_grad<T>(deferred_grad, out, pixel_at(o.image, o.y, o.x, out.g.hw), l.c, dv);
            for (int i = 0; i < LANE; i++)
                dv[i] = dv[i] / (float)(MEAN_SIDE * MEAN_SIDE);
        }
        for (int y = o.y * MEAN_SIDE; y < (o.y + 1) * MEAN_SIDE; y += SIDE)
            for (int x = o.x * MEAN_SIDE; x < (o.x + 1) * MEAN_SIDE; x += SIDE)
                back_square<T, SIDE>(dv, in, n, in_g, normed, add, o.image, y, x, l.c, s);
    }
    lane_sums_finish(s, sums, norm, l, in.channels, pixels);
}

/* ---- launchers ---- */

cudaError_t gpu_maxpool_forward(const struct gpu_map *in, const struct gpu_norm *norm,
                                struct gpu_window window, const struct gpu_map *out, uint8_t *arg,
                                const struct gpu_stats *stats, cudaStream_t stream) {
    const int64_t pixels = gpu_map_pixels(out);
    /* Every window must contain a pixel. */
    const bool fits = window.kernel == 3 && window.stride > 0 && window.pad >= 0 &&
                      window.pad < 3 && out->hw > 0 &&
                      (out->hw - 1) * window.stride - window.pad < in->hw;
    if (!fits || !norm || !norm->mean || !norm->relu || !lane_supports(in) || !lane_same(in, out))
        return cudaErrorInvalidValue;
    return gpu_with_type(in->type, [&](auto t) {
        return CHEX_LAUNCH(maxpool_forward<decltype(t)>, lane_grid(out->channels, pixels),
                           LANE_THREADS, 0, stream, *in, *norm, window, *out, arg,
                           lane_given(stats), (unsigned)pixels);
    });
}

cudaError_t gpu_maxpool_backward(const struct gpu_deferred_grad *out, const uint8_t *arg,
                                 struct gpu_window window, const struct gpu_map *in,
                                 const struct gpu_norm *norm, const struct gpu_map *in_g, bool add,
                                 const struct gpu_sums *sums, cudaStream_t stream) {
    const int64_t windows = gpu_map_pixels(&out->g);
    if (window.kernel != 3 || window.stride != 2 || window.pad != 1 ||
        out->g.hw != (in->hw + 1) / 2 || !lane_supports(in) || !lane_same(in, in_g) ||
        !lane_same(in, &out->g))
        return cudaErrorInvalidValue;
    return gpu_with_type(in->type, [&](auto t) {
        return CHEX_LAUNCH(maxpool_backward<decltype(t)>, lane_grid(in->channels, windows),
                           LANE_THREADS, 0, stream, *out, arg, *in, lane_given(norm), *in_g, add,
                           lane_given(sums), (unsigned)windows, (unsigned)gpu_map_pixels(in));
    });
}

cudaError_t gpu_avgpool_forward(const struct gpu_map *in, const struct gpu_norm *norm, int kernel,
                                const struct gpu_map *out, const struct gpu_stats *stats,
                                cudaStream_t stream) {
    const int64_t pixels = gpu_map_pixels(out);
    if (kernel != MEAN_SIDE || out->hw < 1 || out->hw > in->hw / MEAN_SIDE || !lane_supports(in) ||
        !lane_same(in, out))
        return cudaErrorInvalidValue;
    return gpu_with_type(in->type, [&](auto t) {
        return CHEX_LAUNCH(avgpool_forward<decltype(t)>, lane_grid(out->channels, pixels),
                           LANE_THREADS, 0, stream, *in, lane_given(norm), *out, lane_given(stats),
                           (unsigned)pixels);
    });
}

cudaError_t gpu_avgpool_backward(const struct gpu_deferred_grad *out, int kernel,
                                 const struct gpu_map *in, const struct gpu_norm *norm,
                                 const struct gpu_map *in_g, bool add, const struct gpu_sums *sums,
                                 cudaStream_t stream) {
    const int64_t across = (in->hw + MEAN_SIDE - 1) / MEAN_SIDE;
    const int64_t windows = in->n * across * across;
    if (kernel != MEAN_SIDE || !lane_supports(in) || !lane_same(in, in_g) ||
        !lane_same(in, &out->g))
        return cudaErrorInvalidValue;
    return gpu_with_type(in->type, [&](auto t) {
        return CHEX_LAUNCH(avgpool_backward<decltype(t)>, lane_grid(in->channels, windows),
                           LANE_THREADS, 0, stream, *out, *in, lane_given(norm), *in_g, add,
                           lane_given(sums), (unsigned)windows, (unsigned)gpu_map_pixels(in));
    });
}
