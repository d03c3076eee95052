/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads and writes DIR/manifest.json, which describes a set of shards (doc/shard-format.md).
 * The manifest is written last. A folder with a manifest is therefore a complete set.
 */
#ifndef CHEX_SHARD_MANIFEST_H
#define CHEX_SHARD_MANIFEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/hash.h"
#include "shard/shard.h"

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
    uint64_t members;              /* sum of chex_members_sum over its shards, modulo 2^64 */
    struct chex_manifest_shard *shards;
    size_t shard_count; /* 0: the set has no such split */
};

/* Every pointer is owned by the manifest. */
struct chex_manifest {
    char **classes;
    size_t class_count;
    int size;
    char *resize, *tool_version, *label_format, *uncertain, *split_mode, *source_digest;
    char *labels_digest; /* chex_hash128_hex of the label file */
    char *png16;         /* window of grey PNG files of 16 bits (image/image.h); NULL: not stated */
    uint64_t seed;
    size_t rejected;
    bool altered; /* set by chex_manifest_read: the content does not match the manifest's digest */
    struct chex_manifest_split splits[CHEX_SPLIT_COUNT];
};

/* Reads DIR/manifest.json. The caller frees *manifest_out with chex_manifest_free().
 * - A digest that does not match is no failure: it sets `altered`.
 * - CHEX_E_DATA: no such file, not JSON (with line and column), another version, a key that is
 *   missing or has the wrong type, a shard file outside of the folder, a shard listed twice, rows
 *   of a split that are not the sum of its shards' rows. */
enum chex_status chex_manifest_read(const char *dir, struct chex_manifest **manifest_out,
                                    struct chex_error *err);

/* Writes DIR/manifest.json with its digest. After a failure no partial file is left.
 * - CHEX_E_DATA: a name is not UTF-8. */
enum chex_status chex_manifest_write(const char *dir, const struct chex_manifest *manifest,
                                     struct chex_error *err);

/* Computes source_digest: the XXH3-128 of 32 hex digits, followed by the bytes of the label file.
 * The digits are sum[0] and sum[1]: the sum of all shards' source digests, each half modulo 2^64.
 */
void chex_manifest_source_digest(const uint64_t sum[2], const void *labels, size_t bytes,
                                 char out[CHEX_HASH128_HEX_BYTES]);

void chex_manifest_free(struct chex_manifest *manifest); /* NULL allowed */
CHEX_AUTO_POINTER(struct chex_manifest, chex_manifest_free)

#endif
