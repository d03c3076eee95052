/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu_conv_algo_plain: the convolution algorithm that supports every kernel size, stride, padding
 * and type on any device. The other algorithms are tested against it. fp32 uses it in builds
 * without cuDNN.
 *
 * Method. A convolution is three implicit matrix products: forward, data gradient, weight gradient.
 * Their operands are gathered from the maps. A block of 256 threads computes a tile of 64 x 64
 * results, 4 x 4 per thread. Each step loads 16 values of the summed index to shared memory as
 * fp32. The products differ only in their sources: a source gives the addresses of the four values
 * that a thread loads per step.
 *
 * Numerics. The activated input and the gradient with its deferred terms are written to the
 * workspace, rounded to the map's type. Products are fp32, summed in the order of the weights. The
 * data gradient stays fp32 until the ReLU mask is applied. The weight gradient is summed over runs
 * of pixels in fp32, then over the runs in double, in order.
 */
#include "engine/cuda/kernels/vector.cuh"

namespace {

enum {
    TILE = 64,
    STEP = 16,      /* values of the summed index per step */
    ROW = TILE + 4, /* floats per row in shared memory: 16-byte aligned, avoids bank conflicts */
    THREADS = 256,  /* 16 x 16 of 4 x 4 results */
    SPLIT_PIXELS = 4096, /* pixels of one fp32 sum of a weight gradient, at most; */
    SPLIT_MOST = 512,    /* more if there would be more runs than this */
    SPLIT_LEAST = 256    /* pixels of a run, at least */
};

template <class T> using run = gpu_run<T, 4>;

struct extent {
    int hw, channels;
    int64_t pitch, pixels;
};
extent extent_of(const gpu_map &m) { return extent{m.hw, m.channels, m.pitch, gpu_map_pixels(&m)}; }

/* ---- sources ----
 * A source loads a thread's four values of a tile and advances by STEP with each next().
 *   - DEEP: four values along the summed index, for row thread / 4 of the tile.
 *   - Not DEEP: four rows of the tile, for the summed index thread / 16. */

__device__ __forceinline__ int deep_row() { return (int)threadIdx.x / 4; }
__device__ __forceinline__ int deep_at() { return (int)threadIdx.x % 4 * 4; }
__device__ __forceinline__ int wide_row() { return (int)threadIdx.x % 16 * 4; }
__device__ __forceinline__ int wide_at() { return (int)threadIdx.x / 16; }

/* Rows: pixels. Summed index: taps and channels of the other map. Forward: rows are output pixels
 * that read the input. BACK: rows are input pixels that read the output's gradient. */
template <class T, bool BACK> struct around_pixel {
    static constexpr bool DEEP = true;
    const T *image, *at; /* at: the pixel to read; NULL: outside the map */
    extent seen;
    gpu_window w;
    int y, x, ky, kx, c;

    __device__ __forceinline__ around_pixel(const T *map, const extent &seen_, const gpu_window &w_,
                                            const extent &own, int64_t first_row)
        : seen(seen_), w(w_), ky(0), kx(0), c(deep_at()) {
        const int64_t p = first_row + deep_row(), area = (int64_t)own.hw * own.hw;
        const int64_t i = p / area;
        const int in_image = (int)(p - i * area);
        image = map + i * seen.hw * seen.hw * seen.pitch;
        y = in_image / own.hw;
        x = in_image - y * own.hw;
        if (p >= own.pixels)
            ky = w.kernel; /* past the last pixel: all values are 0 */
        normalise();
    }
    /* Normalises (tap, channel) so that c < seen.channels, and computes `at`. */
    __device__ __forceinline__ void normalise() {
        while (c >= seen.channels) {
            c -= seen.channels;
            if (++kx == w.kernel) {
                kx = 0;
                ky++;
            }
        }
        int sy = BACK ? y + w.pad - ky : y * w.stride - w.pad + ky;
        int sx = BACK ? x + w.pad - kx : x * w.stride - w.pad + kx;
        bool on = ky < w.kernel && sy >= 0 && sx >= 0;
        if (BACK) {
            on = on && sy % w.stride == 0 && sx % w.stride == 0;
            sy /= w.stride;
            sx /= w.stride;
        }
        on = on && sy < seen.hw && sx < seen.hw;
        at = on ? image + ((int64_t)sy * seen.hw + sx) * seen.pitch : nullptr;
    }
    __device__ __forceinline__ run<T> next() {
        const run<T> r = at ? gpu_load_run<4>(at + c) : run<T>{};
        c += STEP;
        if (c >= seen.channels)
            normalise();
        return r;
    }
};

/* Rows: output channels. Summed index: all weights of an output channel. */
template <class T> struct weight_rows {
    static constexpr bool DEEP = true;
    const T *row;
    int depth, at;

    __device__ __forceinline__ weight_rows(const T *weight, int out, int depth_, int first_row)
        : depth(depth_), at(deep_at()) {
        const int o = first_row + deep_row();
        row = weight + (int64_t)o * depth;
        if (o >= out)
            at = depth;
    }
    __device__ __forceinline__ run<T> next() {
        const run<T> r = at < depth ? gpu_load_run<4>(row + at) : run<T>{};
        at += at < depth ? STEP : 0;
        return r;
    }
};

/* Rows: input channels. Summed index: taps and output channels. */
template <class T> struct weight_columns {
    static constexpr bool DEEP = false;
    const T *weight; /* shifted to the input channel */
    int in, out, taps, tap, o;

    __device__ __forceinline__ weight_columns(const T *weight_, int in_, int out_, int taps_,
                                              int first_row)
        : in(in_), out(out_), taps(taps_), tap(0), o(wide_at()) {
        const int c = first_row + wide_row();
        weight = weight_ + c;
        if (c >= in)
            tap = taps;
    }
    __device__ __forceinline__ run<T> next() {
        while (o >= out) {
            o -= out;
            tap++;
        }
        const run<T> r =
            tap < taps ? gpu_load_run<4>(weight + ((int64_t)o * taps + tap) * in) : run<T>{};
        o += STEP;
        return r;
    }
};

/* Rows: channels of the output's gradient. Summed index: its pixels [first, end). */
template <class T> struct gradient_pixels {
    static constexpr bool DEEP = false;
    const T *map; /* at the channel */
    int64_t pitch, p, end;

    __device__ __forceinline__ gradient_pixels(const T *map_, const extent &out, int first_row,
                                               int64_t first, int64_t end_)
        : map(map_ + first_row + wide_row()), pitch(out.pitch), p(first + wide_at()), end(end_) {
        if (first_row + wide_row() >= out.channels)
            p = end;
    }
    __device__ __forceinline__ run<T> next() {
        const run<T> r = p < end ? gpu_load_run<4>(map + p * pitch) : run<T>{};
        p += STEP;
        return r;
    }
};

/* Rows: tap and input channel. Summed index: output pixels; each one reads the input pixel under
 * the tap. */
template <class T> struct input_pixels {
    static constexpr bool DEEP = false;
    const T *map; /* at the channel */
    extent in;
    int out_hw, stride, dy, dx; /* dy, dx: offset of the tap */
    int64_t p, end, i;
    int y, x;

    __device__ __forceinline__ input_pixels(const T *map_, const extent &in_, const gpu_window &w,
                                            int out_hw_, int first_row, int64_t first, int64_t end_)
        : in(in_), out_hw(out_hw_), stride(w.stride), p(first + wide_at()), end(end_) {
        const int row = first_row + wide_row(), tap = row / in.channels;
        map = map_ + (row - tap * in.channels);
        dy = tap / w.kernel - w.pad;
        dx = tap % w.kernel - w.pad;
        const int64_t area = (int64_t)out_hw * out_hw;
        i = p / area;
        const int in_image = (int)(p - i * area);
        y = in_image / out_hw;
        x = in_image - y * out_hw;
        if (tap >= w.kernel * w.kernel)
            p = end;
    }
    __device__ __forceinline__ run<T> next() {
        const int sy = y * stride + dy, sx = x * stride + dx;
        const bool on = p < end && sy >= 0 && sx >= 0 && sy < in.hw && sx < in.hw;
        const run<T> r =
            on ? gpu_load_run<4>(map + ((i * in.hw + sy) * in.hw + sx) * in.pitch) : run<T>{};
        p += STEP;
        for (x += STEP; x >= out_hw; x -= out_hw)
            y++;
        for (; y >= out_hw; y -= out_hw)
            i++;
        return r;
    }
};

/* ---- the product of two sources ---- */

struct alignas(16) tile {
    float at[STEP][ROW]; /* summed index, row */
};

template <class S, class T> __device__ __forceinline__ void put(tile &to, const run<T> &r) {
    float v[4];
    gpu_unpack_run(v, r);
    if constexpr (S::DEEP) {
#pragma unroll
        for (int i = 0; i < 4; i++)
            to.at[deep_at() + i][deep_row()] = v[i];
    } else {
        *reinterpret_cast<float4 *>(&to.at[wide_at()][wide_row()]) =
            make_float4(v[0], v[1], v[2], v[3]);
    }
}

/* sum[i][j] is the product of row thread / 16 * 4 + i of a and row thread % 16 * 4 + j of b. */
template <class T, class A, class B>
__device__ __forceinline__ void product(A &a, B &b, int64_t depth, float sum[4][4]) {
    __shared__ tile a_tile, b_tile;
    const int row = (int)threadIdx.x / 16 * 4, column = (int)threadIdx.x % 16 * 4;
    run<T> a_run = a.next(), b_run = b.next();
    for (int64_t k = 0; k < depth; k += STEP) {
        put<A, T>(a_tile, a_run);
        put<B, T>(b_tile, b_run);
        __syncthreads();
        if (k + STEP < depth) {
            a_run = a.next();
            b_run = b.next();
        }
#pragma unroll
        for (int s = 0; s < STEP; s++) {
            const float4 x = *reinterpret_cast<const float4 *>(&a_tile.at[s][row]);
            const float4 y = *reinterpret_cast<const float4 *>(&b_tile.at[s][column]);
            const float xs[4] = {x.x, x.y, x.z, x.w}, ys[4] = {y.x, y.y, y.z, y.w};
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    sum[i][j] += xs[i] * ys[j];
        }
        __syncthreads();
    }
}

/* Rounds the results inside rows x columns to T and stores them. */
template <class T>
__device__ __forceinline__ void store(T *to, int64_t pitch, int64_t first_row, int64_t rows,
                                      int first_column, int columns, const float sum[4][4]) {
    const int64_t row = first_row + threadIdx.x / 16 * 4;
    const int column = first_column + (int)threadIdx.x % 16 * 4;
    if (column < columns)
        for (int i = 0; i < 4; i++)
            if (row + i < rows)
                gpu_write_run<4>(to + (row + i) * pitch + column, sum[i]);
}

/* The tile of blockIdx.x. Tiles of the same rows are consecutive, because they read the same data.
 */
struct tile_at {
    int64_t row;
    int column;
};
__device__ __forceinline__ tile_at my_tile(int columns) {
    const unsigned across = (unsigned)(columns + TILE - 1) / TILE, down = blockIdx.x / across;
    return tile_at{(int64_t)down * TILE, (int)(blockIdx.x - down * across) * TILE};
}
unsigned tiles_of(int64_t rows, int columns) {
    return (unsigned)((rows + TILE - 1) / TILE * ((columns + TILE - 1) / TILE));
}

/* ---- the three products ---- */

template <class T> struct operands {
    const T *in, *weight, *gradient; /* in: activated; gradient: with deferred terms */
    T *out;                          /* forward only */
    float *dv;                       /* packed like the input */
    float *partial;                  /* [split][out][ky][kx][in] */
    extent in_extent, out_extent, gradient_extent;
    gpu_window window;
    int64_t split_pixels;
};

template <class T> __global__ void __launch_bounds__(THREADS, 2) forward_kernel(operands<T> o) {
    gpu_begin();
    const int channels = o.out_extent.channels, taps = o.window.kernel * o.window.kernel;
    const int depth = taps * o.in_extent.channels;
    const tile_at t = my_tile(channels);
    around_pixel<T, false> a(o.in, o.in_extent, o.window, o.out_extent, t.row);
    weight_rows<T> b(o.weight, channels, depth, t.column);
    float sum[4][4] = {};
    product<T>(a, b, depth, sum);
    store(o.out, o.out_extent.pitch, t.row, o.out_extent.pixels, t.column, channels, sum);
}

template <class T> __global__ void __launch_bounds__(THREADS, 3) data_kernel(operands<T> o) {
    gpu_begin();
    const int channels = o.in_extent.channels, taps = o.window.kernel * o.window.kernel;
    const int out = o.gradient_extent.channels;
    const tile_at t = my_tile(channels);
    around_pixel<T, true> a(o.gradient, o.gradient_extent, o.window, o.in_extent, t.row);
    weight_columns<T> b(o.weight, channels, out, taps, t.column);
    float sum[4][4] = {};
    product<T>(a, b, (int64_t)taps * out, sum);
    store(o.dv, channels, t.row, o.in_extent.pixels, t.column, channels, sum);
}

/* blockIdx.y selects the run of pixels. */
template <class T> __global__ void __launch_bounds__(THREADS, 3) weight_kernel(operands<T> o) {
    gpu_begin();
    const int out = o.gradient_extent.channels;
    const int columns = o.window.kernel * o.window.kernel * o.in_extent.channels;
    const tile_at t = my_tile(columns);
    const int64_t first = blockIdx.y * o.split_pixels, left = o.gradient_extent.pixels - first;
    const int64_t count = left < o.split_pixels ? left : o.split_pixels;
    gradient_pixels<T> a(o.gradient, o.gradient_extent, (int)t.row, first, first + count);
    input_pixels<T> b(o.in, o.in_extent, o.window, o.gradient_extent.hw, t.column, first,
                      first + count);
    float sum[4][4] = {};
    product<T>(a, b, count, sum);
    store(o.partial + (int64_t)blockIdx.y * out * columns, columns, t.row, out, t.column, columns,
          sum);
}

__global__ void __launch_bounds__(THREADS)
    sum_kernel(const float *partial, int splits, int64_t count, float *dweight) {
    gpu_begin();
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= count)
        return;
    double sum = 0;
#pragma unroll 8
    for (int s = 0; s < splits; s++)
        sum += (double)partial[s * count + i];
    dweight[i] = (float)sum;
}

