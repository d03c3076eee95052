/* SPDX-License-Identifier: Apache-2.0
 *
 * The builders behind the table in net.c: each fills ops, buffers, batch norms and parameters in
 * torchvision's order of parameters.
 */
#ifndef CHEX_MODEL_NETWORKS_H
#define CHEX_MODEL_NETWORKS_H

#include "model/net.h"

void chex_net_build_densenet121(struct chex_net *net);
void chex_net_build_resnet50(struct chex_net *net);

#endif
