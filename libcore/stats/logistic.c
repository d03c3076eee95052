/* SPDX-License-Identifier: Apache-2.0
 *
 * Newton's method for two coefficients. The log likelihood is concave, so a step is too long
 * exactly if the slope of the log likelihood along the step has turned around at its end.
 */
#include "stats/logistic.h"

#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"

enum { MAX_STEPS = 100 };
static const double precise = 1e-12; /* of the coefficients */

double chex_logit(double probability) {
    const double x = log(probability) - log1p(-probability);
    return fmin(fmax(x, -CHEX_LOGIT_MAX), CHEX_LOGIT_MAX);
}

enum chex_status chex_logits_create(const struct chex_ranking *r, struct chex_logits *out,
                                    struct chex_error *err) {
    *out = (struct chex_logits){r, chex_alloc_zeroed(r->tie_count, sizeof *out->logit)};
    CHEX_ALLOCATED(out->logit, err, "%zu logits", r->tie_count);
    for (size_t g = 0; g < r->tie_count; g++)
        out->logit[g] = chex_logit(r->score[g]);
    return CHEX_OK;
}

void chex_logits_release(struct chex_logits *l) { free(l->logit); }

/* True if rows with both labels lie strictly between the extremes of the other label: the maximum
 * is finite then. For a fit without slope it is enough that there are both. */
static bool has_maximum(const struct chex_logits *logits, int count, bool with_slope) {
    double low[2] = {INFINITY, INFINITY}, high[2] = {-INFINITY, -INFINITY};
    for (int i = 0; i < count; i++)
        for (size_t g = 0; g < logits[i].r->tie_count; g++) {
            const struct chex_tie *t = &logits[i].r->ties[g];
            for (int y = 0; y < 2; y++)
                if (y ? t->positives : t->negatives) {
                    low[y] = fmin(low[y], logits[i].logit[g]);
                    high[y] = fmax(high[y], logits[i].logit[g]);
                }
        }
    if (low[0] > high[0] || low[1] > high[1])
        return false;
    return !with_slope || (high[0] > low[1] && high[1] > low[0]);
}

/* Gradient and information (negative second derivatives) of the log likelihood. */
struct derivatives {
    double by_intercept, by_slope, ii, is, ss;
};

static struct derivatives derive(const struct chex_logits *logits, int count,
                                 const struct chex_logistic *at) {
    struct derivatives d = {0};
    for (int i = 0; i < count; i++)
        for (size_t g = 0; g < logits[i].r->tie_count; g++) {
            const struct chex_tie *t = &logits[i].r->ties[g];
            const double x = logits[i].logit[g], rows = (double)t->positives + t->negatives;
            const double z = at->slope * x + at->intercept;
            const double p = 1 / (1 + exp(-z)), q = 1 / (1 + exp(z)); /* q: 1 - p, where p is 1 */
            const double rest = t->positives * q - t->negatives * p, weight = rows * p * q;
            d.by_intercept += rest;
            d.by_slope += rest * x;
            d.ii += weight;
            d.is += weight * x;
            d.ss += weight * x * x;
        }
    return d;
}

/* Information times a step gives the gradient; coefficients that are not fitted do not move. */
static struct chex_logistic step_of(const struct derivatives *d, enum chex_logistic_kind kind) {
    if (kind == CHEX_LOGISTIC_SLOPE)
        return (struct chex_logistic){.slope = d->by_slope / d->ss};
    if (kind == CHEX_LOGISTIC_INTERCEPT)
        return (struct chex_logistic){.intercept = d->by_intercept / d->ii};
    const double det = d->ii * d->ss - d->is * d->is;
    return (struct chex_logistic){.slope = (d->ii * d->by_slope - d->is * d->by_intercept) / det,
                                  .intercept =
                                      (d->ss * d->by_intercept - d->is * d->by_slope) / det};
}

/* The slope of the log likelihood along a step. */
static double along(const struct derivatives *d, const struct chex_logistic *step) {
    return d->by_slope * step->slope + d->by_intercept * step->intercept;
}

