/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads shard v1 files (doc/shard-format.md): one file, or all shards of a split as a set.
 *
 * A shard is an HDF5 file with one contiguous block of u8 images. Opening a shard reads labels, ids
 * and checksums into memory, finds the file offset of the images and closes the HDF5 file. After
 * that, any number of threads read rows with pread, without HDF5 and its global lock.
 */
#ifndef CHEX_SHARD_SHARD_H
#define CHEX_SHARD_SHARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "label/values.h"

struct chex_shard;

/* Opens one shard. The caller closes it with chex_shard_close().
 * - CHEX_E_DATA, with file and reason: not HDF5, not a shard, another version, a dataset that is
 *   missing or has the wrong type or shape, images beyond the end of the file, a value outside its
 *   range, an empty id, an image id used twice. */
enum chex_status chex_shard_open(const char *path, struct chex_shard **shard_out,
                                 struct chex_error *err);
void chex_shard_close(struct chex_shard *shard); /* NULL allowed */
CHEX_AUTO_POINTER(struct chex_shard, chex_shard_close)

const char *chex_shard_path(const struct chex_shard *s);
size_t chex_shard_rows(const struct chex_shard *s);
int chex_shard_size(const struct chex_shard *s); /* height = width in px */
int chex_shard_classes(const struct chex_shard *s);
const char *chex_shard_class(const struct chex_shard *s, int c);
const char *chex_shard_resize(const struct chex_shard *s); /* "pillow-bilinear" */
const char *chex_shard_split(const struct chex_shard *s);
const char *chex_shard_source_digest(const struct chex_shard *s);
/* Adds the source digest to a sum of such digests: two 64-bit halves, each modulo 2^64. */
void chex_shard_add_source(const struct chex_shard *s, uint64_t sum[2]);
const char *chex_shard_tool_version(const struct chex_shard *s);
const int8_t *chex_shard_labels(const struct chex_shard *s, size_t row); /* (classes) */
const char *chex_shard_image_id(const struct chex_shard *s, size_t row);
const char *chex_shard_patient_id(const struct chex_shard *s, size_t row);
/* NULL: the shard does not state it. */
const char *chex_shard_study_id(const struct chex_shard *s, size_t row);
enum chex_view chex_shard_view(const struct chex_shard *s, size_t row);
int chex_shard_age_years(const struct chex_shard *s, size_t row); /* -1 unknown */
char chex_shard_sex(const struct chex_shard *s, size_t row);      /* 'M', 'F' or 0 */
/* The size in pixels of the image file; 0: the shard does not state it. */
int chex_shard_original_width(const struct chex_shard *s, size_t row);
int chex_shard_original_height(const struct chex_shard *s, size_t row);
uint64_t chex_shard_checksum(const struct chex_shard *s, size_t row);

/* XXH3-64 over checksums, labels, ids, views, ages, sexes, and studies and original sizes if the
 * shard has them. The manifest stores this value. */
uint64_t chex_shard_digest(const struct chex_shard *s);

/* Reads rows [row, row + n) into pixels (n, size, size). Thread-safe.
 * - verify: compare each row with its checksum.
 * - CHEX_E_DATA: a wrong checksum or a file that is too short, with file, row and image.
 * - CHEX_E_ENV: the read failed. */
enum chex_status chex_shard_read(const struct chex_shard *s, size_t row, size_t n, bool verify,
                                 uint8_t *pixels, struct chex_error *err);

/* Asks the kernel to read rows [row, row + n) into the page cache (posix_fadvise). */
void chex_shard_will_need(const struct chex_shard *s, size_t row, size_t n);

/* All shards of one split. Rows are numbered across shards, in the order of the manifest.
 *
 * chex_selection_open() (shard/selection.h) makes a set of chosen rows, of several sets, or with
 * other labels. Readers use the functions below, which know both kinds. Only in such a set:
 * - `shards` lists pieces of shards, and one shard may have several;
 * - `parts` owns the shards. */
