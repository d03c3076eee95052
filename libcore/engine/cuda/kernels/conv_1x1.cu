/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu_conv_algo_1x1: 1x1 convolutions with stride 1 in 16-bit types on tensor cores (mma.sync,
 * capability 8.0 and up). This file chooses the kernel and the grid of each convolution.
 *
 * Forward: conv_1x1_gemm.cuh, with batch norm and ReLU in the prologue and statistics in the
 * epilogue. Backward: the fused kernel of conv_1x1_fused.cuh, if the output has at most 128
 * channels (every bottleneck of DenseNet-121). Or conv_1x1_gemm.cuh computes the data gradient, and
 * conv_1x1_fused.cuh the weight gradient only ("split").
 *
 * Variants: the tiles of the product; fused with a number of pixels and stages, or split with a
 * tile. Variant 0 is a guess, made from the counts below and from what fits in shared memory.
 *
 * Numerics. Products of T are summed in fp32 over a block's pixels, in order; blocks in double, in
 * order. dU stays in fp32 until it is masked and summed.
 *
 * Cost model (counted, not measured), for one image of 224 x 224, c inputs, m outputs, p pixels:
 *   - Forward: 2 p (c + m) bytes, 2 p c m FLOP.
 *   - Backward: 4 p c m FLOP. Fused: 2 p (3 c + 2 m) bytes with a norm and addition to in_g; one c
 *     less if in_g is overwritten. Split: 2 p (4 c + 4 m) bytes; one c less without a norm, one c
 *     less without addition.
 *   - Weights (2 c m bytes) and the parts of dW (128 KiB per multiprocessor, written and read) do
 *     not grow with the number of images.
 * Values in MB and MFLOP:
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
#include <cstdio>

#include "engine/cuda/kernels/conv_1x1_fused.cuh"
#include "engine/cuda/kernels/conv_1x1_gemm.cuh"

enum { CONV1X1_FUSED_OUT = 128 };

/* ---- forward ---- */

/* Size of a product's tile: 64 * rows_by rows, 16 * cols_by columns. Tile numbers are indices in
 * conv1x1_tiles plus 1; 0: none, or the guess. */
struct conv1x1_tile {
    int rows_by, cols_by;
};
enum { CONV1X1_TILES = 3 };
static const conv1x1_tile conv1x1_tiles[CONV1X1_TILES] = {{4, 8}, {2, 8}, {2, 4}};

template <int PRO, int EPI> static size_t conv1x1_gemm_bytes(conv1x1_tile t, int k) {
    if (t.rows_by == 4)
        return conv1x1_gemm_shape<8, 2, 16, PRO, EPI>::bytes(k);
    return t.cols_by == 8 ? conv1x1_gemm_shape<4, 2, 8, PRO, EPI>::bytes(k)
                          : conv1x1_gemm_shape<4, 2, 4, PRO, EPI>::bytes(k);
}

/* Whether two blocks fit on a multiprocessor. It has 1 KiB more than one block may use, and each
 * block costs 1 KiB extra. */
static bool conv1x1_shared_fits_twice(const gpu_device &d, size_t bytes) {
    return 2 * (bytes + CONV1X1_STATIC) + 1024 <= d.shared_max;
}

template <int PRO, int EPI>
static bool conv1x1_tile_fits(const gpu_device &d, conv1x1_tile t, int n, int k) {
    return (n > 64 || t.cols_by == 4) && (t.rows_by == 2 || EPI == CONV1X1_STORE) &&
           conv1x1_shared_fits(d, conv1x1_gemm_bytes<PRO, EPI>(t, k));
}

/* The number of the tile `asked`, or of the guess if that is 0: 256 rows halve the traffic of the
 * weights, but only if there are enough rows for all multiprocessors. Result 0: it does not fit in
 * shared memory. */
