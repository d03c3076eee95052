/* SPDX-License-Identifier: Apache-2.0
 *
 * Joins two tables of predictions and compares them, one finding after the other, so that memory is
 * needed for the rankings of one finding only. stats/paired.h has the contract.
 */
#include "stats/paired.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "label/labels_map.h"
#include "stats/bootstrap.h"
#include "stats/difference.h"

const char *const chex_margin_verdict_names[] = {NULL, "not shown", "non-inferior", "superior"};

/* What both tables have: row[i][k] is row k of the join in table i, column[i][c] class c. */
struct join {
    const struct chex_predictions *const *tables;
    const char *const *names;
    size_t rows;
    int classes;
    uint32_t *row[2];
    int *column[2];
    uint32_t *patient; /* (rows) numbers; NULL: no table has patients */
    size_t patients;
};

static void release(struct join *j) {
    for (int i = 0; i < 2; i++) {
        free(j->row[i]);
        free(j->column[i]);
    }
    free(j->patient);
}

/* ---- the join ---- */

static enum chex_status match_classes(struct join *j, struct chex_paired *p,
                                      struct chex_error *err) {
    const struct chex_predictions *const *t = j->tables;
    for (int i = 0; i < 2; i++) {
        j->column[i] = chex_alloc_zeroed((size_t)t[0]->classes, sizeof *j->column[i]);
        p->missing[i] = chex_alloc_zeroed((size_t)t[i]->classes, sizeof *p->missing[i]);
        if (!j->column[i] || !p->missing[i])
            return chex_error_memory(err, "%d findings", t[i]->classes);
    }
    for (int i = 0; i < 2; i++)
        for (int a = 0; a < t[i]->classes; a++) {
            int b = 0;
            while (b < t[!i]->classes && strcmp(t[i]->class_names[a], t[!i]->class_names[b]) != 0)
                b++;
            if (b == t[!i]->classes) {
                char **name = &p->missing[i][p->missing_count[i]++];
                if (!(*name = strdup(t[i]->class_names[a])))
                    return chex_error_memory(err, "%d findings", t[i]->classes);
            } else if (i == 0) {
                j->column[0][j->classes] = a;
                j->column[1][j->classes++] = b;
            }
        }
    if (j->classes)
        return CHEX_OK;
    return chex_error_set(err, CHEX_E_DATA,
                          "%s and %s have no finding in common (the first of each: %s, %s)",
                          j->names[0], j->names[1], t[0]->class_names[0], t[1]->class_names[0]);
}

static enum chex_status match_rows(struct join *j, struct chex_paired *p, struct chex_error *err) {
    const struct chex_predictions *const *t = j->tables;
    struct chex_label_map map = {0};
    enum chex_status st = CHEX_OK;
    for (size_t i = 0, known; st == CHEX_OK && i < t[1]->rows; i++)
        st = chex_label_map_add(&map, t[1]->image_id[i], i, &known, err);
    for (int i = 0; st == CHEX_OK && i < 2; i++)
        if (!(j->row[i] = chex_alloc_zeroed(t[0]->rows, sizeof *j->row[i])))
            st = chex_error_memory(err, "%zu images", t[0]->rows);
    for (size_t i = 0; st == CHEX_OK && i < t[0]->rows; i++) {
        const size_t other = chex_label_map_find(&map, t[0]->image_id[i]);
        if (other == SIZE_MAX)
            continue;
        j->row[0][j->rows] = (uint32_t)i;
        j->row[1][j->rows++] = (uint32_t)other;
    }
    chex_label_map_release(&map);
    p->joined = j->rows;
    for (int i = 0; i < 2; i++)
        p->left_out[i] = t[i]->rows - j->rows;
    if (st == CHEX_OK && !j->rows)
        st = chex_error_set(err, CHEX_E_DATA,
                            "%s and %s have no image in common (the first of each: %s, %s)",
                            j->names[0], j->names[1], t[0]->image_id[0], t[1]->image_id[0]);
    return st;
}

static int8_t label_of(const struct join *j, int i, size_t row, int c) {
    const struct chex_predictions *t = j->tables[i];
    return t->label[j->row[i][row] * (size_t)t->classes + (size_t)j->column[i][c]];
}

/* Two labels that both mask the image agree. */
static enum chex_status check_labels(const struct join *j, struct chex_error *err) {
    for (size_t k = 0; k < j->rows; k++)
        for (int c = 0; c < j->classes; c++) {
            const int a = label_of(j, 0, k, c), b = label_of(j, 1, k, c);
            if (a == b || (a < 0 && b < 0))
                continue;
            return chex_error_set(err, CHEX_E_DATA,
                                  "image %s, finding %s: label %d in %s and %d in %s; only equal "
                                  "labels can be compared",
                                  j->tables[0]->image_id[j->row[0][k]],
                                  j->tables[0]->class_names[j->column[0][c]], a, j->names[0], b,
                                  j->names[1]);
        }
    return CHEX_OK;
}

