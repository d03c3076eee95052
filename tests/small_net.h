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

/* A convolution into a buffer of its own, and the batch norm of that buffer. The name of the last
 * norm of a residual block tells make_state of op/net.h to keep it small. */
static struct chex_operand small_conv_bn(struct chex_net *net, const char *name,
                                         struct chex_operand in, int channels, int kernel,
                                         int stride) {
    char norm[CHEX_NET_NAME_BYTES + sizeof ".bn3"];
    const int out = chex_net_add_buffer(net, channels);
    chex_net_add_conv(net, "", name, in, out, 0, channels, kernel, stride);
    snprintf(norm, sizeof norm, "%s.%s", name, strstr(name, "conv3") ? "bn3" : "bn");
    return (struct chex_operand){out, channels, chex_net_add_bn(net, norm, out, channels)};
}

/* The first convolution and the maximum pooling, into a buffer of `channels`. */
static int small_stem(struct chex_net *net, int channels) {
    const struct chex_operand z = small_conv_bn(net, "stem", CHEX_IMAGE_OPERAND, SMALL_STEM, 7, 2);
    const int x = chex_net_add_buffer(net, channels);
    chex_net_add_pool(net, "", CHEX_OP_MAXPOOL, z, x);
    return x;
}

/* Two dense blocks of two layers, with a transition between them. */
static inline void small_densenet(struct chex_net *net) {
    enum { LAYERS = 2, GROWTH = 32, BOTTLENECK = 128, BLOCK = SMALL_STEM + LAYERS * GROWTH };
    char name[CHEX_NET_NAME_BYTES];
    int x = small_stem(net, BLOCK);
    for (int block = 0; block < 2; block++) {
        for (int k = 0, channels = SMALL_STEM; k < LAYERS; k++, channels += GROWTH) {
            net->layer++;
            snprintf(name, sizeof name, "block%d.layer%d.norm", block, k);
            struct chex_operand z = {x, channels, chex_net_add_bn(net, name, x, channels)};
            snprintf(name, sizeof name, "block%d.layer%d.conv1", block, k);
            z = small_conv_bn(net, name, z, BOTTLENECK, 1, 1);
            snprintf(name, sizeof name, "block%d.layer%d.conv2", block, k);
            chex_net_add_conv(net, "", name, z, x, channels, GROWTH, 3, 1);
        }
        struct chex_operand end = {
            x, BLOCK, chex_net_add_bn(net, block ? "norm" : "transition.norm", x, BLOCK)};
        if (block) {
            net->layer++;
            chex_net_add_head(net, "head", end);
            break;
        }
        const int pooled = chex_net_add_buffer(net, BLOCK);
        chex_net_add_pool(net, "", CHEX_OP_AVGPOOL, end, pooled);
        x = chex_net_add_buffer(net, BLOCK);
        chex_net_add_conv(net, "", "transition.conv",
                          (struct chex_operand){pooled, BLOCK, CHEX_NET_NONE}, x, 0, SMALL_STEM, 1,
                          1);
    }
}

/* Two residual blocks: one with a convolution beside it, and one without. */
static inline void small_resnet(struct chex_net *net) {
    enum { WIDTH = 64, OUT = 256 };
    char name[CHEX_NET_NAME_BYTES];
    struct chex_operand x = {small_stem(net, SMALL_STEM), SMALL_STEM, CHEX_NET_NONE};
    for (int block = 0; block < 2; block++) {
        struct chex_operand side = x;
        net->layer++;
        snprintf(name, sizeof name, "block%d.conv1", block);
        struct chex_operand z = small_conv_bn(net, name, x, WIDTH, 1, 1);
        snprintf(name, sizeof name, "block%d.conv2", block);
        z = small_conv_bn(net, name, z, WIDTH, 3, block ? 1 : 2);
        snprintf(name, sizeof name, "block%d.conv3", block);
        z = small_conv_bn(net, name, z, OUT, 1, 1);
        if (!block)
            side = small_conv_bn(net, "side", x, OUT, 1, 2);
        x = (struct chex_operand){chex_net_add_buffer(net, OUT), OUT, CHEX_NET_NONE};
        chex_net_add_residual(net, "", z, side, x.buffer);
    }
    net->layer++;
    chex_net_add_head(net, "head", x);
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
    net->init = CHEX_INIT_RESNET;
    (dense ? small_densenet : small_resnet)(net);
    BAIL_UNLESS(chex_net_finish(net, &err) == CHEX_OK, "%s", err.text);
    return net;
}

#endif
