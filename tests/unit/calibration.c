/* SPDX-License-Identifier: Apache-2.0
 *
 * Calibration: figures by their definition, regression at its maximum, separation, probabilities of
 * 0 and 1, recalibration, and coverage of the intervals in one simulated design (all of them:
 * tests/bench/figures.c).
 */
#include "stats/calibration.h"

#include "../simulated_labels.h"
#include "ranking.h"
#include "stats/logistic.h"
#include "tap.h"

static struct simulated_set set;

static struct chex_calibration_figures figures_of(const struct chex_ranking *r,
                                                  const uint32_t *patient, size_t patients) {
    static struct chex_calibration_figures f;
    const struct chex_clusters k = {patient, patients, true};
    MUST(chex_calibration_create(r, &k, &f, &err));
    return f;
}

static void test_figures(void) {
    labels_fill(&set, &labels_designs[3], -1, 1000, 5, 0);
    struct chex_ranking *r = rank(set.score, set.label, set.rows);
    const struct chex_calibration_figures f = figures_of(r, set.patient, set.patients);
    double brier = 0, by_intercept = 0, by_slope = 0, large = 0, rows = 0, ece = 0, counted = 0;
    for (uint32_t i = 0; i < set.rows; i++) {
        const double p = set.score[i], x = log(p / (1 - p)), y = set.label[i];
        brier += (p - y) * (p - y) / set.rows;
        by_intercept += y - labels_sigmoid(f.slope.value * x + f.intercept.value);
        by_slope += x * (y - labels_sigmoid(f.slope.value * x + f.intercept.value));
        large += y - labels_sigmoid(x + f.in_the_large.value);
    }
    OK(fabs(brier - f.brier.value) < 1e-12, "the Brier score is the mean square");
    OK(fabs(by_intercept) < 1e-7 && fabs(by_slope) < 1e-7,
       "slope and intercept are where the likelihood is greatest");
    OK(fabs(large) < 1e-7, "calibration in the large makes the mean probability right");
    for (int b = 0; b < f.reliability.bins; b++) {
        const struct chex_reliability_bin *bin = &f.reliability.bin[b];
        rows += bin->count;
        ece += bin->count * fabs(bin->observed.value - bin->predicted) / set.rows;
    }
    OK(f.reliability.bins == 10 && fabs(rows - set.rows) < 1e-9 &&
           fabs(f.reliability.bin[0].count - set.rows / 10.0) < 1e-9,
       "the bins have equal counts");
    OK(fabs(ece - f.ece.value) < 1e-12, "the ECE is the mean distance of the bins");
    OK(f.ece.interval.low <= f.ece.value && f.ece.value <= f.ece.interval.high &&
           f.ece_expected > 0 && f.ece_expected < f.ece.value,
       "its interval holds it, and a calibrated network would have less");
    for (int b = 0; b < CHEX_HISTOGRAM_BINS; b++)
        counted += (double)(f.histogram.positives[b] + f.histogram.negatives[b]);
    OK(counted == set.rows, "the histogram counts each row once");
    chex_ranking_destroy(r);
}

/* The figures of 40 rows, each its own patient. */
static struct chex_calibration_figures of_rows(const double *s, const int8_t *y) {
    struct chex_ranking *r = rank(s, y, 40);
    const struct chex_calibration_figures f = figures_of(r, NULL, 40);
    chex_ranking_destroy(r);
    return f;
}

static void test_undefined(void) {
    double s[40];
    int8_t y[40] = {0};
    for (int i = 0; i < 40; i++)
        s[i] = (i + 0.5) / 40;
    struct chex_calibration_figures f = of_rows(s, y);
    OK(isnan(f.slope.value) && isnan(f.in_the_large.value) && f.brier.value > 0 &&
           isnan(f.brier.interval.low),
       "without positives there is a Brier score, but no slope and no interval");
    for (int i = 20; i < 40; i++)
        y[i] = 1;
    f = of_rows(s, y);
    OK(isnan(f.slope.value) && isnan(f.intercept.value) && !isnan(f.in_the_large.value),
       "perfect separation has no slope");
    for (int i = 0; i < 40; i++) {
        s[i] = 1;
        y[i] = i < 10;
    }
    f = of_rows(s, y);
    OK(fabs(f.in_the_large.value + 16.635532273 + log(3)) < 1e-6,
       "calibration in the large is found if all probabilities are saturated (%.9f)",
       f.in_the_large.value);
    for (int i = 0; i < 40; i++) {
        s[i] = 0.3;
        y[i] = i >= 20;
    }
    f = of_rows(s, y);
    OK(isnan(f.slope.value) && fabs(f.reliability.bin[3].observed.value - 0.5) < 1e-12,
       "equal probabilities have no slope, and all bins the same share");
    for (int i = 0; i < 40; i++) {
        s[i] = i % 2;
        y[i] = i % 4 > 1 ? 1 : 0;
    }
    f = of_rows(s, y);
    OK(fabs(f.slope.value) < 1e-9 && f.brier.value == 0.5 && f.histogram.positives[19] == 10,
       "probabilities of 0 and 1 have a finite logit of 16.6 (slope %g, Brier %g)", f.slope.value,
       f.brier.value);
    OK(fabs(chex_logit(1) - CHEX_LOGIT_MAX) < 1e-9 &&
           fabs(chex_logit(1 - 0x1p-24) - CHEX_LOGIT_MAX) < 1e-8 && chex_logit(0) == -chex_logit(1),
       "which is that of the last fp32 number below 1");
}

