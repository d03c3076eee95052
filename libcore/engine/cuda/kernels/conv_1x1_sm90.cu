/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu_conv_algo_1x1_sm90: forward 1x1 convolutions with stride 1 in 16-bit types by TMA and wgmma
 * (capability 9.0 only). This file chooses the tile and the grid of each convolution; the kernel is
 * in conv_1x1_wgmma.cuh. There is no backward.
 *
 * Numerics. As in conv_1x1.cu: products of T are summed in fp32 over a block's pixels, in order;
 * blocks in double, in order.
 *
 * Counted, not measured: the 61 forward 1x1 convolutions of DenseNet-121, 224 px, 256 images, 132
 * multiprocessors. Each keeps 97 % of the multiprocessors busy or more; conv_1x1.cu leaves 26 % of
 * them idle in 40 of the 61. Both read 5.0 GB of input through L2, and this kernel 0.9 GB of
 * weights instead of 2.6 GB. DRAM moves 7.1 GB for both.
 */
#include "engine/cuda/host/tensor_map.h"
#include "engine/cuda/kernels/conv_1x1_wgmma.cuh"

struct conv1x1_wgmma_plan {
    int parts; /* of a warpgroup in a tile: 1 or 2 */
    int cols;  /* of a tile: 64 or 128 */
    bool pair;
    int stages, box, tiles;
    int col_tiles, blocks; /* blocks: for each column tile */
    size_t bytes;          /* of shared memory */
};

/* Chooses the number of stages. False: fewer than `least` fit in shared memory. */
template <class S>
static bool conv1x1_wgmma_fit(const gpu_device &d, int k, int least, conv1x1_wgmma_plan *out) {
    const size_t most =
        d.shared_max < CONV1X1_WGMMA_STATIC ? 0 : d.shared_max - CONV1X1_WGMMA_STATIC;
    out->parts = S::MI;
    out->cols = S::COLS;
    out->pair = S::PAIR;
    out->stages = S::stages(most, k);
    if (out->stages < least)
        return false;
    out->bytes = S::bytes(k, out->stages);
    return true;
}

/* rows: of a block. If they are one tile, W is used once. Otherwise W stays in shared memory, or
 * tiles have twice the rows (the limits on stages are guesses: not measured). */
static bool conv1x1_wgmma_choose(const gpu_device &d, int64_t rows, int n, int k,
                                 conv1x1_wgmma_plan *out) {
    const bool several = rows > 128;
    if (n <= 64)
        return (several && conv1x1_wgmma_fit<conv1x1_wgmma_shape<1, 8, false>>(d, k, 3, out)) ||
               conv1x1_wgmma_fit<conv1x1_wgmma_shape<1, 8, true>>(d, k, 2, out);
    return (several && (conv1x1_wgmma_fit<conv1x1_wgmma_shape<1, 16, false>>(d, k, 3, out) ||
                        conv1x1_wgmma_fit<conv1x1_wgmma_shape<2, 16, true>>(d, k, 3, out))) ||
           conv1x1_wgmma_fit<conv1x1_wgmma_shape<1, 16, true>>(d, k, 2, out);
}

/* Equally high tiles. A part has at least 16 rows: with fewer, copies of W take the time, and more
 * blocks do not help. */
static bool conv1x1_wgmma_plan_of(const gpu_device &d, int64_t rows, int n, int k,
                                  conv1x1_wgmma_plan *out) {
    conv1x1_wgmma_plan p = {};
    p.col_tiles = (int)conv1x1_divide_up(n, n <= 64 ? 64 : 128);
    int most = conv1x1_most_blocks(rows, d.sms / p.col_tiles);
    if (rows > INT32_MAX - 256 * (GPU_MAX_BLOCKS + 1) || /* tiles past the last row have numbers */
        !conv1x1_wgmma_choose(d, conv1x1_divide_up(rows, most), n, k, &p))
        return false;
    if (p.pair)
        most = most < 2 ? 2 : most / 2 * 2;
    const int parts = 2 * p.parts;
    const int64_t each = conv1x1_divide_up(rows, most);
    p.box = (int)conv1x1_divide_up(each, conv1x1_divide_up(each, 64 * parts) * parts);
    p.box = p.box < 16 ? 16 : p.box;
    const int64_t all = conv1x1_divide_up(rows, parts * p.box);
    p.tiles = (int)conv1x1_divide_up(all, most);
    p.blocks = (int)conv1x1_divide_up(all, p.tiles);
    p.blocks += p.pair ? p.blocks % 2 : 0;
    *out = p;
    return true;
}

