/* SPDX-License-Identifier: Apache-2.0
 *
 * Groups of rows, gaps between them, AUROCs within strata, units, and the audit of shortcuts on
 * tables whose figures are known. tests/tools/evaluate_groups.py compares whole evaluations.
 */
#include "stats/subgroups.h"

#include "base/fs.h"
#include "base/rng.h"
#include "ranking.h"
#include "stats/delong.h"
#include "stats/shortcuts.h"
#include "stats/stratified.h"
#include "stats/unit_scores.h"
#include "tap.h"

static const char *const names[] = {"A"};

static struct chex_predictions *table_of(size_t rows) {
    struct chex_predictions *p = NULL;
    MUST(chex_predictions_create(rows, 1, names, &p, &err));
    MUST(chex_predictions_add_facts(p, &err));
    for (size_t i = 0; i < rows; i++)
        p->image_id[i] = chex_fs_format("%zu.png", i);
    return p;
}

static struct chex_scores *scores_of(const struct chex_predictions *p) {
    const struct chex_scores_config config = {.replicates = 1, .cluster = CHEX_CLUSTER_PATIENT};
    struct chex_scores *s = NULL;
    MUST(chex_scores_create(p, &config, &s, &err));
    return s;
}

/* ---- gaps ---- */

static void test_gap(void) {
    const struct chex_figure a = {0.8, {0.7, 0.85, 0}}, b = {0.6, {0.56, 0.63, 0}};
    struct chex_figure g = chex_gap(&a, &b, 0);
    OK(fabs(g.value - 0.2) < 1e-15 && fabs(g.interval.low - (0.2 - hypot(0.1, 0.03))) < 1e-15 &&
           fabs(g.interval.high - (0.2 + hypot(0.05, 0.04))) < 1e-15,
       "independent figures: squares of the distances add");
    g = chex_gap(&a, &a, 1);
    OK(g.value == 0 && fabs(g.interval.low + 0.05) < 1e-9 && fabs(g.interval.high - 0.05) < 1e-9,
       "equal figures of the same patients: only the skewness is left");
    const struct chex_figure none = {0.5, {NAN, NAN, 0}};
    g = chex_gap(&a, &none, 0);
    OK(fabs(g.value - 0.3) < 1e-15 && isnan(g.interval.low) && isnan(g.interval.high),
       "without one interval there is none");
    const double x[] = {1, -1, 0}, y[] = {2, -2, 0}, z[] = {0, 0, 0}, w[] = {-1, 1, 0};
    OK(chex_gap_correlation(x, y, 3) == 1 && chex_gap_correlation(x, w, 3) == -1 &&
           chex_gap_correlation(x, z, 3) == 0,
       "correlations of contributions");
}

/* ---- groups ---- */

