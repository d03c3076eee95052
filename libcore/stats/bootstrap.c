/* SPDX-License-Identifier: Apache-2.0
 *
 * Bootstrap of AUROCs: draws weights, sums weighted rankings, takes percentiles.
 *
 * A block of 64 replicates is one task of the thread pool. It draws the weights of its replicates,
 * then walks each ranking once. The inner loops run over the 64 lanes, so the compiler vectorises
 * them.
 */
#include "stats/bootstrap.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "label/labels_map.h"
#include "stats/figure.h"

enum { LANES = CHEX_BOOTSTRAP_LANES };

/* Number of u8 weights whose sum always fits in u16: 257 * 255 = 65535. */
enum { NARROW_SUM_MAX = 257 };

enum chex_status chex_bootstrap_draw(uint64_t seed, size_t first, size_t clusters, size_t draws,
                                     uint8_t *weights, struct chex_error *err) {
    memset(weights, 0, clusters * LANES);
    for (size_t lane = 0; lane < LANES; lane++) {
        for (size_t d = 0; d < draws; d += 4) {
            struct chex_rng4 r =
                chex_rng(seed, CHEX_RNG_BOOTSTRAP, d / 4, (uint32_t)(first + lane));
            for (size_t k = 0; k < 4 && d + k < draws; k++) {
                size_t cluster = chex_rng_below(r.v[k], (uint32_t)clusters);
                uint8_t *w = &weights[cluster * LANES + lane];
                if (*w == UINT8_MAX)
                    return chex_error_set(err, CHEX_E_DATA,
                                          "bootstrap replicate %zu draws cluster %zu more than 255 "
                                          "times",
                                          first + lane, cluster);
                ++*w;
            }
        }
    }
    return CHEX_OK;
}

enum chex_status chex_bootstrap_cluster(const char *const *ids, size_t rows, uint32_t *cluster_out,
                                        size_t *clusters_out, struct chex_error *err) {
    struct chex_label_map map = {0};
    enum chex_status st = CHEX_OK;
    for (size_t i = 0, cluster; st == CHEX_OK && i < rows; i++) {
        st = chex_label_map_add(&map, ids[i], map.count, &cluster, err);
        if (st == CHEX_OK)
            cluster_out[i] = (uint32_t)cluster;
    }
    *clusters_out = map.count;
    chex_label_map_release(&map);
    return st;
}

/* Weighted sums of one ranking, for 64 replicates.
 * pairs: twice the pairs in the right order. below: negatives so far. positives: positives so far.
 * narrow: the latest negatives in u16, until carry() adds them to `below`. */
struct sums {
    uint64_t pairs[LANES];
    uint32_t below[LANES], positives[LANES];
    uint16_t narrow[LANES];
    int narrow_count;
};

static void carry(struct sums *s) {
    if (s->narrow_count == 0)
        return;
    for (int l = 0; l < LANES; l++)
        s->below[l] += s->narrow[l];
    memset(s->narrow, 0, sizeof s->narrow);
    s->narrow_count = 0;
}

static void add_rows(uint32_t *sum, const uint32_t *row, size_t n, const uint32_t *cluster,
                     const uint8_t *weights) {
    memset(sum, 0, LANES * sizeof *sum);
    for (size_t i = 0; i < n; i++) {
        const uint8_t *w = weights + (size_t)cluster[row[i]] * LANES;
        for (int l = 0; l < LANES; l++)
            sum[l] += w[l];
    }
}

/* A tie group without positives. Most of a ranking is such groups, so their sums are u16, which
 * vectorise twice as wide as u32. */
static void add_negatives(struct sums *s, const uint32_t *row, size_t n, const uint32_t *cluster,
                          const uint8_t *weights) {
    for (size_t i = 0; i < n; i++) {
        const uint8_t *w = weights + (size_t)cluster[row[i]] * LANES;
        for (int l = 0; l < LANES; l++)
            s->narrow[l] = (uint16_t)(s->narrow[l] + w[l]);
        if (++s->narrow_count == NARROW_SUM_MAX)
            carry(s);
    }
}

/* A tie group with p positives and n negatives. Each positive wins against all negatives below the
 * group and ties with n. CHEX_RANKING_MAX_ROWS keeps all factors below 2^32. */
static void add_tie(struct sums *s, const struct chex_tie *t, const uint32_t *row,
                    const uint32_t *cluster, const uint8_t *weights) {
    uint32_t p[LANES], n[LANES];
    carry(s);
    add_rows(n, row, t->negatives, cluster, weights);
    add_rows(p, row + t->negatives, t->positives, cluster, weights);
    for (int l = 0; l < LANES; l++) {
        uint32_t rank = 2 * s->below[l] + n[l];
        s->pairs[l] += (uint64_t)p[l] * rank;
        s->below[l] += n[l];
        s->positives[l] += p[l];
    }
}

