/* SPDX-License-Identifier: Apache-2.0
 *
 * Median, spread and outliers. check/outlier.h has the rule.
 */
#include "check/outlier.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

static const double behind_percent = 10, far_percent = 30, spreads = 3.5, normal = 1.4826;

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double chex_median(double *values, int n) {
    qsort(values, (size_t)n, sizeof *values, by_value);
    return 0.5 * (values[(n - 1) / 2] + values[n / 2]);
}

double chex_spread(double *values, int n) {
    const double m = chex_median(values, n);
    for (int i = 0; i < n; i++)
        values[i] = fabs(values[i] - m);
    return m > 0 ? normal * chex_median(values, n) / m : 0;
}

/* The reference rate m and the spread s of the rule. work: scratch of n values. */
static double reference(const double *rate, int n, double *work, double *spread_out) {
    memcpy(work, rate, (size_t)n * sizeof *work);
    const double m = chex_median(work, n);
    *spread_out = n == 2 ? 0 : m * chex_spread(work, n);
    return n == 2 ? work[1] : m;
}

bool chex_outlier_find(const double *values, int n, bool lower_is_better,
                       struct chex_outlier *out) {
    double *rate = n > 1 ? chex_alloc_zeroed(2 * (size_t)n, sizeof *rate) : NULL;
    if (!rate)
        return false;
    struct chex_outlier o = {0};
    double spread;
    for (int i = 0; i < n; i++)
        rate[i] = lower_is_better ? 1 / values[i] : values[i];
    const double m = reference(rate, n, rate + n, &spread);
    for (int i = 0; i < n; i++) {
        o.count += m - rate[i] > behind_percent / 100 * m && m - rate[i] > spreads * spread;
        if (rate[i] < rate[o.worst])
            o.worst = i;
    }
    o.median = lower_is_better ? 1 / m : m;
    o.percent = 100 * (1 - rate[o.worst] / m);
    o.far = n > 2 && o.percent >= far_percent;
    free(rate);
    if (o.count)
        *out = o;
    return o.count > 0;
}
