/* SPDX-License-Identifier: Apache-2.0
 *
 * The end of a residual block: out = max(norm(in) + side_norm(side), 0), and its backward.
 *
 * Layout: lanes.cuh. All maps have the same shape, so a pixel number is enough to address them. A
 * thread processes two pixels at a time, so that their loads overlap.
 *
 * Numerics. Both norms and their sum are fp32, rounded when stored. The ReLU mask is computed from
 * the stored output; relu'(0) = 0. The gradient with its deferred terms is not rounded. in_g += and
 * side_g += add in fp32.
 */
#include "engine/cuda/kernels/lanes.cuh"

/* ---- forward ---- */

template <class T>
static __device__ __forceinline__ lane_run<T>
residual_sum(const lane_norm &n, const lane_norm &side_n, const lane_run<T> &in,
             const lane_run<T> &side) {
    float x[LANE], y[LANE];
    gpu_unpack_run(x, in);
    gpu_unpack_run(y, side);
    for (int i = 0; i < LANE; i++)
        x[i] = gpu_relu(__fadd_rn(gpu_normed(n.s[i], x[i]), gpu_normed(side_n.s[i], y[i])));
    return gpu_pack_run<T, LANE>(x);
}

template <class T>
__global__ void __launch_bounds__(LANE_THREADS, sizeof(T) == 2 ? 3 : 2)
    residual_forward(gpu_map in, gpu_norm norm, gpu_map side, gpu_norm side_norm, gpu_map out,
                     unsigned pixels) {
    gpu_begin();
    const lane_place l = lane_here(out.channels, pixels);
    const lane_norm n = lane_norm_of(norm, l), side_n = lane_norm_of(side_norm, l);
    for (unsigned p = l.start; p < l.end; p += 2 * l.step) {
        /* If there is no second pixel, the first is processed twice. */
        const unsigned q = p + l.step < l.end ? p + l.step : p;
        const lane_run<T> in_p = gpu_load_run<LANE>(lane_at<const T>(in, p, l.c));
        const lane_run<T> side_p = gpu_load_run<LANE>(lane_at<const T>(side, p, l.c));
        const lane_run<T> in_q = gpu_load_run<LANE>(lane_at<const T>(in, q, l.c));
        const lane_run<T> side_q = gpu_load_run<LANE>(lane_at<const T>(side, q, l.c));
        gpu_store_run(lane_at<T>(out, p, l.c), residual_sum<T>(n, side_n, in_p, side_p));
        if (q != p)
            gpu_store_run(lane_at<T>(out, q, l.c), residual_sum<T>(n, side_n, in_q, side_q));
    }
}

/* ---- backward ---- */

/* One of the two branches: map, norm, gradient map, and the sums of the norm's backward. */
struct residual_branch {
    gpu_map map, g;
    gpu_norm norm;
    gpu_sums sums;
    bool add;
};

/* A thread's values of a branch. S1 is the same for both branches. */
struct residual_lane {
    float a[LANE], mean[LANE], two[LANE];
};
static __device__ __forceinline__ residual_lane residual_lane_of(const gpu_norm &n,
                                                                 const lane_place &l) {
    residual_lane j;
    for (int i = 0; i < LANE; i++) {
        j.a[i] = n.mean && l.on ? gpu_scale(n, l.c + i).a : 1.0f;
        j.mean[i] = n.mean && l.on ? n.mean[l.c + i] : 0.0f;
        j.two[i] = 0;
    }
    return j;
}

/* The loads for a pixel of a branch. The loads of both branches are issued before any store. */
template <class T> struct residual_loads { lane_run<T> x, old; };
template <class T>
static __device__ __forceinline__ residual_loads<T> residual_load(const residual_branch &b,
                                                                  unsigned p, int c) {
    residual_loads<T> r = {};
    if (b.norm.mean)
        r.x = gpu_load_run<LANE>(lane_at<const T>(b.map, p, c));
    if (b.add)
        r.old = gpu_load_run<LANE>(lane_at<const T>(b.g, p, c));
    return r;
}
template <class T>
static __device__ __forceinline__ void
residual_branch_add(residual_lane &j, const residual_branch &b, const residual_loads<T> &loads,
                    const float du[LANE], unsigned p, int c) {
    float x[LANE], v[LANE];
    gpu_unpack_run(x, loads.x);
    gpu_unpack_run(v, loads.old);
    for (int i = 0; i < LANE; i++) {
        const float g = __fmul_rn(j.a[i], du[i]);
        j.two[i] = __fmaf_rn(du[i], __fsub_rn(x[i], j.mean[i]), j.two[i]);
        v[i] = b.add ? __fadd_rn(v[i], g) : g;
    }
    gpu_write_run<LANE>(lane_at<T>(b.g, p, c), v);
}

