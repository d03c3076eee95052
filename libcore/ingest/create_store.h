/* SPDX-License-Identifier: Apache-2.0
 *
 * The output folder of a run, from its first check to the complete set: the lock, the finished
 * shards of this and an interrupted run, their names, publishing and undoing. create_store.c
 * describes the states of the folder.
 *
 * The calls down to chex_store_publish() are collective, in this order. Only rank 0 changes the
 * state of the folder; other ranks only write files below the partial folder.
 */
#ifndef CHEX_INGEST_CREATE_STORE_H
#define CHEX_INGEST_CREATE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/hash.h"
#include "ingest/layout.h"
#include "shard/manifest.h"

struct chex_create;

/* A shard of the layout. */
struct chex_store_shard {
    const struct chex_layout_shard *layout;
    char *path;    /* PARTIAL/NAME.DIGEST.h5. The digest covers every input of the shard: options,
                      labels, and size and time of the image files. So any run can reuse the file. */
    char *file;    /* SPLIT/NAME.h5, below the output folder */
    bool finished; /* only of this rank's shards: the run has checked or built the file */
};

struct chex_store {
    const struct chex_create *c;     /* the input; its layout changes between the build rounds */
    char *partial;                   /* OUTPUT/.chex-shard-partial */
    int lock_fd;                     /* rank 0: the lock, once taken; else -1 */
    bool made_output;                /* this run made the output folder; remove it on failure */
    struct chex_store_shard *shards; /* (shard_count), after chex_store_list */
    size_t shard_count;
    size_t kept, kept_rows; /* shards that this rank reuses, and their images */
};

/* Before any input is read: checks that the output folder can be used. Changes nothing.
 * CHEX_E_USAGE: it is a file, or holds other files. CHEX_E_ENV: it cannot be made or written. */
enum chex_status chex_store_open(const struct chex_create *c, struct chex_store **store_out,
                                 struct chex_error *err);

/* With --resume, after the labels are known: *done_out is true if the output is a complete set of
 * these options and images.
 * - Labels are compared by the label file's digest and row by row.
 * - An image counts as unchanged unless its file is newer than the manifest.
 * - The first difference is logged. */
enum chex_status chex_store_find_done(struct chex_store *store, bool *done_out,
                                      struct chex_error *err);

/* Locks the output folder, unless that was done, and brings it into a state to work in. CHEX_E_ENV
 * names the run that holds the lock. spool_bytes: of spools and shards, which must fit; or 0. */
enum chex_status chex_store_lock(struct chex_store *store, uint64_t spool_bytes,
                                 struct chex_error *err);

/* After each layout: names its shards and finds those of this rank that are finished. With
 * --resume it reads those of an interrupted run, and removes damaged ones with a warning. The first
 * call of a locked store checks the free space. */
enum chex_status chex_store_list(struct chex_store *store, struct chex_error *err);

/* After all ranks built their shards: moves the shards to their final names, writes rejected.csv
 * and the manifest, removes the partial folder. On failure the moves are undone. */
enum chex_status chex_store_publish(struct chex_store *store, struct chex_error *err);

/* failed: removes what this run made; with --resume, finished shards stay. NULL allowed. */
void chex_store_close(struct chex_store *store, bool failed);

/* Writes the striping advice for an output on Lustre to buf. False on other file systems. fs_type:
 * f_type of statfs(). */
bool chex_store_stripe_hint(uint64_t fs_type, uint64_t shard_bytes, const char *dir, char *buf,
                            size_t size);

/* OUT.rejected.csv, beside the output: the list of a run that failed because of bad images. The
 * path is in new memory; NULL if out of memory. */
char *chex_store_failed_list(const struct chex_create *c);
enum chex_status chex_store_write_failed_list(const struct chex_create *c, const char *path,
                                              struct chex_error *err);

/* ---- between the files of the store ---- */

/* create_done.c: chex_store_find_done() of rank 0. */
enum chex_status chex_store_compare_done(const struct chex_create *c, bool *done_out,
                                         struct chex_error *err);

/* create_shards.c */
void chex_store_free_shards(struct chex_store *store);

/* create_store.c, rank 0: the free space for the shards that are not finished. */
enum chex_status chex_store_check_space(const struct chex_store *store, struct chex_error *err);

/* create_manifest.c: opens every finished shard and makes the manifest; the caller frees it. */
enum chex_status chex_store_make_manifest(const struct chex_store *store,
                                          struct chex_manifest **out, struct chex_error *err);

/* Digests of the manifest: out is XXH3-128 of the images' hash sum and the label file; labels_out
 * is XXH3-128 of the label file alone. */
enum chex_status chex_store_digest_source(const struct chex_create *c, const uint64_t sum[2],
                                          char out[CHEX_HASH128_HEX_BYTES],
                                          char labels_out[CHEX_HASH128_HEX_BYTES],
                                          struct chex_error *err);

/* create_rejected.c: writes OUT/rejected.csv, part of the set. */
#define CHEX_STORE_REJECTED "rejected.csv"
enum chex_status chex_store_write_rejected(const struct chex_create *c, struct chex_error *err);

#endif
