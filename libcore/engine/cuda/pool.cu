/* SPDX-License-Identifier: Apache-2.0
 *
 * Maximum and average pooling of a normalised map.
 *
 * Layout: lanes.cuh; a thread of a forward kernel has a pixel of the output, of a backward kernel
 * one of the input, which gathers from the windows that hold it: nothing is scattered, so sums have
 * one order. Neighbours in x share what they read in the first cache, neighbours in y in the
 * second.
 *
 * Numerics: windows compare and add up fp32 values of norm(in), which are not rounded on the way;
 * the winner is the largest value, not the first of those that round to it. The taken gradient is
 * not rounded either. Stored values are rounded once; in_g += adds in fp32.
 */
#include "engine/cuda/lanes.cuh"

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

/* Tap `tap` of the window: a larger value wins, and the first NaN. */
static __device__ __forceinline__ void best_of(pool_best &best, const lane_norm &n,
                                               const float x[LANE], int tap) {
    for (int i = 0; i < LANE; i++) {
        const float y = lane_normed(n, i, x[i]);
        const bool wins = y > best.v[i] || (y != y && best.v[i] == best.v[i]);
        best.v[i] = wins ? y : best.v[i];
        best.at[i] = wins ? tap : best.at[i];
    }
}

/* One row of K taps. Loads outside the map go to its edge and are not looked at, so none waits for
 * a branch. */
template <class T, int K>
static __device__ __forceinline__ void best_of_row(pool_best &best, const lane_norm &n,
                                                   const gpu_map &in, int image, int y, int x,
                                                   int tap, int c) {
    lane_run<T> raw[K];
    for (int k = 0; k < K; k++)
        raw[k] = gpu_load_run<LANE>(
            lane_at<const T>(in, pixel_at(image, y, min(max(x + k, 0), in.hw - 1), in.hw), c));
    for (int k = 0; k < K; k++) {
        float v[LANE];
        gpu_unpack_run(v, raw[k]);
        if (x + k >= 0 && x + k < in.hw)
            best_of(best, n, v, tap + k);
    }
}

static __device__ __forceinline__ void put_arg(uint8_t *arg, const int at[LANE]) {
    uint2 bytes = make_uint2(0, 0);
    for (int i = 0; i < 4; i++) {
        bytes.x |= (uint32_t)at[i] << 8 * i;
        bytes.y |= (uint32_t)at[4 + i] << 8 * i;
    }
    *reinterpret_cast<uint2 *>(arg) = bytes;
}

/* K: the kernel, or 0 for any. */
template <class T, int K>
__global__ void __launch_bounds__(LANE_THREADS, sizeof(T) == 2 ? 3 : 2)
    maxpool_forward(gpu_map in, gpu_norm norm, gpu_window win, gpu_map out, uint8_t *arg,
                    gpu_stats stats, unsigned pixels) {
    const lane_place l = lane_here(out.channels, pixels);
    const lane_norm n = lane_norm_of(norm, l);
    const int kernel = K ? K : win.kernel;
    lane_stats s = {};
    for (unsigned p = l.start; p < l.end; p += l.step) {
        const pool_pixel o = pixel_of(p, out.hw);
        const int y = o.y * win.stride - win.pad, x = o.x * win.stride - win.pad;
        pool_best best;
        for (int i = 0; i < LANE; i++) {
            best.v[i] = -INFINITY;
            best.at[i] = max(-y, 0) * kernel + max(-x, 0); /* the first inside the map */
        }
        for (int ky = 0; ky < kernel; ky++) {
            if (y + ky < 0 || y + ky >= in.hw)
                continue;
            if (K) {
                best_of_row<T, K ? K : 1>(best, n, in, o.image, y + ky, x, ky * kernel, l.c);
            } else {
                for (int kx = 0; kx < kernel; kx++)
                    best_of_row<T, 1>(best, n, in, o.image, y + ky, x + kx, ky * kernel + kx, l.c);
            }
        }
        const lane_run<T> raw = gpu_pack_run<T, LANE>(best.v);
        gpu_store_run(lane_at<T>(out, p, l.c), raw);
        if (arg)
            put_arg(arg + (int64_t)p * out.channels + l.c, best.at);
        gpu_unpack_run(best.v, raw);
        lane_stats_add(s, best.v);
    }
    lane_stats_finish(s, stats, l, out.channels, pixels);
}

