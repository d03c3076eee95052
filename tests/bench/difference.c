/* SPDX-License-Identifier: Apache-2.0
 *
 * Paired comparisons of two models by simulation: how often the test calls equal models different,
 * and how often the interval holds the true difference. Prints the tables of doc/intervals.md.
 *
 *   bench-difference [--trials 4000] [--negatives 500] [--design N] [--mean 1]
 *
 * --design: only this design of tests/simulated.h, counted from 0. --mean: only means of findings.
 */
#include "stats/difference.h"
#include "../simulated.h"
#include "bench.h"

enum { COUNTS = 5, PAIRS = 6, CORRELATIONS = 3, CLASSES = 14, SEED = 21 };

static const uint32_t counts[COUNTS] = {3, 10, 20, 50, 100};
static const double correlations[CORRELATIONS] = {0.3, 0.7, 0.9};
static const double pairs[PAIRS][2] = {{0.6, 0.6},  {0.8, 0.8},  {0.95, 0.95},
                                       {0.7, 0.65}, {0.85, 0.8}, {0.97, 0.93}};

static struct simulated_pair pair;
static double part[SIMULATED_ROWS];

static struct chex_difference compare(void) {
    const double *const scores[] = {pair.first.score, pair.second};
    struct chex_ranking *r[2];
    struct chex_error err = {0};
    struct chex_difference d;
    for (int i = 0; i < 2; i++)
        check(chex_ranking_create(scores[i], pair.first.label, pair.first.rows, 1, &r[i], &err),
              &err);
    check(chex_difference(r[0], r[1], pair.first.patient, pair.first.patients, part, &d, &err),
          &err);
    for (int i = 0; i < 2; i++)
        chex_ranking_destroy(r[i]);
    return d;
}

static void print_design(const struct simulated_design *design, uint32_t trials,
                         uint32_t negatives) {
    for (int a = 0; a < PAIRS; a++)
        for (int c = 0; c < CORRELATIONS; c++) {
            const double truth = pairs[a][0] - pairs[a][1];
            printf("| %s | %.2f, %.2f | %.1f |", design->name, pairs[a][0], pairs[a][1],
                   correlations[c]);
            for (int k = 0; k < COUNTS; k++) {
                uint32_t held = 0;
                double width = 0;
                for (uint32_t t = 0; t < trials; t++) {
                    simulated_fill_pair(&pair, design, pairs[a], correlations[c], counts[k],
                                        negatives, SEED, t);
                    const struct chex_difference d = compare();
                    held += truth == 0 ? d.p_value >= 0.05
                                       : d.interval.low <= truth && truth <= d.interval.high;
                    width += d.interval.high - d.interval.low;
                }
                const double share = 100.0 * held / trials;
                printf(" %.1f (%.2f) |", truth == 0 ? 100 - share : share, width / trials);
                fflush(stdout);
            }
            putchar('\n');
        }
}

/* The mean of 14 findings on the same patients, with 3 to 100 or `positives` positive patients.
 * copies: all findings are the same. Returns whether the interval holds the true difference. */
static bool mean_holds(uint32_t trial, uint32_t negatives, uint32_t positives, bool copies,
                       bool equal) {
    struct chex_error err = {0};
    struct chex_delong_mean mean;
    double truth = 0;
    check(chex_delong_mean_create(&mean, SIMULATED_ROWS, &err), &err);
    mean.least = -1;
    for (int c = 0; c < CLASSES; c++) {
        const double *auroc = pairs[(equal ? 0 : 3) + (copies ? 1 : c % 3)];
        memset(part, 0, sizeof part);
        simulated_fill_pair(&pair, &simulated_designs[4], auroc, 0.7,
                            positives ? positives : counts[c % COUNTS], negatives, SEED,
                            copies ? trial : trial * CLASSES + (uint32_t)c);
        const struct chex_difference d = compare();
        chex_difference_add(&mean, &d, part);
        truth += (auroc[0] - auroc[1]) / CLASSES;
    }
    const struct chex_interval i = chex_delong_mean_interval(&mean);
    chex_delong_mean_release(&mean);
    return i.low <= truth && truth <= i.high;
}

static void print_means(uint32_t trials, uint32_t negatives) {
    puts("| mean of 14 findings | type-I error, equal models | coverage, different models |\n"
         "| --- | --- | --- |");
    for (int copies = 0; copies < 2; copies++)
        for (int k = copies ? 0 : -1; k < COUNTS; k++) {
            uint32_t held[2] = {0};
            for (int equal = 0; equal < 2; equal++)
                for (uint32_t t = 0; t < trials; t++)
                    held[equal] += mean_holds(t, negatives, k < 0 ? 0 : counts[k], copies, equal);
            printf("| %s scores, ", copies ? "equal" : "independent");
            if (k < 0)
                printf("%u to %u", counts[0], counts[COUNTS - 1]);
            else
                printf("%u", counts[k]);
            printf(" positive patients | %.1f | %.1f |\n", 100 - 100.0 * held[1] / trials,
                   100.0 * held[0] / trials);
            fflush(stdout);
        }
}

int main(int argc, char **argv) {
    const uint32_t trials = option(argc, argv, "--trials", 4000);
    const uint32_t negatives = option(argc, argv, "--negatives", 500);
    const int only = (int)option(argc, argv, "--design", (uint32_t)-1);
    const bool means = option(argc, argv, "--mean", 0) != 0;
    if (!means) {
        printf("| design | AUROCs | correlation |");
        for (int k = 0; k < COUNTS; k++)
            printf(" %u |", counts[k]);
        puts("\n| --- | --- | --- | --- | --- | --- | --- | --- |");
    }
    for (int d = 0; !means && d < SIMULATED_DESIGNS; d++)
        if (only < 0 || d == only)
            print_design(&simulated_designs[d], trials, negatives);
    if (means || only < 0)
        print_means(trials, negatives);
    return 0;
}
