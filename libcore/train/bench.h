/* SPDX-License-Identifier: Apache-2.0
 *
 * Timed steps on resident data: what an engine does when nothing waits for input or network.
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
    int64_t steps; /* timed, after two that are not */
    uint64_t seed;
    bool limits;                       /* measure the machine's limits too, where the engine can */
    const volatile sig_atomic_t *stop; /* non-zero once a signal asked to end; or NULL */
};

struct chex_bench_result {
    double step_s_median, step_s_best;
    double images_per_s_median, images_per_s_best;
    double gflop_per_image; /* of what was timed */
    uint64_t engine_bytes, peak_rss_bytes;
    char variant[32];
    /* (op_count) of the last step where the engine measures them, else NULL; the caller frees */
    double *forward_s, *backward_s;
    double *share; /* product_shares of the engine; NULL: 1 */
    struct chex_engine_limits limits; /* 0 where not measured */
    struct chex_net *net;             /* the caller destroys it */
};

/* One pass and one update a step on random pixels and labels, or one inference. An engine that
 * takes raw batches crops rows that it holds, anew each step, as in training. CHEX_E_PREEMPTED
 * where a signal asked to stop. */
enum chex_status chex_bench_run(const struct chex_bench *bench, struct chex_bench_result *out,
                                struct chex_error *err);
void chex_bench_release(struct chex_bench_result *result);

#endif
