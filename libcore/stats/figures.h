/* SPDX-License-Identifier: Apache-2.0
 *
 * All figures of each class beside the AUROC: average precision, decisions at a threshold,
 * calibration, net benefit. They belong to a struct chex_scores and use its rankings and clusters.
 */
#ifndef CHEX_STATS_FIGURES_H
#define CHEX_STATS_FIGURES_H

#include "stats/calibration.h"
#include "stats/net_benefit.h"
#include "stats/operating.h"
#include "stats/precision_recall.h"
#include "stats/scores.h"

/* Where the thresholds come from. */
enum chex_threshold_source {
    CHEX_THRESHOLD_NONE,     /* no thresholds: operating is undefined */
    CHEX_THRESHOLD_CHOSEN,   /* chosen by `rule` on the evaluated rows: optimistic */
    CHEX_THRESHOLD_GIVEN,    /* one number for all classes */
    CHEX_THRESHOLD_DEPLOYED, /* frozen in a deployment file, chosen on validation rows */
    CHEX_THRESHOLD_FILE      /* from another file */
};
extern const char *const chex_threshold_source_names[]; /* "none", "chosen", "given", "deployed",
                                                           "file", NULL */

struct chex_figures_config {
    enum chex_threshold_source source;
    struct chex_threshold_rule rule; /* of CHOSEN, if `threshold` is NULL */
    const char *rule_text;           /* how the thresholds were chosen; NULL: unknown */
    const char *file;                /* of DEPLOYED and FILE */
    const double *threshold;  /* (classes); NaN: none. NULL: `rule` chooses them, if CHOSEN */
    const double *prevalence; /* (classes), or NULL; NaN: none */
    /* (classes), or NULL. If it is set, thresholds, calibration and net benefit are those of the
     * calibrated probabilities. */
    const struct chex_calibration *calibration;
    const char *recalibration; /* name of the method; NULL: none */
    bool probabilities;        /* the scores are probabilities from 0 to 1 */
};

struct chex_class_figures {
    double positive_share; /* positives / (positives + negatives); NaN: no row */
    struct chex_figure average_precision;
    struct chex_operating operating;
    /* Only if chex_figures.probabilities; else NaN and 0. */
    struct chex_calibration_figures calibration;
    struct chex_net_benefit net_benefit;
};

struct chex_figures {
    struct chex_figures_config config; /* its pointers are borrowed */
    int classes;
    bool probabilities, calibrated;
    struct chex_class_figures *per_class; /* (classes), as in scores */
};

/* Computes the figures of all classes of `scores`. Results do not depend on the number of threads
 * in `scores->config.pool`. Without intervals if scores->config.replicates is 0. */
enum chex_status chex_figures_create(const struct chex_scores *scores,
                                     const struct chex_figures_config *config,
                                     struct chex_figures **out, struct chex_error *err);
void chex_figures_destroy(struct chex_figures *f); /* NULL allowed */

#endif
