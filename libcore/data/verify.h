/* SPDX-License-Identifier: Apache-2.0
 *
 * Looking at what is there: every byte of a set against checksums and manifest, patients of two
 * sources against each other, and the libraries this layer runs on.
 */
#ifndef CHEX_DATA_VERIFY_H
#define CHEX_DATA_VERIFY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "data/split.h"

struct chex_verify_result {
    size_t shards, rows;
    uint64_t bytes; /* of pixels */
    double seconds;
    size_t faults; /* rows whose pixels do not match their checksum */
};

/* path: a set's folder or one shard file. Reads every row on `threads` threads; for a set also
 * compares manifest and shards (rows, digests, positives, patients) and the splits' patients with
 * each other. CHEX_E_DATA names file, row and image of the first fault in the set's order; further
 * faults are warned of. *result_out is written in both cases. */
enum chex_status chex_verify(const char *path, int threads, bool show_progress,
                             struct chex_verify_result *result_out, struct chex_error *err);

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

/* "HDF5 1.10.8, libpng 1.6.39, ..." as found at run time; buf is returned. */
const char *chex_data_libraries(char *buf, size_t size);

#endif
