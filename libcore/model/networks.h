/* SPDX-License-Identifier: Apache-2.0
 *
 * The list of networks. chex_net_build_NAME adds buffers, batch norms and operations to an empty
 * network, in torchvision's order of parameters.
 *
 * A network of CHEX_TEST_NETWORKS exists only in builds with tests. Help and messages do not list
 * it. densenet_tiny is DenseNet-121 with two layers in each block: a run of it starts faster.
 */
#ifndef CHEX_MODEL_NETWORKS_H
#define CHEX_MODEL_NETWORKS_H

#include "model/net.h"

/* X(NAME) for every network; the first is the default of --model. */
#define CHEX_NETWORKS(X)                                                                           \
    X(densenet121)                                                                                 \
    X(resnet50)

#ifdef CHEX_BUILD_TESTS
#define CHEX_TEST_NETWORKS(X) X(densenet_tiny)
#else
#define CHEX_TEST_NETWORKS(X)
#endif

#define CHEX_NET_DECLARE(name) void chex_net_build_##name(struct chex_net *net);
CHEX_NETWORKS(CHEX_NET_DECLARE)
CHEX_TEST_NETWORKS(CHEX_NET_DECLARE)
#undef CHEX_NET_DECLARE

#endif
