/* SPDX-License-Identifier: Apache-2.0
 *
 * The counter of memory accesses (emulated/counts.cc) on access patterns whose sectors and bank
 * conflicts are known, and on two kernels of the engine whose traffic can be counted by hand.
 */
#include <cinttypes>

#include "engine/cuda/kernels/device.cuh"

#include "gpu/emulated/counts.h"
#include "tap.h"

/* ---- patterns: one warp, one request ---- */

struct pattern {
    const char *name;
    enum emulated_access access;
    int bytes, stride; /* of a lane; bytes from lane to lane */
    unsigned lanes;
    uint64_t units;
};

/* Units: sectors of 32 bytes, wavefronts of 32 banks. */
static const pattern patterns[] = {
    {"32 neighbouring floats", EMULATED_GLOBAL_LOAD, 4, 4, ~0u, 4},
    {"every second float", EMULATED_GLOBAL_LOAD, 4, 8, ~0u, 8},
    {"floats in 32 rows", EMULATED_GLOBAL_LOAD, 4, 128, ~0u, 32},
    {"one float for all lanes", EMULATED_GLOBAL_LOAD, 4, 0, ~0u, 1},
    {"32 neighbouring float4", EMULATED_GLOBAL_LOAD, 16, 16, ~0u, 16},
    {"32 neighbouring float4", EMULATED_GLOBAL_STORE, 16, 16, ~0u, 16},
    {"8 lanes with neighbouring floats", EMULATED_GLOBAL_LOAD, 4, 4, 0xff00, 1},
    {"copies of 16 neighbouring bytes", EMULATED_GLOBAL_COPY, 16, 16, ~0u, 16},
    {"32 neighbouring floats", EMULATED_SHARED_LOAD, 4, 4, ~0u, 1},
    {"32 neighbouring floats", EMULATED_SHARED_STORE, 4, 4, ~0u, 1},
    {"every second float", EMULATED_SHARED_LOAD, 4, 8, ~0u, 2},
    {"every third float", EMULATED_SHARED_LOAD, 4, 12, ~0u, 1},
    {"floats of a column of 32", EMULATED_SHARED_LOAD, 4, 128, ~0u, 32},
    {"floats of a column of 33", EMULATED_SHARED_LOAD, 4, 132, ~0u, 1},
    {"one float for all lanes", EMULATED_SHARED_LOAD, 4, 0, ~0u, 1},
    {"16 lanes with a column of 32", EMULATED_SHARED_STORE, 4, 128, 0xffff, 16},
    {"32 neighbouring float2", EMULATED_SHARED_LOAD, 8, 8, ~0u, 2},
    {"32 neighbouring float4", EMULATED_SHARED_LOAD, 16, 16, ~0u, 4},
    {"every second float4", EMULATED_SHARED_LOAD, 16, 32, ~0u, 8},
    {"every fourth float4", EMULATED_SHARED_LOAD, 16, 64, ~0u, 16},
    {"neighbouring matrix rows", EMULATED_SHARED_MATRIX, 16, 16, ~0u, 4},
    {"matrix rows 256 bytes apart", EMULATED_SHARED_MATRIX, 16, 256, ~0u, 32},
    {"matrix rows 80 bytes apart", EMULATED_SHARED_MATRIX, 16, 80, ~0u, 4},
};

template <class T> static void move(const pattern &p, unsigned char *at) {
    const bool stores = p.access == EMULATED_GLOBAL_STORE || p.access == EMULATED_SHARED_STORE;
    T v;
    memcpy(&v, &p, sizeof v);
    if (stores) {
        *reinterpret_cast<T *>(at) = v;
        return;
    }
    volatile float used;
    v = *reinterpret_cast<const T *>(at);
    memcpy(const_cast<float *>(&used), &v, sizeof used);
}

