/* SPDX-License-Identifier: Apache-2.0
 *
 * The benchmarks of chex-train. --bench times steps of the engine on random data in memory, without
 * input and without network: every rank times the same steps independently. --bench-input times the
 * input pipeline alone: batches are taken as in training, but no network computes with them.
 *
 * Of several ranks: rates are sums, memory and stall share are maxima, and step times are those of
 * the rank with the lowest rate. Times of operations are those of rank 0.
 */
#ifndef CHEX_BENCH_BENCH_H
#define CHEX_BENCH_BENCH_H

#include "train/trainer.h"

/* The options. 0: not asked for. */
struct chex_bench {
    int64_t steps;       /* --bench: timed; two more run before them as a warm-up */
    bool layers, infer;  /* a roofline of each operation; inference instead of training */
    int64_t batches;     /* --bench-input: of each rank; a few more run before as a warm-up */
    double images_per_s; /* --consume: limit of each rank's consumption; 0: no limit */
};

/* --bench. A step is one pass and one update on random pixels and labels, or one inference. An
 * engine that crops itself gets stored rows and draws new crops each step, as in training.
 * - *out: a JSON object on rank 0, which the caller releases; NULL on the other ranks.
 *   share/man/chex-train.1 lists its keys. Those of `layers` are missing, with a warning, if the
 *   engine does not time its operations.
 * - CHEX_E_PREEMPTED: a signal asked to stop, so *stop is not 0.
 * - If a rank fails, all ranks fail (chex_group_agree). *together_out: false if the exchange of
 *   results failed, so ranks may return different statuses. Collective. */
enum chex_status chex_bench_steps(const struct chex_bench *bench,
                                  const struct chex_train_config *config, struct chex_group *group,
                                  const volatile sig_atomic_t *stop, json_t **out,
                                  bool *together_out, struct chex_error *err);

/* --bench-input. Uses the input settings of `config` and ignores the others. *out as above, with
 * two keys that only the text shows: windows and reached_images_per_s. Collective. */
enum chex_status chex_bench_input(const struct chex_bench *bench,
                                  const struct chex_train_config *config,
                                  const struct chex_train_world *world, json_t **out,
                                  bool *together_out, struct chex_error *err);

#endif
