/* SPDX-License-Identifier: Apache-2.0
 *
 * How many bytes and FLOP one image costs DenseNet-121 in each stage of the engine, counted over
 * the network's own list of operations, against the figures that the stages were planned with. A
 * stage is a number of passes over the maps that an operation reads and writes; nothing is run.
 *
 * Bounds. s4: one per cent, what the planned figures were rounded to and what is left open about
 * the image's own bytes. s1: 2.5 per cent, because the plan makes the activated input of a 3x3
 * convolution and its gradient's mask in one pass over the map, and two kernels here read it twice.
 */
#include "gpu/floors.h"

#include "tap.h"

enum { MAX_BUFFERS = 512, STAGES = 2 };

struct passes {
    double in, out; /* times that the input and the output are read or written */
};

static const char *const stage_names[STAGES] = {"s1", "s4"};

/* What a convolution with a batch norm before it does in stage s1 and s4. s1 backward: finish the
 * gradient (3 out), activate (2 in), weights' gradient (in, out), data gradient (out, in), mask
 * (dv, x and the gradient, which is read too where it is added to). s4: one kernel for 1x1, two for
 * 3x3.
 */
static const struct passes forward_normed[STAGES] = {{3, 1}, {1, 1}};
static const struct passes backward_3x3[STAGES] = {{7, 5}, {3, 4}};
static const struct passes backward_1x1[STAGES] = {{8, 5}, {3, 2}};
/* After a pooling, without a batch norm; the first reader of its gradient. */
static const struct passes forward_bare[STAGES] = {{1, 1}, {1, 1}};
static const struct passes backward_bare[STAGES] = {{2, 5}, {2, 2}};
/* The image: no gradient of it. */
static const struct passes backward_image[STAGES] = {{1, 4}, {1, 2}};

static double stage_bytes(const struct floor_net *f, int stage) {
    double sum = 0;
    for (int i = 0; i < f->net->op_count; i++) {
        const struct chex_op *o = &f->net->ops[i];
        if (o->kind != CHEX_OP_CONV) {
            sum += floor_forward(f, i).bytes + floor_backward(f, i).bytes;
            continue;
        }
        const double in = floor_in(f, o), out = floor_map(f, o->out, o->out_channels);
        const bool image = o->in == CHEX_NET_IMAGE, bare = o->in_bn < 0;
        const struct passes *fw = bare ? forward_bare : forward_normed;
        const struct passes *bw = image            ? backward_image
                                  : bare           ? backward_bare
                                  : o->kernel == 3 ? backward_3x3
                                                   : backward_1x1;
        sum += (fw[stage].in + bw[stage].in) * in + (fw[stage].out + bw[stage].out) * out;
    }
    return sum;
}

static void stages(const struct chex_net *net) {
    static const struct {
        int size;
        double mb[STAGES]; /* 0: not planned */
    } plan[] = {{224, {373, 168}}, {320, {0, 344}}, {512, {0, 880}}, {1024, {0, 3500}}};
    for (size_t i = 0; i < sizeof plan / sizeof *plan; i++) {
        int hw[MAX_BUFFERS];
        BAIL_UNLESS(chex_net_shapes(net, plan[i].size, hw, NULL) == CHEX_OK, "shapes");
        const struct floor_net f = {net, hw, plan[i].size, 2, 4};
        for (int s = 0; s < STAGES; s++) {
            const double mb = stage_bytes(&f, s) * 1e-6, want = plan[i].mb[s];
            const double bound = s == 0 ? 0.025 : 0.01;
            if (want > 0)
                OK(fabs(mb / want - 1) <= bound, "%s at %d px: %.1f MB an image, planned %.0f",
                   stage_names[s], plan[i].size, mb, want);
        }
    }
}

