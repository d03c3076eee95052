/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares the figures of several sets (external.h).
 */
#include "stats/external.h"

#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "stats/delong.h"

static void fill_cell(const struct chex_external_set *set, int c, struct chex_external_cell *cell) {
    const struct chex_class_score *score = &set->scores->per_class[c];
    const struct chex_class_figures *f = &set->figures->per_class[c];
    cell->figure[CHEX_EXTERNAL_AUROC] = (struct chex_figure){score->auroc, score->interval};
    cell->figure[CHEX_EXTERNAL_SENSITIVITY] = f->operating.sensitivity;
    cell->figure[CHEX_EXTERNAL_SPECIFICITY] = f->operating.specificity;
    cell->figure[CHEX_EXTERNAL_SLOPE] = f->calibration.slope;
    cell->figure[CHEX_EXTERNAL_INTERCEPT] = f->calibration.intercept;
}

static void compare_cells(const struct chex_external_cell *first, struct chex_external_cell *own) {
    for (int f = 0; f < CHEX_EXTERNAL_FIGURES; f++)
        own->drop[f] =
            first == own ? chex_figure_none() : chex_gap(&first->figure[f], &own->figure[f], 0);
}

/* The mean AUROC of a set over the classes that it shares with the first set. */
static enum chex_status mean_of(const struct chex_external *x, int own, int set,
                                struct chex_figure *out, int *classes_out, struct chex_error *err) {
    const struct chex_scores *s = x->set[set].scores;
    CHEX_AUTO_DELONG_MEAN struct chex_delong_mean mean = {0};
    CHEX_AUTO_FREE double *part = chex_alloc_zeroed(s->clusters, sizeof *part);
    CHEX_ALLOCATED(part, err, "%zu clusters", s->clusters);
    CHEX_TRY(chex_delong_mean_create(&mean, s->clusters, err));
    for (int c = 0; c < x->classes; c++) {
        struct chex_delong d;
        if (isnan(x->set[0].scores->per_class[c].auroc) ||
            isnan(x->set[own].scores->per_class[c].auroc))
            continue;
        CHEX_TRY(chex_delong(s->rankings[c], s->cluster, s->clusters, part, &d, err));
        chex_scores_add(s->config.method, &d, part, &mean);
    }
    *out = chex_figure_none();
    *classes_out = (int)mean.classes;
    if (mean.classes)
        out->value = mean.auroc / (double)mean.classes;
    if (s->config.replicates)
        out->interval = chex_scores_mean_interval(s->config.method, &mean);
    return CHEX_OK;
}

static enum chex_status fill_mean(struct chex_external *x, int set, struct chex_error *err) {
    struct chex_external_mean *m = &x->mean[set];
    CHEX_TRY(mean_of(x, set, 0, &m->first, &m->classes, err));
    CHEX_TRY(mean_of(x, set, set, &m->own, &m->classes, err));
    m->drop = set ? chex_gap(&m->first, &m->own, 0) : chex_figure_none();
    return CHEX_OK;
}

enum chex_status chex_external_create(const struct chex_external_set *sets, int count,
                                      struct chex_external **out, struct chex_error *err) {
    const size_t classes = (size_t)sets[0].scores->classes;
    struct chex_external *x = chex_alloc_zeroed(1, sizeof *x);
    CHEX_ALLOCATED(x, err, "%d sets", count);
    *x = (struct chex_external){.sets = count,
                                .classes = (int)classes,
                                .set = sets,
                                .cell = chex_alloc_zeroed(classes * (size_t)count, sizeof *x->cell),
                                .mean = chex_alloc_zeroed((size_t)count, sizeof *x->mean)};
    enum chex_status st = x->cell && x->mean ? CHEX_OK : chex_error_memory(err, "%d sets", count);
    for (int c = 0; st == CHEX_OK && c < x->classes; c++) {
        struct chex_external_cell *row = &x->cell[c * count];
        for (int k = 0; k < count; k++)
            fill_cell(&sets[k], c, &row[k]);
        for (int k = 0; k < count; k++)
            compare_cells(&row[0], &row[k]);
    }
    for (int k = 0; st == CHEX_OK && k < count; k++)
        st = fill_mean(x, k, err);
    if (st == CHEX_OK)
        *out = x;
    else
        chex_external_destroy(x);
    return st;
}

void chex_external_destroy(struct chex_external *x) {
    if (!x)
        return;
    free(x->cell);
    free(x->mean);
    free(x);
}
