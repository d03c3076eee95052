/* SPDX-License-Identifier: Apache-2.0
 *
 * chex-train --bench: every rank times the same steps by itself, and rank 0 prints one result.
 */
#ifndef CHEX_CMD_TRAIN_BENCH_H
#define CHEX_CMD_TRAIN_BENCH_H

#include "launch/launch.h"
#include "train/bench.h"

/* Rates are sums over the ranks, step times are the slowest rank's, memory is the largest, and the
 * operations (bench->limits) are rank 0's. The status of the first rank that fails is everybody's;
 * *together_out is false where the ranks could not tell each other. Collective. */
enum chex_status train_bench(const struct chex_bench *bench, struct chex_launch *launch, bool json,
                             bool *together_out, struct chex_error *err);

#endif
