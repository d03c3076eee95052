/* SPDX-License-Identifier: Apache-2.0
 *
 * What a kernel asks of memory, counted on the emulated device (counts.cc), and the calls by which
 * fibers.cc reports what the compiler's calls do not show. Programs link the library cuda-counts.
 */
#ifndef CHEX_TESTS_EMULATED_COUNTS_H
#define CHEX_TESTS_EMULATED_COUNTS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A kind of access. A request is one instruction of a warp.
 *   global: units are 32-byte sectors; least: sectors that hold the bytes if they were contiguous.
 *   shared: units are wavefronts, the clocks that the 32 banks of 4 bytes take; least: without
 *           conflicts. 8-byte accesses take a wavefront per half warp, 16-byte accesses one per
 *           quarter, even if all lanes read the same address (an assumption). */
enum emulated_access {
    EMULATED_GLOBAL_LOAD,
    EMULATED_GLOBAL_STORE,
    EMULATED_GLOBAL_COPY, /* cp.async and bulk copies: the global side */
    EMULATED_SHARED_LOAD,
    EMULATED_SHARED_STORE,
    EMULATED_SHARED_COPY,   /* cp.async and bulk copies: the shared side */
    EMULATED_SHARED_MATRIX, /* ldmatrix, matrices of wgmma */
    EMULATED_ACCESSES
};
extern const char *const emulated_access_names[EMULATED_ACCESSES];

struct emulated_traffic {
    uint64_t requests, units, least;
};

/* What is counted; members are uint64_t only. */
struct emulated_sums {
    struct emulated_traffic of[EMULATED_ACCESSES];
    /* Bytes of sectors. L2: copies and stores, and the first load of a sector by a block (later
     * ones are taken to hit the L1 cache). DRAM: sectors that a launch loads before it has written
     * them, and sectors that it writes, each once. */
    uint64_t l2_load_bytes, l2_store_bytes, dram_load_bytes, dram_store_bytes;
    /* Instructions of a warp; barriers: of a block. wgmma: a warp's share in products of 16 x 8 x 16,
     * as mma. */
    uint64_t mma, wgmma, shuffles, warp_syncs, barriers;
    uint64_t global_atomics, shared_atomics; /* of a thread */
};

/* Sums over the launches of one kernel under one label. */
struct emulated_counts {
    int label;
    const void *kernel;
    uint64_t launches, blocks;
    unsigned threads;    /* of a block, most */
    size_t shared_bytes; /* dynamic, most */
    struct emulated_sums sum;
};

/* An instruction in the code and what its requests took. */
struct emulated_site {
    const void *code; /* the return address of the compiler's call */
    const void *kernel;
    enum emulated_access access;
    struct emulated_traffic traffic;
};

/* Following launches count under this label. */
void emulated_counts_label(int label);
/* on: each launch runs only a sample of its blocks: those at two neighbouring places along the
 * longest side of the grid. Their counts are scaled to all blocks. Bytes from DRAM: every further
 * place counts as the second one. This is exact if all places do the same. The block that adds the
 * results of the others at the end is not in a sample. */
void emulated_counts_sample(int on);
/* All counts so far, in the order of their first launch; valid until the next launch. */
const struct emulated_counts *emulated_counts_all(size_t *count_out);
const struct emulated_site *emulated_counts_sites(size_t *count_out);
void emulated_counts_clear(void);
/* Demangled name of a kernel of this program, without its parameters; into a static buffer. */
const char *emulated_kernel_name(const void *kernel);

/* From fibers.cc. */
struct emulated_grid {
    const void *kernel;
    unsigned size[3], cluster[3]; /* in blocks */
    unsigned threads;             /* of a block */
    size_t shared_bytes;
};
/* Returns how often the grid is to be run through; emulated_count_block: whether a block runs
 * then. */
__attribute__((weak)) int emulated_count_launch(const struct emulated_grid *grid);
__attribute__((weak)) int emulated_count_block(int pass, const unsigned at[3]);
__attribute__((weak)) void emulated_count_launch_end(void);
__attribute__((weak)) void emulated_count_block_end(void);
__attribute__((weak)) void emulated_count_barrier(void);
/* An operation of the lanes `here` of a warp of the cluster; whole: no living lane is missing.
 * kind, arg, in: as emulated::warp. */
__attribute__((weak)) void emulated_count_warp(int warp, int kind, int arg,
                                               const void *const in[32], unsigned here, int whole);

/* The global side of a bulk load, once for all blocks that it goes to. From hopper.cc. */
__attribute__((weak)) void emulated_count_bulk_load(const void *from, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
