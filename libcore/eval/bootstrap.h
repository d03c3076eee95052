/* SPDX-License-Identifier: Apache-2.0
 *
 * Bootstrap intervals of AUROCs and of their mean. Clusters (patients, most often) are drawn with
 * replacement, as many as there are, and all rows of a cluster come along: images of one patient
 * resemble each other, and drawing images would make intervals too narrow.
 *
 * A replicate is one weight per cluster; its AUROC is the weighted count of ordered pairs, an
 * integer sum over the ranking. 64 replicates are summed side by side. What is drawn depends on
 * (seed, replicate, draw) alone, so the intervals do not depend on threads.
 */
#ifndef CHEX_EVAL_BOOTSTRAP_H
#define CHEX_EVAL_BOOTSTRAP_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/pool.h"
#include "eval/auroc.h"

enum { CHEX_BOOTSTRAP_LANES = 64 };

/* The 95 % percentile interval. NaN where fewer than two replicates are defined. */
struct chex_interval {
    double low, high;
    size_t undefined; /* replicates without a positive or a negative, counted out */
};

struct chex_bootstrap_config {
    size_t replicates;
    uint64_t seed;
    struct chex_pool *pool; /* NULL: the calling thread alone */
};

/* Weights of replicates [first, first + 64): weights[cluster * 64 + lane], all overwritten, from
 * `draws` draws of one of `clusters` clusters each: draw d of replicate r takes word d % 4 of
 * chex_rng(seed, CHEX_RNG_BOOTSTRAP, d / 4, r). CHEX_E_DATA where a weight would exceed 255. */
enum chex_status chex_bootstrap_draw(uint64_t seed, size_t first, size_t clusters, size_t draws,
                                     uint8_t *weights, struct chex_error *err);

/* Numbers the rows by cluster: equal ids (strings) get equal numbers, in order of first appearance.
 * cluster_out has `rows` entries. */
enum chex_status chex_bootstrap_cluster(const char *const *ids, size_t rows, uint32_t *cluster_out,
                                        size_t *clusters_out, struct chex_error *err);

/* Intervals of `classes` rankings and of their mean. cluster[row] < clusters. interval_out has
 * `classes` entries; the mean is over the classes that the replicate defines. values_out, where not
 * NULL, gets (classes, replicates) AUROCs, NaN where undefined. */
enum chex_status chex_bootstrap(const struct chex_ranking *const *rankings, size_t classes,
                                const uint32_t *cluster, size_t clusters,
                                const struct chex_bootstrap_config *config,
                                struct chex_interval *interval_out, struct chex_interval *mean_out,
                                double *values_out, struct chex_error *err);

#endif
