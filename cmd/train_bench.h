/* SPDX-License-Identifier: Apache-2.0
 *
 * chex-train --bench: every rank times the same steps independently. Rank 0 prints one result.
 */
#ifndef CHEX_CMD_TRAIN_BENCH_H
#define CHEX_CMD_TRAIN_BENCH_H

#include "launch/group.h"
#include "train/bench.h"

/* Runs the benchmark and prints the result:
 *   - rates: sums over the ranks; step times: of the slowest rank; memory: the largest of a rank;
 *   - times of operations (bench->limits): of rank 0.
 * If a rank fails, all ranks fail (chex_group_agree). *together_out: false if the exchange of
 * results failed, so ranks may return different statuses. Collective. */
enum chex_status train_bench(const struct chex_bench *bench, struct chex_group *group, bool json,
                             bool *together_out, struct chex_error *err);

#endif
