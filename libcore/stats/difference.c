/* SPDX-License-Identifier: Apache-2.0
 *
 * The paired test of two AUROCs, its interval, and Holm's correction. stats/difference.h explains
 * the method.
 */
#include "stats/difference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

/* Prior of the ratio of variances, and of the correlation. It weighs like two observations. */
static const double PRIOR_DF = 2, PRIOR_RATIO = 1.2;

/* Sums over the clusters. pp: squares of all contributions; nn: of those of the negatives. */
struct moments {
    double pp[2], product;
    double nn[2], negatives_product;
    double of_positives, of_negatives; /* squares of the differences of each kind */
    double variance;                   /* squares of the differences */
};

static struct moments add_up(const struct chex_contributions parts[2], size_t clusters,
                             double *part_out) {
    struct moments m = {0};
    for (size_t k = 0; k < clusters; k++) {
        const double p[] = {parts[0].positives[k], parts[1].positives[k]};
        const double n[] = {parts[0].negatives[k], parts[1].negatives[k]};
        const double dp = p[0] - p[1], dn = n[0] - n[1];
        for (int i = 0; i < 2; i++) {
            m.pp[i] += (p[i] + n[i]) * (p[i] + n[i]);
            m.nn[i] += n[i] * n[i];
        }
        m.product += (p[0] + n[0]) * (p[1] + n[1]);
        m.negatives_product += n[0] * n[1];
        m.of_positives += dp * dp;
        m.of_negatives += dn * dn;
        m.variance += (dp + dn) * (dp + dn);
        if (part_out)
            part_out[k] = dp + dn;
    }
    return m;
}

static double correlation(double product, const double squares[2]) {
    const double scale = sqrt(squares[0] * squares[1]);
    return scale > 0 ? fmin(fmax(product / scale, -1), 1) : 0;
}

/* The variance as a function of the difference: the larger of `observed` and ratio * model. */
struct variance {
    const struct chex_contributions *parts; /* of both */
    double value, observed, ratio, correlation;
};

/* The model variance at a difference of `x`. The two AUROCs move by shares that are proportional to
 * their own model variances. */
static double model_at(const struct variance *v, double x) {
    const struct chex_delong *a = &v->parts[0].delong, *b = &v->parts[1].delong;
    const double va = chex_delong_model(a, a->auroc), vb = chex_delong_model(b, b->auroc);
    const double share = va + vb > 0 ? va / (va + vb) : 0.5, move = x - v->value;
    const double at_a = chex_delong_model(a, fmin(fmax(a->auroc + move * share, 0), 1));
    const double at_b = chex_delong_model(b, fmin(fmax(b->auroc - move * (1 - share), 0), 1));
    return at_a + at_b - 2 * v->correlation * sqrt(at_a * at_b);
}

static double variance_at(const struct variance *v, double x) {
    return fmax(v->observed, v->ratio * model_at(v, x));
}

static struct variance moderate(const struct chex_contributions parts[2], const struct moments *m,
                                double value, double df) {
    const double all = correlation(m->product, m->pp);
    const double negatives = correlation(m->negatives_product, m->nn);
    struct variance v = {parts, value, m->variance, 0,
                         (df * all + PRIOR_DF * negatives) / (df + PRIOR_DF)};
    const double model = model_at(&v, value), seen = model > 0 ? m->variance / model : 0;
    v.ratio = (PRIOR_DF * PRIOR_RATIO + df * seen) / (PRIOR_DF + df);
    return v;
}

/* Bisects for the end of the interval between the observed difference and `end` (-1 or 1). */
static double find_end(const struct variance *v, double end, double t) {
    double in = v->value, out = end;
    for (int i = 0; i < 60; i++) {
        const double at = (in + out) / 2, distance = at - v->value;
        if (distance * distance <= t * t * variance_at(v, at))
            in = at;
        else
            out = at;
    }
    return in;
}

/* Satterthwaite's degrees of freedom of the observed variance; 0 if it is 0. */
static double degrees(const struct moments *m, const struct chex_delong *d) {
    const double both = m->of_positives + m->of_negatives;
    if (!(both > 0))
        return 0;
    return both * both /
           (m->of_positives * m->of_positives / (double)(d->positive_clusters - 1) +
            m->of_negatives * m->of_negatives / (double)(d->negative_clusters - 1));
}

