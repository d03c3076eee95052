/* SPDX-License-Identifier: Apache-2.0
 *
 * --bench: times steps on random data in memory. It measures the engine alone, without input and
 * without network.
 */
#ifndef CHEX_TRAIN_BENCH_H
#define CHEX_TRAIN_BENCH_H

#include <signal.h>

#include "engine/engine.h"

struct chex_bench {
    const char *engine, *model;
    struct chex_engine_config config; /* net is set by the run; training false times inference */
    struct chex_update update;
    int classes;
    int64_t steps; /* timed; two more run before them as a warm-up */
    uint64_t seed;
    bool limits;                       /* measure the machine's limits too, if the engine can */
    const volatile sig_atomic_t *stop; /* non-zero after a signal to stop; or NULL */
};

/* Ranks send it to each other as bytes, so it has no padding. */
struct chex_bench_rates {
    double images_per_s_median, images_per_s_best, step_s_median, step_s_best;
    uint64_t engine_bytes, peak_rss_bytes;
};

struct chex_bench_result {
    struct chex_bench_rates rates;
    double gflop_per_image; /* of the timed work: forward and backward, or forward only */
    char variant[32];
    double *forward_s, *backward_s;   /* (op_count) of the last step; NULL: not measured */
    double *share;                    /* (op_count) the engine's product_shares; NULL: all are 1 */
    struct chex_engine_limits limits; /* 0: not measured */
    struct chex_net *net;
};

/* A step is one pass and one update on random pixels and labels, or one inference. An engine that
 * crops itself gets stored rows and draws new crops each step, as in training.
 * CHEX_E_PREEMPTED: a signal asked to stop. chex_bench_release frees *out after CHEX_OK. */
enum chex_status chex_bench_run(const struct chex_bench *bench, struct chex_bench_result *out,
                                struct chex_error *err);
void chex_bench_release(struct chex_bench_result *result);

#endif
