/* SPDX-License-Identifier: Apache-2.0
 *
 * Intervals of AUROCs: the variance by its definition, the ends by their equation, limits, the mean
 * of classes, and the coverage of a few simulated designs (all of them: tests/bench/interval.c).
 */
#include "stats/delong.h"

#include "../simulated.h"
#include "ranking.h"
#include "tap.h"

static struct simulated_set set;
static double part[SIMULATED_ROWS];

static struct chex_delong delong_of(const double *score, const int8_t *label, size_t rows,
                                    const uint32_t *cluster, size_t clusters) {
    struct chex_ranking *r = rank(score, label, rows);
    struct chex_delong d;
    MUST(chex_delong(r, cluster, clusters, part, &d, &err));
    chex_ranking_destroy(r);
    return d;
}

static struct chex_delong delong_of_set(void) {
    return delong_of(set.score, set.label, set.rows, set.patient, set.patients);
}

static void test_student_t(void) {
    static const struct {
        double df, t;
    } known[] = {{1, 12.7062047362}, {2, 4.3026527297},  {4, 2.7764451052},
                 {5, 2.5705818366},  {30, 2.0422724563}, {1e7, 1.9599639845}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        OK(fabs(chex_student_t(known[i].df) - known[i].t) < 1e-9,
           "Student's t with %g degrees of freedom: %.9f", known[i].df,
           chex_student_t(known[i].df));
}

/* Pairs counted one by one; each patient's deviations of positives and of negatives added up.
 * *obuchowski_out: S10 / m + S01 / n + 2 S11 / (m n) of her paper. */
static double variance_by_definition(double auroc, double *obuchowski_out) {
    double s10 = 0, s01 = 0, s11 = 0, I = 0;
    double variance = 0, positives = 0, negatives = 0, with_positive = 0, with_negative = 0;
    static double of_positives[SIMULATED_ROWS], of_negatives[SIMULATED_ROWS];
    static int has[SIMULATED_ROWS];
    for (uint32_t i = 0; i < set.rows; i++)
        *(set.label[i] ? &positives : &negatives) += 1;
    for (uint32_t k = 0; k < set.patients; k++)
        of_positives[k] = of_negatives[k] = has[k] = 0;
    for (uint32_t i = 0; i < set.rows; i++) {
        double right = 0;
        for (uint32_t j = 0; j < set.rows; j++)
            if (set.label[i] != set.label[j]) {
                const double more =
                    set.label[i] ? set.score[i] - set.score[j] : set.score[j] - set.score[i];
                right += more > 0 ? 1 : more == 0 ? 0.5 : 0;
            }
        has[set.patient[i]] |= set.label[i] ? 1 : 2;
        if (set.label[i])
            of_positives[set.patient[i]] += (right / negatives - auroc) / positives;
        else
            of_negatives[set.patient[i]] += (right / positives - auroc) / negatives;
    }
    for (uint32_t k = 0; k < set.patients; k++) {
        with_positive += has[k] & 1;
        with_negative += has[k] >> 1;
    }
    for (uint32_t k = 0; k < set.patients; k++) {
        I += has[k] > 0;
        s10 += pow(of_positives[k] * positives, 2);
        s01 += pow(of_negatives[k] * negatives, 2);
        s11 += of_positives[k] * positives * of_negatives[k] * negatives;
    }
    s10 *= with_positive / ((with_positive - 1) * positives);
    s01 *= with_negative / ((with_negative - 1) * negatives);
    *obuchowski_out =
        s10 / positives + s01 / negatives + 2 * s11 * I / (I - 1) / (positives * negatives);
    for (uint32_t k = 0; k < set.patients; k++)
        variance += pow(sqrt(with_positive / (with_positive - 1)) * of_positives[k] +
                            sqrt(with_negative / (with_negative - 1)) * of_negatives[k],
                        2);
    return variance;
}

static void test_variance(void) {
    for (uint32_t positives = 2; positives <= 20; positives += 9) {
        simulated_fill(&set, &simulated_designs[4], 0.8, positives, 60, 3, positives);
        for (uint32_t i = 0; i < set.rows; i++)
            set.score[i] = floor(2 * set.score[i]); /* with ties */
        const struct chex_delong d = delong_of_set();
        double sum = 0, obuchowski;
        const double want = variance_by_definition(d.auroc, &obuchowski);
        const struct chex_interval i = chex_delong_logit_interval(&d);
        const double odds = d.auroc / (1 - d.auroc);
        const double reach = exp(1.959963984540054 * sqrt(obuchowski) / (d.auroc * (1 - d.auroc)));
        OK(fabs(d.obuchowski - obuchowski) < 1e-14 && obuchowski != want &&
               fabs(i.low - odds / reach / (1 + odds / reach)) < 1e-12 &&
               fabs(i.high - odds * reach / (1 + odds * reach)) < 1e-12,
           "%u positive patients: the interval on the scale of the logit is Obuchowski's",
           positives);
        for (uint32_t k = 0; k < set.patients; k++)
            sum += part[k] * part[k];
        OK(fabs(d.variance - want) < 1e-14 && fabs(sum - want) < 1e-14 &&
               d.positive_clusters == positives,
           "%u positive patients: the variance %.6f by its definition", positives, want);
    }
}

/* Every image twice: patients are as many as before, images are not. */
static void test_copies(void) {
    simulated_fill(&set, &simulated_designs[0], 0.8, 12, 100, 3, 1);
    const struct chex_delong once = delong_of_set();
    const uint32_t n = set.rows;
    for (uint32_t i = 0; i < n; i++) {
        set.score[n + i] = set.score[i];
        set.label[n + i] = set.label[i];
        set.patient[n + i] = set.patient[i];
    }
    set.rows = 2 * n;
    const struct chex_delong twice = delong_of_set();
    OK(fabs(once.variance - twice.variance) < 1e-15 && once.auroc == twice.auroc,
       "each image twice: the variance by patient is the same");
    const struct chex_delong by_image = delong_of(set.score, set.label, set.rows, NULL, set.rows);
    OK(by_image.variance < 0.55 * once.variance, "and by image it is half");
}

/* Both ends lie where the distance is a fixed multiple of the model's standard error. */
static void test_equation(void) {
    int wrong = 0;
    for (uint32_t trial = 0; trial < 200; trial++) {
        simulated_fill(&set, &simulated_designs[trial % SIMULATED_DESIGNS], 0.9, 2 + trial % 20, 80,
                       4, trial);
        const struct chex_delong d = delong_of_set();
        const struct chex_interval i = chex_delong_interval(&d);
        wrong += !(i.low >= 0 && i.low <= d.auroc && d.auroc <= i.high && i.high <= 1);
        wrong += !(i.low < i.high);
    }
    OK(wrong == 0, "200 intervals hold their AUROC, have a width and stay within 0 and 1");
}

static void test_limits(void) {
    static const double score[] = {1, 2, 3, 4, 5, 6};
    static const int8_t label[] = {0, 0, 0, 0, 1, 1}, turned[] = {1, 1, 0, 0, 0, 0};
    static const uint32_t one[] = {0, 1, 2, 3, 4, 4}, two[] = {0, 1, 2, 3, 4, 5};
    struct chex_delong d = delong_of(score, label, 6, two, 6);
    const struct chex_interval best = chex_delong_interval(&d);
    OK(d.auroc == 1 && best.high == 1 && best.low > 0.2 && best.low < 0.6,
       "perfect separation by two positives: %.3f to 1", best.low);
    d = delong_of(score, turned, 6, two, 6);
    const struct chex_interval worst = chex_delong_interval(&d);
    OK(d.auroc == 0 && worst.low == 0 && fabs(worst.high - (1 - best.low)) < 1e-12,
       "the other way round: the mirror image");
    d = delong_of(score, label, 6, one, 5);
    const struct chex_interval none = chex_delong_interval(&d);
    OK(d.positive_clusters == 1 && isnan(d.variance) && isnan(none.low) && isnan(none.high),
       "two positives of one patient have no interval");
    static const double equal[6] = {0};
    d = delong_of(equal, label, 6, two, 6);
    const struct chex_interval chance = chex_delong_interval(&d);
    OK(d.auroc == 0.5 && chance.low > 0 && chance.low < 0.3 && chance.high > 0.7,
       "equal scores: 0.5, from %.3f to %.3f", chance.low, chance.high);
    static const int8_t empty[6] = {0};
    d = delong_of(score, empty, 6, two, 6);
    OK(isnan(chex_delong_interval(&d).low) && d.positive_clusters == 0 && d.negative_clusters == 6,
       "no positive: no interval");
}

/* With many positives the interval is the textbook's. */
static void test_many(void) {
    simulated_fill(&set, &simulated_designs[0], 0.8, 1500, 1500, 5, 0);
    const struct chex_delong d = delong_of_set();
    const struct chex_interval i = chex_delong_interval(&d);
    const double reach = 1.96 * sqrt(d.variance);
    OK(fabs(d.auroc - i.low - reach) < 0.05 * reach &&
           fabs(i.high - d.auroc - reach) < 0.05 * reach,
       "1,500 positives: %.4f to %.4f, DeLong's %.4f to %.4f", i.low, i.high, d.auroc - reach,
       d.auroc + reach);
}

static struct chex_interval mean_of(int classes, bool alike) {
    struct chex_delong_mean mean;
    MUST(chex_delong_mean_create(&mean, SIMULATED_ROWS, &err));
    for (int c = 0; c < classes; c++) {
        simulated_fill(&set, &simulated_designs[0], 0.8, 50, 500, 6, alike ? 0 : (uint32_t)c);
        const struct chex_delong d = delong_of_set();
        const struct chex_interval i = chex_delong_interval(&d);
        chex_delong_mean_add(&mean, &d, &i, part);
    }
    const struct chex_interval i = chex_delong_mean_interval(&mean);
    chex_delong_mean_release(&mean);
    return i;
}

static void test_mean(void) {
    const struct chex_interval one = mean_of(1, true), same = mean_of(5, true),
                               other = mean_of(5, false), none = mean_of(0, false);
    OK(fabs(one.low - same.low) < 1e-12 && fabs(one.high - same.high) < 1e-12,
       "the mean of five equal classes is as uncertain as one of them");
    const double share = (other.high - other.low) / (one.high - one.low);
    struct chex_delong_mean m;
    simulated_fill(&set, &simulated_designs[0], 0.8, 50, 500, 6, 0);
    MUST(chex_delong_mean_create(&m, set.patients, &err));
    const struct chex_delong d = delong_of_set();
    const struct chex_interval se = chex_delong_one_se(&d), logit = chex_delong_logit_interval(&d);
    for (int c = 0; c < 5; c++)
        chex_delong_mean_add(&m, &d, &se, part);
    const struct chex_interval i = chex_delong_mean_logit_interval(&m);
    chex_delong_mean_release(&m);
    OK(fabs(i.low - logit.low) < 1e-12 && fabs(i.high - logit.high) < 1e-12,
       "the logit interval of a mean of equal classes is that of one of them");
    OK(share > 0.4 && share < 0.7, "of five independent ones less: %.2f of it", share);
    OK(isnan(none.low), "of no class: no interval");
}

/* 1,500 trials: a measured coverage of 95 % varies by 0.6, so 93 less three of these is 91. */
static void test_coverage(void) {
    static const struct {
        int design;
        uint32_t positives;
        double auroc;
    } cells[] = {{0, 2, 0.8},   {1, 3, 0.95}, {4, 5, 0.6},
                 {4, 10, 0.95}, {4, 30, 0.8}, {3, 100, 0.8}};
    enum { TRIALS = TAP_SLOW_BUILD ? 300 : 1500 };
    for (size_t c = 0; c < sizeof cells / sizeof cells[0]; c++) {
        int resident = 0;
        for (uint32_t t = 0; t < TRIALS; t++) {
            simulated_fill(&set, &simulated_designs[cells[c].design], cells[c].auroc,
                           cells[c].positives, 300, 7, t);
            const struct chex_delong d = delong_of_set();
            const struct chex_interval i = chex_delong_interval(&d);
            resident += i.low <= cells[c].auroc && cells[c].auroc <= i.high;
        }
        const double coverage = 100.0 * resident / TRIALS, slack = TAP_SLOW_BUILD ? 3 : 0;
        OK(coverage > 91 - slack && coverage < 99.5,
           "%u positive patients, AUROC %.2f, %s: the interval holds it in %.1f %%",
           cells[c].positives, cells[c].auroc, simulated_designs[cells[c].design].name, coverage);
    }
}

int main(void) {
    test_student_t();
    test_variance();
    test_copies();
    test_equation();
    test_limits();
    test_many();
    test_mean();
    test_coverage();
    return tap_done();
}
