/* SPDX-License-Identifier: Apache-2.0
 *
 * Calibration: do predicted probabilities agree with observed frequencies, and how to correct them.
 * The scores of the ranking are probabilities.
 */
#ifndef CHEX_STATS_CALIBRATION_H
#define CHEX_STATS_CALIBRATION_H

#include "base/error.h"
#include "stats/figure.h"

/* ---- recalibration ---- */

/* The calibrated probability has the logit slope * logit + intercept. slope > 0. */
struct chex_calibration {
    double slope, intercept; /* 1 and 0: unchanged */
};

/* Increases with the probability, so it changes no AUROC. Keeps 0 and 1. */
double chex_calibrate(const struct chex_calibration *c, double probability);

/* - NONE: slope 1, intercept 0.
 * - TEMPERATURE: one slope for all classes, no intercept (Guo et al. 2017).
 * - PLATT: slope and intercept for each class (Platt 1999, without his correction of the labels).
 */
enum chex_recalibration {
    CHEX_RECALIBRATE_NONE,
    CHEX_RECALIBRATE_TEMPERATURE,
    CHEX_RECALIBRATE_PLATT
};
extern const char *const chex_recalibration_names[]; /* "none", "temperature", "platt", NULL */

/* Fits by maximum likelihood over the rows of each ranking.
 * - out: (classes). A class that cannot be fitted gets slope 1 and intercept 0, and `fitted` false:
 *   no positive or no negative, perfect separation, or a slope that is not above 0.
 * - fitted_out: (classes).
 * - CHEX_E_RESOURCE: out of memory. */
enum chex_status chex_recalibrate(const struct chex_ranking *const *rankings, int classes,
                                  enum chex_recalibration method, struct chex_calibration *out,
                                  bool *fitted_out, struct chex_error *err);

/* ---- figures ---- */

enum {
    CHEX_CALIBRATION_BINS = 10, /* of equal count: the reliability curve and the ECE */
    CHEX_HISTOGRAM_BINS = 20,   /* of equal width */
    /* Least clusters with a positive, and with a negative, for the interval of a slope. */
    CHEX_CALIBRATION_MIN_CLUSTERS = 10
};

/* A bin of the reliability curve. Bins have equal counts. If the edge of a bin falls into a tie
 * group, the group's rows are spread evenly over the bins, so counts may be fractions. */
struct chex_reliability_bin {
    double count, predicted;     /* rows, and their mean probability */
    struct chex_figure observed; /* share of positives */
};

struct chex_reliability {
    int bins; /* at most CHEX_CALIBRATION_BINS; fewer only if there are fewer rows */
    struct chex_reliability_bin bin[CHEX_CALIBRATION_BINS];
};

/* Rows by probability: bin b holds [b / 20, (b + 1) / 20), the last one also 1. */
struct chex_histogram {
    size_t positives[CHEX_HISTOGRAM_BINS], negatives[CHEX_HISTOGRAM_BINS];
};

struct chex_calibration_figures {
    struct chex_figure brier; /* mean of (probability - label)^2 */
    /* Logistic regression of the label on the logit (Cox 1958). NaN: no positive, no negative, or
     * perfect separation. */
    struct chex_figure slope, intercept;
    /* The intercept with the slope fixed at 1: calibration in the large (Van Calster et al. 2019).
     */
    struct chex_figure in_the_large;
    /* Expected calibration error: mean over the bins of |observed - predicted|, by count. It is
     * above 0 even for a perfectly calibrated network; ece_expected is what one would have. */
    struct chex_figure ece;
    double ece_expected;
    struct chex_reliability reliability;
    struct chex_histogram histogram;
};

/* Computes all figures of a ranking of probabilities. doc/intervals.md explains the intervals.
 * CHEX_E_RESOURCE: out of memory. */
enum chex_status chex_calibration_create(const struct chex_ranking *r,
                                         const struct chex_clusters *k,
                                         struct chex_calibration_figures *out,
                                         struct chex_error *err);

#endif
