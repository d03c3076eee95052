/* SPDX-License-Identifier: Apache-2.0
 *
 * Barriers, bulk copies, tensor maps and clusters of the emulated device: a small pipeline of two
 * blocks gives what it must, and each of its planted errors ends the program. With races.cc
 * (gpu-races-hopper) also those that a run alone does not show.
 */
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "engine/cuda/host/tensor_map.h"
#include "engine/cuda/kernels/hopper_copy.cuh"

#include "races.h"
#include "tap.h"

enum plant {
    NONE,
    NO_INIT_FENCE,
    NO_FIRST_SYNC,
    NO_LAST_SYNC,
    NO_WAIT,
    WRONG_PARITY,
    FEWER_BYTES,
    MORE_BYTES,
    NO_RELEASE,
    OWN_RELEASE,
    NO_SYNCWARP,
    NO_ASYNC_FENCE,
    NO_WAIT_READ,
    NO_SHARED_SYNC,
    STATIC_OVER_WAIT,
    STATIC_FORGOTTEN,
    TWO_BRANCHES,
    HIGHEST_IS_LAST,
    SHARED_BY_ARRIVAL,
    GLOBAL_BY_ARRIVAL,
    LOADS_WHAT_IT_STORED,
    PLANTS
};

struct planted {
    const char *name, *words;
    bool races; /* only races.cc finds it */
};
static const planted plants[PLANTS] = {
    {"no error", "", false},
    {"no gpu_barrier_init_fence", "gpu_barrier_init_fence", false},
    {"no cluster sync after the init", "not initialised", false},
    {"no cluster sync at the end", "that has ended", false},
    {"no wait for a load", "race: ", true},
    {"a wait with the wrong parity", "emulated: ", false},
    {"fewer bytes expected than come", "bytes are missing", false},
    {"more bytes expected than come", "bytes are missing", false},
    {"a stage refilled that was not released", "emulated: ", true},
    {"a stage released in one block only", "race: ", true},
    {"a stage released while other lanes read", "race: ", true},
    {"a bulk store without a proxy fence", "gpu_async_fence", true},
    {"a tile changed that a bulk store still reads", "still reads", true},
    {"another block's shared memory without a sync", "race: ", true},
    {"static shared memory kept over a cluster sync", "static shared memory", true},
    {"dynamic shared memory that leaves no place for the static one", "the launch is refused",
     false},
    {"a cluster sync in both branches of a warp", "from different branches", false},
    {"a block that takes the highest one for the last", "", false},
    {"a store to another block's shared memory announced by an arrival", "beside a store", true},
    {"a store to global memory announced to another block by an arrival", "beside a store", true},
    {"a bulk load of what the kernel stored", "of what this kernel stored", true},
};

enum {
    ROWS = 8,
    COLUMNS = 64,
    TILES = 5,
    STAGES = 2,
    CLUSTERS = 2,
    ROW = COLUMNS * 2,
    BOX = ROWS * ROW
};

/* Each cluster has its tiles. Each tile has two boxes: each block of the cluster loads one of them
 * for both. A warp doubles the tile and stores it; block b stores box b of its tile. Then each
 * block stores the other one's first element. */
