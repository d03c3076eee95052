/* SPDX-License-Identifier: Apache-2.0
 *
 * Decision curves: the net benefit of acting on a prediction (Vickers and Elkin 2006).
 *
 * Somebody who acts at a probability of t or more values a false alarm at t / (1 - t) of a hit. The
 * net benefit is (tp - fp * t / (1 - t)) / rows. Acting never has the net benefit 0. A prediction
 * is useful at t if it is above 0 and above acting always.
 */
#ifndef CHEX_STATS_NET_BENEFIT_H
#define CHEX_STATS_NET_BENEFIT_H

#include "base/error.h"
#include "stats/figure.h"

enum { CHEX_NET_BENEFIT_POINTS = 99 }; /* thresholds 0.01, 0.02, ..., 0.99 */

struct chex_net_benefit_point {
    double threshold;
    struct chex_figure prediction, treat_all; /* the band holds at each threshold by itself */
};

struct chex_net_benefit {
    int count; /* 0: no row */
    struct chex_net_benefit_point point[CHEX_NET_BENEFIT_POINTS];
};

/* Computes the curve of a ranking of probabilities. One walk over the rows.
 * Band: the intervals of the two proportions tp / rows and fp / rows, combined by their correlation
 * (MOVER; Zou and Donner 2008).
 * CHEX_E_RESOURCE: out of memory. */
enum chex_status chex_net_benefit_create(const struct chex_ranking *r,
                                         const struct chex_clusters *k,
                                         struct chex_net_benefit *out, struct chex_error *err);

#endif
