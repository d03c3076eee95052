/* SPDX-License-Identifier: Apache-2.0
 *
 * Simulated test sets with known truth of every figure: probabilities, labels and patients.
 *
 * The true logit of an image is normal. The label is positive with its probability. The true logits
 * of a patient's images have correlation 1/2, and in a share of the patients all images share the
 * draw of the label, so labels are more alike than logits say. The predicted logit is `slope`
 * times the true one plus `shift`: a network whose calibration slope is 1 / slope.
 */
#ifndef CHEX_TESTS_SIMULATED_LABELS_H
#define CHEX_TESTS_SIMULATED_LABELS_H

#include "simulated.h"
#include "stats/calibration.h"
#include "stats/net_benefit.h"

enum labels_images { LABELS_ONE, LABELS_UP_TO_5, LABELS_LONG_TAIL };

struct labels_design {
    const char *name;
    enum labels_images images; /* of a patient */
    double alike;              /* share of the patients whose images share the draw of the label */
    double deviation;          /* of the true logit: 1.5 gives an AUROC of about 0.82 */
    double slope, shift;       /* of the predicted logit */
};

static const struct labels_design labels_designs[] = {
    {"one image per patient, calibrated", LABELS_ONE, 0, 1.5, 1, 0},
    {"one image per patient, too extreme", LABELS_ONE, 0, 1.5, 1.5, 0.5},
    {"several images per patient, calibrated", LABELS_UP_TO_5, 0.5, 1.5, 1, 0},
    {"several images per patient, too extreme", LABELS_UP_TO_5, 0.5, 1.5, 1.5, 0.5},
    {"several images per patient, strong network", LABELS_UP_TO_5, 0.5, 3, 1, 0},
    {"patients as in ChestX-ray14, calibrated", LABELS_LONG_TAIL, 0.8, 1.5, 1, 0},
    {"patients as in ChestX-ray14, strong network", LABELS_LONG_TAIL, 0.8, 3, 1, 0},
};
enum { LABELS_DESIGNS = sizeof labels_designs / sizeof labels_designs[0] };

enum { LABELS_GRID = 4000 };

/* The true values of a design, for rows of its distribution. */
struct labels_truth {
    double mean;      /* of the true logit, for the wanted share of positives */
    double threshold; /* of the decisions: sensitivity 0.8 */
    double sensitivity, specificity, ppv, npv, f1, ppv_at, average_precision, brier, slope,
        intercept, in_the_large, ece, net_benefit;
};

static inline double labels_sigmoid(double x) { return 1 / (1 + exp(-x)); }

static inline double labels_predicted(const struct labels_design *d, double logit) {
    return labels_sigmoid(d->slope * logit + d->shift);
}

/* The grid covers mean +- 8 deviations; weights sum to 1. */
static inline double labels_at(const struct labels_design *d, double mean, int i) {
    return mean + d->deviation * (16.0 * (i + 0.5) / LABELS_GRID - 8);
}
static inline double labels_weight(int i) {
    const double z = 16.0 * (i + 0.5) / LABELS_GRID - 8;
    return exp(-z * z / 2) / sqrt(6.283185307179586) * 16 / LABELS_GRID;
}

static inline double labels_share(const struct labels_design *d, double mean) {
    double sum = 0;
    for (int i = 0; i < LABELS_GRID; i++)
        sum += labels_weight(i) * labels_sigmoid(labels_at(d, mean, i));
    return sum;
}

/* The intercept that makes the mean of sigmoid(predicted logit + a) equal to the share. */
static inline double labels_large(const struct labels_design *d, double mean, double share) {
    double low = -20, high = 20;
    for (int k = 0; k < 60; k++) {
        const double a = (low + high) / 2;
        double sum = 0;
        for (int i = 0; i < LABELS_GRID; i++)
            sum +=
                labels_weight(i) * labels_sigmoid(d->slope * labels_at(d, mean, i) + d->shift + a);
        *(sum < share ? &low : &high) = a;
    }
    return low;
}

