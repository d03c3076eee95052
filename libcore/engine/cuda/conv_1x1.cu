/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu_way_1x1: 1x1 convolutions with stride 1 in 16-bit types on tensor cores (mma.sync, capability
 * 8.0 and up). Which kernel takes which convolution, and how large its grid is.
 *
 * Forward: conv_1x1_gemm.cuh, BN and ReLU in its prologue, statistics in its epilogue. Backward:
 * the fused kernel of conv_1x1_fused.cuh where the output has at most 128 channels (every
 * bottleneck of DenseNet-121), else the input's gradient by the one and that of the weights by the
 * other.
 *
 * Numerical policy: products of T in fp32, over a block's pixels in order; blocks in double, in
 * order. dU stays in fp32 until it has been masked and summed.
 *
 * Counted, not measured: bytes of memory traffic and FLOP for one image of 224 x 224, c inputs, m
 * outputs, p pixels. Forward: 2 p (c + m) bytes, 2 p c m FLOP. Backward: 4 p c m FLOP and 2 p times
 * 3 c + 2 m bytes with a norm and in_g added to, one c less where it is overwritten; split 4 c + 4
 * m, less a c for no norm and a c for no addition. Weights, 2 c m bytes, and the parts of dW, 128
 * KiB a multiprocessor (written and read), do not grow with the images. MB and MFLOP:
 *
 *                    p      c -> m        forward         backward
 *   dense block 1  3136    64 ->  128   1.20    51.4    2.81   102.8
 *                  3136   224 ->  128   2.21   179.8    5.82   359.7
 *   dense block 2   784   128 ->  128   0.40    25.7    1.00    51.4
 *                   784   480 ->  128   0.95    96.3    2.66   192.7
 *   dense block 3   196   256 ->  128   0.15    12.8    0.40    25.7
 *                   196   992 ->  128   0.44    49.8    1.27    99.5
 *   dense block 4    49   512 ->  128   0.06     6.4    0.18    12.8
 *                    49   992 ->  128   0.11    12.4    0.32    24.9
 *   transition 1    784   256 ->  128   0.60    51.4    1.20   102.8   no norm, overwritten
 *   transition 2    196   512 ->  256   0.30    51.4    0.80   102.8   the same, split
 *   transition 3     49  1024 ->  512   0.15    51.4    0.40   102.8   the same, split
 *   ResNet-50 3     196  1024 ->  256   0.50   102.8    1.61   205.5   no norm, added, split
 *                   196   256 -> 1024   0.50   102.8    1.91   205.5   norm, overwritten, split
 */
#include "engine/cuda/conv_1x1_fused.cuh"
#include "engine/cuda/conv_1x1_gemm.cuh"

enum { ONE_MOST_CHANNELS = 4096, ONE_FUSED_OUT = 128 };

/* ---- forward ---- */

/* How large a product's tile is: 64 rows rows_by, 16 columns cols_by. */
struct one_tile {
    int rows_by, cols_by;
};

template <int PRO, int EPI> static size_t one_gemm_bytes(one_tile t, int k) {
    if (t.rows_by == 4)
        return one_gemm_shape<8, 2, 16, PRO, EPI>::bytes(k);
    return t.cols_by == 8 ? one_gemm_shape<4, 2, 8, PRO, EPI>::bytes(k)
                          : one_gemm_shape<4, 2, 4, PRO, EPI>::bytes(k);
}

static int64_t one_divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* The most blocks that `pieces` are shared among. It grows with them. */
static int one_most_blocks(int64_t pieces, int64_t most) {
    if (most > GPU_MAX_BLOCKS)
        most = GPU_MAX_BLOCKS;
    if (most > pieces)
        most = pieces;
    return most < 1 ? 1 : (int)most;
}
/* How many of those have something to do when each takes as many as the busiest must. */
static int one_even_blocks(int64_t pieces, int64_t most) {
    return (int)one_divide_up(pieces, one_divide_up(pieces, one_most_blocks(pieces, most)));
}

/* Shared memory that gpu_last_block takes besides, with its alignment. */
enum { ONE_STATIC = 256 };
static bool one_has_room(const gpu_device &d, size_t bytes) {
    return bytes + ONE_STATIC <= d.shared_max;
}

/* Of a multiprocessor, which has 1 KiB more than a block may ask for and takes 1 KiB a block. */
static bool one_room_for_two(const gpu_device &d, size_t bytes) {
    return 2 * (bytes + ONE_STATIC) + 1024 <= d.shared_max;
}

/* 256 rows halve the traffic of the weights, where there are rows enough to keep all
 * multiprocessors at it. False: no tile fits into shared memory. */
