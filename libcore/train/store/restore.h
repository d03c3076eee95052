/* SPDX-License-Identifier: Apache-2.0
 *
 * The state with which a start begins: that of a checkpoint (restore.c), or that of step 0
 * (first_state.c).
 */
#ifndef CHEX_TRAIN_STORE_RESTORE_H
#define CHEX_TRAIN_STORE_RESTORE_H

#include "train/session.h"

/* Sets s->restored and the position, unless there is no checkpoint. Options of the run that were
 * not given again are taken over. All ranks. */
enum chex_status chex_session_restore(struct chex_session *s, struct chex_error *err);
/* Gives the engine the state of s->restored, and releases that. */
enum chex_status chex_session_load_engine(struct chex_session *s, struct chex_error *err);

/* --init must fit the network; its head may be for other classes. Comes before the data, because
 * staging may take long. Collective. */
enum chex_status chex_session_check_init(struct chex_session *s, struct chex_error *err);
/* Gives the engine the state of step 0. Rank 0 reads --init for all ranks. Collective. */
enum chex_status chex_session_init_state(struct chex_session *s, struct chex_error *err);

#endif
