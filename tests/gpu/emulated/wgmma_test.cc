/* SPDX-License-Identifier: Apache-2.0
 *
 * Errors of wgmma and setmaxnreg that the emulation must find, each in a small kernel. Those that
 * are races only where races.cc is linked in. bench/assumptions_sm90.cu has the products.
 */
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "engine/cuda/kernels/hopper.cuh"

#include "races.h"
#include "tap.h"

enum plant {
    NONE,
    NO_FENCE,
    NO_WAIT,
    D_WRITTEN,
    D_READ,
    A_WRITTEN,
    LANES_DIFFER,
    WARPS_DIFFER,
    OUTSIDE,
    THREE_WARPS,
    REGISTERS_OF_ONE_WARP,
    REGISTERS_OF_NO_WARP,
    NO_BARRIER, /* from here on: races */
    NO_ASYNC_FENCE,
    REFILLED,
    REFILLED_BESIDE,
    PLANTS
};
static const struct {
    const char *name, *words;
} plants[PLANTS] = {
    {"no error", ""},
    {"registers are used without a fence", "without a gpu_wgmma_fence"},
    {"a thread does not wait for its products", "did not wait for"},
    {"d is written before the wait", "registers d of a product were written"},
    {"d is read before the wait: it is NaN", "NaN"},
    {"a is written before the wait", "registers a of a product were written"},
    {"lanes have different matrices", "different operands"},
    {"warps have different matrices", "different products"},
    {"a matrix ends outside of shared memory", "outside of the block's shared memory"},
    {"three warps of a warpgroup multiply", "not all four warps"},
    {"one warp of a warpgroup calls setmaxnreg", "not all four warps"},
    {"setmaxnreg for more registers than the others gave back", "waits for 240 registers"},
    {"no barrier between the stores and the product", "an access beside a store"},
    {"no gpu_async_fence between the stores and the product", "without a gpu_async_fence"},
    {"a matrix is refilled while wgmma still reads it",
     "a store to what an async operation still reads"},
    {"a matrix is refilled without a barrier after the wait", "race: a store"},
};

static __global__ void planted(enum plant plant, float *to) {
    gpu_begin();
    CHEX_DYNAMIC_SHARED_1024(shared);
    const int thread = (int)threadIdx.x;
    if (plant == REGISTERS_OF_NO_WARP) { /* 66,560 of 64,512 */
        if (thread < 128)
            gpu_registers_fewer<40>();
        else
            gpu_registers_more<240>();
        return;
    }
    uint32_t *const words = (uint32_t *)shared;
    for (int i = thread; i < 96 * 8; i += 128) /* a: 64 x 16, b: 32 x 16 */
        words[i] = gpu_pack2<gpu_bf16>(1, 2);
    if (plant != NO_ASYNC_FENCE)
        gpu_async_fence();
    if (plant != NO_BARRIER)
        __syncthreads();
    float d[16] = {0};
    uint32_t a[4] = {0};
    uint64_t left = gpu_matrix(shared, 64 * 16, 128, 0);
    uint64_t right = gpu_matrix(shared + 64 * 32, 32 * 16, 128, 0);
    if ((plant == LANES_DIFFER && thread % 32 == 7) || (plant == WARPS_DIFFER && thread / 32 == 2))
        left = gpu_matrix_at(left, 16);
    if (plant == OUTSIDE)
        right = gpu_matrix_at(right, 1024 - 16);
    if (plant != NO_FENCE)
        gpu_wgmma_fence();
    if (plant != THREE_WARPS || thread < 96) {
        gpu_wgmma<gpu_bf16, 32>(d, left, right, true);
        gpu_wgmma_a<gpu_bf16, 32>(d, a, right, true);
    }
    gpu_wgmma_commit();
    if (plant == D_WRITTEN)
        d[3] = 1;
    if (plant == A_WRITTEN)
        a[1] = 1;
    if (plant == REFILLED)
        words[thread] = 0;
    float early = 0;
    if (plant == D_READ)
        early = d[5];
    if (plant == NO_WAIT)
        return;
    gpu_wgmma_wait<0>();
    if (plant == REGISTERS_OF_ONE_WARP && thread < 32)
        gpu_registers_fewer<40>();
    if (plant == REFILLED_BESIDE)
        words[(thread + 64) % 128] = 0;
    __syncthreads();
    words[thread] = 0;
    to[thread] = d[0] + early;
}

/* What a run of the kernel says before it ends, and how it ends. */
static std::string run(enum plant plant, int *status_out) {
    int fd[2];
    std::string said;
    char buf[512];
    fflush(stdout);
    BAIL_UNLESS(pipe(fd) == 0, "pipe");
    const pid_t pid = fork();
    BAIL_UNLESS(pid >= 0, "fork");
    if (pid == 0) {
        void *to = nullptr;
        float result[128];
        dup2(fd[1], 2);
        if (cudaMalloc(&to, sizeof result) ||
            CHEX_LAUNCH(planted, 1, plant == REGISTERS_OF_NO_WARP ? 384 : 128, 96 * 32, nullptr,
                        plant, (float *)to) ||
            cudaMemcpy(result, to, sizeof result, cudaMemcpyDeviceToHost))
            _exit(1);
        if (std::isnan(result[0])) {
            fprintf(stderr, "NaN\n");
            abort();
        }
        _exit(0);
    }
    close(fd[1]);
    for (ssize_t n; (n = read(fd[0], buf, sizeof buf)) > 0;)
        said.append(buf, (size_t)n);
    close(fd[0]);
    waitpid(pid, status_out, 0);
    return said;
}

int main(void) {
    for (int i = 0; i < (emulated_race_read ? PLANTS : NO_BARRIER); i++) {
        int status = -1;
        const std::string said = run((enum plant)i, &status);
        const bool found = WIFSIGNALED(status) && said.find(plants[i].words) != std::string::npos;
        OK(i == NONE ? status == 0 : found, "%s%s%.70s", plants[i].name, i ? ": found: " : "",
           said.c_str());
    }
    return tap_done();
}
