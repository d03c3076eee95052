/* SPDX-License-Identifier: Apache-2.0
 *
 * The stem: 7x7 convolution of grey images to 64 channels with stride 2 and padding 3, in 16-bit
 * types on tensor cores (capability 8.0 and up). It uses two input channels instead of three; see
 * gpu.h.
 *
 * Image. A tile's pixels are in shared memory as 32-bit words of two channels: u = 255 grey - 128,
 * rounded, in the low half, and 1 in the high half. Outside the image both are 0. Output ox needs 8
 * words from 2 ox - 4 on for each kernel row: a tap of weight 0, then the seven taps. This is one
 * product of depth 16. ldmatrix needs 16-byte aligned rows, which only every second output has. So
 * shared memory holds the image twice; the second copy is shifted left by two words.
 *
 * Folded weights are stored in the order of the forward kernel's shared memory:
 * [2 ky + tap / 4][column][4 taps][u, 1], with the column order of vec8.cuh; tap = kx + 1.
 *
 * Backward multiplies a tile of the gradient (64 outputs, with deferred terms) with the same words.
 * A warp computes half of the outputs and half of the kernel's rows, over half of the tile's
 * pixels. The two halves of the pixels are added in a fixed order.
 *
 * Numerics. Operands are rounded to the type (integer grey values are exact in bf16). Sums within a
 * tile are fp32. Statistics of rounded outputs are summed in double over tiles. The parts of dW are
 * added in double in a fixed order.
 */
#include "engine/cuda/kernels/conv_3x3_tile.cuh"

