/* SPDX-License-Identifier: Apache-2.0
 *
 * AUROC against counting pairs, against scikit-learn's recorded values, and its refusals.
 */
#include "stats/auroc.h"

#include "base/fs.h"
#include "base/rng.h"
#include "label/csv.h"
#include "ranking.h"
#include "stats/delong.h"
#include "tap.h"

enum { MAX = 600 };

/* By the definition: every pair, in integers. */
static double by_pairs(const double *s, const int8_t *y, size_t n) {
    uint64_t pairs = 0, positives = 0, negatives = 0;
    for (size_t i = 0; i < n; i++) {
        positives += y[i] == 1;
        negatives += y[i] == 0;
        for (size_t j = 0; y[i] == 1 && j < n; j++)
            if (y[j] == 0)
                pairs += s[i] > s[j] ? 2 : s[i] == s[j];
    }
    return positives && negatives ? (double)pairs / (2.0 * (double)positives * (double)negatives)
                                  : NAN;
}

/* Each row by itself. */
static double delong_variance(const struct chex_ranking *r, size_t rows) {
    struct chex_delong d;
    MUST(chex_delong(r, NULL, rows, NULL, &d, &err));
    return d.variance;
}

static double auroc(const double *s, const int8_t *y, size_t n, double *variance_out) {
    struct chex_ranking *r = rank(s, y, n);
    double a = chex_ranking_auroc(r);
    if (variance_out)
        *variance_out = delong_variance(r, n);
    chex_ranking_destroy(r);
    return a;
}

static bool same(double a, double b) { return a == b || (isnan(a) && isnan(b)); }

static void random_case(uint64_t seed, int levels, double *s, int8_t *y, size_t n) {
    for (size_t i = 0; i < n; i++) {
        struct chex_rng4 r = chex_rng(seed, CHEX_RNG_TEST, i, 0);
        y[i] = (int8_t)((int)chex_rng_below(r.v[0], 4) - 2 + (r.v[1] & 1)); /* -2 .. 2 */
        if (y[i] > 1)
            y[i] = 1;
        s[i] = levels ? (double)chex_rng_below(r.v[2], (uint32_t)levels) - 1.0
                      : (double)chex_rng_unit(r.v[2]) - 0.5;
        if (s[i] == 0 && r.v[3] & 1)
            s[i] = -0.0;
    }
}

static void test_pairs(void) {
    double s[MAX];
    int8_t y[MAX];
    static const int levels[] = {0, 1, 2, 3, 17};
    int wrong = 0;
    for (size_t l = 0; l < sizeof levels / sizeof levels[0]; l++)
        for (size_t n = 0; n < 60; n++) {
            random_case(n * 8 + l, levels[l], s, y, n);
            wrong += !same(auroc(s, y, n, NULL), by_pairs(s, y, n));
        }
    OK(wrong == 0, "300 random sets with ties and masks equal the count of pairs exactly");
}

static void test_recorded(void) {
    char *scores = NULL, *expected = NULL;
    size_t ssize = 0, esize = 0;
    MUST(chex_fs_read(TEST_DATA "/eval/scores.csv", 1 << 20, &scores, &ssize, &err));
    MUST(chex_fs_read(TEST_DATA "/eval/expected.csv", 1 << 20, &expected, &esize, &err));
    struct chex_csv sc, ec;
    bool more;
    chex_csv_init(&sc, "scores.csv", scores, ssize);
    chex_csv_init(&ec, "expected.csv", expected, esize);
    chex_csv_next(&sc, &more, &err);
    chex_csv_next(&sc, &more, &err);
    chex_csv_next(&ec, &more, &err);
    while (chex_csv_next(&ec, &more, &err) == CHEX_OK && more) {
        double s[MAX];
        int8_t y[MAX];
        size_t n = 0;
        for (; more && strcmp(sc.fields[0], ec.fields[0]) == 0; chex_csv_next(&sc, &more, &err)) {
            y[n] = (int8_t)atoi(sc.fields[1]);
            s[n++] = strtod(sc.fields[2], NULL);
        }
        double variance, a = auroc(s, y, n, &variance);
        double want = strtod(ec.fields[1], NULL), want_variance = strtod(ec.fields[2], NULL);
        /* scikit-learn sums trapezoids in double: a few units in the last place. */
        OK(n > 0 && fabs(a - want) <= 4e-16, "%s: %zu scores, AUROC %.17g (scikit-learn %.17g)",
           ec.fields[0], n, a, want);
        OK(isnan(want_variance) ? isnan(variance)
                                : fabs(variance - want_variance) <= 1e-14 * (1 + want_variance),
           "%s: DeLong variance %.12g (by definition %.12g)", ec.fields[0], variance,
           want_variance);
    }
    OK(!more && err.status == CHEX_OK, "all of both files read");
    chex_csv_release(&sc);
    chex_csv_release(&ec);
    free(scores);
    free(expected);
}

