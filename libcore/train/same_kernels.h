/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine's choices of kernels (engine/kernel_choices.h), the same on all ranks.
 */
#ifndef CHEX_TRAIN_SAME_KERNELS_H
#define CHEX_TRAIN_SAME_KERNELS_H

#include "train/session.h"

/* Uses those of the checkpoint, or as rank 0 measures or has them. Before the engine has its state.
 * Collective. */
enum chex_status chex_session_choose_kernels(struct chex_session *s, struct chex_error *err);
/* The choices in use, for the checkpoint: an array of lines. NULL with err unset: the engine has
 * none; with err set: out of memory. */
json_t *chex_session_kernels(const struct chex_session *s, struct chex_error *err);

#endif