static void add_ranking(struct sums *s, const struct chex_ranking *r, const uint32_t *cluster,
                        const uint8_t *weights) {
    memset(s, 0, sizeof *s);
    for (size_t g = 0; g < r->tie_count; g++) {
        const struct chex_tie *t = &r->ties[g];
        if (t->positives == 0)
            add_negatives(s, r->row + t->start, t->negatives, cluster, weights);
        else
            add_tie(s, t, r->row + t->start, cluster, weights);
    }
    carry(s);
}

struct job {
    const struct chex_ranking *const *rankings;
    size_t classes, clusters;
    const uint32_t *cluster;
    const struct chex_bootstrap_config *config;
    uint8_t *weights; /* (threads, clusters, 64) */
    double *values;   /* (classes, replicates) */
};

static enum chex_status run_block(void *arg, size_t block, int worker, struct chex_error *err) {
    struct job *j = arg;
    const size_t first = block * LANES, replicates = j->config->replicates;
    const size_t lanes = replicates - first < LANES ? replicates - first : LANES;
    uint8_t *weights = j->weights + (size_t)worker * j->clusters * LANES;
    CHEX_TRY(chex_bootstrap_draw(j->config->seed, first, j->clusters, j->clusters, weights, err));
    struct sums s;
    for (size_t c = 0; c < j->classes; c++) {
        add_ranking(&s, j->rankings[c], j->cluster, weights);
        for (size_t l = 0; l < lanes; l++)
            j->values[c * replicates + first + l] =
                s.positives[l] && s.below[l]
                    ? (double)s.pairs[l] / (2.0 * (double)s.positives[l] * (double)s.below[l])
                    : NAN;
    }
    return CHEX_OK;
}

struct chex_interval chex_bootstrap_interval(double *values, size_t n) {
    size_t defined = 0;
    for (size_t i = 0; i < n; i++)
        if (!isnan(values[i]))
            values[defined++] = values[i];
    struct chex_interval out = {NAN, NAN, n - defined};
    if (defined < 2)
        return out;
    qsort(values, defined, sizeof *values, chex_by_value);
    out.low = chex_quantile(values, defined, 0.025);
    out.high = chex_quantile(values, defined, 0.975);
    return out;
}

static void summarise(const struct job *j, double *scratch, struct chex_interval *interval_out,
                      struct chex_interval *mean_out) {
    const size_t n = j->config->replicates;
    for (size_t r = 0; r < n; r++) {
        double sum = 0;
        size_t defined = 0;
        for (size_t c = 0; c < j->classes; c++) {
            double v = j->values[c * n + r];
            if (!isnan(v)) {
                sum += v;
                defined++;
            }
        }
        scratch[r] = defined ? sum / (double)defined : NAN;
    }
    *mean_out = chex_bootstrap_interval(scratch, n);
    for (size_t c = 0; c < j->classes; c++) {
        memcpy(scratch, j->values + c * n, n * sizeof *scratch);
        interval_out[c] = chex_bootstrap_interval(scratch, n);
    }
}

enum chex_status chex_bootstrap(const struct chex_ranking *const *rankings, size_t classes,
                                const uint32_t *cluster, size_t clusters,
                                const struct chex_bootstrap_config *config,
                                struct chex_interval *interval_out, struct chex_interval *mean_out,
                                double *values_out, struct chex_error *err) {
    const size_t n = config->replicates, blocks = (n + LANES - 1) / LANES;
    const size_t threads = config->pool ? (size_t)chex_pool_threads(config->pool) : 1;
    CHEX_AUTO_FREE uint8_t *weights =
        chex_alloc_aligned(threads * (clusters ? clusters : 1), LANES);
    CHEX_AUTO_FREE double *values = chex_alloc_zeroed(classes * n, sizeof *values);
    CHEX_AUTO_FREE double *scratch = chex_alloc_zeroed(n, sizeof *scratch);
    CHEX_ALLOCATED(weights && values && scratch, err, "%zu bootstrap replicates", n);
    struct job job = {rankings, classes, clusters, cluster, config, weights, values};
    CHEX_TRY(chex_pool_try_on(config->pool, blocks, run_block, &job, err));
    if (values_out)
        memcpy(values_out, values, classes * n * sizeof *values_out);
    summarise(&job, scratch, interval_out, mean_out);
    return CHEX_OK;
}
