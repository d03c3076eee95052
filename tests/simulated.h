/* SPDX-License-Identifier: Apache-2.0
 *
 * Simulated test sets of known AUROC, for the coverage of intervals: a given number of patients
 * with positive images among many with negative ones.
 *
 * Scores are normal: mean 0 and deviation 1 for negatives, mean and deviation by the design for
 * positives. With several images per patient they have correlation 1/2 within a patient.
 */
#ifndef CHEX_TESTS_SIMULATED_H
#define CHEX_TESTS_SIMULATED_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/rng.h"

enum { SIMULATED_ROWS = 4096 };

struct simulated_design {
    const char *name;
    double deviation; /* of positive scores, where negative ones have 1 */
    bool several;     /* 1 to 5 images per patient, and patients with both labels */
    bool mixture;     /* a share of the positives scores like negatives, the others far above */
};

static const struct simulated_design simulated_designs[] = {
    {"one image per patient, equal variances", 1, false, false},
    {"one image per patient, positives vary more (1.5)", 1.5, false, false},
    {"one image per patient, positives vary less (0.7)", 0.7, false, false},
    {"several images per patient, equal variances", 1, true, false},
    {"several images per patient, positives vary more (1.5)", 1.5, true, false},
    {"several images per patient, positives vary less (0.7)", 0.7, true, false},
    {"one image per patient, some positives invisible", 1, false, true},
};
enum { SIMULATED_DESIGNS = sizeof simulated_designs / sizeof simulated_designs[0] };

struct simulated_set {
    double score[SIMULATED_ROWS];
    int8_t label[SIMULATED_ROWS];
    uint32_t patient[SIMULATED_ROWS];
    uint32_t rows, patients;
};

struct simulated_draws {
    uint64_t seed;
    uint32_t trial, at;
};

static inline double simulated_uniform(struct simulated_draws *d) {
    const uint32_t word = chex_rng(d->seed, CHEX_RNG_TEST, d->trial, d->at / 4).v[d->at % 4];
    d->at++;
    return ((double)word + 0.5) * 0x1p-32;
}

static inline double simulated_normal(struct simulated_draws *d) {
    const double radius = sqrt(-2 * log(simulated_uniform(d)));
    return radius * cos(6.283185307179586 * simulated_uniform(d));
}

/* The inverse of the normal distribution function. */
static inline double simulated_probit(double p) {
    double low = -9, high = 9;
    for (int i = 0; i < 80; i++) {
        const double at = (low + high) / 2;
        if (0.5 * erfc(-at / sqrt(2)) < p)
            low = at;
        else
            high = at;
    }
    return low;
}

static inline void simulated_add(struct simulated_set *s, double score, int8_t label) {
    if (s->rows == SIMULATED_ROWS)
        return;
    s->score[s->rows] = score;
    s->label[s->rows] = label;
    s->patient[s->rows++] = s->patients;
}

/* Mostly one image, at most 5. */
static inline int simulated_images(struct simulated_draws *d, bool several) {
    return several ? 1 + (int)(5 * simulated_uniform(d) * simulated_uniform(d)) : 1;
}

static inline double simulated_positive(const struct simulated_design *design, double auroc,
                                        double z, struct simulated_draws *d) {
    if (design->mixture)
        return simulated_uniform(d) < 2 * (1 - auroc) ? z : z + 8;
    const double mean = simulated_probit(auroc) * sqrt(1 + design->deviation * design->deviation);
    return mean + design->deviation * z;
}

/* `positives` patients with positive images and about `negatives` other images. Depends on nothing
 * but the arguments. */
static inline void simulated_fill(struct simulated_set *s, const struct simulated_design *design,
                                  double auroc, uint32_t positives, uint32_t negatives,
                                  uint64_t seed, uint32_t trial) {
    struct simulated_draws d = {seed, trial, 0};
    const double shared = design->several ? sqrt(0.5) : 0, own = sqrt(1 - shared * shared);
    uint32_t positive_rows = 0;
    s->rows = 0;
    for (s->patients = 0; s->patients < positives || s->rows < positive_rows + negatives;
         s->patients++) {
        const bool positive = s->patients < positives;
        const double z = shared * simulated_normal(&d);
        for (int i = simulated_images(&d, design->several); i-- > 0;) {
            const double score = z + own * simulated_normal(&d);
            simulated_add(s, positive ? simulated_positive(design, auroc, score, &d) : score,
                          positive);
        }
        positive_rows = positive ? s->rows : positive_rows;
        for (int i = positive && design->several ? (int)(3 * simulated_uniform(&d)) : 0; i-- > 0;)
            simulated_add(s, z + own * simulated_normal(&d), 0);
    }
}

/* Two models on the same images. */
struct simulated_pair {
    struct simulated_set first;
    double second[SIMULATED_ROWS]; /* scores of the second model */
};

/* A deviate of both models for one patient or image: `both` is the square root of the correlation
 * between the models. */
static inline void simulated_twins(struct simulated_draws *d, double both, double z[2]) {
    const double own = sqrt(1 - both * both), common = both * simulated_normal(d);
    for (int i = 0; i < 2; i++)
        z[i] = common + own * simulated_normal(d);
}

static inline void simulated_add_pair(struct simulated_pair *p,
                                      const struct simulated_design *design, const double auroc[2],
                                      const double patient[2], double both, bool positive,
                                      struct simulated_draws *d) {
    const double shared = design->several ? sqrt(0.5) : 0, own = sqrt(1 - shared * shared);
    double image[2], score[2];
    simulated_twins(d, both, image);
    struct simulated_draws again = *d; /* what one model cannot see is hard for the other */
    for (int i = 0; i < 2; i++) {
        score[i] = shared * patient[i] + own * image[i];
        if (positive)
            score[i] = simulated_positive(design, auroc[i], score[i], i ? &again : d);
    }
    if (p->first.rows < SIMULATED_ROWS)
        p->second[p->first.rows] = score[1];
    simulated_add(&p->first, score[0], positive);
}

/* As simulated_fill, for two models of these AUROCs, whose scores have `correlation` within the
 * positives and within the negatives. */
static inline void simulated_fill_pair(struct simulated_pair *p,
                                       const struct simulated_design *design, const double auroc[2],
                                       double correlation, uint32_t positives, uint32_t negatives,
                                       uint64_t seed, uint32_t trial) {
    struct simulated_draws d = {seed, trial, 0};
    struct simulated_set *s = &p->first;
    const double both = sqrt(correlation);
    uint32_t positive_rows = 0;
    s->rows = 0;
    for (s->patients = 0; s->patients < positives || s->rows < positive_rows + negatives;
         s->patients++) {
        const bool positive = s->patients < positives;
        double patient[2];
        simulated_twins(&d, both, patient);
        for (int i = simulated_images(&d, design->several); i-- > 0;)
            simulated_add_pair(p, design, auroc, patient, both, positive, &d);
        positive_rows = positive ? s->rows : positive_rows;
        for (int i = positive && design->several ? (int)(3 * simulated_uniform(&d)) : 0; i-- > 0;)
            simulated_add_pair(p, design, auroc, patient, both, false, &d);
    }
}

#endif
