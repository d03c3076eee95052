/* SPDX-License-Identifier: Apache-2.0
 *
 * What chex_create() and chex_reshard() share: create.c (the course of things, and what create does
 * before it), create_spool.c (images within archives), reshard.c (the same as create.c for an
 * existing set), create_build.c (rows to shards on all threads), create_convert.c (an image file to
 * a row), create_output.c (the output folder), create_lock.c (one run at a time in it),
 * create_rejected.c (lists of images left out), create_done.c (a set that needs no run).
 */
#ifndef CHEX_DATA_CREATE_PRIVATE_H
#define CHEX_DATA_CREATE_PRIVATE_H

#include "base/hash.h"
#include "data/convert.h"
#include "data/create.h"
#include "data/folder.h"
#include "data/image.h"
#include "data/manifest.h"
#include "data/plan.h"
#include "data/resize.h"

/* A run looks at all images before it fails for bad ones, so that one list names all of them, but
 * gives up where more than max_bad, these and a tenth of the images are bad: a wrong folder or an
 * unfinished copy is not read to its end. */
enum { CHEX_BAD_MARGIN = 20 };

/* In the partial folder: who works in it (create_lock.c). */
#define CHEX_CREATE_LOCK "lock"

/* An image that cannot be used; travels between ranks as it is. */
struct chex_bad_row {
    uint64_t row; /* in the label table */
    char reason[248];
};

/* Rows that are shards already. Everything is borrowed. */
struct chex_create_origin {
    const char *dir;
    const struct chex_manifest *manifest;
    /* (table->count) what tells two contents of a row apart: its pixels' checksum */
    const uint64_t *content;
    /* The pixels (size, size) of a row. CHEX_E_DATA where they are damaged. */
    enum chex_status (*fetch)(const void *arg, size_t row, uint8_t *pixels, struct chex_error *err);
    /* What source_digest says of a shard, in two halves. */
    enum chex_status (*source)(const void *arg, const struct chex_plan_shard *shard,
                               uint64_t sum_out[2], struct chex_error *err);
    const void *arg;
};

struct chex_create {
    const struct chex_create_options *o;
    const struct chex_create_ranks *ranks;
    struct chex_label_table *table;
    enum chex_split *split; // (table->count)
    struct chex_folder *folder;
    const struct chex_folder_file **files;   // (table->count), NULL where missing or unused
    const struct chex_create_origin *origin; /* instead of folder and files; NULL in create */
    bool *bad;                               // (table->count), NULL where none can be
    char **reasons;                          // (table->count), NULL unless bad
    size_t bad_count;
    bool gave_up;    /* there may be more bad images than were found */
    bool check_only; /* too many are missing: the others are looked at, and no shard is made */
    bool done;       /* the output holds this very set already */
    struct chex_plan *plan;
    const char **wanted; // (wanted_count) names of images that no file has, where archives are
    size_t wanted_count;
    const struct chex_folder_file **packed; // (packed_count) compressed archives to be spooled
    size_t packed_count;
    char *archive_fault; /* of the first faulty archive; NULL where all are sound */
    char *partial;       /* output/.chex-shard-partial */
    int lock_fd;         /* of rank 0, once the output is taken; else -1 */
    bool made_output;    /* the output folder is ours to remove on failure */
    size_t kept;         /* by this rank */
    size_t kept_rows;    /* in them */
};

/* From the loaded table to the published set; frees everything that c holds. `load` fills table,
 * split and where the rows come from. */
enum chex_status chex_create_run(struct chex_create *c,
                                 enum chex_status (*load)(struct chex_create *c,
                                                          struct chex_error *err),
                                 struct chex_create_result *result_out, struct chex_error *err);

/* partial/NAME.DIGEST.h5 in fresh memory. The digest covers all that the shard is made from, so a
 * file of that name can be kept whichever run made it. */
char *chex_create_shard_path(const struct chex_create *c, const struct chex_plan_shard *shard);

