/* SPDX-License-Identifier: Apache-2.0
 *
 * The loss on host memory, in double; loss.h gives the formula. With s(z) = log(1 + exp(z)) =
 * max(z, 0) + log(1 + exp(-|z|)), -log(p) is s(-z) and -log(1 - p) is s(z). So no logit overflows
 * or cancels. With q = 1 - p the derivatives are P' = -q^gamma_pos * (gamma_pos * p * s(-z) + q) N'
 * = p * (gamma_neg * m^(gamma_neg - 1) * q * -log(1 - m) + m^gamma_neg * q / (1 - m)) where 1 - m
 * is q + clip. N and N' are 0 if p is not above clip.
 */
#include "engine/loss.h"

#include <math.h>

const char *const chex_loss_names[] = {"bce", "focal", "asl", NULL};

struct chex_loss_terms chex_loss_terms_of(const struct chex_loss *loss) {
    struct chex_loss_terms terms = {0};
    if (loss->kind != CHEX_LOSS_BCE)
        terms.gamma_pos = terms.gamma_neg = loss->gamma_pos;
    if (loss->kind == CHEX_LOSS_ASL) {
        terms.gamma_neg = loss->gamma_neg;
        terms.clip = loss->clip;
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

struct chex_loss_factors chex_loss_factors_of(const struct chex_loss *loss, int k, int label) {
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

/* p, q = 1 - p, -log(p) and -log(q) of a logit. */
struct logistic {
    double p, q, log_p, log_q;
};

static struct logistic logistic_of(double z) {
    const double small = exp(-fabs(z)), large = 1 / (1 + small), rest = log1p(small);
    return (struct logistic){.p = z >= 0 ? large : small / (1 + small),
                             .q = z >= 0 ? small / (1 + small) : large,
                             .log_p = fmax(-z, 0) + rest,
                             .log_q = fmax(z, 0) + rest};
}

struct part {
    double value, slope;
};

static struct part positive_part(const struct logistic *x, double gamma) {
    const double power = pow(x->q, gamma);
    return (struct part){power * x->log_p, -power * (gamma * x->p * x->log_p + x->q)};
}

static struct part negative_part(const struct logistic *x, double gamma, double clip) {
    const double m = x->p - clip, power = pow(m, gamma);
    if (m <= 0)
        return (struct part){0, 0};
    const double log_rest = clip > 0 ? -log1p(-m) : x->log_q;
    const double ratio = clip > 0 ? x->q / (x->q + clip) : 1;
    return (struct part){power * log_rest,
                         x->p * (gamma * power / m * x->q * log_rest + power * ratio)};
}

/* One value; its derivative goes to *slope_out. */
static double value_of(const struct chex_loss_terms *terms, struct chex_loss_factors f, double z,
                       double *slope_out) {
    const struct logistic x = logistic_of(z);
    if (!terms->focused) {
        *slope_out = (f.pos + f.neg) * x.p - f.pos;
        return f.pos * x.log_p + f.neg * x.log_q;
    }
    const struct part pos = positive_part(&x, terms->gamma_pos);
    const struct part neg = negative_part(&x, terms->gamma_neg, terms->clip);
    *slope_out = f.pos * pos.slope + f.neg * neg.slope;
    return f.pos * pos.value + f.neg * neg.value;
}

double chex_loss_value(const struct chex_loss *loss, int k, int label, double logit) {
    const struct chex_loss_terms terms = chex_loss_terms_of(loss);
    const struct chex_loss_factors f = chex_loss_factors_of(loss, k, label);
    double slope;
    return f.pos > 0 || f.neg > 0 ? value_of(&terms, f, logit, &slope) : 0;
}

double chex_loss_mean(const struct chex_loss *loss, const float *logits, const int8_t *labels,
                      int n, int classes, float *dlogits) {
    const struct chex_loss_terms terms = chex_loss_terms_of(loss);
    const size_t count = (size_t)n * (size_t)classes;
    double sum = 0;
    for (size_t i = 0; i < count; i++) {
        const struct chex_loss_factors f =
            chex_loss_factors_of(loss, (int)(i % (size_t)classes), labels[i]);
        double slope = 0;
        if (f.pos > 0 || f.neg > 0)
            sum += value_of(&terms, f, (double)logits[i], &slope);
        if (dlogits)
            dlogits[i] = (float)(slope / (double)count);
    }
    return sum / (double)count;
}

static enum chex_status check_weights(const float *weights, int classes, const char *what,
                                      struct chex_error *err) {
    for (int k = 0; weights && k < classes; k++)
        if (!(weights[k] >= 0) || !isfinite(weights[k]))
            return chex_error_set(err, CHEX_E_USAGE,
                                  "%s of finding %d: %g (expected a finite number, 0 or more)",
                                  what, k + 1, (double)weights[k]);
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
                                  "target of uncertain labels of finding %d: %g (expected 0 to 1)",
                                  k + 1, (double)loss->uncertain_target[k]);
    CHEX_TRY(check_weights(loss->pos_weight, classes, "positive weight", err));
    return check_weights(loss->class_weight, classes, "weight", err);
}
