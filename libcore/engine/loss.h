/* SPDX-License-Identifier: Apache-2.0
 *
 * The loss of a batch: binary cross-entropy with logits, focal loss or asymmetric loss, with soft
 * targets and with weights. One value per image and class; the loss is their mean over
 * n * classes. Masked labels add 0 and stay in the divisor.
 *
 * With p = 1 / (1 + exp(-z)) of the logit z, the loss of one value has a part for a positive and
 * a part for a negative label:
 *     loss = class_weight * (t * pos_weight * A * P(z) + (1 - t) * B * N(z))
 *     P(z) = (1 - p)^gamma_pos * -log(p)
 *     N(z) = m^gamma_neg * -log(1 - m),    m = max(p - clip, 0)
 *   bce    gamma_pos = gamma_neg = clip = 0, A = B = 1: BCEWithLogitsLoss of PyTorch
 *   focal  gamma_pos = gamma_neg, clip = 0; A = alpha and B = 1 - alpha, or A = B = 1 without
 *          alpha: Lin et al. 2017, sigmoid_focal_loss of torchvision
 *   asl    gamma_pos, gamma_neg, clip; A = B = 1: Ridnik et al. 2021, AsymmetricLossMultiLabel of
 *          timm (which sums; here it is the mean)
 * The gradient is the derivative of this expression: the focusing factors are not held constant.
 * A target t between 0 and 1 mixes the two parts. For bce that is PyTorch's loss of soft targets;
 * torchvision and timm put a soft target into the focusing factor as well.
 */
#ifndef CHEX_ENGINE_LOSS_H
#define CHEX_ENGINE_LOSS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum chex_loss_kind { CHEX_LOSS_BCE, CHEX_LOSS_FOCAL, CHEX_LOSS_ASL };
extern const char *const chex_loss_names[]; /* values of --loss, NULL-terminated */

/* All zero: plain binary cross-entropy. Arrays are (classes); NULL: 1 for every class. Owned by the
 * caller, who keeps them as long as the engine. */
struct chex_loss {
    enum chex_loss_kind kind;
    double smoothing;            /* s in [0, 1]: target t becomes t (1 - s) + s / 2 */
    double gamma_pos, gamma_neg; /* >= 0: focal (only gamma_pos, for both parts), asl */
    double clip;                 /* [0, 1): asl */
    double alpha;                /* [0, 1]: focal; negative: none */
    const float *pos_weight;     /* factor of the positive part */
    const float *class_weight;   /* factor of the class's loss */
    /* Target of label -1 in [0, 1], before smoothing; below 0: masked. NULL: masked for every
     * class. Labels below -1 are always masked. */
    const float *uncertain_target;
};

/* CHEX_E_USAGE: a number out of the ranges above, or a weight that is negative or not finite. */
enum chex_status chex_loss_check(const struct chex_loss *loss, int classes, struct chex_error *err);

/* The mean loss of a batch on host memory, in double; the engines ref and cpu use it.
 * - logits: (n, classes). labels: (n, classes): 1, 0, -1 uncertain, below -1 masked.
 * - dlogits: (n, classes), its gradient; may be NULL, or be logits itself.
 * - A NaN among the logits of labels that are not masked makes the result NaN. */
double chex_loss_mean(const struct chex_loss *loss, const float *logits, const int8_t *labels,
                      int n, int classes, float *dlogits);

/* The loss of one value of class k, and 0 for a masked label. */
double chex_loss_value(const struct chex_loss *loss, int k, int label, double logit);

/* ---- The same loss, resolved; for engines with a loss of their own ---- */

/* Of P and N, by the kind of the loss. */
struct chex_loss_terms {
    double gamma_pos, gamma_neg, clip;
    bool focused; /* one of them is not 0 */
};
struct chex_loss_terms chex_loss_terms_of(const struct chex_loss *loss);

/* Factors of the two parts for one class and label: class_weight * t * pos_weight * A and
 * class_weight * (1 - t) * B. Both 0: masked. */
struct chex_loss_factors {
    double pos, neg;
};
struct chex_loss_factors chex_loss_factors_of(const struct chex_loss *loss, int k, int label);

#endif
