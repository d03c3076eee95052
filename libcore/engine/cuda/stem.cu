/* SPDX-License-Identifier: Apache-2.0
 *
 * The stem: 7x7 convolution with stride 2 and padding 3 of grey images to 64 channels, in 16-bit
 * types on tensor cores (capability 8.0 and up), with the two channels of gpu.h in place of three.
 *
 * Image. A tile's pixels lie in shared memory as words of the two channels: u = 255 grey - 128,
 * rounded, in the low half, and 1 in the high half; outside the image both are 0. Eight words from
 * 2 ox - 3 on are a row of the kernel (the eighth has weight 0), so one product of depth 16 is one
 * kernel row and its fragments are single words of shared memory.
 *
 * Folded weights lie as the forward kernel's shared memory has them: [2 ky + kx / 4][column][4
 * kx][u, 1], with the column order of eights.cuh.
 *
 * Backward multiplies the taken gradient's tile (64 outputs) with the same words; warps have half
 * of the kernel's rows and a quarter of the tile's pixels, and the quarters are added in their
 * order.
 *
 * Numerics: operands rounded to the type (whole grey values are exact in bf16), fp32 sums within a
 * tile, statistics of rounded outputs, parts of dW added in double in a fixed order.
 */
#include "engine/cuda/conv_3x3_tile.cuh"

namespace {

enum {
    STEM_OUT = 64,
    STEM_ROWS = 7,               /* of the kernel */
    STEM_DEPTH = 16 * STEM_ROWS, /* products an output pixel */
    STEM_THREADS = CONV3_THREADS,
    STEM_WORDS = 38, /* of an image row that 16 outputs read: 2 * 15 + 8 */
    STEM_PITCH = 40,
    FORWARD_ROWS = 16, /* of a tile of 16 columns */
    BACKWARD_ROWS = 8,
    WEIGHT_BYTES = STEM_OUT * STEM_DEPTH * 2,
    PART_FLOATS = STEM_OUT * STEM_DEPTH,
};

struct stem_tiles {
    int n, size, hw;
    int rows, across, down, total;
};

stem_tiles tiles_of(int n, int size, int rows) {
    stem_tiles t = {};
    t.n = n;
    t.size = size;
    t.hw = (size - 1) / 2 + 1;
    t.rows = rows;
    t.across = (t.hw + 15) / 16;
    t.down = (t.hw + rows - 1) / rows;
    t.total = n * t.across * t.down;
    return t;
}

struct stem_at {
    int image, y, x; /* first output */
};
__device__ __forceinline__ stem_at tile_at(const stem_tiles &t, int tile) {
    const int strip = tile / t.across, image = strip / t.down;
    return stem_at{image, (strip - image * t.down) * t.rows, (tile - strip * t.across) * 16};
}

/* A tile's grey values on their way through registers. */
template <int ROWS> struct stem_pixels {
    static constexpr int LINES = 2 * ROWS + 5, COUNT = LINES * STEM_WORDS;
    static constexpr int EACH = (COUNT + STEM_THREADS - 1) / STEM_THREADS;
    float grey[EACH];
    unsigned inside; /* a bit each */

    __device__ __forceinline__ void load(const float *from, const stem_tiles &t, int tile,
                                         int thread) {
        const stem_at at = tile_at(t, tile);
        inside = 0;
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const int word = i * STEM_THREADS + thread, line = word / STEM_WORDS;
            const int y = 2 * at.y - 3 + line, x = 2 * at.x - 3 + word - line * STEM_WORDS;
            const bool on = word < COUNT && y >= 0 && y < t.size && x >= 0 && x < t.size;
            grey[i] = on ? from[((int64_t)at.image * t.size + y) * t.size + x] : 0.0f;
            inside |= on ? 1u << i : 0u;
        }
    }
    template <class T> __device__ __forceinline__ void store(uint32_t *to, int thread) const {
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const int word = i * STEM_THREADS + thread, line = word / STEM_WORDS;
            const float u = __fmaf_rn(255.0f, grey[i], -128.0f);
            if (word < COUNT)
                to[line * STEM_PITCH + word - line * STEM_WORDS] =
                    inside >> i & 1 ? gpu_pack2<T>(u, 1.0f) : 0u;
        }
    }
};

/* ---- forward ---- */

struct forward_args {
    const float *grey;
    const void *folded;
    stem_tiles tiles;
    gpu_map out;
    gpu_stats stats;
};

