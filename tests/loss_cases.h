/* SPDX-License-Identifier: Apache-2.0
 *
 * Losses for the tests, and the textbook formula of one value in long double: no branch for large
 * logits is needed there, because its exponential reaches to 11,000.
 */
#ifndef CHEX_TESTS_LOSS_CASES_H
#define CHEX_TESTS_LOSS_CASES_H

#include <math.h>

#include "base/rng.h"
#include "engine/loss.h"

enum { LOSS_CLASSES = 5 };
static const float case_pos[LOSS_CLASSES] = {3, 0.25f, 1, 41.5f, 7};
static const float case_class[LOSS_CLASSES] = {1, 1.5f, 1, 2.25f, 0};
static const float case_uncertain[LOSS_CLASSES] = {0.7f, -1, 1, 0, 0.55f};

static const struct loss_case {
    const char *name;
    struct chex_loss loss;
} loss_cases[] = {
    {"bce", {0}},
    {"bce smoothed", {.smoothing = 0.1}},
    {"bce with pos_weight", {.pos_weight = case_pos}},
    {"bce with all",
     {.smoothing = 0.2,
      .pos_weight = case_pos,
      .class_weight = case_class,
      .uncertain_target = case_uncertain}},
    {"focal", {CHEX_LOSS_FOCAL, .gamma_pos = 2, .alpha = -1}},
    {"focal alpha", {CHEX_LOSS_FOCAL, .gamma_pos = 1.5, .alpha = 0.25, .smoothing = 0.1}},
    {"focal gamma 0", {CHEX_LOSS_FOCAL, .alpha = -1}},
    {"asl", {CHEX_LOSS_ASL, .gamma_pos = 1, .gamma_neg = 4, .clip = 0.05}},
    {"asl without clip", {CHEX_LOSS_ASL, .gamma_neg = 0.5}},
    {"asl with all",
     {CHEX_LOSS_ASL, .gamma_pos = 1, .gamma_neg = 4, .clip = 0.05, .smoothing = 0.1,
      .pos_weight = case_pos, .class_weight = case_class, .uncertain_target = case_uncertain}},
};
enum { LOSS_CASES = sizeof loss_cases / sizeof *loss_cases };

/* The loss of one value by loss.h. t < 0: masked. */
static inline long double textbook(const struct chex_loss *l, int k, int label, long double z) {
    const bool asl = l->kind == CHEX_LOSS_ASL, focal = l->kind == CHEX_LOSS_FOCAL;
    long double t = label > 0 ? 1 : label == 0 ? 0 : -1;
    if (label == -1 && l->uncertain_target)
        t = (long double)l->uncertain_target[k];
    if (t < 0)
        return 0;
    t = t * (1 - (long double)l->smoothing) + (long double)l->smoothing / 2;
    const long double clip = asl ? (long double)l->clip : 0;
    const long double g1 = asl || focal ? (long double)l->gamma_pos : 0;
    const long double g0 = asl ? (long double)l->gamma_neg : g1;
    const long double p = 1 / (1 + expl(-z)), q = 1 / (1 + expl(z)), m = fmaxl(p - clip, 0);
    const long double pos = powl(q, g1) * log1pl(expl(-z));
    const long double neg = powl(m, g0) * (clip > 0 ? -log1pl(-m) : log1pl(expl(z)));
    const bool alpha = focal && l->alpha >= 0;
    return (l->class_weight ? (long double)l->class_weight[k] : 1) *
           (t * (l->pos_weight ? (long double)l->pos_weight[k] : 1) *
                (alpha ? (long double)l->alpha : 1) * pos +
            (1 - t) * (alpha ? 1 - (long double)l->alpha : 1) * neg);
}

/* Its derivative by a central difference: within 1e-10 away from the corner at p = clip. */
static inline long double textbook_slope(const struct chex_loss *l, int k, int label,
                                         long double z) {
    const long double h = 1e-6L;
    return (textbook(l, k, label, z + h) - textbook(l, k, label, z - h)) / (2 * h);
}

/* Mean and gradient of a batch. slopes may be NULL. */
static inline double textbook_mean(const struct chex_loss *l, const float *logits,
                                   const int8_t *labels, int n, int classes, double *slopes) {
    long double sum = 0;
    for (int i = 0; i < n * classes; i++) {
        sum += textbook(l, i % classes, labels[i], (long double)logits[i]);
        if (slopes)
            slopes[i] = (double)(textbook_slope(l, i % classes, labels[i], (long double)logits[i]) /
                                 (n * classes));
    }
    return (double)(sum / (n * classes));
}

/* Logits between -4 and 4, one in nine saturated; labels 1, 0, -1 and -2. */
static inline void loss_batch(int count, float *logits, int8_t *labels) {
    static const float far[] = {100, -100, 30, -30};
    for (int i = 0; i < count; i++) {
        const uint32_t value = chex_rng(7, CHEX_RNG_TEST, 3, (uint32_t)i).v[0];
        const int kind = (int)(chex_rng(7, CHEX_RNG_TEST, 4, (uint32_t)i).v[0] % 8);
        logits[i] = i % 9 == 4 ? far[i / 9 % 4] : 8 * chex_rng_unit(value) - 4;
        labels[i] = (int8_t)(kind < 2 ? kind - 2 : kind % 2);
    }
}

#endif
