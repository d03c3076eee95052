/* SPDX-License-Identifier: Apache-2.0
 *
 * ResNets (He et al., "Deep residual learning for image recognition", CVPR 2016) with torchvision's
 * names. As in torchvision, the stride of a bottleneck is in its 3x3 convolution.
 */
#include <stdio.h>

#include "model/networks.h"

enum { STEM = 64 };

/* Adds a convolution, the buffer of its output (*out) and a batch norm that reads it. Returns that
 * buffer as an operand. */
static struct chex_operand conv_bn(struct chex_net *net, const char *base, const char *conv_part,
                                   const char *bn_part, struct chex_operand in, int channels,
                                   int kernel, int stride) {
    char name[CHEX_NET_NAME_BYTES];
    int out = chex_net_add_buffer(net, channels);
    snprintf(name, sizeof name, "%s%s", base, conv_part);
    chex_net_add_conv(net, name, name, in, out, 0, channels, kernel, stride);
    snprintf(name, sizeof name, "%s%s", base, bn_part);
    return (struct chex_operand){out, channels, chex_net_add_bn(net, name, out, channels)};
}

/* expansion > 1: the two 3x3 convolutions of a basic block become 1x1, 3x3 and 1x1. */
static struct chex_operand block_of(struct chex_net *net, int stage, int block,
                                    struct chex_operand x, int width, int expansion, int stride) {
    char base[CHEX_NET_NAME_BYTES / 2], name[CHEX_NET_NAME_BYTES];
    const int channels = width * expansion;
    snprintf(base, sizeof base, "layer%d.%d.", stage, block);
    net->layer++;
    struct chex_operand z, side = x;
    if (expansion > 1) {
        z = conv_bn(net, base, "conv1", "bn1", x, width, 1, 1);
        z = conv_bn(net, base, "conv2", "bn2", z, width, 3, stride);
        z = conv_bn(net, base, "conv3", "bn3", z, channels, 1, 1);
    } else {
        z = conv_bn(net, base, "conv1", "bn1", x, width, 3, stride);
        z = conv_bn(net, base, "conv2", "bn2", z, width, 3, 1);
    }
    if (stride > 1 || x.channels != channels)
        side = conv_bn(net, base, "downsample.0", "downsample.1", x, channels, 1, stride);
    int out = chex_net_add_buffer(net, channels);
    snprintf(name, sizeof name, "%sjoin", base);
    chex_net_add_residual(net, name, z, side, out);
    return (struct chex_operand){out, channels, CHEX_NET_NONE};
}

void chex_net_build_resnet(struct chex_net *net, int expansion, const int blocks[CHEX_NET_BLOCKS]) {
    net->init = CHEX_INIT_RESNET;
    const struct chex_operand z = conv_bn(net, "", "conv1", "bn1", CHEX_IMAGE_OPERAND, STEM, 7, 2);
    struct chex_operand x = {chex_net_add_buffer(net, STEM), STEM, CHEX_NET_NONE};
    chex_net_add_pool(net, "maxpool", CHEX_OP_MAXPOOL, z, x.buffer);
    for (int stage = 1, width = STEM; stage <= CHEX_NET_BLOCKS; stage++, width *= 2)
        for (int block = 0; block < blocks[stage - 1]; block++)
            x = block_of(net, stage, block, x, width, expansion, stage > 1 && block == 0 ? 2 : 1);
    net->layer++;
    chex_net_add_head(net, "fc", x);
}
