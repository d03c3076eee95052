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
#include "shard/manifest.h"

/* Replaces the labels of the rows (relabel.h). */
struct chex_reshard_labels {
    /* Called once on each rank, after the rows of the old set are known. It may
     * - set `labels` of the rows, and the classes of `set`, to memory that outlives the call
     * - set split[row] to CHEX_SPLIT_UNUSED: the new set does not get the row
     * - change what the manifest says about the labels, and its source_digest
     * sum: of the source digests of all old shards. */
    enum chex_status (*apply)(void *arg, struct chex_label_table *set, enum chex_split *split,
                              const uint64_t sum[2], struct chex_manifest *manifest,
                              struct chex_error *err);
    void *arg;
};

/* Makes the set in options->output from the images of options->set. Collective, as chex_create();
 * options are those of chex_create() that concern the output. Verifies the checksum of every row.
 * - CHEX_E_USAGE: the output already holds a set or other files, or is the input.
 * - CHEX_E_DATA: the input is no set or is damaged. */
enum chex_status chex_reshard(const struct chex_create_options *options, struct chex_group *group,
                              struct chex_create_result *result_out, struct chex_error *err);

/* The same with other labels. result_out NULL: reads the rows and calls labels->apply(), and writes
 * nothing; the output may be NULL. */
enum chex_status chex_reshard_with(const struct chex_create_options *options,
                                   const struct chex_reshard_labels *labels,
                                   struct chex_group *group, struct chex_create_result *result_out,
                                   struct chex_error *err);

#endif
