/* SPDX-License-Identifier: Apache-2.0
 *
 * Paired comparisons: the variance by its definition, limits, Holm's correction, the join of two
 * tables, and type-I errors and coverage of a few simulated designs (all of them:
 * tests/bench/difference.c). tests/tools/compare_auroc.py recomputes all figures.
 */
#include "stats/paired.h"

#include "../simulated.h"
#include "ranking.h"
#include "stats/difference.h"
#include "tap.h"

static struct simulated_pair pair;
static double part[SIMULATED_ROWS], parts[2][SIMULATED_ROWS];

static struct chex_difference difference_of(const double *a, const double *b, const int8_t *label,
                                            size_t rows, const uint32_t *cluster, size_t clusters) {
    struct chex_difference d;
    struct chex_ranking *first = rank(a, label, rows), *second = rank(b, label, rows);
    MUST(chex_difference(first, second, cluster, clusters, part, &d, &err));
    chex_ranking_destroy(first);
    chex_ranking_destroy(second);
    return d;
}

static struct chex_difference difference_of_pair(void) {
    const struct simulated_set *s = &pair.first;
    return difference_of(s->score, pair.second, s->label, s->rows, s->patient, s->patients);
}

/* The variance is that of both AUROCs less twice their covariance. */
static void test_variance(void) {
    static const double auroc[] = {0.8, 0.75};
    const struct simulated_set *s = &pair.first;
    simulated_fill_pair(&pair, &simulated_designs[4], auroc, 0.7, 12, 80, 3, 1);
    const double *const scores[] = {s->score, pair.second};
    struct chex_delong d[2];
    for (int i = 0; i < 2; i++) {
        struct chex_ranking *r = rank(scores[i], s->label, s->rows);
        MUST(chex_delong(r, s->patient, s->patients, parts[i], &d[i], &err));
        chex_ranking_destroy(r);
    }
    const struct chex_difference both = difference_of_pair();
    double covariance = 0, sum = 0;
    for (uint32_t k = 0; k < s->patients; k++) {
        covariance += parts[0][k] * parts[1][k];
        sum += part[k] * part[k];
    }
    OK(fabs(both.variance - (d[0].variance + d[1].variance - 2 * covariance)) < 1e-16 &&
           fabs(both.variance - sum) < 1e-16 && both.value == d[0].auroc - d[1].auroc,
       "the variance of a difference has DeLong's covariance: %.6f", both.variance);
}

static void test_consistency(void) {
    int wrong = 0;
    for (uint32_t trial = 0; trial < 200; trial++) {
        const double auroc[] = {0.9, trial % 2 ? 0.9 : 0.7};
        simulated_fill_pair(&pair, &simulated_designs[trial % SIMULATED_DESIGNS], auroc, 0.5,
                            2 + trial % 30, 80, 4, trial);
        const struct simulated_set *s = &pair.first;
        const struct chex_difference d = difference_of_pair();
        const struct chex_difference back =
            difference_of(pair.second, s->score, s->label, s->rows, s->patient, s->patients);
        wrong += (d.p_value < 0.05) != (d.interval.low > 0 || d.interval.high < 0);
        wrong += !(d.interval.low <= d.value && d.value <= d.interval.high);
        wrong += !(d.interval.low >= -1 && d.interval.high <= 1);
        wrong += fabs(d.value + back.value) > 0 || fabs(d.p_value - back.p_value) > 1e-12 ||
                 fabs(d.interval.low + back.interval.high) > 1e-12;
    }
    OK(wrong == 0, "200 comparisons: p is below 0.05 where the interval excludes 0, and the "
                   "exchanged models give the negative difference");
}

static void test_limits(void) {
    static const double score[] = {1, 2, 3, 4, 5, 6}, other[] = {2, 1, 3, 4, 6, 5},
                        scaled[] = {-1, 0, 4, 5, 7, 9};
    static const int8_t label[] = {0, 0, 0, 0, 1, 1}, empty[6] = {0};
    static const uint32_t one[] = {0, 1, 2, 3, 4, 4}, two[] = {0, 1, 2, 3, 4, 5};
    struct chex_difference d = difference_of(score, scaled, label, 6, two, 6);
    OK(d.value == 0 && d.p_value == 1 && d.interval.low == 0 && d.interval.high == 0,
       "models that order the images alike differ by 0, with p 1");
    d = difference_of(score, other, label, 6, two, 6);
    OK(d.value == 0 && d.p_value == 1 && d.df == 0 && d.interval.low < -0.2 &&
           fabs(d.interval.low + d.interval.high) < 1e-12,
       "two perfect models in another order: 0, from %.3f to %.3f", d.interval.low,
       d.interval.high);
    d = difference_of(score, other, label, 6, one, 5);
    OK(d.value == 0 && isnan(d.p_value) && isnan(d.interval.low) && isnan(d.variance),
       "two positives of one patient give no test");
    d = difference_of(score, other, empty, 6, two, 6);
    OK(isnan(d.value) && isnan(d.p_value), "without positives nothing is defined");
    const struct chex_interval i = {-0.01, 0.05, 0};
    OK(fabs(chex_difference_p_of_interval(0.02, &i) -
            chex_student_p(1.959963984540054 * 2 / 3, 1e9)) < 1e-12,
       "the p value of an interval is that of a normal value");
    OK(fabs(chex_student_p(2.0930240544, 19) - 0.05) < 1e-10 &&
           fabs(chex_student_p(-1.96, INFINITY) - 0.04999579) < 1e-8,
       "the two-sided p values of Student's t");
}

