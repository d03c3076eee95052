/* SPDX-License-Identifier: Apache-2.0
 *
 * The 64-wide bootstrap against replicates drawn and counted one by one, to the last bit.
 */
#include "stats/bootstrap.h"

#include "base/rng.h"
#include "ranking.h"
#include "tap.h"

enum { ROWS = 420, CLASSES = 4, PATIENTS = 90, REPLICATES = 150 };

static double score[ROWS * CLASSES];
static int8_t label[ROWS * CLASSES];
static uint32_t cluster[ROWS];
static struct chex_ranking *rankings[CLASSES];

/* Class 0: no ties; 1: many ties; 2: few positives, so that replicates miss them; 3: undefined. */
static void make_data(void) {
    for (size_t i = 0; i < ROWS; i++) {
        struct chex_rng4 r = chex_rng(11, CHEX_RNG_TEST, i, 0);
        cluster[i] = i < PATIENTS ? (uint32_t)i : chex_rng_below(r.v[0], PATIENTS);
        for (int c = 0; c < CLASSES; c++) {
            struct chex_rng4 q = chex_rng(12, CHEX_RNG_TEST, i, (uint32_t)c);
            uint32_t levels = c == 1 ? 7 : 1 << 20;
            score[i * CLASSES + (size_t)c] = (double)chex_rng_below(q.v[0], levels) - 3;
            label[i * CLASSES + (size_t)c] = (int8_t)(q.v[1] % 16 == 0 ? -1
                                                      : c < 2          ? q.v[2] % 3 == 0
                                                                       : c == 2 && i == 5);
        }
    }
    for (int c = 0; c < CLASSES; c++)
        MUST(chex_ranking_create(score + c, label + c, ROWS, CLASSES, &rankings[c], &err));
}

