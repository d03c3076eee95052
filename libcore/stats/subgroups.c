/* SPDX-License-Identifier: Apache-2.0
 *
 * Figures of groups of rows and the gaps between them (subgroups.h).
 *
 * The ranking of a class is sorted once. The ranking of a group is a filter of it, so a group costs
 * a walk over the rows. `measure` gives the three figures of a selection of rows together with the
 * contributions of the clusters, from which the correlation of two selections follows.
 */
#include "stats/subgroups.h"

#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "stats/delong.h"

enum { AUROC = CHEX_SUBGROUP_AUROC, TPR = CHEX_SUBGROUP_SENSITIVITY, FPR = CHEX_SUBGROUP_FPR };

/* The figures of some rows. */
struct measured {
    struct chex_figure figure[CHEX_SUBGROUP_FIGURES];
    struct chex_delong delong;
    size_t positives, negatives;
    bool too_small;
    double *part[CHEX_SUBGROUP_FIGURES]; /* (clusters) contributions to each figure */
};

/* What is the same for all groups of a class. */
struct work {
    const struct chex_ranking *ranking;
    struct chex_clusters clusters;
    double threshold;                           /* NaN: none */
    const struct chex_calibration *calibration; /* of the scores that the threshold is for; NULL */
    struct measured first, second;              /* reused for every comparison */
};

static enum chex_status measured_create(struct measured *m, size_t clusters,
                                        struct chex_error *err) {
    for (int f = 0; f < CHEX_SUBGROUP_FIGURES; f++)
        if (!(m->part[f] = chex_alloc_zeroed(clusters, sizeof *m->part[f])))
            return chex_error_memory(err, "the subgroups");
    return CHEX_OK;
}

static void measured_release(struct measured *m) {
    for (int f = 0; f < CHEX_SUBGROUP_FIGURES; f++)
        free(m->part[f]);
}

/* ---- decisions ---- */

/* Rows of one cluster with one label, and how many of them are called positive. */
struct calls {
    uint32_t called, all;
};

static void count_calls(const struct work *w, const struct chex_ranking *r, bool positives,
                        struct calls *of_cluster) {
    for (size_t g = 0; g < r->tie_count; g++) {
        const struct chex_tie *t = &r->ties[g];
        const double score =
            w->calibration ? chex_calibrate(w->calibration, r->score[g]) : r->score[g];
        const size_t from = positives ? t->negatives : 0;
        const size_t count = positives ? t->positives : t->negatives;
        for (size_t i = 0; i < count; i++) {
            struct calls *c =
                &of_cluster[chex_cluster_of(&w->clusters, r->row[t->start + from + i])];
            c->all++;
            c->called += score >= w->threshold;
        }
    }
}

/* The share of the positives, or negatives, that is called positive. */
static enum chex_status measure_rate(const struct work *w, const struct chex_ranking *r,
                                     bool positives, struct chex_figure *out, double *part,
                                     struct chex_error *err) {
    CHEX_AUTO_FREE struct calls *of_cluster =
        chex_alloc_zeroed(w->clusters.count, sizeof *of_cluster);
    struct chex_proportion p = {0};
    CHEX_ALLOCATED(of_cluster, err, "%zu clusters", w->clusters.count);
    count_calls(w, r, positives, of_cluster);
    for (size_t k = 0; k < w->clusters.count; k++)
        chex_proportion_add(&p, of_cluster[k].called, of_cluster[k].all);
    *out = chex_proportion_figure(&p);
    for (size_t k = 0; k < w->clusters.count; k++)
        part[k] = p.n > 0 ? (of_cluster[k].called - out->value * of_cluster[k].all) / p.n : 0;
    return CHEX_OK;
}

/* ---- a selection of rows ---- */

