/* SPDX-License-Identifier: Apache-2.0
 *
 * The list of networks. chex_net_build_NAME adds buffers, batch norms and operations to an empty
 * network, in torchvision's order of parameters.
 */
#ifndef CHEX_MODEL_NETWORKS_H
#define CHEX_MODEL_NETWORKS_H

#include "model/net.h"

/* X(NAME) for every network; the first is the default of --model. */
#define CHEX_NETWORKS(X)                                                                           \
    X(densenet121)                                                                                 \
    X(resnet50)

#define CHEX_NET_DECLARE(name) void chex_net_build_##name(struct chex_net *net);
CHEX_NETWORKS(CHEX_NET_DECLARE)
#undef CHEX_NET_DECLARE

#endif