static __global__ void pattern_kernel(const pattern *all, int i, unsigned char *memory) {
    gpu_begin();
    CHEX_DYNAMIC_SHARED(shared);
    const pattern p = all[i];
    const int lane = (int)threadIdx.x;
    const bool global = p.access < EMULATED_SHARED_LOAD;
    unsigned char *const at = (global ? memory : shared) + lane * p.stride;
    if (p.access == EMULATED_SHARED_MATRIX) {
        uint32_t out[4];
        gpu_ldmatrix_x4(out, at);
    } else if (p.access == EMULATED_GLOBAL_COPY) {
        gpu_copy16(shared + lane * 16, at, true);
        gpu_copy_commit();
        gpu_copy_wait<0>();
    } else if (p.lanes >> lane & 1) {
        if (p.bytes == 4)
            move<float>(p, at);
        else if (p.bytes == 8)
            move<float2>(p, at);
        else
            move<float4>(p, at);
    }
}

static emulated_counts only_row() {
    size_t count;
    const emulated_counts *const rows = emulated_counts_all(&count);
    BAIL_UNLESS(count == 1, "%zu kernels", count);
    return rows[0];
}

static void known_patterns() {
    void *memory = nullptr;
    BAIL_UNLESS(cudaMalloc(&memory, 8192) == cudaSuccess, "memory");
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        const pattern &p = patterns[i];
        emulated_counts_clear();
        BAIL_UNLESS(CHEX_LAUNCH(pattern_kernel, 1, 32, 8192, nullptr, &patterns[0], (int)i,
                                (unsigned char *)memory) == cudaSuccess,
                    "launch");
        const emulated_traffic t = only_row().sum.of[p.access];
        OK(t.requests == 1 && t.units == p.units,
           "%s, %s: one request takes %" PRIu64 " (%" PRIu64 " of %" PRIu64 " requests)",
           emulated_access_names[p.access], p.name, p.units, t.units, t.requests);
    }
    OK(strcmp(emulated_kernel_name(only_row().kernel), "pattern_kernel") == 0,
       "a kernel has its name: %s", emulated_kernel_name(only_row().kernel));
    cudaFree(memory);
}

/* ---- caches, loops, instructions ---- */

/* Each block reads all of `from` twice and writes its part of `to`. Lane l takes l + 1 steps of a
 * loop. */
static __global__ void reuse_kernel(const float *from, float *to, unsigned *ticket) {
    gpu_begin();
    __shared__ float steps[32];
    const int lane = (int)threadIdx.x;
    float v = 0;
    for (int i = 0; i <= lane; i++)
        *const_cast<volatile float *>(steps + lane) = v += 1;
    for (int i = 0; i < 2; i++) {
        v += *const_cast<const volatile float *>(from + lane);
        __syncthreads();
    }
    v += __shfl_xor_sync(0xffffffffu, v, 1);
    to[blockIdx.x * 32 + threadIdx.x] = v;
    atomicInc(ticket, 7);
    __syncwarp();
}

static void known_reuse() {
    void *from = nullptr, *to = nullptr, *ticket = nullptr;
    emulated_counts_clear();
    BAIL_UNLESS(!cudaMalloc(&from, 128) && !cudaMalloc(&to, 1024) && !cudaMalloc(&ticket, 4) &&
                    !CHEX_LAUNCH(reuse_kernel, 3, 32, 0, nullptr, (const float *)from, (float *)to,
                                 (unsigned *)ticket),
                "launch");
    const emulated_counts row = only_row();
    const emulated_sums &r = row.sum;
    OK(r.of[EMULATED_GLOBAL_LOAD].units == 3 * 2 * 4 && r.l2_load_bytes == 3 * 128 &&
           r.dram_load_bytes == 128,
       "three blocks load 128 bytes twice each: L2 gives them once a block, DRAM once");
    OK(r.l2_store_bytes == 3 * 128 && r.dram_store_bytes == 3 * 128,
       "each block stores 128 bytes of its own");
    OK(r.of[EMULATED_SHARED_STORE].requests == 3 * 32 && r.of[EMULATED_SHARED_STORE].units == 96,
       "lanes that leave a loop early take part in fewer requests: %" PRIu64 " in all",
       r.of[EMULATED_SHARED_STORE].requests);
    OK(r.barriers == 6 && r.shuffles == 3 && r.warp_syncs == 3 && r.global_atomics == 96 &&
           row.blocks == 3 && row.threads == 32,
       "barriers of a block, shuffles of a warp and atomics of a thread are counted");
    cudaFree(from);
    cudaFree(to);
    cudaFree(ticket);
}

