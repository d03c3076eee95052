/* SPDX-License-Identifier: Apache-2.0
 *
 * Two recipes with several trainings each. stats/recipes.h explains the method.
 */
#include "stats/recipes.h"

#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "stats/difference.h"

static const double MOST_RUNS = 1000;

/* One recipe. Entry `findings` is the mean over the defined findings. */
struct recipe {
    size_t runs, added;
    double *value;              /* (runs, findings + 1) AUROCs */
    double *squares;            /* (findings + 1), see add_squares */
    double *last, *sum;         /* (findings, 2, clusters) contributions of the positives and of the
                                   negatives: of the last training, and the sum over all */
    struct chex_delong *delong; /* (findings) of the last training */
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
        free(r->recipe[i].delong);
    }
    free(r);
}

enum chex_status chex_recipes_create(const size_t runs[2], bool paired, struct chex_recipes **out,
                                     struct chex_error *err) {
    struct chex_recipes *r = chex_alloc_zeroed(1, sizeof *r);
    CHEX_ALLOCATED(r, err, "the comparison");
    for (int i = 0; i < 2; i++)
        r->recipe[i].runs = runs[i];
    r->paired = paired;
    *out = r;
    return CHEX_OK;
}

/* ---- the trainings ---- */

static enum chex_status allocate(struct chex_recipes *r, const struct chex_join *j,
                                 struct chex_error *err) {
    const size_t findings = (size_t)j->classes, parts = findings * 2 * j->clusters;
    r->findings = j->classes;
    r->clusters = j->clusters;
    for (int i = 0; i < 2; i++) {
        struct recipe *p = &r->recipe[i];
        p->value = chex_alloc_zeroed((p->runs + 1) * (findings + 1) + 2 * parts, sizeof *p->value);
        p->delong = chex_alloc_zeroed(findings, sizeof *p->delong);
        CHEX_ALLOCATED(p->value && p->delong, err, "%zu patients, %zu findings", j->clusters,
                       findings);
        p->squares = p->value + p->runs * (findings + 1);
        p->last = p->squares + findings + 1;
        p->sum = p->last + parts;
    }
    return CHEX_OK;
}

/* Adds the squares of the contributions of the last training, for each finding and for the mean. Of
 * paired seeds the contributions to the difference. */
static void add_squares(struct chex_recipes *r, int recipe, int defined) {
    const size_t K = r->clusters;
    double *squares = r->recipe[recipe].squares;
    for (size_t k = 0; k < K; k++) {
        double mean = 0;
        for (int c = 0; c < r->findings; c++) {
            const size_t at = (size_t)c * 2 * K + k;
            const double *p = r->recipe[recipe].last, *other = r->recipe[0].last;
            const double part = p[at] + p[at + K] - (r->paired ? other[at] + other[at + K] : 0);
            squares[c] += part * part;
            mean += part;
        }
        squares[r->findings] += defined ? mean * mean / defined / defined : 0;
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
        CHEX_AUTO_RANKING struct chex_ranking *ranking = NULL;
        double *last = p->last + (size_t)c * 2 * r->clusters;
        CHEX_TRY(chex_join_rank(j, 1, c, &ranking, err));
        CHEX_TRY(chex_delong_split(ranking, j->cluster, j->clusters, last, last + r->clusters,
                                   &p->delong[c], err));
        value[c] = p->delong[c].auroc;
        value[r->findings] += isnan(value[c]) ? 0 : value[c];
        defined += !isnan(value[c]);
    }
    value[r->findings] /= defined;
    for (size_t i = 0; i < (size_t)r->findings * 2 * r->clusters; i++)
        p->sum[i] += p->last[i];
    if (!r->paired || recipe == 1)
        add_squares(r, recipe, defined);
    return CHEX_OK;
}

/* ---- the interval ---- */

/* The trainings of a recipe, or the differences of paired ones. own: sum over the patients of the
 * variances of their contributions. */
struct sample {
    double count, mean, variance, own;
};

/* recipe 2: the differences. mean_squares: of the contributions to the mean of the trainings. */
static struct sample sample_of(const struct chex_recipes *r, int recipe, int c,
                               double mean_squares) {
    const struct recipe *p = &r->recipe[recipe == 1];
    const struct recipe *other = recipe == 2 && r->paired ? &r->recipe[1] : NULL;
    const size_t n = p->runs, width = (size_t)r->findings + 1;
    struct sample s = {.count = (double)n};
    for (size_t k = 0; k < n; k++) { /* Welford's updates: the mean of equal values is exact */
        const size_t at = k * width + (size_t)c;
        const double value = p->value[at] - (other ? other->value[at] : 0), gap = value - s.mean;
        s.mean += gap / (double)(k + 1);
        s.variance += gap * (value - s.mean) / (s.count - 1);
    }
    s.own = fmax(r->recipe[recipe > 0].squares[c] - s.count * mean_squares, 0) / (s.count - 1);
    return s;
}

struct variance {
    double trainings, sum, df; /* trainings: the part of the sum that falls with their number */
};