template <class T, int MI, int NI, bool PAIR, int PRO>
static cudaError_t conv1x1_wgmma_launch_as(const conv1x1_wgmma_plan &plan, const conv1x1_wgmma &p,
                                           cudaStream_t stream) {
    const dim3 grid((unsigned)plan.col_tiles, (unsigned)plan.blocks);
    if (PAIR)
        return CHEX_LAUNCH_CLUSTER((conv1x1_wgmma_kernel<T, MI, NI, PAIR, PRO>), grid,
                                   dim3(CONV1X1_WGMMA_THREADS), dim3(1, 2), plan.bytes, stream, p);
    return CHEX_LAUNCH((conv1x1_wgmma_kernel<T, MI, NI, PAIR, PRO>), grid,
                       dim3(CONV1X1_WGMMA_THREADS), plan.bytes, stream, p);
}

template <class T, int MI, int NI, bool PAIR>
static cudaError_t conv1x1_wgmma_launch(const conv1x1_wgmma_plan &plan, const conv1x1_wgmma &p,
                                        cudaStream_t stream) {
    return p.norm.mean ? conv1x1_wgmma_launch_as<T, MI, NI, PAIR, CONV1X1_NORM>(plan, p, stream)
                       : conv1x1_wgmma_launch_as<T, MI, NI, PAIR, CONV1X1_PLAIN>(plan, p, stream);
}

template <class T>
static cudaError_t conv1x1_wgmma_forward_as(const gpu_device &d, const gpu_conv_forward &f,
                                            cudaStream_t stream) {
    conv1x1_wgmma_plan plan;
    conv1x1_wgmma p = {};
    p.rows = (unsigned)gpu_map_pixels(&f.out);
    p.n = f.out.channels;
    p.k = f.in.channels;
    if (!conv1x1_wgmma_plan_of(d, p.rows, p.n, p.k, &plan))
        return cudaErrorInvalidValue;
    p.box = plan.box;
    p.tiles = plan.tiles;
    p.stages = plan.stages;
    p.norm = f.norm;
    p.out = conv1x1_slice_of(f.out);
    p.stats = f.stats;
    const gpu_tensor in = gpu_tensor_of(&f.in);
    const gpu_tensor weight = {const_cast<void *>(f.weight), f.in.type, p.n, p.k, p.k};
    const int weight_box = plan.pair ? plan.cols / 2 : plan.cols;
    CHEX_GPU_TRY(gpu_tensor_map(&p.in, &in, CONV1X1_WGMMA_K, p.box, GPU_SWIZZLE_128));
    CHEX_GPU_TRY(gpu_tensor_map(&p.weight, &weight, CONV1X1_WGMMA_K, weight_box, GPU_SWIZZLE_128));
    if (plan.cols == 64)
        return plan.pair ? conv1x1_wgmma_launch<T, 1, 8, true>(plan, p, stream)
                         : conv1x1_wgmma_launch<T, 1, 8, false>(plan, p, stream);
    if (plan.parts == 2)
        return conv1x1_wgmma_launch<T, 2, 16, true>(plan, p, stream);
    return plan.pair ? conv1x1_wgmma_launch<T, 1, 16, true>(plan, p, stream)
                     : conv1x1_wgmma_launch<T, 1, 16, false>(plan, p, stream);
}

/* ---- the algorithm: forward only ---- */

/* Whether the device can run a pair of blocks at all. */
static bool conv1x1_wgmma_pairs(const conv1x1_wgmma_plan &plan) {
    int pairs = 0;
    return gpu_active_clusters(conv1x1_wgmma_kernel<gpu_bf16, 2, 16, true, CONV1X1_NORM>,
                               dim3(CONV1X1_WGMMA_THREADS), dim3(1, 2), plan.bytes,
                               &pairs) == cudaSuccess &&
           pairs > 0;
}

static bool conv1x1_wgmma_fits(const gpu_device *d, const gpu_conv_forward *f,
                               const gpu_conv_backward *) {
    conv1x1_wgmma_plan p;
    return d->capability == 90 && f && conv1x1_takes_forward(*f) &&
           conv1x1_wgmma_plan_of(*d, gpu_map_pixels(&f->out), f->out.channels, f->in.channels,
                                 &p) &&
           conv1x1_wgmma_pairs(p);
}

static size_t conv1x1_wgmma_workspace(const gpu_device *, const void *, const gpu_conv_forward *,
                                      const gpu_conv_backward *) {
    return 0;
}

static cudaError_t conv1x1_wgmma_forward(const gpu_device *d, const void *,
                                         const gpu_conv_forward *f, void *, cudaStream_t stream) {
    if (!conv1x1_is_aligned(*f))
        return cudaErrorInvalidValue;
    return f->in.type == GPU_BF16 ? conv1x1_wgmma_forward_as<gpu_bf16>(*d, *f, stream)
                                  : conv1x1_wgmma_forward_as<gpu_f16>(*d, *f, stream);
}

const gpu_conv_algo gpu_conv_algo_1x1_sm90 = {
    "1x1-wgmma", conv1x1_wgmma_fits,      nullptr,
    nullptr,     conv1x1_wgmma_workspace, conv1x1_wgmma_forward};