/* Outputs whose window holds input coordinate i: [*first, *end). */
static __device__ __forceinline__ void windows_of(int i, int kernel, int stride, int pad, int size,
                                                  int *first, int *end) {
    const int t = i + pad;
    *first = t < kernel ? 0 : (t - kernel) / stride + 1;
    *end = min(t / stride + 1, size);
}

/* Adds the gradient of output pixel q to those channels that won it with `tap`. */
template <class T>
static __device__ __forceinline__ void add_won(const lane_taken &taken, const gpu_taken &out,
                                               const uint8_t *arg, unsigned q, int c, int tap,
                                               float dv[LANE]) {
    const uint2 bytes = *reinterpret_cast<const uint2 *>(arg + (int64_t)q * out.g.channels + c);
    float d[LANE];
    lane_take<T>(taken, out, q, c, d);
    for (int i = 0; i < LANE; i++) {
        const int at = (int)((i < 4 ? bytes.x : bytes.y) >> 8 * (i % 4) & 255u);
        dv[i] += at == tap ? d[i] : 0.0f;
    }
}

/* K, S: kernel and stride, or 0 for any. */
template <class T, int K, int S>
__global__ void __launch_bounds__(LANE_THREADS, 2)
    maxpool_backward(gpu_taken out, const uint8_t *arg, gpu_window win, gpu_map in, gpu_norm norm,
                     gpu_map in_g, bool add, gpu_sums sums, unsigned pixels) {
    const lane_place l = lane_here(in.channels, pixels);
    const lane_norm n = lane_norm_of(norm, l);
    const lane_taken taken = lane_taken_of(out, l);
    const int kernel = K ? K : win.kernel, stride = S ? S : win.stride;
    lane_sums s = lane_sums_of(norm, l);
    for (unsigned p = l.start; p < l.end; p += l.step) {
        const pool_pixel i = pixel_of(p, in.hw);
        int y0, y1, x0, x1;
        windows_of(i.y, kernel, stride, win.pad, out.g.hw, &y0, &y1);
        windows_of(i.x, kernel, stride, win.pad, out.g.hw, &x0, &x1);
        float dv[LANE] = {};
        for (int y = y0; y < y1; y++)
            for (int x = x0; x < x1; x++)
                add_won<T>(taken, out, arg, pixel_at(i.image, y, x, out.g.hw), l.c,
                           (i.y + win.pad - y * stride) * kernel + i.x + win.pad - x * stride, dv);
        lane_backward<T>(dv, in, n, in_g, add, norm.mean != nullptr, p, l.c, s);
    }
    lane_sums_finish(s, sums, norm, l, in.channels, pixels);
}

/* ---- average ---- */

/* K: the kernel, or 0 for any. */
template <class T, int K>
__global__ void __launch_bounds__(LANE_THREADS, sizeof(T) == 2 ? 3 : 2)
    avgpool_forward(gpu_map in, gpu_norm norm, int any_kernel, gpu_map out, gpu_stats stats,
                    unsigned pixels) {
    const lane_place l = lane_here(out.channels, pixels);
    const lane_norm n = lane_norm_of(norm, l);
    const int kernel = K ? K : any_kernel;
    lane_stats s = {};
    for (unsigned p = l.start; p < l.end; p += l.step) {
        const pool_pixel o = pixel_of(p, out.hw);
        float sum[LANE] = {};
        for (int ky = 0; ky < kernel; ky++)
            for (int kx = 0; kx < kernel; kx++) {
                float v[LANE];
                const unsigned q = pixel_at(o.image, o.y * kernel + ky, o.x * kernel + kx, in.hw);
                gpu_read_run<LANE>(v, lane_at<const T>(in, q, l.c));
                for (int i = 0; i < LANE; i++)
                    sum[i] += lane_normed(n, i, v[i]);
            }
        for (int i = 0; i < LANE; i++)
            sum[i] = __fdiv_rn(sum[i], (float)(kernel * kernel));
        const lane_run<T> raw = gpu_pack_run<T, LANE>(sum);
        gpu_store_run(lane_at<T>(out, p, l.c), raw);
        gpu_unpack_run(sum, raw);
        lane_stats_add(s, sum);
    }
    lane_stats_finish(s, stats, l, out.channels, pixels);
}

