/* SPDX-License-Identifier: Apache-2.0
 *
 * Simulated test sets with several trainings of two recipes, and their comparison. The sets are
 * those of tests/simulated.h, with more scores.
 */
#ifndef CHEX_TESTS_SIMULATED_RECIPES_H
#define CHEX_TESTS_SIMULATED_RECIPES_H

#include <stdio.h>
#include <stdlib.h>

#include "simulated.h"
#include "stats/recipes.h"

enum { SIMULATED_RUNS = 20 };

struct simulated_runs {
    struct simulated_set first;                   /* rows, labels and patients */
    double score[SIMULATED_RUNS][SIMULATED_ROWS]; /* those of the first recipe come first */
};

/* auroc: of each recipe, the mean over all trainings that could be; sd: the deviation of the true
 * AUROCs of the trainings. same: share of a training's part that the k-th trainings of both recipes
 * have in common (paired seeds). Scores of an image correlate by `within` in the trainings of a
 * recipe and by `between` in those of two. */
struct simulated_recipes {
    const struct simulated_design *design;
    uint32_t runs[2];
    double auroc[2], sd[2], same, within, between;
};

/* n normal values; z has room for n + 3. Four uniform values have one block of random bits. */
static inline void simulated_normals(struct simulated_draws *d, double *z, uint32_t n) {
    for (uint32_t i = 0; i < n; i += 4) {
        const uint32_t block = (d->at + 3) / 4;
        const struct chex_rng4 random = chex_rng(d->seed, CHEX_RNG_TEST, d->trial, block);
        const uint32_t *word = random.v;
        d->at = 4 * block + 4;
        for (int k = 0; k < 4; k += 2) {
            const double radius = sqrt(-2 * log(((double)word[k] + 0.5) * 0x1p-32));
            const double angle = 6.283185307179586 * (((double)word[k + 1] + 0.5) * 0x1p-32);
            z[i + (uint32_t)k] = radius * cos(angle);
            z[i + (uint32_t)k + 1] = radius * sin(angle);
        }
    }
}

/* A deviate of each training for one patient or image. */
static inline void simulated_deviates(const struct simulated_recipes *o, struct simulated_draws *d,
                                      double *z) {
    double all[6 + 2 * SIMULATED_RUNS] = {0}, *own = all + 3, *seed = own + o->runs[0] + o->runs[1];
    simulated_normals(d, all, 3 + o->runs[0] + o->runs[1] + (o->same > 0 ? o->runs[0] : 0));
    for (uint32_t i = 0, at = 0; i < 2; i++)
        for (uint32_t k = 0; k < o->runs[i]; k++, at++) {
            const double part = o->same > 0 ? sqrt(o->same) * seed[k] : 0;
            z[at] = sqrt(o->between) * all[0] + sqrt(o->within - o->between) * all[1 + i] +
                    sqrt(1 - o->within) * (part + sqrt(1 - o->same) * own[at]);
        }
}

static inline void simulated_add_runs(struct simulated_runs *s, const struct simulated_recipes *o,
                                      const double *auroc, const double *patient, bool positive,
                                      struct simulated_draws *d) {
    const double shared = o->design->several ? sqrt(0.5) : 0, own = sqrt(1 - shared * shared);
    const uint32_t row = s->first.rows;
    double image[SIMULATED_RUNS];
    simulated_deviates(o, d, image);
    const struct simulated_draws again = *d; /* what one network cannot see is hard for all */
    if (row == SIMULATED_ROWS)
        return;
    for (uint32_t k = 0; k < o->runs[0] + o->runs[1]; k++) {
        const double score = shared * patient[k] + own * image[k];
        *d = again;
        s->score[k][row] = positive ? simulated_positive(o->design, auroc[k], score, d) : score;
    }
    simulated_add(&s->first, s->score[0][row], positive);
}