static void test_holm(void) {
    static const double p[] = {0.01, NAN, 0.04, 0.03, 0.005},
                        want[] = {0.03, NAN, 0.06, 0.06, 0.02};
    double got[5];
    size_t tests;
    MUST(chex_difference_holm(p, 5, got, &tests, &err));
    bool same = isnan(got[1]);
    for (int i = 0; i < 5; i++)
        same = same && (i == 1 || fabs(got[i] - want[i]) < 1e-15);
    OK(tests == 4 && same, "Holm's correction of four tests; an undefined one does not count");
}

/* 1,500 trials: a measured coverage of 95 % varies by 0.6 and an error of 5 % too. */
static void test_simulated(void) {
    static const struct {
        int design;
        uint32_t positives;
        double auroc[2];
    } cells[] = {{0, 20, {0.8, 0.8}},  {4, 20, {0.7, 0.7}},   {5, 50, {0.95, 0.95}},
                 {3, 20, {0.85, 0.8}}, {1, 30, {0.97, 0.93}}, {3, 5, {0.85, 0.8}}};
    enum { TRIALS = TAP_SLOW_BUILD ? 300 : 1500 };
    for (size_t c = 0; c < sizeof cells / sizeof cells[0]; c++) {
        const double *auroc = cells[c].auroc, truth = auroc[0] - auroc[1];
        int held = 0;
        for (uint32_t t = 0; t < TRIALS; t++) {
            simulated_fill_pair(&pair, &simulated_designs[cells[c].design], auroc, 0.7,
                                cells[c].positives, 300, 7, t);
            const struct chex_difference d = difference_of_pair();
            held += d.interval.low <= truth && truth <= d.interval.high;
        }
        const double coverage = 100.0 * held / TRIALS, slack = TAP_SLOW_BUILD ? 3 : 0;
        OK(coverage > 92 - slack && coverage < (cells[c].positives < 20 ? 99.5 : 97.5) + slack,
           "%u positive patients, AUROCs %.2f and %.2f, %s: the interval holds the difference in "
           "%.1f %%",
           cells[c].positives, auroc[0], auroc[1], simulated_designs[cells[c].design].name,
           coverage);
    }
}

/* ---- tables ---- */

static struct chex_predictions *table(size_t rows, const char *const *names, int classes,
                                      size_t shift) {
    struct chex_predictions *p = NULL;
    MUST(chex_predictions_create(rows, classes, names, &p, &err));
    for (size_t i = 0; i < rows; i++) {
        const size_t image = (i + shift) * 7 % 101; /* another order in each table */
        char id[16];
        snprintf(id, sizeof id, "i%zu", image);
        p->image_id[i] = strdup(id);
        snprintf(id, sizeof id, "p%zu", image / 2);
        p->patient_id[i] = strdup(id);
        for (int c = 0; c < classes; c++) {
            const bool mass = strcmp(names[c], "Mass") == 0;
            p->label[i * (size_t)classes + (size_t)c] = (image + mass) % 4 == 0;
            p->score[i * (size_t)classes + (size_t)c] = (double)((image * 37 + shift) % 89);
        }
    }
    return p;
}

static void test_join(void) {
    static const char *const first[] = {"Mass", "Edema", "Hernia"}, *const second[] = {"Edema",
                                                                                       "Mass"};
    static const char *const names[] = {"a.csv", "b.csv"};
    struct chex_predictions *a = table(60, first, 3, 0), *b = table(80, second, 2, 20);
    const struct chex_predictions *const tables[] = {a, b};
    const struct chex_paired_config config = {.replicates = 200, .seed = 1, .margin = 0.3};
    struct chex_paired *p = NULL;
    OK_CALL(chex_paired_create(tables, names, &config, &p, &err));
    OK(p->joined == 40 && p->left_out[0] == 20 && p->left_out[1] == 40 && p->classes == 2,
       "40 images and two findings are in both tables");
    OK(p->missing_count[0] == 1 && strcmp(p->missing[0][0], "Hernia") == 0 && !p->missing_count[1],
       "the finding of one table only is listed");
    OK(strcmp(p->per_class[0].name, "Mass") == 0 && p->per_class[0].positives &&
           p->per_class[0].bootstrap.low < p->per_class[0].difference &&
           p->per_class[0].difference < p->per_class[0].bootstrap.high,
       "findings are in the order of the first table, with bootstrap intervals");
    chex_paired_destroy(p);
    b->label[0] = b->label[0] < 0 ? 0 : (int8_t)!b->label[0];
    struct chex_paired_config none = config;
    none.cluster = CHEX_CLUSTER_IMAGE;
    OK_STATUS(chex_paired_create(tables, names, &none, &p, &err), CHEX_E_DATA, err,
              "only equal labels can be compared");
    chex_predictions_destroy(a);
    chex_predictions_destroy(b);
}

int main(void) {
    test_variance();
    test_consistency();
    test_limits();
    test_holm();
    test_simulated();
    test_join();
    return tap_done();
}
