/* SPDX-License-Identifier: Apache-2.0
 *
 * What chex_create() and chex_reshard() share: create.c (the course of things, and what create does
 * before it), reshard.c (the same for an existing set), create_build.c (rows to shards on all
 * threads), create_output.c (the output folder).
 */
#ifndef CHEX_DATA_CREATE_PRIVATE_H
#define CHEX_DATA_CREATE_PRIVATE_H

#include "data/create.h"
#include "data/folder.h"
#include "data/manifest.h"
#include "data/plan.h"

/* So many bad images more than allowed are looked for before a run gives up: enough for a list that
 * helps, without reading a hopeless folder to its end. */
enum { CHEX_BAD_MARGIN = 20 };

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
    struct chex_plan *plan;
    char *partial;    /* output/.chex-shard-partial */
    bool made_output; /* the output folder is ours to remove on failure */
    size_t kept;      /* by this rank */
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

/* Builds the shards of this rank that are not there yet. Images that fail are returned, and their
 * shards not finished. Stops early when far more than max_bad are found. */
enum chex_status chex_create_build(struct chex_create *c, struct chex_bad_row **bad_out,
                                   size_t *count_out, struct chex_error *err);

/* Rank 0. Looks at the output folder and at the free space, and makes the partial folder. */
enum chex_status chex_create_prepare(struct chex_create *c, struct chex_error *err);

/* The advice for an output on Lustre, in buf; false elsewhere. fs_type: statfs's f_type. */
bool chex_create_stripe_hint(uint64_t fs_type, uint64_t shard_bytes, const char *dir, char *buf,
                             size_t size);

/* Rank 0, when all shards are there: moves them to their names, writes rejected.csv and the
 * manifest, removes the partial folder. */
enum chex_status chex_create_publish(struct chex_create *c, struct chex_error *err);

/* Rank 0, after a failure: removes what this run made, unless it may be resumed. */
void chex_create_discard(struct chex_create *c);

#endif
