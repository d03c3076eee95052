/* SPDX-License-Identifier: Apache-2.0
 *
 * --bench-input: times the input pipeline alone. Batches are taken as in training, but no network
 * computes with them.
 */
#ifndef CHEX_TRAIN_BENCH_INPUT_H
#define CHEX_TRAIN_BENCH_INPUT_H

#include "train/run_input.h"

struct chex_bench_input {
    int64_t batches;     /* timed batches of each rank; a few more run before as a warm-up */
    double images_per_s; /* limit of each rank's consumption; 0: no limit */
};

/* Of one rank, or of all ranks: then rates are sums, stall share and memory are maxima. */
struct chex_bench_input_rates {
    double images_per_s_median, images_per_s_best; /* over windows of batches */
    double images_per_s;                           /* over the whole time */
    double bytes_per_s;                            /* of pixels read from files */
    double stall_share;                            /* waiting for a batch, as a share of the time */
    uint64_t peak_rss_bytes;
};

struct chex_bench_input_result {
    struct chex_bench_input_rates all;
    struct chex_bench_input_rates slowest; /* the rank with the lowest median */
    int slowest_rank, ranks;
    int workers;          /* input threads of a rank */
    int stored_size;      /* px */
    size_t shuffle_width; /* rows */
    bool keep;            /* rows are cached in memory */
    int windows;
};

/* Uses the input settings of `config` and ignores the others. All ranks get the same result.
 * CHEX_E_PREEMPTED: a signal asked to stop. *together_out as in chex_train_run. Collective. */
enum chex_status chex_bench_input_run(const struct chex_bench_input *bench,
                                      const struct chex_train_config *config,
                                      const struct chex_train_world *world,
                                      struct chex_bench_input_result *result_out,
                                      bool *together_out, struct chex_error *err);

#endif