struct chex_set {
    char *dir;
    enum chex_split split;
    struct chex_shard **shards; /* NULL: the shard has no row in the range that was opened */
    size_t shard_count;
    size_t *first; /* first[i]: number of shard i's first row; first[shard_count] = rows */
    size_t rows;
    int size, classes;
    char **class_names, *source_digest, *resize;
    const uint32_t *in_shard; /* (rows) number of the row in its shard; NULL: row - first[i].
                                 Borrowed from the selection */
    int8_t *labels;           /* (rows from labels_first on, classes); NULL: those of the shards */
    size_t labels_first;
    struct chex_set **parts; /* (part_count) sets; entries may be NULL */
    int part_count;
};

/* The splits [from, to) of enum chex_split, whose rows are numbered as one. */
struct chex_splits {
    int from, to;
};
static inline struct chex_splits chex_splits_one(enum chex_split split) {
    return (struct chex_splits){(int)split, (int)split + 1};
}
/* "train", "train+val"; "all" for every split. */
const char *chex_splits_name(struct chex_splits splits);

/* Opens the shards of these splits, DIR/SPLIT/SPLIT-NNNNN-of-NNNNN.h5, as DIR/manifest.json lists
 * them. Calls opened(arg) after each, so that a watchdog sees progress; NULL allowed.
 * - Opens only the shards with rows in [row_from, row_to), so that a rank opens only its own
 *   shards. 0 and SIZE_MAX: all shards.
 * - Compares every opened shard with the manifest: rows, size, classes, resize, split, digest.
 * - The caller frees *set_out with chex_set_close().
 * - CHEX_E_DATA: no manifest, no such split, a missing shard, a shard that differs from the
 *   manifest.
 * - CHEX_E_ENV: the limit of open files is lower than the number of shards. */
enum chex_status chex_set_open_splits(const char *dir, struct chex_splits splits, size_t row_from,
                                      size_t row_to, void (*opened)(void *arg), void *arg,
                                      struct chex_set **set_out, struct chex_error *err);
static inline enum chex_status chex_set_open(const char *dir, enum chex_split split,
                                             size_t row_from, size_t row_to,
                                             struct chex_set **set_out, struct chex_error *err) {
    return chex_set_open_splits(dir, chex_splits_one(split), row_from, row_to, NULL, NULL, set_out,
                                err);
}
void chex_set_close(struct chex_set *set); /* NULL allowed */
CHEX_AUTO_POINTER(struct chex_set, chex_set_close)
void chex_sets_close(struct chex_set *(*sets)[CHEX_SPLIT_COUNT]); /* of splits; NULL allowed */

/* As chex_set_open() for all rows, but continues after a shard that fails with CHEX_E_DATA. It then
 * calls bad() with the shard's number, its file and the error, and leaves its entry of `shards`
 * NULL. */
typedef void chex_set_bad_fn(void *arg, size_t shard, const char *path,
                             const struct chex_error *why);
enum chex_status chex_set_open_sound(const char *dir, enum chex_split split, chex_set_bad_fn *bad,
                                     void *arg, struct chex_set **set_out, struct chex_error *err);

/* Reads the number of rows of a split from the manifest; 0 if the set has no such split. */
enum chex_status chex_set_rows(const char *dir, enum chex_split split, size_t *rows_out,
                               struct chex_error *err);

/* Returns the shard that holds a row (0 to rows - 1) and the row's number in that shard. NULL if
 * that shard is not open. */
const struct chex_shard *chex_set_locate(const struct chex_set *set, size_t row,
                                         size_t *row_in_shard_out);

/* The number of rows from `row` on, at most `max`, that are neighbours in the file of one shard.
 * shard and row_in_shard: from chex_set_locate(). */
size_t chex_set_neighbours(const struct chex_set *set, const struct chex_shard *shard,
                           size_t row_in_shard, size_t row, size_t max);

/* (classes) labels of a row whose shard is open. */
const int8_t *chex_set_labels(const struct chex_set *set, size_t row);

/* Class names from the manifest: (classes) strings, owned by the set. */
const char *const *chex_set_class_names(const struct chex_set *set);

/* The manifest's source_digest and resize name, owned by the set. Checkpoints store both. */
const char *chex_set_source_digest(const struct chex_set *set);
const char *chex_set_resize(const struct chex_set *set);

#endif
