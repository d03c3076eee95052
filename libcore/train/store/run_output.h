/* SPDX-License-Identifier: Apache-2.0
 *
 * The output folder of a run.
 */
#ifndef CHEX_TRAIN_STORE_RUN_OUTPUT_H
#define CHEX_TRAIN_STORE_RUN_OUTPUT_H

#include "train/session.h"

/* Rank 0 checks the output folder, and locks it if it exists. */
enum chex_status chex_session_check_output(struct chex_session *s, struct chex_error *err);
/* Rank 0 creates and locks the folder. *made_out: it did not exist. */
enum chex_status chex_session_make_output(struct chex_session *s, bool *made_out,
                                          struct chex_error *err);
/* All ranks, after it: whether this node sees the folder. The run would end well without, but when
 * it is resumed rank 0 may be on this node.
 * - CHEX_E_ENV: it does not, and the place is on a file system of this node alone.
 * - Otherwise waits up to 5 s, because a network file system may show the folder late, then warns.
 */
enum chex_status chex_session_check_shared_output(const struct chex_session *s,
                                                  struct chex_error *err);
/* Rank 0: CHEX_E_ENV if the folder was removed and another run has begun in it. */
enum chex_status chex_session_confirm_output(const struct chex_session *s, struct chex_error *err);
/* Rank 0 removes the folder that it made, if it is empty. */
void chex_session_unmake_output(struct chex_session *s);
/* Creates the files of the folder, sets checkpoints of later steps aside, and allocates the
 * snapshot. */
enum chex_status chex_session_create_output(struct chex_session *s, struct chex_error *err);
/* For a complete run: repairs last.h5 and best.h5, if it ended while it wrote its last checkpoint.
 * Does nothing on other ranks. */
enum chex_status chex_session_repair_names(struct chex_session *s, struct chex_error *err);
void chex_session_release_output(struct chex_session *s);

#endif