/* Kinds of kernels at 224 px, in MB, as planned for s4. */
static void kinds(const struct chex_net *net) {
    int hw[MAX_BUFFERS];
    BAIL_UNLESS(chex_net_shapes(net, 224, hw, NULL) == CHEX_OK, "shapes");
    const struct floor_net f = {net, hw, 224, 2, 4};
    double one = 0, three = 0, one_back = 0, three_data = 0, three_weight = 0;
    for (int i = 0; i < net->op_count; i++) {
        const struct chex_op *o = &net->ops[i];
        if (o->kind != CHEX_OP_CONV || o->in_bn < 0)
            continue;
        const double in = floor_in(&f, o) * 1e-6,
                     out = floor_map(&f, o->out, o->out_channels) * 1e-6;
        if (o->kernel == 1) {
            one += in + out;
            one_back += 3 * in + 2 * out;
        } else {
            three += in + out;
            three_data += 2 * in + 2 * out;
            three_weight += in + 2 * out;
        }
    }
    const double got[] = {one, three, three_data, three_weight, one_back};
    static const double want[] = {26.8, 10.8, 21.6, 12.9, 71.8};
    static const char *const names[] = {"1x1 forward", "3x3 forward", "3x3 data gradient",
                                        "3x3 weights' gradient", "1x1 backward"};
    for (int k = 0; k < 5; k++)
        OK(fabs(got[k] / want[k] - 1) <= 0.01, "%s: %.2f MB an image, planned %.1f", names[k],
           got[k], want[k]);
}

/* The plan counts torchvision's order, where a transition convolves before it pools; pooling first,
 * as here, its convolution has a quarter of the pixels. */
static void products(const struct chex_net *net) {
    static const struct {
        int size;
        double all; /* GFLOP */
    } plan[] = {{224, 16.8}, {320, 34.2}, {512, 87.6}, {1024, 350}};
    for (size_t i = 0; i < sizeof plan / sizeof *plan; i++) {
        const double image = 2e-9 * chex_op_macs(net, 0, plan[i].size);
        double forward = 2e-9 * chex_net_macs(net, plan[i].size);
        const double done = 3 * forward - image;
        for (int k = 1; k < net->op_count; k++)
            if (net->ops[k].kind == CHEX_OP_CONV && net->ops[k].in_bn < 0)
                forward += 3 * 2e-9 * chex_op_macs(net, k, plan[i].size);
        const double all = 3 * forward - image;
        OK(fabs(all / plan[i].all - 1) <= 0.01, "%d px: %.2f GFLOP an image, planned %.1f",
           plan[i].size, all, plan[i].all);
        if (plan[i].size == 224) {
            OK(fabs(forward - 5.67) <= 0.02 && fabs(forward - image - 5.43) <= 0.02,
               "of which forward and weights %.2f each, planned 5.67; data %.2f, planned 5.43",
               forward, forward - image);
            OK(fabs(done / 15.4 - 1) <= 0.01, "pooling first %.2f GFLOP are done, planned 15.4",
               done);
        }
    }
}

/* No way of doing an operation moves less than its floor. */
static void floors(const char *model) {
    struct chex_net *net;
    struct chex_error err;
    int hw[MAX_BUFFERS], wrong = 0;
    OK_STATUS(chex_net_create(model, 14, &net, &err), CHEX_OK, err, NULL);
    BAIL_UNLESS(chex_net_shapes(net, 75, hw, &err) == CHEX_OK, "shapes");
    const struct floor_net f = {net, hw, 75, 2, 4};
    double sum = 0, flop = 0;
    for (int i = 0; i < net->op_count; i++) {
        const struct floor_cost a = floor_forward(&f, i), b = floor_backward(&f, i);
        wrong += !(a.bytes > 0 && b.bytes >= a.bytes / 2 && a.flop >= 0);
        sum += a.bytes + b.bytes;
        flop += a.flop + b.flop;
    }
    OK(!wrong, "%s: every operation has a floor", model);
    OK(fabs(flop / (6 * chex_net_macs(net, 75) - 2 * chex_op_macs(net, 0, 75)) - 1) < 0.01,
       "%s: the products of all operations are the network's", model);
    for (int s = 0; s < STAGES && strcmp(model, "densenet121") == 0; s++)
        OK(stage_bytes(&f, s) > sum, "%s moves more than the floors of all operations",
           stage_names[s]);
    chex_net_destroy(net);
}

int main(void) {
    struct chex_net *net;
    struct chex_error err;
    OK_STATUS(chex_net_create("densenet121", 14, &net, &err), CHEX_OK, err, NULL);
    stages(net);
    kinds(net);
    products(net);
    floors("densenet121");
    floors("resnet50");
    chex_net_destroy(net);
    return tap_done();
}