template <class T, int K>
__global__ void __launch_bounds__(LANE_THREADS, 2)
    avgpool_backward(gpu_taken out, int any_kernel, gpu_map in, gpu_norm norm, gpu_map in_g,
                     bool add, gpu_sums sums, unsigned pixels) {
    const lane_place l = lane_here(in.channels, pixels);
    const lane_norm n = lane_norm_of(norm, l);
    const lane_taken taken = lane_taken_of(out, l);
    const int kernel = K ? K : any_kernel;
    lane_sums s = lane_sums_of(norm, l);
    for (unsigned p = l.start; p < l.end; p += l.step) {
        const pool_pixel i = pixel_of(p, in.hw);
        const int y = i.y / kernel, x = i.x / kernel;
        float dv[LANE] = {};
        if (y < out.g.hw && x < out.g.hw) {
            lane_take<T>(taken, out, pixel_at(i.image, y, x, out.g.hw), l.c, dv);
            for (int j = 0; j < LANE; j++)
                dv[j] = __fdiv_rn(dv[j], (float)(kernel * kernel));
        }
        lane_backward<T>(dv, in, n, in_g, add, norm.mean != nullptr, p, l.c, s);
    }
    lane_sums_finish(s, sums, norm, l, in.channels, pixels);
}

/* ---- launchers ---- */

template <class T>
static cudaError_t max_forward(const gpu_map &in, const gpu_norm &norm, gpu_window win,
                               const gpu_map &out, uint8_t *arg, const gpu_stats &stats,
                               cudaStream_t stream) {
    const int64_t pixels = gpu_map_pixels(&out);
    const dim3 grid = lane_grid(out.channels, pixels);
    if (win.kernel == 3)
        return CHEX_LAUNCH((maxpool_forward<T, 3>), grid, LANE_THREADS, 0, stream, in, norm, win,
                           out, arg, stats, (unsigned)pixels);
    return CHEX_LAUNCH((maxpool_forward<T, 0>), grid, LANE_THREADS, 0, stream, in, norm, win, out,
                       arg, stats, (unsigned)pixels);
}

cudaError_t gpu_maxpool_forward(const struct gpu_map *in, const struct gpu_norm *norm,
                                struct gpu_window window, const struct gpu_map *out, uint8_t *arg,
                                const struct gpu_stats *stats, cudaStream_t stream) {
    /* Every window must hold a pixel, and a byte every tap. */
    const bool fits = window.kernel > 0 && window.kernel <= 16 && window.stride > 0 &&
                      window.pad >= 0 && window.pad < window.kernel && out->hw > 0 &&
                      (out->hw - 1) * window.stride - window.pad < in->hw;
    if (!fits || !lane_takes(in) || !lane_same(in, out))
        return cudaErrorInvalidValue;
    return gpu_with_type(in->type, [&](auto t) {
        return max_forward<decltype(t)>(*in, lane_given(norm), window, *out, arg, lane_given(stats),
                                        stream);
    });
}

