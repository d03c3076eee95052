/* SPDX-License-Identifier: Apache-2.0
 *
 * --head-only: trains the classifier alone, on features that are computed once.
 *
 * The set-up makes two engines. The one of --engine only infers. It computes the pooled features of
 * all training and validation images of this process, with the running statistics and the centre
 * crop of the evaluation, and is destroyed. The other trains (engine/ref/head_engine.h); it is the
 * engine of the session. Input, loss, reduction, update, validation and checkpoints are those of
 * any run: the pipeline delivers features in place of images, in the same order.
 *
 * This is training with `--freeze` of everything but the classifier, with two differences: no
 * augmentation, and batch norms use their running statistics, as in the evaluation. The features of
 * an image do not depend on its batch, so with --deterministic the bits do not depend on the number
 * of processes. A resumed run computes the features again: they follow from the checkpoint.
 *
 * With --features a file has the features (infer/feature_file.h), and there is no first engine. The
 * network is a classifier alone.
 *
 * Rows. A process keeps the features of the training rows that its logical ranks may read, and of
 * its part of the validation rows. With --order global every process may read all training rows.
 */
#ifndef CHEX_TRAIN_HEAD_ONLY_H
#define CHEX_TRAIN_HEAD_ONLY_H

#include "train/session.h"

/* With --features: reads the file, which names the network. Before chex_session_restore.
 * CHEX_E_USAGE: several sets. CHEX_E_DATA: of chex_feature_file_open. Collective. */
enum chex_status chex_head_only_read(struct chex_session *s, struct chex_error *err);

/* CHEX_E_USAGE: parameters that nothing but the seed gives.
 * After chex_session_restore. */
enum chex_status chex_head_only_check(const struct chex_session *s, struct chex_error *err);

/* Makes the engines. `e`: the configuration for a whole network. With --features: keeps the
 * features of this process's images; CHEX_E_DATA if one has none. Not collective. */
enum chex_status chex_head_only_create(struct chex_session *s, const struct chex_engine_config *e,
                                       struct chex_error *err);

/* Bytes of the features of this process, 0 without --head-only; and of the stored training images
 * that they are computed from. */
uint64_t chex_head_only_bytes(const struct chex_session *s);
uint64_t chex_head_only_reads(const struct chex_session *s);

/* With --head-only: computes the features from the engine's present parameters, and destroys
 * s->extractor. Without: does nothing.
 * - CHEX_E_RESOURCE: the features do not fit into the memory that is free.
 * - CHEX_E_DIVERGED: a feature is not finite.
 * - CHEX_E_PREEMPTED: asked to stop. Nothing new needs to be saved.
 * Collective; all ranks return the same status. */
enum chex_status chex_head_only_compute(struct chex_session *s, struct chex_error *err);

void chex_head_only_release(struct chex_session *s);

#endif