/* A warp's two rows of 16 outputs by all 64 channels. */
template <class T>
__device__ __forceinline__ void multiply(const uint32_t *image, const unsigned char *weights,
                                         int thread, float (&acc)[2][8][4]) {
    const int warp = thread / 32, lane = thread % 32;
    const uint32_t *a_lane = image + 4 * warp * STEM_PITCH + lane / 4 * 2 + lane % 4;
    const unsigned char *b_lane =
        weights + ((lane >> 3 & 1) * STEM_OUT + (lane & 7) + (lane >> 4) * 8) * 16;
#pragma unroll 1
    for (int ky = 0; ky < STEM_ROWS; ky++) {
        uint32_t a[2][4];
#pragma unroll
        for (int m = 0; m < 2; m++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                a[m][i] = a_lane[(2 * m + ky) * STEM_PITCH + i % 2 * 16 + i / 2 * 4];
#pragma unroll
        for (int n = 0; n < 8; n += 2) {
            uint32_t b[4];
            gpu_ldmatrix_x4(b, b_lane + (2 * ky * STEM_OUT + n * 8) * 16);
#pragma unroll
            for (int m = 0; m < 2; m++) {
                gpu_mma_16816<T>(acc[m][n], a[m], b);
                gpu_mma_16816<T>(acc[m][n + 1], a[m], b + 2);
            }
        }
    }
}

template <class T>
__device__ __forceinline__ void finish_tile(const forward_args &p, int tile, double *sums,
                                            int thread, const float (&acc)[2][8][4]) {
    const int warp = thread / 32, lane = thread % 32;
    const stem_at at = tile_at(p.tiles, tile);
#pragma unroll
    for (int g = 0; g < 2; g++) {
        const int channel = 32 * g + lane % 4 * 8;
        float sum[8] = {0}, squares[8] = {0};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int y = at.y + 2 * warp + i / 2, x = at.x + lane / 4 + i % 2 * 8;
            if (y >= p.tiles.hw || x >= p.tiles.hw)
                continue;
            float v[8];
#pragma unroll
            for (int j = 0; j < 8; j++)
                v[j] = acc[i / 2][4 * g + j / 2][i % 2 * 2 + j % 2];
            const gpu_run<T, 8> packed = gpu_pack_run<T, 8>(v);
            const int64_t pixel = ((int64_t)at.image * p.tiles.hw + y) * p.tiles.hw + x;
            gpu_store_run((T *)p.out.data + pixel * p.out.pitch + channel, packed);
            gpu_unpack_run(v, packed);
#pragma unroll
            for (int j = 0; j < 8; j++) {
                sum[j] += v[j];
                squares[j] = fmaf(v[j], v[j], squares[j]);
            }
        }
        if (p.stats.partial)
            gpu_eights_add(sum, squares, sums + warp * 2 * STEM_OUT + channel, STEM_OUT, lane);
    }
}

__device__ __forceinline__ void finish_stats(const forward_args &p, const double *sums,
                                             int thread) {
    if (!p.stats.partial)
        return;
    __syncthreads();
    if (thread < 2 * STEM_OUT) {
        double sum = 0;
        for (int w = 0; w < CONV3_WARPS; w++)
            sum += sums[w * 2 * STEM_OUT + thread];
        p.stats.partial[(size_t)blockIdx.x * 2 * STEM_OUT + thread] = (float)sum;
    }
    if (gpu_last_block(p.stats.ticket, gridDim.x))
        gpu_finish_stats(p.stats, STEM_OUT, 0, STEM_OUT, (int)gridDim.x,
                         (double)p.tiles.n * p.tiles.hw * p.tiles.hw, thread, STEM_THREADS);
}

template <class T>
__global__ void __launch_bounds__(STEM_THREADS, 2) stem_forward(const forward_args p) {
    __shared__ uint4 weights[WEIGHT_BYTES / 16];
    __shared__ uint32_t images[2][stem_pixels<FORWARD_ROWS>::LINES * STEM_PITCH];
    __shared__ double sums[CONV3_WARPS * 2 * STEM_OUT];
    const int thread = (int)threadIdx.x, stride = (int)gridDim.x;
    stem_pixels<FORWARD_ROWS> pixels;
    pixels.load(p.grey, p.tiles, (int)blockIdx.x, thread);
    for (int i = thread; i < WEIGHT_BYTES / 16; i += STEM_THREADS)
        weights[i] = ((const uint4 *)p.folded)[i];
    for (int i = thread; i < CONV3_WARPS * 2 * STEM_OUT; i += STEM_THREADS)
        sums[i] = 0;
    int step = 0;
    for (int tile = (int)blockIdx.x; tile < p.tiles.total; tile += stride, step ^= 1) {
        pixels.store<T>(images[step], thread);
        __syncthreads();
        if (tile + stride < p.tiles.total)
            pixels.load(p.grey, p.tiles, tile + stride, thread);
        float acc[2][8][4];
#pragma unroll
        for (int i = 0; i < 64; i++)
            acc[i / 32][i / 4 % 8][i % 4] = 0.0f;
        multiply<T>(images[step], (const unsigned char *)weights, thread, acc);
        finish_tile<T>(p, tile, sums, thread, acc);
    }
    finish_stats(p, sums, thread);
}

