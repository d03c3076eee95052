/* SPDX-License-Identifier: Apache-2.0
 *
 * A file of features that any program computed: a row of numbers for each image, and its image id
 * (doc/features.md). HDF5, or npy with a CSV table of ids beside it; recognised by content. Rows
 * belong to images by their ids, so their order in the file has no meaning.
 */
#ifndef CHEX_INFER_FEATURE_FILE_H
#define CHEX_INFER_FEATURE_FILE_H

#include "launch/group.h"
#include "shard/shard.h"

struct chex_feature_file {
    char *path;
    size_t rows, count; /* count: numbers of a row */
    float *numbers;     /* (rows, count) */
    struct chex_feature_id {
        char *text;
        size_t row;
        bool known;  /* used by chex_feature_file_check */
    } * ids;         /* (rows) sorted by text */
    char model[24];  /* of the network: "features-768" */
    char digest[17]; /* of all ids and numbers, in hex; it depends on neither order nor format */
};

/* Reads a file for the set in folder `dir`. The caller calls chex_feature_file_close, after an
 * error too. CHEX_E_DATA: neither format; truncated; not 2 dimensions; other numbers than fp16,
 * fp32, fp64; a number that is not finite in fp32; Fortran order; no ids, other than rows, or an id
 * twice; a row of no image of the set, in any split; other features than on rank 0. Collective; all
 * ranks return the same status. */
enum chex_status chex_feature_file_open(const char *path, const char *dir, struct chex_group *group,
                                        struct chex_feature_file **out, struct chex_error *err);
void chex_feature_file_close(struct chex_feature_file *f); /* NULL allowed */

/* Copies the features of the images [first, end) of a set, whose shards are open, into fresh memory
 * (end - first, count); freed by the caller, after an error too. CHEX_E_DATA: an image has none. */
enum chex_status chex_feature_file_copy(const struct chex_feature_file *f,
                                        const struct chex_set *set, size_t first, size_t end,
                                        float **out, struct chex_error *err);

/* The table of ids beside an npy file: X.csv for X.npy, in a fresh string. */
char *chex_feature_csv_path(const char *npy);

#endif
