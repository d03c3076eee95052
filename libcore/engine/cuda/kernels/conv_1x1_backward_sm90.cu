/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu_conv_algo_1x1_backward_sm90: the backward of a 1x1 convolution with more than 128 input
 * channels and at most 128 output channels, in one pass over the pixels, by clusters (capability
 * 9.0). The arithmetic is that of conv_1x1_fused.cuh, whose products and mask it uses.
 *
 * The problem. A block has 128 input channels, and each needs the whole tile of dZ's operands: with
 * c input channels they are read c / 128 times, from L2 all times but one. L2 then moves more bytes
 * than memory does.
 *
 * The idea. The blocks of a cluster have the same pixels and different input channels. Each loads a
 * part of the dZ operands and sends it to all blocks of the cluster (multicast). So a cluster reads
 * them once. Blocks with all the channels of a pixel are one or several clusters.
 *
 * A block has 8 warps that compute. One thread of another warpgroup issues all loads, by tensor
 * maps: no address is computed elsewhere, and rows and channels that do not exist are zero. (A
 * ninth warp alone would leave 168 registers for each thread; a warpgroup can give its registers
 * away.) The new G is stored by a bulk copy, too. Stages of shared memory form a ring:
 *   - full[s]: the block's operands have come. One arrival (the loading thread, which says how many
 *     bytes), then the bytes of its own copies and of those that the other blocks send.
 *   - empty[s]: the stage may be overwritten. One arrival from each computing warp of each block of
 *     the cluster, because what a block sends overwrites the stage of all.
 * A computing warp overwrites dZ, x and G in place, so it gives them to the async proxy
 * (gpu_async_fence) before it releases the stage.
 *
 * Layout. A tile of 64 pixels by 128 channels is two halves of 64 channels, each with rows of 128
 * bytes, in the 128-byte swizzle of tensor maps.
 *
 * Bytes that a block reads from L2 for a tile of 64 pixels, m = 128, norm and addition: before 64
 * KiB (g, z, x, G; 16 KiB each), now 32 KiB + 32 KiB / blocks of the cluster: 48 KiB with 2, 40
 * with 4, 36 with 8. Counted, not measured.
 */
#include "engine/cuda/host/device.h"
#include "engine/cuda/host/tensor_map.h"
#include "engine/cuda/kernels/conv_1x1_fused.cuh"
#include "engine/cuda/kernels/hopper.cuh"

enum {
    CONV1X1_CLUSTER_MOST = 8, /* blocks */
    CONV1X1_CLUSTER_THREADS = CONV1X1_THREADS + 128,
    CONV1X1_LOAD_REGISTERS = 40, /* of a thread, after the hand-over */
    CONV1X1_COMPUTE_REGISTERS = 232,
    CONV1X1_CLUSTER_PIXELS = 64,
    CONV1X1_CLUSTER_STAGES = 3,
    CONV1X1_BOX = 64, /* channels of a box, and the unit of a block's input channels */
    CONV1X1_PART = 16 /* pixels of a box that is sent to all blocks */
};
static_assert(gpu_registers_suffice(CONV1X1_THREADS, CONV1X1_COMPUTE_REGISTERS,
                                    CONV1X1_LOAD_REGISTERS),
              "the computing warps would wait for ever");

struct conv1x1_cluster {
    CUtensorMap g, z, x, in_g; /* boxes of 64 channels; g, z: of CONV1X1_PART pixels */
    conv1x1_fused f;           /* `each`, `more`: in units of CONV1X1_BOX channels */
};