/* ---- patients ---- */

static const char *patient_of(const struct join *j, int i, size_t row) {
    const struct chex_predictions *t = j->tables[i];
    return t->patient_id ? t->patient_id[j->row[i][row]] : "";
}

/* The patient of a joined row by either table. */
static enum chex_status find_patient(const struct join *j, size_t row, const char **out,
                                     struct chex_error *err) {
    const char *a = patient_of(j, 0, row), *b = patient_of(j, 1, row);
    *out = *a ? a : b;
    if (!*a || !*b || strcmp(a, b) == 0)
        return CHEX_OK;
    return chex_error_set(err, CHEX_E_DATA, "image %s: patient %s in %s and %s in %s",
                          j->tables[0]->image_id[j->row[0][row]], a, j->names[0], b, j->names[1]);
}

static enum chex_status number_patients(struct join *j, bool needed, struct chex_error *err) {
    if (!j->tables[0]->patient_id && !j->tables[1]->patient_id)
        return needed ? chex_error_set(err, CHEX_E_DATA,
                                       "%s and %s: no column patient_id, and intervals by patient "
                                       "need it: add it, or use --cluster image",
                                       j->names[0], j->names[1])
                      : CHEX_OK;
    const char **ids = chex_alloc_zeroed(j->rows, sizeof *ids);
    j->patient = chex_alloc_zeroed(j->rows, sizeof *j->patient);
    enum chex_status st = ids && j->patient ? CHEX_OK : chex_error_memory(err, "the patients");
    for (size_t k = 0; st == CHEX_OK && k < j->rows; k++) {
        st = find_patient(j, k, &ids[k], err);
        if (st == CHEX_OK && needed && !*ids[k])
            st = chex_error_set(err, CHEX_E_DATA,
                                "%s: image %s has no patient_id, and intervals by patient need it: "
                                "add it, or use --cluster image",
                                j->names[0], j->tables[0]->image_id[j->row[0][k]]);
    }
    if (st == CHEX_OK)
        st = chex_bootstrap_cluster(ids, j->rows, j->patient, &j->patients, err);
    free(ids);
    return st;
}

static enum chex_status make_join(struct join *j, struct chex_paired *p, struct chex_error *err) {
    CHEX_TRY(match_classes(j, p, err));
    CHEX_TRY(match_rows(j, p, err));
    CHEX_TRY(check_labels(j, err));
    CHEX_TRY(number_patients(j, p->config.cluster == CHEX_CLUSTER_PATIENT, err));
    p->classes = j->classes;
    p->patients = j->patients;
    return CHEX_OK;
}

/* ---- one finding ---- */

/* Buffers for one finding, and what the mean needs. */
struct work {
    const struct join *join;
    double *score; /* (rows) */
    int8_t *label; /* (rows) */
    const uint32_t *cluster;
    uint32_t *each_row; /* (rows) 0, 1, ...: clusters by image */
    size_t clusters;
    double *part; /* (clusters) */
    struct chex_delong_mean mean;
    double *values;      /* (2, replicates) AUROCs of one finding */
    double *mean_values; /* (replicates) sums of differences */
    uint32_t *defined;   /* (replicates) findings in that sum */
};

static void work_release(struct work *w) {
    free(w->score);
    free(w->label);
    free(w->each_row);
    free(w->part);
    free(w->values);
    free(w->mean_values);
    free(w->defined);
    chex_delong_mean_release(&w->mean);
}

static enum chex_status work_create(const struct join *j, const struct chex_paired_config *config,
                                    struct work *w, struct chex_error *err) {
    const size_t n = config->replicates;
    *w = (struct work){.join = j,
                       .score = chex_alloc_zeroed(j->rows, sizeof *w->score),
                       .label = chex_alloc_zeroed(j->rows, sizeof *w->label),
                       .values = chex_alloc_zeroed(n, 2 * sizeof *w->values),
                       .mean_values = chex_alloc_zeroed(n, sizeof *w->mean_values),
                       .defined = chex_alloc_zeroed(n, sizeof *w->defined),
                       .cluster = j->patient,
                       .clusters = j->patients};
    bool complete = w->score && w->label && w->values && w->mean_values && w->defined;
    if (config->cluster == CHEX_CLUSTER_IMAGE) {
        w->each_row = chex_alloc_zeroed(j->rows, sizeof *w->each_row);
        for (uint32_t k = 0; w->each_row && k < j->rows; k++)
            w->each_row[k] = k;
        complete = complete && w->each_row;
        w->cluster = w->each_row;
        w->clusters = j->rows;
    }
    w->part = chex_alloc_zeroed(w->clusters, sizeof *w->part);
    if (!complete || !w->part)
        return chex_error_memory(err, "%zu images", j->rows);
    CHEX_TRY(chex_delong_mean_create(&w->mean, w->clusters, err));
    w->mean.least = -1;
    return CHEX_OK;
}