/* ---- the algorithm ---- */

struct splits {
    int count, most; /* runs for this number of pixels; upper limit for fewer pixels too */
    int64_t pixels;  /* of each run except the last */
};

/* Cuts the pixels into runs that are short enough for fp32 sums, and enough runs to fill the
 * device. */
splits splits_of(const gpu_device &device, int64_t pixels, int64_t tiles) {
    const int64_t by_length = (pixels + SPLIT_PIXELS - 1) / SPLIT_PIXELS;
    const int64_t by_worth = (pixels + SPLIT_LEAST - 1) / SPLIT_LEAST;
    int64_t n = (2 * (int64_t)device.sms + tiles - 1) / tiles;
    n = n < by_worth ? n : by_worth;
    n = n > by_length ? n : by_length;
    if (n > SPLIT_MOST)
        n = SPLIT_MOST;
    const int64_t length = ((pixels + n - 1) / n + STEP - 1) / STEP * STEP;
    return splits{(int)((pixels + length - 1) / length), (int)n, length};
}

int64_t weights_of(const gpu_map &in, const gpu_map &out, const gpu_window &w) {
    return (int64_t)out.channels * w.kernel * w.kernel * in.channels;
}

size_t aligned(size_t bytes) { return (bytes + 255) / 256 * 256; }