/* As simulated_fill. The true AUROCs of the trainings are drawn anew. */
static inline void simulated_fill_runs(struct simulated_runs *s, const struct simulated_recipes *o,
                                       uint32_t positives, uint32_t negatives, uint64_t seed,
                                       uint32_t trial) {
    struct simulated_draws d = {seed, trial, 0};
    struct simulated_set *f = &s->first;
    double auroc[SIMULATED_RUNS], patient[SIMULATED_RUNS] = {0};
    double luck[2 * SIMULATED_RUNS + 3];
    uint32_t positive_rows = 0;
    simulated_normals(&d, luck, 2 * SIMULATED_RUNS);
    for (uint32_t i = 0, at = 0; i < 2; i++)
        for (uint32_t k = 0; k < o->runs[i]; k++, at++) {
            const double z =
                sqrt(o->same) * luck[SIMULATED_RUNS + k] + sqrt(1 - o->same) * luck[at];
            auroc[at] = fmin(fmax(o->auroc[i] + o->sd[i] * z, 0.5), 0.999);
        }
    f->rows = 0;
    for (f->patients = 0; f->patients < positives || f->rows < positive_rows + negatives;
         f->patients++) {
        const bool positive = f->patients < positives;
        if (o->design->several)
            simulated_deviates(o, &d, patient);
        for (int i = simulated_images(&d, o->design->several); i-- > 0;)
            simulated_add_runs(s, o, auroc, patient, positive, &d);
        positive_rows = positive ? f->rows : positive_rows;
        for (int i = positive && o->design->several ? (int)(3 * simulated_uniform(&d)) : 0;
             i-- > 0;)
            simulated_add_runs(s, o, auroc, patient, false, &d);
    }
}

/* Ends the program after an error. */
static inline void simulated_must(enum chex_status st, const struct chex_error *err) {
    if (st != CHEX_OK) {
        fprintf(stderr, "%s\n", err->text);
        exit(1);
    }
}

enum { SIMULATED_FINDINGS = 14 };

/* The comparison of recipes whose scores are in `s`, a set for each finding. Several findings need
 * designs with one image per patient. Returns that of the first finding, or the mean of several. */
static inline struct chex_paired_class simulated_compare(const struct simulated_runs *s,
                                                         int findings,
                                                         const struct simulated_recipes *o,
                                                         bool paired) {
    static uint32_t rows[SIMULATED_ROWS], patient[SIMULATED_ROWS];
    static double score[SIMULATED_ROWS * SIMULATED_FINDINGS], buffer[SIMULATED_ROWS];
    static int8_t label[SIMULATED_ROWS * SIMULATED_FINDINGS], labels[SIMULATED_ROWS];
    static const char *const names[] = {"first", "second"};
    static char name[] = "finding", *class_names[SIMULATED_FINDINGS];
    static struct chex_paired_class classes[SIMULATED_FINDINGS];
    int column[SIMULATED_FINDINGS];
    const size_t runs[] = {o->runs[0], o->runs[1]}, n = (size_t)findings;
    struct chex_predictions table = {.rows = s->first.rows,
                                     .classes = findings,
                                     .class_names = class_names,
                                     .label = label,
                                     .score = score};
    const struct chex_predictions *const tables[] = {&table, &table};
    struct chex_join j = {.tables = tables,
                          .names = names,
                          .classes = findings,
                          .row = {rows, rows},
                          .column = {column, column},
                          .cluster = patient,
                          .score = buffer,
                          .label = labels};
    struct chex_paired p = {.classes = findings, .per_class = classes, .defined = findings};
    struct chex_recipes *r = NULL;
    struct chex_error err = {0};
    p.config.margin = NAN;
    for (int c = 0; c < findings; c++) {
        class_names[c] = name;
        column[c] = c;
        classes[c] = (struct chex_paired_class){.difference = 0};
        j.rows = s[c].first.rows > j.rows ? s[c].first.rows : j.rows;
        j.clusters = s[c].first.patients > j.clusters ? s[c].first.patients : j.clusters;
    }
    for (uint32_t k = 0; k < j.rows; k++) {
        rows[k] = k;
        patient[k] = findings == 1 ? s->first.patient[k] : k;
        for (size_t c = 0; c < n; c++)
            label[k * n + c] = k < s[c].first.rows ? s[c].first.label[k] : -1;
    }
    simulated_must(chex_recipes_create(runs, paired, &r, &err), &err);
    for (uint32_t run = 0; run < o->runs[0] || run < o->runs[1]; run++)
        for (uint32_t i = 0; i < 2; i++) {
            for (uint32_t k = 0; run < o->runs[i] && k < j.rows; k++)
                for (size_t c = 0; c < n; c++)
                    score[k * n + c] = s[c].score[i ? o->runs[0] + run : run][k];
            if (run < o->runs[i])
                simulated_must(chex_recipes_add(r, (int)i, &j, &err), &err);
        }
    simulated_must(chex_recipes_finish(r, &p, &err), &err);
    chex_recipes_destroy(r);
    return findings == 1 ? classes[0] : p.mean;
}

#endif
