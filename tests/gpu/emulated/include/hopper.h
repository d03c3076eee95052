/* SPDX-License-Identifier: Apache-2.0
 *
 * Barriers in shared memory, bulk copies and clusters of the emulated device (hopper.cc): the
 * functions of engine/cuda/kernels/hopper_copy.cuh, on the 64 bits of a barrier.
 */
#ifndef CHEX_TESTS_EMULATED_HOPPER_H
#define CHEX_TESTS_EMULATED_HOPPER_H

#include <cuda.h>
#include <stdint.h>

namespace emulated {
void barrier_init(uint64_t *b, unsigned arrivals);
void barrier_init_fence();
void barrier_arrive(uint64_t *b);
void barrier_arrive_in(uint64_t *b, unsigned block);
void barrier_expect(uint64_t *b, unsigned bytes);
void barrier_wait(uint64_t *b, unsigned parity);
/* mask 0: to the calling block alone. */
void bulk_load(void *to, const void *from, unsigned bytes, uint64_t *b, unsigned mask);
void tile_load(void *to, const CUtensorMap *map, int column, int row, uint64_t *b, unsigned mask);
void tile_store(const CUtensorMap *map, int column, int row, const void *from);
void bulk_commit();
void bulk_wait(int pending_allowed, bool read_only);
void async_fence();
void *cluster_shared(void *shared, unsigned block);
} // namespace emulated

#endif