size_t packed_bytes(const gpu_map &m, size_t element) {
    return aligned((size_t)gpu_map_pixels(&m) * (size_t)m.channels * element);
}

gpu_map packed(const gpu_map &m, void *data, enum gpu_type type) {
    gpu_map p = m;
    p.data = data;
    p.type = type;
    p.pitch = m.channels;
    return p;
}

/* Layout of the scratch memory of backward, as offsets. dv is written after the weight gradient is
 * done, so it shares memory with the partial weight gradients. */
struct scratch {
    size_t deferred_grad, rest, bytes; /* activated input at 0; rest: dv or partial sums */
    splits split;
};
scratch scratch_of(const gpu_device &device, const gpu_conv_backward &b) {
    const gpu_map &in = b.in, &g = b.out.g;
    const int columns = b.window.kernel * b.window.kernel * in.channels;
    scratch s;
    s.split = splits_of(device, gpu_map_pixels(&g), tiles_of(g.channels, columns));
    const size_t partial =
        aligned(sizeof(float) * (size_t)s.split.most * (size_t)weights_of(in, g, b.window));
    const size_t dv = b.in_g.data ? packed_bytes(in, sizeof(float)) : 0;
    s.deferred_grad = b.norm.mean ? packed_bytes(in, gpu_type_bytes(in.type)) : 0;
    s.rest = s.deferred_grad + (b.out.bsum ? packed_bytes(g, gpu_type_bytes(g.type)) : 0);
    s.bytes = s.rest + (partial > dv ? partial : dv);
    return s;
}

