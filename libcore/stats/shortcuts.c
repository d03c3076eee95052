/* SPDX-License-Identifier: Apache-2.0
 *
 * The audit of shortcuts (shortcuts.h).
 */
#include "stats/shortcuts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "stats/delong.h"
#include "stats/groups.h"
#include "stats/stratified.h"

const char *const chex_shortcut_names[] = {"view", "sex", "age", "size", "brightness", NULL};

static bool is_category(enum chex_shortcut_attribute a) {
    return a == CHEX_SHORTCUT_VIEW || a == CHEX_SHORTCUT_SEX;
}

/* The values of one attribute. */
struct column {
    double *value;    /* (rows) NaN: unknown */
    uint8_t *stratum; /* (rows) CHEX_STRATUM_NONE: unknown */
};

struct job {
    struct chex_shortcuts *s;
    struct column column[CHEX_SHORTCUT_COUNT];
    uint8_t *half; /* (rows) 0 or 1, by patient */
};

/* ---- values and strata ---- */

static double value_of(enum chex_shortcut_attribute a, const struct chex_row_facts *f) {
    switch (a) {
    case CHEX_SHORTCUT_VIEW: return f->view == CHEX_VIEW_UNKNOWN ? NAN : (double)f->view;
    case CHEX_SHORTCUT_SEX: return f->sex ? (double)(f->sex == 'M') : NAN;
    case CHEX_SHORTCUT_AGE:
        return f->age_years >= 0 && f->age_years <= CHEX_GROUP_MAX_AGE ? f->age_years : NAN;
    case CHEX_SHORTCUT_SIZE:
        return f->width_px && f->height_px ? (double)f->width_px * f->height_px : NAN;
    case CHEX_SHORTCUT_BRIGHTNESS: return f->brightness;
    case CHEX_SHORTCUT_COUNT: break;
    }
    return NAN;
}

/* The lowest values of the strata after the first: equal counts, and equal values together. */
static enum chex_status find_cuts(const double *value, size_t rows, size_t known, double *cuts,
                                  struct chex_error *err) {
    CHEX_AUTO_FREE double *sorted = chex_alloc_zeroed(known, sizeof *sorted);
    CHEX_ALLOCATED(sorted, err, "%zu values", known);
    for (size_t i = 0, n = 0; i < rows; i++)
        if (!isnan(value[i]))
            sorted[n++] = value[i];
    qsort(sorted, known, sizeof *sorted, chex_by_value);
    for (size_t q = 1; q < CHEX_SHORTCUT_STRATA; q++)
        cuts[q - 1] = sorted[known * q / CHEX_SHORTCUT_STRATA];
    return CHEX_OK;
}

static enum chex_status fill_column(struct job *j, enum chex_shortcut_attribute a,
                                    struct chex_error *err) {
    const struct chex_predictions *t = j->s->scores->table;
    struct chex_shortcut_table *table = &j->s->attribute[a];
    struct column *c = &j->column[a];
    double cuts[CHEX_SHORTCUT_STRATA - 1] = {0};
    bool seen[CHEX_STRATUM_NONE + 1] = {false};
    c->value = chex_alloc_zeroed(t->rows, sizeof *c->value);
    c->stratum = chex_alloc_zeroed(t->rows, 1);
    CHEX_ALLOCATED(c->value && c->stratum, err, "the audit of shortcuts");
    for (size_t i = 0; i < t->rows; i++) {
        c->value[i] = value_of(a, &t->facts[i]);
        table->unknown += isnan(c->value[i]);
    }
    table->known = table->unknown < t->rows;
    if (table->known && !is_category(a))
        CHEX_TRY(find_cuts(c->value, t->rows, t->rows - table->unknown, cuts, err));
    for (size_t i = 0; i < t->rows; i++) {
        int stratum = is_category(a) && !isnan(c->value[i]) ? (int)c->value[i] : 0;
        for (int q = 0; !is_category(a) && q < CHEX_SHORTCUT_STRATA - 1; q++)
            stratum += c->value[i] >= cuts[q];
        c->stratum[i] = isnan(c->value[i]) ? CHEX_STRATUM_NONE : (uint8_t)stratum;
        seen[c->stratum[i]] = true;
    }
    for (int i = 0; i < CHEX_STRATUM_NONE; i++)
        table->strata += seen[i];
    return CHEX_OK;
}

/* Halves by a hash of the patient, or of the image in a table without patients: they do not depend
 * on the order of the rows. */
