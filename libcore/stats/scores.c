/* SPDX-License-Identifier: Apache-2.0
 *
 * Scores a predictions table: ranks each class, finds the clusters, computes the intervals.
 */
#include "stats/scores.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "stats/bootstrap.h"
#include "stats/delong.h"
#include "stats/groups.h"
#include "stats/stratified.h"

const char *const chex_cluster_names[] = {"patient", "image", NULL};
const char *const chex_interval_names[] = {"delong", "logit", "bootstrap", NULL};

/* The sum over the rows of hash(id, label). Equal images and labels give equal sums, in any order
 * of rows. */
static uint64_t digest_rows(const struct chex_predictions *t, int c) {
    uint64_t sum = 0;
    for (size_t i = 0; i < t->rows; i++) {
        const int8_t y = t->label[i * (size_t)t->classes + (size_t)c];
        if (y >= 0)
            sum += chex_hash64_mix((uint64_t)y + 1, t->image_id[i], strlen(t->image_id[i]));
    }
    return sum ? sum : 1;
}

static enum chex_status score_class(struct chex_scores *s, int c, struct chex_error *err) {
    const struct chex_predictions *t = s->table;
    enum chex_status st = chex_ranking_create(t->score + c, t->label + c, t->rows,
                                              (size_t)t->classes, &s->rankings[c], err);
    if (st != CHEX_OK)
        return chex_error_prefix(err, st, "finding %s", t->class_names[c]);
    const struct chex_ranking *r = s->rankings[c];
    s->per_class[c] = (struct chex_class_score){.name = t->class_names[c],
                                                .auroc = chex_ranking_auroc(r),
                                                .delong_se = NAN,
                                                .positives = r->positives,
                                                .negatives = r->negatives,
                                                .masked = t->rows - r->count,
                                                .interval = {NAN, NAN, 0},
                                                .rows_digest = digest_rows(t, c)};
    return CHEX_OK;
}

static enum chex_status score_classes(struct chex_scores *s, struct chex_error *err) {
    double sum = 0;
    for (int c = 0; c < s->classes; c++) {
        CHEX_TRY(score_class(s, c, err));
        if (!isnan(s->per_class[c].auroc)) {
            sum += s->per_class[c].auroc;
            s->defined++;
        }
    }
    s->mean = s->defined ? sum / s->defined : NAN;
    return CHEX_OK;
}

/* ---- clusters ---- */

static enum chex_status check_patients(const struct chex_predictions *t, struct chex_error *err) {
    if (!t->patient_id)
        return chex_error_set(err, CHEX_E_DATA,
                              "no column patient_id, and intervals by patient need it: add it, or "
                              "use --cluster image");
    for (size_t i = 0; i < t->rows; i++)
        if (!t->patient_id[i][0])
            return chex_error_set(err, CHEX_E_DATA,
                                  "image %s has no patient_id, and intervals by patient need it: "
                                  "add it, or use --cluster image",
                                  t->image_id[i]);
    return CHEX_OK;
}

static enum chex_status find_clusters(struct chex_scores *s, struct chex_error *err) {
    const struct chex_predictions *t = s->table;
    const bool by_patient = s->config.cluster == CHEX_CLUSTER_PATIENT;
    s->clusters = t->rows;
    if (by_patient && s->config.replicates)
        CHEX_TRY(check_patients(t, err));
    if (!t->patient_id)
        return CHEX_OK;
    if (!(s->patient = chex_alloc_zeroed(t->rows, sizeof *s->patient)))
        return chex_error_memory(err, "the patients");
    CHEX_TRY(chex_bootstrap_cluster((const char *const *)t->patient_id, t->rows, s->patient,
                                    &s->patients, err));
    if (by_patient) {
        s->cluster = s->patient;
        s->clusters = s->patients;
    }
    return CHEX_OK;
}

/* ---- intervals ---- */

struct chex_interval chex_scores_add(enum chex_interval_method method, const struct chex_delong *d,
                                     const double *part, struct chex_delong_mean *mean) {
    const bool logit = method == CHEX_INTERVAL_LOGIT;
    const struct chex_interval i = chex_delong_interval(d), one_se = chex_delong_one_se(d);
    chex_delong_mean_add(mean, d, logit ? &one_se : &i, part);
    return logit ? chex_delong_logit_interval(d) : i;
}