template <int PRO, int EPI>
static int conv1x1_choose_tile(const gpu_device &d, int64_t rows, int n, int k, int asked) {
    for (int i = 0; i < CONV1X1_TILES; i++) {
        const conv1x1_tile t = conv1x1_tiles[i];
        const bool full =
            t.rows_by == 2 || conv1x1_divide_up(rows, 256) * conv1x1_divide_up(n, 128) >= d.sms;
        if ((asked ? asked == i + 1 : full) && conv1x1_tile_fits<PRO, EPI>(d, t, n, k))
            return i + 1;
    }
    return 0;
}

template <class T, int WARPS, int MI, int NI, int PRO, int EPI>
static cudaError_t conv1x1_launch_gemm(const gpu_device &d, const conv1x1_gemm &p,
                                       cudaStream_t stream) {
    typedef conv1x1_gemm_shape<WARPS, MI, NI, PRO, EPI> S;
    const size_t bytes = S::bytes(p.k);
    const int fit = S::BLOCKS == 2 && conv1x1_shared_fits_twice(d, bytes) ? 2 : 1;
    const int col_tiles = (int)conv1x1_divide_up(p.n, S::COLS);
    const int blocks =
        conv1x1_even_blocks(conv1x1_divide_up(p.rows, S::ROWS), d.sms * fit / col_tiles);
    return CHEX_LAUNCH((conv1x1_gemm_kernel<T, WARPS, MI, NI, PRO, EPI>),
                       dim3((unsigned)col_tiles, (unsigned)blocks), dim3(CONV1X1_THREADS), bytes,
                       stream, p);
}

/* With 256 rows each warp has its own rows, so the prologue is computed once. With 128 rows this
 * would make 8 warps read the weights from shared memory too often. */
template <class T, int PRO, int EPI>
static cudaError_t conv1x1_run_gemm(const gpu_device &d, const conv1x1_gemm &p, int asked,
                                    cudaStream_t stream) {
    const int chosen = conv1x1_choose_tile<PRO, EPI>(d, p.rows, p.n, p.k, asked);
    if (!chosen)
        return cudaErrorInvalidValue;
    const conv1x1_tile t = conv1x1_tiles[chosen - 1];
    if constexpr (EPI == CONV1X1_STORE)
        if (t.rows_by == 4)
            return conv1x1_launch_gemm<T, 8, 2, 16, PRO, EPI>(d, p, stream);
    if (t.cols_by == 8)
        return conv1x1_launch_gemm<T, 4, 2, 8, PRO, EPI>(d, p, stream);
    return conv1x1_launch_gemm<T, 4, 2, 4, PRO, EPI>(d, p, stream);
}

template <class T>
static cudaError_t conv1x1_forward_as(const gpu_device &d, const gpu_conv_forward &f,
                                      cudaStream_t stream) {
    conv1x1_gemm p = {};
    p.rows = (unsigned)gpu_map_pixels(&f.out);
    p.n = f.out.channels;
    p.k = f.in.channels;
    p.a = conv1x1_slice_of(f.in);
    p.norm = f.norm;
    p.b = conv1x1_weights(f.weight, p.k);
    p.out = conv1x1_slice_of(f.out);
    p.stats = f.stats;
    return f.norm.mean ? conv1x1_run_gemm<T, CONV1X1_NORM, CONV1X1_STORE>(d, p, f.variant, stream)
                       : conv1x1_run_gemm<T, CONV1X1_PLAIN, CONV1X1_STORE>(d, p, f.variant, stream);
}

/* ---- backward ---- */

/* Variants of backward; those of forward are tile numbers. */
enum {
    CONV1X1_FUSED_64_3 = 1, /* fused, 64 pixels, 3 stages */
    CONV1X1_FUSED_64_2,
    CONV1X1_FUSED_32_2,
    CONV1X1_SPLIT, /* split, with the tiles from number 2 on */
    CONV1X1_SPLIT_LAST = CONV1X1_SPLIT + CONV1X1_TILES - 2,
};