/* ---- kernels of the engine ---- */

static void *zeros(size_t bytes) {
    void *p = nullptr;
    BAIL_UNLESS(cudaMalloc(&p, bytes) == cudaSuccess && cudaMemset(p, 0, bytes) == cudaSuccess,
                "memory");
    return p;
}

/* bf16, 2 images of 16 x 16, 64 of 96 channels. */
static void known_activate() {
    const int pixels = 2 * 16 * 16, channels = 64;
    const gpu_map in = {zeros((size_t)pixels * 96 * 2), GPU_BF16, 2, 16, channels, 96};
    const gpu_map out = {zeros((size_t)pixels * 64 * 2), GPU_BF16, 2, 16, channels, 64};
    float *const v = static_cast<float *>(zeros(64 * 4));
    const gpu_norm norm = {v, v, v, v, true};
    emulated_counts_clear();
    BAIL_UNLESS(gpu_activate(&in, &norm, &out, nullptr) == cudaSuccess, "launch");
    const emulated_counts row = only_row();
    const emulated_sums &r = row.sum;
    const uint64_t map = (uint64_t)pixels * channels * 2;
    OK(r.dram_load_bytes == map + 64 * 4 && r.dram_store_bytes == map,
       "gpu_activate loads and stores each map once, and its vector: %" PRIu64 " and %" PRIu64
       " bytes",
       r.dram_load_bytes, r.dram_store_bytes);
    OK(r.of[EMULATED_GLOBAL_STORE].requests == map / 512 &&
           r.of[EMULATED_GLOBAL_STORE].units == map / 32,
       "a warp of it stores 16 bytes a lane");
}

/* The counts of a 1x1 backward of 128 input and 128 output channels, n images of 16 x 16. */
static emulated_sums backward_counts(int sms, int n) {
    const int hw = 16, c = 128;
    const size_t bytes = (size_t)(n * hw * hw * c) * 2;
    gpu_device device = {};
    device.capability = 90;
    device.sms = sms;
    device.shared_max = 232448;
    const auto map = [&]() { return gpu_map{zeros(bytes), GPU_BF16, n, hw, c, c}; };
    const auto vector = [&]() { return static_cast<float *>(zeros(c * 4)); };
    float *const v = vector(), *const partial = static_cast<float *>(zeros(GPU_MAX_BLOCKS * c * 8));
    gpu_conv_backward b = {};
    b.in = map();
    b.in_g = map();
    b.out = {map(), map(), v, v};
    b.norm = {v, v, v, v, true};
    b.window = {1, 1, 0};
    b.weight = b.weight_t = zeros(c * c * 2);
    b.add = true;
    b.sums = {partial,  static_cast<unsigned *>(zeros(GPU_TICKETS * 4)),
              vector(), vector(),
              vector(), vector()};
    b.dweight = static_cast<float *>(zeros(c * c * 4));
    void *const workspace = zeros(gpu_conv_algo_1x1.workspace(&device, nullptr, nullptr, &b) + 256);
    emulated_counts_clear();
    BAIL_UNLESS(gpu_conv_algo_1x1.backward(&device, nullptr, &b, workspace, nullptr) == cudaSuccess,
                "launch");
    size_t count;
    const emulated_counts *const rows = emulated_counts_all(&count);
    BAIL_UNLESS(count == 2 && strstr(emulated_kernel_name(rows[0].kernel), "conv1x1_fused_kernel"),
                "%zu kernels", count);
    return rows[0].sum;
}