struct chex_interval chex_scores_mean_interval(enum chex_interval_method method,
                                               const struct chex_delong_mean *mean) {
    return method == CHEX_INTERVAL_LOGIT ? chex_delong_mean_logit_interval(mean)
                                         : chex_delong_mean_interval(mean);
}

/* Computes standard error and interval of one class, and adds the class to the mean. */
static enum chex_status add_delong(struct chex_scores *s, int c, double *part,
                                   struct chex_delong_mean *mean, struct chex_error *err) {
    struct chex_class_score *score = &s->per_class[c];
    struct chex_delong d;
    CHEX_TRY(chex_delong(s->rankings[c], s->cluster, s->clusters, part, &d, err));
    score->delong_se = sqrt(d.obuchowski);
    if (isnan(d.auroc))
        return CHEX_OK;
    score->too_few = isnan(d.variance);
    s->too_few += score->too_few;
    const struct chex_interval interval = chex_scores_add(s->config.method, &d, part, mean);
    if (s->config.replicates && s->config.method != CHEX_INTERVAL_BOOTSTRAP)
        score->interval = interval;
    return CHEX_OK;
}

static enum chex_status count_patients(struct chex_scores *s, int c, struct chex_error *err) {
    struct chex_delong d;
    if (!s->patient)
        return CHEX_OK;
    CHEX_TRY(chex_delong(s->rankings[c], s->patient, s->patients, NULL, &d, err));
    s->per_class[c].positive_patients = d.positive_clusters;
    s->per_class[c].negative_patients = d.negative_clusters;
    return CHEX_OK;
}

static enum chex_status add_delongs(struct chex_scores *s, struct chex_error *err) {
    CHEX_AUTO_DELONG_MEAN struct chex_delong_mean mean = {0};
    CHEX_AUTO_FREE double *part = chex_alloc_zeroed(s->clusters, sizeof *part);
    CHEX_ALLOCATED(part, err, "%zu clusters", s->clusters);
    CHEX_TRY(chex_delong_mean_create(&mean, s->clusters, err));
    for (int c = 0; c < s->classes; c++) {
        CHEX_TRY(add_delong(s, c, part, &mean, err));
        CHEX_TRY(count_patients(s, c, err));
    }
    if (s->config.replicates && s->config.method != CHEX_INTERVAL_BOOTSTRAP)
        s->mean_interval = chex_scores_mean_interval(s->config.method, &mean);
    return CHEX_OK;
}

/* A class with too few clusters gets no interval. Its replicates would all be equal, which would
 * give an interval of width 0. */
static enum chex_status add_bootstrap(struct chex_scores *s, struct chex_error *err) {
    struct chex_bootstrap_config config = {s->config.replicates, s->config.seed, s->config.pool};
    CHEX_AUTO_FREE struct chex_interval *intervals =
        chex_alloc_zeroed((size_t)s->classes, sizeof *intervals);
    CHEX_AUTO_FREE uint32_t *row = chex_alloc_zeroed(s->table->rows, sizeof *row);
    CHEX_ALLOCATED(intervals && row, err, "the intervals");
    for (uint32_t i = 0; i < s->table->rows; i++)
        row[i] = s->cluster ? s->cluster[i] : i;
    CHEX_TRY(chex_bootstrap((const struct chex_ranking *const *)s->rankings, (size_t)s->classes,
                            row, s->clusters, &config, intervals, &s->mean_interval, NULL, err));
    for (int c = 0; c < s->classes; c++)
        s->per_class[c].interval = s->per_class[c].too_few
                                       ? (struct chex_interval){NAN, NAN, intervals[c].undefined}
                                       : intervals[c];
    if (s->too_few)
        s->mean_interval.low = s->mean_interval.high = NAN;
    return CHEX_OK;
}

/* ---- folds ---- */

/* The AUROC of a class within folds. part: (clusters) scratch. A fold takes one degree of freedom.
 */
