/* SPDX-License-Identifier: Apache-2.0
 *
 * Two recipes with several trainings each. stats/recipes.h explains the method.
 */
#include "stats/recipes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "stats/difference.h"

static const double MOST_RUNS = 1000;

/* One recipe. The entry after the findings is the mean over the defined ones. */
struct recipe {
    size_t runs, added;
    double *value;                   /* (runs, findings + 1) AUROCs */
    struct chex_contributions *last; /* (findings) of the training that was added last */
    double *sum;                     /* (findings, 2, clusters) of the contributions of all */
    double *squares;                 /* (findings + 1), see add_squares */
    double *buffer;                  /* of `last` */
};

struct chex_recipes {
    struct recipe recipe[2];
    bool paired;
    int findings;
    size_t clusters;
};

void chex_recipes_destroy(struct chex_recipes *r) {
    for (int i = 0; r && i < 2; i++) {
        free(r->recipe[i].value);
        free(r->recipe[i].last);
        free(r->recipe[i].sum);
        free(r->recipe[i].squares);
        free(r->recipe[i].buffer);
    }
    free(r);
}

enum chex_status chex_recipes_create(const size_t runs[2], bool paired, struct chex_recipes **out,
                                     struct chex_error *err) {
    struct chex_recipes *r = chex_alloc_zeroed(1, sizeof *r);
    if (!r)
        return chex_error_memory(err, "the comparison");
    for (int i = 0; i < 2; i++)
        r->recipe[i].runs = runs[i];
    r->paired = paired;
    *out = r;
    return CHEX_OK;
}

/* ---- the trainings ---- */

static enum chex_status allocate(struct chex_recipes *r, const struct chex_join *j,
                                 struct chex_error *err) {
    const size_t findings = (size_t)j->classes;
    r->findings = j->classes;
    r->clusters = j->clusters;
    for (int i = 0; i < 2; i++) {
        struct recipe *p = &r->recipe[i];
        p->value = chex_alloc_zeroed(p->runs * (findings + 1), sizeof *p->value);
        p->last = chex_alloc_zeroed(findings, sizeof *p->last);
        p->sum = chex_alloc_zeroed(findings * 2 * j->clusters, sizeof *p->sum);
        p->buffer = chex_alloc_zeroed(findings * 2 * j->clusters, sizeof *p->buffer);
        p->squares = chex_alloc_zeroed(findings + 1, sizeof *p->squares);
        if (!p->value || !p->last || !p->sum || !p->buffer || !p->squares)
            return chex_error_memory(err, "%zu patients, %zu findings", j->clusters, findings);
        for (size_t c = 0; c < findings; c++) {
            p->last[c].positives = p->buffer + c * 2 * j->clusters;
            p->last[c].negatives = p->last[c].positives + j->clusters;
        }
    }
    return CHEX_OK;
}

/* The contribution of a cluster to finding c of the last training; of paired seeds to the
 * difference. */
static double part_of(const struct chex_recipes *r, int recipe, int c, size_t cluster) {
    const struct chex_contributions *p = &r->recipe[recipe].last[c];
    const double part = p->positives[cluster] + p->negatives[cluster];
    return r->paired && recipe == 1 ? part_of(r, 0, c, cluster) - part : part;
}

/* Adds the squares of the contributions of a training, for each finding and for the mean. */
static void add_squares(struct chex_recipes *r, int recipe, int defined) {
    double *squares = r->recipe[recipe].squares;
    for (size_t k = 0; k < r->clusters; k++) {
        double mean = 0;
        for (int c = 0; c < r->findings; c++) {
            const double part = part_of(r, recipe, c, k);
            squares[c] += part * part;
            mean += part;
        }
        if (defined)
            squares[r->findings] += mean * mean / defined / defined;
    }
}

enum chex_status chex_recipes_add(struct chex_recipes *r, int recipe, const struct chex_join *j,
                                  struct chex_error *err) {
    struct recipe *p = &r->recipe[recipe];
    if (!p->value)
        CHEX_TRY(allocate(r, j, err));
    double *value = p->value + p->added++ * ((size_t)r->findings + 1);
    int defined = 0;
    for (int c = 0; c < r->findings; c++) {
        struct chex_ranking *ranking = NULL;
        struct chex_contributions *last = &p->last[c];
        CHEX_TRY(chex_join_rank(j, 1, c, &ranking, err));
        const enum chex_status st = chex_delong_split(
            ranking, j->cluster, j->clusters, last->positives, last->negatives, &last->delong, err);
        chex_ranking_destroy(ranking);
        CHEX_TRY(st);
        value[c] = last->delong.auroc;
        if (isnan(value[c]))
            continue;
        value[r->findings] += value[c];
        defined++;
    }
    value[r->findings] /= defined;
    for (size_t i = 0; i < (size_t)r->findings * 2 * r->clusters; i++)
        p->sum[i] += p->buffer[i];
    if (!r->paired || recipe == 1)
        add_squares(r, recipe, defined);
    return CHEX_OK;
}

