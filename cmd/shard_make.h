/* SPDX-License-Identifier: Apache-2.0
 *
 * The subcommands that make a set of shards, under srun together: their ranks and their result.
 */
#ifndef CHEX_CMD_SHARD_MAKE_H
#define CHEX_CMD_SHARD_MAKE_H

#include <stdbool.h>
#include <stddef.h>

#include "data/create.h"

/* chex_create() or chex_reshard() behind one signature. */
typedef enum chex_status shard_make_fn(const void *options, const struct chex_create_ranks *ranks,
                                       struct chex_create_result *result_out,
                                       struct chex_error *err);

/* Joins the other ranks, makes the set and prints the result on rank 0. name: "create". output and
 * shards: as asked for. A failure that all ranks know of has its text on rank 0 alone. */
enum chex_status shard_make(const char *name, shard_make_fn *make, const void *options,
                            const char *output, size_t shards, bool json, struct chex_error *err);

#endif