static void known_backward() {
    const emulated_sums r = backward_counts(2, 1);
    const uint64_t pixels = 16 * 16, c = 128, map = pixels * c * 2;
    OK(r.mma == 2 * pixels * c * c / (16 * 8 * 16),
       "the fused 1x1 backward multiplies each pixel twice with the weights: %" PRIu64 " mma",
       r.mma);
    OK(r.of[EMULATED_GLOBAL_COPY].units * 32 == 4 * map,
       "it copies four operands once: %" PRIu64 " sectors", r.of[EMULATED_GLOBAL_COPY].units);
    /* Two blocks of two tiles; each asks for two tiles more, which are zeros. */
    OK(r.of[EMULATED_SHARED_COPY].units == 2 * 4 * map / 128,
       "its copies write each tile once, and two tiles of zeros: %" PRIu64 " wavefronts",
       r.of[EMULATED_SHARED_COPY].units);
    for (const auto a : {EMULATED_SHARED_LOAD, EMULATED_SHARED_COPY, EMULATED_SHARED_MATRIX})
        OK(r.of[a].units == r.of[a].least,
           "no %s of it has bank conflicts: %" PRIu64 " wavefronts of %" PRIu64 " requests",
           emulated_access_names[a], r.of[a].units, r.of[a].requests);
}

/* 512 pixels, 128 input and 128 output channels, by bulk copies and wgmma. */
static void known_wgmma() {
    const int n = 2, hw = 16, c = 128;
    const uint64_t pixels = (uint64_t)n * hw * hw, map = pixels * c * 2;
    gpu_device device = {};
    device.capability = 90;
    device.sms = 2;
    device.shared_max = 232448;
    gpu_conv_forward f = {};
    f.in = {zeros(map), GPU_BF16, n, hw, c, c};
    f.out = {zeros(map), GPU_BF16, n, hw, c, c};
    float *const v = static_cast<float *>(zeros(c * 4));
    f.norm = {v, v, v, v, true};
    f.window = {1, 1, 0};
    f.weight = zeros(c * c * 2);
    BAIL_UNLESS(gpu_conv_algo_1x1_sm90.fits(&device, &f, nullptr), "no algorithm");
    emulated_counts_clear();
    void *const workspace =
        zeros(gpu_conv_algo_1x1_sm90.workspace(&device, nullptr, &f, nullptr) + 256);
    BAIL_UNLESS(gpu_conv_algo_1x1_sm90.forward(&device, nullptr, &f, workspace, nullptr) ==
                    cudaSuccess,
                "launch");
    const emulated_sums r = only_row().sum;
    OK(r.wgmma == pixels * c * c / (16 * 8 * 16) && r.mma == 0,
       "the 1x1 forward of s5 multiplies by wgmma: %" PRIu64 " products", r.wgmma);
    OK(r.of[EMULATED_GLOBAL_COPY].units * 32 >= map && r.dram_store_bytes == map &&
           r.dram_load_bytes == map + c * c * 2 + c * 4,
       "it loads its map, its weights and the vector once: %" PRIu64 " bytes", r.dram_load_bytes);
}

/* 8 blocks with two tiles each. Only the block that adds the sums of all is not in the sample. */
static void known_sample() {
    const emulated_sums all = backward_counts(8, 4);
    emulated_counts_sample(1);
    const emulated_sums sample = backward_counts(8, 4);
    emulated_counts_sample(0);
    bool same = sample.mma == all.mma;
    for (const auto a : {EMULATED_GLOBAL_COPY, EMULATED_SHARED_COPY, EMULATED_SHARED_MATRIX})
        same &= sample.of[a].units == all.of[a].units;
    const double dram = (double)(sample.dram_load_bytes + sample.dram_store_bytes) /
                        (double)(all.dram_load_bytes + all.dram_store_bytes);
    OK(same, "a sample of two blocks has the products, copies and matrix loads of all eight");
    OK(fabs(dram - 1) < 0.01, "and their bytes: %.4f of them", dram);
}

int main() {
    known_patterns();
    known_reuse();
    known_activate();
    known_backward();
    known_wgmma();
    known_sample();
    return tap_done();
}
