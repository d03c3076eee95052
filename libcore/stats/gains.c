/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares an ensemble with each of its members (gains.h).
 */
#include "stats/gains.h"

#include <math.h>

#include "base/alloc.h"
#include "stats/paired.h"

/* Compares with member m. over_best is the gain over the best member so far. */
static enum chex_status compare(struct chex_gains *g, const struct chex_predictions *const both[2],
                                const struct chex_paired_config *config, int m,
                                struct chex_error *err) {
    static const char *const names[] = {"the ensemble", "a member"};
    struct chex_paired *p = NULL;
    CHEX_TRY(chex_paired_create(both, names, config, &p, err));
    const bool best = m == 0 || p->mean.auroc[1] > g->gain[g->classes].member_auroc[g->best];
    for (int c = 0; c <= g->classes; c++) {
        const struct chex_paired_class *k = c < g->classes ? &p->per_class[c] : &p->mean;
        g->gain[c].member_auroc[m] = k->auroc[1];
        if (best)
            g->gain[c].over_best = (struct chex_figure){k->difference, k->interval};
    }
    g->best = best ? m : g->best;
    chex_paired_destroy(p);
    return CHEX_OK;
}

static double variation(const struct chex_predictions *const *table, int members, int c,
                        double *score) {
    const size_t rows = table[0]->rows, classes = (size_t)table[0]->classes;
    double sum = 0;
    for (size_t i = 0; i < rows; i++) {
        for (int m = 0; m < members; m++)
            score[m] = table[m]->score[i * classes + (size_t)c];
        const struct chex_spread spread = chex_spread_of(score, members, 1);
        sum += spread.mean > 0 ? spread.sd / spread.mean / (double)rows : 0;
    }
    return sum;
}

static enum chex_status fill(struct chex_gains *g, const struct chex_scores *s,
                             const struct chex_predictions *const *table,
                             struct chex_delong_mean *means, struct chex_error *err) {
    const struct chex_paired_config config = {
        .cluster = s->config.cluster, .margin = NAN, .means = means};
    enum chex_status st = CHEX_OK;
    for (int c = 0; st == CHEX_OK && c <= g->classes; c++) {
        st = chex_delong_mean_create(&means[c], s->clusters, err);
        means[c].least = -1;
    }
    for (int c = 0; c < g->classes; c++) {
        g->gain[c].variation = variation(table, g->members, c, g->gain[c].member_auroc);
        g->gain[g->classes].variation += g->gain[c].variation / g->classes;
    }
    for (int m = 0; st == CHEX_OK && m < g->members; m++)
        st = compare(g, (const struct chex_predictions *const[]){s->table, table[m]}, &config, m,
                     err);
    for (int c = 0; c <= g->classes; c++) {
        if (st == CHEX_OK)
            g->gain[c].over_mean = (struct chex_figure){means[c].auroc / (double)means[c].classes,
                                                        chex_delong_mean_interval(&means[c])};
        chex_delong_mean_release(&means[c]);
    }
    return st;
}

enum chex_status chex_gains_create(const struct chex_scores *scores,
                                   const struct chex_predictions *const *table, int members,
                                   struct chex_gains **gains_out, struct chex_error *err) {
    const size_t count = (size_t)scores->classes + 1;
    struct chex_gains *g = chex_alloc_zeroed(
        1, sizeof *g + count * (sizeof *g->gain + (size_t)members * sizeof(double)));
    CHEX_AUTO_FREE struct chex_delong_mean *means = chex_alloc_zeroed(count, sizeof *means);
    if (!(*gains_out = g) || !means)
        return chex_error_memory(err, "%d members", members);
    *g = (struct chex_gains){members, scores->classes, 0, (struct chex_gain *)(g + 1)};
    for (size_t c = 0; c < count; c++)
        g->gain[c].member_auroc = (double *)(g->gain + count) + c * (size_t)members;
    return fill(g, scores, table, means, err);
}
