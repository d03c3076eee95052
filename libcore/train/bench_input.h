/* SPDX-License-Identifier: Apache-2.0
 *
 * What the input delivers when no network takes its time: batches are taken as training takes them.
 */
#ifndef CHEX_TRAIN_BENCH_INPUT_H
#define CHEX_TRAIN_BENCH_INPUT_H

#include "train/input.h"

struct chex_bench_input {
    int64_t batches;     /* that each rank takes, after a few that are not timed */
    double images_per_s; /* that each rank consumes at most; 0: as fast as they come */
};

/* Of one rank, or of all: sums of rates and bytes, the largest stall share and memory. */
struct chex_bench_input_rates {
    double images_per_s_median, images_per_s_best; /* over windows of batches */
    double images_per_s;                           /* over the whole time */
    double bytes_per_s;                            /* of pixels read from files */
    double stall_share; /* of the time in which the consumer waited for a batch */
    uint64_t peak_rss_bytes;
};

struct chex_bench_input_result {
    struct chex_bench_input_rates all;
    struct chex_bench_input_rates slowest; /* the rank with the lowest median */
    int slowest_rank, ranks;
    int workers, stored_size; /* threads that augment, of a rank */
    size_t shuffle_width;
    bool keep; /* rows are kept in memory */
    int windows;
};

/* Of the training configuration it uses what has to do with input. The result is the same on all
 * ranks. CHEX_E_PREEMPTED where a signal asked to stop. *together_out as in chex_train_run.
 * Collective. */
enum chex_status chex_bench_input_run(const struct chex_bench_input *bench,
                                      const struct chex_train_config *config,
                                      const struct chex_train_world *world,
                                      struct chex_bench_input_result *result_out,
                                      bool *together_out, struct chex_error *err);

#endif
