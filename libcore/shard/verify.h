/* SPDX-License-Identifier: Apache-2.0
 *
 * `chex-shard verify`: compares every byte of a set with its checksums and its manifest.
 */
#ifndef CHEX_SHARD_VERIFY_H
#define CHEX_SHARD_VERIFY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* A fault of one shard or of the set as a whole. */
struct chex_verify_fault {
    char *file;  /* the faulty file; NULL: the manifest, counts or patients of the set */
    char *text;  /* one line with the file, and the row and image if it is one row */
    size_t rows; /* number of faulty rows; 0: the fault is of the whole file or set */
};

enum chex_verify_labels {
    CHEX_VERIFY_LABELS_NOT_GIVEN,
    CHEX_VERIFY_LABELS_SAME,
    CHEX_VERIFY_LABELS_OTHER, /* another label file: the result has a fault for it */
};

struct chex_verify_result {
    size_t shards, rows; /* shards and rows that were read */
    uint64_t bytes;      /* bytes of pixels that were read */
    double seconds;
    enum chex_verify_labels labels;
    bool source_differs; /* `labels` is SAME, but shards and label file do not give the manifest's
                            source_digest. This is normal after `chex-shard reshard`. */
    struct chex_verify_fault *faults; // (fault_count); files that cannot be opened come first
    size_t fault_count;
};

/* Verifies a set's folder or one shard file (`path`).
 * - Reads every row on `threads` threads and compares it with its checksum.
 * - For a set, also compares the shards with the manifest (rows, digests, positives, patients,
 *   image ids) and checks that no patient is in two splits.
 * - labels (NULL allowed; a set only): compares the label file with its digest in the manifest.
 * - Continues after a shard that is missing or damaged. It then skips the counts of that split.
 * - *result_out is written in all cases. Free its content with chex_verify_release().
 * - CHEX_E_DATA: there are faults. The text is that of the only fault, or the number of faults and
 *   the first one. */
enum chex_status chex_verify(const char *path, const char *labels, int threads, bool show_progress,
                             struct chex_verify_result *result_out, struct chex_error *err);
void chex_verify_release(struct chex_verify_result *result);

#endif
