/* SPDX-License-Identifier: Apache-2.0
 *
 * Races that emulated/races.cc must find, each in a small kernel, and the same kernel without one.
 * Watched like the engine's kernels.
 */
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "engine/cuda/kernels/device.cuh"

#include "tap.h"

enum plant {
    NONE,
    NO_BARRIER,
    NO_SYNCWARP,
    NO_WAIT,
    NO_FENCE,
    NO_TICKET,
    SAME_PLACE,
    NO_BEGIN,
    PLANTS
};

static const char *const names[PLANTS] = {"no race",
                                          "no barrier before another warp's value",
                                          "no __syncwarp before another lane's value",
                                          "no wait for a copy",
                                          "no fence before the ticket",
                                          "another block's value without a ticket",
                                          "two blocks that store to one place",
                                          "a load before gpu_begin"};
static const char *const words[PLANTS] = {"",
                                          "a store beside a load",
                                          "a store beside a load",
                                          "before it was waited for",
                                          "before a fence",
                                          "an access beside a store",
                                          "an access beside a store",
                                          "before gpu_begin"};

static __global__ void kernel(enum plant plant, const float *from, float *to, unsigned *ticket) {
    float early = 0;
    if (plant == NO_BEGIN)
        early = from[threadIdx.x];
    gpu_begin();
    __shared__ float4 copied[64];
    __shared__ float passed[64];
    __shared__ bool last;
    const int thread = (int)threadIdx.x, lane = thread % 32;
    gpu_copy16(copied + thread, from + thread * 4, true);
    gpu_copy_commit();
    if (plant != NO_WAIT)
        gpu_copy_wait<0>();
    passed[thread] = (float)thread;
    if (plant != NO_SYNCWARP)
        __syncwarp();
    float v = early + passed[thread - lane + (lane + 1) % 32];
    if (plant != NO_BARRIER)
        __syncthreads();
    v += passed[63 - thread] + copied[63 - thread].x;
    gpu_copy_wait<0>();
    to[plant == SAME_PLACE ? thread : (int)blockIdx.x * 64 + thread] = v;
    if (plant != NO_FENCE)
        __threadfence();
    __syncthreads();
    if (thread == 0)
        last = atomicInc(ticket, gridDim.x - 1) == gridDim.x - 1;
    __syncthreads();
    if (!last && !(plant == NO_TICKET && blockIdx.x > 0))
        return;
    __threadfence();
    to[(int)gridDim.x * 64 + thread] = __ldcg(to + thread);
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
        void *from = nullptr, *to = nullptr, *ticket = nullptr;
        dup2(fd[1], 2);
        if (cudaMalloc(&from, 1024) || cudaMalloc(&to, 2048) || cudaMalloc(&ticket, 4) ||
            cudaMemset(from, 0, 1024) || cudaMemset(ticket, 0, 4) ||
            CHEX_LAUNCH(kernel, 3, 64, 0, nullptr, plant, (const float *)from, (float *)to,
                        (unsigned *)ticket))
            _exit(1);
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
    for (int i = 0; i < PLANTS; i++) {
        int status = -1;
        const std::string said = run((enum plant)i, &status);
        const bool found = WIFSIGNALED(status) && said.find("race: ") != std::string::npos &&
                           said.find(words[i]) != std::string::npos;
        OK(i == NONE ? status == 0 : found, "%s%s%.60s", names[i], i ? ": found: " : "",
           said.c_str());
    }
    return tap_done();
}
