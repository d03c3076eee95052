/* SPDX-License-Identifier: Apache-2.0
 *
 * What the kernels of stage s5 assume of capability 9.0, instruction by instruction, through the
 * functions that they use. Each assumption is a small kernel and a sum by hand. Each runs in a
 * process of its own: one that hangs or faults hides no other. Exit status 1 if one fails, 77 on
 * another device.
 */
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "engine/cuda/host/tensor_map.h"
#include "engine/cuda/kernels/hopper.cuh"

#define TRY(call)                                                                                  \
    do {                                                                                           \
        const cudaError_t try_e_ = (call);                                                         \
        if (try_e_ != cudaSuccess) {                                                               \
            snprintf(note, sizeof note, "%s: %s", #call, cudaGetErrorString(try_e_));              \
            return -1;                                                                             \
        }                                                                                          \
    } while (0)

static char note[200]; /* beside the verdict */

/* Memory is given back when the process ends. */
template <class V> static cudaError_t upload(const std::vector<V> &host, V **out) {
    void *p = nullptr;
    const size_t bytes = host.size() * sizeof(V);
    cudaError_t e = cudaMalloc(&p, bytes);
    *out = static_cast<V *>(p);
    return e == cudaSuccess ? cudaMemcpy(p, host.data(), bytes, cudaMemcpyHostToDevice) : e;
}
template <class V> static cudaError_t download(std::vector<V> &host, const V *from) {
    const cudaError_t e = cudaDeviceSynchronize();
    return e == cudaSuccess
               ? cudaMemcpy(host.data(), from, host.size() * sizeof(V), cudaMemcpyDeviceToHost)
               : e;
}

/* ---- wgmma: layouts of its matrices ---- */

enum { K = 32, MATRIX_BYTES = 1 << 15 };

struct form {
    bool transposed;
    int swizzle;
};
static const form forms[] = {{false, 0}, {false, 32}, {false, 64}, {false, 128},
                             {true, 0},  {true, 32},  {true, 64},  {true, 128}};

/* Byte of element (i, k) of a matrix of `rows` by K. */
static int byte_of(form f, int rows, int i, int k) {
    const int w = f.swizzle;
    if (f.transposed) {
        if (!w)
            return i / 8 * K * 16 + k * 16 + i % 8 * 2;
        const int unit = i % (w / 2) / 8, line = k * w / 128;
        return i / (w / 2) * K * w + k * w + (unit ^ (line & (w / 16 - 1))) * 16 + i % 8 * 2;
    }
    if (!w)
        return k / 8 * rows * 16 + i * 16 + k % 8 * 2;
    const int unit = k % (w / 2) / 8, line = i * w / 128;
    return k / (w / 2) * rows * w + i * w + (unit ^ (line & (w / 16 - 1))) * 16 + k % 8 * 2;
}
static __device__ uint64_t descriptor(form f, const void *shared, int rows) {
    const unsigned w = (unsigned)f.swizzle, n = (unsigned)rows;
    if (f.transposed)
        return w ? gpu_matrix(shared, K * w, 8 * w, f.swizzle) : gpu_matrix(shared, 128, K * 16, 0);
    return w ? gpu_matrix(shared, 0, 8 * w, f.swizzle) : gpu_matrix(shared, n * 16, 128, 0);
}

struct matrix {
    const uint4 *image; /* of shared memory */
    form f;
    int rows, step; /* bytes from k = 0 to 16 */
};

/* d = a b of K = 32 in two products, from row `shift` of a on. */
template <class T, int N, bool A_T, bool B_T, bool REGISTERS>
static __global__ void product(matrix a, matrix b, int shift, float *to) {
    gpu_begin();
    CHEX_DYNAMIC_SHARED_1024(shared);
    const int thread = (int)threadIdx.x, lane = thread % 32, warp = thread / 32;
    uint4 *const mine_a = (uint4 *)shared, *const mine_b = (uint4 *)(shared + MATRIX_BYTES);
    for (int i = thread; i < MATRIX_BYTES / 16; i += 128) {
        mine_a[i] = a.image[i];
        mine_b[i] = b.image[i];
    }
    gpu_async_fence();
    __syncthreads();
    float d[N / 2];
    for (int i = 0; i < N / 2; i++)
        d[i] = 1000.0f;
    uint32_t fragment[2][4];
    for (int s = 0; s < 2; s++)
        for (int i = 0; i < 4; i++) { /* k-major, no swizzle */
            const int row = warp * 16 + lane / 4 + i % 2 * 8, k = s * 16 + lane % 4 * 2 + i / 2 * 8;
            fragment[s][i] =
                *(const uint32_t *)(shared + k / 8 * a.rows * 16 + row * 16 + k % 8 * 2);
        }
    const uint64_t left = gpu_matrix_at(descriptor(a.f, mine_a, a.rows), shift * 16);
    const uint64_t right = descriptor(b.f, mine_b, N);
    gpu_wgmma_fence();
#pragma unroll
    for (int s = 0; s < 2; s++) {
        if constexpr (REGISTERS)
            gpu_wgmma_a<T, N, B_T>(d, fragment[s], gpu_matrix_at(right, s * b.step), s > 0);
        else
            gpu_wgmma<T, N, A_T, B_T>(d, gpu_matrix_at(left, s * a.step),
                                      gpu_matrix_at(right, s * b.step), s > 0);
    }
    gpu_wgmma_commit();
    gpu_wgmma_wait<0>();
    for (int i = 0; i < N / 2; i++)
        to[(warp * 16 + lane / 4 + i % 4 / 2 * 8) * N + i / 4 * 8 + lane % 4 * 2 + i % 2] = d[i];
}

static int value_a(int i, int k) { return (i * 7 + k * 3) % 11 - 5; }
static int value_b(int j, int k) { return (j * 5 + k * 13) % 9 - 4; }
static void put(gpu_bf16 *at, float v) { *at = __float2bfloat16_rn(v); }
static void put(gpu_f16 *at, float v) { *at = __float2half_rn(v); }

template <class T> static int matrix_of(form f, int rows, int (*value)(int, int), matrix *out) {
    std::vector<uint4> image(MATRIX_BYTES / 16);
    for (int i = 0; i < rows; i++)
        for (int k = 0; k < K; k++)
            put((T *)((char *)image.data() + byte_of(f, rows, i, k)), (float)value(i, k));
    uint4 *there;
    TRY(upload(image, &there));
    *out = {there, f, rows, byte_of(f, rows, 0, 16)};
    return 0;
}

/* Elements of the product that are wrong, or -1: a launch failed. */
template <class T, int N, bool A_T, bool B_T, bool REGISTERS = false>
static int check_product(form of_a, form of_b, int shift = 0) {
    matrix a, b;
    float *to;
    std::vector<float> got(64 * N);
    /* An odd number of rows: `leading` need not be a multiple of 128. */
    if (matrix_of<T>(of_a, of_a.swizzle || of_a.transposed ? 72 : 71, value_a, &a) ||
        matrix_of<T>(of_b, N, value_b, &b))
        return -1;
    TRY(upload(got, &to));
    TRY(CHEX_LAUNCH((product<T, N, A_T, B_T, REGISTERS>), 1, 128, 2 * MATRIX_BYTES, nullptr, a, b,
                    shift, to));
    TRY(download(got, to));
    int wrong = 0;
    for (int i = 0; i < 64; i++)
        for (int j = 0; j < N; j++) {
            int want = 0;
            for (int k = 0; k < K; k++)
                want += value_a(i + shift, k) * value_b(j, k);
            wrong += got[(size_t)(i * N + j)] != (float)want;
        }
    if (wrong)
        snprintf(note, sizeof note, "64x%dx16, a: %s %d shifted by %d, b: %s %d: %d wrong", N,
                 REGISTERS         ? "registers"
                 : of_a.transposed ? "transposed"
                                   : "k-major",
                 of_a.swizzle, shift, of_b.transposed ? "transposed" : "k-major", of_b.swizzle,
                 wrong);
    return wrong;
}

static int wgmma_plain() { return check_product<gpu_bf16, 64, false, false>(forms[0], forms[0]); }
static int wgmma_shifted() {
    int wrong = 0;
    for (int shift = 1; shift < 8 && !wrong; shift++)
        wrong = check_product<gpu_bf16, 64, false, false>(forms[0], forms[0], shift);
    return wrong;
}
static int wgmma_transposed() {
    const int wrong = check_product<gpu_bf16, 128, true, true>(forms[4], forms[4]);
    return wrong ? wrong : check_product<gpu_f16, 64, false, true>(forms[0], forms[4]);
}
static int wgmma_swizzled() {
    int wrong = 0;
    for (int i = 1; i < 4 && !wrong; i++)
        wrong = check_product<gpu_bf16, 64, false, false>(forms[i], forms[i]);
    return wrong;
}
static int wgmma_swizzled_transposed() {
    int wrong = 0;
    for (int i = 5; i < 8 && !wrong; i++) {
        wrong = check_product<gpu_bf16, 128, true, true>(forms[i], forms[i]);
        if (!wrong)
            wrong = check_product<gpu_f16, 32, true, false>(forms[i], forms[8 - i]);
    }
    return wrong;
}
static int wgmma_registers() {
    const int wrong = check_product<gpu_bf16, 128, false, true, true>(forms[0], forms[4]);
    return wrong ? wrong : check_product<gpu_f16, 32, false, false, true>(forms[0], forms[3]);
}

/* ---- bulk copies ---- */

enum { ROWS = 8, HEIGHT = 29, WIDTH = 104, PITCH = 128, BOX = ROWS * 128 };

static uint16_t pixel(int row, int column) { return (uint16_t)(row * 1000 + column + 1); }

/* The map of HEIGHT x WIDTH within rows of PITCH. */
static int map_of(std::vector<uint16_t> *host, int columns, gpu_swizzle swizzle, uint16_t **data,
                  CUtensorMap *map) {
    host->assign((HEIGHT + ROWS) * PITCH, 7);
    for (int i = 0; i < HEIGHT * PITCH; i++)
        (*host)[(size_t)i] = pixel(i / PITCH, i % PITCH);
    TRY(upload(*host, data));
    const gpu_tensor t = {*data, GPU_BF16, HEIGHT, WIDTH, PITCH};
    TRY(gpu_tensor_map(map, &t, columns, ROWS, swizzle));
    return 0;
}

static __global__ void load_box(const __grid_constant__ CUtensorMap map, int column, int row,
                                unsigned bytes, uint16_t *to) {
    gpu_begin();
    CHEX_DYNAMIC_SHARED_1024(shared);
    gpu_barrier *const full = (gpu_barrier *)(shared + BOX);
    if (threadIdx.x == 0) {
        gpu_barrier_init(full, 1);
        gpu_barrier_init_fence();
        gpu_barrier_expect(full, bytes);
        gpu_tile_load(shared, &map, column, row, full);
    }
    __syncthreads();
    gpu_barrier_wait(full, 0);
    for (unsigned i = threadIdx.x; i < bytes / 2; i += 32)
        to[i] = ((const uint16_t *)shared)[i];
}

static int check_box(gpu_swizzle swizzle, int column, int row) {
    const int columns = swizzle == GPU_SWIZZLE_NONE ? 64 : 8 << swizzle;
    std::vector<uint16_t> host, got(BOX / 2);
    uint16_t *data, *to;
    CUtensorMap map;
    if (map_of(&host, columns, swizzle, &data, &map))
        return -1;
    TRY(upload(got, &to));
    TRY(CHEX_LAUNCH(load_box, 1, 32, BOX + 8, nullptr, map, column, row,
                    (unsigned)(ROWS * columns * 2), to));
    TRY(download(got, to));
    int wrong = 0;
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < columns; c++) {
            const int permuted = swizzle == GPU_SWIZZLE_128  ? r & 7
                                 : swizzle == GPU_SWIZZLE_64 ? r >> 1 & 3
                                 : swizzle == GPU_SWIZZLE_32 ? r >> 2 & 1
                                                             : 0;
            const int at = r * columns + (c / 8 ^ permuted) * 8 + c % 8, y = row + r,
                      x = column + c;
            const bool inside = y >= 0 && y < HEIGHT && x >= 0 && x < WIDTH;
            wrong += got[(size_t)at] != (inside ? pixel(y, x) : 0);
        }
    if (wrong)
        snprintf(note, sizeof note, "box at row %d, column %d, swizzle %d: %d wrong", row, column,
                 swizzle ? 16 << swizzle : 0, wrong);
    return wrong;
}
static int box_swizzles() {
    int wrong = 0;
    for (int s = GPU_SWIZZLE_NONE; s <= GPU_SWIZZLE_128 && !wrong; s++)
        wrong = check_box((gpu_swizzle)s, 8, 16);
    return wrong;
}
static int box_edges() {
    static const int at[][2] = {{WIDTH - 24, 0}, {0, HEIGHT - 3}, {WIDTH - 24, HEIGHT - 3},
                                {-8, -3},        {PITCH, 0},      {0, HEIGHT}};
    int wrong = 0;
    for (size_t i = 0; i < sizeof at / sizeof *at && !wrong; i++)
        wrong = check_box(GPU_SWIZZLE_128, at[i][0], at[i][1]);
    return wrong;
}

