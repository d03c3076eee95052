/* SPDX-License-Identifier: Apache-2.0
 *
 * Options of the loss, resolved into what the engines need: exponents, and two factors for each
 * class and label. loss.h gives the formula.
 */
#include "engine/loss.h"

#include <math.h>

const char *const chex_loss_names[] = {"bce", "focal", "asl", NULL};

struct chex_loss_terms chex_loss_terms(const struct chex_loss *loss) {
    struct chex_loss_terms terms = {0};
    if (loss->kind != CHEX_LOSS_BCE)
        terms.gamma_pos = terms.gamma_neg = (float)loss->gamma_pos;
    if (loss->kind == CHEX_LOSS_ASL) {
        terms.gamma_neg = (float)loss->gamma_neg;
        terms.clip = (float)loss->clip;
    }
    terms.focused = terms.gamma_pos > 0 || terms.gamma_neg > 0 || terms.clip > 0;
    return terms;
}

/* The target of a label before smoothing; below 0: masked. */
static double target_of(const struct chex_loss *loss, int k, int label) {
    if (label >= 0)
        return label > 0 ? 1 : 0;
    return label == -1 && loss->uncertain_target ? (double)loss->uncertain_target[k] : -1;
}

struct chex_loss_factors chex_loss_factors(const struct chex_loss *loss, int k, int label) {
    double t = target_of(loss, k, label);
    if (t < 0)
        return (struct chex_loss_factors){0, 0};
    t = t * (1 - loss->smoothing) + loss->smoothing / 2;
    const bool alpha = loss->kind == CHEX_LOSS_FOCAL && loss->alpha >= 0;
    const double weight = loss->class_weight ? (double)loss->class_weight[k] : 1;
    const double more = loss->pos_weight ? (double)loss->pos_weight[k] : 1;
    return (struct chex_loss_factors){
        .pos = weight * t * more * (alpha ? loss->alpha : 1),
        .neg = weight * (1 - t) * (alpha ? 1 - loss->alpha : 1),
    };
}

static enum chex_status check_weights(const float *weights, int classes, const char *what,
                                      struct chex_error *err) {
    for (int k = 0; weights && k < classes; k++)
        if (!(weights[k] >= 0) || !isfinite(weights[k]))
            return chex_error_set(err, CHEX_E_USAGE,
                                  "%s of class %d: %g (expected a finite number, 0 or more)", what,
                                  k + 1, (double)weights[k]);
    return CHEX_OK;
}

static enum chex_status check_number(double x, double most, const char *name,
                                     struct chex_error *err) {
    if (x >= 0 && x <= most)
        return CHEX_OK;
    return chex_error_set(err, CHEX_E_USAGE, "--%s: %g (expected 0 to %g)", name, x, most);
}

enum chex_status chex_loss_check(const struct chex_loss *loss, int classes,
                                 struct chex_error *err) {
    const bool focal = loss->kind == CHEX_LOSS_FOCAL;
    CHEX_TRY(check_number(loss->smoothing, 1, "label-smoothing", err));
    CHEX_TRY(check_number(loss->gamma_pos, 100, focal ? "focal-gamma" : "asl-gamma-pos", err));
    CHEX_TRY(check_number(loss->gamma_neg, 100, "asl-gamma-neg", err));
    CHEX_TRY(check_number(loss->clip, 0.99, "asl-clip", err));
    if (!(loss->alpha <= 1))
        return chex_error_set(err, CHEX_E_USAGE, "--focal-alpha: %g (expected 0 to 1)",
                              loss->alpha);
    for (int k = 0; loss->uncertain_target && k < classes; k++)
        if (!(loss->uncertain_target[k] <= 1))
            return chex_error_set(err, CHEX_E_USAGE,
                                  "target of uncertain labels of class %d: %g (expected 0 to 1)",
                                  k + 1, (double)loss->uncertain_target[k]);
    CHEX_TRY(check_weights(loss->pos_weight, classes, "positive weight", err));
    return check_weights(loss->class_weight, classes, "weight", err);
}
