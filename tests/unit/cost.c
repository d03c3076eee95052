/* SPDX-License-Identifier: Apache-2.0
 *
 * The least work of operations against counts made by hand from their shapes, and the roofline made
 * of it. All numbers are whole, so they must agree exactly.
 */
#include "engine/cost.h"
#include "bench/roofline.h"

#include "base/alloc.h"
#include "tap.h"

static struct chex_error err;

enum { MAX_OPS = 256, N = 3 };

static struct chex_net *net;
static struct chex_op_cost costs[MAX_OPS];

static void cost(const char *model, int size, int element_bytes, bool training) {
    chex_net_destroy(net);
    net = NULL;
    MUST(chex_net_create(model, 14, &net, &err));
    BAIL_UNLESS(net->op_count < MAX_OPS, "%d operations", net->op_count);
    const struct chex_cost_shape shape = {size, N, element_bytes, training};
    MUST(chex_net_cost(net, &shape, costs, &err));
}

static void check(const char *name, double flop, double flop_back, double bytes,
                  double bytes_back) {
    for (int i = 0; i < net->op_count; i++) {
        const struct chex_op_cost *c = &costs[i];
        if (strcmp(net->ops[i].name, name) != 0)
            continue;
        OK(c->forward.flop == flop && c->backward.flop == flop_back,
           "%s: %.0f and %.0f flop (expected %.0f and %.0f)", name, c->forward.flop,
           c->backward.flop, flop, flop_back);
        OK(c->forward.bytes == bytes && c->backward.bytes == bytes_back,
           "%s: %.0f and %.0f bytes (expected %.0f and %.0f)", name, c->forward.bytes,
           c->backward.bytes, bytes, bytes_back);
        return;
    }
    OK(false, "an operation %s", name);
}

/* 64 px: maps of 32 (stem), 16, 8, 4 and 2. */
static void check_densenet(void) {
    cost("densenet121", 64, 2, true);
    /* Two channels of grey; image of fp32, 64 channels out, which norm0 reads; weights of three
     * channels. No gradient of the image, so the weights are not read back. */
    double flop = 2.0 * N * 32 * 32 * 64 * 49 * 2;
    check("conv0", flop, flop, N * (64 * 64 * 4 + 32 * 32 * 64 * 2) + 64 * 3 * 49 * 2,
          N * (64 * 64 * 4 + 2 * 32 * 32 * 64 * 2) + 64 * 3 * 49 * 4);
    /* Backward: gradient and values of the output, the input, the input's gradient. */
    check("pool0", 0, 0, N * (32 * 32 * 64 * 2 + 16 * 16 * 64 * 2),
          N * (2 * 16 * 16 * 64 * 2 + 2 * 32 * 32 * 64 * 2));
    /* 96 channels of a buffer whose gradient later layers have begun: read, read and written. */
    flop = 2.0 * N * 16 * 16 * 128 * 96;
    check("block1.layer2.conv1", flop, 2 * flop, N * 16 * 16 * (96 + 128) * 2 + 96 * 128 * 2,
          N * 16 * 16 * (2 * 128 + 3 * 96) * 2 + 96 * 128 * (2 + 4));
    /* 128 to 32 channels; z1 has one reader. */
    flop = 2.0 * N * 16 * 16 * 32 * 128 * 9;
    check("block1.layer2.conv2", flop, 2 * flop, N * 16 * 16 * (128 + 32) * 2 + 9 * 128 * 32 * 2,
          N * 16 * 16 * (2 * 32 + 2 * 128) * 2 + 9 * 128 * 32 * (2 + 4));
    /* The last reader of the block begins the gradient; nothing normalises the pooled map. */
    check("transition1.pool", 0, 0, N * 256 * (16 * 16 + 8 * 8) * 2,
          N * 256 * (8 * 8 + 2 * 16 * 16) * 2);
    /* fp32 weights, biases and logits. */
    flop = 2.0 * N * 1024 * 14;
    check("classifier", flop, 2 * flop, N * (2 * 2 * 1024 * 2 + 14 * 4) + (1024 * 14 + 14) * 4,
          N * (2 * 2 * 2 * 1024 * 2 + 14 * 4) + (1024 * 14 + 14) * 8);
    /* 100 px: the second block's maps are 12 wide and the third's 6; of 25 x 25 pixels the pool
     * reads 24 x 24 and makes a gradient for all. */
    cost("densenet121", 100, 4, true);
    check("transition1.pool", 0, 0, N * 256 * (24 * 24 + 12 * 12) * 4,
          N * 256 * (12 * 12 + 24 * 24 + 25 * 25) * 4);
    cost("densenet121", 64, 4, false);
    flop = 2.0 * N * 16 * 16 * 32 * 128 * 9;
    check("block1.layer2.conv2", flop, 0, N * 16 * 16 * (128 + 32) * 4 + 9 * 128 * 32 * 4, 0);
}

