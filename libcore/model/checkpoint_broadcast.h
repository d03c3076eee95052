/* SPDX-License-Identifier: Apache-2.0
 *
 * Gives the checkpoint that rank 0 has read to all ranks, so that one rank reads the file system
 * and no rank can resume from another file.
 */
#ifndef CHEX_MODEL_CHECKPOINT_BROADCAST_H
#define CHEX_MODEL_CHECKPOINT_BROADCAST_H

#include "launch/group.h"
#include "model/checkpoint.h"

/* On rank 0 *net and *c are the network and the checkpoint of chex_checkpoint_read. On the other
 * ranks they get copies, which the caller destroys; they are written only on success.
 * CHEX_E_RESOURCE on all ranks if one lacks the memory. Collective. */
enum chex_status chex_checkpoint_broadcast(struct chex_group *g, struct chex_net **net,
                                           struct chex_checkpoint **c, struct chex_error *err);

#endif