static void test_calibrate(void) {
    const struct chex_calibration same = {1, 0}, other = {0.5, -1};
    bool rises = true;
    OK(chex_calibrate(&same, 0.3f) == (double)0.3f, "slope 1 and intercept 0 change no bit");
    OK(chex_calibrate(&other, 0) == 0 && chex_calibrate(&other, 1) == 1, "0 and 1 stay");
    OK(fabs(chex_calibrate(&other, 0.9) - labels_sigmoid(0.5 * log(9) - 1)) < 1e-15,
       "others follow slope and intercept");
    for (int i = 1; i < 1000; i++)
        rises =
            rises && chex_calibrate(&other, i / 1000.0) > chex_calibrate(&other, (i - 1) / 1000.0);
    OK(rises, "calibration keeps the order");
}

static void test_recalibrate(void) {
    static const double one[] = {0.1, 0.9}, slope = 1.5, shift = 0.5;
    static const int8_t wrong[] = {1, 0};
    struct chex_calibration c[2];
    bool fitted[2];
    labels_fill(&set, &labels_designs[3], 0, 4000, 6, 0);
    struct chex_ranking *r = rank(set.score, set.label, set.rows), *bad = rank(one, wrong, 2);
    const struct chex_ranking *const both[] = {r, bad};
    chex_recalibrate(both, 2, CHEX_RECALIBRATE_PLATT, c, fitted, &err);
    OK(fitted[0] && fabs(c[0].slope - 1 / slope) < 0.05 &&
           fabs(c[0].intercept + shift / slope) < 0.1,
       "platt finds slope and intercept (%.3f, %.3f)", c[0].slope, c[0].intercept);
    OK(!fitted[1] && c[1].slope == 1 && c[1].intercept == 0,
       "a class whose labels fall with the probability is left as it is");
    chex_recalibrate(both, 1, CHEX_RECALIBRATE_TEMPERATURE, c, fitted, &err);
    OK(fitted[0] && c[0].intercept == 0 && fabs(c[0].slope - 1 / slope) < 0.1,
       "temperature finds one slope (%.3f)", c[0].slope);
    chex_recalibrate(both, 2, CHEX_RECALIBRATE_NONE, c, fitted, &err);
    OK(c[0].slope == 1 && c[0].intercept == 0 && fitted[0], "none changes nothing");
    chex_ranking_destroy(r);
    chex_ranking_destroy(bad);
}

static void test_coverage(void) {
    enum { TRIALS = 300 };
    const struct labels_design *d = &labels_designs[2];
    const struct labels_truth t = labels_truth_of(d, 0.1);
    int slope = 0, brier = 0, ece = 0;
    for (uint32_t i = 0; i < TRIALS; i++) {
        labels_fill(&set, d, t.mean, 600, 8, i);
        struct chex_ranking *r = rank(set.score, set.label, set.rows);
        const struct chex_calibration_figures f = figures_of(r, set.patient, set.patients);
        slope += f.slope.interval.low <= t.slope && t.slope <= f.slope.interval.high;
        brier += f.brier.interval.low <= t.brier && t.brier <= f.brier.interval.high;
        ece += f.ece.interval.low <= t.ece && t.ece <= f.ece.interval.high;
        chex_ranking_destroy(r);
    }
    OK(slope >= 0.92 * TRIALS && brier >= 0.92 * TRIALS && ece >= 0.95 * TRIALS,
       "intervals hold the truth: slope %.1f %%, Brier %.1f %%, ECE %.1f %%",
       100.0 * slope / TRIALS, 100.0 * brier / TRIALS, 100.0 * ece / TRIALS);
}

int main(void) {
    test_figures();
    test_undefined();
    test_calibrate();
    test_recalibrate();
    test_coverage();
    return tap_done();
}