/* Layout of shared memory. */
struct conv1x1_halves {
    static constexpr int ROW = 128, HALF = CONV1X1_CLUSTER_PIXELS * ROW;
    static __device__ __forceinline__ int at(int row, int chunk) {
        return (chunk >> 3) * HALF + row * ROW + (((chunk ^ row) & 7) << 4);
    }
};
struct conv1x1_cluster_shape {
    static constexpr int HALF = conv1x1_halves::HALF, TILE = 2 * HALF, STAGE = 4 * TILE;
    static constexpr int DZ = 0, Z = TILE, X = 2 * TILE, G = 3 * TILE; /* offsets in a stage */
    static constexpr int DEFERRED =
        CONV1X1_CLUSTER_STAGES * STAGE;           /* float2[128], as conv1x1_factor_at */
    static constexpr int MARKS = DEFERRED + 1024; /* float4[128] */
    static constexpr int FULL = MARKS + 2048, EMPTY = FULL + 8 * CONV1X1_CLUSTER_STAGES;
    static constexpr size_t BYTES = (size_t)EMPTY + 8 * CONV1X1_CLUSTER_STAGES;
    /* Number of a thread's 16-byte chunks in a tile, and bytes between them (16 pixels). */
    static constexpr int CHUNKS = CONV1X1_CLUSTER_PIXELS / 16, NEXT = 16 * conv1x1_halves::ROW;
};

/* The grid is (slices, 1, splits of the pixels), the cluster (blocks, 1, 1). */
static __device__ __forceinline__ conv1x1_part conv1x1_cluster_part_of(const conv1x1_fused &p) {
    conv1x1_part o;
    o.slice = (int)blockIdx.x;
    o.split = (int)blockIdx.z;
    o.splits = (int)gridDim.z;
    /* Opaque: else their terms are kept instead, in more registers. */
    o.c0 = gpu_fresh((o.slice * p.each + min(o.slice, p.more)) * CONV1X1_BOX);
    o.width = gpu_fresh(min((p.each + (o.slice < p.more)) * CONV1X1_BOX, p.c - o.c0));
    o.m0 = 0;
    o.depth = p.m;
    return o;
}

/* A place in the ring. */
struct conv1x1_ring {
    int slot;
    unsigned parity;
    __device__ __forceinline__ void next() {
        slot = slot + 1 == CONV1X1_CLUSTER_STAGES ? 0 : slot + 1;
        parity ^= slot == 0;
    }
};

/* Loads all stages: the loading thread alone. */
static __device__ __forceinline__ void conv1x1_cluster_load(const conv1x1_cluster &p,
                                                            const conv1x1_part &part,
                                                            unsigned char *shared, unsigned start,
                                                            unsigned stride) {
    typedef conv1x1_cluster_shape S;
    constexpr int PARTS = CONV1X1_CLUSTER_PIXELS / CONV1X1_PART; /* of a side */
    gpu_barrier *const full = reinterpret_cast<gpu_barrier *>(shared + S::FULL);
    gpu_barrier *const empty = reinterpret_cast<gpu_barrier *>(shared + S::EMPTY);
    const int me = (int)gpu_cluster_block(), blocks = (int)gpu_cluster_blocks();
    const int out_halves = (part.depth + CONV1X1_BOX - 1) / CONV1X1_BOX;
    const int in_halves = (part.width + CONV1X1_BOX - 1) / CONV1X1_BOX;
    const int shared_halves = out_halves * (p.f.bsum ? 2 : 1);
    const unsigned bytes = (unsigned)((shared_halves + 2 * in_halves) * S::HALF);
    conv1x1_ring at = {0, 0};
    for (unsigned row0 = start; row0 < p.f.rows; row0 += stride, at.next()) {
        unsigned char *const stage = shared + at.slot * S::STAGE;
        gpu_barrier *const b = full + at.slot;
        gpu_barrier_wait(empty + at.slot, at.parity ^ 1);
        gpu_barrier_expect(b, bytes);
#pragma unroll 1
        for (int i = me; i < shared_halves * PARTS; i += blocks) {
            const int side = i / PARTS % out_halves, row = i % PARTS * CONV1X1_PART;
            const bool z = i / PARTS >= out_halves;
            gpu_tile_load_all(
                stage + (z ? S::Z : S::DZ) + side * S::HALF + row * conv1x1_halves::ROW,
                z ? &p.z : &p.g, side * CONV1X1_BOX, (int)row0 + row, b, (1u << blocks) - 1);
        }
#pragma unroll 1
        for (int side = 0; side < in_halves; side++) {
            const int c = part.c0 + side * CONV1X1_BOX;
            gpu_tile_load(stage + S::X + side * S::HALF, &p.x, c, (int)row0, b);
            /* Rows past the end are zero: the new G, if nothing is added to an old one. */
            gpu_tile_load(stage + S::G + side * S::HALF, &p.in_g, c,
                          (int)(p.f.mask.add ? row0 : p.f.rows), b);
        }
    }
}

