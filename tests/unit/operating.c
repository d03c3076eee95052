/* SPDX-License-Identifier: Apache-2.0
 *
 * Operating points: rules, exact choice of thresholds with ties, decisions, intervals of
 * proportions and their coverage in a few simulated designs (all of them: tests/bench/figures.c).
 */
#include "stats/operating.h"

#include "../simulated_labels.h"
#include "ranking.h"
#include "stats/delong.h"
#include "tap.h"

enum { ROWS = 60 };

static double score[ROWS];
static int8_t label[ROWS];

static struct chex_operating decide(const struct chex_ranking *r, const uint32_t *patient,
                                    size_t patients, double threshold, double prevalence) {
    const struct chex_clusters k = {patient, patients, true};
    struct chex_operating o;
    MUST(chex_operating_create(r, &k, threshold, prevalence, &o, &err));
    return o;
}

static void test_rules(void) {
    static const char *const good[] = {"youden", "f1", "sensitivity=0.9", "specificity=1"};
    static const char *const bad[] = {"",
                                      "Youden",
                                      "sensitivity",
                                      "sensitivity=",
                                      "f1=0.5",
                                      "sensitivity=0",
                                      "specificity=2",
                                      "specificity=x",
                                      "youden=",
                                      "accuracy=0.9",
                                      "0.5"};
    struct chex_threshold_rule rule;
    char text[CHEX_THRESHOLD_TEXT_BYTES];
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        const bool parsed = chex_threshold_parse(good[i], &rule, &err) == CHEX_OK;
        if (parsed)
            chex_threshold_text(&rule, text);
        OK(parsed && strcmp(text, good[i]) == 0, "the rule %s is read and written", good[i]);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        OK_STATUS(chex_threshold_parse(bad[i], &rule, &err), CHEX_E_USAGE, err, "threshold rule");
    }
}

/* The threshold by trying all scores, with integers. */
static double by_trial(const struct chex_threshold_rule *rule) {
    double best = NAN;
    int64_t best_over = -1000000, best_under = 1, P = 0, N = 0;
    for (int i = 0; i < ROWS; i++)
        *(label[i] ? &P : &N) += 1;
    for (int t = 0; t < ROWS; t++) {
        int64_t tp = 0, fp = 0, over = 0, under = 1;
        for (int i = 0; i < ROWS; i++)
            if (score[i] >= score[t])
                *(label[i] ? &tp : &fp) += 1;
        if (rule->kind == CHEX_THRESHOLD_YOUDEN)
            over = tp * N - fp * P;
        else if (rule->kind == CHEX_THRESHOLD_F1)
            over = 2 * tp, under = P + tp + fp;
        else if (rule->kind == CHEX_THRESHOLD_SENSITIVITY)
            over = 10 * tp >= 8 * P ? 1 : -1000000; /* target 0.8 */
        else
            over = 10 * (N - fp) >= 8 * N ? tp : -1000000;
        const int64_t more = over * best_under - best_over * under;
        const bool wins = rule->kind == CHEX_THRESHOLD_SPECIFICITY && over >= 0
                              ? more > 0 || (more == 0 && score[t] < best)
                              : more > 0 || (more == 0 && score[t] > best);
        if (wins && over > -1000000) {
            best = score[t];
            best_over = over;
            best_under = under;
        }
    }
    return best;
}

static void test_choice(void) {
    static const char *const rules[] = {"youden", "f1", "sensitivity=0.8", "specificity=0.8"};
    struct simulated_draws draws = {5, 0, 0};
    for (int k = 0; k < 4; k++) {
        struct chex_threshold_rule rule;
        int equal = 0;
        chex_threshold_parse(rules[k], &rule, NULL);
        for (int trial = 0; trial < 200; trial++) {
            for (int i = 0; i < ROWS; i++) {
                label[i] = i < 2 ? (int8_t)i : simulated_uniform(&draws) < 0.3;
                /* From many ties to few. */
                score[i] = floor((simulated_normal(&draws) + label[i]) * (trial % 20 + 1));
            }
            struct chex_ranking *r = rank(score, label, ROWS);
            const double a = chex_threshold_choose(r, &rule), b = by_trial(&rule);
            equal += a == b || (isnan(a) && isnan(b));
            chex_ranking_destroy(r);
        }
        OK(equal == 200, "%s chooses the threshold found by trying all (%d of 200)", rules[k],
           equal);
    }
}

