/* SPDX-License-Identifier: Apache-2.0
 *
 * DenseNet-121 (Huang et al., "Densely connected convolutional networks", CVPR 2017) with
 * torchvision's names.
 *
 * A transition pools before its 1x1 convolution, not after it as in torchvision. The two operations
 * commute, and in this order the convolution costs a quarter.
 */
#include <stdio.h>

#include "model/networks.h"

enum { GROWTH = 32, BOTTLENECK = 4 * GROWTH, STEM = 64, BLOCKS = 4 };

static int stem(struct chex_net *net, int block_channels) {
    int z = chex_net_add_buffer(net, STEM);
    chex_net_add_op(net,
                    (struct chex_op){.kind = CHEX_OP_CONV,
                                     .name = "conv0",
                                     .in = CHEX_NET_IMAGE,
                                     .in_channels = 3,
                                     .in_bn = CHEX_NET_NONE,
                                     .out = z,
                                     .out_channels = STEM,
                                     .kernel = 7,
                                     .stride = 2,
                                     .pad = 3},
                    "features.conv0");
    int bn = chex_net_add_bn(net, "features.norm0", z, STEM);
    int x = chex_net_add_buffer(net, block_channels);
    chex_net_add_op(net,
                    (struct chex_op){.kind = CHEX_OP_MAXPOOL,
                                     .name = "pool0",
                                     .in = z,
                                     .in_channels = STEM,
                                     .in_bn = bn,
                                     .out = x,
                                     .out_channels = STEM,
                                     .kernel = 3,
                                     .stride = 2,
                                     .pad = 1},
                    NULL);
    return x;
}

static void dense_layer(struct chex_net *net, int block, int layer, int x, int channels) {
    char base[CHEX_NET_NAME_BYTES / 2], name[CHEX_NET_NAME_BYTES];
    snprintf(base, sizeof base, "features.denseblock%d.denselayer%d", block, layer);
    net->layer++;
    struct chex_op one = {.kind = CHEX_OP_CONV,
                          .in = x,
                          .in_channels = channels,
                          .out_channels = BOTTLENECK,
                          .kernel = 1,
                          .stride = 1};
    snprintf(name, sizeof name, "%s.norm1", base);
    one.in_bn = chex_net_add_bn(net, name, x, channels);
    one.out = chex_net_add_buffer(net, BOTTLENECK);
    snprintf(one.name, sizeof one.name, "block%d.layer%d.conv1", block, layer);
    snprintf(name, sizeof name, "%s.conv1", base);
    chex_net_add_op(net, one, name);

    struct chex_op three = {.kind = CHEX_OP_CONV,
                            .in = one.out,
                            .in_channels = BOTTLENECK,
                            .out = x,
                            .out_first = channels,
                            .out_channels = GROWTH,
                            .kernel = 3,
                            .stride = 1,
                            .pad = 1};
    snprintf(name, sizeof name, "%s.norm2", base);
    three.in_bn = chex_net_add_bn(net, name, one.out, BOTTLENECK);
    snprintf(three.name, sizeof three.name, "block%d.layer%d.conv2", block, layer);
    snprintf(name, sizeof name, "%s.conv2", base);
    chex_net_add_op(net, three, name);
}

/* Halves the channels and the size into the buffer of the next block. */
static int transition(struct chex_net *net, int number, int x, int channels, int next_channels) {
    char name[CHEX_NET_NAME_BYTES];
    struct chex_op pool = {.kind = CHEX_OP_AVGPOOL,
                           .in = x,
                           .in_channels = channels,
                           .out_channels = channels,
                           .kernel = 2,
                           .stride = 2};
    snprintf(name, sizeof name, "features.transition%d.norm", number);
    pool.in_bn = chex_net_add_bn(net, name, x, channels);
    pool.out = chex_net_add_buffer(net, channels);
    snprintf(pool.name, sizeof pool.name, "transition%d.pool", number);
    chex_net_add_op(net, pool, NULL);

    struct chex_op conv = {.kind = CHEX_OP_CONV,
                           .in = pool.out,
                           .in_channels = channels,
                           .in_bn = CHEX_NET_NONE,
                           .out_channels = channels / 2,
                           .kernel = 1,
                           .stride = 1};
    conv.out = chex_net_add_buffer(net, next_channels);
    snprintf(conv.name, sizeof conv.name, "transition%d.conv", number);
    snprintf(name, sizeof name, "features.transition%d.conv", number);
    chex_net_add_op(net, conv, name);
    return conv.out;
}

static void build(struct chex_net *net, const int layers_of[BLOCKS]) {
    int channels = STEM;
    net->init = CHEX_INIT_DENSENET;
    int x = stem(net, channels + layers_of[0] * GROWTH);
    for (int block = 1; block <= BLOCKS; block++) {
        for (int layer = 1; layer <= layers_of[block - 1]; layer++, channels += GROWTH)
            dense_layer(net, block, layer, x, channels);
        if (block < BLOCKS) {
            x = transition(net, block, x, channels, channels / 2 + layers_of[block] * GROWTH);
            channels /= 2;
        }
    }
    net->layer++;
    int bn = chex_net_add_bn(net, "features.norm5", x, channels);
    chex_net_add_op(net,
                    (struct chex_op){.kind = CHEX_OP_HEAD,
                                     .name = "classifier",
                                     .in = x,
                                     .in_channels = channels,
                                     .in_bn = bn},
                    "classifier");
}

void chex_net_build_densenet121(struct chex_net *net) {
    build(net, (const int[BLOCKS]){6, 12, 24, 16});
}

#ifdef CHEX_BUILD_TESTS
void chex_net_build_densenet_tiny(struct chex_net *net) {
    build(net, (const int[BLOCKS]){2, 2, 2, 2});
}
#endif