static __global__ void kernel(enum plant plant, const __grid_constant__ CUtensorMap in,
                              const __grid_constant__ CUtensorMap out, uint16_t *row, float *last) {
    gpu_begin();
    CHEX_DYNAMIC_SHARED_1024(shared);
    unsigned char *const result = shared + STAGES * 2 * BOX;
    unsigned char *const extra = result + BOX;
    gpu_barrier *const full = reinterpret_cast<gpu_barrier *>(extra + ROW);
    gpu_barrier *const empty = full + STAGES, *const announced = empty + STAGES;
    const unsigned me = gpu_cluster_block();
    const int thread = (int)threadIdx.x, lane = thread % 32;
    const int first = (int)blockIdx.x / 2 * TILES * ROWS;
    __shared__ unsigned kept;
    if (thread == 0) {
        for (int s = 0; s < STAGES; s++) {
            gpu_barrier_init(full + s, 1);
            gpu_barrier_init(empty + s, plant == OWN_RELEASE ? 1 : 2);
        }
        gpu_barrier_init(announced, 1);
        if (plant != NO_INIT_FENCE)
            gpu_barrier_init_fence();
        kept = me;
    }
    if (plant == NO_FIRST_SYNC)
        __syncthreads();
    else if (plant == TWO_BRANCHES && lane < 16)
        gpu_cluster_sync();
    else
        gpu_cluster_sync();
    if (plant == STATIC_OVER_WAIT && kept != me)
        shared[0] = 0;
    if (thread == 32) {
        for (int t = 0; t < TILES; t++) {
            const int s = t % STAGES;
            unsigned char *const to = shared + s * 2 * BOX;
            if (plant != NO_RELEASE || t < STAGES)
                gpu_barrier_wait(empty + s, (unsigned)(t / STAGES & 1) ^ 1);
            gpu_barrier_expect(full + s, 2 * BOX + (t ? 0 : ROW) + (plant == MORE_BYTES) * 16 -
                                             (plant == FEWER_BYTES) * 16);
            gpu_tile_load_all(to + me * BOX, &in, (int)me * COLUMNS, first + t * ROWS, full + s, 3);
            if (t == 0 && plant == LOADS_WHAT_IT_STORED)
                row[0] = 0;
            if (t == 0)
                gpu_bulk_load(extra, row, ROW, full + s);
        }
    } else if (thread < 32) {
        for (int t = 0; t < TILES; t++) {
            const int s = t % STAGES;
            if (plant != NO_WAIT)
                gpu_barrier_wait(full + s, (unsigned)(t / STAGES & 1) ^ (plant == WRONG_PARITY));
            if (plant != NO_WAIT_READ && lane == 0)
                gpu_bulk_wait_read<0>();
            __syncwarp();
            const uint16_t *const mine =
                reinterpret_cast<const uint16_t *>(shared + s * 2 * BOX + me * BOX);
            const uint16_t *const other =
                reinterpret_cast<const uint16_t *>(shared + s * 2 * BOX + (1 - me) * BOX);
            for (int i = lane; i < ROWS * COLUMNS; i += 32)
                reinterpret_cast<uint16_t *>(result)[i] =
                    (uint16_t)(2 * mine[i] + other[i] +
                               reinterpret_cast<const uint16_t *>(extra)[i % COLUMNS]);
            if (plant != NO_ASYNC_FENCE)
                gpu_async_fence();
            if (plant != NO_SYNCWARP)
                __syncwarp();
            if (lane < (plant == OWN_RELEASE ? 1 : 2))
                gpu_barrier_arrive_in(empty + s, me ^ (unsigned)lane);
            __syncwarp();
            if (lane == 0) {
                gpu_tile_store(&out, (int)me * COLUMNS, first + t * ROWS, result);
                gpu_bulk_commit();
            }
        }
        if (lane == 0)
            gpu_bulk_wait<0>();
    }
    gpu_warps_sync(1, 64);
    float *const said = reinterpret_cast<float *>(announced + 1);
    if (thread == 0 && (plant == SHARED_BY_ARRIVAL || plant == GLOBAL_BY_ARRIVAL)) {
        float *const mine = plant == SHARED_BY_ARRIVAL ? said : last + blockIdx.x;
        float *const other =
            plant == SHARED_BY_ARRIVAL ? gpu_cluster_shared(said, 1 - me) : last + (blockIdx.x ^ 1);
        *other = 1.0f + (float)me;
        gpu_barrier_arrive_in(announced, 1 - me);
        gpu_barrier_wait(announced, 0);
        *mine += 0;
    }
    if (thread == 0)
        said[0] = 1.0f + (float)me;
    if (plant != NO_LAST_SYNC && plant != NO_SHARED_SYNC)
        gpu_cluster_sync();
    if (thread == 0)
        last[blockIdx.x] = plant == HIGHEST_IS_LAST && blockIdx.x == gridDim.x - 1
                               ? last[1]
                               : *gpu_cluster_shared(said, 1 - me);
    if (plant != NO_LAST_SYNC)
        gpu_cluster_sync();
}

/* Of this name nvcc's records have 1024 bytes of static shared memory (tests/gpu/registers.txt). */
static __global__ void conv1x1_wgmma_kernel(float *) { gpu_begin(); }
static int launch_with_static(size_t dynamic) {
    return CHEX_LAUNCH(conv1x1_wgmma_kernel, 1, 32, dynamic, nullptr, (float *)nullptr);
}

/* The matrix is smaller than its tiles: the last row and 24 columns are missing. */
enum {
    ALL = CLUSTERS * TILES * ROWS,
    HEIGHT = ALL - 1,
    WIDTH = 2 * COLUMNS - 24,
    PITCH = 2 * COLUMNS
};

