/* SPDX-License-Identifier: Apache-2.0
 *
 * ranks.json: where each rank runs.
 */
#ifndef CHEX_TRAIN_STORE_RANKS_FILE_H
#define CHEX_TRAIN_STORE_RANKS_FILE_H

#include "train/session.h"

/* A JSON array on rank 0, NULL on the others. Collective. */
enum chex_status chex_session_gather_ranks(struct chex_session *s, json_t **ranks_out,
                                           struct chex_error *err);
/* The same in ranks.json, which rank 0 writes. Collective. */
enum chex_status chex_session_write_ranks(struct chex_session *s, struct chex_error *err);

#endif
