/* SPDX-License-Identifier: Apache-2.0
 *
 * The instructions of engine/cuda/kernels/hopper_copy.cuh on the emulated device (hopper.cc).
 */
#ifndef CHEX_TESTS_EMULATED_HOPPER_COPY_H
#define CHEX_TESTS_EMULATED_HOPPER_COPY_H

#include "hopper.h"

static inline void gpu_barrier_init(gpu_barrier *b, unsigned arrivals) {
    emulated::barrier_init(&b->state, arrivals);
}
static inline void gpu_barrier_init_fence() { emulated::barrier_init_fence(); }
static inline void gpu_barrier_arrive(gpu_barrier *b) { emulated::barrier_arrive(&b->state); }
static inline void gpu_barrier_arrive_in(gpu_barrier *b, unsigned block) {
    emulated::barrier_arrive_in(&b->state, block);
}
static inline void gpu_barrier_expect(gpu_barrier *b, unsigned bytes) {
    emulated::barrier_expect(&b->state, bytes);
}
static inline void gpu_barrier_wait(gpu_barrier *b, unsigned parity) {
    emulated::barrier_wait(&b->state, parity);
}
#define gpu_warps_sync(id, threads) emulated::warps_barrier_sync(id, threads, __LINE__)

static inline void gpu_bulk_load(void *to, const void *from, unsigned bytes, gpu_barrier *b) {
    emulated::bulk_load(to, from, bytes, &b->state, 0);
}
static inline void gpu_bulk_load_all(void *to, const void *from, unsigned bytes, gpu_barrier *b,
                                     unsigned mask) {
    emulated::bulk_load(to, from, bytes, &b->state, mask ? mask : ~0u);
}
static inline void gpu_tile_load(void *to, const CUtensorMap *map, int column, int row,
                                 gpu_barrier *b) {
    emulated::tile_load(to, map, column, row, &b->state, 0);
}
static inline void gpu_tile_load_all(void *to, const CUtensorMap *map, int column, int row,
                                     gpu_barrier *b, unsigned mask) {
    emulated::tile_load(to, map, column, row, &b->state, mask ? mask : ~0u);
}
static inline void gpu_tile_store(const CUtensorMap *map, int column, int row, const void *from) {
    emulated::tile_store(map, column, row, from);
}
static inline void gpu_bulk_commit() { emulated::bulk_commit(); }
template <int N> inline void gpu_bulk_wait_read() { emulated::bulk_wait(N, true); }
template <int N> inline void gpu_bulk_wait() { emulated::bulk_wait(N, false); }
static inline void gpu_async_fence() { emulated::async_fence(); }

static inline unsigned gpu_cluster_block() { return emulated::cluster_block(); }
static inline unsigned gpu_cluster_blocks() { return emulated::cluster_blocks(); }
#define gpu_cluster_sync() emulated::cluster_sync(__LINE__)
template <class T> inline T *gpu_cluster_shared(T *shared, unsigned block) {
    return static_cast<T *>(emulated::cluster_shared(shared, block));
}

#endif