/* Threads write a box, and one stores it over the edge of the map. */
static __global__ void store_box(const __grid_constant__ CUtensorMap map, int column, int row) {
    gpu_begin();
    CHEX_DYNAMIC_SHARED_1024(shared);
    for (int i = (int)threadIdx.x; i < BOX / 2; i += 128)
        ((uint16_t *)shared)[i] = (uint16_t)(40000 + i);
    gpu_async_fence();
    __syncthreads();
    if (threadIdx.x == 0) {
        gpu_tile_store(&map, column, row, shared);
        gpu_bulk_commit();
        gpu_bulk_wait<0>();
    }
}
static int box_store() {
    enum { COLUMN = WIDTH - 24, ROW = HEIGHT - 3 };
    std::vector<uint16_t> host;
    uint16_t *data;
    CUtensorMap map;
    if (map_of(&host, 64, GPU_SWIZZLE_NONE, &data, &map))
        return -1;
    std::vector<uint16_t> got(host.size());
    TRY(CHEX_LAUNCH(store_box, 1, 128, BOX, nullptr, map, (int)COLUMN, (int)ROW));
    TRY(download(got, data));
    int wrong = 0;
    for (int y = 0; y < HEIGHT + ROWS; y++)
        for (int x = 0; x < PITCH; x++) {
            const bool stored = y >= ROW && y < HEIGHT && x >= COLUMN && x < WIDTH;
            const size_t at = (size_t)(y * PITCH + x);
            wrong += got[at] != (stored ? 40000 + (y - ROW) * 64 + x - COLUMN : host[at]);
        }
    return wrong;
}

