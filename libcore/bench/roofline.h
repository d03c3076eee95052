/* SPDX-License-Identifier: Apache-2.0
 *
 * A roofline of each operation of a step. It compares the measured time with the time that the
 * operation's work (engine/cost.h) needs at the machine's measured limits.
 */
#ifndef CHEX_BENCH_ROOFLINE_H
#define CHEX_BENCH_ROOFLINE_H

#include "engine/cost.h"
#include "engine/engine.h"

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

/* A step. Arrays: (op_count). */
struct chex_roofline {
    const struct chex_net *net;
    int image_size, batch;
    enum chex_precision precision;
    bool training;
    const double *forward_s, *backward_s; /* measured; NULL: not run */
    const double *share;                  /* the engine's product_shares; NULL: all are 1 */
    struct chex_engine_limits limits;     /* 0: not measured */
};

/* layers_out: (op_count + 1); the last entry is the sum, named "all". CHEX_E_RESOURCE: out of
 * memory. */
enum chex_status chex_roofline_layers(const struct chex_roofline *r, struct chex_layer *layers_out,
                                      struct chex_error *err);

/* min_s in per cent of the measured time; 0 if either is unknown. It can exceed 100 if operands
 * came from caches. */
double chex_layer_limit_percent(const struct chex_layer_time *t);

#endif
