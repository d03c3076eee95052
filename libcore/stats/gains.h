/* SPDX-License-Identifier: Apache-2.0
 *
 * What an ensemble gains over its members, and how far these are apart.
 *
 * The gain is the AUROC of the ensemble minus that of a member, on the same images
 * (stats/difference.h). Over the mean member it is the mean over the members, with the interval of
 * a mean (stats/delong.h), so their correlation counts. The best member is chosen on these images,
 * which makes the gain over it too low.
 */
#ifndef CHEX_STATS_GAINS_H
#define CHEX_STATS_GAINS_H

#include "stats/figure.h"
#include "stats/scores.h"

/* A finding, or the mean over the defined findings. */
struct chex_gain {
    const char *name;     /* borrowed; "mean" */
    double auroc;         /* of the ensemble */
    double *member_auroc; /* (members) */
    double variation;     /* mean over the images: deviation of the members' scores / their mean */
    struct chex_figure over_mean, over_best;
};

struct chex_gains {
    int members, classes, best; /* best: the member with the highest mean AUROC */
    struct chex_gain *gain;     /* (classes + 1): the mean is last */
};

/* scores: of the ensemble. table: (members) the same rows with the scores of a member. The caller
 * frees the result. */
enum chex_status chex_gains_create(const struct chex_scores *scores,
                                   const struct chex_predictions *const *table, int members,
                                   struct chex_gains **gains_out, struct chex_error *err);

#endif
