/* SPDX-License-Identifier: Apache-2.0
 *
 * Two recipes with several trainings: limits, and the coverage of a few simulated designs (all of
 * them: tests/bench/recipes.c). tests/tools/compare_auroc.py recomputes all figures.
 */
#include "stats/recipes.h"

#include "../simulated_recipes.h"
#include "tap.h"

static struct simulated_runs set[1];

static struct simulated_recipes recipes_of(uint32_t first, uint32_t second, double auroc, double sd,
                                           double same) {
    return (struct simulated_recipes){
        &simulated_designs[4], {first, second}, {auroc, 0.8}, {sd, sd}, same, 0.85, 0.75};
}

static void test_perfect(void) {
    const struct simulated_recipes o = recipes_of(3, 10, 0.8, 0, 0);
    simulated_fill_runs(set, &o, 10, 90, 1, 1);
    for (uint32_t k = 0; k < 13; k++)
        for (uint32_t i = 0; i < set->first.rows; i++)
            set->score[k][i] = set->first.label[i] + 0.1 * (double)((i + k) % 5);
    const struct chex_paired_class k = simulated_compare(set, 1, &o, false);
    OK(k.auroc[0] == 1 && k.auroc[1] == 1 && k.difference == 0 && k.p_value == 1 &&
           k.interval.low < 0 && k.interval.low > -0.4 &&
           fabs(k.interval.low + k.interval.high) < 1e-12,
       "3 and 10 perfect trainings differ by 0, from %.3f to %.3f", k.interval.low,
       k.interval.high);
    const struct simulated_recipes more = recipes_of(10, 3, 0.8, 0, 0);
    simulated_fill_runs(set, &more, 1, 1, 1, 4);
    OK(isfinite(simulated_compare(set, 1, &more, false).difference),
       "trainings of the first recipe alone are not paired: AddressSanitizer finds no read beyond");
}

/* The trainings of one recipe are exchanged, or both recipes. */
static void test_symmetry(void) {
    struct simulated_recipes o = recipes_of(3, 3, 0.85, 0.02, 0);
    static struct simulated_runs other[1];
    simulated_fill_runs(set, &o, 20, 200, 1, 2);
    *other = *set;
    for (int k = 0; k < 6; k++)
        memcpy(other->score[k], set->score[5 - k], sizeof set->score[k]);
    const struct chex_paired_class a = simulated_compare(set, 1, &o, false);
    const struct chex_paired_class b = simulated_compare(other, 1, &o, false);
    OK(fabs(a.difference + b.difference) < 1e-15 && fabs(a.p_value - b.p_value) < 1e-12 &&
           fabs(a.interval.low + b.interval.high) < 1e-12 && fabs(a.se - b.se) < 1e-15,
       "exchanged recipes give the negative difference, whatever the order of the trainings");
    const struct chex_paired_class c = simulated_compare(set, 1, &o, true);
    OK(c.difference == a.difference && c.sd[0] == a.sd[0] && c.df < a.df * 2 && c.se != a.se,
       "pairing changes the error and its degrees of freedom, not the difference");
}

/* What fixed trainings hide: the interval for these trainings alone is that of equal ones. */
static void test_spread(void) {
    const struct simulated_recipes none = recipes_of(4, 4, 0.8, 0, 0),
                                   wide = recipes_of(4, 4, 0.8, 0.04, 0);
    simulated_fill_runs(set, &none, 60, 400, 1, 3);
    const struct chex_paired_class a = simulated_compare(set, 1, &none, false);
    simulated_fill_runs(set, &wide, 60, 400, 1, 3);
    const struct chex_paired_class b = simulated_compare(set, 1, &wide, false);
    OK(b.se > 1.3 * a.se && b.df < a.df && b.training_share > a.training_share &&
           b.training_share < 1,
       "trainings that vary widen the interval: se %.4f and %.4f", a.se, b.se);
    OK(isnan(a.runs_to_halve) && b.runs_to_halve > 4,
       "%.0f trainings would halve it; without spread none would", b.runs_to_halve);
}

/* 700 trials: a measured coverage of 95 % varies by 0.8. */
static void test_coverage(void) {
    static const struct {
        uint32_t runs[2], positives;
        double auroc, sd, same;
    } cells[] = {
        {{3, 3}, 30, 0.8, 0.02, 0}, {{3, 6}, 30, 0.85, 0.005, 0}, {{4, 4}, 30, 0.8, 0.02, 0.5}};
    enum { TRIALS = TAP_SLOW_BUILD ? 100 : 700 };
    for (size_t c = 0; c < sizeof cells / sizeof cells[0]; c++) {
        const struct simulated_recipes o = recipes_of(cells[c].runs[0], cells[c].runs[1],
                                                      cells[c].auroc, cells[c].sd, cells[c].same);
        const double truth = o.auroc[0] - o.auroc[1], slack = TAP_SLOW_BUILD ? 5 : 0;
        int held = 0;
        for (uint32_t t = 0; t < TRIALS; t++) {
            simulated_fill_runs(set, &o, cells[c].positives, 200, 9, t);
            const struct chex_paired_class k = simulated_compare(set, 1, &o, o.same > 0);
            held += k.interval.low <= truth && truth <= k.interval.high;
        }
        const double coverage = 100.0 * held / TRIALS;
        OK(coverage > 92.5 - slack && coverage<97.5 + slack,
                                               "%u and %u %s trainings, deviation %.3f: the "
                                               "interval holds the difference in %.1f %%",
                                               o.runs[0], o.runs[1], o.same> 0
               ? "paired"
               : "nested",
           o.sd[0], coverage);
    }
}

int main(void) {
    test_perfect();
    test_symmetry();
    test_spread();
    test_coverage();
    return tap_done();
}
