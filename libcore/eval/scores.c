/* SPDX-License-Identifier: Apache-2.0 */
#include "eval/scores.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/mem.h"

const char *const chex_cluster_names[] = {"patient", "image", NULL};

static enum chex_status score_classes(struct chex_scores *s, struct chex_error *err) {
    const struct chex_predictions *t = s->table;
    double sum = 0;
    for (int c = 0; c < s->classes; c++) {
        struct chex_class_score *k = &s->per_class[c];
        enum chex_status st = chex_ranking_create(t->score + c, t->label + c, t->rows,
                                                  (size_t)t->classes, &s->rankings[c], err);
        if (st != CHEX_OK)
            return chex_error_prefix(err, st, "class %s", t->class_names[c]);
        const struct chex_ranking *r = s->rankings[c];
        *k = (struct chex_class_score){.name = t->class_names[c],
                                       .auroc = chex_ranking_auroc(r),
                                       .delong_se = sqrt(chex_ranking_delong_variance(r)),
                                       .positives = r->positives,
                                       .negatives = r->negatives,
                                       .masked = t->rows - r->count,
                                       .interval = {NAN, NAN, 0}};
        if (!isnan(k->auroc)) {
            sum += k->auroc;
            s->defined++;
        }
    }
    s->mean = s->defined ? sum / s->defined : NAN;
    return CHEX_OK;
}

/* The clusters of the rows; patients are counted where the table names them. */
static enum chex_status find_clusters(struct chex_scores *s, uint32_t *cluster, size_t *clusters,
                                      struct chex_error *err) {
    const struct chex_predictions *t = s->table;
    const bool by_patient = s->config.cluster == CHEX_CLUSTER_PATIENT && s->config.replicates;
    if (t->patient_id) {
        CHEX_TRY(chex_bootstrap_cluster((const char *const *)t->patient_id, t->rows, cluster,
                                        clusters, err));
        s->patients = *clusters;
    }
    if (by_patient && !t->patient_id)
        return chex_error_set(err, CHEX_E_DATA,
                              "no column patient_id, and intervals by patient need it: add it, or "
                              "say --cluster image");
    for (size_t i = 0; by_patient && i < t->rows; i++)
        if (!t->patient_id[i][0])
            return chex_error_set(err, CHEX_E_DATA,
                                  "image %s has no patient_id, and intervals by patient need it: "
                                  "add it, or say --cluster image",
                                  t->image_id[i]);
    if (!by_patient) {
        *clusters = t->rows;
        for (size_t i = 0; i < t->rows; i++)
            cluster[i] = (uint32_t)i;
    }
    return CHEX_OK;
}

static enum chex_status add_intervals(struct chex_scores *s, struct chex_error *err) {
    struct chex_bootstrap_config config = {s->config.replicates, s->config.seed, s->config.pool};
    struct chex_interval *intervals = chex_mem_zalloc((size_t)s->classes, sizeof *intervals);
    uint32_t *cluster = chex_mem_zalloc(s->table->rows, sizeof *cluster);
    size_t clusters = 0;
    enum chex_status st = CHEX_OK;
    if (!intervals || !cluster)
        st = chex_error_set(err, CHEX_E_RESOURCE, "out of memory for the intervals");
    if (st == CHEX_OK)
        st = find_clusters(s, cluster, &clusters, err);
    /* One cluster drawn over and over is the same sample each time: no interval, not one of 0. */
    bool drawn = config.replicates && clusters > 1;
    if (st == CHEX_OK && drawn)
        st = chex_bootstrap((const struct chex_ranking *const *)s->rankings, (size_t)s->classes,
                            cluster, clusters, &config, intervals, &s->mean_interval, NULL, err);
    for (int c = 0; c < s->classes && st == CHEX_OK && drawn; c++)
        s->per_class[c].interval = intervals[c];
    free(intervals);
    free(cluster);
    return st;
}

enum chex_status chex_scores_create(const struct chex_predictions *table,
                                    const struct chex_scores_config *config,
                                    struct chex_scores **scores_out, struct chex_error *err) {
    struct chex_scores *s = chex_mem_zalloc(1, sizeof *s);
    enum chex_status st = CHEX_OK;
    if (s) {
        s->table = table;
        s->config = *config;
        s->classes = table->classes;
        s->mean_interval = (struct chex_interval){NAN, NAN, 0};
        s->per_class = chex_mem_zalloc((size_t)s->classes, sizeof *s->per_class);
        s->rankings = chex_mem_zalloc((size_t)s->classes, sizeof *s->rankings);
    }
    if (!s || !s->per_class || !s->rankings)
        st = chex_error_set(err, CHEX_E_RESOURCE, "out of memory for %d classes", table->classes);
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
    free(s);
}
