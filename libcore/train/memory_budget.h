/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory that a run needs, and what the node has.
 */
#ifndef CHEX_TRAIN_MEMORY_BUDGET_H
#define CHEX_TRAIN_MEMORY_BUDGET_H

#include "train/session.h"

/* Bytes of a checkpoint, without HDF5's own tables. */
uint64_t chex_train_file_bytes(const struct chex_net *net, const struct chex_train_config *c);
/* Fills s->needs. */
enum chex_status chex_session_measure(struct chex_session *s, struct chex_error *err);
/* Compares the need of this node's ranks with the limit of the node.
 * CHEX_E_RESOURCE: the need can never fit.
 * A need above the free memory, or above what the job requested from Slurm, may still work:
 * s->memory_warning says so, and the first rank of the node logs it. Collective. */
enum chex_status chex_session_check_memory(struct chex_session *s, struct chex_error *err);
/* The largest --batch-size that fits into both; 0: none fits, -1: the engine cannot tell. */
int chex_session_largest_batch(struct chex_session *s, uint64_t host_bytes, uint64_t device_bytes);
/* This rank's equal share of the node's memory limit; 0: unknown. */
uint64_t chex_train_allowed_bytes(const struct chex_launch *launch);
/* This rank's equal share of the node's free memory, plus what the rank already has; 0: unknown. */
uint64_t chex_train_free_bytes(const struct chex_launch *launch);

#endif
