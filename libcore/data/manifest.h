/* SPDX-License-Identifier: Apache-2.0
 *
 * DIR/manifest.json: what a set of shards is (share/doc/shard-format.md). It is written last, so a
 * folder that has one is complete.
 */
#ifndef CHEX_DATA_MANIFEST_H
#define CHEX_DATA_MANIFEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "data/shard.h"

#define CHEX_MANIFEST_NAME "manifest.json"
enum { CHEX_MANIFEST_VERSION = 1 };

struct chex_manifest_shard {
    char *file; /* relative to the set's folder: "train/train-00000-of-00016.h5" */
    size_t rows;
    uint64_t digest; /* chex_shard_digest */
};

struct chex_manifest_split {
    size_t rows, patients;
    size_t *positives, *uncertain; /* (class_count) */
    bool has_members;              /* sets of before say nothing of: */
    uint64_t members;              /* chex_members_sum of all its shards */
    struct chex_manifest_shard *shards;
    size_t shard_count; /* 0: the set has no such split */
};

/* Every pointer is owned by the manifest. */
struct chex_manifest {
    char **classes;
    size_t class_count;
    int size;
    char *resize, *tool_version, *label_format, *uncertain, *split_mode, *source_digest;
    uint64_t seed;
    size_t rejected;
    struct chex_manifest_split splits[CHEX_SPLIT_COUNT];
};

/* CHEX_E_DATA: no such file, not JSON (with line and column), a later version, a key that is
 * missing or of the wrong kind, a file name that leaves the folder, sums that do not add up. */
enum chex_status chex_manifest_read(const char *dir, struct chex_manifest **manifest_out,
                                    struct chex_error *err);

/* Writes DIR/manifest.json whole or not at all. */
enum chex_status chex_manifest_write(const char *dir, const struct chex_manifest *manifest,
                                     struct chex_error *err);

void chex_manifest_free(struct chex_manifest *manifest); /* NULL allowed */

#endif