static enum chex_status add_within(struct chex_scores *s, int c, const uint8_t *fold, double *part,
                                   struct chex_delong_mean *mean, struct chex_error *err) {
    const struct chex_clusters k = {s->cluster, s->clusters, false};
    struct chex_figure *f = &s->per_class[c].within;
    uint8_t own[CHEX_STRATUM_NONE + 1];
    struct chex_delong d;
    for (int i = 0; i <= CHEX_STRATUM_NONE; i++)
        own[i] = (uint8_t)i;
    CHEX_TRY(chex_delong(s->rankings[c], s->cluster, s->clusters, NULL, &d, err));
    CHEX_TRY(chex_stratified_auroc(s->rankings[c], fold, own, &k, part, f, err));
    if (isnan(f->value))
        return CHEX_OK;
    const double least = (double)(d.positive_clusters < d.negative_clusters ? d.positive_clusters
                                                                            : d.negative_clusters);
    const bool enough = least > s->folds;
    d.auroc = f->value;
    d.variance = enough ? 0 : NAN;
    for (size_t i = 0; enough && i < s->clusters; i++) {
        part[i] *= sqrt(least / (least - s->folds));
        d.variance += part[i] * part[i];
    }
    d.obuchowski = d.variance;
    const struct chex_interval interval = chex_scores_add(s->config.method, &d, part, mean);
    if (s->config.replicates)
        f->interval = interval;
    return CHEX_OK;
}

static enum chex_status add_folds(struct chex_scores *s, struct chex_error *err) {
    CHEX_AUTO_FREE uint8_t *fold = chex_alloc_zeroed(s->table->rows, 1);
    CHEX_AUTO_FREE double *part = chex_alloc_zeroed(s->clusters, sizeof *part);
    CHEX_AUTO_DELONG_MEAN struct chex_delong_mean mean = {0};
    bool seen[CHEX_GROUPS_MAX + 1] = {false};
    CHEX_ALLOCATED(fold && part, err, "the folds");
    for (size_t i = 0; i < s->table->rows; i++) {
        fold[i] = s->table->facts ? (uint8_t)s->table->facts[i].fold : 0;
        s->folds += fold[i] && !seen[fold[i]];
        seen[fold[i]] = true;
    }
    if (seen[0] || s->folds < 2)
        s->folds = 0;
    if (!s->folds)
        return CHEX_OK;
    CHEX_TRY(chex_delong_mean_create(&mean, s->clusters, err));
    for (int c = 0; c < s->classes; c++)
        CHEX_TRY(add_within(s, c, fold, part, &mean, err));
    if (mean.classes)
        s->mean_within.value = mean.auroc / (double)mean.classes;
    if (s->config.replicates)
        s->mean_within.interval = chex_scores_mean_interval(s->config.method, &mean);
    return CHEX_OK;
}

static enum chex_status add_intervals(struct chex_scores *s, struct chex_error *err) {
    CHEX_TRY(find_clusters(s, err));
    CHEX_TRY(add_delongs(s, err));
    CHEX_TRY(add_folds(s, err));
    return s->config.replicates && s->config.method == CHEX_INTERVAL_BOOTSTRAP
               ? add_bootstrap(s, err)
               : CHEX_OK;
}

enum chex_status chex_scores_create(const struct chex_predictions *table,
                                    const struct chex_scores_config *config,
                                    struct chex_scores **scores_out, struct chex_error *err) {
    struct chex_scores *s = chex_alloc_zeroed(1, sizeof *s);
    enum chex_status st = CHEX_OK;
    if (s) {
        s->table = table;
        s->config = *config;
        s->classes = table->classes;
        s->mean_interval = (struct chex_interval){NAN, NAN, 0};
        s->mean_within = chex_figure_none();
        s->per_class = chex_alloc_zeroed((size_t)s->classes, sizeof *s->per_class);
        s->rankings = chex_alloc_zeroed((size_t)s->classes, sizeof *s->rankings);
    }
    if (!s || !s->per_class || !s->rankings)
        st = chex_error_memory(err, "%d findings", table->classes);
    if (st == CHEX_OK)
        st = score_classes(s, err);
    if (st == CHEX_OK)
        st = add_intervals(s, err);
    if (st == CHEX_OK)
        *scores_out = s;
    else
        chex_scores_destroy(s);
    return st;
}

void chex_scores_destroy(struct chex_scores *s) {
    if (!s)
        return;
    for (int c = 0; s->rankings && c < s->classes; c++)
        chex_ranking_destroy(s->rankings[c]);
    free(s->rankings);
    free(s->per_class);
    free(s->patient);
    free(s);
}
