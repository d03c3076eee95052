/* SPDX-License-Identifier: Apache-2.0
 *
 * From a set of shards to one with another number of them, without the images: no pixel is decoded
 * or resized again.
 *
 * The result is what chex_create() would have made with that number of shards from the images that
 * were not rejected, byte for byte, but for two attributes of each shard: tool_version is the
 * present one, and source_digest is the sum over all old shards that rows came from (the same where
 * the new shards are whole old ones put together). The manifests are equal.
 */
#ifndef CHEX_DATA_RESHARD_H
#define CHEX_DATA_RESHARD_H

#include "data/create.h"

struct chex_reshard_options {
    const char *input, *output, *tool_version;
    size_t shards; /* a split */
    int workers;
    bool force, resume; /* as in struct chex_create_options */
};

/* Collective, like chex_create(). Every row is compared with its checksum on the way. CHEX_E_USAGE:
 * the output is there already, or is the input. CHEX_E_DATA: the input is no set, or damaged. */
enum chex_status chex_reshard(const struct chex_reshard_options *options,
                              const struct chex_create_ranks *ranks,
                              struct chex_create_result *result_out, struct chex_error *err);

#endif
