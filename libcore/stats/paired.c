/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares two joined tables of predictions, one finding after the other, so that memory is needed
 * for the rankings of one finding only. stats/paired.h has the contract.
 */
#include "stats/paired.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "stats/bootstrap.h"
#include "stats/difference.h"
#include "stats/join.h"

const char *const chex_margin_verdict_names[] = {NULL, "not shown", "non-inferior", "superior"};

/* ---- one finding ---- */

/* Buffers for one finding, and what the mean needs. */
struct work {
    const struct chex_join *join;
    double *part; /* (clusters) */
    struct chex_delong_mean mean;
    double *values;      /* (2, replicates) AUROCs of one finding */
    double *mean_values; /* (replicates) sums of differences */
    uint32_t *defined;   /* (replicates) findings in that sum */
};

static void work_release(struct work *w) {
    free(w->part);
    free(w->values);
    free(w->mean_values);
    free(w->defined);
    chex_delong_mean_release(&w->mean);
}

static enum chex_status work_create(const struct chex_join *j,
                                    const struct chex_paired_config *config, struct work *w,
                                    struct chex_error *err) {
    const size_t n = config->replicates;
    *w = (struct work){.join = j,
                       .part = chex_alloc_zeroed(j->clusters, sizeof *w->part),
                       .values = chex_alloc_zeroed(n, 2 * sizeof *w->values),
                       .mean_values = chex_alloc_zeroed(n, sizeof *w->mean_values),
                       .defined = chex_alloc_zeroed(n, sizeof *w->defined)};
    CHEX_ALLOCATED(w->part && w->values && w->mean_values && w->defined, err, "%zu images",
                   j->rows);
    CHEX_TRY(chex_delong_mean_create(&w->mean, j->clusters, err));
    w->mean.least = -1;
    return CHEX_OK;
}

/* The same patients are drawn for both models, because the draws depend on seed and replicate only.
 */
static enum chex_status add_bootstrap(const struct chex_paired_config *config, struct work *w,
                                      struct chex_ranking *const rankings[2],
                                      struct chex_paired_class *k, struct chex_error *err) {
    const size_t n = config->replicates;
    const struct chex_bootstrap_config draws = {n, config->seed, config->pool};
    struct chex_interval unused[3];
    CHEX_TRY(chex_bootstrap((const struct chex_ranking *const *)rankings, 2, w->join->cluster,
                            w->join->clusters, &draws, unused, &unused[2], w->values, err));
    for (size_t r = 0; r < n; r++) {
        w->values[r] -= w->values[n + r];
        if (isnan(w->values[r]))
            continue;
        w->mean_values[r] += w->values[r];
        w->defined[r]++;
    }
    k->bootstrap = chex_bootstrap_interval(w->values, n);
    if (k->too_few)
        k->bootstrap.low = k->bootstrap.high = NAN;
    return CHEX_OK;
}

static void judge(struct chex_paired_class *k, double margin) {
    const double better[] = {k->interval.low, -k->interval.high};
    for (int i = 0; i < 2 && !isnan(margin); i++)
        k->verdict[i] = better[i] > 0         ? CHEX_SUPERIOR
                        : better[i] > -margin ? CHEX_NON_INFERIOR
                                              : CHEX_NOT_SHOWN;
}

static enum chex_status count_patients(const struct chex_join *j, const struct chex_ranking *r,
                                       struct chex_paired_class *k, struct chex_error *err) {
    struct chex_delong d;
    if (!j->patient)
        return CHEX_OK;
    CHEX_TRY(chex_delong(r, j->patient, j->patients, NULL, &d, err));
    k->positive_patients = d.positive_clusters;
    k->negative_patients = d.negative_clusters;
    return CHEX_OK;
}

static enum chex_status compare(struct chex_paired *p, struct work *w,
                                struct chex_ranking *const rankings[2], struct chex_paired_class *k,
                                struct chex_error *err) {
    struct chex_difference d;
    CHEX_TRY(chex_difference(rankings[0], rankings[1], w->join->cluster, w->join->clusters, w->part,
                             &d, err));
    CHEX_TRY(count_patients(w->join, rankings[0], k, err));
    memcpy(k->auroc, d.auroc, sizeof k->auroc);
    k->difference = d.value;
    k->se = sqrt(d.variance);
    k->df = isnan(d.variance) ? NAN : d.df;
    k->interval = d.interval;
    k->p_value = d.p_value;
    k->positives = rankings[0]->positives;
    k->negatives = rankings[0]->negatives;
    k->masked = w->join->rows - rankings[0]->count;
    if (isnan(d.value))
        return CHEX_OK;
    k->too_few = isnan(d.variance);
    p->too_few += k->too_few;
    p->defined++;
    for (int i = 0; i < 2; i++)
        p->mean.auroc[i] += d.auroc[i];
    chex_difference_add(&w->mean, &d, w->part);
    if (p->config.means) {
        chex_difference_add(&p->config.means[k - p->per_class], &d, w->part);
        chex_difference_add(&p->config.means[p->classes], &d, w->part);
    }
    return p->config.replicates ? add_bootstrap(&p->config, w, rankings, k, err) : CHEX_OK;
}