/* ---- clusters ---- */

/* Block 1 copies to both blocks of a pair before block 0 expects the bytes. */
static __global__ void early_bytes(const uint4 *from, uint4 *to) {
    gpu_begin();
    CHEX_DYNAMIC_SHARED_1024(shared);
    gpu_barrier *const full = (gpu_barrier *)(shared + 512);
    const bool sends = gpu_cluster_block() == 1;
    if (threadIdx.x == 0) {
        gpu_barrier_init(full, 1);
        gpu_barrier_init_fence();
    }
    gpu_cluster_sync();
    if (threadIdx.x == 0 && sends) {
        gpu_barrier_expect(full, 512);
        gpu_bulk_load_all(shared, from, 512, full, 3);
    }
    if (sends)
        gpu_barrier_wait(full, 0);
    gpu_cluster_sync();
    if (threadIdx.x == 0 && !sends)
        gpu_barrier_expect(full, 512);
    gpu_barrier_wait(full, 0);
    to[blockIdx.x * 32 + threadIdx.x] = ((const uint4 *)shared)[threadIdx.x];
}
static int early() {
    std::vector<uint4> in(32), out(64);
    uint4 *from, *to;
    for (unsigned i = 0; i < 32; i++)
        in[i] = make_uint4(i, i + 100, i + 200, i + 300);
    TRY(upload(in, &from));
    TRY(upload(out, &to));
    TRY(CHEX_LAUNCH_CLUSTER(early_bytes, 2, 32, 2, 512 + 8, nullptr, from, to));
    TRY(download(out, to));
    return memcmp(&out[0], &in[0], 512) != 0 || memcmp(&out[32], &in[0], 512) != 0;
}