static enum chex_status measure_ranking(const struct work *w, const struct chex_ranking *r,
                                        struct measured *m, struct chex_error *err) {
    CHEX_TRY(
        chex_delong(r, w->clusters.of_row, w->clusters.count, m->part[AUROC], &m->delong, err));
    m->positives = r->positives;
    m->negatives = r->negatives;
    m->too_small = m->delong.positive_clusters < CHEX_SUBGROUP_MIN_CLUSTERS ||
                   m->delong.negative_clusters < CHEX_SUBGROUP_MIN_CLUSTERS;
    m->figure[AUROC] = (struct chex_figure){m->delong.auroc, chex_delong_interval(&m->delong)};
    m->figure[TPR] = m->figure[FPR] = chex_figure_none();
    if (!isnan(w->threshold)) {
        CHEX_TRY(measure_rate(w, r, true, &m->figure[TPR], m->part[TPR], err));
        CHEX_TRY(measure_rate(w, r, false, &m->figure[FPR], m->part[FPR], err));
    }
    for (int f = 0; f < CHEX_SUBGROUP_FIGURES; f++)
        if (m->too_small || !w->clusters.intervals)
            m->figure[f].interval = chex_figure_none().interval;
    return CHEX_OK;
}

/* Measures the rows of a group, or with `rest` those of all other groups. */
static enum chex_status measure(const struct work *w, const struct chex_groups *g, int group,
                                bool rest, struct measured *m, struct chex_error *err) {
    bool keep[CHEX_GROUP_NONE + 1];
    CHEX_AUTO_RANKING struct chex_ranking *r = NULL;
    for (int i = 0; i <= CHEX_GROUP_NONE; i++)
        keep[i] = i < g->count && (i == group) != rest;
    CHEX_TRY(chex_ranking_filter(w->ranking, g->of_row, keep, &r, err));
    return measure_ranking(w, r, m, err);
}

/* ---- groups and gaps ---- */

static struct chex_figure difference(const struct work *w, int f) {
    const struct measured *a = &w->first, *b = &w->second;
    if (a->too_small || b->too_small)
        return chex_figure_none();
    return chex_gap(&a->figure[f], &b->figure[f],
                    chex_gap_correlation(a->part[f], b->part[f], w->clusters.count));
}

static enum chex_status score_group(struct work *w, const struct chex_groups *g, int group,
                                    struct chex_group_score *out, struct chex_error *err) {
    CHEX_TRY(measure(w, g, group, false, &w->first, err));
    CHEX_TRY(measure(w, g, group, true, &w->second, err));
    *out = (struct chex_group_score){.positives = w->first.positives,
                                     .negatives = w->first.negatives,
                                     .positive_clusters = w->first.delong.positive_clusters,
                                     .negative_clusters = w->first.delong.negative_clusters,
                                     .too_small = w->first.too_small};
    for (int f = 0; f < CHEX_SUBGROUP_FIGURES; f++) {
        out->figure[f] = w->first.figure[f];
        out->against_rest[f] = difference(w, f);
    }
    return CHEX_OK;
}

static enum chex_status find_gap(struct work *w, const struct chex_groups *g,
                                 const struct chex_group_score *scores, int f,
                                 struct chex_subgroup_gap *out, struct chex_error *err) {
    *out = (struct chex_subgroup_gap){-1, -1, chex_figure_none()};
    int usable = 0;
    for (int i = 0; i < g->count; i++) {
        const double value = scores[i].figure[f].value;
        if (scores[i].too_small || isnan(value))
            continue;
        usable++;
        if (out->high < 0 || value > scores[out->high].figure[f].value)
            out->high = i;
        if (out->low < 0 || value <= scores[out->low].figure[f].value)
            out->low = i; /* of equal groups the last, so that it is not the highest one */
    }
    if (usable < 2) {
        out->high = out->low = -1;
        return CHEX_OK;
    }
    CHEX_TRY(measure(w, g, out->high, false, &w->first, err));
    CHEX_TRY(measure(w, g, out->low, false, &w->second, err));
    out->gap = difference(w, f);
    return CHEX_OK;
}

static enum chex_status score_attribute(struct work *w, const struct chex_groups *g,
                                        struct chex_subgroup_class *out, struct chex_error *err) {
    for (int i = 0; i < g->count; i++)
        CHEX_TRY(score_group(w, g, i, &out->group[i], err));
    for (int f = 0; f < CHEX_SUBGROUP_FIGURES; f++)
        CHEX_TRY(find_gap(w, g, out->group, f, &out->gap[f], err));
    return CHEX_OK;
}

/* ---- all classes ---- */

struct job {
    struct chex_subgroups *s;
    const struct chex_figures *figures;
};

