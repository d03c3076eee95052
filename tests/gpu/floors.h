/* SPDX-License-Identifier: Apache-2.0
 *
 * What every operation of a network must at least move and multiply, whoever does it: each map that
 * it reads is read once, each that it writes is written once, nothing else leaves the chip.
 */
#ifndef CHEX_TESTS_GPU_FLOORS_H
#define CHEX_TESTS_GPU_FLOORS_H

#include "model/net.h"

struct floor_cost {
    double bytes, flop; /* of one image; weights are not counted */
};

/* What the rules need to know of a network at one size. */
struct floor_net {
    const struct chex_net *net;
    const int *hw;     /* of each buffer */
    int size;          /* of the image */
    double elem;       /* bytes of a map's element */
    double image_elem; /* of the image's pixel */
};

static inline bool floor_normed(const struct chex_net *net, int buffer) {
    for (int i = 0; i < net->bn_count; i++)
        if (net->bns[i].buffer == buffer)
            return true;
    return false;
}

/* Whether a later operation's backward has begun the gradient of `buffer` when op's comes. */
static inline bool floor_adds(const struct chex_net *net, int op, int buffer) {
    for (int i = op + 1; i < net->op_count; i++)
        if (net->ops[i].in == buffer ||
            (net->ops[i].kind == CHEX_OP_RESIDUAL_ADD && net->ops[i].side_in == buffer))
            return true;
    return false;
}

static inline double floor_map(const struct floor_net *f, int buffer, int channels) {
    return f->elem * channels * f->hw[buffer] * f->hw[buffer];
}
static inline double floor_in(const struct floor_net *f, const struct chex_op *op) {
    return op->in == CHEX_NET_IMAGE ? f->image_elem * f->size * f->size
                                    : floor_map(f, op->in, op->in_channels);
}
/* Pooling's note of the winner, a byte each. */
static inline double floor_arg(const struct floor_net *f, const struct chex_op *op) {
    return op->kind == CHEX_OP_MAXPOOL ? (double)op->out_channels * f->hw[op->out] * f->hw[op->out]
                                       : 0;
}

static inline struct floor_cost floor_forward(const struct floor_net *f, int op) {
    const struct chex_op *o = &f->net->ops[op];
    struct floor_cost c = {floor_in(f, o), 2 * chex_op_macs(f->net, op, f->size)};
    if (o->kind == CHEX_OP_RESIDUAL_ADD)
        c.bytes += floor_map(f, o->side_in, f->net->buffers[o->side_in].channels);
    if (o->out >= 0)
        c.bytes += floor_map(f, o->out, o->out_channels) + floor_arg(f, o);
    return c;
}

/* Both gradients in one: the output's gradient (and, where a batch norm's share is taken up, the
 * output itself), the input for its mask and the weights' gradient, the input's gradient. */
static inline struct floor_cost floor_backward(const struct floor_net *f, int op) {
    const struct chex_op *o = &f->net->ops[op];
    struct floor_cost c = {floor_in(f, o), 4 * chex_op_macs(f->net, op, f->size)};
    if (o->in == CHEX_NET_IMAGE)
        c.flop /= 2;
    else
        c.bytes += floor_in(f, o) * (1 + floor_adds(f->net, op, o->in));
    if (o->out >= 0)
        c.bytes += floor_map(f, o->out, o->out_channels) * (1 + floor_normed(f->net, o->out)) +
                   floor_arg(f, o);
    if (o->kind == CHEX_OP_RESIDUAL_ADD) {
        const double side = floor_map(f, o->side_in, f->net->buffers[o->side_in].channels);
        c.bytes += side * (1 + (o->side_bn >= 0) + floor_adds(f->net, op, o->side_in));
        c.bytes += floor_map(f, o->out, o->out_channels); /* its own mask */
    }
    return c;
}

#endif