enum { ROUNDS = 6, STAGES = 2, PART = 128, MOST = 8 };

/* In each round every block copies its part to all blocks; a warp adds them up, stores into the
 * stage, and releases it in every block. Then the blocks exchange their sums. */
static __global__ void ring(const uint32_t *from, uint32_t *to) {
    gpu_begin();
    CHEX_DYNAMIC_SHARED_1024(shared);
    gpu_barrier *const full = (gpu_barrier *)(shared + STAGES * MOST * PART);
    gpu_barrier *const empty = full + STAGES;
    uint32_t *const said = (uint32_t *)(empty + STAGES);
    const unsigned me = gpu_cluster_block(), blocks = gpu_cluster_blocks();
    const unsigned lane = threadIdx.x % 32;
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; s++) {
            gpu_barrier_init(full + s, 1);
            gpu_barrier_init(empty + s, blocks);
        }
        gpu_barrier_init_fence();
    }
    gpu_cluster_sync();
    if (threadIdx.x == 32)
        for (unsigned t = 0; t < ROUNDS; t++) {
            const unsigned s = t % STAGES;
            gpu_barrier_wait(empty + s, (t / STAGES & 1) ^ 1);
            gpu_barrier_expect(full + s, blocks * PART);
            gpu_bulk_load_all(shared + (s * MOST + me) * PART, from + (t * MOST + me) * (PART / 4),
                              PART, full + s, (1u << blocks) - 1);
        }
    uint32_t sum = 0;
    if (threadIdx.x < 32)
        for (unsigned t = 0; t < ROUNDS; t++) {
            const unsigned s = t % STAGES;
            gpu_barrier_wait(full + s, t / STAGES & 1);
            for (unsigned b = 0; b < blocks; b++) {
                uint32_t *const at = (uint32_t *)(shared + (s * MOST + b) * PART) + lane;
                sum += *at;
                *at = 0;
            }
            gpu_async_fence();
            __syncwarp();
            if (lane < blocks)
                gpu_barrier_arrive_in(empty + s, lane);
        }
    __syncwarp();
    if (threadIdx.x < 32)
        said[lane] = sum + me;
    gpu_cluster_sync();
    if (threadIdx.x < 32)
        to[blockIdx.x * 32 + lane] = *gpu_cluster_shared(said + lane, (me + 1) % blocks);
    gpu_cluster_sync();
}