/* Completes dZ in place. Each thread completes the same chunks in every tile. */
template <class T>
static __device__ __forceinline__ void
conv1x1_cluster_take(const conv1x1_fused &p, int depth, unsigned char *stage,
                     const float2 *deferred_grad, unsigned row0) {
    typedef conv1x1_cluster_shape S;
    const int thread = gpu_fresh((int)threadIdx.x), row = thread >> 4, chunk = thread & 15;
    if (!p.bsum || chunk * 8 >= depth)
        return;
    const int at = conv1x1_halves::at(row, chunk);
    const conv1x1_factors s = conv1x1_read_factors(deferred_grad, chunk * 8);
#pragma unroll
    for (int i = 0; i < S::CHUNKS; i++) {
        uint4 *const dz = reinterpret_cast<uint4 *>(stage + S::DZ + at + i * S::NEXT);
        const uint4 g = *dz;
        const uint4 z = *reinterpret_cast<const uint4 *>(stage + S::Z + at + i * S::NEXT);
        uint4 v = make_uint4(
            conv1x1_finish_grad2<T>(g.x, z.x, s.of[0]), conv1x1_finish_grad2<T>(g.y, z.y, s.of[1]),
            conv1x1_finish_grad2<T>(g.z, z.z, s.of[2]), conv1x1_finish_grad2<T>(g.w, z.w, s.of[3]));
        if (row0 + (unsigned)(row + 16 * i) >= p.rows)
            v = uint4{};
        *dz = v;
    }
}

/* Stores the new G: one thread. */
static __device__ __forceinline__ void conv1x1_cluster_store(const conv1x1_cluster &p,
                                                             const conv1x1_part &part,
                                                             const unsigned char *g,
                                                             unsigned row0) {
#pragma unroll 1
    for (int c = 0; c < part.width; c += CONV1X1_BOX)
        gpu_tile_store(&p.in_g, part.c0 + c, (int)row0,
                       g + c / CONV1X1_BOX * conv1x1_cluster_shape::HALF);
    gpu_bulk_commit();
}

/* Coefficients of the channels, and the barriers. */
template <bool NORM>
static __device__ __forceinline__ void
conv1x1_cluster_tables(const conv1x1_fused &p, const conv1x1_part &part, unsigned char *shared) {
    typedef conv1x1_cluster_shape S;
    const int i = (int)threadIdx.x;
    if (i < 128) {
        const bool on = p.bsum && i < part.depth;
        reinterpret_cast<float2 *>(shared + S::DEFERRED)[conv1x1_factor_at(i)] =
            on ? make_float2(p.bsum[i], p.csum[i]) : float2{};
        if (NORM)
            reinterpret_cast<float4 *>(shared + S::MARKS)[i] =
                i < part.width ? conv1x1_channel(p.mask.norm, part.c0 + i) : float4{};
    }
    if (i == CONV1X1_THREADS) {
        gpu_barrier *const full = reinterpret_cast<gpu_barrier *>(shared + S::FULL);
        gpu_barrier *const empty = reinterpret_cast<gpu_barrier *>(shared + S::EMPTY);
        for (int s = 0; s < CONV1X1_CLUSTER_STAGES; s++) {
            gpu_barrier_init(full + s, 1);
            gpu_barrier_init(empty + s, CONV1X1_WARPS * gpu_cluster_blocks());
        }
        gpu_barrier_init_fence();
    }
}