template <int PRO, int EPI>
static bool one_choose_tile(const gpu_device &d, int64_t rows, int n, int k, one_tile *out) {
    const one_tile tiles[] = {{4, 8}, {2, 8}, {2, 4}};
    for (const one_tile &t : tiles) {
        const bool wide = n > 64 || t.cols_by == 4;
        const bool full =
            t.rows_by == 2 || one_divide_up(rows, 256) * one_divide_up(n, 128) >= d.sms;
        if (t.rows_by == 4 && EPI != ONE_STORE)
            continue;
        if (wide && full && one_has_room(d, one_gemm_bytes<PRO, EPI>(t, k))) {
            *out = t;
            return true;
        }
    }
    return false;
}

template <class T, int WARPS, int MI, int NI, int PRO, int EPI>
static cudaError_t one_launch_gemm(const gpu_device &d, const one_gemm &p, cudaStream_t stream) {
    typedef one_gemm_shape<WARPS, MI, NI, PRO, EPI> S;
    const size_t bytes = S::bytes(p.k);
    const int fit = S::BLOCKS == 2 && one_room_for_two(d, bytes) ? 2 : 1;
    const int col_tiles = (int)one_divide_up(p.n, S::COLS);
    const int blocks = one_even_blocks(one_divide_up(p.rows, S::ROWS), d.sms * fit / col_tiles);
    return CHEX_LAUNCH((one_gemm_kernel<T, WARPS, MI, NI, PRO, EPI>),
                       dim3((unsigned)col_tiles, (unsigned)blocks), dim3(ONE_THREADS), bytes,
                       stream, p);
}

/* Of 256 rows each warp has its own, so that the prologue is made once. Of 128, 8 warps would read
 * the weights from shared memory too often. */
template <class T, int PRO, int EPI>
static cudaError_t one_run_gemm(const gpu_device &d, const one_gemm &p, cudaStream_t stream) {
    one_tile t;
    if (!one_choose_tile<PRO, EPI>(d, p.rows, p.n, p.k, &t))
        return cudaErrorInvalidValue;
    if constexpr (EPI == ONE_STORE)
        if (t.rows_by == 4)
            return one_launch_gemm<T, 8, 2, 16, PRO, EPI>(d, p, stream);
    if (t.cols_by == 8)
        return one_launch_gemm<T, 4, 2, 8, PRO, EPI>(d, p, stream);
    return one_launch_gemm<T, 4, 2, 4, PRO, EPI>(d, p, stream);
}

static bool one_aligned(const void *p) { return (uintptr_t)p % 16 == 0; }

static one_slice one_slice_of(const gpu_map &m) {
    return one_slice{m.data, (unsigned)((size_t)m.pitch * gpu_type_bytes(m.type))};
}

/* Rows of 16-bit weights. */
static one_slice one_weights(const void *w, int columns) {
    return one_slice{const_cast<void *>(w), 2 * (unsigned)columns};
}

template <class T>
static cudaError_t one_forward_as(const gpu_device &d, const gpu_conv_forward &f,
                                  cudaStream_t stream) {
    one_gemm p = {};
    p.rows = (unsigned)gpu_map_pixels(&f.out);
    p.n = f.out.channels;
    p.k = f.in.channels;
    p.a = one_slice_of(f.in);
    p.norm = f.norm;
    p.b = one_weights(f.weight, p.k);
    p.out = one_slice_of(f.out);
    p.stats = f.stats;
    return f.norm.mean ? one_run_gemm<T, ONE_NORM, ONE_STORE>(d, p, stream)
                       : one_run_gemm<T, ONE_PLAIN, ONE_STORE>(d, p, stream);
}

/* ---- backward ---- */

/* How a backward is run. */
struct one_plan {
    bool fused, dgrad; /* dgrad: by itself */
    int pixels;        /* of a tile of the fused or of the weights' kernel */
    int stages;        /* of the fused kernel, with 64 pixels */
    int slices, m_tiles;
    int splits, most_splits; /* with these many pixels; with these or fewer */
};

