/* SPDX-License-Identifier: Apache-2.0
 *
 * Logistic regression of labels on the logits of predicted probabilities, by maximum likelihood.
 */
#ifndef CHEX_STATS_LOGISTIC_H
#define CHEX_STATS_LOGISTIC_H

#include <stdbool.h>

#include "base/error.h"
#include "stats/figure.h"

/* A logit beyond CHEX_LOGIT_MAX counts as that: the probabilities of a network are fp32, in which
 * 1 - 2^-24 is the last number below 1, so a probability of exactly 0 or 1 has a finite logit. */
#define CHEX_LOGIT_MAX 16.635532273 /* logit(1 - 2^-24) */
double chex_logit(double probability);

/* A ranking and the logit of each tie group. */
struct chex_logits {
    const struct chex_ranking *r;
    double *logit; /* (r->tie_count) */
};
enum chex_status chex_logits_create(const struct chex_ranking *r, struct chex_logits *out,
                                    struct chex_error *err);
void chex_logits_release(struct chex_logits *l);

/* Which coefficients are fitted. The others stay as they are in the fit. */
enum chex_logistic_kind { CHEX_LOGISTIC_BOTH, CHEX_LOGISTIC_SLOPE, CHEX_LOGISTIC_INTERCEPT };

struct chex_logistic {
    double slope, intercept;
};

/* Fits all rows of several rankings together. False: there is no finite maximum (no positive, no
 * negative, or a logit separates them), or no convergence; *fit is unchanged. */
bool chex_logistic_fit(const struct chex_logits *logits, int count, enum chex_logistic_kind kind,
                       struct chex_logistic *fit);

/* Contributions of the clusters to the deviations of slope and intercept (the two halves of a
 * sandwich estimate; Liang and Zeger 1986). Each row's residual is divided by 1 minus its leverage,
 * because a fit follows the few rows that matter.
 * slope, intercept: (clusters), zeroed; unused for a coefficient that `kind` does not fit. */
void chex_logistic_parts(const struct chex_logits *l, enum chex_logistic_kind kind,
                         const struct chex_logistic *fit, const struct chex_clusters *k,
                         double *slope, double *intercept);

#endif
