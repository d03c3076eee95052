/* SPDX-License-Identifier: Apache-2.0
 *
 * What training makes of uncertain labels (-1), for each finding: --uncertain.
 *
 * - ignore: the label is masked: no loss, no AUROC (Irvin et al. 2019, U-Ignore).
 * - zeros, ones: the label counts as negative, or as positive (U-Zeros, U-Ones of the same paper).
 * - smooth[:X]: the loss has the target X; the AUROC leaves the label out. Pham et al. 2021
 *   (Interpreting chest X-rays via CNNs that exploit hierarchical disease dependencies and
 *   uncertainty labels) draw the target from [0.55, 0.85]; the default is the middle, 0.7. A fixed
 *   target has the same mean gradient.
 */
#ifndef CHEX_LABEL_UNCERTAIN_POLICY_H
#define CHEX_LABEL_UNCERTAIN_POLICY_H

#include <stdint.h>

#include "base/error.h"

#define CHEX_SMOOTH_DEFAULT 0.7f

struct chex_uncertain_policy {
    int8_t label; /* what takes the place of -1; -1: nothing does */
    float target; /* of -1 in the loss; below 0: masked */
};

/* Parses "POLICY" or "FINDING=POLICY,...". A policy without a finding, which may only be the first,
 * is that of all other findings; without one they are `ignore`.
 * - names (classes): the findings. policies (classes) is the result. text NULL or "": ignore.
 * - names of other data sets are accepted ("Pleural Effusion").
 * CHEX_E_USAGE: an unknown policy or finding, a finding twice, a target outside of [0, 1]. */
enum chex_status chex_uncertain_policy_parse(const char *text, const char *const *names,
                                             int classes, struct chex_uncertain_policy *policies,
                                             struct chex_error *err);

#endif