bool plain_fits(const gpu_device *, const gpu_conv_forward *f, const gpu_conv_backward *b) {
    const gpu_map &in = f ? f->in : b->in, &out = f ? f->out : b->out.g;
    const bool norm = f ? f->norm.mean != nullptr : b->norm.mean || b->in_g.data;
    return in.type == out.type && in.channels % (norm ? 8 : 4) == 0 && out.channels % 8 == 0;
}

size_t plain_workspace(const gpu_device *device, const void *, const gpu_conv_forward *f,
                       const gpu_conv_backward *b) {
    if (b)
        return scratch_of(*device, *b).bytes;
    return f->norm.mean ? packed_bytes(f->in, gpu_type_bytes(f->in.type)) : 0;
}

/* out = the activated input: at the start of the workspace; without a norm, the input itself. */
cudaError_t activated(const gpu_map &in, const gpu_norm &norm, void *workspace, gpu_map *out,
                      cudaStream_t stream) {
    *out = in;
    if (!norm.mean)
        return cudaSuccess;
    *out = packed(in, workspace, in.type);
    return gpu_activate(&in, &norm, out, stream);
}

cudaError_t plain_forward(const gpu_device *, const void *, const gpu_conv_forward *f,
                          void *workspace, cudaStream_t stream) {
    gpu_map in;
    CHEX_GPU_TRY(activated(f->in, f->norm, workspace, &in, stream));
    CHEX_GPU_TRY(gpu_with_type(in.type, [&](auto t) {
        using T = decltype(t);
        operands<T> o = {};
        o.in = static_cast<const T *>(in.data);
        o.weight = static_cast<const T *>(f->weight);
        o.out = static_cast<T *>(f->out.data);
        o.in_extent = extent_of(in);
        o.out_extent = extent_of(f->out);
        o.window = f->window;
        return CHEX_LAUNCH((forward_kernel<T>),
                           dim3(tiles_of(o.out_extent.pixels, f->out.channels)), dim3(THREADS), 0,
                           stream, o);
    }));
    return f->stats.partial ? gpu_stats_of(&f->out, &f->stats, stream) : cudaSuccess;
}

