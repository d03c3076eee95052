/* SPDX-License-Identifier: Apache-2.0
 *
 * The interval of a difference (gap.h).
 */
#include "stats/gap.h"

#include <math.h>

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