/* Number of wrong elements, or -1 if the launch fails. */
static int try_kernel(enum plant plant) {
    std::vector<uint16_t> in((size_t)ALL * PITCH), out(in.size()), row(COLUMNS);
    for (size_t i = 0; i < in.size(); i++)
        in[i] = (uint16_t)(i * 7);
    for (size_t i = 0; i < row.size(); i++)
        row[i] = (uint16_t)(i * 1000);
    const size_t bytes = in.size() * 2;
    void *from = nullptr, *to = nullptr, *r = nullptr, *last = nullptr;
    gpu_tensor t = {nullptr, GPU_BF16, HEIGHT, WIDTH, PITCH};
    CUtensorMap maps[2];
    if (cudaMalloc(&from, bytes) || cudaMalloc(&to, bytes) || cudaMalloc(&r, ROW) ||
        cudaMalloc(&last, 2 * CLUSTERS * sizeof(float)) || cudaMemset(to, 0, bytes) ||
        cudaMemcpy(from, in.data(), bytes, cudaMemcpyHostToDevice) ||
        cudaMemcpy(r, row.data(), ROW, cudaMemcpyHostToDevice))
        return -1;
    for (int i = 0; i < 2; i++) {
        t.data = i ? to : from;
        if (gpu_tensor_map(&maps[i], &t, COLUMNS, ROWS, GPU_SWIZZLE_128) != cudaSuccess)
            return -1;
    }
    const size_t shared = STAGES * 2 * BOX + BOX + ROW + (2 * STAGES + 2) * sizeof(gpu_barrier);
    if (CHEX_LAUNCH_CLUSTER(kernel, 2 * CLUSTERS, 64, 2, shared, nullptr, plant, maps[0], maps[1],
                            (uint16_t *)r, (float *)last) != cudaSuccess)
        return -1;
    float said[2 * CLUSTERS];
    if (cudaMemcpy(out.data(), to, bytes, cudaMemcpyDeviceToHost) ||
        cudaMemcpy(said, last, sizeof said, cudaMemcpyDeviceToHost))
        return -1;
    int wrong = 0;
    for (int b = 0; b < 2 * CLUSTERS; b++)
        wrong += said[b] != (float)(2 - b % 2);
    for (int y = 0; y < ALL; y++)
        for (int x = 0; x < PITCH; x++) {
            /* The other box's place has the same swizzle. */
            const int z = (x + COLUMNS) % PITCH, unit = x % COLUMNS / 8 ^ (y & 7);
            const bool there = y < HEIGHT && x < WIDTH;
            const int at = y * PITCH;
            const int b = y < HEIGHT && z < WIDTH ? in[(size_t)(at + z)] : 0;
            const int want =
                there ? 2 * in[(size_t)(at + x)] + b + row[(size_t)((unit * 8 + x % 8) % COLUMNS)]
                      : 0;
            wrong += out[(size_t)(at + x)] != (uint16_t)want;
        }
    return wrong;
}

/* What a run says before it ends, and how it ends. */
static std::string run(enum plant plant, int *status_out) {
    int fd[2];
    std::string said;
    char buf[512];
    fflush(stdout);
    BAIL_UNLESS(pipe(fd) == 0, "pipe");
    const pid_t pid = fork();
    BAIL_UNLESS(pid >= 0, "fork");
    if (pid == 0) {
        dup2(fd[1], 2);
        setenv("EMULATED_ORDER", plant == HIGHEST_IS_LAST ? "backward" : "forward", 1);
        if (plant == STATIC_FORGOTTEN ? launch_with_static((227 << 10) - 128) : try_kernel(plant))
            abort();
        _exit(0);
    }
    close(fd[1]);
    for (ssize_t n; (n = read(fd[0], buf, sizeof buf)) > 0;)
        said.append(buf, (size_t)n);
    close(fd[0]);
    waitpid(pid, status_out, 0);
    return said;
}

static void maps(void) {
    CUtensorMap map;
    alignas(16) static char data[4096];
    const gpu_tensor good = {data, GPU_BF16, 16, 64, 64};
    gpu_tensor t = good;
    setenv("EMULATED_GPU", "8.0", 1);
    OK(gpu_tensor_map(&map, &good, 64, 16, GPU_SWIZZLE_128) == cudaErrorNotSupported,
       "capability 8.0 has no tensor maps");
    unsetenv("EMULATED_GPU");
    OK(gpu_tensor_map(&map, &good, 64, 16, GPU_SWIZZLE_128) == cudaSuccess, "a map is made");
    t.data = data + 8;
    OK(gpu_tensor_map(&map, &t, 64, 16, GPU_SWIZZLE_128) == cudaErrorInvalidValue,
       "an address that is not aligned to 16 bytes is refused");
    t = good;
    t.pitch = 68;
    OK(gpu_tensor_map(&map, &t, 64, 16, GPU_SWIZZLE_128) == cudaErrorInvalidValue,
       "a pitch that is no multiple of 16 bytes is refused");
    OK(gpu_tensor_map(&map, &good, 64, 257, GPU_SWIZZLE_128) == cudaErrorInvalidValue,
       "a box of 257 rows is refused");
    OK(gpu_tensor_map(&map, &good, 64, 16, GPU_SWIZZLE_64) == cudaErrorInvalidValue,
       "a box wider than its swizzle is refused");
}

int main(void) {
    for (int i = 0; i < PLANTS; i++) {
        int status = -1;
        if (plants[i].races && !emulated_race_sync)
            continue;
        const std::string said = run((enum plant)i, &status);
        const bool found = WIFSIGNALED(status) && said.find(plants[i].words) != std::string::npos;
        OK(i == NONE ? status == 0 : found, "%s%s%.90s", plants[i].name, i ? ": found: " : "",
           said.substr(0, said.find('\n')).c_str());
    }
    OK(launch_with_static((227 << 10) - 1024) == cudaSuccess,
       "static and dynamic shared memory may fill what a block has");
    maps();
    return tap_done();
}
