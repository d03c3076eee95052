/* SPDX-License-Identifier: Apache-2.0
 *
 * The list of networks. chex_net_build_FAMILY adds buffers, batch norms and operations to an empty
 * network, in torchvision's order of parameters.
 *
 * A network of CHEX_TEST_NETWORKS exists only in builds with tests. Help and messages do not list
 * it. densenet_tiny is DenseNet-121 with two layers in each block: a run of it starts faster.
 * densenet_tiny48 is the same of DenseNet-161, whose channels are not multiples of 32.
 */
#ifndef CHEX_MODEL_NETWORKS_H
#define CHEX_MODEL_NETWORKS_H

#include "model/net.h"

/* X(NAME, FAMILY, SIZE, BLOCKS...) for every network; the first is the default of --model.
 * densenet: SIZE is the growth rate; layers of each dense block.
 * resnet: SIZE is 4 for bottleneck blocks, 1 for basic blocks; blocks of each stage. */
#define CHEX_NETWORKS(X)                                                                           \
    X(densenet121, densenet, 32, 6, 12, 24, 16)                                                    \
    X(densenet161, densenet, 48, 6, 12, 36, 24)                                                    \
    X(densenet169, densenet, 32, 6, 12, 32, 32)                                                    \
    X(densenet201, densenet, 32, 6, 12, 48, 32)                                                    \
    X(resnet18, resnet, 1, 2, 2, 2, 2)                                                             \
    X(resnet34, resnet, 1, 3, 4, 6, 3)                                                             \
    X(resnet50, resnet, 4, 3, 4, 6, 3)                                                             \
    X(resnet101, resnet, 4, 3, 4, 23, 3)                                                           \
    X(resnet152, resnet, 4, 3, 8, 36, 3)

#ifdef CHEX_BUILD_TESTS
#define CHEX_TEST_NETWORKS(X)                                                                      \
    X(densenet_tiny, densenet, 32, 2, 2, 2, 2)                                                     \
    X(densenet_tiny48, densenet, 48, 2, 2, 2, 2)
#else
#define CHEX_TEST_NETWORKS(X)
#endif

enum { CHEX_NET_BLOCKS = 4 };
void chex_net_build_densenet(struct chex_net *net, int growth, const int layers[CHEX_NET_BLOCKS]);
void chex_net_build_resnet(struct chex_net *net, int expansion, const int blocks[CHEX_NET_BLOCKS]);

#endif