template <class T, bool NORM>
__global__ void __launch_bounds__(CONV1X1_CLUSTER_THREADS, 1)
    conv1x1_cluster_kernel(const __grid_constant__ conv1x1_cluster cluster) {
    gpu_begin();
    typedef conv1x1_cluster_shape S;
    typedef conv1x1_halves L;
    constexpr int MI = CONV1X1_CLUSTER_PIXELS / 32;
    const conv1x1_fused &p = cluster.f;
    CHEX_DYNAMIC_SHARED_1024(boxes);
    unsigned char *const shared = gpu_resident(boxes);
    const int lane = (int)threadIdx.x % 32;
    const conv1x1_warp_share home = conv1x1_warp_share_of((int)threadIdx.x / 32);
    const conv1x1_part part = conv1x1_cluster_part_of(p);
    const unsigned stride = (unsigned)(part.splits * CONV1X1_CLUSTER_PIXELS);
    const unsigned start = (unsigned)(part.split * CONV1X1_CLUSTER_PIXELS);

    conv1x1_cluster_tables<NORM>(p, part, shared);
    gpu_cluster_sync();

    if (threadIdx.x >= CONV1X1_THREADS) {
        gpu_registers_fewer<CONV1X1_LOAD_REGISTERS>();
        if (threadIdx.x == CONV1X1_THREADS)
            conv1x1_cluster_load(cluster, part, shared, start, stride);
        __syncwarp();
        gpu_cluster_sync();
        return;
    }
    gpu_registers_more<CONV1X1_COMPUTE_REGISTERS>();
    uint32_t w[8][4][2];
    conv1x1_fused_weights<T>(p, part, w, home.quarter, lane);
    gpu_barrier *const full = reinterpret_cast<gpu_barrier *>(shared + S::FULL);
    gpu_barrier *const empty = reinterpret_cast<gpu_barrier *>(shared + S::EMPTY);
    const bool busy = home.quarter * 32 < part.width;
    const conv1x1_places places = conv1x1_places_of<MI, L>(home, lane);
    const float4 *const marks =
        reinterpret_cast<const float4 *>(shared + S::MARKS) + home.quarter * 32 + 2 * (lane % 4);
    float dw[4][4][4] = {};
    conv1x1_pair_sums sums = {};
    conv1x1_ring at = {0, 0};
    for (unsigned row0 = start; row0 < p.rows; row0 += stride, at.next()) {
        unsigned char *const stage = shared + at.slot * S::STAGE;
        gpu_barrier_wait(full + at.slot, at.parity);
        conv1x1_cluster_take<T>(p, part.depth, stage,
                                reinterpret_cast<const float2 *>(shared + S::DEFERRED), row0);
        gpu_warps_sync(1, CONV1X1_THREADS); /* dZ is complete */
        if (busy) {
            float dv[MI][4][4] = {};
            const int from = gpu_fresh(places.dgrad);
            conv1x1_fused_dgrad<T, MI, L::ROW>(dv, stage + S::DZ, w, from, [](int) {});
            if (part.depth > 64)
                conv1x1_fused_dgrad<T, MI, L::ROW>(dv, stage + S::DZ + S::HALF, w + 4, from,
                                                   [](int) {});
            conv1x1_fused_mask<T, MI, NORM, L::ROW>(dv, stage + S::G, stage + S::X, marks,
                                                    gpu_fresh(places.mask), sums);
        }
        gpu_async_fence();                  /* dZ, x and G were stored to */
        gpu_warps_sync(1, CONV1X1_THREADS); /* G and the convolution's input are complete */
        if (threadIdx.x == 0)
            conv1x1_cluster_store(cluster, part, stage + S::G, row0);
        if (busy && home.half * 64 < part.depth)
            conv1x1_fused_wgrad<T, CONV1X1_CLUSTER_PIXELS, L::ROW>(
                dw, stage + S::DZ, stage + S::X, gpu_fresh(places.a), gpu_fresh(places.b));
        if (threadIdx.x == 0)
            gpu_bulk_wait_read<0>();
        __syncwarp(); /* all lanes have read the stage */
        if (lane < (int)gpu_cluster_blocks())
            gpu_barrier_arrive_in(empty + at.slot, (unsigned)lane);
    }

    if (busy)
        conv1x1_fused_store_dw(p, part, dw, home, lane);
    __syncwarp();
    gpu_cluster_sync(); /* no block sends to, or arrives in, one that has ended */
    if (!NORM || !p.mask.sums.partial)
        return;
    /* __syncthreads there: of the threads that have not ended. */
    conv1x1_fused_finish_sums(p, part, sums, reinterpret_cast<float *>(shared), home, lane);
}

/* ---- the algorithm ---- */

struct conv1x1_cluster_plan {
    int slices, blocks; /* of the input channels; blocks of a cluster, a divisor of slices */
    int splits;         /* of the pixels, that run at once */
};