/* The file of a table's row, and a second one that fits as well (rival_out may be NULL); NULL where
 * there is none. */
const struct chex_folder_file *chex_create_find(const struct chex_create *c, size_t row,
                                                const struct chex_folder_file **rival_out);

/* Whether `bad` bad images among `count` are so many that looking on is no use. */
bool chex_create_hopeless(const struct chex_create *c, size_t bad, size_t count);

/* Builds the shards of this rank that are not there yet. Images that fail are returned, and their
 * shards not finished. Stops early, with c->gave_up, when it is hopeless. */
enum chex_status chex_create_build(struct chex_create *c, struct chex_bad_row **bad_out,
                                   size_t *count_out, struct chex_error *err);

/* Indexes plain archives and lists the compressed ones that are needed. */
enum chex_status chex_create_open_archives(struct chex_create *c, struct chex_error *err);

/* Bytes that the spools and the shards behind them take, about. */
enum chex_status chex_create_spool_bytes(const struct chex_create *c, uint64_t *bytes_out,
                                         struct chex_error *err);

/* Rank 0, before chex_create_spool: takes the output folder and looks for room. */
enum chex_status chex_create_occupy(struct chex_create *c, struct chex_error *err);

/* Resizes what is wanted of this rank's compressed archives into spools; when all ranks have done
 * so, chex_create_take_spools makes their images files of the folder. */
enum chex_status chex_create_spool(struct chex_create *c, struct chex_error *err);
enum chex_status chex_create_take_spools(struct chex_create *c, struct chex_error *err);

/* Rank 0. Takes the output folder, unless it has been, and looks at the free space. */
enum chex_status chex_create_prepare(struct chex_create *c, struct chex_error *err);

/* Makes the partial folder and takes it until chex_create_unlock() or the end of the process.
 * CHEX_E_ENV names the run that has it. */
enum chex_status chex_create_lock(struct chex_create *c, struct chex_error *err);

/* Gives it back, and removes it where nothing is in it; nothing where it is not taken. */
void chex_create_unlock(struct chex_create *c);

/* Rank 0, for --resume: whether the output is a complete set of the same options and sources. The
 * labels are compared by their file's digest and row by row; an image counts as the same unless its
 * file is newer than the set. What differs is said in the log. */
enum chex_status chex_create_is_done(const struct chex_create *c, bool *done_out,
                                     struct chex_error *err);

/* Rank 0: removes what a run left that ended behind its manifest. */
enum chex_status chex_create_tidy(struct chex_create *c, struct chex_error *err);

/* XXH3-128 of the images' sum and the label file, as the manifest has it. */
enum chex_status chex_create_digest_source(const struct chex_create *c, const uint64_t sum[2],
                                           char out[CHEX_HASH128_HEX_BYTES],
                                           struct chex_error *err);

/* OUT/rejected.csv of a complete set. */
#define CHEX_CREATE_REJECTED "rejected.csv"
enum chex_status chex_create_write_rejected(const struct chex_create *c, struct chex_error *err);

/* OUT.rejected.csv, the list beside the output that a run leaves which failed for bad images; in
 * fresh memory, NULL for lack of it. */
char *chex_create_failed_list(const struct chex_create *c);
enum chex_status chex_create_write_failed_list(const struct chex_create *c, const char *path,
                                               struct chex_error *err);

/* The advice for an output on Lustre, in buf; false elsewhere. fs_type: statfs's f_type. */
bool chex_create_stripe_hint(uint64_t fs_type, uint64_t shard_bytes, const char *dir, char *buf,
                             size_t size);

/* Rank 0, when all shards are there: moves them to their names, writes rejected.csv and the
 * manifest, removes the partial folder. */
enum chex_status chex_create_publish(struct chex_create *c, struct chex_error *err);

/* Rank 0, after a failure: removes what this run made, unless it may be resumed. */
void chex_create_discard(struct chex_create *c);

#endif
