/* SPDX-License-Identifier: Apache-2.0
 *
 * DenseNets (Huang et al., "Densely connected convolutional networks", CVPR 2017) with
 * torchvision's names.
 *
 * A transition pools before its 1x1 convolution, not after it as in torchvision. The two operations
 * commute, and in this order the convolution costs a quarter.
 */
#include <stdio.h>

#include "model/networks.h"

static int stem(struct chex_net *net, int channels, int block_channels) {
    int z = chex_net_add_buffer(net, channels);
    chex_net_add_conv(net, "conv0", "features.conv0", CHEX_IMAGE_OPERAND, z, 0, channels, 7, 2);
    int bn = chex_net_add_bn(net, "features.norm0", z, channels);
    int x = chex_net_add_buffer(net, block_channels);
    chex_net_add_pool(net, "pool0", CHEX_OP_MAXPOOL, (struct chex_operand){z, channels, bn}, x);
    return x;
}

static void dense_layer(struct chex_net *net, int growth, int block, int layer, int x,
                        int channels) {
    const int bottleneck = 4 * growth;
    char base[CHEX_NET_NAME_BYTES / 2], module[CHEX_NET_NAME_BYTES], name[CHEX_NET_NAME_BYTES];
    snprintf(base, sizeof base, "features.denseblock%d.denselayer%d", block, layer);
    net->layer++;
    snprintf(module, sizeof module, "%s.norm1", base);
    int bn = chex_net_add_bn(net, module, x, channels), z = chex_net_add_buffer(net, bottleneck);
    snprintf(name, sizeof name, "block%d.layer%d.conv1", block, layer);
    snprintf(module, sizeof module, "%s.conv1", base);
    chex_net_add_conv(net, name, module, (struct chex_operand){x, channels, bn}, z, 0, bottleneck,
                      1, 1);
    snprintf(module, sizeof module, "%s.norm2", base);
    bn = chex_net_add_bn(net, module, z, bottleneck);
    snprintf(name, sizeof name, "block%d.layer%d.conv2", block, layer);
    snprintf(module, sizeof module, "%s.conv2", base);
    chex_net_add_conv(net, name, module, (struct chex_operand){z, bottleneck, bn}, x, channels,
                      growth, 3, 1);
}

/* Halves the channels and the size into the buffer of the next block. */
static int transition(struct chex_net *net, int number, int x, int channels, int next_channels) {
    char name[CHEX_NET_NAME_BYTES], module[CHEX_NET_NAME_BYTES];
    snprintf(module, sizeof module, "features.transition%d.norm", number);
    int bn = chex_net_add_bn(net, module, x, channels), pooled = chex_net_add_buffer(net, channels);
    snprintf(name, sizeof name, "transition%d.pool", number);
    chex_net_add_pool(net, name, CHEX_OP_AVGPOOL, (struct chex_operand){x, channels, bn}, pooled);
    int out = chex_net_add_buffer(net, next_channels);
    snprintf(name, sizeof name, "transition%d.conv", number);
    snprintf(module, sizeof module, "features.transition%d.conv", number);
    chex_net_add_conv(net, name, module, (struct chex_operand){pooled, channels, CHEX_NET_NONE},
                      out, 0, channels / 2, 1, 1);
    return out;
}

void chex_net_build_densenet(struct chex_net *net, int growth, const int layers[CHEX_NET_BLOCKS]) {
    int channels = 2 * growth;
    net->init = CHEX_INIT_DENSENET;
    int x = stem(net, channels, channels + layers[0] * growth);
    for (int block = 1; block <= CHEX_NET_BLOCKS; block++) {
        for (int layer = 1; layer <= layers[block - 1]; layer++, channels += growth)
            dense_layer(net, growth, block, layer, x, channels);
        if (block < CHEX_NET_BLOCKS) {
            x = transition(net, block, x, channels, channels / 2 + layers[block] * growth);
            channels /= 2;
        }
    }
    net->layer++;
    int bn = chex_net_add_bn(net, "features.norm5", x, channels);
    chex_net_add_head(net, "classifier", (struct chex_operand){x, channels, bn});
}