static bool one_plan_backward(const gpu_device &d, const gpu_conv_backward &b, one_plan *out) {
    const int c = b.in.channels, m = b.out.g.channels;
    const int64_t rows = gpu_map_pixels(&b.in);
    one_plan p = {};
    if (b.in_g.data && m <= ONE_FUSED_OUT) {
        p.stages = one_has_room(d, one_fused_shape<64, 3, true>::BYTES) ? 3 : 2;
        p.pixels = one_has_room(d, one_fused_shape<64, 2, true>::BYTES)   ? 64
                   : one_has_room(d, one_fused_shape<32, 2, true>::BYTES) ? 32
                                                                          : 0;
        p.fused = p.pixels != 0;
    }
    if (!p.fused) {
        one_tile t;
        p.pixels = 64;
        if (!one_has_room(d, one_fused_shape<64, 2, false>::BYTES))
            return false;
        p.dgrad = b.in_g.data != nullptr;
        if (p.dgrad && !(b.out.bsum ? one_choose_tile<ONE_TAKEN, ONE_MASK>(d, rows, c, m, &t)
                                    : one_choose_tile<ONE_PLAIN, ONE_MASK>(d, rows, c, m, &t)))
            return false;
    }
    p.slices = (int)one_divide_up(c, 128);
    p.m_tiles = (int)one_divide_up(m, 128);
    /* The weights' kernel takes half of a multiprocessor's registers, the fused one nearly all. */
    const int fit = !p.fused && one_room_for_two(d, one_fused_shape<64, 2, false>::BYTES) ? 2 : 1;
    const int64_t tiles = one_divide_up(rows, p.pixels), blocks = (int64_t)d.sms * fit;
    p.splits = one_even_blocks(tiles, blocks / (p.slices * p.m_tiles));
    p.most_splits = one_most_blocks(tiles, blocks / (p.slices * p.m_tiles));
    *out = p;
    return true;
}

static one_mask one_mask_of(const gpu_conv_backward &b) {
    one_mask m = {};
    m.x = one_slice_of(b.in);
    m.g = one_slice_of(b.in_g);
    m.norm = b.norm;
    m.add = b.add;
    if (b.norm.mean)
        m.sums = b.sums;
    return m;
}

template <class T>
static cudaError_t one_dgrad(const gpu_device &d, const gpu_conv_backward &b, cudaStream_t stream) {
    one_gemm p = {};
    p.rows = (unsigned)gpu_map_pixels(&b.in);
    p.n = b.in.channels;
    p.k = b.out.g.channels;
    p.a = one_slice_of(b.out.g);
    p.a_x = one_slice_of(b.out.x);
    p.bsum = b.out.bsum;
    p.csum = b.out.csum;
    p.b = one_weights(b.weight_t, p.k);
    p.mask = one_mask_of(b);
    if (b.norm.mean)
        return b.out.bsum ? one_run_gemm<T, ONE_TAKEN, ONE_MASK>(d, p, stream)
                          : one_run_gemm<T, ONE_PLAIN, ONE_MASK>(d, p, stream);
    return b.out.bsum ? one_run_gemm<T, ONE_TAKEN, ONE_ADD>(d, p, stream)
                      : one_run_gemm<T, ONE_PLAIN, ONE_ADD>(d, p, stream);
}

template <class T, int PIXELS, int STAGES, bool DGRAD>
static cudaError_t one_launch_fused(const one_fused &p, dim3 blocks, cudaStream_t stream) {
    const size_t bytes = one_fused_shape<PIXELS, STAGES, DGRAD>::BYTES;
    if (p.mask.norm.mean)
        return CHEX_LAUNCH((one_fused_kernel<T, PIXELS, STAGES, true, DGRAD>), blocks,
                           dim3(ONE_THREADS), bytes, stream, p);
    return CHEX_LAUNCH((one_fused_kernel<T, PIXELS, STAGES, false, DGRAD>), blocks,
                       dim3(ONE_THREADS), bytes, stream, p);
}

template <class T>
static cudaError_t one_backward_as(const gpu_device &d, const gpu_conv_backward &b, void *workspace,
                                   cudaStream_t stream) {
    one_plan plan;
    if (!one_plan_backward(d, b, &plan))
        return cudaErrorInvalidValue;
    if (plan.dgrad)
        CHEX_GPU_TRY(one_dgrad<T>(d, b, stream));
    one_fused p = {};
    p.rows = (unsigned)gpu_map_pixels(&b.in);
    p.m = b.out.g.channels;
    p.c = b.in.channels;
    p.g = one_slice_of(b.out.g);
    p.z = one_slice_of(b.out.bsum ? b.out.x : b.out.g); /* copied from it or not, it is there */
    p.bsum = b.out.bsum;
    p.csum = b.out.csum;
    p.weight_t = b.weight_t;
    p.mask = one_mask_of(b);
    p.parts = static_cast<float *>(workspace);
    p.each = p.c / 32 / plan.slices;
    p.more = p.c / 32 % plan.slices;
    const dim3 blocks((unsigned)plan.slices, (unsigned)plan.m_tiles, (unsigned)plan.splits);
    if (!plan.fused)
        CHEX_GPU_TRY((one_launch_fused<T, 64, 2, false>(p, blocks, stream)));
    else if (plan.stages == 3)
        CHEX_GPU_TRY((one_launch_fused<T, 64, 3, true>(p, blocks, stream)));
    else if (plan.pixels == 64)
        CHEX_GPU_TRY((one_launch_fused<T, 64, 2, true>(p, blocks, stream)));
    else
        CHEX_GPU_TRY((one_launch_fused<T, 32, 2, true>(p, blocks, stream)));
    const int64_t count = (int64_t)p.m * p.c;
    return CHEX_LAUNCH(one_reduce_kernel, dim3((unsigned)(count / 128)), dim3(ONE_THREADS), 0,
                       stream, static_cast<const float *>(p.parts), plan.splits, count, b.dweight);
}