static enum chex_status fill_halves(struct job *j, struct chex_error *err) {
    const struct chex_predictions *t = j->s->scores->table;
    if (!(j->half = chex_alloc_zeroed(t->rows, 1)))
        return chex_error_memory(err, "the audit of shortcuts");
    for (size_t i = 0; i < t->rows; i++) {
        const char *id = t->patient_id ? t->patient_id[i] : t->image_id[i];
        j->half[i] = chex_hash64(id, strlen(id)) & 1;
    }
    return CHEX_OK;
}

/* ---- one class and attribute ---- */

static void identity(uint8_t *stratum_of) {
    for (int i = 0; i <= CHEX_STRATUM_NONE; i++)
        stratum_of[i] = (uint8_t)i;
}

/* The labels of the class where the attribute is known; -1 elsewhere. */
static void known_labels(const struct chex_predictions *t, int c, const double *value,
                         int8_t *label) {
    for (size_t i = 0; i < t->rows; i++)
        label[i] = isnan(value[i]) ? -1 : t->label[i * (size_t)t->classes + (size_t)c];
}

static enum chex_status score_number(const double *value, const int8_t *label, size_t rows,
                                     const struct chex_clusters *k, struct chex_shortcut *out,
                                     struct chex_error *err) {
    CHEX_AUTO_RANKING struct chex_ranking *r = NULL;
    struct chex_delong d;
    CHEX_TRY(chex_ranking_create(value, label, rows, 1, &r, err));
    CHEX_TRY(chex_delong(r, k->of_row, k->count, NULL, &d, err));
    struct chex_interval i = chex_delong_interval(&d);
    out->direction = d.auroc < 0.5 ? -1 : 1;
    if (out->direction < 0)
        i = (struct chex_interval){1 - i.high, 1 - i.low, 0};
    out->alone.value = out->direction < 0 ? 1 - d.auroc : d.auroc;
    out->alone.interval = k->intervals ? i : chex_figure_none().interval;
    return CHEX_OK;
}

/* rates: by half and category; a category that a half lacks has the share of the whole half. */
static void find_rates(const struct job *j, const struct column *column, const int8_t *label,
                       size_t rows, double rates[2][CHEX_STRATUM_NONE]) {
    double positives[2][CHEX_STRATUM_NONE] = {{0}}, all[2][CHEX_STRATUM_NONE] = {{0}};
    for (size_t i = 0; i < rows; i++)
        if (label[i] >= 0) {
            positives[j->half[i]][column->stratum[i]] += label[i];
            all[j->half[i]][column->stratum[i]]++;
        }
    for (int h = 0; h < 2; h++) {
        double p = 0, n = 0;
        for (int s = 0; s < CHEX_STRATUM_NONE; s++) {
            p += positives[h][s];
            n += all[h][s];
        }
        for (int s = 0; s < CHEX_STRATUM_NONE; s++)
            rates[h][s] = all[h][s] > 0 ? positives[h][s] / all[h][s] : n > 0 ? p / n : 0;
    }
}

static enum chex_status score_category(const struct job *j, const struct column *column,
                                       const int8_t *label, const struct chex_clusters *k,
                                       double *part, struct chex_shortcut *out,
                                       struct chex_error *err) {
    const size_t rows = j->s->scores->table->rows;
    double rates[2][CHEX_STRATUM_NONE];
    CHEX_AUTO_FREE double *score = chex_alloc_zeroed(rows, sizeof *score);
    uint8_t stratum_of[CHEX_STRATUM_NONE + 1];
    CHEX_AUTO_RANKING struct chex_ranking *r = NULL;
    CHEX_ALLOCATED(score, err, "the audit of shortcuts");
    find_rates(j, column, label, rows, rates);
    for (size_t i = 0; i < rows; i++)
        if (column->stratum[i] != CHEX_STRATUM_NONE)
            score[i] = rates[!j->half[i]][column->stratum[i]];
    identity(stratum_of);
    CHEX_TRY(chex_ranking_create(score, label, rows, 1, &r, err));
    return chex_stratified_auroc(r, j->half, stratum_of, k, part, &out->alone, err);
}

