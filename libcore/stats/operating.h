/* SPDX-License-Identifier: Apache-2.0
 *
 * Operating points: the threshold of a class, and the decisions that follow from it.
 *
 * A row is called positive if its score is at least the threshold. Thresholds are scores of the
 * ranking, so each one is a point of the ROC curve, as in roc_curve of scikit-learn. All counts are
 * integers, and points are compared exactly.
 */
#ifndef CHEX_STATS_OPERATING_H
#define CHEX_STATS_OPERATING_H

#include "base/error.h"
#include "stats/figure.h"

/* How a threshold is chosen from a ranking:
 * - YOUDEN: greatest sensitivity + specificity - 1 (Youden 1950)
 * - SENSITIVITY: the highest threshold whose sensitivity is at least `target`
 * - SPECIFICITY: the lowest threshold whose specificity is at least `target`
 * - F1: greatest F1 score
 * Of equally good points YOUDEN and F1 take the highest threshold: the fewest alarms. */
enum chex_threshold_kind {
    CHEX_THRESHOLD_YOUDEN,
    CHEX_THRESHOLD_SENSITIVITY,
    CHEX_THRESHOLD_SPECIFICITY,
    CHEX_THRESHOLD_F1
};
struct chex_threshold_rule {
    enum chex_threshold_kind kind;
    double target; /* of SENSITIVITY and SPECIFICITY: above 0, at most 1 */
};

/* Whether `text` begins like a rule, so that an error of chex_threshold_parse is about a rule and
 * not about the name of a file. */
bool chex_threshold_is_rule(const char *text);

/* Parses "youden", "f1", "sensitivity=0.9" or "specificity=0.9". CHEX_E_USAGE: anything else. */
enum chex_status chex_threshold_parse(const char *text, struct chex_threshold_rule *rule_out,
                                      struct chex_error *err);

/* Writes the rule as chex_threshold_parse reads it. */
enum { CHEX_THRESHOLD_TEXT_BYTES = 48 };
void chex_threshold_text(const struct chex_threshold_rule *rule,
                         char text[CHEX_THRESHOLD_TEXT_BYTES]);

/* Chooses a threshold. NaN: there is no positive or no negative, or no score reaches the target
 * specificity. */
double chex_threshold_choose(const struct chex_ranking *r, const struct chex_threshold_rule *rule);

/* The decisions at a threshold. */
struct chex_operating {
    double threshold; /* NaN: none, and every figure is undefined */
    size_t tp, fp, tn, fn;
    struct chex_figure sensitivity, specificity, ppv, npv, f1;
    double prevalence; /* for which ppv_at and npv_at hold; NaN: none */
    struct chex_figure ppv_at, npv_at;
};

/* Counts the decisions of a ranking at a threshold.
 * - Intervals: chex_proportion_figure. F1 is 2 J / (1 + J), where J = tp / (tp + fp + fn) is a
 *   proportion; its interval is that of J. ppv_at and npv_at follow from the intervals of the
 *   likelihood ratios sensitivity / (1 - specificity) and (1 - sensitivity) / specificity (MOVER;
 *   Donner and Zou 2012).
 * - prevalence: above 0 and below 1, or NaN.
 * - CHEX_E_RESOURCE: out of memory. */
enum chex_status chex_operating_create(const struct chex_ranking *r, const struct chex_clusters *k,
                                       double threshold, double prevalence,
                                       struct chex_operating *out, struct chex_error *err);

#endif
