/* SPDX-License-Identifier: Apache-2.0
 *
 * Networks that infer the same images: one, or the members of an ensemble. Their logits become one
 * logit, summed in the order of the members: that of the mean of their probabilities, or the mean
 * of the logits. Thresholds, recalibration, losses and decisions then see one network.
 */
#ifndef CHEX_INFER_ENSEMBLE_H
#define CHEX_INFER_ENSEMBLE_H

#include "engine/engine.h"

/* Values of --ensemble. AUTO: what a file of several networks says, else the mean probability. */
enum chex_ensemble_mean { CHEX_MEAN_AUTO, CHEX_MEAN_PROBABILITY, CHEX_MEAN_LOGIT };
extern const char *const chex_ensemble_names[]; /* "auto", "mean-probability", "mean-logit", NULL */

/* The engines have the same batch, image size and number of classes. */
struct chex_ensemble {
    struct chex_engine **engine; /* (count) */
    int count;
    enum chex_ensemble_mean mean; /* not AUTO if count > 1 */
};

/* chex_engine_infer_begin and _end of all members. logits_out: (count, batch, classes), with the
 * largest batch of the engines. After an error members may have other batches in flight. */
enum chex_status chex_ensemble_begin(const struct chex_ensemble *e, const struct chex_batch *batch,
                                     float *logits_out, struct chex_error *err);
enum chex_status chex_ensemble_end(const struct chex_ensemble *e, struct chex_error *err);

/* The logits of the ensemble, (n, classes), from those of chex_ensemble_begin. With one member a
 * copy. Not finite if one is not. */
void chex_ensemble_combine(const struct chex_ensemble *e, const float *logits, int n, float *out);

#endif
