/* SPDX-License-Identifier: Apache-2.0
 *
 * The roofline of each operation: its least time is the larger of (multiply-adds at the measured
 * FLOP rate) and (bytes at the measured bandwidth). Winograd and similar algorithms do only a share
 * of the multiply-adds.
 */
#include "bench/roofline.h"

#include "base/alloc.h"

static struct chex_layer_time time_of(double seconds, struct chex_work work, double share,
                                      const struct chex_engine_limits *limits) {
    struct chex_layer_time t = {.seconds = seconds, .work = work};
    if (limits->flop_per_s <= 0 || limits->bytes_per_s <= 0)
        return t;
    double flop_s = share * work.flop / limits->flop_per_s;
    double bytes_s = work.bytes / limits->bytes_per_s;
    t.bound = flop_s > bytes_s ? CHEX_BOUND_FLOP : CHEX_BOUND_BYTES;
    t.min_s = flop_s > bytes_s ? flop_s : bytes_s;
    return t;
}

/* Adds t to *sum. *flop_s_io: the part of sum->min_s that the FLOP rate limits. */
static void add(struct chex_layer_time *sum, const struct chex_layer_time *t, double *flop_s_io) {
    sum->seconds += t->seconds;
    sum->work.flop += t->work.flop;
    sum->work.bytes += t->work.bytes;
    sum->min_s += t->min_s;
    if (t->bound == CHEX_BOUND_FLOP)
        *flop_s_io += t->min_s;
    sum->bound = 2 * *flop_s_io > sum->min_s ? CHEX_BOUND_FLOP : CHEX_BOUND_BYTES;
}

enum chex_status chex_roofline_layers(const struct chex_roofline *r, struct chex_layer *layers_out,
                                      struct chex_error *err) {
    const struct chex_net *net = r->net;
    const bool halves = r->precision == CHEX_BF16 || r->precision == CHEX_FP16;
    const struct chex_cost_shape shape = {.image_size = r->image_size,
                                          .batch = r->batch,
                                          .element_bytes = halves ? 2 : 4,
                                          .training = r->training};
    CHEX_AUTO_FREE struct chex_op_cost *costs =
        chex_alloc_zeroed((size_t)net->op_count, sizeof *costs);
    CHEX_TRY(costs ? chex_net_cost(net, &shape, costs, err) : chex_error_memory(err, NULL));
    struct chex_layer *all = &layers_out[net->op_count];
    double forward_flop_s = 0, backward_flop_s = 0;
    *all = (struct chex_layer){.name = "all"};
    for (int i = 0; i < net->op_count; i++) {
        struct chex_layer *l = &layers_out[i];
        const double share = r->share ? r->share[i] : 1;
        l->name = net->ops[i].name;
        l->forward =
            time_of(r->forward_s ? r->forward_s[i] : 0, costs[i].forward, share, &r->limits);
        l->backward =
            time_of(r->backward_s ? r->backward_s[i] : 0, costs[i].backward, share, &r->limits);
        add(&all->forward, &l->forward, &forward_flop_s);
        add(&all->backward, &l->backward, &backward_flop_s);
    }
    return CHEX_OK;
}

double chex_layer_limit_percent(const struct chex_layer_time *t) {
    return t->seconds > 0 ? 100 * t->min_s / t->seconds : 0;
}
