/* SPDX-License-Identifier: Apache-2.0
 *
 * Intervals of proportions of clustered rows, and of figures with a standard error.
 */
#include "eval/figure.h"

#include <math.h>

#include "eval/delong.h"

/* The 97.5 % quantile of the normal distribution. */
static const double Z = 1.959963984540054;

/* A priori rows of a cluster are correlated this much, and this weighs like so many clusters. */
static const double PRIOR_CORRELATION = 0.5, PRIOR_DF = 4;

static const struct chex_interval no_interval = {NAN, NAN, 0};

struct chex_figure chex_figure_none(void) {
    return (struct chex_figure){NAN, no_interval};
}

/* The observed design effect counts by the clusters that tell about it: few do if the proportion is
 * near 0 or 1. */
double chex_proportion_design_effect(const struct chex_proportion *p) {
    const double share = p->x / p->n, spread = share * (1 - share), K = p->clusters;
    const double prior = 1 + PRIOR_CORRELATION * (p->nn / p->n - 1);
    if (!(spread > 0) || !(K > 1) || !(p->n > 1))
        return prior;
    const double squares = p->xx - 2 * share * p->xn + share * share * p->nn;
    const double seen = squares * K / (K - 1) / (spread * p->n * p->n / (p->n - 1));
    const double df = 4 * spread * (K - 1);
    return fmax((PRIOR_DF * prior + df * seen) / (PRIOR_DF + df), 1);
}

struct chex_figure chex_proportion_figure(const struct chex_proportion *p) {
    if (!(p->n > 0))
        return chex_figure_none();
    const double share = p->x / p->n;
    struct chex_figure f = {share, no_interval};
    if (p->clusters < CHEX_PROPORTION_MIN_CLUSTERS)
        return f;
    const double n = p->n / chex_proportion_design_effect(p), z2 = Z * Z;
    const double middle = (share + z2 / (2 * n)) / (1 + z2 / n);
    const double half = Z / (1 + z2 / n) * sqrt(share * (1 - share) / n + z2 / (4 * n * n));
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
