/* SPDX-License-Identifier: Apache-2.0
 *
 * Looking at what is there: every byte of a set against checksums and manifest, and patients of two
 * sources against each other.
 */
#ifndef CHEX_DATA_VERIFY_H
#define CHEX_DATA_VERIFY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "data/split.h"

/* What is wrong with one shard, or with the set as a whole. */
struct chex_verify_fault {
    char *file; /* of the shard; NULL: the manifest, counts or patients of the set */
    char *text; /* one line that names the file, and the row and image where it is one */
    size_t
        rows; /* whose pixels do not match their checksum; 0: the file could not be used at all */
};

struct chex_verify_result {
    size_t shards, rows; /* that were read */
    uint64_t bytes;      /* of pixels */
    double seconds;
    struct chex_verify_fault *faults; // (fault_count), files that cannot be used first
    size_t fault_count;
};

/* path: a set's folder or one shard file. Reads every row on `threads` threads; for a set also
 * compares manifest and shards (rows, digests, positives, patients) and the splits' patients with
 * each other. Goes on past a shard that is missing or bad; counts of its split are not compared
 * then. CHEX_E_DATA: there are faults; the text is that of the only one, or their number and the
 * first. *result_out is written in all cases, and chex_verify_release() frees what it holds. */
enum chex_status chex_verify(const char *path, int threads, bool show_progress,
                             struct chex_verify_result *result_out, struct chex_error *err);
void chex_verify_release(struct chex_verify_result *result);

/* Where a source that is a list of file names finds labels and patients; all may be NULL. */
struct chex_audit_labels {
    const char *path, *format, *columns; /* chex_labels_load */
};

/* Two sources that are compared. The names in `audit` live as long. */
struct chex_audit_pair;

/* The patients, images and positives of two sources: a set's folder, one split's folder of it, a
 * shard file, a label file (for which format and columns of `labels` hold too), or a list of file
 * names. Whether patients are shared is not a failure here. CHEX_E_DATA: a source that cannot be
 * read, a list with names that `labels` does not have. */
enum chex_status chex_audit_open(const char *a, const char *b,
                                 const struct chex_audit_labels *labels,
                                 struct chex_audit_pair **pair_out, struct chex_audit *audit_out,
                                 struct chex_error *err);
void chex_audit_close(struct chex_audit_pair *pair); /* frees the audit's classes as well */

#endif
