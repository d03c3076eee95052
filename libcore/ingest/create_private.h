/* SPDX-License-Identifier: Apache-2.0
 *
 * Internal interface of chex_create() and chex_reshard(). A file calls only files below it:
 *
 * - create.c: the coordinator: order of the steps, agreement between ranks, build rounds
 * - relabel.c: other labels for an existing set; calls reshard.c
 * - reshard.c: the input of reshard, an existing set; calls the coordinator
 * - create_same.c: checks that all ranks read the same input
 * - create_done.c: --resume on a complete set
 * - create_input.c: the input of create: labels, splits, files of the rows, layout
 * - create_build.c: the builder: makes shards from rows on all threads
 * - create_kept.c: checks the shards that --resume reuses
 * - create_output.c: the store: states of the output folder, publishing, undoing
 * - create_lock.c, create_manifest.c, create_rejected.c: parts of the store
 * - create_spool.c: images in archives
 * - create_names.c: names of shards, files of rows
 */
#ifndef CHEX_INGEST_CREATE_PRIVATE_H
#define CHEX_INGEST_CREATE_PRIVATE_H

#include "base/hash.h"
#include "image/convert.h"
#include "image/image.h"
#include "image/resize.h"
#include "ingest/create.h"
#include "ingest/folder.h"
#include "ingest/layout.h"
#include "shard/manifest.h"

/* A run with too many bad images still reads the other images, so that one list names all bad ones.
 * It stops early if more than max_bad + CHEX_BAD_MARGIN + 10 % of the images read so far are bad.
 * So a wrong folder or an unfinished copy is not read to its end. */
enum { CHEX_BAD_MARGIN = 20 };

/* Lock file in the partial folder; it names the process that holds it (create_lock.c). */
#define CHEX_CREATE_LOCK "lock"

/* Part of the names in the partial folder. Increase it when shards get other bytes from the same
 * input, so that --resume does not reuse those of an earlier build. 2: studies, original sizes. 3:
 * VOI LUTs of DICOM. */
enum { CHEX_CREATE_REVISION = 3 };

/* A bad image. Ranks exchange this struct as raw bytes. */
struct chex_bad_row {
    uint64_t row; /* in the label table */
    char reason[248];
};

/* An existing set as the source of rows (reshard, relabel). All pointers are borrowed. */
struct chex_create_origin {
    const char *dir;
    const struct chex_manifest *manifest;
    /* (table->count) checksum of each row's pixels */
    const uint64_t *content;
    const struct chex_shard *(*shard)(const void *arg, size_t row, size_t *row_in_shard_out);
    /* Reads the pixels (size, size) of a row. CHEX_E_DATA: they are damaged. */
    enum chex_status (*fetch)(const void *arg, size_t row, uint8_t *pixels, struct chex_error *err);
    /* Computes the source_digest of a new shard as two 64-bit halves. */
    enum chex_status (*source)(const void *arg, const struct chex_layout_shard *shard,
                               uint64_t sum_out[2], struct chex_error *err);
    const void *arg;
    bool new_labels; /* the rows have other labels than the set (relabel) */
};

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
    bool done;       /* the output already holds the set of this run */
    struct chex_layout *layout;
    const char **wanted; // (wanted_count) sorted names of images without a file; with archives only
    size_t wanted_count;
    const struct chex_folder_file **packed; // (packed_count) compressed archives to spool
    size_t packed_count;
    char *archive_fault; /* message of the first faulty archive; NULL if there is none */
    char *partial;       /* output/.chex-shard-partial */
    int lock_fd;         /* rank 0: the lock, once taken; else -1 */
    bool made_output;    /* this run made the output folder; remove it on failure */
    size_t kept;         /* shards that this rank reuses */
    size_t kept_rows;    /* images in these shards */
    uint64_t *trusted;   // (trusted_count) sorted hashes of the paths of shards that need no check
    size_t trusted_count;
};

/* ---- create_names.c ---- */

/* partial/NAME.DIGEST.h5 in new memory. The digest covers every input of the shard: options,
 * labels, and size and time of the image files. So any run can reuse a file of that name. */
char *chex_create_shard_path(const struct chex_create *c, const struct chex_layout_shard *shard);

/* The file of a table row, or NULL. *rival_out (NULL allowed): a second file that matches equally
 * well, or NULL. */
const struct chex_folder_file *chex_create_find(const struct chex_create *c, size_t row,
                                                const struct chex_folder_file **rival_out);

/* True if `bad` bad images among `count` read ones exceed the limit at CHEX_BAD_MARGIN. */
bool chex_create_hopeless(const struct chex_create *c, size_t bad, size_t count);

/* Whether a row of a shard has the study of a row of the table. */
bool chex_create_same_study(const struct chex_label_row *row, const struct chex_shard *s, size_t i);

/* The resize algorithm of the new shards; in reshard that of the old ones. */
const char *chex_create_resize_name(const struct chex_create *c);

/* ---- create.c ---- */

/* Fills table, split and the source of the rows. */
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

/* ---- create_done.c ---- */

/* Rank 0, for --resume: *done_out is true if the output is a complete set of these options and
 * sources.
 * - Labels are compared by the label file's digest and row by row.
 * - An image counts as unchanged unless its file is newer than the manifest.
 * - The first difference is logged. */
enum chex_status chex_create_is_done(const struct chex_create *c, bool *done_out,
                                     struct chex_error *err);

/* ---- create_input.c ---- */

