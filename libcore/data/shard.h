/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading shard v1 files (share/doc/shard-format.md) one by one and as a split.
 *
 * A shard is plain HDF5 with contiguous u8 images. Opening reads labels, ids and checksums into
 * memory, takes the offset of the images and closes the HDF5 file again, so rows are pread by any
 * number of threads outside HDF5's lock.
 */
#ifndef CHEX_DATA_SHARD_H
#define CHEX_DATA_SHARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum chex_split { CHEX_TRAIN, CHEX_VAL, CHEX_TEST, CHEX_ALL, CHEX_SPLIT_COUNT };
extern const char *const chex_split_names[]; /* "train", "val", "test", "all", NULL */

enum chex_view { CHEX_VIEW_UNKNOWN, CHEX_VIEW_PA, CHEX_VIEW_AP, CHEX_VIEW_LATERAL };

enum { CHEX_LABEL_UNCERTAIN = -1, CHEX_LABEL_NOT_STATED = -2 };

struct chex_shard;

/* CHEX_E_DATA with file and reason: not HDF5, not a shard, a later version, a missing or misshapen
 * dataset, images beyond the end of the file, a value outside its range, an id that is empty or
 * there twice. */
enum chex_status chex_shard_open(const char *path, struct chex_shard **shard_out,
                                 struct chex_error *err);
void chex_shard_close(struct chex_shard *shard); /* NULL allowed */

const char *chex_shard_path(const struct chex_shard *s);
size_t chex_shard_rows(const struct chex_shard *s);
int chex_shard_size(const struct chex_shard *s); /* height = width in px */
int chex_shard_classes(const struct chex_shard *s);
const char *chex_shard_class(const struct chex_shard *s, int c);
const char *chex_shard_resize(const struct chex_shard *s); /* "pillow-bilinear" */
const char *chex_shard_split(const struct chex_shard *s);
const char *chex_shard_source_digest(const struct chex_shard *s);
/* Its two halves as numbers; false where it is not 32 hex digits. */
bool chex_shard_source_sum(const struct chex_shard *s, uint64_t sum_out[2]);
const char *chex_shard_tool_version(const struct chex_shard *s);
const int8_t *chex_shard_labels(const struct chex_shard *s, size_t row); /* (classes) */
const char *chex_shard_image_id(const struct chex_shard *s, size_t row);
const char *chex_shard_patient_id(const struct chex_shard *s, size_t row);
enum chex_view chex_shard_view(const struct chex_shard *s, size_t row);
int chex_shard_age_years(const struct chex_shard *s, size_t row); /* -1 unknown */
char chex_shard_sex(const struct chex_shard *s, size_t row);      /* 'M', 'F' or 0 */
uint64_t chex_shard_checksum(const struct chex_shard *s, size_t row);

/* XXH3-64 over checksums and tables, as the manifest lists it. */
uint64_t chex_shard_digest(const struct chex_shard *s);

/* Reads rows [row, row + n) into pixels (n, size, size). Thread-safe. With `verify` the checksums
 * are compared: CHEX_E_DATA names file, row and image. */
enum chex_status chex_shard_read(const struct chex_shard *s, size_t row, size_t n, bool verify,
                                 uint8_t *pixels, struct chex_error *err);

/* Tells the kernel that rows [row, row + n) will be read soon. */
void chex_shard_will_need(const struct chex_shard *s, size_t row, size_t n);

/* All shards of one split, rows numbered through in order of shard number. */
struct chex_set {
    char *dir;
    enum chex_split split;
    struct chex_shard **shards; /* NULL where the shard has no row of the part that was opened */
    size_t shard_count;
    size_t *first; /* first[i]: number of shard i's first row; first[shard_count] = rows */
    size_t rows;
    int size, classes;
    char **class_names, *source_digest, *resize;
};

/* Opens DIR/SPLIT/SPLIT-NNNNN-of-NNNNN.h5 as DIR/manifest.json lists them. Only the shards with
 * rows in [row_from, row_to) are opened (0, SIZE_MAX: all), so a rank reads its own alone.
 * CHEX_E_DATA: no manifest, a missing shard, shards that disagree with it in size, classes or
 * rows, an empty split. CHEX_E_ENV: more shards than files may be open. */
enum chex_status chex_set_open(const char *dir, enum chex_split split, size_t row_from,
                               size_t row_to, struct chex_set **set_out, struct chex_error *err);

/* All splits that the set has as one, in the order of enum chex_split, otherwise as above. Its
 * split is CHEX_ALL. */
enum chex_status chex_set_open_whole(const char *dir, size_t row_from, size_t row_to,
                                     struct chex_set **set_out, struct chex_error *err);
void chex_set_close(struct chex_set *set); /* NULL allowed */

/* The same for all rows, going on where a shard is CHEX_E_DATA: bad() hears which one (its number
 * and its file) and why, and its place in `shards` stays NULL. */
typedef void chex_set_bad_fn(void *arg, size_t shard, const char *path,
                             const struct chex_error *why);
enum chex_status chex_set_open_sound(const char *dir, enum chex_split split, chex_set_bad_fn *bad,
                                     void *arg, struct chex_set **set_out, struct chex_error *err);

/* Rows of a split by the manifest alone; 0 where the split is absent. */
enum chex_status chex_set_rows(const char *dir, enum chex_split split, size_t *rows_out,
                               struct chex_error *err);

/* The shard of a row and the row's number within it. The shard must be open. */
const struct chex_shard *chex_set_locate(const struct chex_set *set, size_t row,
                                         size_t *row_in_shard_out);

/* Class names, from the manifest: (classes) pointers that live as long as the set. */
const char *const *chex_set_class_names(const struct chex_set *set);

/* The manifest's digest of the source, for the checkpoint's provenance. */
const char *chex_set_source_digest(const struct chex_set *set);
const char *chex_set_resize(const struct chex_set *set);

#endif
