/* SPDX-License-Identifier: Apache-2.0
 *
 * Decision curves: every point by its definition, the band against sums taken anew, limits.
 */
#include "stats/net_benefit.h"

#include "../simulated_labels.h"
#include "ranking.h"
#include "tap.h"

static struct simulated_set set;
static struct chex_net_benefit curve;

static void compute(bool intervals) {
    struct chex_ranking *r = rank(set.score, set.label, set.rows);
    const struct chex_clusters k = {set.patient, set.patients, intervals};
    MUST(chex_net_benefit_create(r, &k, &curve, &err));
    chex_ranking_destroy(r);
}

/* Decisions of one kind as a proportion of all rows, patient by patient. */
static struct chex_figure share_of(double threshold, int8_t label) {
    struct chex_proportion p = {0};
    for (uint32_t k = 0; k < set.patients; k++) {
        double x = 0, n = 0;
        for (uint32_t i = 0; i < set.rows; i++)
            if (set.patient[i] == k) {
                n++;
                x += set.score[i] >= threshold && set.label[i] == label;
            }
        chex_proportion_add(&p, x, n);
    }
    return chex_proportion_figure(&p);
}

static void test_points(void) {
    labels_fill(&set, &labels_designs[3], -1.5, 300, 4, 0);
    compute(true);
    bool points = true, bands = true, all = true;
    for (int i = 0; i < curve.count; i++) {
        const struct chex_net_benefit_point *p = &curve.point[i];
        const double t = (i + 1) / 100.0, w = t / (1 - t);
        const struct chex_figure tp = share_of(t, 1), fp = share_of(t, 0);
        const struct chex_figure yes = share_of(0, 1), no = share_of(0, 0);
        const double value = tp.value - w * fp.value;
        /* The band lies between those of correlation 1 and -1. */
        const double a = tp.value - tp.interval.low, b = w * (fp.interval.high - fp.value);
        const double low = p->prediction.value - p->prediction.interval.low;
        points = points && fabs(p->prediction.value - value) < 1e-12 && p->threshold == t;
        bands = bands && low >= fabs(a - b) - 1e-12 && low <= a + b + 1e-12;
        all = all && fabs(p->treat_all.value - (yes.value - w * no.value)) < 1e-12;
    }
    OK(curve.count == 99 && points, "each point is tp / n - fp / n * t / (1 - t)");
    OK(bands, "the band combines the intervals of both proportions");
    OK(all, "treat all calls every row positive");
    OK(curve.point[0].treat_all.interval.low < curve.point[0].treat_all.value &&
           curve.point[0].treat_all.value < curve.point[0].treat_all.interval.high,
       "treat all has a band, because the share of positives is uncertain");
    compute(false);
    OK(isnan(curve.point[50].prediction.interval.low) && !isnan(curve.point[50].prediction.value),
       "without intervals there is the curve alone");
    for (uint32_t i = 0; i < set.rows; i++)
        set.patient[i] = 0;
    set.patients = 1;
    compute(true);
    OK(isnan(curve.point[5].prediction.interval.low), "one patient gives no band");
    for (uint32_t i = 0; i < set.rows; i++)
        set.label[i] = -1;
    compute(true);
    OK(curve.count == 0, "no row gives no curve");
}

int main(void) {
    test_points();
    return tap_done();
}
