/* SPDX-License-Identifier: Apache-2.0
 *
 * Bootstrap intervals of AUROCs and of their mean.
 *
 * The bootstrap draws clusters with replacement, as many as there are. All rows of a drawn cluster
 * are used. A cluster is usually a patient: images of one patient resemble each other, and drawing
 * single images would make the intervals too narrow.
 *
 * A replicate is one weight per cluster. Its AUROC is the weighted count of pairs in the right
 * order, an integer sum over the ranking. 64 replicates are summed side by side. The draws depend
 * only on (seed, replicate, draw), so the intervals do not depend on the number of threads.
 */
#ifndef CHEX_STATS_BOOTSTRAP_H
#define CHEX_STATS_BOOTSTRAP_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/pool.h"
#include "stats/auroc.h"

enum { CHEX_BOOTSTRAP_LANES = 64 };

struct chex_bootstrap_config {
    size_t replicates;
    uint64_t seed;
    struct chex_pool *pool; /* NULL: only the calling thread computes */
};

/* Draws the weights of replicates [first, first + 64).
 * - Each replicate makes `draws` draws of one of `clusters` clusters.
 * - Output: weights[cluster * 64 + lane], all overwritten.
 * - Draw d of replicate r uses word d % 4 of chex_rng(seed, CHEX_RNG_BOOTSTRAP, d / 4, r).
 * - CHEX_E_DATA: a weight would exceed 255. */
enum chex_status chex_bootstrap_draw(uint64_t seed, size_t first, size_t clusters, size_t draws,
                                     uint8_t *weights, struct chex_error *err);

/* Maps each row's id to a cluster number. Equal strings get the same number; numbers are given in
 * order of first appearance. cluster_out has `rows` entries. */
enum chex_status chex_bootstrap_cluster(const char *const *ids, size_t rows, uint32_t *cluster_out,
                                        size_t *clusters_out, struct chex_error *err);

/* Computes percentile intervals of `classes` rankings and of their mean.
 * - cluster[row] < clusters for each row of the rankings.
 * - interval_out: (classes). NaN if fewer than two replicates are defined.
 * - mean_out: each replicate's mean covers the classes that this replicate defines.
 * - values_out: NULL, or (classes, replicates) AUROCs, NaN where undefined.
 * With few positives these intervals are too narrow; stats/delong.h corrects that. */
enum chex_status chex_bootstrap(const struct chex_ranking *const *rankings, size_t classes,
                                const uint32_t *cluster, size_t clusters,
                                const struct chex_bootstrap_config *config,
                                struct chex_interval *interval_out, struct chex_interval *mean_out,
                                double *values_out, struct chex_error *err);

/* The percentile interval of `n` replicates. NaN values are undefined and left out. Reorders
 * `values`. NaN if fewer than two are defined. */
struct chex_interval chex_bootstrap_interval(double *values, size_t n);

#endif
