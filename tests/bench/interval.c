/* SPDX-License-Identifier: Apache-2.0
 *
 * Coverage of the intervals by simulation: how often they hold the true AUROC. Prints the tables of
 * doc/intervals.md.
 *
 *   bench-interval [--trials 4000] [--negatives 500] [--bootstrap TRIALS | --logit TRIALS]
 *
 * --bootstrap: the percentile bootstrap instead, of 400 replicates. --logit: DeLong's interval on
 * the scale of the logit; one that does not exist holds nothing.
 */
#include "../simulated.h"
#include "bench.h"
#include "stats/bootstrap.h"
#include "stats/delong.h"

enum { COUNTS = 6, AUROCS = 3, CLASSES = 14, SEED = 20 };

static const uint32_t counts[COUNTS] = {2, 3, 5, 10, 30, 100};
static const double aurocs[AUROCS] = {0.6, 0.8, 0.95};

static struct simulated_set set;
static double part[SIMULATED_ROWS];

static struct chex_ranking *rank(void) {
    struct chex_error err = {0};
    struct chex_ranking *r = NULL;
    check(chex_ranking_create(set.score, set.label, set.rows, 1, &r, &err), &err);
    return r;
}

static struct chex_interval by_delong(struct chex_delong *d, bool logit) {
    struct chex_error err = {0};
    struct chex_ranking *r = rank();
    check(chex_delong(r, set.patient, set.patients, part, d, &err), &err);
    chex_ranking_destroy(r);
    return logit ? chex_delong_logit_interval(d) : chex_delong_interval(d);
}

static struct chex_interval by_bootstrap(void) {
    struct chex_error err = {0};
    struct chex_ranking *r = rank();
    const struct chex_ranking *list[] = {r};
    const struct chex_bootstrap_config config = {.replicates = 400, .seed = SEED};
    struct chex_interval i, mean;
    check(chex_bootstrap(list, 1, set.patient, set.patients, &config, &i, &mean, NULL, &err), &err);
    chex_ranking_destroy(r);
    return i;
}

static void print_design(const struct simulated_design *design, uint32_t trials, uint32_t negatives,
                         char method) {
    for (int a = 0; a < AUROCS; a++) {
        printf("| %s | %.2f |", design->name, aurocs[a]);
        for (int k = 0; k < COUNTS; k++) {
            uint32_t resident = 0;
            double width = 0;
            for (uint32_t t = 0; t < trials; t++) {
                struct chex_delong d;
                simulated_fill(&set, design, aurocs[a], counts[k], negatives, SEED, t);
                const struct chex_interval i =
                    method == 'b' ? by_bootstrap() : by_delong(&d, method == 'l');
                resident += i.low <= aurocs[a] && aurocs[a] <= i.high;
                width += isnan(i.low) ? 0 : i.high - i.low;
            }
            printf(" %.1f (%.2f) |", 100.0 * resident / trials, width / trials);
            fflush(stdout);
        }
        putchar('\n');
    }
}

/* The mean of 14 classes on the same patients: class c has the counts in turn from `first` on, and
 * each class its own positives among the patients. */
static bool mean_holds(uint32_t trial, uint32_t negatives, int first, int kinds) {
    const struct simulated_design *design = &simulated_designs[4];
    struct chex_error err = {0};
    struct chex_delong_mean mean;
    double truth = 0;
    check(chex_delong_mean_create(&mean, SIMULATED_ROWS, &err), &err);
    for (int c = 0; c < CLASSES; c++) {
        const double auroc = aurocs[c % AUROCS];
        struct chex_delong d;
        memset(part, 0, sizeof part);
        simulated_fill(&set, design, auroc, counts[first + c % kinds], negatives, SEED,
                       trial * CLASSES + (uint32_t)c);
        const struct chex_interval i = by_delong(&d, false);
        truth += auroc / CLASSES;
        chex_delong_mean_add(&mean, &d, &i, part);
    }
    const struct chex_interval i = chex_delong_mean_interval(&mean);
    chex_delong_mean_release(&mean);
    return i.low <= truth && truth <= i.high;
}

/* All classes alike and on the same rows with equal scores: the mean is as uncertain as one. */
static bool copies_hold(uint32_t trial, uint32_t negatives, uint32_t positives) {
    struct chex_error err = {0};
    struct chex_delong_mean mean;
    struct chex_delong d;
    check(chex_delong_mean_create(&mean, SIMULATED_ROWS, &err), &err);
    simulated_fill(&set, &simulated_designs[4], 0.8, positives, negatives, SEED, trial);
    memset(part, 0, sizeof part);
    const struct chex_interval one = by_delong(&d, false);
    for (int c = 0; c < CLASSES; c++)
        chex_delong_mean_add(&mean, &d, &one, part);
    const struct chex_interval i = chex_delong_mean_interval(&mean);
    chex_delong_mean_release(&mean);
    return i.low <= 0.8 && 0.8 <= i.high;
}

static void print_means(uint32_t trials, uint32_t negatives) {
    puts("\n| mean of 14 findings | coverage |\n| --- | --- |");
    for (int first = 0; first < COUNTS; first++)
        for (int kinds = 1; kinds <= COUNTS - first;
             kinds += COUNTS - first - 1 ? COUNTS - first - 1 : 1) {
            uint32_t resident = 0;
            for (uint32_t t = 0; t < trials; t++)
                resident += mean_holds(t, negatives, first, kinds);
            printf("| independent scores, %u to %u positive patients | %.1f |\n", counts[first],
                   counts[first + kinds - 1], 100.0 * resident / trials);
        }
    for (int k = 0; k < COUNTS; k++) {
        uint32_t resident = 0;
        for (uint32_t t = 0; t < trials; t++)
            resident += copies_hold(t, negatives, counts[k]);
        printf("| equal scores, %u positive patients | %.1f |\n", counts[k],
               100.0 * resident / trials);
    }
}

int main(int argc, char **argv) {
    const uint32_t negatives = option(argc, argv, "--negatives", 500);
    const uint32_t bootstrap = option(argc, argv, "--bootstrap", 0);
    const uint32_t logit = option(argc, argv, "--logit", 0);
    const uint32_t trials = bootstrap ? bootstrap
                            : logit   ? logit
                                      : option(argc, argv, "--trials", 4000);
    const char method = bootstrap ? 'b' : logit ? 'l' : 'd'; /* d: delong */
    printf("| design | AUROC |");
    for (int k = 0; k < COUNTS; k++)
        printf(" %u |", counts[k]);
    puts("\n| --- | --- | --- | --- | --- | --- | --- | --- |");
    for (int d = 0; d < SIMULATED_DESIGNS; d++)
        print_design(&simulated_designs[d], trials, negatives, method);
    if (method == 'd')
        print_means(trials, negatives);
    return 0;
}