/* The kernels and grid of a backward. */
struct conv1x1_plan {
    bool fused, dgrad; /* dgrad: a separate kernel computes the data gradient */
    int tile;          /* of that kernel */
    int pixels;        /* pixels of a tile of the fused or weight gradient kernel */
    int stages;        /* of it */
    int slices, m_tiles;
    int splits, most_splits; /* for this number of pixels; upper limit for fewer pixels too */
};

/* The fused kernel: of variant 0 the most pixels and stages that fit. */
static bool conv1x1_plan_fused(const gpu_device &d, const gpu_conv_backward &b, conv1x1_plan *p) {
    const size_t bytes[] = {conv1x1_fused_shape<64, 3, true>::BYTES,
                            conv1x1_fused_shape<64, 2, true>::BYTES,
                            conv1x1_fused_shape<32, 2, true>::BYTES};
    if (!b.in_g.data || b.out.g.channels > CONV1X1_FUSED_OUT)
        return false;
    for (int v = CONV1X1_FUSED_64_3; v <= CONV1X1_FUSED_32_2; v++)
        if ((!b.variant || b.variant == v) &&
            conv1x1_shared_fits(d, bytes[v - CONV1X1_FUSED_64_3])) {
            p->fused = true;
            p->pixels = v == CONV1X1_FUSED_32_2 ? 32 : 64;
            p->stages = v == CONV1X1_FUSED_64_3 ? 3 : 2;
            return true;
        }
    return false;
}

static bool conv1x1_plan_split(const gpu_device &d, const gpu_conv_backward &b, int64_t rows,
                               conv1x1_plan *p) {
    const int c = b.in.channels, m = b.out.g.channels;
    const int asked = b.variant ? b.variant - CONV1X1_SPLIT + 2 : 0;
    p->pixels = 64;
    p->stages = 2;
    p->dgrad = b.in_g.data != nullptr;
    if ((p->dgrad && b.variant && b.variant < CONV1X1_SPLIT) || b.variant > CONV1X1_SPLIT_LAST ||
        !conv1x1_shared_fits(d, conv1x1_fused_shape<64, 2, false>::BYTES))
        return false;
    if (p->dgrad)
        p->tile = b.out.bsum
                      ? conv1x1_choose_tile<CONV1X1_DEFERRED, CONV1X1_MASK>(d, rows, c, m, asked)
                      : conv1x1_choose_tile<CONV1X1_PLAIN, CONV1X1_MASK>(d, rows, c, m, asked);
    return !p->dgrad || p->tile;
}

static bool conv1x1_plan_backward(const gpu_device &d, const gpu_conv_backward &b,
                                  conv1x1_plan *out) {
    const int c = b.in.channels, m = b.out.g.channels;
    const int64_t rows = gpu_map_pixels(&b.in);
    conv1x1_plan p = {};
    if (!conv1x1_plan_fused(d, b, &p) && !conv1x1_plan_split(d, b, rows, &p))
        return false;
    p.slices = (int)conv1x1_divide_up(c, 128);
    p.m_tiles = (int)conv1x1_divide_up(m, 128);
    /* The weight gradient kernel uses half of a multiprocessor's registers, the fused one nearly
     * all. */
    const int fit =
        !p.fused && conv1x1_shared_fits_twice(d, conv1x1_fused_shape<64, 2, false>::BYTES) ? 2 : 1;
    const int64_t tiles = conv1x1_divide_up(rows, p.pixels), blocks = (int64_t)d.sms * fit;
    p.splits = conv1x1_even_blocks(tiles, blocks / (p.slices * p.m_tiles));
    p.most_splits = conv1x1_most_blocks(tiles, blocks / (p.slices * p.m_tiles));
    *out = p;
    return true;
}

