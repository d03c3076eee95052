/* SPDX-License-Identifier: Apache-2.0
 *
 * Two recipes with several trainings each, by simulation: how often the interval holds the true
 * difference of their mean AUROCs (of equal recipes: 100 minus that is the type-I error). Prints
 * the rows of doc/intervals/recipes.csv.
 *
 *   bench-recipes [--trials 1000] [--negatives 400] [--design N] [--mean 1]
 *
 * --design: only this design of tests/simulated.h, counted from 0. --mean: only means of findings.
 */
#include "../simulated_recipes.h"
#include "bench.h"

enum { SEED = 31, DESIGNS = 3, AUROCS = 3, RUNS = 5, DEVIATIONS = 3, COUNTS = 3 };

static const int designs[DESIGNS] = {0, 4, 6};
static const double aurocs[AUROCS][2] = {{0.8, 0.8}, {0.95, 0.95}, {0.85, 0.8}};
/* The last one has paired seeds. */
static const uint32_t runs[RUNS][2] = {{3, 3}, {5, 5}, {10, 10}, {3, 10}, {5, 5}};
static const double deviations[DEVIATIONS][2] = {{0, 0}, {0.02, 0.02}, {0.02, 0.005}};
static const uint32_t counts[COUNTS] = {10, 30, 100};

static struct simulated_runs set[SIMULATED_FINDINGS];

/* positives: patients of each finding; 0: 10, 30 and 100 in turn. */
static void print_cell(const struct simulated_recipes *o, int findings, uint32_t positives,
                       uint32_t trials, uint32_t negatives) {
    const double truth = o->auroc[0] - o->auroc[1];
    uint32_t held = 0;
    double width = 0, share = 0;
    for (uint32_t t = 0; t < trials; t++) {
        for (int c = 0; c < findings; c++)
            simulated_fill_runs(&set[c], o, positives ? positives : counts[c % COUNTS], negatives,
                                SEED, t * (uint32_t)findings + (uint32_t)c);
        const struct chex_paired_class k = simulated_compare(set, findings, o, o->same > 0);
        held += k.interval.low <= truth && truth <= k.interval.high;
        width += k.interval.high - k.interval.low;
        share += k.training_share;
    }
    printf("\"%s\",%d,%s,%.2f,%.2f,%u,%u,%.3f,%.3f,", o->design->name, findings,
           o->same > 0 ? "paired" : "nested", o->auroc[0], o->auroc[1], o->runs[0], o->runs[1],
           o->sd[0], o->sd[1]);
    printf(positives ? "%u" : "10 to 100", positives);
    printf(",%.1f,%.3f,%.2f\n", 100.0 * held / trials, width / trials, share / trials);
    fflush(stdout);
}

static void print_cells(int design, bool means, uint32_t trials, uint32_t negatives) {
    for (int a = 0; a < AUROCS; a++)
        for (int n = 0; n < RUNS; n++)
            for (int s = 0; s < DEVIATIONS; s++) {
                const struct simulated_recipes o = {&simulated_designs[design],
                                                    {runs[n][0], runs[n][1]},
                                                    {aurocs[a][0], aurocs[a][1]},
                                                    {deviations[s][0], deviations[s][1]},
                                                    n == RUNS - 1 ? 0.5 : 0,
                                                    0.85,
                                                    0.75};
                for (int k = 0; !means && k < COUNTS; k++)
                    print_cell(&o, 1, counts[k], trials, negatives);
                for (uint32_t k = 0; means && n < 2 && s < 2 && k <= 100; k += 100)
                    print_cell(&o, SIMULATED_FINDINGS, k, trials, negatives);
            }
}

int main(int argc, char **argv) {
    const uint32_t trials = option(argc, argv, "--trials", 1000);
    const uint32_t negatives = option(argc, argv, "--negatives", 400);
    const int only = (int)option(argc, argv, "--design", (uint32_t)-1);
    const bool means = option(argc, argv, "--mean", 0) != 0;
    puts("design,findings,seeds,auroc_a,auroc_b,runs_a,runs_b,sd_a,sd_b,positive_patients,"
         "coverage_percent,mean_width,training_share");
    for (int d = 0; !means && d < DESIGNS; d++)
        if (only < 0 || only == designs[d])
            print_cells(designs[d], false, trials, negatives);
    if (means || only < 0)
        print_cells(0, true, trials, negatives);
    return 0;
}
