/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the time of a measured step goes: each operation's time against the least work it must do
 * (engine/cost.h) and against the limits of the machine (a roofline).
 */
#ifndef CHEX_TRAIN_BENCH_LAYERS_H
#define CHEX_TRAIN_BENCH_LAYERS_H

#include "engine/cost.h"
#include "train/bench.h"

enum chex_bound { CHEX_BOUND_FLOP, CHEX_BOUND_BYTES };

/* One direction of an operation, or of all operations. */
struct chex_layer_time {
    double seconds; /* 0: not run */
    struct chex_work work;
    double least_s;        /* that the limits leave; 0 where they are not known */
    enum chex_bound bound; /* which of the two takes that long; of a sum, most of it */
};

struct chex_layer {
    const char *name; /* the network's */
    struct chex_layer_time forward, backward;
};

/* layers_out has op_count + 1 entries, the last one their sums ("all"). result has forward_s and
 * backward_s. */
enum chex_status chex_bench_layers(const struct chex_bench *bench,
                                   const struct chex_bench_result *result,
                                   struct chex_layer *layers_out, struct chex_error *err);

/* Share of the machine's limit that was reached, in per cent; 0 where it is not known. Above 100
 * where operands came from the caches. */
double chex_layer_limit_percent(const struct chex_layer_time *t);

#endif