/* ---- the interval ---- */

/* A sample of trainings: those of a recipe, or the differences of paired seeds. */
struct sample {
    double count, mean, variance; /* of the AUROCs */
    double own; /* sum over the patients of the variances of their contributions */
};

/* The AUROC of training k; recipe 2: the difference of paired ones. */
static double value_of(const struct chex_recipes *r, int recipe, size_t k, int c) {
    const size_t at = k * ((size_t)r->findings + 1) + (size_t)c;
    return r->recipe[recipe == 1].value[at] - (recipe == 2 ? r->recipe[1].value[at] : 0);
}

/* recipe 2: the differences. mean_squares: of the contributions of the patients to the mean AUROC
 * of the trainings. */
static struct sample sample_of(const struct chex_recipes *r, int recipe, int c,
                               double mean_squares) {
    const size_t n = r->recipe[recipe == 1].runs;
    struct sample s = {.count = (double)n};
    for (size_t k = 0; k < n; k++)
        s.mean += value_of(r, recipe, k, c);
    s.mean /= s.count; /* a sum: the mean of equal values of 1 is 1 */
    for (size_t k = 0; k < n; k++)
        s.variance += pow(value_of(r, recipe, k, c) - s.mean, 2) / (s.count - 1);
    const double squares = r->recipe[recipe > 0].squares[c];
    s.own = fmax(squares - s.count * mean_squares, 0) / (s.count - 1);
    return s;
}

/* The variance of the difference with `count` trainings of each sample (0: as many as there are),
 * and its degrees of freedom. patients: its variance for these trainings only. */
struct variance {
    double trainings, sum, df;
};
static struct variance variance_of(const struct sample *s, int samples, double patients,
                                   double count) {
    struct variance v = {0, 0, 0};
    double fourths = 0, own = 0;
    for (int i = 0; i < samples; i++) {
        const double runs = count > 0 ? count : s[i].count, part = s[i].variance / runs;
        v.trainings += part;
        own += s[i].own / s[i].count;
        fourths += part * part / (runs - 1);
    }
    v.sum = v.trainings + fmax(patients - own, 0);
    v.df = fourths > 0 ? v.sum * v.sum / fourths : INFINITY;
    return v;
}

/* The width falls with the number of trainings, so bisection finds the least. */
static double runs_to_halve(const struct sample *s, int samples, double patients) {
    const struct variance now = variance_of(s, samples, patients, 0);
    const double wanted = chex_student_t(now.df) * sqrt(now.sum) / 2;
    double in = MOST_RUNS + 1, out = fmax(s[0].count, s[samples - 1].count);
    while (in - out > 1) {
        const double n = floor((in + out) / 2);
        const struct variance v = variance_of(s, samples, patients, n);
        if (chex_student_t(v.df) * sqrt(v.sum) <= wanted)
            in = n;
        else
            out = n;
    }
    return in <= MOST_RUNS ? in : NAN;
}

/* Sets the figures of a finding or of the mean. d: for these trainings only. mean_squares: of each
 * recipe. */