/* Clusters of 1 to 8, of as many blocks as the device has multiprocessors and more; note: how many
 * of each run at once with most of the shared memory, as those of the 1x1 backward do. */
static int clusters() {
    enum { SHARED = STAGES * MOST * PART + 2 * STAGES * 8 + 128, AT_ONCE_SHARED = 200 << 10 };
    std::vector<uint32_t> in(ROUNDS * MOST * PART / 4);
    cudaDeviceProp p;
    uint32_t *from, *to;
    for (size_t i = 0; i < in.size(); i++)
        in[i] = (uint32_t)(i * i);
    TRY(cudaGetDeviceProperties(&p, 0));
    TRY(upload(in, &from));
    size_t used = (size_t)snprintf(note, sizeof note, "at once, for 1 to 8 blocks:");
    int wrong = 0;
    for (unsigned blocks = 1; blocks <= MOST; blocks++) {
        const unsigned grid = ((unsigned)p.multiProcessorCount / blocks + 2) * blocks;
        std::vector<uint32_t> out(grid * 32);
        int at_once = 0;
        TRY(upload(out, &to));
        TRY(CHEX_LAUNCH_CLUSTER(ring, grid, 64, blocks, SHARED, nullptr, from, to));
        TRY(download(out, to));
        TRY(gpu_active_clusters(ring, 64, blocks, AT_ONCE_SHARED, &at_once));
        used += (size_t)snprintf(note + used, sizeof note - used, " %d", at_once);
        for (unsigned i = 0; i < grid * 32; i++) {
            uint32_t want = (i / 32 % blocks + 1) % blocks;
            for (unsigned t = 0; t < ROUNDS; t++)
                for (unsigned b = 0; b < blocks; b++)
                    want += in[(t * MOST + b) * (PART / 4) + i % 32];
            wrong += out[i] != want;
        }
        wrong += at_once < 1;
    }
    return wrong;
}

/* ---- registers ---- */

enum { LIVE = 200 };

