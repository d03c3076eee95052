/* SPDX-License-Identifier: Apache-2.0
 *
 * Small networks with every kind of operation of DenseNet-121 and of ResNet-50, for tests in which
 * whole networks would only repeat the same operations. Images of 32 px and more.
 */
#ifndef CHEX_TESTS_SMALL_NET_H
#define CHEX_TESTS_SMALL_NET_H

#include <stdio.h>
#include <string.h>

#include "model/net.h"
#include "tap.h"

#define SMALL_DENSENET "small DenseNet"
#define SMALL_RESNET "small ResNet"

enum { SMALL_STEM = 64 };

/* A convolution from the first `in_channels` of a buffer to channels `out_first` and up of another.
 */
static int small_conv(struct chex_net *net, const char *name, int in, int in_channels, int in_bn,
                      int out, int out_first, int out_channels, int kernel, int stride) {
    const struct chex_op op = {.kind = CHEX_OP_CONV,
                               .in = in,
                               .in_channels = in_channels,
                               .in_bn = in_bn,
                               .out = out,
                               .out_first = out_first,
                               .out_channels = out_channels,
                               .kernel = kernel,
                               .stride = stride,
                               .pad = kernel / 2};
    chex_net_add_op(net, op, name);
    return out;
}

/* A convolution into a buffer of its own (*out), and the batch norm of that buffer. The name of the
 * last norm of a residual block tells make_state of op/net.h to keep it small. */
static int small_conv_bn(struct chex_net *net, const char *name, int in, int in_channels, int in_bn,
                         int channels, int kernel, int stride, int *out) {
    char norm[CHEX_NET_NAME_BYTES];
    *out = chex_net_add_buffer(net, channels);
    small_conv(net, name, in, in_channels, in_bn, *out, 0, channels, kernel, stride);
    snprintf(norm, sizeof norm, "%s.%s", name, strstr(name, "conv3") ? "bn3" : "bn");
    return chex_net_add_bn(net, norm, *out, channels);
}

/* The first convolution and the maximum pooling, into a buffer of `channels`. */
static int small_stem(struct chex_net *net, int channels) {
    int z, x;
    const int bn =
        small_conv_bn(net, "stem", CHEX_NET_IMAGE, 3, CHEX_NET_NONE, SMALL_STEM, 7, 2, &z);
    const struct chex_op pool = {.kind = CHEX_OP_MAXPOOL,
                                 .in = z,
                                 .in_channels = SMALL_STEM,
                                 .in_bn = bn,
                                 .out = x = chex_net_add_buffer(net, channels),
                                 .out_channels = SMALL_STEM,
                                 .kernel = 3,
                                 .stride = 2,
                                 .pad = 1};
    chex_net_add_op(net, pool, NULL);
    return x;
}

static void small_head(struct chex_net *net, int x, int channels, int bn) {
    const struct chex_op head = {
        .kind = CHEX_OP_HEAD, .in = x, .in_channels = channels, .in_bn = bn};
    net->layer++;
    chex_net_add_op(net, head, "head");
}

/* Two dense blocks of two layers, with a transition between them. */
static inline void small_densenet(struct chex_net *net) {
    enum { LAYERS = 2, GROWTH = 32, BOTTLENECK = 128, BLOCK = SMALL_STEM + LAYERS * GROWTH };
    char name[CHEX_NET_NAME_BYTES];
    int x = small_stem(net, BLOCK), z;
    for (int block = 0; block < 2; block++) {
        for (int k = 0, channels = SMALL_STEM; k < LAYERS; k++, channels += GROWTH) {
            net->layer++;
            snprintf(name, sizeof name, "block%d.layer%d.norm", block, k);
            int bn = chex_net_add_bn(net, name, x, channels);
            snprintf(name, sizeof name, "block%d.layer%d.conv1", block, k);
            bn = small_conv_bn(net, name, x, channels, bn, BOTTLENECK, 1, 1, &z);
            snprintf(name, sizeof name, "block%d.layer%d.conv2", block, k);
            small_conv(net, name, z, BOTTLENECK, bn, x, channels, GROWTH, 3, 1);
        }
        const int bn = chex_net_add_bn(net, block ? "norm" : "transition.norm", x, BLOCK);
        if (block) {
            small_head(net, x, BLOCK, bn);
            break;
        }
        const struct chex_op pool = {.kind = CHEX_OP_AVGPOOL,
                                     .in = x,
                                     .in_channels = BLOCK,
                                     .in_bn = bn,
                                     .out = z = chex_net_add_buffer(net, BLOCK),
                                     .out_channels = BLOCK,
                                     .kernel = 2,
                                     .stride = 2};
        chex_net_add_op(net, pool, NULL);
        x = small_conv(net, "transition.conv", z, BLOCK, CHEX_NET_NONE,
                       chex_net_add_buffer(net, BLOCK), 0, SMALL_STEM, 1, 1);
    }
}

/* Two residual blocks: one with a convolution beside it, and one without. */
static inline void small_resnet(struct chex_net *net) {
    enum { WIDTH = 64, OUT = 256 };
    char name[CHEX_NET_NAME_BYTES];
    int x = small_stem(net, SMALL_STEM), channels = SMALL_STEM, z1, z2, z3;
    for (int block = 0; block < 2; block++, channels = OUT) {
        int side = x, side_bn = CHEX_NET_NONE;
        net->layer++;
        snprintf(name, sizeof name, "block%d.conv1", block);
        int bn = small_conv_bn(net, name, x, channels, CHEX_NET_NONE, WIDTH, 1, 1, &z1);
        snprintf(name, sizeof name, "block%d.conv2", block);
        bn = small_conv_bn(net, name, z1, WIDTH, bn, WIDTH, 3, block ? 1 : 2, &z2);
        snprintf(name, sizeof name, "block%d.conv3", block);
        bn = small_conv_bn(net, name, z2, WIDTH, bn, OUT, 1, 1, &z3);
        if (!block)
            side_bn = small_conv_bn(net, "side", x, channels, CHEX_NET_NONE, OUT, 1, 2, &side);
        const struct chex_op add = {.kind = CHEX_OP_RESIDUAL_ADD,
                                    .in = z3,
                                    .in_channels = OUT,
                                    .in_bn = bn,
                                    .out = x = chex_net_add_buffer(net, OUT),
                                    .out_channels = OUT,
                                    .side_in = side,
                                    .side_bn = side_bn};
        chex_net_add_op(net, add, NULL);
    }
    small_head(net, x, OUT, CHEX_NET_NONE);
}

/* SMALL_DENSENET, SMALL_RESNET, or a network of chex_net_create. */
static inline struct chex_net *small_net(const char *model, int classes) {
    struct chex_error err = {0};
    struct chex_net *net = NULL;
    const bool dense = strcmp(model, SMALL_DENSENET) == 0;
    if (!dense && strcmp(model, SMALL_RESNET) != 0) {
        BAIL_UNLESS(chex_net_create(model, classes, &net, &err) == CHEX_OK, "%s", err.text);
        return net;
    }
    net = chex_net_new(model, classes);
    BAIL_UNLESS(net, "out of memory");
    (dense ? small_densenet : small_resnet)(net);
    BAIL_UNLESS(chex_net_finish(net, &err) == CHEX_OK, "%s", err.text);
    return net;
}

#endif