/* ---- the way ---- */

/* Slices as the kernels copy them: runs of 16 bytes. */
static bool one_takes_map(const gpu_map &m, enum gpu_type type) {
    return m.type == type && m.channels >= 32 && m.channels % 32 == 0 &&
           m.channels <= ONE_MOST_CHANNELS && m.pitch % 32 == 0 && m.pitch < 1 << 24 &&
           gpu_map_pixels(&m) < (int64_t)1 << 31;
}
static bool one_takes_window(gpu_window w) { return w.kernel == 1 && w.stride == 1 && w.pad == 0; }

static bool one_fits_forward(const gpu_device &d, const gpu_conv_forward &f) {
    one_tile t;
    const enum gpu_type type = f.in.type;
    if (type == GPU_F32 || !one_takes_window(f.window) || !one_takes_map(f.in, type) ||
        !one_takes_map(f.out, type) || (f.norm.mean && !f.norm.relu))
        return false;
    const int64_t rows = gpu_map_pixels(&f.out);
    return f.norm.mean
               ? one_choose_tile<ONE_NORM, ONE_STORE>(d, rows, f.out.channels, f.in.channels, &t)
               : one_choose_tile<ONE_PLAIN, ONE_STORE>(d, rows, f.out.channels, f.in.channels, &t);
}

static bool one_fits_backward(const gpu_device &d, const gpu_conv_backward &b) {
    one_plan p;
    const enum gpu_type type = b.in.type;
    return type != GPU_F32 && one_takes_window(b.window) && one_takes_map(b.in, type) &&
           one_takes_map(b.out.g, type) && (!b.out.bsum || one_takes_map(b.out.x, type)) &&
           (!b.in_g.data || one_takes_map(b.in_g, type)) && !(b.norm.mean && !b.norm.relu) &&
           one_plan_backward(d, b, &p);
}

static bool one_fits(const gpu_device *d, const gpu_conv_forward *f, const gpu_conv_backward *b) {
    if (d->capability < 80)
        return false;
    return f ? one_fits_forward(*d, *f) : one_fits_backward(*d, *b);
}

/* dW's parts. What is enough for a batch is enough for smaller ones. */
static size_t one_workspace(const gpu_device *d, const void *, const gpu_conv_forward *,
                            const gpu_conv_backward *b) {
    one_plan p;
    if (!b || !one_plan_backward(*d, *b, &p))
        return 0;
    return (size_t)p.most_splits * (size_t)b->in.channels * (size_t)b->out.g.channels *
           sizeof(float);
}

static cudaError_t one_forward(const gpu_device *d, const void *, const gpu_conv_forward *f, void *,
                               cudaStream_t stream) {
    if (!one_aligned(f->in.data) || !one_aligned(f->out.data) || !one_aligned(f->weight))
        return cudaErrorInvalidValue;
    return f->in.type == GPU_BF16 ? one_forward_as<gpu_bf16>(*d, *f, stream)
                                  : one_forward_as<gpu_f16>(*d, *f, stream);
}

static cudaError_t one_backward(const gpu_device *d, const void *, const gpu_conv_backward *b,
                                void *workspace, cudaStream_t stream) {
    if (!one_aligned(b->in.data) || !one_aligned(b->in_g.data) || !one_aligned(b->out.g.data) ||
        !one_aligned(b->out.x.data) || !one_aligned(b->weight_t) || !one_aligned(workspace))
        return cudaErrorInvalidValue;
    return b->in.type == GPU_BF16 ? one_backward_as<gpu_bf16>(*d, *b, workspace, stream)
                                  : one_backward_as<gpu_f16>(*d, *b, workspace, stream);
}

const gpu_way gpu_way_1x1 = {"1x1",         one_fits,    nullptr,     nullptr,
                             one_workspace, one_forward, one_backward};