static void test_groups(void) {
    static const int ages[] = {17, 18, 120, 121, -1, 39};
    struct chex_predictions *p = table_of(6);
    struct chex_age_bands bands;
    struct chex_groups g;
    for (size_t i = 0; i < 6; i++)
        p->facts[i].age_years = ages[i];
    OK_CALL(chex_age_bands_parse("18,40", &bands, &err));
    OK_CALL(chex_groups_create(p, CHEX_ATTRIBUTE_AGE, &bands, &g, &err));
    OK(g.count == 3 && !strcmp(g.name[0], "0-17") && !strcmp(g.name[1], "18-39") &&
           !strcmp(g.name[2], "40+") && g.rows[1] == 2 && g.unknown == 2 &&
           g.of_row[3] == CHEX_GROUP_NONE && g.of_row[5] == 1,
       "bands of ages; impossible ages are unknown");
    chex_groups_release(&g);
    p->facts[0].view = CHEX_VIEW_LATERAL;
    p->facts[1].view = CHEX_VIEW_PA;
    OK_CALL(chex_groups_create(p, CHEX_ATTRIBUTE_VIEW, &bands, &g, &err));
    OK(g.count == 2 && !strcmp(g.name[0], "PA") && !strcmp(g.name[1], "LATERAL") && g.unknown == 4,
       "groups without rows are left out");
    chex_groups_release(&g);
    chex_predictions_destroy(p);
    p = table_of(CHEX_GROUPS_MAX + 1);
    for (size_t i = 0; i < p->rows; i++)
        p->facts[i].source = chex_fs_format("s%zu", i);
    OK_STATUS(chex_groups_create(p, CHEX_ATTRIBUTE_SOURCE, &bands, &g, &err), CHEX_E_DATA, err,
              "more than 64 sources");
    chex_groups_release(&g);
    chex_predictions_destroy(p);
    static const char *const bad[] = {"", "0", "121", "18,18", "40,30", "18,,40", "x", "18,"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        OK_STATUS(chex_age_bands_parse(bad[i], &bands, &err), CHEX_E_USAGE, err, "--age-bands");
}

/* ---- coverage: two images of each patient, one in each group, equally hard ---- */

static double normal(uint64_t seed, size_t i, uint32_t k) {
    const struct chex_rng4 r = chex_rng(seed, CHEX_RNG_TEST, i, k);
    const double u = (r.v[0] + 0.5) / 4294967296.0, v = (r.v[1] + 0.5) / 4294967296.0;
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

static void fill_pairs(struct chex_predictions *p, uint64_t seed) {
    for (size_t i = 0; i < p->rows; i++) {
        const size_t patient = i / 2;
        const bool positive = patient % 5 == 0;
        free(p->patient_id[i]);
        p->patient_id[i] = chex_fs_format("%zu", patient);
        p->facts[i].view = i % 2 ? CHEX_VIEW_AP : CHEX_VIEW_PA;
        p->label[i] = positive;
        p->score[i] = positive + normal(seed, patient, 0) + 0.7 * normal(seed, i, 1);
    }
}

static void test_coverage(void) {
    enum { PATIENTS = 150, RUNS = TAP_SLOW_BUILD ? 100 : 600 };
    const struct chex_subgroups_config config = {.attributes = 1u << CHEX_ATTRIBUTE_VIEW};
    struct chex_predictions *p = table_of(2 * PATIENTS);
    int covered = 0, narrower = 0;
    for (uint64_t run = 0; run < RUNS; run++) {
        struct chex_subgroups *s = NULL;
        fill_pairs(p, run);
        struct chex_scores *scores = scores_of(p);
        MUST(chex_subgroups_create(scores, NULL, &config, &s, &err));
        const struct chex_group_score *g = s->attribute[0].per_class[0].group;
        const struct chex_figure *d = &g[0].against_rest[CHEX_SUBGROUP_AUROC];
        const struct chex_figure alone = chex_gap(&g[0].figure[0], &g[1].figure[0], 0);
        covered += d->interval.low <= 0 && d->interval.high >= 0;
        narrower += d->interval.high - d->interval.low < alone.interval.high - alone.interval.low;
        chex_subgroups_destroy(s);
        chex_scores_destroy(scores);
    }
    OK(covered >= 0.92 * RUNS && covered <= RUNS, "a gap of 0 is in %d of %d intervals", covered,
       (int)RUNS);
    OK(narrower == RUNS, "patients in both groups make the intervals narrower");
    chex_predictions_destroy(p);
}

/* ---- strata ---- */

/* The score sees the view alone, and the view goes with the label. */
static void test_strata(void) {
    enum { N = 400 };
    struct chex_predictions *p = table_of(N);
    struct chex_shortcuts *s = NULL;
    for (size_t i = 0; i < N; i++) {
        const bool bedside = i % 4 == 0;
        p->patient_id[i] = chex_fs_format("%zu", i);
        p->facts[i].view = bedside ? CHEX_VIEW_AP : CHEX_VIEW_PA;
        p->facts[i].brightness = normal(5, i, 0) > 0 ? 0.75 : 0.25;
        p->label[i] = bedside ? i % 8 == 0 : i % 10 == 1;
        p->score[i] = bedside;
    }
    struct chex_scores *scores = scores_of(p);
    MUST(chex_shortcuts_create(scores, &s, &err));
    const struct chex_shortcut *view = s->attribute[CHEX_SHORTCUT_VIEW].per_class;
    OK(fabs(view->alone.value - view->network.value) < 0.02 && view->network.value > 0.6,
       "the view alone (%.3f) is as good as a network that sees it (%.3f)", view->alone.value,
       view->network.value);
    OK(view->within.value == 0.5 && view->drop.interval.low > 0,
       "within a view this network knows nothing, and the drop is above 0");
    const struct chex_shortcut *light = s->attribute[CHEX_SHORTCUT_BRIGHTNESS].per_class;
    OK(light->alone.value >= 0.5 && light->alone.interval.low < 0.5 &&
           fabs(light->drop.value) < 0.05,
       "brightness that goes with nothing: %.3f alone, drop %.3f", light->alone.value,
       light->drop.value);
    OK(!s->attribute[CHEX_SHORTCUT_SEX].known && !s->attribute[CHEX_SHORTCUT_SIZE].known,
       "what no image states is left out");
    chex_shortcuts_destroy(s);
    chex_scores_destroy(scores);
    chex_predictions_destroy(p);
}

/* With one stratum and one image a patient it is the variance of DeLong, except for K / (K - 1). */
static void test_one_stratum(void) {
    enum { N = 2000 };
    static double score[N], part[N];
    static int8_t label[N];
    static uint8_t group[N];
    const uint8_t stratum_of[256] = {0};
    struct chex_delong d;
    struct chex_figure f;
    for (size_t i = 0; i < N; i++) {
        label[i] = i % 4 == 0;
        score[i] = floor(4 * (normal(9, i, 0) + label[i])); /* with ties */
    }
    struct chex_ranking *r = rank(score, label, N);
    const struct chex_clusters k = {NULL, N, true};
    MUST(chex_delong(r, NULL, N, NULL, &d, &err));
    MUST(chex_stratified_auroc(r, group, stratum_of, &k, part, &f, &err));
    double sum = 0, squares = 0;
    for (size_t i = 0; i < N; i++) {
        sum += part[i];
        squares += part[i] * part[i];
    }
    OK(fabs(f.value - d.auroc) < 1e-12 && fabs(sum) < 1e-12,
       "the AUROC, and contributions of sum 0");
    OK(fabs(squares / d.variance - 1) < 0.005, "DeLong's variance: ratio %.5f",
       squares / d.variance);
    chex_ranking_destroy(r);
}

/* ---- units ---- */

static void test_units(void) {
    static const char *const patient[] = {"p1", "p2", "p1", "p1", "p2", "p3", "p3"};
    static const char *const study[] = {"s1", "s1", "s1", "s2", "s1", "p3/s9", "p3/s9"};
    static const int8_t label[] = {0, -2, 1, -1, 0, 0, -1};
    static const double score[] = {0.25, 0.5, 0.75, 0.1, 1, 0, 0.5};
    struct chex_predictions *p = table_of(7), *u = NULL;
    for (size_t i = 0; i < 7; i++) {
        p->patient_id[i] = strdup(patient[i]);
        p->facts[i].study_id = strdup(study[i]);
        p->facts[i].view = i == 2 ? CHEX_VIEW_AP : CHEX_VIEW_PA;
        p->facts[i].sex = 'F';
        p->facts[i].brightness = 0.5 * (double)(i % 2);
        p->label[i] = label[i];
        p->score[i] = score[i];
    }
    OK_CALL(chex_units_create(p, CHEX_UNIT_STUDY, CHEX_UNIT_MAX, &u, &err));
    OK(u && u->rows == 4 && !strcmp(u->image_id[0], "p1/s1") && !strcmp(u->image_id[1], "p2/s1") &&
           !strcmp(u->image_id[3], "p3/s9"),
       "studies of one name belong to their patients");
    OK(u && u->label[0] == 1 && u->label[1] == 0 && u->label[2] == -1 && u->label[3] == -1,
       "positive before uncertain before negative before not stated");
    OK(u && u->score[0] == 0.75 && u->score[1] == 1, "the maximum of the images");
    OK(u && u->facts[0].view == CHEX_VIEW_UNKNOWN && u->facts[1].view == CHEX_VIEW_PA &&
           u->facts[0].sex == 'F' && u->facts[3].brightness == 0.25,
       "facts that all images share; the mean brightness");
    chex_predictions_destroy(u);
    u = NULL;
    OK_CALL(chex_units_create(p, CHEX_UNIT_PATIENT, CHEX_UNIT_MEAN, &u, &err));
    OK(u && u->rows == 3 && fabs(u->score[0] - 1.1 / 3) < 1e-15 && u->score[1] == 0.75 &&
           !u->facts[0].study_id && u->facts[1].study_id,
       "patients, by the mean");
    chex_predictions_destroy(u);
    free(p->facts[3].study_id);
    p->facts[3].study_id = NULL;
    OK_STATUS(chex_units_create(p, CHEX_UNIT_STUDY, CHEX_UNIT_MAX, &u, &err), CHEX_E_DATA, err,
              "image 3.png has no study id");
    chex_predictions_destroy(p);
}

int main(void) {
    test_gap();
    test_groups();
    test_coverage();
    test_strata();
    test_one_stratum();
    test_units();
    return tap_done();
}
