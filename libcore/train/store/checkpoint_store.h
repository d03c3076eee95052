/* SPDX-License-Identifier: Apache-2.0
 *
 * The checkpoints in a run's folder: writes them, finds the newest, prunes old ones, and sets aside
 * those of later steps when a run resumes from an earlier one.
 *
 * DIR/checkpoints/step-0000001234.h5 holds the state after step 1234. DIR/last.h5 and DIR/best.h5
 * are further names of such files: hard links, or copies on file systems without links. They are
 * replaced by rename. Only rank 0 calls these functions.
 */
#ifndef CHEX_TRAIN_STORE_CHECKPOINT_STORE_H
#define CHEX_TRAIN_STORE_CHECKPOINT_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "model/checkpoint.h"

/* The path in DIR of the numbered checkpoint of `step`. Returns `name`. */
enum { CHEX_CHECKPOINT_NAME_BYTES = 48 };
const char *chex_checkpoint_store_name(uint64_t step, char name[CHEX_CHECKPOINT_NAME_BYTES]);

/* Finds a file with the state after `step`: the numbered one, last.h5 or best.h5. *path_out: NULL
 * if there is none; the caller frees it. */
enum chex_status chex_checkpoint_store_find(const char *dir, uint64_t step, char **path_out,
                                            struct chex_error *err);

/* The steps of all checkpoints that can be found, in rising order. The caller frees *steps_out. */
enum chex_status chex_checkpoint_store_steps(const char *dir, uint64_t **steps_out,
                                             size_t *count_out, struct chex_error *err);

/* Writes the numbered checkpoint of `step`, makes last.h5 (with `best` also best.h5) a name of it,
 * and removes the oldest numbered ones beyond `keep` (0: keeps all). CHEX_E_RESOURCE: there is no
 * space for it; the other files stay as they are. */
enum chex_status chex_checkpoint_store_write(const char *dir, int keep, const struct chex_net *net,
                                             const struct chex_checkpoint *c, uint64_t step,
                                             bool best, struct chex_error *err);

/* Removes the oldest numbered ones beyond `keep` (0: none). For a run with audits
 * (train/watch/pass_audit.h), whose checkpoints are written with keep 0, except two: the newest one
 * up to step `audited` is where the run goes back to; the oldest one after it takes its place when
 * `audited` reaches it. */
void chex_checkpoint_store_prune(const char *dir, int keep, uint64_t audited);

/* Reads the newest intact checkpoint.
 *   - The highest step wins; of equal steps numbered files come first, then last.h5, then best.h5.
 *   - Damaged files are skipped with a warning.
 *   - Without any checkpoint the result is CHEX_OK, and *c_out is NULL.
 *   - CHEX_E_DATA: there are checkpoints, and none can be read.
 * The caller owns *net_out, *c_out and *path_out. */
enum chex_status chex_checkpoint_store_newest(const char *dir, struct chex_net **net_out,
                                              struct chex_checkpoint **c_out, char **path_out,
                                              struct chex_error *err);

/* Repairs last.h5 and best.h5 after a run that ended while it renamed them. last.h5 becomes a name
 * of `path`, the checkpoint of `step`. best.h5 becomes a name of the checkpoint of best_step (the
 * step of the best result so far; 0: none), if that file still exists. *best_out: best.h5 exists
 * and can be read. */
enum chex_status chex_checkpoint_store_set_names(const char *dir, const char *path, uint64_t step,
                                                 uint64_t best_step, bool *best_out,
                                                 struct chex_error *err);

/* Prepares the folder for a run that resumes from `path`, the checkpoint of `step`:
 *   1. if there are checkpoints of later steps, keeps metrics.jsonl as metrics.jsonl.abandoned, and
 *      checkpoints.jsonl likewise;
 *   2. appends .abandoned to the names of those checkpoints, with a warning each. Pruning and
 *      chex_checkpoint_store_newest then ignore them;
 *   3. calls chex_checkpoint_store_set_names. */
enum chex_status chex_checkpoint_store_go_on_from(const char *dir, const char *path, uint64_t step,
                                                  uint64_t best_step, bool *best_out,
                                                  struct chex_error *err);

/* Sets the checkpoints of steps after `step` aside in the same way, because their content is not to
 * be trusted, and makes last.h5 a name of the newest remaining one. *kept_out: its step. 0: none is
 * left; metrics.jsonl and checkpoints.jsonl are set aside too, so that the next start begins anew.
 */
enum chex_status chex_checkpoint_store_abandon(const char *dir, uint64_t step, uint64_t *kept_out,
                                               struct chex_error *err);

/* Disk space for further checkpoints. */
struct chex_checkpoint_space {
    uint64_t file_bytes, free_bytes;
    int more;          /* files to come: the kept ones, the best one and the one being written,
                          minus those that exist; 0 if all are kept, as the number is unknown */
    char warning[256]; /* fewer than `more` fit; "": all fit */
};

/* CHEX_E_RESOURCE: not even one checkpoint of `bytes` fits into the file system of DIR. DIR need
 * not exist yet. */
enum chex_status chex_checkpoint_store_check_space(const char *dir, int keep, uint64_t bytes,
                                                   struct chex_checkpoint_space *space_out,
                                                   struct chex_error *err);

#endif