/* ---- backward ---- */

struct backward_args {
    const float *grey;
    stem_tiles tiles;
    conv3_source g;
    const float *bsum, *csum;
    float *parts; /* [block][64][7][8 kx][u, 1] */
};

enum { TILE = 16 * BACKWARD_ROWS };

/* Where things lie in shared memory; the stages serve the last sum as well. */
enum {
    G_BYTES = TILE * STEM_OUT * 2,
    IMAGE_BYTES = stem_pixels<BACKWARD_ROWS>::LINES * STEM_PITCH * 4,
    AT_G = 0,
    AT_X = AT_G + 2 * G_BYTES,
    AT_IMAGE = AT_X + 2 * G_BYTES,
    AT_PLACES = AT_IMAGE + 2 * IMAGE_BYTES,
    AT_SCALE = AT_PLACES + 3 * TILE * 4,
    BACKWARD_BYTES = AT_SCALE + 2 * STEM_OUT * 4,
};
static_assert(PART_FLOATS * 4 <= 4 * G_BYTES && IMAGE_BYTES % 16 == 0, "the sum fits the stages");

/* The pixels of a tile, for conv3_issue; -1 off the map and in tiles past the last one. */
__device__ __forceinline__ void write_places(const stem_tiles &t, int tile, int *to, int thread) {
    if (thread >= TILE)
        return;
    const stem_at at = tile_at(t, tile);
    const int y = at.y + thread / 16, x = at.x + thread % 16;
    to[thread] = tile < t.total && y < t.hw && x < t.hw ? (at.image * t.hw + y) * t.hw + x : -1;
}

/* Two pixels' value of one channel: the low halves, or with shift 16 the high ones. */
__device__ __forceinline__ uint32_t pick(uint32_t first, uint32_t second, int shift) {
    return (first >> shift & 0xffffu) | second >> shift << 16;
}

/* acc[m][n]: outputs 16 m .., kernel row and half 7 (warp % 2) + n, over the warp's two rows of
 * pixels. */
template <class T>
__device__ __forceinline__ void multiply_back(const unsigned char *g, const uint32_t *image,
                                              int thread, float (&acc)[4][7][4]) {
    const int warp = thread / 32, lane = thread % 32;
    const int shift = (lane / 4 & 1) * 16;
#pragma unroll 1
    for (int row = warp / 2 * 2; row < warp / 2 * 2 + 2; row++) {
        uint32_t a[4][4];
#pragma unroll
        for (int m = 0; m < 4; m++)
            gpu_ldmatrix_x4_trans(a[m], g + ((2 * m + (lane >> 3 & 1)) * TILE + row * 16 +
                                             (lane >> 4) * 8 + (lane & 7)) *
                                                16);
        const uint32_t *b_lane = image + 2 * row * STEM_PITCH + lane % 4 * 4 + lane / 8;
#pragma unroll
        for (int n = 0; n < 7; n++) {
            const int tile = warp % 2 * 7 + n;
            const uint32_t *at = b_lane + tile / 2 * STEM_PITCH + tile % 2 * 4;
            const uint32_t b[2] = {pick(at[0], at[2], shift), pick(at[16], at[18], shift)};
#pragma unroll
            for (int m = 0; m < 4; m++)
                gpu_mma_16816<T>(acc[m][n], a[m], b);
        }
    }
}

/* The warps' sums, quarter by quarter, to the block's part. */
__device__ __forceinline__ void write_part(float *sum, float *part, int thread,
                                           const float (&acc)[4][7][4]) {
    const int warp = thread / 32, lane = thread % 32;
    for (int quarter = 0; quarter < 4; quarter++) {
        __syncthreads();
        if (warp / 2 != quarter)
            continue;
#pragma unroll
        for (int m = 0; m < 4; m++)
#pragma unroll
            for (int n = 0; n < 7; n++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    float *to = sum + (16 * m + lane / 4 + i / 2 * 8) * STEM_DEPTH +
                                (warp % 2 * 7 + n) * 8 + lane % 4 * 2 + i % 2;
                    *to = quarter ? *to + acc[m][n][i] : acc[m][n][i];
                }
    }
    __syncthreads();
    for (int i = thread; i < PART_FLOATS / 4; i += STEM_THREADS)
        ((float4 *)part)[i] = ((const float4 *)sum)[i];
}

