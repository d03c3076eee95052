/* SPDX-License-Identifier: Apache-2.0
 *
 * The checkpoints of a run's folder: which one to go on from, what they are called, how many are
 * kept, and what becomes of later ones when a run goes back.
 *
 * DIR/checkpoints/step-0000001234.h5 hold the state; last.h5 and best.h5 are further names (hard
 * links, or copies where there are none) of one of them, put in place by rename. Only rank 0 calls.
 */
#ifndef CHEX_TRAIN_SAVED_H
#define CHEX_TRAIN_SAVED_H

#include <stdbool.h>
#include <stdint.h>

#include "model/checkpoint.h"

/* The path of the numbered checkpoint of `step` in fresh memory; NULL when out of memory. */
char *chex_saved_path(const char *dir, uint64_t step);

/* Writes the numbered checkpoint of `step`, points last.h5 (and best.h5) at it, and removes
 * numbered ones beyond `keep` (0: keeps all). */
enum chex_status chex_saved_write(const char *dir, int keep, const struct chex_net *net,
                                  const struct chex_checkpoint *c, uint64_t step, bool best,
                                  struct chex_error *err);

/* The checkpoint of the highest step that reads whole, numbered ones before last.h5 before
 * best.h5; damaged ones are warned about and passed over. *c_out is NULL and the result CHEX_OK
 * where there is none; CHEX_E_DATA where there are, and none can be read. */
enum chex_status chex_saved_newest(const char *dir, struct chex_net **net_out,
                                   struct chex_checkpoint **c_out, char **path_out,
                                   struct chex_error *err);

/* Makes last.h5 a name of `path`, which is of `step`, and best.h5 one of the checkpoint of
 * best_step, the step of the best result so far (0: none), where that is still there: a run that
 * ended while it wrote has moved some of the names only. *best_out says whether there is a best.h5
 * that can be read. */
enum chex_status chex_saved_set_names(const char *dir, const char *path, uint64_t step,
                                      uint64_t best_step, bool *best_out, struct chex_error *err);

/* The run goes on from `path`, which is of `step`. Checkpoints of later steps get .abandoned
 * behind their names, with a warning each, so that neither pruning nor chex_saved_newest sees
 * them, and metrics.jsonl is copied to such a name before; the names are then set. */
enum chex_status chex_saved_go_on_from(const char *dir, const char *path, uint64_t step,
                                       uint64_t best_step, bool *best_out, struct chex_error *err);

/* What checkpoints may take from here on: those that are kept, the best one and the one being
 * written, less those that are there. */
struct chex_saved_room {
    uint64_t file_bytes, free_bytes;
    int more;          /* files; 0 where all are kept, and so nobody knows */
    char warning[256]; /* where fewer fit than the run will keep; "" */
};

/* CHEX_E_RESOURCE where not even one more checkpoint of `bytes` fits in the file system of DIR,
 * which need not be there yet. */
enum chex_status chex_saved_check_space(const char *dir, int keep, uint64_t bytes,
                                        struct chex_saved_room *room_out, struct chex_error *err);

#endif