template <class T>
static cudaError_t conv1x1_dgrad(const gpu_device &d, const gpu_conv_backward &b, int tile,
                                 cudaStream_t stream) {
    conv1x1_gemm p = {};
    p.rows = (unsigned)gpu_map_pixels(&b.in);
    p.n = b.in.channels;
    p.k = b.out.g.channels;
    p.a = conv1x1_slice_of(b.out.g);
    p.a_x = conv1x1_slice_of(b.out.x);
    p.bsum = b.out.bsum;
    p.csum = b.out.csum;
    p.b = conv1x1_weights(b.weight_t, p.k);
    p.mask = conv1x1_mask_of(b);
    if (b.norm.mean)
        return b.out.bsum ? conv1x1_run_gemm<T, CONV1X1_DEFERRED, CONV1X1_MASK>(d, p, tile, stream)
                          : conv1x1_run_gemm<T, CONV1X1_PLAIN, CONV1X1_MASK>(d, p, tile, stream);
    return b.out.bsum ? conv1x1_run_gemm<T, CONV1X1_DEFERRED, CONV1X1_ADD>(d, p, tile, stream)
                      : conv1x1_run_gemm<T, CONV1X1_PLAIN, CONV1X1_ADD>(d, p, tile, stream);
}

template <class T, int PIXELS, int STAGES, bool DGRAD>
static cudaError_t conv1x1_launch_fused(const conv1x1_fused &p, dim3 blocks, cudaStream_t stream) {
    const size_t bytes = conv1x1_fused_shape<PIXELS, STAGES, DGRAD>::BYTES;
    if (p.mask.norm.mean)
        return CHEX_LAUNCH((conv1x1_fused_kernel<T, PIXELS, STAGES, true, DGRAD>), blocks,
                           dim3(CONV1X1_THREADS), bytes, stream, p);
    return CHEX_LAUNCH((conv1x1_fused_kernel<T, PIXELS, STAGES, false, DGRAD>), blocks,
                       dim3(CONV1X1_THREADS), bytes, stream, p);
}

template <class T>
static cudaError_t conv1x1_backward_as(const gpu_device &d, const gpu_conv_backward &b,
                                       void *workspace, cudaStream_t stream) {
    conv1x1_plan plan;
    if (!conv1x1_plan_backward(d, b, &plan))
        return cudaErrorInvalidValue;
    if (plan.dgrad)
        CHEX_GPU_TRY(conv1x1_dgrad<T>(d, b, plan.tile, stream));
    conv1x1_fused p = conv1x1_fused_of(b, workspace);
    p.each = p.c / 32 / plan.slices;
    p.more = p.c / 32 % plan.slices;
    const dim3 blocks((unsigned)plan.slices, (unsigned)plan.m_tiles, (unsigned)plan.splits);
    if (!plan.fused)
        CHEX_GPU_TRY((conv1x1_launch_fused<T, 64, 2, false>(p, blocks, stream)));
    else if (plan.stages == 3)
        CHEX_GPU_TRY((conv1x1_launch_fused<T, 64, 3, true>(p, blocks, stream)));
    else if (plan.pixels == 64)
        CHEX_GPU_TRY((conv1x1_launch_fused<T, 64, 2, true>(p, blocks, stream)));
    else
        CHEX_GPU_TRY((conv1x1_launch_fused<T, 32, 2, true>(p, blocks, stream)));
    return gpu_launch_add_parts(b.side, p.parts, plan.splits, (int64_t)p.m * p.c, b.dweight,
                                stream);
}

/* ---- the algorithm ---- */

/* The number of the tile of forward; 0: none fits. */
static int conv1x1_forward_tile(const gpu_device &d, const gpu_conv_forward &f) {
    const int64_t rows = gpu_map_pixels(&f.out);
    const int n = f.out.channels, k = f.in.channels;
    return f.norm.mean
               ? conv1x1_choose_tile<CONV1X1_NORM, CONV1X1_STORE>(d, rows, n, k, f.variant)
               : conv1x1_choose_tile<CONV1X1_PLAIN, CONV1X1_STORE>(d, rows, n, k, f.variant);
}