template <class T>
__global__ void __launch_bounds__(STEM_THREADS) stem_backward(const backward_args p) {
    CHEX_DYNAMIC_SHARED(shared);
    const int thread = (int)threadIdx.x, stride = (int)gridDim.x;
    int *places = (int *)(shared + AT_PLACES);
    float *scale = (float *)(shared + AT_SCALE);
    stem_pixels<BACKWARD_ROWS> pixels;
    auto issue = [&](int step, int slot) {
        conv3_issue<T, STEM_OUT, false>(p.g, 0, places + slot * TILE, TILE,
                                        shared + AT_G + (step & 1) * G_BYTES,
                                        shared + AT_X + (step & 1) * G_BYTES, thread);
    };

    if (p.g.scaled)
        conv3_write_scale(gpu_norm{}, p.bsum, p.csum, 0, STEM_OUT, scale, thread);
    write_places(p.tiles, (int)blockIdx.x, places, thread);
    write_places(p.tiles, (int)blockIdx.x + stride, places + TILE, thread);
    pixels.load(p.grey, p.tiles, (int)blockIdx.x, thread);
    __syncthreads();
    issue(0, 0);
    gpu_copy_commit();

    float acc[4][7][4];
#pragma unroll
    for (int i = 0; i < 112; i++)
        acc[i / 28][i / 4 % 7][i % 4] = 0.0f;
    int step = 0, slot = 0;
    for (int tile = (int)blockIdx.x; tile < p.tiles.total; tile += stride, step++) {
        const int next = slot == 2 ? 0 : slot + 1, later = next == 2 ? 0 : next + 1;
        unsigned char *g = shared + AT_G + (step & 1) * G_BYTES;
        uint32_t *image = (uint32_t *)(shared + AT_IMAGE + (step & 1) * IMAGE_BYTES);
        pixels.store<T>(image, thread);
        gpu_copy_wait<0>();
        conv3_change<T, STEM_OUT, false>(p.g, scale, STEM_OUT, 0, places + slot * TILE, TILE, g,
                                         shared + AT_X + (step & 1) * G_BYTES, thread);
        __syncthreads();
        if (tile + stride < p.tiles.total) {
            issue(step + 1, next);
            pixels.load(p.grey, p.tiles, tile + stride, thread);
        }
        gpu_copy_commit();
        write_places(p.tiles, tile + 2 * stride, places + later * TILE, thread);
        multiply_back<T>(g, image, thread, acc);
        slot = next;
    }
    write_part((float *)(shared + AT_G), p.parts + (int64_t)blockIdx.x * PART_FLOATS, thread, acc);
}

/* Mean and deviation of the three channels, by value. */
struct stem_colours {
    double mean[3], std[3];
};
stem_colours colours_of(const float mean[3], const float std[3]) {
    stem_colours c;
    for (int i = 0; i < 3; i++) {
        c.mean[i] = (double)mean[i];
        c.std[i] = (double)std[i];
    }
    return c;
}

/* dw (64, 7, 7, 3) from the parts; a block has 64 of the pairs (output, ky, kx). */
__global__ void __launch_bounds__(GPU_PARTS_THREADS)
    stem_unfold(const float *parts, int part_count, stem_colours colours, float *dweight) {
    __shared__ double sums[8][128];
    const int thread = (int)threadIdx.x, first = (int)blockIdx.x * 128;
    gpu_add_parts(parts, part_count, PART_FLOATS, first, thread, sums);
    if (thread >= 64)
        return;
    const int pair = first / 2 + thread, kx = pair % 8, row = pair / 8; /* row: output, ky */
    if (kx == 7)
        return;
    const double of_u = sums[0][2 * thread], of_1 = sums[0][2 * thread + 1];
    for (int c = 0; c < 3; c++)
        dweight[(row * 7 + kx) * 3 + c] =
            (float)(((of_u + 128 * of_1) / 255 - colours.mean[c] * of_1) / colours.std[c]);
}

