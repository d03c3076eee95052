/* SPDX-License-Identifier: Apache-2.0
 *
 * A small training step of a real engine, repeated from the same state. It measures the rate and
 * checks that every repetition gives the same bits.
 *
 * The step: DenseNet-121, CHEX_STEP_BATCH images of CHEX_STEP_PX pixels from the counter-based
 * generator, one pass and one Adam update. What an engine writes depends only on state and batch
 * (engine/engine.h). All steps of all ranks with the same variant and precision therefore have the
 * same digest, for any number of threads. A different digest means that a processor or its memory
 * is faulty. It does not depend on the compiler or the C library (gcc 12 and 14, clang 14; glibc
 * 2.36 and 2.41, with and without FMA), so share/step-bits.txt has the digest of each variant of
 * the cpu engine.
 */
#ifndef CHEX_CHECK_STEP_H
#define CHEX_CHECK_STEP_H

#include "engine/engine.h"
#include "launch/coll.h"

enum { CHEX_STEP_BATCH = 4, CHEX_STEP_PX = 96 };

/* Approximate memory of a step of the cpu engine. */
#define CHEX_STEP_BYTES (UINT64_C(512) << 20)

struct chex_step;

struct chex_step_result {
    double images_per_s; /* from the median of all steps except the first; 0: only one step */
    double spread;       /* chex_spread of those steps */
    uint64_t digest;     /* of loss, gradient and updated parameters */
    int repeats;
    int odd;      /* number (from 2) of the first repetition with another digest; 0: none */
    char how[64]; /* "cpu avx2, fp32" */
};

/* Creates engine, network and data. spec: as for chex_engine_create. device NULL: no GPU. */
enum chex_status chex_step_create(const char *spec, int threads, const struct chex_gpu *device,
                                  struct chex_step **step_out, struct chex_error *err);
void chex_step_destroy(struct chex_step *s); /* NULL allowed */

const struct chex_engine *chex_step_engine(const struct chex_step *s);

/* Runs the step repeatedly. Makes at least two repetitions, and more while they fit into `seconds`.
 * If the first takes more than max_s seconds, it is the only one. */
enum chex_status chex_step_run(struct chex_step *s, double seconds, double max_s,
                               struct chex_step_result *out, struct chex_error *err);

/* How a line of share/step-bits.txt begins on this architecture. The bits of the variant "generic"
 * differ: where every processor fuses a multiplication and an addition, it does. */
#ifdef __x86_64__
#define CHEX_STEP_ARCH "x86-64 "
#else
#define CHEX_STEP_ARCH "other "
#endif

/* The digest of a correct step of `how`, from share/step-bits.txt. False: it has none. */
bool chex_step_known_digest(const char *how, uint64_t *digest_out);

/* Result of steps with summed gradients. As in training, buckets are summed while backward still
 * runs, by the method that the engine selects (NCCL between GPUs). */
struct chex_step_sums {
    double images_per_s; /* of one rank, from the median */
    bool equal;          /* the sums of all ranks are bit-identical */
    const char *by;
};

/* Runs such steps for about `seconds`. Collective.
 * - Call it at most once per step object.
 * - A message that takes longer than timeout_ms means a lost rank.
 * - An error on one rank, such as of its pass, is returned on all ranks. */
enum chex_status chex_step_sum(struct chex_step *s, struct chex_launch *launch,
                               struct chex_coll *coll, double seconds, uint64_t timeout_ms,
                               struct chex_step_sums *out, struct chex_error *err);

#endif