enum { LABELS_NET_BENEFIT = 9 }; /* the point of the decision curve that is compared: 0.1 */
#define LABELS_PREVALENCE 0.1

static inline struct labels_truth labels_truth_of(const struct labels_design *d, double share) {
    struct labels_truth t = {.slope = 1 / d->slope, .intercept = -d->shift / d->slope};
    double low = -20, high = 20, tp = 0, called = 0, bin_rows = 0, bin_gap = 0;
    for (int k = 0; k < 60; k++) {
        t.mean = (low + high) / 2;
        *(labels_share(d, t.mean) < share ? &low : &high) = t.mean;
    }
    t.in_the_large = labels_large(d, t.mean, share);
    bool found = false;
    for (int i = LABELS_GRID - 1; i >= 0; i--) {
        const double x = labels_at(d, t.mean, i), w = labels_weight(i), y = labels_sigmoid(x);
        const double p = labels_predicted(d, x);
        tp += w * y;
        called += w;
        t.average_precision += w * y * tp / called / share;
        t.brier += w * (y * (1 - p) * (1 - p) + (1 - y) * p * p);
        bin_rows += w;
        bin_gap += w * (y - p);
        if (bin_rows >= 0.1 || i == 0) {
            t.ece += fabs(bin_gap);
            bin_rows = bin_gap = 0;
        }
        if (p >= (LABELS_NET_BENEFIT + 1) / 100.0)
            t.net_benefit += w * (y - (1 - y) / 9);
        if (!found && tp >= 0.8 * share) {
            found = true;
            t.threshold = p;
            t.sensitivity = tp / share;
            t.specificity = 1 - (called - tp) / (1 - share);
            t.ppv = tp / called;
            t.npv = t.specificity * (1 - share) / (1 - called);
            t.f1 = 2 * tp / (share + called);
        }
    }
    const double up =
        t.sensitivity / (1 - t.specificity) * LABELS_PREVALENCE / (1 - LABELS_PREVALENCE);
    t.ppv_at = up / (1 + up);
    return t;
}

/* Patients of datasets/nih-sample by their number of images; the 7 patients with 20 to 66 count as
 * 20. The mean is 3.2; ChestX-ray14 as a whole has 3.6. */
static const int labels_long_tail[] = {128, 49, 22, 10, 5, 11, 10, 6, 5, 4,
                                       3,   1,  1,  1,  0, 0,  1,  0, 0, 7};
enum { LABELS_PATIENTS = 264, LABELS_MOST_IMAGES = 20 };

static inline int labels_images(const struct labels_design *d, struct simulated_draws *draws) {
    if (d->images != LABELS_LONG_TAIL)
        return simulated_images(draws, d->images == LABELS_UP_TO_5);
    int n = 0, left = (int)(LABELS_PATIENTS * simulated_uniform(draws));
    while (left >= labels_long_tail[n])
        left -= labels_long_tail[n++];
    return n + 1;
}

/* `rows` images, the last patient whole. Depends on nothing but the arguments. */
static inline void labels_fill(struct simulated_set *s, const struct labels_design *d, double mean,
                               uint32_t rows, uint64_t seed, uint32_t trial) {
    struct simulated_draws draws = {seed, trial, 0};
    const double common = d->images ? sqrt(0.5) : 0, own = sqrt(1 - common * common);
    s->rows = 0;
    for (s->patients = 0; s->rows < rows; s->patients++) {
        const double z = common * simulated_normal(&draws), draw = simulated_uniform(&draws);
        const bool alike = d->images && simulated_uniform(&draws) < d->alike;
        for (int i = labels_images(d, &draws); i-- > 0;) {
            const double x = mean + d->deviation * (z + own * simulated_normal(&draws));
            const double u = alike ? draw : simulated_uniform(&draws);
            simulated_add(s, labels_predicted(d, x), u < labels_sigmoid(x));
        }
    }
}

#endif
