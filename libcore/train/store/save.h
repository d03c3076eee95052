/* SPDX-License-Identifier: Apache-2.0
 *
 * Saves the state of a run: what a checkpoint holds, and when it is known to be whole.
 */
#ifndef CHEX_TRAIN_STORE_SAVE_H
#define CHEX_TRAIN_STORE_SAVE_H

#include "train/session.h"

/* Saves the present position in the background, after hold_s (chex_checkpoint_writer_put).
 * Collective. */
enum chex_status chex_session_checkpoint(struct chex_session *s, bool best, double hold_s,
                                         struct chex_error *err);
/* Returns when no checkpoint is being written; one that is held back is written now. All ranks
 * return its status. Collective. */
enum chex_status chex_session_complete_save(struct chex_session *s, struct chex_error *err);

/* Rank 0: what became of the last checkpoint (chex_checkpoint_writer_result). Names it as the
 * newest, once it is whole. */
enum chex_status chex_session_saved(struct chex_session *s, enum chex_held held,
                                    struct chex_error *err);
/* Adds to the error of a write what the next start resumes from. Returns `st`. */
enum chex_status chex_session_write_failed(const struct chex_session *s, enum chex_status st,
                                           struct chex_error *err);
/* Rank 0, after it has written a line of metrics.jsonl between two exchanges of step reports: `st`
 * and `why` are the result. A failure becomes s->output.fault. */
void chex_session_metric_written(struct chex_session *s, enum chex_status st,
                                 const struct chex_error *why);

/* The vectors of the engine's state that checkpoints of the run hold: allocates them, zeroed;
 * copies them from the engine; frees them. */
enum chex_status chex_session_alloc_state(const struct chex_session *s, struct chex_checkpoint *c,
                                          struct chex_error *err);
enum chex_status chex_session_get_state(const struct chex_session *s, struct chex_checkpoint *c,
                                        struct chex_error *err);
void chex_session_free_state(struct chex_checkpoint *c);
/* For the meta: --uncertain, and every option, in which `auto` is replaced by the engine that it
 * chose. */
const char *chex_save_policy(const struct chex_train_config *c);
json_t *chex_save_options(const struct chex_session *s);

#endif