static const char *name_of(enum chex_op_kind kind, int kernel, int stride) {
    for (int i = 0; i < net->op_count; i++) {
        const struct chex_op *op = &net->ops[i];
        if (op->kind == kind && op->kernel == kernel && op->stride == stride)
            return op->name;
    }
    return "?";
}

static void check_resnet(void) {
    cost("resnet50", 64, 4, true);
    /* The first shortcut with a stride: 256 to 512 channels, 16 to 8 px. It reads every other
     * pixel of every other row, and its gradient is added to those. */
    double flop = 2.0 * N * 8 * 8 * 512 * 256;
    bool begun = false;
    const char *name = name_of(CHEX_OP_CONV, 1, 2);
    for (int i = 0; i < net->op_count; i++)
        if (strcmp(net->ops[i].name, name) == 0)
            for (int j = i + 1; j < net->op_count; j++)
                begun = begun || net->ops[j].in == net->ops[i].in;
    double gradient = begun ? 2 * 8 * 8 * 256 : 16 * 16 * 256;
    check(name, flop, 2 * flop, N * 8 * 8 * (256 + 512) * 4 + 256 * 512 * 4,
          N * (8 * 8 * (2 * 512 + 256) + gradient) * 4 + 256 * 512 * (4 + 4));
    /* The last join, 2048 channels of 2 px: its output has no norm; the shortcut is the join's
     * before, whose gradient conv1 of this block has not begun when this one's backward comes. */
    int last = -1;
    for (int i = 0; i < net->op_count; i++)
        last = net->ops[i].kind == CHEX_OP_RESIDUAL_ADD ? i : last;
    check(net->ops[last].name, 0, 0, N * 2 * 2 * 2048 * 3 * 4, N * 2 * 2 * 2048 * (1 + 2 + 2) * 4);
}

static void check_roofline(void) {
    cost("densenet121", 64, 4, true);
    double forward[MAX_OPS] = {0}, backward[MAX_OPS] = {0};
    struct chex_layer layers[MAX_OPS];
    struct chex_roofline r = {.net = net,
                              .image_size = 64,
                              .batch = N,
                              .precision = CHEX_FP32,
                              .training = true,
                              .forward_s = forward,
                              .backward_s = backward};
    int count = net->op_count;
    /* 1 flop a nanosecond and 1 byte a nanosecond: convolutions are bound by operations. */
    r.limits = (struct chex_engine_limits){.flop_per_s = 1e9, .bytes_per_s = 1e9};
    for (int i = 0; i < count; i++) {
        forward[i] = costs[i].forward.flop > 0 ? costs[i].forward.flop / 1e9 : 1;
        backward[i] = 2 * costs[i].backward.bytes / 1e9;
    }
    BAIL_UNLESS(chex_roofline_layers(&r, layers, NULL) == CHEX_OK, "layers");
    OK(layers[0].forward.bound == CHEX_BOUND_FLOP &&
           fabs(chex_layer_limit_percent(&layers[0].forward) - 100) < 1e-9,
       "conv0 at the limit of operations");
    OK(layers[1].backward.bound == CHEX_BOUND_BYTES &&
           fabs(chex_layer_limit_percent(&layers[1].backward) - 50) < 1e-9,
       "pool0 at half of the limit of bytes");
    double seconds = 0, flop = 0;
    for (int i = 0; i < count; i++) {
        seconds += forward[i];
        flop += costs[i].forward.flop;
    }
    OK(strcmp(layers[count].name, "all") == 0 &&
           fabs(layers[count].forward.seconds - seconds) < 1e-9 &&
           fabs(layers[count].forward.work.flop / flop - 1) < 1e-12 &&
           layers[count].forward.bound == CHEX_BOUND_FLOP,
       "the last line is the sum");
    /* An engine that makes a quarter of the 3x3 convolutions' products, and is no faster. */
    double share[MAX_OPS];
    for (int i = 0; i < count; i++)
        share[i] = net->ops[i].kind == CHEX_OP_CONV && net->ops[i].kernel == 3 ? 0.25 : 1;
    r.share = share;
    BAIL_UNLESS(chex_roofline_layers(&r, layers, NULL) == CHEX_OK, "layers");
    int quarter = 0;
    for (int i = 0; i < count; i++)
        quarter += fabs(chex_layer_limit_percent(&layers[i].forward) - 25) < 1e-9;
    OK(quarter == 58 && fabs(chex_layer_limit_percent(&layers[0].forward) - 100) < 1e-9,
       "products that an engine saves are not in the least time: %d operations", quarter);
    r.limits = (struct chex_engine_limits){0};
    BAIL_UNLESS(chex_roofline_layers(&r, layers, NULL) == CHEX_OK, "layers");
    OK(chex_layer_limit_percent(&layers[0].forward) == 0, "no limits, no share of them");
}

int main(void) {
    check_densenet();
    check_resnet();
    check_roofline();
    const struct chex_cost_shape small = {31, 1, 4, true};
    OK_STATUS(chex_net_cost(net, &small, costs, &err), CHEX_E_USAGE, err, "--image-size 31");
    chex_net_destroy(net);
    return tap_done();
}