static void test_undefined(void) {
    const double s[] = {0.1, 0.2, 0.3};
    const int8_t none[] = {0, 0, 0}, top[] = {1, 1, 0};
    struct chex_threshold_rule rule;
    struct chex_ranking *r = rank(s, none, 3);
    chex_threshold_parse("youden", &rule, NULL);
    OK(isnan(chex_threshold_choose(r, &rule)), "a class without positives gets no threshold");
    struct chex_operating o = decide(r, NULL, 3, NAN, NAN);
    OK(isnan(o.sensitivity.value) && isnan(o.ppv.value) && o.tp + o.fp + o.tn + o.fn == 0,
       "without a threshold there are no decisions");
    o = decide(r, NULL, 3, 0.2, NAN);
    OK(isnan(o.sensitivity.value) && fabs(o.specificity.value - 1.0 / 3) < 1e-15 && o.fp == 2,
       "without positives there is no sensitivity");
    chex_ranking_destroy(r);
    r = rank(s, top, 3);
    chex_threshold_parse("specificity=0.9", &rule, NULL);
    OK(isnan(chex_threshold_choose(r, &rule)),
       "there is no threshold if no score reaches the specificity");
    chex_ranking_destroy(r);
}

static void test_proportions(void) {
    struct chex_proportion p = {0}, pairs = {0}, one = {0};
    for (int i = 0; i < 10; i++)
        chex_proportion_add(&p, i < 8, 1);
    struct chex_figure f = chex_proportion_figure(&p);
    OK(fabs(f.interval.low - 0.4901625) < 1e-6 && fabs(f.interval.high - 0.9433178) < 1e-6,
       "one row per cluster gives Wilson's interval: 8 of 10 is %.7f to %.7f", f.interval.low,
       f.interval.high);
    for (int i = 0; i < 10; i++)
        chex_proportion_add(&pairs, i < 8 ? 2 : 0, 2);
    const struct chex_figure g = chex_proportion_figure(&pairs);
    OK(g.interval.low < f.interval.low + 0.08 && g.interval.low > f.interval.low - 0.01,
       "pairs of equal rows say hardly more than single rows");
    chex_proportion_add(&one, 3, 4);
    f = chex_proportion_figure(&one);
    OK(f.value == 0.75 && isnan(f.interval.low), "one cluster gives no interval");
    struct chex_proportion all = {0};
    for (int i = 0; i < 5; i++)
        chex_proportion_add(&all, 1, 1);
    f = chex_proportion_figure(&all);
    OK(f.interval.high == 1 && f.interval.low > 0.5 && f.interval.low < 0.6,
       "5 of 5 has an interval from %.3f to 1", f.interval.low);
}

/* The interval of clusters of unequal sizes, with sums over the clusters and its own equation. */
static void test_unequal(void) {
    static const double sizes[] = {1, 1, 2, 3, 5, 12, 20}, found[] = {0, 1, 2, 0, 4, 3, 12};
    enum { K = sizeof sizes / sizeof sizes[0] };
    struct chex_proportion p = {0};
    double n = 0, x = 0, model = 0, seen = 0, expected = 0, fourth = 0, variance[K];
    for (int k = 0; k < K; k++) {
        chex_proportion_add(&p, found[k], sizes[k]);
        n += sizes[k];
        x += found[k];
        variance[k] = sizes[k] * (1 + (sizes[k] - 1) / 2);
        model += variance[k];
        fourth += variance[k] * variance[k];
    }
    for (int k = 0; k < K; k++) {
        const double own = 1 - sizes[k] / n;
        seen += pow(found[k] - x / n * sizes[k], 2);
        expected += own * own * variance[k] + pow(sizes[k] / n, 2) * (model - variance[k]);
    }
    const double spread = x / n * (1 - x / n), prior = model / n;
    const double df = 4 * spread * (model * model / fourth - 1);
    const double effect =
        (4 * prior + df * seen * model / expected / (spread * n) * (n - 1) / n) / (4 + df);
    const double t = chex_student_t((4 + df) * pow(prior / (prior - 1), 2));
    const struct chex_figure f = chex_proportion_figure(&p);
    const double ends[] = {f.interval.low, f.interval.high};
    for (int i = 0; i < 2; i++)
        OK(fabs(fabs(x / n - ends[i]) - t * sqrt(ends[i] * (1 - ends[i]) * effect / n)) < 1e-12,
           "unequal clusters: the end %.6f is %.4f standard errors away", ends[i], t);
}

