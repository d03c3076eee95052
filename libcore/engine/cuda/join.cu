/* SPDX-License-Identifier: Apache-2.0
 *
 * The end of a residual block: out = max(norm(in) + side_norm(side), 0), and its backward.
 *
 * Layout: lanes.cuh. All maps have the same pixels, so a pixel's number is all a thread needs; it
 * takes two pixels at a time, whose loads are on their way together.
 *
 * Numerics: both norms and their sum in fp32, rounded where stored. The ReLU's mask is that of the
 * stored output: relu'(0) = 0. The taken gradient is not rounded; in_g += and side_g += add in
 * fp32.
 */
#include "engine/cuda/lanes.cuh"

/* ---- forward ---- */

template <class T>
static __device__ __forceinline__ lane_run<T> joined(const lane_norm &n, const lane_norm &side_n,
                                                     const lane_run<T> &in,
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
    join_forward(gpu_map in, gpu_norm norm, gpu_map side, gpu_norm side_norm, gpu_map out,
                 unsigned pixels) {
    const lane_place l = lane_here(out.channels, pixels);
    const lane_norm n = lane_norm_of(norm, l), side_n = lane_norm_of(side_norm, l);
    for (unsigned p = l.start; p < l.end; p += 2 * l.step) {
        /* Where there is no second pixel the first is taken twice. */
        const unsigned q = p + l.step < l.end ? p + l.step : p;
        const lane_run<T> in_p = gpu_load_run<LANE>(lane_at<const T>(in, p, l.c));
        const lane_run<T> side_p = gpu_load_run<LANE>(lane_at<const T>(side, p, l.c));
        const lane_run<T> in_q = gpu_load_run<LANE>(lane_at<const T>(in, q, l.c));
        const lane_run<T> side_q = gpu_load_run<LANE>(lane_at<const T>(side, q, l.c));
        gpu_store_run(lane_at<T>(out, p, l.c), joined<T>(n, side_n, in_p, side_p));
        if (q != p)
            gpu_store_run(lane_at<T>(out, q, l.c), joined<T>(n, side_n, in_q, side_q));
    }
}

/* ---- backward ---- */

/* One of the two branches: its map, where its gradient goes, and its norm's sums. */
struct join_branch {
    gpu_map map, g;
    gpu_norm norm;
    gpu_sums sums;
    bool add;
};

/* What a thread keeps of a branch. S1 is the same for both. */
struct join_lane {
    float a[LANE], mean[LANE], two[LANE];
};
static __device__ __forceinline__ join_lane join_lane_of(const gpu_norm &n, const lane_place &l) {
    join_lane j;
    for (int i = 0; i < LANE; i++) {
        j.a[i] = n.mean && l.on ? gpu_scale(n, l.c + i).a : 1.0f;
        j.mean[i] = n.mean && l.on ? n.mean[l.c + i] : 0.0f;
        j.two[i] = 0;
    }
    return j;
}

/* What a pixel needs of a branch. Both branches' loads come before either's store. */
template <class T> struct join_loads { lane_run<T> x, old; };
template <class T>
static __device__ __forceinline__ join_loads<T> join_load(const join_branch &b, unsigned p, int c) {
    join_loads<T> r = {};
    if (b.norm.mean)
        r.x = gpu_load_run<LANE>(lane_at<const T>(b.map, p, c));
    if (b.add)
        r.old = gpu_load_run<LANE>(lane_at<const T>(b.g, p, c));
    return r;
}
template <class T>
static __device__ __forceinline__ void join_branch_add(join_lane &j, const join_branch &b,
                                                       const join_loads<T> &loads,
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

static __device__ __forceinline__ void join_branch_finish(join_lane &j, const float one[LANE],
                                                          const join_branch &b, const lane_place &l,
                                                          unsigned pixels) {
    const int channels = b.map.channels;
    if (!b.sums.partial)
        return;
    for (int i = 0; i < LANE; i++)
        j.two[i] *= l.on ? b.norm.inv[l.c + i] : 0.0f;
    lane_block_sums(one, j.two, l, channels, b.sums.partial);
    if (gpu_last_block(b.sums.ticket + blockIdx.y, gridDim.x))
        gpu_finish_sums(b.sums, b.norm, channels, l.first, lane_run_channels(l, channels),
                        (int)gridDim.x, (double)pixels, (int)threadIdx.x, LANE_THREADS);
}

template <class T>
__global__ void __launch_bounds__(LANE_THREADS, sizeof(T) == 2 ? 2 : 1)
    join_backward(gpu_taken out, gpu_map out_x, join_branch in, join_branch side, unsigned pixels) {
    const lane_place l = lane_here(out_x.channels, pixels);
    const lane_taken taken = lane_taken_of(out, l);
    join_lane in_j = join_lane_of(in.norm, l), side_j = join_lane_of(side.norm, l);
    float one[LANE] = {};
    for (unsigned p = l.start; p < l.end; p += l.step) {
        const join_loads<T> in_x = join_load<T>(in, p, l.c), side_x = join_load<T>(side, p, l.c);
        float du[LANE], y[LANE];
        lane_take<T>(taken, out, p, l.c, du);
        gpu_read_run<LANE>(y, lane_at<const T>(out_x, p, l.c));
        for (int i = 0; i < LANE; i++) {
            du[i] = y[i] > 0.0f ? du[i] : 0.0f;
            one[i] += du[i];
        }
        join_branch_add<T>(in_j, in, in_x, du, p, l.c);
        join_branch_add<T>(side_j, side, side_x, du, p, l.c);
    }
    join_branch_finish(in_j, one, in, l, pixels);
    join_branch_finish(side_j, one, side, l, pixels);
}

/* ---- launchers ---- */

template <class T>
static cudaError_t forward(const gpu_map &in, const gpu_norm &norm, const gpu_map &side,
                           const gpu_norm &side_norm, const gpu_map &out, cudaStream_t stream) {
    const int64_t pixels = gpu_map_pixels(&out);
    return CHEX_LAUNCH(join_forward<T>, lane_grid(out.channels, pixels), LANE_THREADS, 0, stream,
                       in, norm, side, side_norm, out, (unsigned)pixels);
}

static bool same_shape(const gpu_map *a, const gpu_map *b) {
    return lane_same(a, b) && a->hw == b->hw;
}

cudaError_t gpu_join_forward(const struct gpu_map *in, const struct gpu_norm *norm,
                             const struct gpu_map *side, const struct gpu_norm *side_norm,
                             const struct gpu_map *out, cudaStream_t stream) {
    if (!lane_takes(out) || !same_shape(out, in) || !same_shape(out, side))
        return cudaErrorInvalidValue;
    return gpu_with_type(in->type, [&](auto t) {
        return forward<decltype(t)>(*in, lane_given(norm), *side, lane_given(side_norm), *out,
                                    stream);
    });
}

template <class T>
static cudaError_t backward(const gpu_taken &out, const gpu_map &out_x, const join_branch &in,
                            const join_branch &side, cudaStream_t stream) {
    const int64_t pixels = gpu_map_pixels(&out_x);
    return CHEX_LAUNCH(join_backward<T>, lane_grid(out_x.channels, pixels), LANE_THREADS, 0, stream,
                       out, out_x, in, side, (unsigned)pixels);
}

cudaError_t gpu_join_backward(const struct gpu_taken *out, const struct gpu_map *out_x,
                              const struct gpu_map *in, const struct gpu_norm *norm,
                              const struct gpu_map *in_g, bool add, const struct gpu_sums *sums,
                              const struct gpu_map *side, const struct gpu_norm *side_norm,
                              const struct gpu_map *side_g, bool side_add,
                              const struct gpu_sums *side_sums, cudaStream_t stream) {
    if (!lane_takes(out_x) || !same_shape(out_x, &out->g) || !same_shape(out_x, in) ||
        !same_shape(out_x, in_g) || !same_shape(out_x, side) || !same_shape(out_x, side_g))
        return cudaErrorInvalidValue;
    const join_branch a = {*in, *in_g, lane_given(norm), lane_given(sums), add};
    const join_branch b = {*side, *side_g, lane_given(side_norm), lane_given(side_sums), side_add};
    return gpu_with_type(in->type,
                         [&](auto t) { return backward<decltype(t)>(*out, *out_x, a, b, stream); });
}