/* One replicate of one class: draw, then every weighted pair. */
static double brute_force(uint64_t seed, uint32_t replicate, int c) {
    uint64_t weight[PATIENTS] = {0}, pairs = 0, positives = 0, negatives = 0;
    for (uint32_t d = 0; d < PATIENTS; d++)
        weight[chex_rng_below(chex_rng(seed, CHEX_RNG_BOOTSTRAP, d / 4, replicate).v[d % 4],
                              PATIENTS)]++;
    for (size_t i = 0; i < ROWS; i++) {
        int y = label[i * CLASSES + (size_t)c];
        positives += y == 1 ? weight[cluster[i]] : 0;
        negatives += y == 0 ? weight[cluster[i]] : 0;
        for (size_t j = 0; y == 1 && j < ROWS; j++) {
            double a = score[i * CLASSES + (size_t)c], b = score[j * CLASSES + (size_t)c];
            if (label[j * CLASSES + (size_t)c] == 0)
                pairs += weight[cluster[i]] * weight[cluster[j]] * (a > b ? 2 : a == b);
        }
    }
    return positives && negatives ? (double)pairs / (2.0 * (double)positives * (double)negatives)
                                  : NAN;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The quantile rule of numpy.percentile, written down another way. */
static double quantile(const double *sorted, size_t n, double q) {
    double at = q * (double)(n - 1), f = at - floor(at);
    size_t lo = (size_t)floor(at), hi = (size_t)ceil(at);
    return (1 - f) * sorted[lo] + f * sorted[hi];
}

static double values[CLASSES * REPLICATES];
static struct chex_interval interval[CLASSES], mean;

static void test_exact(void) {
    struct chex_bootstrap_config config = {.replicates = REPLICATES, .seed = 7};
    MUST(chex_bootstrap((const struct chex_ranking *const *)rankings, CLASSES, cluster, PATIENTS,
                        &config, interval, &mean, values, &err));
    size_t undefined = 0;
    for (int c = 0; c < CLASSES; c++) {
        int wrong = 0;
        for (uint32_t r = 0; r < REPLICATES; r++) {
            double want = brute_force(7, r, c), got = values[(size_t)c * REPLICATES + r];
            wrong += !(got == want || (isnan(got) && isnan(want)));
            undefined += c == 2 && isnan(want);
        }
        OK(wrong == 0, "class %d: %d replicates equal brute force exactly", c, REPLICATES);
    }
    OK(undefined > 20 && undefined < 100 && interval[2].undefined == undefined,
       "%zu replicates without the one positive patient are counted out", undefined);
    OK(interval[3].undefined == REPLICATES && isnan(interval[3].low) && isnan(interval[3].high),
       "a class without positives has no interval");
}

static void test_percentiles(void) {
    double v[REPLICATES], means[REPLICATES];
    memcpy(v, values, sizeof v);
    qsort(v, REPLICATES, sizeof *v, ascending);
    OK(fabs(interval[0].low - quantile(v, REPLICATES, 0.025)) < 1e-15 &&
           fabs(interval[0].high - quantile(v, REPLICATES, 0.975)) < 1e-15,
       "the 2.5 and 97.5 percentiles: %.4f to %.4f", interval[0].low, interval[0].high);
    for (size_t r = 0; r < REPLICATES; r++) {
        double sum = values[r] + values[REPLICATES + r], rare = values[2 * REPLICATES + r];
        means[r] = isnan(rare) ? sum / 2 : (sum + rare) / 3;
    }
    qsort(means, REPLICATES, sizeof *means, ascending);
    OK(fabs(mean.low - quantile(means, REPLICATES, 0.025)) < 1e-15 &&
           fabs(mean.high - quantile(means, REPLICATES, 0.975)) < 1e-15 && mean.undefined == 0,
       "the mean's interval, over the classes that each replicate defines");
}

static void test_threads(void) {
    for (int threads = 1; threads <= 5; threads += 2) {
        struct chex_pool *pool = NULL;
        MUST(chex_pool_create(threads, &pool, &err));
        struct chex_bootstrap_config config = {REPLICATES, 7, pool};
        struct chex_interval got[CLASSES], got_mean;
        double got_values[CLASSES * REPLICATES];
        enum chex_status st =
            chex_bootstrap((const struct chex_ranking *const *)rankings, CLASSES, cluster, PATIENTS,
                           &config, got, &got_mean, got_values, &err);
        OK(st == CHEX_OK && memcmp(got_values, values, sizeof values) == 0 &&
               got_mean.low == mean.low && got_mean.high == mean.high,
           "%d threads: the same bits", threads);
        chex_pool_destroy(pool);
    }
}

/* More rows than u16 sums of u8 weights can hold without a carry. */
static void test_carry(void) {
    enum { N = 70000, R = 64 };
    double *s = calloc(N, sizeof *s);
    int8_t *y = calloc(N, sizeof *y);
    uint32_t *one = calloc(N, sizeof *one);
    BAIL_UNLESS(s && y && one, "out of memory");
    for (int i = 0; i < N; i++) {
        s[i] = (double)i;
        y[i] = i == N - 1 || i == N / 2;
        one[i] = i & 1;
    }
    struct chex_ranking *r = rank(s, y, N);
    const struct chex_ranking *list[] = {r};
    struct chex_bootstrap_config config = {.replicates = R, .seed = 3};
    struct chex_interval got, got_mean;
    double v[R];
    MUST(chex_bootstrap(list, 1, one, 2, &config, &got, &got_mean, v, &err));
    int wrong = 0, seen[3] = {0};
    for (int i = 0; i < R; i++) {
        struct chex_rng4 q = chex_rng(3, CHEX_RNG_BOOTSTRAP, 0, (uint32_t)i);
        uint64_t w1 = chex_rng_below(q.v[0], 2) + chex_rng_below(q.v[1], 2), w0 = 2 - w1;
        /* Rows N/2 (even) and N-1 (odd) are the positives. Of the negatives N/4 even and N/4 odd
         * ones lie below N/2; in all there are N/2 - 1 of each. The weights' sum is 2. */
        double pairs = (double)(w0 * (N / 2) + w1 * (N - 2));
        seen[w1]++;
        wrong += fabs(v[i] - pairs / (2.0 * (N - 2))) > 1e-15;
    }
    OK(wrong == 0 && seen[0] && seen[1] && seen[2], "70,000 rows: narrow sums are carried in time");
    chex_ranking_destroy(r);
    free(s);
    free(y);
    free(one);
}

static void test_weights(void) {
    uint8_t weights[3 * CHEX_BOOTSTRAP_LANES];
    OK_CALL(chex_bootstrap_draw(1, 64, 1, 255, weights, &err));
    OK(weights[0] == 255 && weights[63] == 255, "255 draws of one cluster still fit");
    OK_STATUS(chex_bootstrap_draw(1, 64, 1, 256, weights, &err), CHEX_E_DATA, err,
              "replicate 64 draws cluster 0 more than 255 times");
    OK_CALL(chex_bootstrap_draw(1, 0, 3, 30, weights, &err));
    bool sums = true;
    for (int l = 0; l < CHEX_BOOTSTRAP_LANES; l++)
        sums = sums && weights[l] + weights[64 + l] + weights[128 + l] == 30;
    OK(sums, "every replicate has as many draws as asked");
    const char *ids[] = {"p2", "p1", "p2", "", "p1", ""};
    uint32_t numbers[6];
    size_t clusters = 0;
    OK_CALL(chex_bootstrap_cluster(ids, 6, numbers, &clusters, &err));
    OK(clusters == 3 && numbers[0] == 0 && numbers[1] == 1 && numbers[2] == 0 && numbers[3] == 2 &&
           numbers[4] == 1 && numbers[5] == 2,
       "patients are numbered in order of appearance");
}

int main(void) {
    make_data();
    test_exact();
    test_percentiles();
    test_threads();
    test_carry();
    test_weights();
    for (int c = 0; c < CLASSES; c++)
        chex_ranking_destroy(rankings[c]);
    return tap_done();
}
