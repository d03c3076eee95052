/* SPDX-License-Identifier: Apache-2.0
 *
 * Validation: the loss and the AUROC on the validation rows.
 */
#ifndef CHEX_TRAIN_VALIDATE_H
#define CHEX_TRAIN_VALIDATE_H

#include "train/session.h"

struct chex_validation {
    double loss; /* plain binary cross-entropy; with --loss-mean stated over the stated labels */
    double training_loss; /* the loss that the run minimises */
    double auroc;         /* mean, of the ranks of the logits; NaN if undefined */
    int64_t defined;      /* classes with an AUROC */
};

/* Validates the parameters, or with --ema their moving average. All ranks return the same values in
 * `out`. CHEX_E_PREEMPTED if any rank got the signal to stop. aurocs (as in struct
 * chex_run_output): set on rank 0, unused on the others. Collective. */
enum chex_status chex_session_validate(struct chex_session *s, double *aurocs,
                                       struct chex_validation *out, struct chex_error *err);

#endif