static const struct chex_paired_class undefined = {.difference = NAN,
                                                   .se = NAN,
                                                   .df = NAN,
                                                   .interval = {NAN, NAN, 0},
                                                   .p_value = NAN,
                                                   .p_holm = NAN,
                                                   .sd = {NAN, NAN},
                                                   .training_share = NAN,
                                                   .runs_to_halve = NAN,
                                                   .bootstrap = {NAN, NAN, 0}};

static enum chex_status compare_class(struct chex_paired *p, struct work *w, int c,
                                      struct chex_error *err) {
    CHEX_AUTO_RANKING struct chex_ranking *first = NULL, *second = NULL;
    struct chex_paired_class *k = &p->per_class[c];
    *k = undefined;
    k->name = w->join->tables[0]->class_names[w->join->column[0][c]];
    CHEX_TRY(chex_join_rank(w->join, 0, c, &first, err));
    CHEX_TRY(chex_join_rank(w->join, 1, c, &second, err));
    return compare(p, w, (struct chex_ranking *[]){first, second}, k, err);
}

/* ---- all findings ---- */

static void finish_mean(struct chex_paired *p, struct work *w) {
    struct chex_paired_class *m = &p->mean;
    for (int i = 0; i < 2; i++)
        m->auroc[i] = p->defined ? m->auroc[i] / p->defined : NAN;
    m->difference = m->auroc[0] - m->auroc[1];
    m->interval = chex_delong_mean_interval(&w->mean);
    m->p_value = chex_difference_p_of_interval(m->difference, &m->interval);
    m->too_few = p->too_few > 0;
    for (size_t r = 0; r < p->config.replicates; r++)
        w->mean_values[r] = w->defined[r] ? w->mean_values[r] / w->defined[r] : NAN;
    m->bootstrap = chex_bootstrap_interval(w->mean_values, p->config.replicates);
    if (m->too_few)
        m->bootstrap.low = m->bootstrap.high = NAN;
}

enum chex_status chex_paired_judge(struct chex_paired *p, struct chex_error *err) {
    CHEX_AUTO_FREE double *p_value = chex_alloc_zeroed((size_t)p->classes, 2 * sizeof *p_value);
    CHEX_ALLOCATED(p_value, err, "%d findings", p->classes);
    double *p_holm = p_value + p->classes;
    for (int c = 0; c < p->classes; c++)
        p_value[c] = p->per_class[c].p_value;
    CHEX_TRY(chex_difference_holm(p_value, (size_t)p->classes, p_holm, &p->tests, err));
    for (int c = 0; c < p->classes; c++) {
        p->per_class[c].p_holm = p_holm[c];
        judge(&p->per_class[c], p->config.margin);
    }
    judge(&p->mean, p->config.margin);
    return CHEX_OK;
}

static enum chex_status compare_classes(struct chex_paired *p, const struct chex_join *j,
                                        struct chex_error *err) {
    struct work w;
    enum chex_status st = work_create(j, &p->config, &w, err);
    p->mean = undefined;
    p->per_class = chex_alloc_zeroed((size_t)p->classes, sizeof *p->per_class);
    if (st == CHEX_OK && !p->per_class)
        st = chex_error_memory(err, "%d findings", p->classes);
    for (int c = 0; st == CHEX_OK && c < p->classes; c++)
        st = compare_class(p, &w, c, err);
    if (st == CHEX_OK) {
        finish_mean(p, &w);
        st = chex_paired_judge(p, err);
    }
    work_release(&w);
    return st;
}

/* Moves what the join has found to the result. */
static void take_join(struct chex_paired *p, struct chex_join *j) {
    p->joined = j->rows;
    p->classes = j->classes;
    p->patients = j->patients;
    for (int i = 0; i < 2; i++) {
        p->left_out[i] = j->left_out[i];
        p->missing[i] = j->missing[i];
        p->missing_count[i] = j->missing_count[i];
        j->missing[i] = NULL;
        j->missing_count[i] = 0;
    }
}

enum chex_status chex_paired_create(const struct chex_predictions *const tables[2],
                                    const char *const names[2],
                                    const struct chex_paired_config *config,
                                    struct chex_paired **paired_out, struct chex_error *err) {
    struct chex_join j;
    struct chex_paired *p = chex_alloc_zeroed(1, sizeof *p);
    CHEX_ALLOCATED(p, err, "the comparison");
    p->config = *config;
    enum chex_status st = chex_join_create(tables, names, config->cluster, &j, err);
    if (st == CHEX_OK) {
        take_join(p, &j);
        st = compare_classes(p, &j, err);
    }
    chex_join_release(&j);
    if (st == CHEX_OK)
        *paired_out = p;
    else
        chex_paired_destroy(p);
    return st;
}

void chex_paired_destroy(struct chex_paired *p) {
    if (!p)
        return;
    for (int i = 0; i < 2; i++) {
        for (int c = 0; c < p->missing_count[i]; c++)
            free(p->missing[i][c]);
        free(p->missing[i]);
    }
    free(p->per_class);
    free(p);
}
