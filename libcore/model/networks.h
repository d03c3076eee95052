/* SPDX-License-Identifier: Apache-2.0
 *
 * The networks by name, and what builds them: each fills ops, buffers, batch norms and parameters
 * in torchvision's order of parameters.
 */
#ifndef CHEX_MODEL_NETWORKS_H
#define CHEX_MODEL_NETWORKS_H

#include "model/net.h"

/* Every network, the default first: X(NAME) for chex_net_build_NAME. */
#define CHEX_NETWORKS(X)                                                                           \
    X(densenet121)                                                                                 \
    X(resnet50)

#define CHEX_NET_DECLARE(name) void chex_net_build_##name(struct chex_net *net);
CHEX_NETWORKS(CHEX_NET_DECLARE)
#undef CHEX_NET_DECLARE

#endif
