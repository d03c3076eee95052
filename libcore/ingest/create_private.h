/* SPDX-License-Identifier: Apache-2.0
 *
 * Internal interface of chex_create() and chex_reshard(). A file calls only files below it:
 *
 * - relabel.c, reshard.c: an existing set as the input
 * - create.c: the order of the steps, the build rounds and the result
 * - create_input.c: labels, splits, files of the rows, bad images, layout
 * - create_same.c: compares the input of all ranks
 * - create_spool.c: images in archives
 * - create_build.c: decodes, resizes and writes the shards of this rank
 * - create_store.h: the output folder, in create_store.c (states, publishing), create_shards.c
 *   (names, finished shards), create_done.c, create_manifest.c and create_rejected.c
 * - create_rows.c: facts about rows
 */
#ifndef CHEX_INGEST_CREATE_PRIVATE_H
#define CHEX_INGEST_CREATE_PRIVATE_H

#include "image/convert.h"
#include "image/image.h"
#include "image/resize.h"
#include "ingest/create.h"
#include "ingest/create_store.h"
#include "ingest/folder.h"
#include "ingest/layout.h"
#include "shard/manifest.h"

/* A run with too many bad images still reads the other images, so that one list names all bad ones.
 * It stops early if more than max_bad + CHEX_BAD_MARGIN + 10 % of the images read so far are bad.
 * So a wrong folder or an unfinished copy is not read to its end. */
enum { CHEX_BAD_MARGIN = 20 };

/* Part of the names in the partial folder. Increase it when shards get other bytes from the same
 * input, so that --resume does not reuse those of an earlier build. 2: studies, original sizes. 3:
 * VOI LUTs of DICOM. */
enum { CHEX_CREATE_REVISION = 3 };

/* A bad image. Ranks exchange this struct as raw bytes. */
struct chex_bad_row {
    uint64_t row; /* in the label table */
    char reason[248];
};

/* An existing set as the input (reshard, relabel). All pointers are borrowed. */
struct chex_create_origin {
    const char *dir;
    const struct chex_manifest *manifest;
    /* (table->count) checksum of each row's pixels */
    const uint64_t *content;
    const struct chex_shard *(*shard)(const void *arg, size_t row, size_t *row_in_shard_out);
    /* Reads the pixels (size, size) of a row. CHEX_E_DATA: they are damaged. */
    enum chex_status (*fetch)(const void *arg, size_t row, uint8_t *pixels, struct chex_error *err);
    /* Computes the source_digest of a new shard as two 64-bit halves. */
    enum chex_status (*sum_digests)(const void *arg, const struct chex_layout_shard *shard,
                                    uint64_t sum_out[2], struct chex_error *err);
    const void *arg;
    bool new_labels; /* the rows have other labels than the set (relabel) */
};

/* What the set is made of. */
struct chex_create {
    const struct chex_create_options *o;
    struct chex_group *group; /* the ranks that make the set together */
    struct chex_label_table *table;
    enum chex_split *split; // (table->count)
    struct chex_folder *folder;
    const struct chex_folder_file **files;   // (table->count), NULL if missing or unused
    const struct chex_create_origin *origin; /* replaces folder and files; NULL in create */
    bool *bad;                               // (table->count), NULL in reshard
    char **reasons;                          // (table->count), entries NULL unless bad
    size_t bad_count;
    bool gave_up;    /* stopped early: there may be more bad images than were found */
    bool check_only; /* too many images are missing: check the others, write no shard */
    struct chex_layout *layout;
    const char **wanted; // (wanted_count) sorted names of images without a file; with archives only
    size_t wanted_count;
    const struct chex_folder_file **packed; // (packed_count) compressed archives to spool
    size_t packed_count;
    char *archive_fault; /* message of the first faulty archive; NULL if there is none */
    struct chex_store *store;
};

/* ---- create_rows.c ---- */

/* The file of a table row, or NULL. *rival_out (NULL allowed): a second file that matches equally
 * well, or NULL. */
const struct chex_folder_file *chex_create_find(const struct chex_create *c, size_t row,
                                                const struct chex_folder_file **rival_out);

/* True if `bad` bad images among `count` read ones exceed the limit at CHEX_BAD_MARGIN. */
bool chex_create_hopeless(const struct chex_create *c, size_t bad, size_t count);

/* What differs between a row of the table and row i of a shard: "image id", "labels", ...; NULL if
 * nothing does. */
const char *chex_create_difference(const struct chex_create *c, size_t row,
                                   const struct chex_shard *s, size_t i);

/* What the new manifest says; in reshard as in the old one. */
struct chex_create_facts {
    const char *resize, *label_format, *uncertain, *split_mode, *png16;
};
struct chex_create_facts chex_create_facts(const struct chex_create *c);

/* ---- create.c ---- */

/* Fills table and split, and the folder or the origin. */
typedef enum chex_status (*chex_create_load_fn)(struct chex_create *c, struct chex_error *err);

/* All steps from loading the input to publishing the set. Collective. Calls `load` once on each
 * rank. Frees everything that c owns. */
enum chex_status chex_create_run(struct chex_create *c, chex_create_load_fn load,
                                 struct chex_create_result *result_out, struct chex_error *err);

/* ---- create_same.c ---- */

/* Collective. Check that all ranks have the same rows and archives (compare_rows) and the same
 * image files (compare_images). CHEX_E_DATA on every rank, with the rank that differs from rank 0
 * and its host. */
enum chex_status chex_create_compare_rows(struct chex_create *c, struct chex_error *err);
enum chex_status chex_create_compare_images(struct chex_create *c, struct chex_error *err);

/* ---- create_input.c ---- */

/* Loads the label file into c->table, with the policies of the options. */
enum chex_status chex_create_load_labels(struct chex_create *c, struct chex_error *err);

/* Loads labels, splits and the list of image files; opens the archives. */
enum chex_status chex_create_load_input(struct chex_create *c, struct chex_error *err);

/* Collective. Finds the file of every row, after it has read the compressed archives. Marks rows
 * bad that have none. CHEX_E_DATA: none or too many are missing, a file fits two rows, or the ranks
 * see different files. */
enum chex_status chex_create_find_images(struct chex_create *c, struct chex_error *err);

/* Marks a row bad, once. Copies `reason`. */
enum chex_status chex_create_mark_bad(struct chex_create *c, size_t row, const char *reason,
                                      struct chex_error *err);

/* CHEX_E_DATA if there are more than max_bad bad images. Rank 0 first logs some of them and writes
 * the list of all. */
enum chex_status chex_create_check_bad_limit(struct chex_create *c, struct chex_error *err);

/* Computes the layout without the bad rows and warns of findings that cannot be learned. */
enum chex_status chex_create_make_layout(struct chex_create *c, struct chex_error *err);

/* ---- create_build.c ---- */

/* Builds the shards of this rank that are not finished, after chex_store_list().
 * - *bad_out (count_out): images that failed, by row; the caller frees it. Their shards are not
 *   finished.
 * - Sets c->gave_up and stops early if chex_create_hopeless(). */
enum chex_status chex_create_build(struct chex_create *c, struct chex_bad_row **bad_out,
                                   size_t *count_out, struct chex_error *err);

/* ---- create_spool.c ---- */

/* Indexes plain archives and lists the compressed archives that are needed (c->packed). */
enum chex_status chex_create_open_archives(struct chex_create *c, struct chex_error *err);

/* Collective, for compressed archives: locks the store, resizes the wanted images of this rank's
 * archives into spools, and adds the images of all spools to the folder. */
enum chex_status chex_create_spool(struct chex_create *c, struct chex_error *err);

#endif