template <class T>
static cudaError_t max_backward(const gpu_taken &out, const uint8_t *arg, gpu_window win,
                                const gpu_map &in, const gpu_norm &norm, const gpu_map &in_g,
                                bool add, const gpu_sums &sums, cudaStream_t stream) {
    const int64_t pixels = gpu_map_pixels(&in);
    const dim3 grid = lane_grid(in.channels, pixels);
    if (win.kernel == 3 && win.stride == 2)
        return CHEX_LAUNCH((maxpool_backward<T, 3, 2>), grid, LANE_THREADS, 0, stream, out, arg,
                           win, in, norm, in_g, add, sums, (unsigned)pixels);
    return CHEX_LAUNCH((maxpool_backward<T, 0, 0>), grid, LANE_THREADS, 0, stream, out, arg, win,
                       in, norm, in_g, add, sums, (unsigned)pixels);
}

cudaError_t gpu_maxpool_backward(const struct gpu_taken *out, const uint8_t *arg,
                                 struct gpu_window window, const struct gpu_map *in,
                                 const struct gpu_norm *norm, const struct gpu_map *in_g, bool add,
                                 const struct gpu_sums *sums, cudaStream_t stream) {
    if (!lane_takes(in) || !lane_same(in, in_g) || !lane_same(in, &out->g))
        return cudaErrorInvalidValue;
    return gpu_with_type(in->type, [&](auto t) {
        return max_backward<decltype(t)>(*out, arg, window, *in, lane_given(norm), *in_g, add,
                                         lane_given(sums), stream);
    });
}

template <class T>
static cudaError_t avg_forward(const gpu_map &in, const gpu_norm &norm, int kernel,
                               const gpu_map &out, const gpu_stats &stats, cudaStream_t stream) {
    const int64_t pixels = gpu_map_pixels(&out);
    const dim3 grid = lane_grid(out.channels, pixels);
    if (kernel == 2)
        return CHEX_LAUNCH((avgpool_forward<T, 2>), grid, LANE_THREADS, 0, stream, in, norm, kernel,
                           out, stats, (unsigned)pixels);
    return CHEX_LAUNCH((avgpool_forward<T, 0>), grid, LANE_THREADS, 0, stream, in, norm, kernel,
                       out, stats, (unsigned)pixels);
}

cudaError_t gpu_avgpool_forward(const struct gpu_map *in, const struct gpu_norm *norm, int kernel,
                                const struct gpu_map *out, const struct gpu_stats *stats,
                                cudaStream_t stream) {
    if (kernel < 1 || out->hw < 1 || out->hw > in->hw / kernel || !lane_takes(in) ||
        !lane_same(in, out))
        return cudaErrorInvalidValue;
    return gpu_with_type(in->type, [&](auto t) {
        return avg_forward<decltype(t)>(*in, lane_given(norm), kernel, *out, lane_given(stats),
                                        stream);
    });
}

template <class T>
static cudaError_t avg_backward(const gpu_taken &out, int kernel, const gpu_map &in,
                                const gpu_norm &norm, const gpu_map &in_g, bool add,
                                const gpu_sums &sums, cudaStream_t stream) {
    const int64_t pixels = gpu_map_pixels(&in);
    const dim3 grid = lane_grid(in.channels, pixels);
    if (kernel == 2)
        return CHEX_LAUNCH((avgpool_backward<T, 2>), grid, LANE_THREADS, 0, stream, out, kernel, in,
                           norm, in_g, add, sums, (unsigned)pixels);
    return CHEX_LAUNCH((avgpool_backward<T, 0>), grid, LANE_THREADS, 0, stream, out, kernel, in,
                       norm, in_g, add, sums, (unsigned)pixels);
}

cudaError_t gpu_avgpool_backward(const struct gpu_taken *out, int kernel, const struct gpu_map *in,
                                 const struct gpu_norm *norm, const struct gpu_map *in_g, bool add,
                                 const struct gpu_sums *sums, cudaStream_t stream) {
    if (kernel < 1 || !lane_takes(in) || !lane_same(in, in_g) || !lane_same(in, &out->g))
        return cudaErrorInvalidValue;
    return gpu_with_type(in->type, [&](auto t) {
        return avg_backward<decltype(t)>(*out, kernel, *in, lane_given(norm), *in_g, add,
                                         lane_given(sums), stream);
    });
}
