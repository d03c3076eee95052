/* SPDX-License-Identifier: Apache-2.0
 *
 * What fibers.cc tells races.cc, where that is linked in; see there.
 */
#ifndef CHEX_TESTS_EMULATED_RACES_H
#define CHEX_TESTS_EMULATED_RACES_H

#include <cstddef>
#include <cstdint>

namespace emulated {

/* Where the fiber that runs is. */
struct race_place {
    bool on;           /* a kernel runs */
    uint32_t launch;   /* counted through the program */
    uint32_t block;    /* counted through the program */
    uint32_t barriers; /* of the block, so far */
    int thread;
    bool begun;              /* the thread has waited for the kernels ahead */
    uint32_t warp_syncs[32]; /* __syncwarps of the block's warps, so far */
    const char *stack, *stack_end;
    const void *code; /* that issued the copy which is reported */
    /* The cluster: */
    int rank, blocks, threads; /* of the block that runs; blocks; threads of a block */
    uint32_t first_block;
    const unsigned char *shared[8]; /* dynamic, of each block */
    size_t shared_bytes;
};
extern race_place race_here;

/* Memory of cudaMalloc; runtime.cc. [*from_out, *end_out): the allocation, or the gap between two,
 * that holds p. */
bool is_device(const void *p);
bool device_range(const void *p, const void **from_out, const void **end_out);

} // namespace emulated

/* NULL without races.cc. */
extern "C" {
__attribute__((weak)) void emulated_race_read(const void *p, size_t bytes);
/* cp.async: from its issue to the wait that completes it. */
__attribute__((weak)) void emulated_race_copy(const void *to, const void *from, size_t bytes,
                                              bool on);
__attribute__((weak)) void emulated_race_copied(const void *to, size_t bytes);
__attribute__((weak)) void emulated_race_fence(void);
/* These threads of the cluster meet in a barrier (of a warp, of some warps, of the block or of the
 * cluster): what they did before comes before what they do after it. */
__attribute__((weak)) void emulated_race_sync(const int *threads, int count);
/* Barriers in shared memory: initialised; an arrival; a phase is complete; a thread has waited. */
__attribute__((weak)) void emulated_race_barrier(const void *b);
__attribute__((weak)) void emulated_race_arrive(const void *b);
__attribute__((weak)) void emulated_race_phase(const void *b);
__attribute__((weak)) void emulated_race_waited(const void *b);
/* The async proxy. A bulk load is issued (its two sides); it is done for threads that have waited
 * for the phase of the barrier that is in progress. A read of shared memory is issued; it is done,
 * as this thread knows. at: the code, or NULL: the caller. */
__attribute__((weak)) void emulated_race_async_load(const void *from, size_t bytes, const void *b);
__attribute__((weak)) void emulated_race_async_write(const void *to, size_t bytes, const void *b);
__attribute__((weak)) void emulated_race_async_read(const void *p, size_t bytes, const void *at);
__attribute__((weak)) void emulated_race_async_read_done(const void *p, size_t bytes,
                                                         const void *at);
__attribute__((weak)) void emulated_race_async_fence(void);
/* A store that the compiler does not see. */
__attribute__((weak)) void emulated_race_write(const void *p, size_t bytes);
/* An atomic operation on global memory; last: by the last of the blocks that make it. */
__attribute__((weak)) void emulated_race_atomic(const void *p, bool last);
}

#endif
