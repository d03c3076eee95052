/* SPDX-License-Identifier: Apache-2.0
 *
 * The labels of a run: whether they can be learned (label_gaps.c), and the loss with its weights
 * (loss_setup.c).
 */
#ifndef CHEX_TRAIN_LOSS_SETUP_H
#define CHEX_TRAIN_LOSS_SETUP_H

#include "train/session.h"

#define CHEX_NO_AUROC "val AUROC is undefined: best.h5 is chosen by the validation loss"

/* Fills s->gaps and counts_out (classes; of the training rows) on rank 0. CHEX_E_DATA on rank 0 if
 * no finding has both positive and negative training images. Collective; agree afterwards. */
enum chex_status chex_session_check_labels(struct chex_session *s,
                                           struct chex_label_counts *counts_out,
                                           struct chex_error *err);

/* Fills s->loss on all ranks, and records its weights in config.options. counts: as
 * chex_session_check_labels gave them. Collective; agree afterwards. */
enum chex_status chex_session_make_loss(struct chex_session *s,
                                        const struct chex_label_counts *counts,
                                        struct chex_error *err);

#endif
