/* SPDX-License-Identifier: Apache-2.0
 *
 * Average precision: by its definition, its variance against the jackknife, limits, the curve.
 */
#include "stats/precision_recall.h"

#include "../simulated_labels.h"
#include "ranking.h"
#include "tap.h"

static struct simulated_set set;

static struct chex_figure figure_of(const struct chex_ranking *r, const uint32_t *patient,
                                    size_t patients) {
    const struct chex_clusters k = {patient, patients, true};
    struct chex_figure f;
    MUST(chex_average_precision(r, &k, &f, &err));
    return f;
}

/* The mean over the positives of the precision at their score; rows of patient `without` do not
 * count. */
static double by_definition(uint32_t without) {
    double sum = 0, positives = 0;
    for (uint32_t i = 0; i < set.rows; i++) {
        double tp = 0, called = 0;
        if (!set.label[i] || set.patient[i] == without)
            continue;
        for (uint32_t j = 0; j < set.rows; j++)
            if (set.patient[j] != without && set.score[j] >= set.score[i]) {
                tp += set.label[j];
                called++;
            }
        sum += tp / called;
        positives++;
    }
    return sum / positives;
}

static void test_definition(void) {
    int equal = 0;
    for (uint32_t trial = 0; trial < 20; trial++) {
        labels_fill(&set, &labels_designs[2], -1, 200, 1, trial);
        for (uint32_t i = 0; trial % 2 && i < set.rows; i++)
            set.score[i] = floor(set.score[i] * 10) / 10; /* ties */
        struct chex_ranking *r = rank(set.score, set.label, set.rows);
        const double value = figure_of(r, set.patient, set.patients).value;
        equal += fabs(value - by_definition(UINT32_MAX)) < 1e-12;
        chex_ranking_destroy(r);
    }
    OK(equal == 20, "average precision is by its definition, with ties too (%d of 20)", equal);
}

static void test_variance(void) {
    labels_fill(&set, &labels_designs[2], -1.5, 400, 2, 0);
    struct chex_ranking *r = rank(set.score, set.label, set.rows);
    const struct chex_figure f = figure_of(r, set.patient, set.patients);
    double mean = 0, square = 0;
    const double K = set.patients;
    for (uint32_t k = 0; k < set.patients; k++) {
        const double without = by_definition(k);
        mean += without / K;
        square += without * without / K;
    }
    const double jackknife = sqrt((K - 1) * (square - mean * mean));
    const double logit =
        log(f.interval.high / (1 - f.interval.high)) - log(f.interval.low / (1 - f.interval.low));
    const double half = jackknife / (f.value * (1 - f.value)) * 1.96;
    OK(logit / 2 > 0.85 * half && logit / 2 < 1.3 * half,
       "the interval has the width of the jackknife by patient (%.3f, %.3f)", logit / 2, half);
    chex_ranking_destroy(r);
}

/* The figure of 40 rows, each its own patient. */
static struct chex_figure of_rows(const double *s, const int8_t *y) {
    struct chex_ranking *r = rank(s, y, 40);
    const struct chex_figure f = figure_of(r, NULL, 40);
    chex_ranking_destroy(r);
    return f;
}

static void test_limits(void) {
    double s[40];
    int8_t y[40] = {0};
    for (int i = 0; i < 40; i++)
        s[i] = i;
    OK(isnan(of_rows(s, y).value), "without positives there is no average precision");
    for (int i = 0; i < 9; i++)
        y[4 * i + 3] = 1;
    const struct chex_figure few = of_rows(s, y);
    OK(few.value > 0 && isnan(few.interval.low),
       "nine positive patients are too few for an interval");
    y[0] = 1;
    OK(of_rows(s, y).interval.low > 0, "ten are enough");
    for (int i = 0; i < 40; i++)
        y[i] = i >= 20;
    const struct chex_figure best = of_rows(s, y);
    OK(best.value == 1 && isnan(best.interval.low), "perfect separation has no false interval");
    y[0] = 1;
    const struct chex_figure one_wrong = of_rows(s, y);
    OK(one_wrong.value > 0.9 && one_wrong.value < 1 && isnan(one_wrong.interval.low),
       "no interval of an average precision that one positive decides (%g)", one_wrong.value);
}

static void test_curve(void) {
    const double s[] = {0.1, 0.4, 0.4, 0.8};
    const int8_t y[] = {0, 0, 1, 1};
    struct chex_precision_recall *p = NULL;
    struct chex_ranking *r = rank(s, y, 4);
    MUST(chex_precision_recall_create(r, &p, &err));
    OK(p->count == 3 && p->precision[0] == 1 && p->recall[0] == 0.5 && p->precision[1] == 2.0 / 3 &&
           p->recall[1] == 1 && p->precision[2] == 0.5,
       "the curve has a point for each score, by decreasing threshold");
    chex_precision_recall_destroy(p);
    chex_ranking_destroy(r);
}

int main(void) {
    test_definition();
    test_variance();
    test_limits();
    test_curve();
    return tap_done();
}