/* Loads labels, splits and the list of image files; opens the archives. */
enum chex_status chex_create_load_input(struct chex_create *c, struct chex_error *err);

/* Finds the file of every row. Marks rows bad that have none. CHEX_E_DATA: none or too many are
 * missing, or a file fits two rows. */
enum chex_status chex_create_find_images(struct chex_create *c, struct chex_error *err);

/* Marks a row bad, once. Copies `reason`. */
enum chex_status chex_create_mark_bad(struct chex_create *c, size_t row, const char *reason,
                                      struct chex_error *err);

/* CHEX_E_DATA if there are more than max_bad bad images. Rank 0 first logs some of them and writes
 * the list of all. */
enum chex_status chex_create_check_bad_limit(struct chex_create *c, struct chex_error *err);

/* Computes the layout without the bad rows and warns of findings that cannot be learned. */
enum chex_status chex_create_make_layout(struct chex_create *c, struct chex_error *err);

/* ---- create_kept.c and create_build.c ---- */

/* For --resume: reads the finished shards of this rank and compares them with the label table and
 * their checksums. Removes damaged shards with a warning. Skips shards of chex_create_trust(). */
enum chex_status chex_create_check_kept(struct chex_create *c, struct chex_error *err);

/* Marks this rank's shards of the current layout as checked or built by this run. */
enum chex_status chex_create_trust(struct chex_create *c, struct chex_error *err);

/* Builds the missing shards of this rank.
 * - *bad_out (count_out): images that failed, by row; the caller frees it. Their shards are not
 *   finished.
 * - Sets c->gave_up and stops early if chex_create_hopeless(). */
enum chex_status chex_create_build(struct chex_create *c, struct chex_bad_row **bad_out,
                                   size_t *count_out, struct chex_error *err);

/* ---- create_spool.c ---- */

/* Indexes plain archives and lists the compressed archives that are needed (c->packed). */
enum chex_status chex_create_open_archives(struct chex_create *c, struct chex_error *err);

/* Estimates the bytes that the spools and the shards need. */
enum chex_status chex_create_spool_bytes(const struct chex_create *c, uint64_t *bytes_out,
                                         struct chex_error *err);

/* spool: resizes the wanted images of this rank's compressed archives into spools.
 * take_spools: adds the images of all ranks' spools to the folder. All ranks must have finished
 * spooling. */
enum chex_status chex_create_spool(struct chex_create *c, struct chex_error *err);
enum chex_status chex_create_take_spools(struct chex_create *c, struct chex_error *err);

/* ---- create_output.c and create_lock.c: rank 0 only ---- */

/* Rank 0, before any input is read: checks that the output folder can be used. Changes nothing.
 * CHEX_E_USAGE: it is a file, or holds other files. CHEX_E_ENV: it cannot be made or written. */
enum chex_status chex_create_check_folder(const struct chex_create *c, struct chex_error *err);

/* Rank 0, before chex_create_spool(): locks the output folder and checks the free space. */
enum chex_status chex_create_occupy(struct chex_create *c, struct chex_error *err);

/* Rank 0: locks the output folder, unless already done, and checks the free space. */
enum chex_status chex_create_prepare(struct chex_create *c, struct chex_error *err);

/* Makes the partial folder and locks it until chex_create_unlock() or the end of the process.
 * CHEX_E_ENV names the run that holds the lock. */
enum chex_status chex_create_lock(struct chex_create *c, struct chex_error *err);

/* Releases the lock and removes the partial folder if it is empty. No-op without the lock. */
void chex_create_unlock(struct chex_create *c);

/* Rank 0: removes the partial folder of a run that ended after it wrote the manifest. */
enum chex_status chex_create_tidy(struct chex_create *c, struct chex_error *err);

/* Writes the striping advice for an output on Lustre to buf. False on other file systems. fs_type:
 * f_type of statfs(). */
bool chex_create_stripe_hint(uint64_t fs_type, uint64_t shard_bytes, const char *dir, char *buf,
                             size_t size);

/* Rank 0, after all ranks built their shards: moves the shards to their final names, writes
 * rejected.csv and the manifest, removes the partial folder. On failure the moves are undone. */
enum chex_status chex_create_publish(struct chex_create *c, struct chex_error *err);

/* Rank 0, after a failure: removes what this run made. With --resume, finished shards stay. */
void chex_create_discard(struct chex_create *c);

/* ---- create_manifest.c and create_rejected.c ---- */

/* Opens every finished shard and makes the manifest; the caller frees it. */
enum chex_status chex_create_make_manifest(struct chex_create *c, struct chex_manifest **out,
                                           struct chex_error *err);

/* Digests of the manifest: out is XXH3-128 of the images' hash sum and the label file; labels_out
 * (NULL allowed) is XXH3-128 of the label file alone. */
enum chex_status chex_create_digest_source(const struct chex_create *c, const uint64_t sum[2],
                                           char out[CHEX_HASH128_HEX_BYTES],
                                           char labels_out[CHEX_HASH128_HEX_BYTES],
                                           struct chex_error *err);

/* Writes OUT/rejected.csv, part of the set. */
#define CHEX_CREATE_REJECTED "rejected.csv"
enum chex_status chex_create_write_rejected(const struct chex_create *c, struct chex_error *err);

/* OUT.rejected.csv, beside the output: the list of a run that failed because of bad images. The
 * path is in new memory; NULL if out of memory. */
char *chex_create_failed_list(const struct chex_create *c);
enum chex_status chex_create_write_failed_list(const struct chex_create *c, const char *path,
                                               struct chex_error *err);

#endif
