/* SPDX-License-Identifier: Apache-2.0
 *
 * Fusion of operations in inference.
 *
 * If exactly one operation reads the whole output of another, the two form a fusion group. They run
 * together on a few rows at a time. The map between them never reaches memory: it stays in a
 * thread's scratch, and batch norm and ReLU are applied to the results of the product at once.
 *
 * The groups:
 *   convolution of the image, max pool
 *   1x1 convolution, 3x3 convolution[, 1x1 convolution, residual add]
 *   average pool, 1x1 convolution
 *
 * A work item is a band of rows of one image, or a few whole small images. It processes its rows in
 * steps and keeps the rows that the windows of the next step read again. Two neighbouring bands
 * both compute the rows at their border.
 *
 * Training cannot fuse, because batch norm needs the statistics of the whole map first.
 *
 * Invariant: the values equal those without fusion, for any division of the rows. So with bf16 the
 * results are rounded as if they had been stored.
 */
#ifndef CHEX_ENGINE_CPU_CPU_FUSION_H
#define CHEX_ENGINE_CPU_CPU_FUSION_H

#include "engine/cpu/cpu_engine.h"
#include "engine/lifetimes.h"

struct cpu_fusion {
    int op[CPU_FUSION_OPS], count;
    struct cpu_tiling step; /* largest step: rows of the last map computed at a time */
};

/* A fusion group running on a batch. */
struct cpu_fusion_run {
    struct cpu_engine *e;
    const struct cpu_fusion *fusion;
    struct cpu_job job[CPU_FUSION_OPS]; /* one per operation */
    struct cpu_tiling step;             /* adapted to n */
    int steps, bands;                   /* per image, if a step is less than an image */
    int items;
};

/* Finds the network's fusion groups and raises `need` to their scratch. False: out of memory. */
bool chex_cpu_fusions_plan(struct cpu_engine *e, struct cpu_need *need);
/* Extends the life of a group's input to the group's last operation. */
void chex_cpu_fusions_extend_lives(const struct cpu_engine *e, struct chex_life *lives);
/* Runs op i of an inference batch as part of its group. The whole group runs when i is its last
 * operation; for the others the call does nothing. False: i is in no group, or the batch is too
 * small to keep all threads busy; then the caller must run op i alone. */
bool chex_cpu_fusion_forward(struct cpu_engine *e, int i, const struct chex_batch *batch);

/* ---- cpu_fusion_conv.c, cpu_fusion_pool.c: one step ----
 * tile: rows of the last map. kept: the previous step computed the rows above, so its last rows can
 * be reused. The times of the operations are added to the scratch. */
typedef void chex_cpu_fusion_step_fn(const struct cpu_fusion_run *r, struct cpu_tile tile,
                                     bool kept, struct cpu_scratch *s);
chex_cpu_fusion_step_fn chex_cpu_fusion_conv, chex_cpu_fusion_max, chex_cpu_fusion_average;
struct cpu_tiling chex_cpu_fusion_conv_plan(struct cpu_engine *e, const struct cpu_fusion *c,
                                            struct cpu_need *need);
struct cpu_tiling chex_cpu_fusion_max_plan(struct cpu_engine *e, const struct cpu_fusion *c,
                                           struct cpu_need *need);
struct cpu_tiling chex_cpu_fusion_average_plan(struct cpu_engine *e, const struct cpu_fusion *c,
                                               struct cpu_need *need);

/* The 1x1 convolution of contiguous pixels in s->a; results in s->c. */
void chex_cpu_multiply_points(const struct cpu_job *job, int pixels, int first, int channels,
                              size_t c_pitch, struct cpu_prefetch *prefetch, struct cpu_scratch *s);

/* Converts results c to operands: batch norm bn (NONE: none) and its ReLU, then the engine's
 * operand type. plain: fp32 operands, whatever the engine's operand type. */
void chex_cpu_fusion_operand(const struct cpu_engine *e, int bn, float *c, size_t c_pitch,
                             void *dst, size_t pitch, int pixels, int channels, bool plain);

#endif