/* Whether both models order the rows in the same way, with the same ties. */
static bool are_equal(const struct chex_ranking *a, const struct chex_ranking *b) {
    if (a->count != b->count || a->tie_count != b->tie_count ||
        memcmp(a->row, b->row, a->count * sizeof *a->row) != 0)
        return false;
    for (size_t g = 0; g < a->tie_count; g++)
        if (a->ties[g].start != b->ties[g].start || a->ties[g].negatives != b->ties[g].negatives)
            return false;
    return true;
}

static void test(const struct chex_contributions parts[2], const struct moments *m, bool equal,
                 struct chex_difference *d) {
    d->variance = m->variance;
    d->df = degrees(m, &parts[0].delong);
    if (equal) {
        d->p_value = 1;
        d->interval = (struct chex_interval){0, 0, 0};
        return;
    }
    const struct variance v = moderate(parts, m, d->value, d->df);
    const double df = d->df > 0 ? d->df : PRIOR_DF, t = chex_student_t(df);
    const double at_zero = variance_at(&v, 0);
    d->p_value = d->value == 0 ? 1 : chex_student_p(d->value / sqrt(at_zero), df);
    d->interval = (struct chex_interval){find_end(&v, -1, t), find_end(&v, 1, t), 0};
}

struct chex_difference chex_difference_of(const struct chex_contributions parts[2], size_t clusters,
                                          bool equal, double *part_out) {
    const struct chex_delong *a = &parts[0].delong, *b = &parts[1].delong;
    const struct moments m = add_up(parts, clusters, part_out);
    struct chex_difference d = {.auroc = {a->auroc, b->auroc},
                                .value = a->auroc - b->auroc,
                                .variance = NAN,
                                .p_value = NAN,
                                .interval = {NAN, NAN, 0}};
    if (!isnan(a->variance))
        test(parts, &m, equal, &d);
    return d;
}

enum chex_status chex_difference(const struct chex_ranking *first,
                                 const struct chex_ranking *second, const uint32_t *cluster,
                                 size_t clusters, double *part_out, struct chex_difference *out,
                                 struct chex_error *err) {
    const struct chex_ranking *const rankings[] = {first, second};
    struct chex_contributions parts[2];
    CHEX_AUTO_FREE double *values = chex_alloc_zeroed(4 * clusters, sizeof *values);
    CHEX_ALLOCATED(values, err, "%zu clusters", clusters);
    for (size_t i = 0; i < 2; i++) {
        parts[i].positives = values + 2 * i * clusters;
        parts[i].negatives = parts[i].positives + clusters;
        CHEX_TRY(chex_delong_split(rankings[i], cluster, clusters, parts[i].positives,
                                   parts[i].negatives, &parts[i].delong, err));
    }
    *out = chex_difference_of(parts, clusters, are_equal(first, second), part_out);
    return CHEX_OK;
}

/* ---- several findings ---- */

void chex_difference_add(struct chex_delong_mean *mean, const struct chex_difference *d,
                         const double *part) {
    const struct chex_delong as_auroc = {.auroc = d->value, .variance = d->variance};
    chex_delong_mean_add(mean, &as_auroc, &d->interval, part);
}

double chex_difference_p_of_interval(double value, const struct chex_interval *i) {
    const double reach = value > 0 ? value - i->low : i->high - value;
    if (isnan(i->low))
        return NAN;
    return value == 0 ? 1 : chex_student_p(chex_student_t(INFINITY) * value / reach, INFINITY);
}

struct test {
    double p;
    size_t at;
};

static int by_p(const void *a, const void *b) {
    const struct test *x = a, *y = b;
    if (x->p != y->p)
        return x->p < y->p ? -1 : 1;
    return (x->at > y->at) - (x->at < y->at);
}

enum chex_status chex_difference_holm(const double *p_value, size_t count, double *p_holm_out,
                                      size_t *tests_out, struct chex_error *err) {
    CHEX_AUTO_FREE struct test *tests = chex_alloc_zeroed(count, sizeof *tests);
    size_t n = 0;
    CHEX_ALLOCATED(tests, err, "%zu tests", count);
    for (size_t i = 0; i < count; i++) {
        p_holm_out[i] = NAN;
        if (!isnan(p_value[i]))
            tests[n++] = (struct test){p_value[i], i};
    }
    qsort(tests, n, sizeof *tests, by_p);
    double least = 0;
    for (size_t i = 0; i < n; i++) {
        least = fmax(least, fmin(1, (double)(n - i) * tests[i].p));
        p_holm_out[tests[i].at] = least;
    }
    *tests_out = n;
    return CHEX_OK;
}
