/* SPDX-License-Identifier: Apache-2.0
 *
 * Two checks of finished data: `verify` compares every byte of a set with its checksums and its
 * manifest; `audit` compares the patients and images of two sources.
 */
#ifndef CHEX_SHARD_VERIFY_H
#define CHEX_SHARD_VERIFY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "label/split.h"

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

/* The label file that supplies labels and patients for lists of file names. All may be NULL. */
struct chex_audit_labels {
    const char *path, *format, *columns; /* chex_labels_load */
};

/* Two opened sources. They own the names in the audit result. */
struct chex_audit_pair;

/* Compares patients, images and positives of two sources.
 * - A source is a set's folder, the folder of one split, a shard file, a label file or a list of
 *   file names. Format and columns of `labels` also apply to a source that is a label file.
 * - The result in *audit_out is valid until chex_audit_close(). Shared patients are not a failure.
 * - CHEX_E_DATA: a source that cannot be read, a list with names that `labels` does not have. */
enum chex_status chex_audit_open(const char *a, const char *b,
                                 const struct chex_audit_labels *labels,
                                 struct chex_audit_pair **pair_out, struct chex_audit *audit_out,
                                 struct chex_error *err);
void chex_audit_close(struct chex_audit_pair *pair); /* NULL allowed; frees the audit's classes */

#endif
