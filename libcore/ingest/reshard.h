/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes a set with another number of shards from an existing set. It needs no images: no pixel is
 * decoded or resized again.
 *
 * The result is byte-identical to the output of chex_create() with that number of shards and
 * without the rejected images, except for two attributes of each shard:
 * - tool_version is the version that reshards
 * - source_digest is the sum over all old shards that rows came from. It is the same as that of
 *   chex_create() only if the new shard consists of whole old shards.
 * The manifests are equal.
 */
#ifndef CHEX_INGEST_RESHARD_H
#define CHEX_INGEST_RESHARD_H

#include "ingest/create.h"

struct chex_reshard_options {
    const char *input, *output, *tool_version;
    size_t shards; /* per split */
    int workers;
    bool force, resume; /* as in struct chex_create_options */
};

/* Collective, as chex_create(). Verifies the checksum of every row. CHEX_E_USAGE: the output
 * already holds a set or other files, or is the input. CHEX_E_DATA: the input is no set or is
 * damaged. */
enum chex_status chex_reshard(const struct chex_reshard_options *options, struct chex_group *group,
                              struct chex_create_result *result_out, struct chex_error *err);

#endif