static bool conv1x1_fits(const gpu_device *d, const gpu_conv_forward *f,
                         const gpu_conv_backward *b) {
    conv1x1_plan p;
    if (d->capability < 80)
        return false;
    return f ? conv1x1_takes_forward(*f) && conv1x1_forward_tile(*d, *f)
             : conv1x1_takes_backward(*b) && conv1x1_plan_backward(*d, *b, &p);
}

/* Memory for the parts of dW. Smaller batches never need more. */
static size_t conv1x1_workspace(const gpu_device *d, const void *, const gpu_conv_forward *,
                                const gpu_conv_backward *b) {
    conv1x1_plan p;
    if (!b || !conv1x1_plan_backward(*d, *b, &p))
        return 0;
    return (size_t)p.most_splits * (size_t)b->in.channels * (size_t)b->out.g.channels *
           sizeof(float);
}

static cudaError_t conv1x1_forward(const gpu_device *d, const void *, const gpu_conv_forward *f,
                                   void *, cudaStream_t stream) {
    if (!conv1x1_is_aligned(*f))
        return cudaErrorInvalidValue;
    return f->in.type == GPU_BF16 ? conv1x1_forward_as<gpu_bf16>(*d, *f, stream)
                                  : conv1x1_forward_as<gpu_f16>(*d, *f, stream);
}

static cudaError_t conv1x1_backward(const gpu_device *d, const void *, const gpu_conv_backward *b,
                                    void *workspace, cudaStream_t stream) {
    if (!conv1x1_aligned(b->in.data) || !conv1x1_aligned(b->in_g.data) ||
        !conv1x1_aligned(b->out.g.data) || !conv1x1_aligned(b->out.x.data) ||
        !conv1x1_aligned(b->weight_t) || !conv1x1_aligned(workspace))
        return cudaErrorInvalidValue;
    return b->in.type == GPU_BF16 ? conv1x1_backward_as<gpu_bf16>(*d, *b, workspace, stream)
                                  : conv1x1_backward_as<gpu_f16>(*d, *b, workspace, stream);
}

static int conv1x1_variants(const gpu_device *d, const gpu_conv_forward *f,
                            const gpu_conv_backward *b, int *out) {
    int count = 1;
    out[0] = 0;
    for (int v = 1; f && v <= CONV1X1_TILES; v++) {
        gpu_conv_forward as = *f;
        as.variant = v;
        if (v != conv1x1_forward_tile(*d, *f) && conv1x1_forward_tile(*d, as))
            out[count++] = v;
    }
    conv1x1_plan guess;
    for (int v = 1; b && v <= CONV1X1_SPLIT_LAST && conv1x1_plan_backward(*d, *b, &guess); v++) {
        gpu_conv_backward as = *b;
        conv1x1_plan p;
        as.variant = v;
        if (conv1x1_plan_backward(*d, as, &p) &&
            (p.fused != guess.fused || p.tile != guess.tile || p.pixels != guess.pixels ||
             p.stages != guess.stages))
            out[count++] = v;
    }
    return count;
}

static void conv1x1_variant_name(bool backward, int variant, char *out) {
    const bool split = backward && variant >= CONV1X1_SPLIT;
    if (backward && !split) {
        snprintf(out, GPU_VARIANT_BYTES, "fused %dx%d", variant == CONV1X1_FUSED_32_2 ? 32 : 64,
                 variant == CONV1X1_FUSED_64_3 ? 3 : 2);
        return;
    }
    const conv1x1_tile t = conv1x1_tiles[split ? variant - CONV1X1_SPLIT + 1 : variant - 1];
    snprintf(out, GPU_VARIANT_BYTES, "%s%dx%d", split ? "split " : "", 64 * t.rows_by,
             16 * t.cols_by);
}

const gpu_conv_algo gpu_conv_algo_1x1 = {
    "1x1",           conv1x1_fits,     nullptr, nullptr,          conv1x1_workspace,
    conv1x1_forward, conv1x1_backward, true,    conv1x1_variants, conv1x1_variant_name};