template <class T>
cudaError_t gradients(const operands<T> &o, int splits, float *dweight, bool data,
                      cudaStream_t stream) {
    const int in = o.in_extent.channels, out = o.gradient_extent.channels;
    const int columns = o.window.kernel * o.window.kernel * in;
    const int64_t count = (int64_t)out * columns;
    CHEX_GPU_TRY(CHEX_LAUNCH((weight_kernel<T>), dim3(tiles_of(out, columns), (unsigned)splits),
                             dim3(THREADS), 0, stream, o));
    CHEX_GPU_TRY(CHEX_LAUNCH((sum_kernel), dim3((unsigned)((count + THREADS - 1) / THREADS)),
                             dim3(THREADS), 0, stream, o.partial, splits, count, dweight));
    if (!data)
        return cudaSuccess;
    return CHEX_LAUNCH((data_kernel<T>), dim3(tiles_of(o.in_extent.pixels, in)), dim3(THREADS), 0,
                       stream, o);
}

cudaError_t plain_backward(const gpu_device *device, const void *, const gpu_conv_backward *b,
                           void *workspace, cudaStream_t stream) {
    const scratch s = scratch_of(*device, *b);
    char *const at = static_cast<char *>(workspace);
    gpu_map in, g = b->out.g;
    CHEX_GPU_TRY(activated(b->in, b->norm, at, &in, stream));
    if (b->out.bsum) {
        g = packed(g, at + s.deferred_grad, g.type);
        CHEX_GPU_TRY(gpu_finish_grad(&b->out, &g, stream));
    }
    const gpu_map dv = packed(b->in, at + s.rest, GPU_F32);
    CHEX_GPU_TRY(gpu_with_type(in.type, [&](auto t) {
        using T = decltype(t);
        operands<T> o = {};
        o.in = static_cast<const T *>(in.data);
        o.weight = static_cast<const T *>(b->weight);
        o.gradient = static_cast<const T *>(g.data);
        o.partial = reinterpret_cast<float *>(at + s.rest);
        o.dv = static_cast<float *>(dv.data);
        o.in_extent = extent_of(in);
        o.gradient_extent = extent_of(g);
        o.window = b->window;
        o.split_pixels = s.split.pixels;
        return gradients(o, s.split.count, b->dweight, b->in_g.data != nullptr, stream);
    }));
    if (!b->in_g.data)
        return cudaSuccess;
    return gpu_mask(&dv, &b->in, &b->norm, &b->in_g, b->add, &b->sums, stream);
}

} // namespace

const struct gpu_conv_algo gpu_conv_algo_plain = {
    "plain", plain_fits, nullptr, nullptr, plain_workspace, plain_forward, plain_backward,
    false,   nullptr,    nullptr, true};
