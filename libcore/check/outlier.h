/* SPDX-License-Identifier: Apache-2.0
 *
 * Which of several machines is far behind the others.
 *
 * The rule. Of n rates, m is the median and s = 1.4826 * median |x - m|, which would be the
 * standard deviation of normal values and is moved by less than half of them (Hampel 1974). One is
 * behind where it is below m by more than 10 % and by more than 3.5 s, and far behind from 30 % on.
 * All ranks of a synchronous step wait for the slowest, so the per cents are what a job loses; 10
 * is more than a second's measurement is off, and the second condition keeps silent where values
 * scatter anyway. Of two there is no majority: the better one stands for m, and none is far behind.
 */
#ifndef CHEX_CHECK_OUTLIER_H
#define CHEX_CHECK_OUTLIER_H

#include <stdbool.h>

struct chex_outlier {
    int worst;              /* index */
    int count;              /* that are behind */
    double median, percent; /* how far the worst one is behind */
    bool far;
};

/* values: n of them, above 0; less: times, which are judged as rates. False where none is behind,
 * or where memory for n values is not to be had. */
bool chex_outlier_find(const double *values, int n, bool less, struct chex_outlier *out);

/* The median of n >= 1 values, which are put in another order. */
double chex_median(double *values, int n);

#endif