/* Clusters of this size that run at once, by the number of multiprocessors alone: GPUs of one kind
 * differ in how multiprocessors are grouped, and the order of sums must not depend on it. Groups
 * have an even number of multiprocessors, at least 16 (a guess). */
static int conv1x1_cluster_at_once(const gpu_device &d, int blocks) {
    const int group = 16;
    const int n = blocks == 2 || d.sms < group ? d.sms / blocks : d.sms / group * (group / blocks);
    return n < 1 ? 1 : n;
}

/* blocks 0: the number of slices has no divisor that is a size of clusters. Else chooses the
 * largest cluster that leaves at most a sixteenth of the blocks idle that smaller ones could use (a
 * guess: not measured). Clusters of some sizes leave multiprocessors over. */
static conv1x1_cluster_plan conv1x1_cluster_choose(const gpu_device &d,
                                                   const gpu_conv_backward &b) {
    conv1x1_cluster_plan plan = {};
    int most = 0;
    plan.slices = (int)conv1x1_divide_up(b.in.channels, 128);
    for (int blocks = 2; blocks <= CONV1X1_CLUSTER_MOST && blocks <= plan.slices; blocks++) {
        if (plan.slices % blocks)
            continue;
        const int fit = conv1x1_cluster_at_once(d, blocks) / (plan.slices / blocks);
        const int splits = fit < 1 ? 1 : fit;
        most = splits > most ? splits : most;
        if (splits * 16 >= most * 15) {
            plan.blocks = blocks;
            plan.splits = splits;
        }
    }
    return plan;
}

template <class T, bool NORM> static cudaError_t conv1x1_cluster_count(int blocks, int *out) {
    return gpu_active_clusters(conv1x1_cluster_kernel<T, NORM>, dim3(CONV1X1_CLUSTER_THREADS),
                               dim3((unsigned)blocks), conv1x1_cluster_shape::BYTES, out);
}
static cudaError_t conv1x1_cluster_count(const gpu_conv_backward &b, int blocks, int *out) {
    if (b.in.type == GPU_BF16)
        return b.norm.mean ? conv1x1_cluster_count<gpu_bf16, true>(blocks, out)
                           : conv1x1_cluster_count<gpu_bf16, false>(blocks, out);
    return b.norm.mean ? conv1x1_cluster_count<gpu_f16, true>(blocks, out)
                       : conv1x1_cluster_count<gpu_f16, false>(blocks, out);
}

/* Asks the device whether it runs the clusters at all, and warns once if not all at once. */
static enum chex_status conv1x1_cluster_prepare(const gpu_device *d, const gpu_conv_forward *,
                                                const gpu_conv_backward *b, void **state_out,
                                                chex_error *err) {
    const conv1x1_cluster_plan plan = conv1x1_cluster_choose(*d, *b);
    int clusters = 0;
    const cudaError_t e = conv1x1_cluster_count(*b, plan.blocks, &clusters);
    *state_out = nullptr;
    if (e != cudaSuccess)
        return chex_error_set(err, CHEX_E_FAIL, "clusters: %s", cudaGetErrorString(e));
    if (clusters < 1)
        return chex_error_set(err, CHEX_E_FAIL,
                              "the device runs no cluster of %d blocks with %zu bytes of shared "
                              "memory",
                              plan.blocks, conv1x1_cluster_shape::BYTES);
    gpu_check_clusters(clusters, plan.splits * plan.slices / plan.blocks, plan.blocks);
    return CHEX_OK;
}

static int64_t conv1x1_cluster_tiles(const gpu_conv_backward &b) {
    return conv1x1_divide_up(gpu_map_pixels(&b.in), CONV1X1_CLUSTER_PIXELS);
}

