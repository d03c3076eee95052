/* SPDX-License-Identifier: Apache-2.0
 *
 * A small training step of a real engine, from the same state again and again: how fast, and
 * whether with the same bits each time.
 *
 * DenseNet-121, CHEX_STEP_BATCH images of CHEX_STEP_PX pixels made by the counter-based generator:
 * one pass and one update of Adam. What an engine writes is a function of state and batch alone
 * (engine/engine.h), so every step of every rank with one variant and precision has one digest, on
 * any number of threads. A step with another is a processor, or memory, that computes wrong.
 */
#ifndef CHEX_CHECK_STEP_H
#define CHEX_CHECK_STEP_H

#include "engine/engine.h"
#include "launch/coll.h"

enum { CHEX_STEP_BATCH = 4, CHEX_STEP_PX = 96 };

/* About what a step of the cpu engine takes of memory. */
#define CHEX_STEP_BYTES (UINT64_C(512) << 20)

struct chex_step;

struct chex_step_result {
    double images_per_s; /* by the median of the steps but the first; 0: there was but one */
    uint64_t digest;     /* of gradient and updated parameters */
    int repeats;
    int odd;      /* the first repeat with another digest, from 2; 0: none */
    char how[64]; /* "cpu avx2, fp32" */
};

/* spec as for chex_engine_create; device NULL: none. */
enum chex_status chex_step_create(const char *spec, int threads, const struct chex_gpu *device,
                                  struct chex_step **step_out, struct chex_error *err);
void chex_step_destroy(struct chex_step *s); /* NULL allowed */

const struct chex_engine *chex_step_engine(const struct chex_step *s);

/* Two repeats or more, while they are likely to fit into `seconds`; but no second one where the
 * first has taken more than most_s. */
enum chex_status chex_step_run(struct chex_step *s, double seconds, double most_s,
                               struct chex_step_result *out, struct chex_error *err);

/* Steps whose gradients all ranks add up, as in training: in buckets while backward goes on, where
 * and by what the engine says (NCCL between GPUs). */
struct chex_step_sums {
    double images_per_s; /* of a rank, by the median */
    bool equal;          /* every rank has the same sum, to the last bit */
    const char *by;
};

/* For about `seconds`; a message that takes longer than timeout_ms is a lost rank. At most once for
 * a step object. Collective; fails on all ranks alike, but for what a pass itself meets. */
enum chex_status chex_step_sum(struct chex_step *s, struct chex_launch *launch,
                               struct chex_coll *coll, double seconds, uint64_t timeout_ms,
                               struct chex_step_sums *out, struct chex_error *err);

#endif
