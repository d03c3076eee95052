/* SPDX-License-Identifier: Apache-2.0
 *
 * A split of a shard set through an engine, over all ranks: rank r of N takes the rows
 * [r * rows / N, (r + 1) * rows / N), so each image counts once whatever N is. Results are in order
 * of rows and do not depend on N, on workers or on threads.
 */
#ifndef CHEX_EVAL_RUN_H
#define CHEX_EVAL_RUN_H

#include <signal.h>
#include <stdbool.h>

#include "data/shard.h"
#include "engine/engine.h"
#include "eval/predictions.h"
#include "launch/coll.h"

/* What is averaged over, as probabilities: the image; the image and its mirror image; the crops of
 * image size in the corners and the centre with their mirror images. */
enum chex_tta { CHEX_TTA_NONE, CHEX_TTA_FLIP, CHEX_TTA_TENCROP };
extern const char *const chex_tta_names[]; /* "none", "flip", "tencrop", NULL */

struct chex_eval_config {
    int workers; /* of the input pipeline, >= 1 */
    enum chex_tta tta;
    bool progress; /* a bar on stderr; rank 0 alone shows it */
    /* Where it is given, all ranks ask after every batch whether one of them should stop (non-zero)
     * or has failed, and leave together. On all ranks or none. */
    const volatile sig_atomic_t *stop;
    /* With stop: called on every rank before each batch (waits false), and where it begins to wait
     * for the other ranks' (true): a stall watch wants to know. NULL: nobody does. */
    void (*advanced)(void *arg, bool waits);
    void *advanced_arg;
};

/* What every rank's set must hold: open it with these rows. */
void chex_eval_rows(size_t rows, int rank, int size, size_t *from_out, size_t *to_out);

/* CHEX_E_DATA where the set cannot be put through a network of these classes and this image size,
 * with what to do. CHEX_E_USAGE: ten crops of images that are no larger than a crop. */
enum chex_status chex_eval_check(const struct chex_set *set, const struct chex_net *net,
                                 int image_size, enum chex_tta tta, struct chex_error *err);

/* Predictions of the whole split at rank 0 (NULL at the others), with the labels of the shards, and
 * the loss: the mean over images and classes of the binary cross-entropy, masked labels adding 0,
 * averaged over the views. The engine's parameters are used as they are; its pass state is left
 * alone. CHEX_E_DIVERGED where a logit is not finite, CHEX_E_PREEMPTED where it was stopped. All
 * ranks return the same status.
 * Collective. */
enum chex_status chex_eval_run(struct chex_engine *engine, const struct chex_set *set,
                               struct chex_coll *coll, const struct chex_eval_config *config,
                               struct chex_predictions **predictions_out, double *loss_out,
                               struct chex_error *err);

#endif