static cudaError_t conv1x1_cluster_maps(const gpu_conv_backward &b, conv1x1_cluster *out) {
    const gpu_tensor g = gpu_tensor_of(&b.out.g), z = gpu_tensor_of(&b.out.x);
    const gpu_tensor x = gpu_tensor_of(&b.in), in_g = gpu_tensor_of(&b.in_g);
    CHEX_GPU_TRY(gpu_tensor_map(&out->g, &g, CONV1X1_BOX, CONV1X1_PART, GPU_SWIZZLE_128));
    if (b.out.bsum)
        CHEX_GPU_TRY(gpu_tensor_map(&out->z, &z, CONV1X1_BOX, CONV1X1_PART, GPU_SWIZZLE_128));
    CHEX_GPU_TRY(gpu_tensor_map(&out->x, &x, CONV1X1_BOX, CONV1X1_CLUSTER_PIXELS, GPU_SWIZZLE_128));
    return gpu_tensor_map(&out->in_g, &in_g, CONV1X1_BOX, CONV1X1_CLUSTER_PIXELS, GPU_SWIZZLE_128);
}

template <class T>
static cudaError_t conv1x1_cluster_backward_as(const gpu_device &d, const gpu_conv_backward &b,
                                               void *workspace, cudaStream_t stream) {
    conv1x1_cluster p = {};
    CHEX_GPU_TRY(conv1x1_cluster_maps(b, &p));
    const conv1x1_cluster_plan plan = conv1x1_cluster_choose(d, b);
    const int splits = conv1x1_even_blocks(conv1x1_cluster_tiles(b), plan.splits);
    const int units = (int)conv1x1_divide_up(b.in.channels, CONV1X1_BOX);
    p.f = conv1x1_fused_of(b, workspace);
    p.f.each = units / plan.slices;
    p.f.more = units % plan.slices;
    const dim3 grid((unsigned)plan.slices, 1, (unsigned)splits), cluster((unsigned)plan.blocks);
    const dim3 block(CONV1X1_CLUSTER_THREADS);
    const size_t bytes = conv1x1_cluster_shape::BYTES;
    if (b.norm.mean)
        CHEX_GPU_TRY(CHEX_LAUNCH_CLUSTER((conv1x1_cluster_kernel<T, true>), grid, block, cluster,
                                         bytes, stream, p));
    else
        CHEX_GPU_TRY(CHEX_LAUNCH_CLUSTER((conv1x1_cluster_kernel<T, false>), grid, block, cluster,
                                         bytes, stream, p));
    return gpu_launch_add_parts(b.side, p.f.parts, splits, (int64_t)p.f.m * p.f.c, b.dweight,
                                stream);
}

static bool conv1x1_cluster_fits(const gpu_device *d, const gpu_conv_forward *,
                                 const gpu_conv_backward *b) {
    return b && d->capability == 90 && b->in_g.data && conv1x1_takes_backward(*b) &&
           b->out.g.channels <= 128 && b->in.channels > 128 &&
           conv1x1_shared_fits(*d, conv1x1_cluster_shape::BYTES + 1024) &&
           conv1x1_cluster_choose(*d, *b).blocks > 0;
}

/* Memory for the parts of dW. Smaller batches never need more. */
static size_t conv1x1_cluster_workspace(const gpu_device *d, const void *, const gpu_conv_forward *,
                                        const gpu_conv_backward *b) {
    const int splits = conv1x1_cluster_choose(*d, *b).splits;
    return (size_t)conv1x1_most_blocks(conv1x1_cluster_tiles(*b), splits) * (size_t)b->in.channels *
           (size_t)b->out.g.channels * sizeof(float);
}

static cudaError_t conv1x1_cluster_backward(const gpu_device *d, const void *,
                                            const gpu_conv_backward *b, void *workspace,
                                            cudaStream_t stream) {
    if (!conv1x1_aligned(b->weight_t) || !conv1x1_aligned(workspace))
        return cudaErrorInvalidValue; /* the maps check the rest */
    return b->in.type == GPU_BF16 ? conv1x1_cluster_backward_as<gpu_bf16>(*d, *b, workspace, stream)
                                  : conv1x1_cluster_backward_as<gpu_f16>(*d, *b, workspace, stream);
}

const gpu_conv_algo gpu_conv_algo_1x1_backward_sm90 = {"1x1-cluster",
                                                       conv1x1_cluster_fits,
                                                       conv1x1_cluster_prepare,
                                                       nullptr,
                                                       conv1x1_cluster_workspace,
                                                       nullptr,
                                                       conv1x1_cluster_backward,
                                                       true};