static __device__ __forceinline__ void
residual_branch_finish(residual_lane &j, const float one[LANE], const residual_branch &b,
                       const lane_place &l, unsigned pixels) {
    const int channels = b.map.channels;
    if (!b.sums.partial)
        return;
    for (int i = 0; i < LANE; i++)
        j.two[i] *= l.on ? b.norm.inv[l.c + i] : 0.0f;
    lane_block_sums(one, j.two, l, channels, b.sums.partial);
    if (lane_last_of_run(b.sums.ticket, b.sums.partial, l, channels))
        gpu_finish_sums(b.sums, b.norm, channels, l.first, lane_run_channels(l, channels),
                        (int)gridDim.x, (double)pixels, (int)threadIdx.x, LANE_THREADS);
}

template <class T>
__global__ void __launch_bounds__(LANE_THREADS, sizeof(T) == 2 ? 2 : 1)
    residual_backward(gpu_deferred_grad out, gpu_map out_x, residual_branch in,
                      residual_branch side, unsigned pixels) {
    gpu_begin();
    const lane_place l = lane_here(out_x.channels, pixels);
    const lane_deferred_grad deferred_grad = lane_deferred_grad_of(out, l);
    residual_lane in_j = residual_lane_of(in.norm, l), side_j = residual_lane_of(side.norm, l);
    float one[LANE] = {};
    for (unsigned p = l.start; p < l.end; p += l.step) {
        const residual_loads<T> in_x = residual_load<T>(in, p, l.c),
                                side_x = residual_load<T>(side, p, l.c);
        float du[LANE], y[LANE];
        lane_read_grad<T>(deferred_grad, out, p, l.c, du);
        gpu_read_run<LANE>(y, lane_at<const T>(out_x, p, l.c));
        for (int i = 0; i < LANE; i++) {
            du[i] = y[i] > 0.0f ? du[i] : 0.0f;
            one[i] += du[i];
        }
        residual_branch_add<T>(in_j, in, in_x, du, p, l.c);
        residual_branch_add<T>(side_j, side, side_x, du, p, l.c);
    }
    residual_branch_finish(in_j, one, in, l, pixels);
    residual_branch_finish(side_j, one, side, l, pixels);
}

/* ---- launchers ---- */

static bool same_shape(const gpu_map *a, const gpu_map *b) {
    return lane_same(a, b) && a->hw == b->hw;
}

cudaError_t gpu_residual_add_forward(const struct gpu_map *in, const struct gpu_norm *norm,
                                     const struct gpu_map *side, const struct gpu_norm *side_norm,
                                     const struct gpu_map *out, cudaStream_t stream) {
    const int64_t pixels = gpu_map_pixels(out);
    if (!lane_supports(out) || !same_shape(out, in) || !same_shape(out, side))
        return cudaErrorInvalidValue;
    return gpu_with_type(in->type, [&](auto t) {
        return CHEX_LAUNCH(residual_forward<decltype(t)>, lane_grid(out->channels, pixels),
                           LANE_THREADS, 0, stream, *in, lane_given(norm), *side,
                           lane_given(side_norm), *out, (unsigned)pixels);
    });
}

cudaError_t gpu_residual_add_backward(const struct gpu_deferred_grad *out,
                                      const struct gpu_map *out_x, const struct gpu_map *in,
                                      const struct gpu_norm *norm, const struct gpu_map *in_g,
                                      bool add, const struct gpu_sums *sums,
                                      const struct gpu_map *side, const struct gpu_norm *side_norm,
                                      const struct gpu_map *side_g, bool side_add,
                                      const struct gpu_sums *side_sums, cudaStream_t stream) {
    const int64_t pixels = gpu_map_pixels(out_x);
    if (!lane_supports(out_x) || !same_shape(out_x, &out->g) || !same_shape(out_x, in) ||
        !same_shape(out_x, in_g) || !same_shape(out_x, side) || !same_shape(out_x, side_g))
        return cudaErrorInvalidValue;
    const residual_branch a = {*in, *in_g, lane_given(norm), lane_given(sums), add};
    const residual_branch b = {*side, *side_g, lane_given(side_norm), lane_given(side_sums),
                               side_add};
    return gpu_with_type(in->type, [&](auto t) {
        return CHEX_LAUNCH(residual_backward<decltype(t)>, lane_grid(out_x->channels, pixels),
                           LANE_THREADS, 0, stream, *out, *out_x, a, b, (unsigned)pixels);
    });
}
