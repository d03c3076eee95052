/* SPDX-License-Identifier: Apache-2.0
 *
 * --bench-layers: a roofline of each operation of a measured step. It compares the measured time
 * with the time that the operation's work (engine/cost.h) needs at the machine's measured limits.
 */
#ifndef CHEX_TRAIN_BENCH_LAYERS_H
#define CHEX_TRAIN_BENCH_LAYERS_H

#include "engine/cost.h"
#include "train/bench.h"

enum chex_bound { CHEX_BOUND_FLOP, CHEX_BOUND_BYTES };

/* One direction of an operation, or of all operations. */
struct chex_layer_time {
    double seconds; /* measured; 0: not run */
    struct chex_work work;
    double min_s;          /* time at the limits; 0: the limits are unknown */
    enum chex_bound bound; /* the limit that min_s comes from; of a sum, from which most comes */
};

struct chex_layer {
    const char *name; /* borrowed from the network */
    struct chex_layer_time forward, backward;
};

/* layers_out: (op_count + 1); the last entry is the sum, named "all". `result` must have forward_s
 * and backward_s. CHEX_E_RESOURCE: out of memory. */
enum chex_status chex_bench_layers(const struct chex_bench *bench,
                                   const struct chex_bench_result *result,
                                   struct chex_layer *layers_out, struct chex_error *err);

/* min_s in per cent of the measured time; 0 if either is unknown. It can exceed 100 if operands
 * came from caches. */
double chex_layer_limit_percent(const struct chex_layer_time *t);

#endif
