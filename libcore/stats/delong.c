/* SPDX-License-Identifier: Apache-2.0
 *
 * DeLong's variance by clusters, the moderated score interval, and the interval of a mean.
 * stats/delong.h explains the method.
 */
#include "stats/delong.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "stats/figure.h"

/* Prior of the ratio of variances. It weighs like four observations. It is above 1 because
 * positives vary more than negatives in radiology (binormal slopes of 0.7 to 0.8). */
static const double PRIOR_DF = 4, PRIOR_RATIO = 1.2;

/* The share of the excess kurtosis of the placements that reduces the degrees of freedom. */
static const double KURTOSIS_SHARE = 0.15;

/* The model variance assumes this correlation between the scores of one cluster. */
static const double MODEL_CORRELATION = 0.5;

/* ---- Student's t ---- */

/* The continued fraction of the incomplete beta function, by Lentz's method. */
static double beta_fraction(double a, double b, double x) {
    const double tiny = 1e-300;
    double c = 1, d = 1 - (a + b) * x / (a + 1), h;
    d = 1 / (fabs(d) < tiny ? tiny : d);
    h = d;
    for (int m = 1; m < 1000; m++) {
        const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
        const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
        d = 1 / (1 + even * d);
        c = 1 + even / c;
        h *= c * d;
        d = 1 / (1 + odd * d);
        c = 1 + odd / c;
        h *= c * d;
        if (fabs(c * d - 1) < 1e-14)
            break;
    }
    return h;
}

/* The regularised incomplete beta function I_x(a, b). */
static double incomplete_beta(double a, double b, double x) {
    if (x <= 0 || x >= 1)
        return x <= 0 ? 0 : 1;
    const double front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x));
    return x < (a + 1) / (a + b + 2) ? front * beta_fraction(a, b, x) / a
                                     : 1 - front * beta_fraction(b, a, 1 - x) / b;
}

double chex_student_p(double t, double df) {
    return df > 1e6 ? erfc(fabs(t) / sqrt(2)) : incomplete_beta(df / 2, 0.5, df / (df + t * t));
}

/* Newton's method from the normal quantile, which is too low. The probability is convex there, so
 * every step ends below the quantile. */
double chex_student_t(double df) {
    const double z = 1.959963984540054;
    if (df > 1e6)
        return z;
    const double scale = 2 * exp(lgamma((df + 1) / 2) - lgamma(df / 2)) / sqrt(df * M_PI);
    double t = z;
    for (int i = 0; i < 200; i++) {
        const double density = scale * pow(1 + t * t / df, -(df + 1) / 2);
        const double step = (chex_student_p(t, df) - 0.05) / density;
        t += step;
        if (step < 1e-13 * t)
            break;
    }
    return t;
}

/* ---- the variance ---- */

/* Sums over one cluster's positives and negatives. */
struct sums {
    double positives, negatives; /* deviations of their placements */
    uint32_t positive_count, negative_count;
};

/* Adds each row's deviation to the sums of its cluster. The placement of a positive is the share of
 * negatives below it. The placement of a negative is the share of positives above it. */
static void add_placements(const struct chex_ranking *r, const uint32_t *cluster, double auroc,
                           struct sums *sums) {
    const double P = r->positives ? (double)r->positives : 1;
    const double N = r->negatives ? (double)r->negatives : 1;
    double below = 0, above = (double)r->positives;
    for (size_t g = 0; g < r->tie_count; g++) {
        const struct chex_tie *t = &r->ties[g];
        const double n = t->negatives, p = t->positives;
        above -= p;
        const double of_positive = (below + n / 2) / N - auroc;
        const double of_negative = (above + p / 2) / P - auroc;
        for (size_t i = t->start, k = 0; k < (size_t)t->negatives + t->positives; i++, k++) {
            struct sums *s = &sums[cluster ? cluster[r->row[i]] : r->row[i]];
            if (k < t->negatives) {
                s->negatives += of_negative / N;
                s->negative_count++;
            } else {
                s->positives += of_positive / P;
                s->positive_count++;
            }
        }
        below += n;
    }
}

/* The excess kurtosis of a beta distribution that has the mean and the model's variance of the
 * placements of an AUROC. It grows without bound towards 0 and 1. */
static double placement_kurtosis(double auroc) {
    const double share = (1 - auroc) / (2 - auroc) + auroc / (1 + auroc), both = 2 / share - 1;
    const double a = auroc * both, b = (1 - auroc) * both;
    const double k = 6 * ((a - b) * (a - b) * (a + b + 1) - a * b * (a + b + 2)) /
                     (a * b * (a + b + 2) * (a + b + 3));
    return fmax(k, 0);
}