static void test_limits(void) {
    struct chex_ranking *r = NULL;
    double s[] = {0.1, 0.2, NAN, 0.4};
    int8_t y[] = {0, 1, 0, 1};
    OK_STATUS(chex_ranking_create(s, y, 4, 1, &r, &err), CHEX_E_DATA, err,
              "row 2: the score is not a number");
    y[2] = -1;
    OK(auroc(s, y, 4, NULL) == 1.0, "the score of a masked row is not looked at");
    y[3] = 2;
    OK_STATUS(chex_ranking_create(s, y, 4, 1, &r, &err), CHEX_E_DATA, err, "row 3: label 2");
    OK_STATUS(chex_ranking_create(s, y, (size_t)CHEX_RANKING_MAX_ROWS + 1, 1, &r, &err),
              CHEX_E_DATA, err, "the limit is");
    OK(r == NULL, "nothing is handed out on failure");
    int8_t ones[] = {1, 1, -1, 1}, masked[] = {-1, -2, -1, -1};
    double v;
    OK(isnan(auroc(s, ones, 4, &v)) && isnan(v), "no negative: undefined");
    OK(isnan(auroc(s, masked, 4, &v)) && isnan(v), "all masked: undefined");
    double edge[] = {-INFINITY, -5e-324, -0.0, 0.0, 5e-324, INFINITY};
    int8_t ye[] = {0, 0, 1, 0, 1, 1};
    OK(auroc(edge, ye, 6, NULL) == 8.5 / 9, "infinities and denormals sort, -0 ties with 0");
    double near_one[] = {1 - 1e-9, 1 - 2e-9, 1e-60, 1e-50};
    int8_t yn[] = {1, 0, 0, 1};
    OK(auroc(near_one, yn, 4, NULL) == 0.75, "scores that differ in fp64 alone are no ties");
}

static void test_stride(void) {
    double s[] = {0.9, 0.1, 0.2, 0.8, 0.3, 0.7};
    int8_t y[] = {1, 0, 0, 1, 0, 1};
    struct chex_ranking *r = NULL;
    MUST(chex_ranking_create(s + 1, y + 1, 3, 2, &r, &err));
    OK(r->count == 3 && r->positives == 2 && r->negatives == 1 && chex_ranking_auroc(r) == 1.0,
       "a column of a (rows, classes) table");
    OK(r->row[0] == 0 && r->row[1] == 2 && r->row[2] == 1, "row numbers are those of the table");
    chex_ranking_destroy(r);
}

static void test_roc(void) {
    double s[MAX];
    int8_t y[MAX];
    struct chex_ranking *r = NULL;
    struct chex_roc *roc = NULL;
    random_case(5, 40, s, y, MAX);
    MUST(chex_ranking_create(s, y, MAX, 1, &r, &err));
    MUST(chex_roc_create(r, &roc, &err));
    double area = 0;
    bool rises = roc->fpr[0] == 0 && roc->tpr[0] == 0;
    for (size_t i = 1; i < roc->count; i++) {
        area += (roc->fpr[i] - roc->fpr[i - 1]) * (roc->tpr[i] + roc->tpr[i - 1]) / 2;
        rises = rises && roc->fpr[i] >= roc->fpr[i - 1] && roc->tpr[i] >= roc->tpr[i - 1];
    }
    OK(rises && roc->fpr[roc->count - 1] == 1 && roc->tpr[roc->count - 1] == 1,
       "the curve rises from (0, 0) to (1, 1)");
    OK(fabs(area - chex_ranking_auroc(r)) < 1e-12, "the area under its %zu points is the AUROC",
       roc->count);
    chex_roc_destroy(roc);
    chex_ranking_destroy(r);
    for (int i = 0; i < 100; i++) {
        s[i] = (double)i;
        y[i] = i >= 50;
    }
    MUST(chex_ranking_create(s, y, 100, 1, &r, &err));
    MUST(chex_roc_create(r, &roc, &err));
    OK(roc->count == 3 && roc->tpr[1] == 1 && roc->fpr[1] == 0,
       "points within straight runs are left out");
    chex_roc_destroy(roc);
    chex_ranking_destroy(r);
}

int main(void) {
    test_pairs();
    test_recorded();
    test_limits();
    test_stride();
    test_roc();
    return tap_done();
}
