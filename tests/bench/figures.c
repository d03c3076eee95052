/* SPDX-License-Identifier: Apache-2.0
 *
 * Coverage of the intervals of all figures beside the AUROC, by simulation: how often they hold the
 * truth, how often they lie below and above it, and how often there is none. Prints the tables of
 * doc/intervals.md.
 *
 *   bench-figures [--trials 2000] [--rows 1000]
 */
#include "../simulated_labels.h"
#include "bench.h"
#include "stats/operating.h"
#include "stats/precision_recall.h"

enum { FIGURES = 14, SHARES = 5, SEED = 21 };

static const char *const names[FIGURES] = {
    "sensitivity",        "specificity",     "PPV",   "NPV",       "F1",           "PPV at 10 %",
    "average precision",  "Brier",           "slope", "intercept", "in the large", "ECE",
    "net benefit at 0.1", "treat all at 0.1"};
static const double shares[SHARES] = {0.01, 0.03, 0.05, 0.1, 0.3};

static struct simulated_set set;

static void truths(const struct labels_truth *t, double share, double out[FIGURES]) {
    const double all[FIGURES] = {t->sensitivity,
                                 t->specificity,
                                 t->ppv,
                                 t->npv,
                                 t->f1,
                                 t->ppv_at,
                                 t->average_precision,
                                 t->brier,
                                 t->slope,
                                 t->intercept,
                                 t->in_the_large,
                                 t->ece,
                                 t->net_benefit,
                                 share - (1 - share) / 9};
    memcpy(out, all, sizeof all);
}

static void compute(double threshold, struct chex_figure out[FIGURES]) {
    struct chex_error err = {0};
    struct chex_ranking *r = NULL;
    struct chex_operating o;
    struct chex_figure ap;
    static struct chex_calibration_figures c;
    static struct chex_net_benefit n;
    const struct chex_clusters k = {set.patient, set.patients, true};
    check(chex_ranking_create(set.score, set.label, set.rows, 1, &r, &err), &err);
    check(chex_operating_create(r, &k, threshold, LABELS_PREVALENCE, &o, &err), &err);
    check(chex_average_precision(r, &k, &ap, &err), &err);
    check(chex_calibration_create(r, &k, &c, &err), &err);
    check(chex_net_benefit_create(r, &k, &n, &err), &err);
    chex_ranking_destroy(r);
    const struct chex_net_benefit_point *p = &n.point[LABELS_NET_BENEFIT];
    const struct chex_figure all[FIGURES] = {o.sensitivity,
                                             o.specificity,
                                             o.ppv,
                                             o.npv,
                                             o.f1,
                                             o.ppv_at,
                                             ap,
                                             c.brier,
                                             c.slope,
                                             c.intercept,
                                             c.in_the_large,
                                             c.ece,
                                             p->prediction,
                                             p->treat_all};
    memcpy(out, all, sizeof all);
}

struct tally {
    uint32_t below, above, none; /* intervals that lie below or above the truth; no interval */
};

static void simulate(const struct labels_design *d, double share, uint32_t rows, uint32_t trials,
                     struct tally tally[FIGURES]) {
    const struct labels_truth t = labels_truth_of(d, share);
    double truth[FIGURES];
    struct chex_figure f[FIGURES];
    truths(&t, share, truth);
    memset(tally, 0, FIGURES * sizeof *tally);
    for (uint32_t i = 0; i < trials; i++) {
        labels_fill(&set, d, t.mean, rows, SEED, i);
        compute(t.threshold, f);
        for (int k = 0; k < FIGURES; k++) {
            tally[k].none += isnan(f[k].interval.low);
            tally[k].below += f[k].interval.high < truth[k];
            tally[k].above += f[k].interval.low > truth[k];
        }
    }
}

static void print_design(const struct labels_design *d, uint32_t rows, uint32_t trials) {
    struct tally tally[SHARES][FIGURES];
    for (int s = 0; s < SHARES; s++)
        simulate(d, shares[s], rows, trials, tally[s]);
    for (int k = 0; k < FIGURES; k++) {
        printf("| %s | %s |", d->name, names[k]);
        for (int s = 0; s < SHARES; s++) {
            const struct tally *t = &tally[s][k];
            const double with = trials - t->none;
            if (with < trials / 20.0)
                printf(" too few |");
            else
                printf(" %.1f (%.1f, %.1f) |", 100 * (with - t->below - t->above) / with,
                       100 * t->below / with, 100 * t->above / with);
        }
        putchar('\n');
        fflush(stdout);
    }
}

int main(int argc, char **argv) {
    const uint32_t trials = option(argc, argv, "--trials", 2000);
    uint32_t rows = option(argc, argv, "--rows", 1000);
    rows = rows < SIMULATED_ROWS - LABELS_MOST_IMAGES ? rows : SIMULATED_ROWS - LABELS_MOST_IMAGES;
    printf("| design | figure |");
    for (int s = 0; s < SHARES; s++)
        printf(" %.0f %% |", 100 * shares[s]);
    puts("\n| --- | --- | --- | --- | --- | --- | --- |");
    for (int d = 0; d < LABELS_DESIGNS; d++)
        print_design(&labels_designs[d], rows, trials);
    return 0;
}
