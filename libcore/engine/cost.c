/* SPDX-License-Identifier: Apache-2.0
 *
 * Counts the floating-point operations and bytes of each operation; cost.h has the rules. One
 * function per term: weights, output, input, products.
 */
#include "engine/cost.h"

#include "base/alloc.h"
#include "engine/lifetimes.h"

enum { FP32_BYTES = 4 };

struct model {
    const struct chex_net *net;
    const struct chex_cost_shape *shape;
    int *hw;              /* per buffer */
    bool *add, *side_add; /* per op: see chex_gradient_adds */
    struct chex_op_cost *costs;
};

static double bytes_of(const struct model *m, double pixels, int channels) {
    return pixels * m->shape->batch * channels * m->shape->element_bytes;
}

/* Pixels of the input that at least one window covers. A stride larger than the kernel skips rows;
 * an odd edge may not be covered either. */
static double pixels_read(const struct model *m, const struct chex_op *op) {
    int in = op->in < 0 ? m->shape->image_size : m->hw[op->in];
    if (op->kind == CHEX_OP_RESIDUAL_ADD || op->kind == CHEX_OP_HEAD)
        return (double)in * in;
    int out = m->hw[op->out], reach = (out - 1) * op->stride + op->kernel - op->pad;
    int side = op->kernel < op->stride ? out * op->kernel : reach < in ? reach : in;
    return (double)side * side;
}

static bool is_normed(const struct chex_net *net, int buffer) {
    for (int i = 0; i < net->bn_count; i++)
        if (net->bns[i].buffer == buffer)
            return true;
    return false;
}

/* The weights in the type of the product, and their fp32 gradient. Backward reads the weights
 * again, except for the image, which needs no gradient. */
static void add_weights(const struct model *m, const struct chex_op *op, struct chex_op_cost *c) {
    if (op->weight < 0)
        return;
    double count = (double)m->net->params[op->weight].count;
    if (op->bias >= 0)
        count += (double)m->net->params[op->bias].count;
    double read = count * (op->kind == CHEX_OP_HEAD ? FP32_BYTES : m->shape->element_bytes);
    c->forward.bytes += read;
    c->backward.bytes += count * FP32_BYTES + (op->in == CHEX_NET_IMAGE ? 0 : read);
}

static void add_output(const struct model *m, const struct chex_op *op, struct chex_op_cost *c) {
    if (op->kind == CHEX_OP_HEAD) {
        double logits = (double)m->shape->batch * m->net->classes * FP32_BYTES;
        c->forward.bytes += logits;
        c->backward.bytes += logits;
        return;
    }
    double map = bytes_of(m, (double)m->hw[op->out] * m->hw[op->out], op->out_channels);
    c->forward.bytes += map;
    c->backward.bytes += map * (is_normed(m->net, op->out) ? 2 : 1);
}

/* Whether backward reads the input again. Only average pooling and the head without batch norm do
 * not need it, because they are linear and have no convolution weights. */
static bool reads_again(const struct chex_op *op) {
    bool linear = op->kind == CHEX_OP_AVGPOOL || op->kind == CHEX_OP_HEAD;
    return !linear || op->in_bn >= 0;
}

/* The first op to write a gradient writes all of the map, zeros included. Later ops read and write
 * the pixels that their windows cover. */
static void add_input(const struct model *m, const struct chex_op *op, bool side,
                      struct chex_op_cost *c, int index) {
    if (op->in == CHEX_NET_IMAGE) {
        double image = pixels_read(m, op) * m->shape->batch * FP32_BYTES;
        c->forward.bytes += image;
        c->backward.bytes += image;
        return;
    }
    int buffer = side ? op->side_in : op->in;
    int channels = op->kind == CHEX_OP_RESIDUAL_ADD ? op->out_channels : op->in_channels;
    double read = bytes_of(m, pixels_read(m, op), channels);
    double all = bytes_of(m, (double)m->hw[buffer] * m->hw[buffer], channels);
    bool begun = side ? m->side_add[index] : m->add[index];
    c->forward.bytes += read;
    c->backward.bytes += (reads_again(op) ? read : 0) + (begun ? 2 * read : all);
}

static void add_flop(const struct model *m, const struct chex_op *op, int index,
                     struct chex_op_cost *c) {
    bool image = op->in == CHEX_NET_IMAGE;
    double flop = 2 * chex_op_macs(m->net, index, m->shape->image_size) * m->shape->batch;
    if (image)
        flop *= 2.0 / op->in_channels;
    c->forward.flop = flop;
    c->backward.flop = image ? flop : 2 * flop;
}

static void fill(const struct model *m) {
    for (int i = 0; i < m->net->op_count; i++) {
        const struct chex_op *op = &m->net->ops[i];
        struct chex_op_cost c = {{0, 0}, {0, 0}};
        add_flop(m, op, i, &c);
        add_weights(m, op, &c);
        add_output(m, op, &c);
        add_input(m, op, false, &c, i);
        if (op->kind == CHEX_OP_RESIDUAL_ADD)
            add_input(m, op, true, &c, i);
        if (!m->shape->training)
            c.backward = (struct chex_work){0, 0};
        m->costs[i] = c;
    }
}

enum chex_status chex_net_cost(const struct chex_net *net, const struct chex_cost_shape *shape,
                               struct chex_op_cost *costs_out, struct chex_error *err) {
    size_t ops = (size_t)net->op_count;
    struct model m = {.net = net, .shape = shape, .costs = costs_out};
    CHEX_AUTO_FREE int *hw = m.hw = chex_alloc_zeroed((size_t)net->buffer_count, sizeof *hw);
    CHEX_AUTO_FREE bool *add = m.add = chex_alloc_zeroed(2 * ops, sizeof *add);
    if (!hw || !add)
        return chex_error_memory(err, NULL);
    m.side_add = add + ops;
    CHEX_TRY(chex_net_shapes(net, shape->image_size, hw, err));
    CHEX_TRY(chex_gradient_adds(net, add, m.side_add, err));
    fill(&m);
    return CHEX_OK;
}