/* The intercept alone: Newton's steps, and bisection where a step leaves the bracket of the root.
 * At `low` every probability is at most the share of positives, at `high` at least. */
static bool fit_intercept(const struct chex_logits *l, struct chex_logistic *fit) {
    const struct chex_ranking *r = l->r;
    const double share = log((double)r->positives / (double)r->negatives);
    const double first = fit->slope * l->logit[0];
    const double last = fit->slope * l->logit[r->tie_count - 1];
    double low = share - fmax(first, last), high = share - fmin(first, last);
    struct chex_logistic at = {fit->slope, fmin(fmax(fit->intercept, low), high)};
    for (int i = 0; i < 2 * MAX_STEPS; i++) {
        const struct derivatives d = derive(l, 1, &at);
        *(d.by_intercept > 0 ? &low : &high) = at.intercept;
        double next = at.intercept + d.by_intercept / d.ii;
        if (!(next >= low && next <= high))
            next = (low + high) / 2;
        const double step = next - at.intercept;
        at.intercept = next;
        if (fabs(step) <= precise * (1 + fabs(next))) {
            *fit = at;
            return true;
        }
    }
    return false;
}

bool chex_logistic_fit(const struct chex_logits *logits, int count, enum chex_logistic_kind kind,
                       struct chex_logistic *fit) {
    struct chex_logistic at = *fit;
    if (!has_maximum(logits, count, kind != CHEX_LOGISTIC_INTERCEPT))
        return false;
    if (kind == CHEX_LOGISTIC_INTERCEPT)
        return fit_intercept(logits, fit);
    struct derivatives d = derive(logits, count, &at);
    for (int i = 0; i < MAX_STEPS; i++) {
        struct chex_logistic step = step_of(&d, kind);
        if (!isfinite(step.slope) || !isfinite(step.intercept))
            return false;
        struct chex_logistic next = {at.slope + step.slope, at.intercept + step.intercept};
        struct derivatives there = derive(logits, count, &next);
        for (int halves = 0; !(along(&there, &step) > -along(&d, &step) / 2) && halves < MAX_STEPS;
             halves++) {
            step = (struct chex_logistic){step.slope / 2, step.intercept / 2};
            next = (struct chex_logistic){at.slope + step.slope, at.intercept + step.intercept};
            there = derive(logits, count, &next);
        }
        at = next;
        d = there;
        if (fabs(step.slope) <= precise * (1 + fabs(at.slope)) &&
            fabs(step.intercept) <= precise * (1 + fabs(at.intercept))) {
            *fit = at;
            return true;
        }
    }
    return false;
}

void chex_logistic_parts(const struct chex_logits *l, enum chex_logistic_kind kind,
                         const struct chex_logistic *fit, const struct chex_clusters *k,
                         double *slope, double *intercept) {
    const struct derivatives d = derive(l, 1, fit);
    const struct chex_ranking *r = l->r;
    for (size_t g = 0; g < r->tie_count; g++) {
        const struct chex_tie *t = &r->ties[g];
        const double x = l->logit[g], p = 1 / (1 + exp(-(fit->slope * x + fit->intercept)));
        /* The change of the coefficients by one more unit of residual at x. */
        const struct derivatives unit = {1, x, d.ii, d.is, d.ss};
        const struct chex_logistic move = step_of(&unit, kind);
        const double leverage = p * (1 - p) * (move.intercept + move.slope * x);
        for (size_t i = 0; i < (size_t)t->negatives + t->positives; i++) {
            const size_t c = chex_cluster_of(k, r->row[t->start + i]);
            const double rest = ((i >= t->negatives) - p) / (1 - leverage);
            if (kind != CHEX_LOGISTIC_INTERCEPT)
                slope[c] += move.slope * rest;
            if (kind != CHEX_LOGISTIC_SLOPE)
                intercept[c] += move.intercept * rest;
        }
    }
}
