/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs a split of a shard set through an engine, over all ranks.
 *
 * Rank r of N takes the rows [r * rows / N, (r + 1) * rows / N), so each image counts once for any
 * N. Results are in the order of the rows. They do not depend on N, on workers or on threads.
 */
#ifndef CHEX_INFER_SPLIT_RUN_H
#define CHEX_INFER_SPLIT_RUN_H

#include <signal.h>
#include <stdbool.h>

#include "engine/engine.h"
#include "infer/ensemble.h"
#include "input/pipeline.h"
#include "launch/coll.h"
#include "shard/shard.h"
#include "stats/predictions.h"

/* Test-time augmentation: the views whose probabilities are averaged.
 * - NONE: the image.
 * - FLIP: the image and its mirror image.
 * - TENCROP: crops of image size in the four corners and the centre, and their mirror images. */
enum chex_tta { CHEX_TTA_NONE, CHEX_TTA_FLIP, CHEX_TTA_TENCROP };
extern const char *const chex_tta_names[]; /* "none", "flip", "tencrop", NULL */

struct chex_eval_config {
    int workers;                          /* threads of the input pipeline, >= 1 */
    const struct chex_ensemble *ensemble; /* the engine is its first; NULL: the engine alone */
    enum chex_tta tta;
    bool logits;   /* the scores are logits, which rank without ties where probabilities are 0 or 1
                      in fp32; only without tta */
    bool progress; /* a bar on stderr; only rank 0 shows it */
    /* A network with other classes than the set: for each class of the network its name and the
     * class of the set, or -1: its labels are not stated. NULL: both have the same classes. */
    const char *const *class_names;
    const int *set_class;
    /* Set it on all ranks or on none. NULL: the run cannot be stopped.
     * After every batch all ranks agree: if *stop is non-zero on one of them, or one has failed,
     * all ranks return. */
    const volatile sig_atomic_t *stop;
    struct chex_pipeline_features features; /* of this rank's rows, for the engine `head`; count 0:
                                               the network infers images. Only without tta */
    const struct chex_loss *loss; /* for chex_eval_loss.training; NULL: plain cross-entropy */
    /* Only with `stop`, for a stall watch; may be NULL. Called on every rank before each batch
     * (waits false) and before it waits for the other ranks (waits true). */
    void (*advanced)(void *arg, bool waits);
    void *advanced_arg;
};

/* The probability of a logit; finite for any finite logit. */
double chex_eval_probability(double logit);

/* CHEX_E_DIVERGED if the logit of a class of an image is not finite. */
enum chex_status chex_eval_check_logit(double logit, const char *image, const char *class_name,
                                       struct chex_error *err);

/* A mean probability as predictions.csv has it: in fp32, then the number of its nine digits. A row
 * is thus called positive at the same thresholds from the network and from the table. */
double chex_eval_as_written(double probability);

/* The rows [*from_out, *to_out) of a rank. Its set must be opened with at least these rows. */
void chex_eval_rows(size_t rows, int rank, int size, size_t *from_out, size_t *to_out);

/* Checks that the images of the set are large enough.
 * - CHEX_E_DATA: smaller than the image size; the text says what to do.
 * - CHEX_E_USAGE: ten crops of stored images that are no larger than a crop. */
enum chex_status chex_eval_check_size(const struct chex_set *set, int image_size, enum chex_tta tta,
                                      struct chex_error *err);

/* Averages over images, classes and views. A masked label adds 0. */
struct chex_eval_loss {
    double bce;      /* plain binary cross-entropy, comparable between runs */
    double training; /* the loss of the configuration */
};

/* Predicts the whole split. Collective; all ranks return the same status.
 * - predictions_out: rank 0 gets all rows, with the labels of the shards, and destroys the table.
 *   The other ranks get NULL. Of an ensemble it has the scores of each member too.
 * - loss_out: on all ranks.
 * - The engine's parameters and pass state do not change.
 * - CHEX_E_DIVERGED: a logit is not finite. CHEX_E_PREEMPTED: *stop was set. */
enum chex_status chex_eval_run(struct chex_engine *engine, const struct chex_set *set,
                               struct chex_coll *coll, const struct chex_eval_config *config,
                               struct chex_predictions **predictions_out,
                               struct chex_eval_loss *loss_out, struct chex_error *err);

#endif