static enum chex_status rank(struct work *w, int i, int c, struct chex_ranking **out,
                             struct chex_error *err) {
    const struct join *j = w->join;
    const struct chex_predictions *t = j->tables[i];
    for (size_t k = 0; k < j->rows; k++) {
        w->score[k] = t->score[j->row[i][k] * (size_t)t->classes + (size_t)j->column[i][c]];
        w->label[k] = label_of(j, i, k, c);
    }
    enum chex_status st = chex_ranking_create(w->score, w->label, j->rows, 1, out, err);
    return st == CHEX_OK ? st
                         : chex_error_prefix(err, st, "%s: finding %s", j->names[i],
                                             t->class_names[j->column[i][c]]);
}

/* The same patients are drawn for both models, because the draws depend on seed and replicate only.
 */
static enum chex_status add_bootstrap(const struct chex_paired_config *config, struct work *w,
                                      struct chex_ranking *const rankings[2],
                                      struct chex_paired_class *k, struct chex_error *err) {
    const size_t n = config->replicates;
    const struct chex_bootstrap_config draws = {n, config->seed, config->pool};
    struct chex_interval unused[3];
    CHEX_TRY(chex_bootstrap((const struct chex_ranking *const *)rankings, 2, w->cluster,
                            w->clusters, &draws, unused, &unused[2], w->values, err));
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

static enum chex_status count_patients(const struct join *j, const struct chex_ranking *r,
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
    CHEX_TRY(chex_difference(rankings[0], rankings[1], w->cluster, w->clusters, w->part, &d, err));
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
    judge(k, p->config.margin);
    if (isnan(d.value))
        return CHEX_OK;
    k->too_few = isnan(d.variance);
    p->too_few += k->too_few;
    p->defined++;
    for (int i = 0; i < 2; i++)
        p->mean.auroc[i] += d.auroc[i];
    chex_difference_add(&w->mean, &d, w->part);
    return p->config.replicates ? add_bootstrap(&p->config, w, rankings, k, err) : CHEX_OK;
}

static const struct chex_paired_class undefined = {.difference = NAN,
                                                   .se = NAN,
                                                   .df = NAN,
                                                   .interval = {NAN, NAN, 0},
                                                   .p_value = NAN,
                                                   .p_holm = NAN,
                                                   .bootstrap = {NAN, NAN, 0}};

static enum chex_status compare_class(struct chex_paired *p, struct work *w, int c,
                                      struct chex_error *err) {
    struct chex_ranking *rankings[2] = {NULL, NULL};
    struct chex_paired_class *k = &p->per_class[c];
    *k = undefined;
    k->name = w->join->tables[0]->class_names[w->join->column[0][c]];
    enum chex_status st = rank(w, 0, c, &rankings[0], err);
    if (st == CHEX_OK)
        st = rank(w, 1, c, &rankings[1], err);
    if (st == CHEX_OK)
        st = compare(p, w, rankings, k, err);
    for (int i = 0; i < 2; i++)
        chex_ranking_destroy(rankings[i]);
    return st;
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
    judge(m, p->config.margin);
    for (size_t r = 0; r < p->config.replicates; r++)
        w->mean_values[r] = w->defined[r] ? w->mean_values[r] / w->defined[r] : NAN;
    m->bootstrap = chex_bootstrap_interval(w->mean_values, p->config.replicates);
    if (m->too_few)
        m->bootstrap.low = m->bootstrap.high = NAN;
}

static enum chex_status correct(struct chex_paired *p, struct chex_error *err) {
    double *p_value = chex_alloc_zeroed((size_t)p->classes, 2 * sizeof *p_value);
    if (!p_value)
        return chex_error_memory(err, "%d findings", p->classes);
    double *p_holm = p_value + p->classes;
    for (int c = 0; c < p->classes; c++)
        p_value[c] = p->per_class[c].p_value;
    enum chex_status st = chex_difference_holm(p_value, (size_t)p->classes, p_holm, &p->tests, err);
    for (int c = 0; st == CHEX_OK && c < p->classes; c++)
        p->per_class[c].p_holm = p_holm[c];
    free(p_value);
    return st;
}

static enum chex_status compare_classes(struct chex_paired *p, const struct join *j,
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
        st = correct(p, err);
    }
    work_release(&w);
    return st;
}

enum chex_status chex_paired_create(const struct chex_predictions *const tables[2],
                                    const char *const names[2],
                                    const struct chex_paired_config *config,
                                    struct chex_paired **paired_out, struct chex_error *err) {
    struct join j = {.tables = tables, .names = names};
    struct chex_paired *p = chex_alloc_zeroed(1, sizeof *p);
    if (!p)
        return chex_error_memory(err, "the comparison");
    p->config = *config;
    enum chex_status st = make_join(&j, p, err);
    if (st == CHEX_OK)
        st = compare_classes(p, &j, err);
    release(&j);
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