/* More values than the launch has registers for. */
static __host__ __device__ inline float churn(float from) {
    float v[LIVE], sum = 0;
#pragma unroll
    for (int i = 0; i < LIVE; i++)
        v[i] = from * (float)(i % 7);
#pragma unroll 1
    for (int round = 0; round < 3; round++) {
#pragma unroll
        for (int i = 0; i < LIVE; i++)
            v[i] = v[i] * 0.5f + v[(i + 1) % LIVE];
    }
#pragma unroll
    for (int i = 0; i < LIVE; i++)
        sum += v[i];
    return sum;
}
static __global__ void __launch_bounds__(384, 1) registers(float *to) {
    gpu_begin();
    if (threadIdx.x >= 256) {
        gpu_registers_fewer<40>();
        return;
    }
    gpu_registers_more<232>();
    to[blockIdx.x * 256 + threadIdx.x] = churn((float)threadIdx.x);
}
static int setmaxnreg() {
    std::vector<float> out(8 * 256);
    float *to;
    TRY(upload(out, &to));
    TRY(CHEX_LAUNCH(registers, 8, 384, 0, nullptr, to));
    TRY(download(out, to));
    int wrong = 0;
    for (size_t i = 0; i < out.size(); i++)
        wrong += out[i] != churn((float)(i % 256));
    return wrong;
}

static int device() {
    cudaDeviceProp p;
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || !count) {
        printf("skipped: no CUDA device\n");
        exit(77);
    }
    TRY(cudaGetDeviceProperties(&p, 0));
    if (p.major != 9 || p.minor != 0) {
        printf("skipped: the kernels of s5 are for capability 9.0 only, this device's is %d.%d\n",
               p.major, p.minor);
        exit(77);
    }
    return 0;
}

static const struct {
    const char *name;
    int (*wrong)(); /* 0: it holds */
    const char *means;
} assumptions[] = {
    {"a device of capability 9.0", device, "s5 cannot run here"},
    {"wgmma, k-major without a swizzle", wgmma_plain, "no product of the 3x3 kernels is right"},
    {"wgmma, a matrix that begins at any 16 bytes", wgmma_shifted,
     "the taps of the 3x3 forward and data gradient are wrong: they need a copy for each shift"},
    {"wgmma, transposed without a swizzle", wgmma_transposed, "the 3x3 weight gradient is wrong"},
    {"wgmma, swizzles, next 16 of k at +32 bytes", wgmma_swizzled,
     "the weights of the 1x1 forward are read wrong"},
    {"wgmma, swizzles, transposed", wgmma_swizzled_transposed,
     "no kernel of s5 uses it; a new one must not"},
    {"wgmma, a in registers", wgmma_registers, "the 1x1 forward is wrong"},
    {"TMA, swizzles", box_swizzles, "the 1x1 kernels read other channels"},
    {"TMA, boxes at the edge: zeros, all bytes counted", box_edges,
     "the 1x1 kernels hang or read garbage in their last rows and channels"},
    {"TMA, a store after a proxy fence, cut at the edge", box_store,
     "the 1x1 backward stores a wrong gradient"},
    {"mbarrier, bytes of another block before they are expected", early,
     "pairs and clusters of the 1x1 kernels hang"},
    {"clusters of 1 to 8: multicast, arrivals, a stage filled again", clusters,
     "the 1x1 kernels of pairs and clusters are wrong or hang"},
    {"setmaxnreg, 232 and 40", setmaxnreg, "the 1x1 kernels hang or are wrong"},
};

/* In a process of its own: its exit status. The first one waits for a cold driver. */
static int run(size_t i) {
#ifndef CHEX_GPU_EMULATED
    alarm(i ? 10 : 60);
#endif
    const int wrong = assumptions[i].wrong();
    printf("= s5 assumes %s|%s%s%s%s\n", assumptions[i].name, wrong ? "FAILED: " : "ok",
           wrong ? assumptions[i].means : "", note[0] ? "|" : "", note);
    fflush(stdout);
    return wrong != 0;
}

int main() {
    int failed = 0;
    for (size_t i = 0; i < sizeof assumptions / sizeof *assumptions; i++) {
        int status = -1;
        fflush(stdout);
        const pid_t pid = fork();
        if (pid == 0)
            _exit(run(i));
        if (pid < 0 || waitpid(pid, &status, 0) != pid) {
            perror("fork");
            return 1;
        }
        if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
            return 77;
        if (WIFSIGNALED(status))
            printf("= s5 assumes %s|FAILED: %s|ended by signal %d%s\n", assumptions[i].name,
                   assumptions[i].means, WTERMSIG(status),
                   WTERMSIG(status) == SIGALRM ? ": it hung" : "");
        failed += status != 0;
    }
    return failed != 0;
}
