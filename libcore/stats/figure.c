/* SPDX-License-Identifier: Apache-2.0
 *
 * Intervals of proportions of clustered rows, and of figures with a standard error.
 */
#include "stats/figure.h"

#include <math.h>

#include "stats/delong.h"

/* A priori rows of a cluster are correlated this much, and this weighs like so many clusters. */
static const double PRIOR_CORRELATION = 0.5, PRIOR_DF = 4;

static const struct chex_interval no_interval = {NAN, NAN, 0};

int chex_by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double chex_quantile(const double *sorted, size_t count, double level) {
    const double at = level * (double)(count - 1);
    const size_t i = (size_t)at;
    return i + 1 < count ? sorted[i] + (at - (double)i) * (sorted[i + 1] - sorted[i])
                         : sorted[count - 1];
}

size_t chex_least_clusters(const struct chex_ranking *r, const struct chex_clusters *k,
                           uint8_t *seen) {
    size_t with[2] = {0, 0};
    for (size_t g = 0; g < r->tie_count; g++)
        for (size_t i = 0; i < (size_t)r->ties[g].negatives + r->ties[g].positives; i++) {
            const bool positive = i >= r->ties[g].negatives;
            uint8_t *s = &seen[chex_cluster_of(k, r->row[r->ties[g].start + i])];
            with[positive] += !(*s & (1 << positive));
            *s |= (uint8_t)(1 << positive);
        }
    return with[0] < with[1] ? with[0] : with[1];
}

struct chex_figure chex_figure_none(void) {
    return (struct chex_figure){NAN, no_interval};
}

/* The observed design effect is that of the linearised variance of a ratio, averaged with that of
 * the prior correlation. The model of this correlation also gives (Bell and McCaffrey 2002)
 * - the bias of the observed sum of squares: residuals of a large cluster are too small, because
 * the cluster is part of the proportion,
 * - the effective number of clusters (Carter, Schnepel and Steigerwald 2017), by which the observed
 *   design effect weighs. It weighs less if the proportion is near 0 or 1, where few clusters tell
 *   about it.
 * Only the part of the variance that exceeds that of independent rows is uncertain. */
struct chex_design_effect chex_proportion_design_effect(const struct chex_proportion *p) {
    const double share = p->x / p->n, spread = share * (1 - share);
    const double between = PRIOR_CORRELATION, within = 1 - between;
    const double variance = within * p->n + between * p->nn, prior = variance / p->n;
    const double expected =
        variance * (1 + p->nn / (p->n * p->n)) - 2 / p->n * (within * p->nn + between * p->n3);
    const double fourth =
        within * within * p->nn + 2 * within * between * p->n3 + between * between * p->n4;
    struct chex_design_effect e = {fmax(prior, 1), PRIOR_DF};
    if (spread > 0 && p->clusters > 1 && p->n > 1) {
        const double squares = p->xx - 2 * share * p->xn + share * share * p->nn;
        const double seen = squares * variance / expected / (spread * p->n * p->n / (p->n - 1));
        const double df = 4 * spread * (variance * variance / fourth - 1);
        e.size = fmax((PRIOR_DF * prior + df * seen) / (PRIOR_DF + df), 1);
        e.df += df;
    }
    e.df = prior > 1 ? e.df * pow(prior / (prior - 1), 2) : INFINITY;
    return e;
}

struct chex_figure chex_proportion_figure(const struct chex_proportion *p) {
    if (!(p->n > 0))
        return chex_figure_none();
    const double share = p->x / p->n;
    struct chex_figure f = {share, no_interval};
    if (p->clusters < CHEX_PROPORTION_MIN_CLUSTERS)
        return f;
    const struct chex_design_effect e = chex_proportion_design_effect(p);
    const double t = chex_student_t(e.df), n = p->n / e.size, t2 = t * t;
    const double middle = (share + t2 / (2 * n)) / (1 + t2 / n);
    const double half = t / (1 + t2 / n) * sqrt(share * (1 - share) / n + t2 / (4 * n * n));
    /* The ends of 0 and 1 are exact, whatever the rounding. */
    f.interval.low = share > 0 ? fmin(fmax(middle - half, 0), share) : 0;
    f.interval.high = share < 1 ? fmax(fmin(middle + half, 1), share) : 1;
    return f;
}

struct chex_error_of chex_error_of_parts(const double *part, size_t clusters) {
    double squares = 0, fourths = 0, with = 0;
    for (size_t i = 0; i < clusters; i++) {
        const double square = part[i] * part[i];
        squares += square;
        fourths += square * square;
        with += square > 0;
    }
    if (!(fourths > 0) || with < 2)
        return (struct chex_error_of){NAN, 0};
    return (struct chex_error_of){sqrt(squares * with / (with - 1)),
                                  squares * squares / fourths - 1};
}

struct chex_interval chex_figure_interval(double value, const struct chex_error_of *e) {
    if (isnan(value) || !(e->se > 0) || !(e->df >= CHEX_ERROR_MIN_DF))
        return no_interval;
    const double half = chex_student_t(e->df) * e->se;
    return (struct chex_interval){value - half, value + half, 0};
}

struct chex_interval chex_figure_logit_interval(double value, const struct chex_error_of *e) {
    if (!(value > 0 && value < 1))
        return no_interval;
    const struct chex_error_of on_logit = {e->se / (value * (1 - value)), e->df};
    const struct chex_interval i = chex_figure_interval(log(value / (1 - value)), &on_logit);
    return (struct chex_interval){1 / (1 + exp(-i.low)), 1 / (1 + exp(-i.high)), 0};
}

/* ---- the difference of two figures ---- */

double chex_gap_correlation(const double *a, const double *b, size_t clusters) {
    double aa = 0, bb = 0, ab = 0;
    for (size_t k = 0; k < clusters; k++) {
        aa += a[k] * a[k];
        bb += b[k] * b[k];
        ab += a[k] * b[k];
    }
    const double scale = sqrt(aa * bb);
    return scale > 0 ? fmin(fmax(ab / scale, -1), 1) : 0;
}

struct chex_figure chex_gap(const struct chex_figure *a, const struct chex_figure *b,
                            double correlation) {
    const double gap = a->value - b->value;
    const double a_low = a->value - a->interval.low, a_high = a->interval.high - a->value;
    const double b_low = b->value - b->interval.low, b_high = b->interval.high - b->value;
    const double down = a_low * a_low + b_high * b_high - 2 * correlation * a_low * b_high;
    const double up = a_high * a_high + b_low * b_low - 2 * correlation * a_high * b_low;
    if (isnan(gap) || isnan(down) || isnan(up))
        return (struct chex_figure){gap, {NAN, NAN, 0}};
    return (struct chex_figure){gap, {gap - sqrt(fmax(down, 0)), gap + sqrt(fmax(up, 0)), 0}};
}