/* The network on the rows with the attribute, over all pairs and within strata. */
static enum chex_status score_network(const struct chex_ranking *all, const struct column *column,
                                      const struct chex_clusters *k, double *part, double *other,
                                      struct chex_shortcut *out, struct chex_error *err) {
    uint8_t one[CHEX_STRATUM_NONE + 1] = {0}, own[CHEX_STRATUM_NONE + 1];
    struct chex_figure plain;
    one[CHEX_STRATUM_NONE] = CHEX_STRATUM_NONE;
    identity(own);
    CHEX_TRY(chex_stratified_auroc(all, column->stratum, one, k, other, &plain, err));
    CHEX_TRY(chex_stratified_auroc(all, column->stratum, own, k, part, &out->within, err));
    out->network = plain;
    out->drop = (struct chex_figure){plain.value - out->within.value, {NAN, NAN, 0}};
    for (size_t i = 0; i < k->count; i++)
        part[i] = other[i] - part[i];
    const struct chex_error_of e = chex_error_of_parts(part, k->count);
    if (k->intervals)
        out->drop.interval = chex_figure_interval(out->drop.value, &e);
    return CHEX_OK;
}

static enum chex_status score_attribute(const struct job *j, int c, enum chex_shortcut_attribute a,
                                        int8_t *label, double *part, double *other,
                                        struct chex_error *err) {
    const struct chex_scores *s = j->s->scores;
    const struct chex_clusters k = {s->cluster, s->clusters, s->config.replicates > 0};
    const struct column *column = &j->column[a];
    struct chex_shortcut *out = &j->s->attribute[a].per_class[c];
    const struct chex_figure none = chex_figure_none();
    *out = (struct chex_shortcut){.alone = none, .network = none, .within = none, .drop = none};
    known_labels(s->table, c, column->value, label);
    for (size_t i = 0; i < s->table->rows; i++) {
        out->positives += label[i] == 1;
        out->negatives += label[i] == 0;
    }
    if (!out->positives || !out->negatives)
        return CHEX_OK;
    if (is_category(a))
        CHEX_TRY(score_category(j, column, label, &k, part, out, err));
    else
        CHEX_TRY(score_number(column->value, label, s->table->rows, &k, out, err));
    return score_network(s->rankings[c], column, &k, part, other, out, err);
}

static enum chex_status run_class(void *arg, size_t c, int worker, struct chex_error *err) {
    const struct job *j = arg;
    const struct chex_scores *s = j->s->scores;
    CHEX_AUTO_FREE int8_t *label = chex_alloc_zeroed(s->table->rows, 1);
    CHEX_AUTO_FREE double *parts = chex_alloc_zeroed(s->clusters, 2 * sizeof *parts);
    (void)worker;
    CHEX_ALLOCATED(label && parts, err, "the audit of shortcuts");
    for (int a = 0; a < CHEX_SHORTCUT_COUNT; a++)
        if (j->s->attribute[a].known)
            CHEX_TRY(score_attribute(j, (int)c, (enum chex_shortcut_attribute)a, label, parts,
                                     parts + s->clusters, err));
    return CHEX_OK;
}

/* ---- all ---- */

static enum chex_status fill_columns(struct job *j, struct chex_error *err) {
    const size_t classes = (size_t)j->s->scores->classes;
    CHEX_TRY(fill_halves(j, err));
    for (int a = 0; a < CHEX_SHORTCUT_COUNT; a++) {
        struct chex_shortcut_table *t = &j->s->attribute[a];
        CHEX_TRY(fill_column(j, (enum chex_shortcut_attribute)a, err));
        if (t->known && !(t->per_class = chex_alloc_zeroed(classes, sizeof *t->per_class)))
            return chex_error_memory(err, "the audit of shortcuts");
    }
    return CHEX_OK;
}

static enum chex_status run(struct job *j, struct chex_error *err) {
    const struct chex_scores *s = j->s->scores;
    CHEX_TRY(fill_columns(j, err));
    return chex_pool_try_on(s->config.pool, (size_t)s->classes, run_class, j, err);
}

enum chex_status chex_shortcuts_create(const struct chex_scores *scores,
                                       struct chex_shortcuts **out, struct chex_error *err) {
    struct chex_shortcuts *s = chex_alloc_zeroed(1, sizeof *s);
    struct job j = {.s = s};
    CHEX_ALLOCATED(s, err, "the audit of shortcuts");
    s->scores = scores;
    enum chex_status st = scores->table->facts ? run(&j, err) : CHEX_OK;
    for (int a = 0; a < CHEX_SHORTCUT_COUNT; a++) {
        free(j.column[a].value);
        free(j.column[a].stratum);
    }
    free(j.half);
    if (st == CHEX_OK)
        *out = s;
    else
        chex_shortcuts_destroy(s);
    return st;
}

void chex_shortcuts_destroy(struct chex_shortcuts *s) {
    for (int a = 0; s && a < CHEX_SHORTCUT_COUNT; a++)
        free(s->attribute[a].per_class);
    free(s);
}