namespace {

enum {
    STEM_OUT = 64,
    STEM_ROWS = 7,               /* rows of the kernel */
    STEM_DEPTH = 16 * STEM_ROWS, /* depth of the product of an output pixel */
    STEM_THREADS = CONV3_THREADS,
    STEM_PITCH = 40,   /* words of an image row; 16 outputs read 2 * 15 + 8 */
    FORWARD_ROWS = 16, /* rows of a tile of 16 columns */
    BACKWARD_ROWS = 8,
    WEIGHT_BYTES = STEM_OUT * STEM_DEPTH * 2,
    PART_FLOATS = STEM_OUT * STEM_DEPTH,
};

struct stem_tiles {
    int n, size, hw;
    int rows, total;
    bool fours; /* rows of the image are 16-byte aligned: load four values at a time */
    conv3_divisor across, down;
};

stem_tiles tiles_of(const float *grey, int n, int size, int rows) {
    stem_tiles t = {};
    t.n = n;
    t.size = size;
    t.hw = (size - 1) / 2 + 1;
    t.rows = rows;
    const int across = (t.hw + 15) / 16, down = (t.hw + rows - 1) / rows;
    t.across = conv3_divisor_of((unsigned)across);
    t.down = conv3_divisor_of((unsigned)down);
    t.total = n * across * down;
    t.fours = size % 4 == 0 && (uintptr_t)grey % 16 == 0;
    return t;
}

/* Two blocks per multiprocessor fit on most devices. */
int blocks_of(const gpu_device &device, const stem_tiles &t) {
    const int most = 2 * device.sms < GPU_MAX_BLOCKS ? 2 * device.sms : GPU_MAX_BLOCKS;
    return t.total < most ? t.total : most;
}

struct stem_at {
    int image, y, x; /* first output */
};
__device__ __forceinline__ stem_at tile_at(const stem_tiles &t, int tile) {
    const unsigned strip = conv3_divide(t.across, (unsigned)tile);
    const unsigned image = conv3_divide(t.down, strip);
    return stem_at{(int)image, (int)(strip - image * t.down.by) * t.rows,
                   (int)((unsigned)tile - strip * t.across.by) * 16};
}

/* Grey values of a tile in registers, four at a time, between global and shared memory. */
template <int ROWS> struct stem_pixels {
    static constexpr int LINES = 2 * ROWS + 5, COUNT = LINES * STEM_PITCH / 4;
    static constexpr int EACH = (COUNT + STEM_THREADS - 1) / STEM_THREADS;
    /* Offset of the second copy in shared memory, in words: 16 banks away, with two free words
     * before it. */
    static constexpr int SECOND = (LINES * STEM_PITCH + 17) / 32 * 32 + 16;
    static constexpr int WORDS = SECOND + LINES * STEM_PITCH;
    float4 grey[EACH];
    unsigned inside; /* one bit per value: it is inside the image */

    __device__ __forceinline__ void load(const float *from, const stem_tiles &t, const stem_at &at,
                                         int thread) {
        inside = 0;
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const int four = i * STEM_THREADS + thread, line = four / (STEM_PITCH / 4);
            const int y = 2 * at.y - 3 + line, x = 2 * at.x - 4 + 4 * (four - line * 10);
            const bool on = four < COUNT && (unsigned)y < (unsigned)t.size;
            const float *row = from + ((int64_t)at.image * t.size + y) * t.size;
            grey[i] = make_float4(0, 0, 0, 0);
            if (t.fours) {
                if (on && (unsigned)x < (unsigned)t.size) {
                    grey[i] = *(const float4 *)(row + x);
                    inside |= 15u << 4 * i;
                }
                continue;
            }
            const float v[4] = {
                value(row, on, x, t.size, 4 * i), value(row, on, x + 1, t.size, 4 * i + 1),
                value(row, on, x + 2, t.size, 4 * i + 2), value(row, on, x + 3, t.size, 4 * i + 3)};
            grey[i] = make_float4(v[0], v[1], v[2], v[3]);
        }
    }
    __device__ __forceinline__ float value(const float *row, bool on, int x, int size, int bit) {
        if (!on || (unsigned)x >= (unsigned)size)
            return 0.0f;
        inside |= 1u << bit;
        return row[x];
    }
    template <class T> __device__ __forceinline__ uint32_t word(float value, int bit) const {
        return inside >> bit & 1 ? gpu_pack2<T>(__fmaf_rn(255.0f, value, -128.0f), 1.0f) : 0u;
    }
    /* Stores both copies. */
    template <class T> __device__ __forceinline__ void store(uint32_t *to, int thread) const {
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const int four = i * STEM_THREADS + thread;
            if (four >= COUNT)
                continue;
            const uint4 v =
                make_uint4(word<T>(grey[i].x, 4 * i), word<T>(grey[i].y, 4 * i + 1),
                           word<T>(grey[i].z, 4 * i + 2), word<T>(grey[i].w, 4 * i + 3));
            uint32_t *second = to + SECOND + 4 * four;
            *(uint4 *)(to + 4 * four) = v;
            *(uint2 *)(second - 2) = make_uint2(v.x, v.y);
            *(uint2 *)second = make_uint2(v.z, v.w);
        }
    }
    /* Word offset of the lane's row for ldmatrix: output lane % 16, taps from 4 * half on. */
    static __device__ __forceinline__ int row_of(int lane, int half) {
        const int ox = lane % 16;
        return 2 * ox + 4 * half + (ox % 2 ? SECOND - 2 : 0);
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

/* Products of a warp: two rows of 16 output pixels, all 64 channels. */
template <class T>
__device__ __forceinline__ void multiply(const uint32_t *image, const unsigned char *weights,
                                         int thread, float (&acc)[2][8][4]) {
    const int warp = thread / 32, lane = thread % 32;
    const uint32_t *a_lane =
        image + 4 * warp * STEM_PITCH + stem_pixels<FORWARD_ROWS>::row_of(lane, lane >> 4);
    const unsigned char *b_lane =
        weights + ((lane >> 3 & 1) * STEM_OUT + (lane & 7) + (lane >> 4) * 8) * 16;
#pragma unroll 1
    for (int ky = 0; ky < STEM_ROWS; ky++) {
        uint32_t a[2][4];
#pragma unroll
        for (int m = 0; m < 2; m++)
            gpu_ldmatrix_x4(a[m], a_lane + (2 * m + ky) * STEM_PITCH);
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

/* A lane's sums over its warp's tiles, for each 32 channels: the two totals of gpu_vec8_share. */
struct forward_sums {
    double v[2][2];
};

template <class T>
__device__ __forceinline__ void finish_tile(const forward_args &p, int tile, forward_sums &sums,
                                            int thread, const float (&acc)[2][8][4]) {
    const int warp = thread / 32, lane = thread % 32, hw = p.tiles.hw;
    const stem_at at = tile_at(p.tiles, tile);
    const int y = at.y + 2 * warp, x = at.x + lane / 4;
    T *to =
        (T *)p.out.data + ((int64_t)((at.image * hw + y) * hw) + x) * p.out.pitch + lane % 4 * 8;
    const int down = hw * (int)p.out.pitch, right = 8 * (int)p.out.pitch;
#pragma unroll
    for (int g = 0; g < 2; g++) {
        float sum[8] = {0}, squares[8] = {0};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (y + i / 2 >= hw || x + i % 2 * 8 >= hw)
                continue;
            float v[8];
#pragma unroll
            for (int j = 0; j < 8; j++)
                v[j] = acc[i / 2][4 * g + j / 2][i % 2 * 2 + j % 2];
            const gpu_run<T, 8> packed = gpu_pack_run<T, 8>(v);
            gpu_store_run(to + i / 2 * down + i % 2 * right + 32 * g, packed);
            gpu_unpack_run(v, packed);
#pragma unroll
            for (int j = 0; j < 8; j++) {
                sum[j] += v[j];
                squares[j] = __fmaf_rn(v[j], v[j], squares[j]);
            }
        }
        if (!p.stats.partial)
            continue;
        const float2 of_tile = gpu_vec8_share(sum, squares, lane);
        sums.v[g][0] += (double)of_tile.x;
        sums.v[g][1] += (double)of_tile.y;
    }
}

/* shared: CONV3_WARPS * 2 * STEM_OUT floats of scratch that are no longer in use. */
__device__ __forceinline__ void finish_stats(const forward_args &p, const forward_sums &sums,
                                             float *shared, int thread) {
    if (!p.stats.partial)
        return;
    const int warp = thread / 32, lane = thread % 32;
    const int first = lane / 16 * STEM_OUT + lane % 4 * 8 + gpu_vec8_own(lane);
#pragma unroll
    for (int g = 0; g < 2; g++)
        *(float2 *)(shared + warp * 2 * STEM_OUT + first + 32 * g) =
            make_float2((float)sums.v[g][0], (float)sums.v[g][1]);
    __syncthreads();
    if (thread < 2 * STEM_OUT) {
        double sum = 0;
        for (int w = 0; w < CONV3_WARPS; w++)
            sum += (double)shared[w * 2 * STEM_OUT + thread];
        p.stats.partial[(size_t)blockIdx.x * 2 * STEM_OUT + thread] = (float)sum;
    }
    if (gpu_last_of_run(p.stats.ticket, 0, (int)blockIdx.x, (int)gridDim.x, p.stats.partial,
                        STEM_OUT, 0, STEM_OUT, thread, STEM_THREADS))
        gpu_finish_stats(p.stats, STEM_OUT, 0, STEM_OUT, (int)gridDim.x,
                         (double)p.tiles.n * p.tiles.hw * p.tiles.hw, thread, STEM_THREADS);
}

template <class T>
__global__ void __launch_bounds__(STEM_THREADS, 2) stem_forward(const forward_args p) {
    gpu_begin();
    using pixels_type = stem_pixels<FORWARD_ROWS>;
    __shared__ uint4 weights[WEIGHT_BYTES / 16];
    __shared__ uint4 images[2][pixels_type::WORDS / 4];
    __shared__ float4 shared_sums[CONV3_WARPS * 2 * STEM_OUT / 4];
    const int thread = (int)threadIdx.x, stride = (int)gridDim.x;
    pixels_type pixels;
    pixels.load(p.grey, p.tiles, tile_at(p.tiles, (int)blockIdx.x), thread);
    for (int i = thread; i < WEIGHT_BYTES / 16; i += STEM_THREADS)
        weights[i] = ((const uint4 *)p.folded)[i];
    forward_sums sums = {};
    int step = 0;
    for (int tile = (int)blockIdx.x; tile < p.tiles.total; tile += stride, step ^= 1) {
        uint32_t *image = (uint32_t *)images[step];
        pixels.store<T>(image, thread);
        __syncthreads();
        if (tile + stride < p.tiles.total)
            pixels.load(p.grey, p.tiles, tile_at(p.tiles, tile + stride), thread);
        float acc[2][8][4];
#pragma unroll
        for (int i = 0; i < 64; i++)
            acc[i / 32][i / 4 % 8][i % 4] = 0.0f;
        multiply<T>(image, (const unsigned char *)weights, thread, acc);
        finish_tile<T>(p, tile, sums, thread, acc);
    }
    finish_stats(p, sums, (float *)shared_sums, thread);
}

/* ---- backward ---- */

struct backward_args {
    const float *grey;
    stem_tiles tiles;
    gpu_deferred_grad out;
    float *parts; /* [block][64][7][8 taps][u, 1] */
};

enum { TILE = 16 * BACKWARD_ROWS };

/* Layout of shared memory. The stages of g and x are [8 channels][pixel]; the final sum reuses
 * them. */
enum {
    G_BYTES = TILE * STEM_OUT * 2,
    IMAGE_BYTES = stem_pixels<BACKWARD_ROWS>::WORDS * 4,
    AT_G = 0,
    AT_X = AT_G + 2 * G_BYTES,
    AT_IMAGE = AT_X + 2 * G_BYTES,
    BACKWARD_BYTES = AT_IMAGE + 2 * IMAGE_BYTES,
};
static_assert(PART_FLOATS * 4 <= 4 * G_BYTES && IMAGE_BYTES % 16 == 0, "the sum fits the stages");

/* A thread's share of the gradient: 8 channels of one column of the tile, every second row. */
struct grad_share {
    static constexpr int EACH = BACKWARD_ROWS / 2;
    int chunk, row, column; /* first channel / 8; row and column of the tile */
    __device__ __forceinline__ explicit grad_share(int thread) {
        const int warp = thread / 32, lane = thread % 32, place = warp / 2 * 8 + lane % 8;
        chunk = warp % 2 * 4 + lane / 8;
        row = place / 16;
        column = place % 16;
    }
    __device__ __forceinline__ int at(int i) const { /* index in a stage */
        return (chunk * TILE + (row + 2 * i) * 16 + column) * 16;
    }
};

/* Starts the copies of the thread's share of g, and of x if there is one. Returns one bit per
 * existing pixel. */
template <class T>
__device__ __forceinline__ unsigned issue(const backward_args &p, const stem_at &at,
                                          const grad_share &mine, unsigned char *g,
                                          unsigned char *x) {
    const int hw = p.tiles.hw, first_y = at.y + mine.row, column = at.x + mine.column;
    const int pixel = (at.image * hw + first_y) * hw + column, channel = mine.chunk * 8;
    unsigned there = 0;
#pragma unroll
    for (int i = 0; i < grad_share::EACH; i++) {
        const bool on = column < hw && first_y + 2 * i < hw;
        const int64_t from = on ? pixel + 2 * i * hw : 0;
        there |= on ? 1u << i : 0u;
        gpu_copy16(g + mine.at(i), (const T *)p.out.g.data + from * (int)p.out.g.pitch + channel,
                   on);
        if (p.out.bsum)
            gpu_copy16(x + mine.at(i),
                       (const T *)p.out.x.data + from * (int)p.out.x.pitch + channel, on);
    }
    return there;
}

/* Coefficients of the deferred terms for the thread's channels. */
struct grad_coefficients {
    float b[8], c[8];
};
template <class T>
__device__ __forceinline__ void finish_grad(const grad_coefficients &s, const grad_share &mine,
                                            unsigned there, unsigned char *g,
                                            const unsigned char *x) {
#pragma unroll
    for (int i = 0; i < grad_share::EACH; i++) {
        if (!(there >> i & 1))
            continue;
        T *const at = (T *)(g + mine.at(i));
        gpu_store_run(at, conv3_deferred_grad<T>(gpu_load_run<8>((const T *)at),
                                                 gpu_load_run<8>((const T *)(x + mine.at(i))), s.b,
                                                 s.c));
    }
}

/* A warp's share of the products: outputs from 32 * outs on; kernel rows 0 to 2 and half of row 3,
 * or the other half and rows 4 to 6 (by `taps`); tile rows from 4 * rows on. */
struct back_share {
    int outs, taps, rows;
    __device__ __forceinline__ explicit back_share(int thread) {
        const int warp = thread / 32;
        outs = warp & 1;
        taps = warp >> 1 & 1;
        rows = warp >> 2;
    }
    /* Offset of its columns 8 n in the depth. */
    __device__ __forceinline__ int depth(int n) const {
        return n == 6 ? 48 + 8 * taps : 64 * taps + 8 * n;
    }
};

/* acc[m][n]: outputs from 16 m on, columns from 8 n on, of the share. */
template <class T>
__device__ __forceinline__ void multiply_back(const unsigned char *g, const uint32_t *image,
                                              const back_share &mine, int lane,
                                              float (&acc)[2][7][4]) {
    using pixels_type = stem_pixels<BACKWARD_ROWS>;
    const unsigned char *a_lane =
        g + ((4 * mine.outs + (lane >> 3 & 1)) * TILE + (lane >> 4) * 8 + (lane & 7)) * 16;
    const uint32_t *b_lane =
        image + 4 * mine.taps * STEM_PITCH + pixels_type::row_of(lane, lane >> 4);
    const uint32_t *b_middle = image + 3 * STEM_PITCH + pixels_type::row_of(lane, mine.taps);
#pragma unroll 2
    for (int row = 4 * mine.rows; row < 4 * mine.rows + 4; row++) {
        uint32_t a[2][4], b[14];
#pragma unroll
        for (int m = 0; m < 2; m++)
            gpu_ldmatrix_x4_trans(a[m], a_lane + (2 * m * TILE + row * 16) * 16);
#pragma unroll
        for (int ky = 0; ky < 3; ky++)
            gpu_ldmatrix_x4_trans(b + 4 * ky, b_lane + (2 * row + ky) * STEM_PITCH);
        gpu_ldmatrix_x2_trans(b + 12, b_middle + 2 * row * STEM_PITCH);
#pragma unroll
        for (int n = 0; n < 7; n++)
#pragma unroll
            for (int m = 0; m < 2; m++)
                gpu_mma_16816<T>(acc[m][n], a[m], b + 2 * n);
    }
}

/* Adds the warps' sums, first the one half of the pixels, then the other, and writes the block's
 * part. */
__device__ __forceinline__ void write_part(float *sum, float *part, const back_share &mine,
                                           int thread, const float (&acc)[2][7][4]) {
    const int lane = thread % 32;
    for (int rows = 0; rows < 2; rows++) {
        __syncthreads();
        if (mine.rows != rows)
            continue;
#pragma unroll
        for (int m = 0; m < 2; m++)
#pragma unroll
            for (int n = 0; n < 7; n++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    float *to = sum +
                                (32 * mine.outs + 16 * m + lane / 4 + i / 2 * 8) * STEM_DEPTH +
                                mine.depth(n) + lane % 4 * 2 + i % 2;
                    *to = rows ? *to + acc[m][n][i] : acc[m][n][i];
                }
    }
    __syncthreads();
    for (int i = thread; i < PART_FLOATS / 4; i += STEM_THREADS)
        ((float4 *)part)[i] = ((const float4 *)sum)[i];
}

template <class T>
__global__ void __launch_bounds__(STEM_THREADS, 2) stem_backward(const backward_args p) {
    gpu_begin();
    CHEX_DYNAMIC_SHARED(shared);
    const int thread = (int)threadIdx.x, stride = (int)gridDim.x;
    const grad_share share(thread);
    const back_share mine(thread);
    stem_pixels<BACKWARD_ROWS> pixels;
    grad_coefficients scale = {};
    if (p.out.bsum) {
        gpu_read_run<8>(scale.b, p.out.bsum + share.chunk * 8);
        gpu_read_run<8>(scale.c, p.out.csum + share.chunk * 8);
    }
    const stem_at first = tile_at(p.tiles, (int)blockIdx.x);
    pixels.load(p.grey, p.tiles, first, thread);
    unsigned there = issue<T>(p, first, share, shared + AT_G, shared + AT_X);
    gpu_copy_commit();

    float acc[2][7][4];
#pragma unroll
    for (int i = 0; i < 56; i++)
        acc[i / 28][i / 4 % 7][i % 4] = 0.0f;
    int step = 0;
    for (int tile = (int)blockIdx.x; tile < p.tiles.total; tile += stride, step ^= 1) {
        unsigned char *g = shared + AT_G + step * G_BYTES, *x = shared + AT_X + step * G_BYTES;
        uint32_t *image = (uint32_t *)(shared + AT_IMAGE + step * IMAGE_BYTES);
        pixels.store<T>(image, thread);
        gpu_copy_wait<0>();
        if (p.out.bsum)
            finish_grad<T>(scale, share, there, g, x);
        __syncthreads();
        if (tile + stride < p.tiles.total) {
            const int other = step ^ 1;
            const stem_at next = tile_at(p.tiles, tile + stride);
            there = issue<T>(p, next, share, shared + AT_G + other * G_BYTES,
                             shared + AT_X + other * G_BYTES);
            pixels.load(p.grey, p.tiles, next, thread);
        }
        gpu_copy_commit();
        multiply_back<T>(g, image, mine, thread % 32, acc);
    }
    write_part((float *)(shared + AT_G), p.parts + (int64_t)blockIdx.x * PART_FLOATS, mine, thread,
               acc);
}

/* Mean and standard deviation of the three channels, as a kernel argument. */
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

/* Computes dw (64, 7, 7, 3) from the parts. A block computes 64 pairs (output, ky, tap). */
__global__ void __launch_bounds__(GPU_PARTS_THREADS)
    stem_unfold(const float *parts, int part_count, stem_colours colours, float *dweight) {
    gpu_begin();
    __shared__ double sums[8][GPU_PARTS_ROW];
    const int thread = (int)threadIdx.x, first = (int)blockIdx.x * 128;
    gpu_add_parts(parts, part_count, PART_FLOATS, first, thread, sums);
    if (thread >= 64)
        return;
    const int pair = first / 2 + thread, kx = pair % 8 - 1, row = pair / 8; /* row: output, ky */
    if (kx < 0)
        return;
    const double of_u = sums[0][gpu_parts_at(2 * thread)];
    const double of_1 = sums[0][gpu_parts_at(2 * thread + 1)];
    for (int c = 0; c < 3; c++)
        dweight[(row * 7 + kx) * 3 + c] =
            (float)(((of_u + 128 * of_1) / 255 - colours.mean[c] * of_1) / colours.std[c]);
}

/* One thread computes one of the 64 x 7 x 8 folded pairs. */
template <class T>
__global__ void __launch_bounds__(STEM_THREADS)
    stem_fold(const float *w, stem_colours colours, T *folded) {
    gpu_begin();
    const int at = (int)(blockIdx.x * STEM_THREADS + threadIdx.x);
    if (at >= STEM_OUT * STEM_ROWS * 8)
        return;
    const int column = at / 4 % STEM_OUT, chunk = at / 4 / STEM_OUT;
    const int ky = chunk / 2, kx = chunk % 2 * 4 + at % 4 - 1;
    const int out = gpu_vec8_channel(column);
    double of_u = 0, of_1 = 0;
    for (int c = 0; c < 3 && kx >= 0; c++) {
        const double v = (double)w[((out * 7 + ky) * 7 + kx) * 3 + c] / colours.std[c];
        of_u += v / 255;
        of_1 += v * (128.0 / 255 - colours.mean[c]);
    }
    folded[2 * at] = gpu_round<T>((float)of_u);
    folded[2 * at + 1] = gpu_round<T>((float)of_1);
}

} // namespace

extern "C" size_t gpu_stem_folded_bytes(void) { return WEIGHT_BYTES; }

extern "C" cudaError_t gpu_stem_fold(const float *w, const float mean[3], const float std[3],
                                     enum gpu_type type, void *folded_out, cudaStream_t stream) {
    const dim3 grid(STEM_OUT * STEM_ROWS * 8 / STEM_THREADS), block(STEM_THREADS);
    const stem_colours colours = colours_of(mean, std);
    return gpu_with_16_bits(type, [&](auto t) {
        using T = decltype(t);
        return CHEX_LAUNCH(stem_fold<T>, grid, block, 0, stream, w, colours, (T *)folded_out);
    });
}

extern "C" cudaError_t gpu_stem_forward(const struct gpu_device *device, const float *grey, int n,
                                        int size, const void *folded, const struct gpu_map *out,
                                        const struct gpu_stats *stats, cudaStream_t stream) {
    forward_args args = {grey, folded, tiles_of(grey, n, size, FORWARD_ROWS), *out, *stats};
    const int blocks = blocks_of(*device, args.tiles);
    if (out->hw != args.tiles.hw || out->channels != STEM_OUT)
        return cudaErrorInvalidValue;
    return gpu_with_16_bits(out->type, [&](auto t) {
        return CHEX_LAUNCH(stem_forward<decltype(t)>, dim3((unsigned)blocks), dim3(STEM_THREADS), 0,
                           stream, args);
    });
}

extern "C" size_t gpu_stem_workspace(const struct gpu_device *device, int n, int size) {
    return (size_t)blocks_of(*device, tiles_of(nullptr, n, size, BACKWARD_ROWS)) * PART_FLOATS * 4;
}

extern "C" cudaError_t gpu_stem_backward(const struct gpu_device *device, const float *grey, int n,
                                         int size, const struct gpu_deferred_grad *out,
                                         const float mean[3], const float std[3], float *dweight,
                                         void *workspace, cudaStream_t stream) {
    const backward_args args = {grey, tiles_of(grey, n, size, BACKWARD_ROWS), *out,
                                (float *)workspace};
    const int blocks = blocks_of(*device, args.tiles);
    if (out->g.hw != args.tiles.hw || out->g.channels != STEM_OUT)
        return cudaErrorInvalidValue;
    CHEX_GPU_TRY(gpu_with_16_bits(out->g.type, [&](auto t) {
        return CHEX_LAUNCH(stem_backward<decltype(t)>, dim3((unsigned)blocks), dim3(STEM_THREADS),
                           (size_t)BACKWARD_BYTES, stream, args);
    }));
    return CHEX_LAUNCH(stem_unfold, dim3(PART_FLOATS / 128), dim3(GPU_PARTS_THREADS), 0, stream,
                       args.parts, blocks, colours_of(mean, std), dweight);
}