/* Of the difference, with `count` trainings of each sample (0: as many as there are). patients: its
 * variance for these trainings only. */
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

static double half_width(const struct variance *v) { return chex_student_t(v->df) * sqrt(v->sum); }

/* The width falls with the number of trainings, so bisection finds the least. */
static double runs_to_halve(const struct sample *s, int samples, double patients, double wanted) {
    double in = MOST_RUNS + 1, out = fmax(s[0].count, s[samples - 1].count);
    while (in - out > 1) {
        const double n = floor((in + out) / 2);
        const struct variance v = variance_of(s, samples, patients, n);
        *(half_width(&v) <= wanted ? &in : &out) = n;
    }
    return in <= MOST_RUNS ? in : NAN;
}

/* Sets the figures of a finding or of the mean. d: for these trainings only. mean_squares: of each
 * recipe, see sample_of. */
static void combine(const struct chex_recipes *r, int c, const struct chex_difference *d,
                    const double mean_squares[2], struct chex_paired_class *k) {
    const double z = chex_student_t(INFINITY);
    const struct sample s[] = {sample_of(r, 0, c, mean_squares[0]),
                               sample_of(r, 1, c, mean_squares[1]),
                               sample_of(r, 2, c, d->variance)};
    const struct sample *used = r->paired ? &s[2] : s;
    const int n = r->paired ? 1 : 2;
    const double low = (d->value - d->interval.low) / z, high = (d->interval.high - d->value) / z;
    for (int i = 0; i < 2; i++) {
        k->auroc[i] = s[i].mean;
        k->sd[i] = sqrt(s[i].variance);
    }
    k->difference = s[0].mean - s[1].mean;
    if (k->too_few)
        return;
    const double patients = (low * low + high * high) / 2;
    const struct variance seen = variance_of(used, n, d->variance, 0);
    const struct variance down = variance_of(used, n, low * low, 0);
    const struct variance up = variance_of(used, n, high * high, 0);
    const struct variance both = variance_of(used, n, patients, 0);
    const struct variance *near = k->difference > 0 ? &down : &up;
    k->se = sqrt(seen.sum);
    k->df = seen.df;
    k->interval.low = fmax(k->difference - half_width(&down), -1);
    k->interval.high = fmin(k->difference + half_width(&up), 1);
    k->p_value = k->difference == 0 ? 1 : chex_student_p(k->difference / sqrt(near->sum), near->df);
    k->training_share = both.sum > 0 ? both.trainings / both.sum : NAN;
    k->runs_to_halve = runs_to_halve(used, n, patients, half_width(&both) / 2);
}

/* ---- all findings ---- */

struct work {
    double *parts; /* (2, 2, clusters) of one finding: recipe, positives and negatives */
    double *all;   /* (2, clusters) of the mean of the findings */
    double *part;  /* (clusters) of the difference */
    struct chex_delong_mean mean;
};

static void compare_finding(const struct chex_recipes *r, int c, int defined, struct work *w,
                            struct chex_paired_class *k) {
    const size_t K = r->clusters;
    struct chex_contributions of[2];
    double squares[2] = {0, 0};
    for (size_t i = 0; i < 2; i++) {
        const struct recipe *p = &r->recipe[i];
        double *parts = w->parts + i * 2 * K;
        for (size_t n = 0; n < 2 * K; n++)
            parts[n] = p->sum[(size_t)c * 2 * K + n] / (double)p->runs;
        for (size_t n = 0; n < K; n++) {
            const double part = parts[n] + parts[n + K];
            squares[i] += part * part;
            w->all[i * K + n] += part / defined;
        }
        of[i] = (struct chex_contributions){parts, parts + K, p->delong[c]};
        of[i].delong.auroc = sample_of(r, (int)i, c, 0).mean;
    }
    const struct chex_difference d = chex_difference_of(of, K, false, w->part);
    combine(r, c, &d, squares, k);
    chex_difference_add(&w->mean, &d, w->part);
}

static void compare_mean(const struct chex_recipes *r, const struct work *w,
                         struct chex_paired_class *k) {
    struct chex_difference d = {.value = w->mean.auroc / (double)w->mean.classes,
                                .interval = chex_delong_mean_interval(&w->mean)};
    double squares[2] = {0, 0};
    for (size_t n = 0; n < r->clusters; n++) {
        const double a = w->all[n], b = w->all[r->clusters + n];
        squares[0] += a * a;
        squares[1] += b * b;
        d.variance += (a - b) * (a - b);
    }
    combine(r, r->findings, &d, squares, k);
}

enum chex_status chex_recipes_finish(const struct chex_recipes *r, struct chex_paired *p,
                                     struct chex_error *err) {
    struct work w = {.parts = chex_alloc_zeroed(7 * r->clusters, sizeof *w.parts)};
    CHEX_ALLOCATED(w.parts, err, "%zu patients", r->clusters);
    w.all = w.parts + 4 * r->clusters;
    w.part = w.all + 2 * r->clusters;
    enum chex_status st = chex_delong_mean_create(&w.mean, r->clusters, err);
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
    return st;
}