static enum chex_status run_class(void *arg, size_t c, int worker, struct chex_error *err) {
    const struct job *j = arg;
    const struct chex_scores *scores = j->s->scores;
    const struct chex_figures *f = j->figures;
    struct work w = {.ranking = scores->rankings[c],
                     .clusters = {scores->cluster, scores->clusters, scores->config.replicates > 0},
                     .threshold = f ? f->per_class[c].operating.threshold : NAN,
                     .calibration = f && f->calibrated ? &f->config.calibration[c] : NULL};
    (void)worker;
    enum chex_status st = measured_create(&w.first, w.clusters.count, err);
    if (st == CHEX_OK)
        st = measured_create(&w.second, w.clusters.count, err);
    for (int a = 0; st == CHEX_OK && a < j->s->count; a++)
        st = score_attribute(&w, &j->s->attribute[a].groups, &j->s->attribute[a].per_class[c], err);
    measured_release(&w.first);
    measured_release(&w.second);
    return st;
}

static enum chex_status score_classes(struct chex_subgroups *s, const struct chex_figures *figures,
                                      struct chex_error *err) {
    const size_t classes = (size_t)s->scores->classes;
    struct job job = {s, figures};
    for (size_t c = 0; figures && c < classes; c++)
        s->thresholds = s->thresholds || !isnan(figures->per_class[c].operating.threshold);
    return chex_pool_try_on(s->scores->config.pool, classes, run_class, &job, err);
}

/* ---- attributes ---- */

static void release_attribute(struct chex_subgroup_attribute *a, size_t classes) {
    for (size_t c = 0; a->per_class && c < classes; c++)
        free(a->per_class[c].group);
    free(a->per_class);
    chex_groups_release(&a->groups);
    *a = (struct chex_subgroup_attribute){0};
}

/* Adds the attribute if its groups can be compared. */
static enum chex_status add_attribute(struct chex_subgroups *s, enum chex_attribute attribute,
                                      const struct chex_subgroups_config *config,
                                      struct chex_error *err) {
    const size_t classes = (size_t)s->scores->classes;
    struct chex_subgroup_attribute *a = &s->attribute[s->count];
    a->attribute = attribute;
    enum chex_status st =
        chex_groups_create(s->scores->table, attribute, &config->bands, &a->groups, err);
    const int groups = a->groups.count;
    if (st == CHEX_OK && !groups && config->asked)
        st = chex_error_set(err, CHEX_E_DATA,
                            "--subgroups %s: no image states it, expected it in the shards or in a "
                            "column of the table",
                            chex_attribute_names[attribute]);
    const bool kept = st == CHEX_OK && groups >= (config->asked ? 1 : 2);
    if (kept && !(a->per_class = chex_alloc_zeroed(classes, sizeof *a->per_class)))
        st = chex_error_memory(err, "the subgroups");
    for (size_t c = 0; kept && st == CHEX_OK && c < classes; c++)
        if (!(a->per_class[c].group =
                  chex_alloc_zeroed((size_t)groups, sizeof *a->per_class[c].group)))
            st = chex_error_memory(err, "the subgroups");
    if (kept && st == CHEX_OK)
        s->count++;
    else
        release_attribute(a, classes);
    return st;
}

enum chex_status chex_subgroups_create(const struct chex_scores *scores,
                                       const struct chex_figures *figures,
                                       const struct chex_subgroups_config *config,
                                       struct chex_subgroups **out, struct chex_error *err) {
    struct chex_subgroups *s = chex_alloc_zeroed(1, sizeof *s);
    CHEX_ALLOCATED(s, err, "the subgroups");
    s->scores = scores;
    enum chex_status st = CHEX_OK;
    for (int a = 0; st == CHEX_OK && a < CHEX_ATTRIBUTE_COUNT; a++)
        if (config->attributes >> a & 1)
            st = add_attribute(s, (enum chex_attribute)a, config, err);
    if (st == CHEX_OK)
        st = score_classes(s, figures, err);
    if (st != CHEX_OK) {
        chex_subgroups_destroy(s);
        return st;
    }
    *out = s;
    return CHEX_OK;
}

void chex_subgroups_destroy(struct chex_subgroups *s) {
    for (int a = 0; s && a < s->count; a++)
        release_attribute(&s->attribute[a], (size_t)s->scores->classes);
    free(s);
}