/* One of the 64 x 7 x 8 folded pairs a thread. */
template <class T>
__global__ void __launch_bounds__(STEM_THREADS)
    stem_fold(const float *w, stem_colours colours, T *folded) {
    const int at = (int)(blockIdx.x * STEM_THREADS + threadIdx.x);
    if (at >= STEM_OUT * STEM_ROWS * 8)
        return;
    const int column = at / 4 % STEM_OUT, chunk = at / 4 / STEM_OUT;
    const int ky = chunk / 2, kx = chunk % 2 * 4 + at % 4;
    const int out = gpu_eights_channel(column);
    double of_u = 0, of_1 = 0;
    for (int c = 0; c < 3 && kx < 7; c++) {
        const double v = (double)w[((out * 7 + ky) * 7 + kx) * 3 + c] / colours.std[c];
        of_u += v / 255;
        of_1 += v * (128.0 / 255 - colours.mean[c]);
    }
    folded[2 * at] = gpu_round<T>((float)of_u);
    folded[2 * at + 1] = gpu_round<T>((float)of_1);
}

template <class T>
cudaError_t launch_backward(const backward_args &args, int blocks, cudaStream_t stream) {
    return CHEX_LAUNCH(stem_backward<T>, dim3((unsigned)blocks), dim3(STEM_THREADS),
                       (size_t)BACKWARD_BYTES, stream, args);
}

int backward_blocks(const gpu_device &device, const stem_tiles &t) {
    return t.total < device.sms ? t.total : device.sms;
}

} // namespace

extern "C" size_t gpu_stem_folded_bytes(void) { return WEIGHT_BYTES; }

extern "C" cudaError_t gpu_stem_fold(const float *w, const float mean[3], const float std[3],
                                     enum gpu_type type, void *folded_out, cudaStream_t stream) {
    const dim3 grid(STEM_OUT * STEM_ROWS * 8 / STEM_THREADS), block(STEM_THREADS);
    const stem_colours colours = colours_of(mean, std);
    if (type == GPU_F32)
        return cudaErrorInvalidValue;
    return type == GPU_BF16 ? CHEX_LAUNCH(stem_fold<gpu_bf16>, grid, block, 0, stream, w, colours,
                                          (gpu_bf16 *)folded_out)
                            : CHEX_LAUNCH(stem_fold<gpu_f16>, grid, block, 0, stream, w, colours,
                                          (gpu_f16 *)folded_out);
}

extern "C" cudaError_t gpu_stem_forward(const float *grey, int n, int size, const void *folded,
                                        const struct gpu_map *out, const struct gpu_stats *stats,
                                        cudaStream_t stream) {
    forward_args args = {grey, folded, tiles_of(n, size, FORWARD_ROWS), *out, *stats};
    const int blocks = args.tiles.total < GPU_MAX_BLOCKS ? args.tiles.total : GPU_MAX_BLOCKS;
    if (out->type == GPU_F32 || out->hw != args.tiles.hw || out->channels != STEM_OUT)
        return cudaErrorInvalidValue;
    return out->type == GPU_BF16 ? CHEX_LAUNCH(stem_forward<gpu_bf16>, dim3((unsigned)blocks),
                                               dim3(STEM_THREADS), 0, stream, args)
                                 : CHEX_LAUNCH(stem_forward<gpu_f16>, dim3((unsigned)blocks),
                                               dim3(STEM_THREADS), 0, stream, args);
}

extern "C" size_t gpu_stem_workspace(const struct gpu_device *device, int n, int size) {
    return (size_t)backward_blocks(*device, tiles_of(n, size, BACKWARD_ROWS)) * PART_FLOATS * 4;
}

extern "C" cudaError_t gpu_stem_backward(const struct gpu_device *device, const float *grey, int n,
                                         int size, const struct gpu_taken *out, const float mean[3],
                                         const float std[3], float *dweight, void *workspace,
                                         cudaStream_t stream) {
    backward_args args = {};
    args.grey = grey;
    args.tiles = tiles_of(n, size, BACKWARD_ROWS);
    args.g = conv3_source{out->g.data,  out->g.pitch,         out->bsum ? out->x.data : nullptr,
                          out->x.pitch, out->bsum != nullptr, false};
    args.bsum = out->bsum;
    args.csum = out->csum;
    args.parts = (float *)workspace;
    const int blocks = backward_blocks(*device, args.tiles);
    if (out->g.type == GPU_F32 || out->g.hw != args.tiles.hw || out->g.channels != STEM_OUT)
        return cudaErrorInvalidValue;
    CHEX_GPU_TRY(out->g.type == GPU_BF16 ? launch_backward<gpu_bf16>(args, blocks, stream)
                                         : launch_backward<gpu_f16>(args, blocks, stream));
    return CHEX_LAUNCH(stem_unfold, dim3(PART_FLOATS / 128), dim3(GPU_PARTS_THREADS), 0, stream,
                       args.parts, blocks, colours_of(mean, std), dweight);
}
