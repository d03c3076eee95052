/* SPDX-License-Identifier: Apache-2.0
 *
 * ResNet-50 (He et al., "Deep residual learning for image recognition", CVPR 2016) with
 * torchvision's names. As in torchvision, the stride of a bottleneck is in its 3x3 convolution.
 */
#include <stdio.h>

#include "model/networks.h"

enum { STEM = 64, EXPANSION = 4, STAGES = 4 };
static const int blocks_of[STAGES] = {3, 4, 6, 3};

static struct chex_op conv(const char *base, const char *part, int in, int in_channels, int in_bn,
                           int out, int out_channels, int kernel, int stride) {
    struct chex_op op = {.kind = CHEX_OP_CONV,
                         .in = in,
                         .in_channels = in_channels,
                         .in_bn = in_bn,
                         .out = out,
                         .out_channels = out_channels,
                         .kernel = kernel,
                         .stride = stride,
                         .pad = kernel / 2};
    snprintf(op.name, sizeof op.name, "%s%s", base, part);
    return op;
}

/* Adds a convolution, the buffer of its output (*out) and a batch norm that reads it. Returns the
 * batch norm. */
static int conv_bn(struct chex_net *net, const char *base, const char *conv_part,
                   const char *bn_part, int in, int in_channels, int in_bn, int out_channels,
                   int kernel, int stride, int *out) {
    char name[CHEX_NET_NAME_BYTES];
    *out = chex_net_add_buffer(net, out_channels);
    struct chex_op op =
        conv(base, conv_part, in, in_channels, in_bn, *out, out_channels, kernel, stride);
    chex_net_add_op(net, op, op.name);
    snprintf(name, sizeof name, "%s%s", base, bn_part);
    return chex_net_add_bn(net, name, *out, out_channels);
}

static int bottleneck(struct chex_net *net, int stage, int block, int x, int in_channels, int width,
                      int stride) {
    char base[CHEX_NET_NAME_BYTES / 2];
    snprintf(base, sizeof base, "layer%d.%d.", stage, block);
    net->layer++;
    int z1, z2, z3, zs = x, side_bn = CHEX_NET_NONE, out_channels = width * EXPANSION;
    int bn1 = conv_bn(net, base, "conv1", "bn1", x, in_channels, CHEX_NET_NONE, width, 1, 1, &z1);
    int bn2 = conv_bn(net, base, "conv2", "bn2", z1, width, bn1, width, 3, stride, &z2);
    int bn3 = conv_bn(net, base, "conv3", "bn3", z2, width, bn2, out_channels, 1, 1, &z3);
    if (block == 0)
        side_bn = conv_bn(net, base, "downsample.0", "downsample.1", x, in_channels, CHEX_NET_NONE,
                          out_channels, 1, stride, &zs);
    struct chex_op add = {.kind = CHEX_OP_RESIDUAL_ADD,
                          .in = z3,
                          .in_channels = out_channels,
                          .in_bn = bn3,
                          .out_channels = out_channels,
                          .side_in = zs,
                          .side_bn = side_bn};
    add.out = chex_net_add_buffer(net, out_channels);
    snprintf(add.name, sizeof add.name, "%sjoin", base);
    chex_net_add_op(net, add, NULL);
    return add.out;
}

void chex_net_build_resnet50(struct chex_net *net) {
    int z;
    int bn = conv_bn(net, "", "conv1", "bn1", CHEX_NET_IMAGE, 3, CHEX_NET_NONE, STEM, 7, 2, &z);
    int x = chex_net_add_buffer(net, STEM), channels = STEM, width = STEM;
    chex_net_add_op(net,
                    (struct chex_op){.kind = CHEX_OP_MAXPOOL,
                                     .name = "maxpool",
                                     .in = z,
                                     .in_channels = STEM,
                                     .in_bn = bn,
                                     .out = x,
                                     .out_channels = STEM,
                                     .kernel = 3,
                                     .stride = 2,
                                     .pad = 1},
                    NULL);
    for (int stage = 1; stage <= STAGES; stage++, width *= 2)
        for (int block = 0; block < blocks_of[stage - 1]; block++) {
            x = bottleneck(net, stage, block, x, channels, width, stage > 1 && block == 0 ? 2 : 1);
            channels = width * EXPANSION;
        }
    net->layer++;
    chex_net_add_op(net,
                    (struct chex_op){.kind = CHEX_OP_HEAD,
                                     .name = "fc",
                                     .in = x,
                                     .in_channels = channels,
                                     .in_bn = CHEX_NET_NONE},
                    "fc");
}
