/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights of the findings in the training loss: --pos-weight and --loss-mean.
 *
 * They belong to the data set, not to a batch: they come from the label counts of all training
 * rows. So the gradient of an image does not depend on which other labels its batch states.
 */
#ifndef CHEX_TRAIN_LOSS_WEIGHTS_H
#define CHEX_TRAIN_LOSS_WEIGHTS_H

#include <jansson.h>

#include "base/error.h"
#include "engine/loss.h"
#include "label/label_counts.h"

/* --loss-mean: over all labels; or over those that are stated, for each finding. */
enum chex_loss_mean { CHEX_LOSS_MEAN_ALL, CHEX_LOSS_MEAN_STATED };
extern const char *const chex_loss_mean_names[]; /* NULL-terminated */

/* The loss with its weights. The array of uncertain_target belongs to the caller. */
struct chex_loss_weights {
    struct chex_loss loss; /* its weights are NULL, or those below */
    float *pos, *class;    /* (classes); NULL: 1 for every finding */
};

/* The findings of the training rows. */
struct chex_loss_rows {
    const char *const *names; /* (classes) */
    int classes;
    const struct chex_label_counts *counts; /* (classes) */
};

/* Resolves the weights.
 * - pos_weight: "none", "balanced", or a CSV file with the columns class and pos_weight and one row
 *   for each finding. Balanced: negative labels divided by positive labels; 1 for a finding without
 *   positive or without negative labels, with a warning.
 * - recorded: the weights that the run recorded (chex_loss_weights_json), used instead of
 *   pos_weight; NULL: none.
 * - mean, stated: the weight of a finding is the number of rows divided by the number of its labels
 *   that are in the loss; 1 for a finding without such labels.
 * - loss: kind, numbers and uncertain_target.
 * - CHEX_E_DATA: the file is missing or damaged, a finding is missing, unknown or given twice.
 * Call chex_loss_weights_release at the end, also after an error. */
enum chex_status chex_loss_weights_make(const struct chex_loss *loss, const char *pos_weight,
                                        enum chex_loss_mean mean, const json_t *recorded,
                                        const struct chex_loss_rows *rows,
                                        struct chex_loss_weights *out, struct chex_error *err);
void chex_loss_weights_release(struct chex_loss_weights *w);

/* The same without values: memory for the weights that are used. */
enum chex_status chex_loss_weights_alloc(const struct chex_loss *loss, bool pos, bool class,
                                         size_t classes, struct chex_loss_weights *out,
                                         struct chex_error *err);

/* The weights by finding: {"pos_weight": {NAME: X, ...}, "class_weight": {...}}, without those that
 * are 1 for every finding. NULL: all are. */
json_t *chex_loss_weights_json(const struct chex_loss_weights *w, const char *const *names,
                               int classes);

/* One line for the log: "focal loss, gamma 2, pos_weight 1.6 (Effusion) to 61 (Hernia)"; "" for the
 * plain loss. */
void chex_loss_weights_text(const struct chex_loss_weights *w, const char *const *names,
                            int classes, char *text, size_t size);

#endif