/* Degrees of freedom of a variance that is estimated from `clusters` clusters. */
static double df_of(double clusters, double kurtosis) {
    return (clusters - 1) / (1 + KURTOSIS_SHARE * kurtosis * (clusters - 1) / clusters);
}

/* Counts the clusters and the effective sample sizes. True if a variance can be estimated. */
static bool count_clusters(const struct chex_ranking *r, const struct sums *sums, size_t clusters,
                           struct chex_delong *d) {
    const double P = (double)r->positives, N = (double)r->negatives;
    double p2 = 0, n2 = 0;
    for (size_t k = 0; k < clusters; k++) {
        d->positive_clusters += sums[k].positive_count > 0;
        d->negative_clusters += sums[k].negative_count > 0;
        p2 += (double)sums[k].positive_count * sums[k].positive_count;
        n2 += (double)sums[k].negative_count * sums[k].negative_count;
    }
    if (d->positive_clusters < CHEX_DELONG_MIN_CLUSTERS ||
        d->negative_clusters < CHEX_DELONG_MIN_CLUSTERS)
        return false;
    d->effective_positives = P / (1 + MODEL_CORRELATION * (p2 / P - 1));
    d->effective_negatives = N / (1 + MODEL_CORRELATION * (n2 / N - 1));
    return true;
}

/* The variance and its degrees of freedom from the sums of the clusters. The deviations of
 * positives and of negatives are scaled separately, K / (K - 1) and L / (L - 1), like sample
 * variances; `sums` holds the scaled ones then. With one image per cluster this is exactly DeLong's
 * variance. */
static void add_up(struct sums *sums, size_t clusters, struct chex_delong *d) {
    const double K = (double)d->positive_clusters, L = (double)d->negative_clusters;
    const double up = sqrt(K / (K - 1)), un = sqrt(L / (L - 1));
    double of_positives = 0, of_negatives = 0, products = 0, I = 0;
    d->variance = 0;
    for (size_t k = 0; k < clusters; k++) {
        I += sums[k].positive_count + sums[k].negative_count > 0;
        products += sums[k].positives * sums[k].negatives;
        const double p = sums[k].positives *= up, n = sums[k].negatives *= un;
        of_positives += p * p;
        of_negatives += n * n;
        d->variance += (p + n) * (p + n);
    }
    d->obuchowski = of_positives + of_negatives + 2 * products * I / (I - 1);
    const double both = of_positives + of_negatives;
    if (!(both > 0) || !(d->auroc > 0 && d->auroc < 1))
        return; /* no information on the variance: df stays 0 */
    const double kurtosis = placement_kurtosis(d->auroc);
    d->df = both * both /
            (of_positives * of_positives / df_of(K, kurtosis) +
             of_negatives * of_negatives / df_of(L, kurtosis));
}

/* Computes `out` and the contributions of each cluster, all 0 if there is no variance; outputs that
 * are NULL are left out. */
static enum chex_status compute(const struct chex_ranking *r, const uint32_t *cluster,
                                size_t clusters, double *part_out, double *of_positives_out,
                                double *of_negatives_out, struct chex_delong *out,
                                struct chex_error *err) {
    struct sums *sums = chex_alloc_zeroed(clusters, sizeof *sums);
    CHEX_ALLOCATED(sums, err, "%zu clusters", clusters);
    struct chex_delong d = {.auroc = chex_ranking_auroc(r), .variance = NAN, .obuchowski = NAN};
    add_placements(r, cluster, d.auroc, sums);
    if (count_clusters(r, sums, clusters, &d))
        add_up(sums, clusters, &d);
    else
        memset(sums, 0, clusters * sizeof *sums);
    for (size_t k = 0; part_out && k < clusters; k++)
        part_out[k] = sums[k].positives + sums[k].negatives;
    for (size_t k = 0; of_positives_out && k < clusters; k++) {
        of_positives_out[k] = sums[k].positives;
        of_negatives_out[k] = sums[k].negatives;
    }
    free(sums);
    *out = d;
    return CHEX_OK;
}

enum chex_status chex_delong(const struct chex_ranking *r, const uint32_t *cluster, size_t clusters,
                             double *part_out, struct chex_delong *out, struct chex_error *err) {
    return compute(r, cluster, clusters, part_out, NULL, NULL, out, err);
}

enum chex_status chex_delong_split(const struct chex_ranking *r, const uint32_t *cluster,
                                   size_t clusters, double *of_positives_out,
                                   double *of_negatives_out, struct chex_delong *out,
                                   struct chex_error *err) {
    return compute(r, cluster, clusters, NULL, of_positives_out, of_negatives_out, out, err);
}

/* ---- the interval ---- */