static void test_prevalence(void) {
    const struct labels_design *d = &labels_designs[2];
    const struct labels_truth t = labels_truth_of(d, 0.2);
    static struct simulated_set s;
    labels_fill(&s, d, t.mean, 500, 3, 0);
    struct chex_ranking *r = rank(s.score, s.label, s.rows);
    const double own = (double)r->positives / (double)r->count;
    struct chex_operating o = decide(r, s.patient, s.patients, t.threshold, own);
    OK(fabs(o.ppv.value - o.ppv_at.value) < 1e-12 && fabs(o.npv.value - o.npv_at.value) < 1e-12,
       "predictive values at the prevalence of the data are those of the data");
    OK(o.ppv_at.interval.low < o.ppv_at.value && o.ppv_at.value < o.ppv_at.interval.high &&
           o.npv_at.interval.low < o.npv_at.value && o.npv_at.value < o.npv_at.interval.high,
       "and lie within their intervals");
    OK(fabs(o.f1.value - 2.0 * (double)o.tp / (double)(2 * o.tp + o.fp + o.fn)) < 1e-15,
       "F1 is by its definition");
    const struct chex_operating high = decide(r, s.patient, s.patients, 1, 0.1);
    OK(isnan(high.ppv.value) && isnan(high.ppv_at.value),
       "without a positive decision there is no PPV, nor at a prevalence");
    const struct chex_clusters k = {s.patient, s.patients, false};
    chex_operating_create(r, &k, t.threshold, 0.1, &o, NULL);
    OK(isnan(o.ppv.interval.low) && isnan(o.ppv_at.interval.low) && isnan(o.f1.interval.high),
       "no figure has an interval if none are asked for");
    chex_ranking_destroy(r);
}

static void test_coverage(void) {
    enum { TRIALS = 400 };
    static const int designs[] = {2, 4, 5};
    static struct simulated_set s;
    for (int k = 0; k < 3; k++) {
        const struct labels_design *d = &labels_designs[designs[k]];
        const struct labels_truth t = labels_truth_of(d, 0.1);
        int sensitivity = 0, ppv = 0, f1 = 0;
        for (uint32_t i = 0; i < TRIALS; i++) {
            labels_fill(&s, d, t.mean, d->images == LABELS_LONG_TAIL ? 1000 : 600, 7, i);
            struct chex_ranking *r = rank(s.score, s.label, s.rows);
            const struct chex_operating o = decide(r, s.patient, s.patients, t.threshold, NAN);
            sensitivity += o.sensitivity.interval.low <= t.sensitivity &&
                           t.sensitivity <= o.sensitivity.interval.high;
            ppv += o.ppv.interval.low <= t.ppv && t.ppv <= o.ppv.interval.high;
            f1 += o.f1.interval.low <= t.f1 && t.f1 <= o.f1.interval.high;
            chex_ranking_destroy(r);
        }
        const double least = (d->images == LABELS_LONG_TAIL ? 0.95 : 0.92) * TRIALS;
        OK(sensitivity >= least && ppv >= least && f1 >= least,
           "intervals hold the truth (%s): sensitivity %.1f %%, PPV %.1f %%, F1 %.1f %%", d->name,
           100.0 * sensitivity / TRIALS, 100.0 * ppv / TRIALS, 100.0 * f1 / TRIALS);
    }
}

int main(void) {
    test_rules();
    test_choice();
    test_undefined();
    test_proportions();
    test_unequal();
    test_prevalence();
    test_coverage();
    return tap_done();
}