static void combine(const struct chex_recipes *r, int c, const struct chex_difference *d,
                    const double mean_squares[2], struct chex_paired_class *k) {
    const double z = chex_student_t(INFINITY);
    const struct sample recipe[] = {sample_of(r, 0, c, mean_squares[0]),
                                    sample_of(r, 1, c, mean_squares[1])};
    const struct sample paired = sample_of(r, 2, c, d->variance);
    const struct sample *s = r->paired ? &paired : recipe;
    const int samples = r->paired ? 1 : 2;
    const double low = (d->value - d->interval.low) / z, high = (d->interval.high - d->value) / z;
    for (int i = 0; i < 2; i++) {
        k->auroc[i] = recipe[i].mean;
        k->sd[i] = sqrt(recipe[i].variance);
    }
    k->difference = k->auroc[0] - k->auroc[1];
    if (k->too_few)
        return;
    const struct variance seen = variance_of(s, samples, d->variance, 0);
    const struct variance down = variance_of(s, samples, low * low, 0);
    const struct variance up = variance_of(s, samples, high * high, 0);
    const double patients = (low * low + high * high) / 2;
    const struct variance both = variance_of(s, samples, patients, 0);
    const struct variance *near = k->difference > 0 ? &down : &up;
    k->se = sqrt(seen.sum);
    k->df = seen.df;
    k->interval.low = fmax(k->difference - chex_student_t(down.df) * sqrt(down.sum), -1);
    k->interval.high = fmin(k->difference + chex_student_t(up.df) * sqrt(up.sum), 1);
    k->p_value = k->difference == 0 ? 1 : chex_student_p(k->difference / sqrt(near->sum), near->df);
    k->training_share = both.sum > 0 ? both.trainings / both.sum : NAN;
    k->runs_to_halve = runs_to_halve(s, samples, patients);
}

/* ---- all findings ---- */

/* Buffers: contributions to the mean AUROC of the trainings. */
struct work {
    double *parts; /* (2, 2, clusters) of one finding: recipe, positives and negatives */
    double *all;   /* (2, clusters) of the mean of the findings */
    double *part;  /* (clusters) to the difference */
    struct chex_delong_mean mean;
};

static void compare_finding(const struct chex_recipes *r, int c, int defined, struct work *w,
                            struct chex_paired_class *k) {
    struct chex_contributions of[2];
    double squares[2] = {0, 0};
    for (int i = 0; i < 2; i++) {
        const struct recipe *p = &r->recipe[i];
        const double *sum = p->sum + (size_t)c * 2 * r->clusters;
        double *parts = w->parts + (size_t)i * 2 * r->clusters;
        for (size_t n = 0; n < 2 * r->clusters; n++)
            parts[n] = sum[n] / (double)p->runs;
        of[i] = (struct chex_contributions){parts, parts + r->clusters, p->last[c].delong};
        of[i].delong.auroc = sample_of(r, i, c, 0).mean;
        for (size_t n = 0; n < r->clusters; n++) {
            const double part = of[i].positives[n] + of[i].negatives[n];
            squares[i] += part * part;
            w->all[(size_t)i * r->clusters + n] += part / defined;
        }
    }
    const struct chex_difference d = chex_difference_of(of, r->clusters, w->part);
    combine(r, c, &d, squares, k);
    chex_difference_add(&w->mean, &d, w->part);
}

static void compare_mean(const struct chex_recipes *r, struct work *w,
                         struct chex_paired_class *k) {
    const double *first = w->all, *second = w->all + r->clusters;
    double squares[2] = {0, 0}, variance = 0;
    for (size_t n = 0; n < r->clusters; n++) {
        squares[0] += first[n] * first[n];
        squares[1] += second[n] * second[n];
        variance += (first[n] - second[n]) * (first[n] - second[n]);
    }
    const struct chex_difference d = {.value = w->mean.auroc / (double)w->mean.classes,
                                      .variance = variance,
                                      .interval = chex_delong_mean_interval(&w->mean)};
    combine(r, r->findings, &d, squares, k);
}

enum chex_status chex_recipes_finish(const struct chex_recipes *r, struct chex_paired *p,
                                     struct chex_error *err) {
    struct work w = {.parts = chex_alloc_zeroed(4 * r->clusters, sizeof *w.parts),
                     .all = chex_alloc_zeroed(2 * r->clusters, sizeof *w.all),
                     .part = chex_alloc_zeroed(r->clusters, sizeof *w.part)};
    enum chex_status st = w.parts && w.all && w.part
                              ? chex_delong_mean_create(&w.mean, r->clusters, err)
                              : chex_error_memory(err, "%zu patients", r->clusters);
    w.mean.least = -1;
    for (int c = 0; st == CHEX_OK && c < r->findings; c++)
        if (!isnan(p->per_class[c].difference))
            compare_finding(r, c, p->defined, &w, &p->per_class[c]);
    if (st == CHEX_OK && p->defined)
        compare_mean(r, &w, &p->mean);
    if (st == CHEX_OK)
        st = chex_paired_judge(p, err);
    chex_delong_mean_release(&w.mean);
    free(w.parts);
    free(w.all);
    free(w.part);
    return st;
}