/* Newcombe's variance of an AUROC: Hanley's and McNeil's, with the two terms averaged. */
double chex_delong_model(const struct chex_delong *d, double auroc) {
    const double P = d->effective_positives, N = d->effective_negatives;
    const double share = (1 - auroc) / (2 - auroc) + auroc / (1 + auroc);
    return auroc * (1 - auroc) * (1 + (P + N - 2) * share / 2) / (P * N);
}

/* Bisects for the end of the score interval between the observed AUROC and `end` (0 or 1). */
static double find_end(const struct chex_delong *d, double end, double scale) {
    double in = d->auroc, out = end;
    if (in == out)
        return end;
    for (int i = 0; i < 60; i++) {
        const double at = (in + out) / 2, distance = at - d->auroc;
        if (distance * distance <= scale * chex_delong_model(d, at))
            in = at;
        else
            out = at;
    }
    return in;
}

struct chex_interval chex_delong_interval(const struct chex_delong *d) {
    if (isnan(d->variance))
        return (struct chex_interval){NAN, NAN, 0};
    const double seen = d->df > 0 ? d->variance / chex_delong_model(d, d->auroc) : 0;
    const double df = PRIOR_DF + d->df;
    const double ratio = (PRIOR_DF * PRIOR_RATIO + d->df * seen) / df;
    const double t = chex_student_t(df), scale = t * t * ratio;
    return (struct chex_interval){find_end(d, 0, scale), find_end(d, 1, scale), 0};
}

struct chex_interval chex_delong_logit_interval(const struct chex_delong *d) {
    return chex_figure_logit_interval(d->auroc,
                                      &(struct chex_error_of){sqrt(d->obuchowski), INFINITY});
}

/* ---- the mean ---- */

enum chex_status chex_delong_mean_create(struct chex_delong_mean *m, size_t clusters,
                                         struct chex_error *err) {
    *m = (struct chex_delong_mean){.clusters = clusters,
                                   .low = chex_alloc_zeroed(clusters, sizeof *m->low),
                                   .high = chex_alloc_zeroed(clusters, sizeof *m->high)};
    if (m->low && m->high)
        return CHEX_OK;
    chex_delong_mean_release(m);
    return chex_error_memory(err, "%zu clusters", clusters);
}

void chex_delong_mean_release(struct chex_delong_mean *m) {
    free(m->low);
    free(m->high);
    *m = (struct chex_delong_mean){0};
}

/* The squared distance of the mean is a sum over pairs of classes: distance * distance *
 * correlation. Summed by cluster instead, it needs no pairs: part / se has unit length for each
 * class, and the scaled parts are added before they are squared. */
void chex_delong_mean_add(struct chex_delong_mean *m, const struct chex_delong *d,
                          const struct chex_interval *i, const double *part) {
    const double low = d->auroc - i->low, high = i->high - d->auroc;
    m->classes++;
    m->auroc += d->auroc;
    m->too_few = m->too_few || isnan(i->low);
    if (isnan(i->low))
        return;
    m->low_alone += low * low;
    m->high_alone += high * high;
    if (!(d->variance > 0)) {
        m->low_rest += low * low;
        m->high_rest += high * high;
        return;
    }
    const double se = sqrt(d->variance);
    for (size_t k = 0; k < m->clusters; k++) {
        m->low[k] += low * part[k] / se;
        m->high[k] += high * part[k] / se;
    }
}

struct chex_interval chex_delong_mean_interval(const struct chex_delong_mean *m) {
    double low = m->low_rest, high = m->high_rest;
    if (!m->classes || m->too_few)
        return (struct chex_interval){NAN, NAN, 0};
    for (size_t k = 0; k < m->clusters; k++) {
        low += m->low[k] * m->low[k];
        high += m->high[k] * m->high[k];
    }
    const double C = (double)m->classes, mean = m->auroc / C;
    low = fmax(low, m->low_alone);
    high = fmax(high, m->high_alone);
    return (struct chex_interval){fmax(mean - sqrt(low) / C, m->least),
                                  fmin(mean + sqrt(high) / C, 1), 0};
}

struct chex_interval chex_delong_one_se(const struct chex_delong *d) {
    const double se = sqrt(d->variance);
    return (struct chex_interval){d->auroc - se, d->auroc + se, 0};
}

struct chex_interval chex_delong_mean_logit_interval(const struct chex_delong_mean *m) {
    double variance = 0;
    if (!m->classes || m->too_few)
        return (struct chex_interval){NAN, NAN, 0};
    for (size_t k = 0; k < m->clusters; k++)
        variance += m->low[k] * m->low[k];
    const double C = (double)m->classes;
    return chex_figure_logit_interval(m->auroc / C,
                                      &(struct chex_error_of){sqrt(variance) / C, INFINITY});
}
