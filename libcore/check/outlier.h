/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds which of several machines is much slower than the others.
 *
 * The rule: of n rates, m is the median and s = 1.4826 * median |x - m|. For normal values s is the
 * standard deviation, and outliers hardly change it (Hampel 1974). A machine is slow if its rate is
 * below m by more than 10 % and by more than 3.5 s. It is far slower from 30 %.
 *
 * All ranks of a synchronous step wait for the slowest, so the percentage is what the job loses. 10
 * % is more than the error of a measurement of one second. The second condition avoids reports
 * where values scatter anyway.
 *
 * Two machines have no majority. The better one is then used as m, and none is far slower.
 */
#ifndef CHEX_CHECK_OUTLIER_H
#define CHEX_CHECK_OUTLIER_H

#include <stdbool.h>

struct chex_outlier {
    int worst;              /* index of the slowest */
    int count;              /* number of slow ones */
    double median, percent; /* percent: difference of the slowest from m */
    bool far;
};

/* values: n values above 0. lower_is_better: they are times, and are compared as rates. False: none
 * is slow, or there is no memory for n values. */
bool chex_outlier_find(const double *values, int n, bool lower_is_better, struct chex_outlier *out);

/* The median of n >= 1 values. Reorders them. */
double chex_median(double *values, int n);

/* Relative spread of n >= 1 values: 1.4826 * median |x - m| / m, with their median m. Overwrites
 * the values. */
double chex_spread(double *values, int n);

#endif
