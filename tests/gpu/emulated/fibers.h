/* SPDX-License-Identifier: Apache-2.0
 *
 * Between fibers.cc, which runs the threads of a cluster of blocks, and hopper.cc and wgmma.cc,
 * which make the barriers, bulk copies and products of capability 9.0. A launch without clusters
 * has clusters of one block.
 */
#ifndef CHEX_TESTS_EMULATED_FIBERS_H
#define CHEX_TESTS_EMULATED_FIBERS_H

#include <cstddef>
#include <cstdint>

namespace emulated {

/* ---- fibers.cc ---- */

/* Ends the program with a line that names the thread that runs. */
[[noreturn]] void stop(const char *what);
/* The thread that runs, of the cluster. */
int thread_of_cluster();
/* It rests until another one, or a copy, calls wake(place). */
void sleep_on(const void *place);
void wake(const void *place);

/* Which block of the cluster has the address in its dynamic shared memory; -1: none. */
int block_of_shared(const void *p);
/* The same offset in the dynamic shared memory of another block. */
void *in_block(const void *p, unsigned block);
bool block_has_ended(unsigned block);
/* Threads of a block. */
int threads_of_block();
/* Bytes from p to the end of the dynamic shared memory that it lies in. */
size_t shared_after(const void *p);

/* ---- runtime.cc ---- */

/* Ends the program if a block with this dynamic shared memory and the static one that nvcc gives
 * the kernel would not be launched. */
void check_static_shared(const char *kernel, const void *code, size_t dynamic);

/* ---- hopper.cc ---- */

/* A cluster begins. */
void forget_copies();
/* Called if no thread can go on: completes a copy. False if none is on its way. */
bool complete_a_copy();
/* Prints what those threads wait for that rest at barriers. */
void explain_barriers();
/* A thread, and a block, may end: nothing is on its way for them. */
void check_thread_end();
void check_block_end(unsigned block);

/* ---- wgmma.cc ---- */

/* A cluster begins. */
void forget_products();
/* A thread may end: its warp has waited for its products. A block may: the warps of each of its
 * warpgroups have called the same products and setmaxnreg. */
void check_products_end();
void check_warpgroups_end();
/* Prints which warps wait for registers. */
void explain_registers();

} // namespace emulated

#endif
