/* SPDX-License-Identifier: Apache-2.0
 *
 * Inference in chains. Where an operation's whole output is read by one other operation alone, the
 * two run together on a few rows at a time and the map between them never reaches memory: it stays
 * in a thread's scratch, its batch norm and ReLU applied to the sums of the product as they leave.
 *
 *   convolution of the image, max pool
 *   1x1 convolution, 3x3 convolution[, 1x1 convolution, join]
 *   average pool, 1x1 convolution
 *
 * An item is a band of rows of one image, or a few whole small images; it goes through its rows in
 * steps, and rows that the next step's windows reach again are kept. Bands of one image make the
 * rows at their border twice. Statistics of the batch are not known in advance, so training cannot
 * do this. With bf16 the sums are rounded as if they had been stored, so that a value is the same
 * whether its operation ran in a chain or alone, and however the rows were dealt out.
 */
#ifndef CHEX_ENGINE_CPU_CPU_CHAIN_H
#define CHEX_ENGINE_CPU_CPU_CHAIN_H

#include "engine/cpu/cpu.h"
#include "engine/lifetimes.h"

struct cpu_chain {
    int op[CPU_CHAIN_OPS], count;
    struct cpu_tiling step; /* rows of the last map that are made at a time, at most */
};

/* One chain at work on a batch. */
struct cpu_chain_run {
    struct cpu_engine *e;
    const struct cpu_chain *chain;
    struct cpu_job job[CPU_CHAIN_OPS]; /* of its operations */
    struct cpu_tiling step;            /* fit to n */
    int steps, bands, items;           /* of an image, where a step is less than one */
};

/* Finds the network's chains, and adds what they need of scratch. False: out of memory. */
bool chex_cpu_chains_plan(struct cpu_engine *e, struct cpu_need *need);
/* Makes what a chain reads live until its last operation. */
void chex_cpu_chains_hold(const struct cpu_engine *e, struct chex_life *lives);
/* Runs op i of an inference batch as part of its chain: together with the others when i is the
 * last of them, not at all before. False: i is in no chain, or the batch is too small to keep all
 * threads busy with one; then it has to run alone. */
bool chex_cpu_chain_forward(struct cpu_engine *e, int i, const struct chex_batch *batch);

/* ---- cpu_chain_conv.c, cpu_chain_pool.c: one step ----
 * tile: rows of the last map. kept: whether the step before it was of the rows above. Times of the
 * operations are added to the scratch. */
typedef void chex_cpu_chain_step_fn(const struct cpu_chain_run *r, struct cpu_tile tile, bool kept,
                                    struct cpu_scratch *s);
chex_cpu_chain_step_fn chex_cpu_chain_conv, chex_cpu_chain_max, chex_cpu_chain_average;
struct cpu_tiling chex_cpu_chain_conv_plan(struct cpu_engine *e, const struct cpu_chain *c,
                                           struct cpu_need *need);
struct cpu_tiling chex_cpu_chain_max_plan(struct cpu_engine *e, const struct cpu_chain *c,
                                          struct cpu_need *need);
struct cpu_tiling chex_cpu_chain_average_plan(struct cpu_engine *e, const struct cpu_chain *c,
                                              struct cpu_need *need);

/* The 1x1 convolution of pixels that lie beside each other in s->a; its sums in s->c. */
void chex_cpu_multiply_points(const struct cpu_job *job, int pixels, int first, int channels,
                              size_t c_pitch, struct cpu_ahead *ahead, struct cpu_scratch *s);

/* Sums c into operands: the batch norm bn (NONE: none) and its ReLU, then rounded as e asks. plain:
 * they stay fp32 where the engine multiplies others. */
void chex_cpu_chain_operand(const struct cpu_engine *e, int bn, float *c, size_t c_pitch, void *dst,
                            size_t pitch, int pixels, int channels, bool plain);

#endif
