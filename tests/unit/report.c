/* SPDX-License-Identifier: Apache-2.0
 *
 * Scores, published tables and the report files: values, undefined classes, quoting, and that the
 * files are what they claim to be.
 */
#include "report/report.h"
#include "report/table.h"

#include <unistd.h>

#include "base/fs.h"
#include "base/result.h"
#include "base/rng.h"
#include "base/textfile.h"
#include "infer/cases.h"
#include "tap.h"

enum { ROWS = 200 };

static char dir[] = "/tmp/chex-report-XXXXXX";

/* Class 0 known to the published table; 1 with a name that must be quoted everywhere; 2 without a
 * positive; 3 all masked. */
static const char *const names[] = {"Hernia", "A<b> & \"c\", d", "Mass", "Masked"};

static struct chex_predictions *make_table(void) {
    struct chex_error err = {0};
    struct chex_predictions *p = NULL;
    BAIL_UNLESS(chex_predictions_create(ROWS, 4, names, &p, &err) == CHEX_OK, "%s", err.text);
    for (size_t i = 0; i < ROWS; i++) {
        p->image_id[i] = chex_fs_format("i%zu", i);
        p->patient_id[i] = chex_fs_format("p%zu", i / 4);
        for (size_t c = 0; c < 4; c++) {
            struct chex_rng4 r = chex_rng(2, CHEX_RNG_TEST, i, (uint32_t)c);
            bool y = c < 2 && r.v[0] % 4 == 0;
            p->label[i * 4 + c] = (int8_t)(c == 3 ? -1 : y);
            p->score[i * 4 + c] = 0.5 * (double)chex_rng_unit(r.v[1]) + (y ? 0.25 : 0.0);
        }
    }
    return p;
}

static struct chex_scores *score(const struct chex_predictions *p, size_t replicates,
                                 enum chex_cluster cluster) {
    struct chex_error err = {0};
    struct chex_scores *s = NULL;
    const struct chex_scores_config config = {replicates, 5, cluster, NULL, CHEX_INTERVAL_DELONG};
    BAIL_UNLESS(chex_scores_create(p, &config, &s, &err) == CHEX_OK, "%s", err.text);
    return s;
}

static void test_bootstrap_method(const struct chex_predictions *p, const struct chex_scores *by) {
    struct chex_error err = {0};
    struct chex_scores *s = NULL;
    const struct chex_scores_config config = {200, 5, CHEX_CLUSTER_PATIENT, NULL,
                                              CHEX_INTERVAL_BOOTSTRAP};
    BAIL_UNLESS(chex_scores_create(p, &config, &s, &err) == CHEX_OK, "%s", err.text);
    OK(s->per_class[0].auroc == by->per_class[0].auroc && s->mean == by->mean &&
           s->per_class[0].delong_se == by->per_class[0].delong_se,
       "the method of the intervals changes no AUROC");
    OK(s->per_class[0].interval.low != by->per_class[0].interval.low &&
           s->per_class[2].interval.undefined == 200,
       "the bootstrap has intervals of its own and counts undefined replicates");
    chex_scores_destroy(s);
}

/* Class 0 with two positive images of one patient. */
static void test_too_few(struct chex_predictions *p) {
    int8_t was[ROWS];
    for (size_t i = 0; i < ROWS; i++) {
        was[i] = p->label[i * 4];
        p->label[i * 4] = i == 40 || i == 41;
    }
    for (int method = CHEX_INTERVAL_DELONG; method <= CHEX_INTERVAL_BOOTSTRAP; method++) {
        struct chex_error err = {0};
        struct chex_scores *s = NULL;
        const struct chex_scores_config config = {50, 5, CHEX_CLUSTER_PATIENT, NULL,
                                                  (enum chex_interval_method)method};
        BAIL_UNLESS(chex_scores_create(p, &config, &s, &err) == CHEX_OK, "%s", err.text);
        const struct chex_class_score *k = s->per_class;
        OK(k[0].positive_patients == 1 && k[0].too_few && !isnan(k[0].auroc) &&
               isnan(k[0].interval.low) && isnan(k[0].delong_se) && s->too_few == 1,
           "%s: one positive patient: an AUROC, but no interval", chex_interval_names[method]);
        OK(!isnan(k[1].interval.low) && isnan(s->mean_interval.low) && !isnan(s->mean),
           "%s: the mean has none then", chex_interval_names[method]);
        chex_scores_destroy(s);
    }
    for (size_t i = 0; i < ROWS; i++)
        p->label[i * 4] = was[i];
}

static void test_scores(struct chex_predictions *p) {
    struct chex_scores *s = score(p, 200, CHEX_CLUSTER_PATIENT);
    const struct chex_class_score *k = s->per_class;
    OK(s->defined == 2 && isnan(k[2].auroc) && isnan(k[3].auroc), "two of four are defined");
    OK(s->mean == (k[0].auroc + k[1].auroc) / 2, "the mean is over the defined ones");
    OK(k[0].interval.low < k[0].auroc && k[0].auroc < k[0].interval.high &&
           s->mean_interval.low < s->mean && s->mean < s->mean_interval.high,
       "values lie within their intervals");
    OK(k[2].interval.undefined == 0 && k[3].masked == ROWS && k[0].positives > 20,
       "counts of positives and masked rows");
    OK(s->patients == ROWS / 4, "patients are counted");
    struct chex_scores *by_image = score(p, 200, CHEX_CLUSTER_IMAGE);
    OK(by_image->per_class[0].interval.low != k[0].interval.low, "by image is another draw");
    chex_scores_destroy(by_image);
    struct chex_scores *bare = score(p, 0, CHEX_CLUSTER_PATIENT);
    OK(isnan(bare->per_class[0].interval.low) && bare->mean == s->mean,
       "no replicates, no interval");
    chex_scores_destroy(bare);
    test_bootstrap_method(p, s);
    chex_scores_destroy(s);

    struct chex_error err;
    const struct chex_scores_config config = {10, 1, CHEX_CLUSTER_PATIENT, NULL};
    char *id = p->patient_id[3];
    p->patient_id[3] = (char[]){""};
    s = NULL;
    OK_STATUS(chex_scores_create(p, &config, &s, &err), CHEX_E_DATA, err,
              "image i3 has no patient_id");
    p->patient_id[3] = id;
    char **ids = p->patient_id;
    p->patient_id = NULL;
    OK_STATUS(chex_scores_create(p, &config, &s, &err), CHEX_E_DATA, err, "--cluster image");
    p->patient_id = ids;
    double was = p->score[5];
    p->score[5] = NAN;
    OK_STATUS(chex_scores_create(p, &config, &s, &err), CHEX_E_DATA, err, "row 1: the score");
    OK(s == NULL && strstr(err.text, "finding A<b>"), "the class is named");
    p->score[5] = was;
}

static void test_bundled(void) {
    struct chex_error err;
    struct chex_published *p = NULL;
    OK_STATUS(chex_published_read("published", &p, &err), CHEX_OK, err, NULL);
    BAIL_UNLESS(p, "no bundled table");
    const struct chex_published_source *head = &p->source[p->headline];
    OK(p->classes == 14 && p->sources == 9, "14 classes, 9 sources");
    OK(head->official && strcmp(head->name, "wang2017") == 0 && strstr(head->split, "official NIH"),
       "the official split is the headline");
    bool said = true;
    for (int s = 0; s < p->sources; s++)
        said = said && p->source[s].split[0] && p->source[s].source[0];
    OK(said, "every source says its split");
    OK(chex_published_auroc(p, p->headline, "Edema") == 0.835 &&
           isnan(chex_published_auroc(p, 0, "Gout")),
       "values by class name");
    /* The means that the sources state, as far as they state them: 0.738, 0.803 and so on. */
    static const double means[] = {.738, .803, .842, .841, .843, .848, .851, .838, .8038};
    bool right = true;
    for (int s = 0; s < p->sources; s++) {
        double sum = 0;
        for (int c = 0; c < p->classes; c++)
            sum += p->source[s].auroc[c] / p->classes;
        right = right && fabs(sum - means[s]) < 6e-4;
    }
    OK(right, "the means of the columns are those of the sources");
    chex_published_destroy(p);
    p = NULL;
    OK_STATUS(chex_published_read("published:arnoweng", &p, &err), CHEX_OK, err, NULL);
    OK(p && strcmp(p->source[p->headline].name, "arnoweng") == 0, "another column by name");
    chex_published_destroy(p);
    p = NULL;
    OK_STATUS(chex_published_read("published:nobody", &p, &err), CHEX_E_USAGE, err,
              "no such column, expected one of wang2017, yao2017");
    OK_STATUS(chex_published_read("/nowhere", &p, &err), CHEX_E_DATA, err, "no such file");
}

static void test_compare_files(void) {
    static const struct {
        const char *text, *needle;
    } bad[] = {
        {"", "expected a header"},
        {"name,auroc\nMass,0.5\n", "expected a header"},
        {"class\nMass\n", "expected a header"},
        {"class,a\n", "no finding"},
        {"class,a\nMass,1.5\n", "line 2, column a: '1.5', expected an AUROC from 0 to 1"},
        {"class,a\nMass,x\n", "line 2, column a: 'x'"},
        {"class,a\nMass,0.5,0.6\n", "line 2: 3 columns, the header has 2"},
        {"class,a\nMass,0.5\nMass,0.6\n", "line 3: finding Mass appears twice"},
        {"class,auroc,rows_digest\nMass,0.5,12\n", "column rows_digest: '12', expected 16 hex"},
    };
    struct chex_error err;
    struct chex_published *p = NULL;
    char *path = chex_fs_join(dir, "other.csv");
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        chex_fs_write(path, bad[i].text, strlen(bad[i].text), &err);
        OK_STATUS(chex_published_read(path, &p, &err), CHEX_E_DATA, err, bad[i].needle);
    }
    OK(p == NULL, "nothing is handed out on failure");
    free(path);
}

static json_t *load(const char *name) {
    char *path = chex_fs_join(dir, name);
    json_error_t e;
    json_t *o = json_load_file(path, 0, &e);
    BAIL_UNLESS(o, "%s: %s", path, e.text);
    free(path);
    return o;
}

static void check_json(const struct chex_scores *s) {
    json_t *o = load("auroc.json");
    json_t *classes = json_object_get(o, "classes"), *first = json_array_get(classes, 0);
    OK(json_integer_value(json_object_get(o, "schema")) == 1 &&
           json_real_value(json_object_get(o, "mean")) == s->mean &&
           json_integer_value(json_object_get(o, "defined_count")) == 2 &&
           json_array_size(classes) == 4,
       "auroc.json: schema, mean to the bit, defined_count, classes");
    OK(json_real_value(json_object_get(first, "auroc")) == s->per_class[0].auroc &&
           json_real_value(json_object_get(first, "ci_low")) == s->per_class[0].interval.low &&
           json_real_value(json_object_get(first, "ci_high")) == s->per_class[0].interval.high &&
           json_real_value(json_object_get(first, "published")) == 0.767 &&
           (size_t)json_integer_value(json_object_get(first, "positives")) ==
               s->per_class[0].positives,
       "auroc.json: a class");
    const json_t *undefined = json_array_get(classes, 2);
    OK(json_is_null(json_object_get(undefined, "auroc")) &&
           json_is_null(json_object_get(undefined, "ci_low")) &&
           json_is_null(json_object_get(undefined, "delong_se")),
       "auroc.json: undefined is null");
    OK(strcmp(json_string_value(json_object_get(json_array_get(classes, 1), "name")), names[1]) ==
               0 &&
           strcmp(json_string_value(json_object_get(json_object_get(o, "provenance"), "data")),
                  "<shards> & co") == 0,
       "auroc.json: names and provenance");
    json_decref(o);
}

static void check_markup(const char *name) {
    struct chex_error err = {0};
    char *path = chex_fs_join(dir, name), *text = NULL;
    BAIL_UNLESS(chex_fs_read(path, 1 << 24, &text, NULL, &err) == CHEX_OK, "%s", err.text);
    OK(strstr(text, "A&lt;b&gt; &amp; &quot;c&quot;, d") && !strstr(text, "A<b>"),
       "%s: names are escaped", name);
    OK(!strstr(text, "<script") && !strstr(text, "src=") && !strstr(text, "@import") &&
           !strstr(text, "url(") && !strstr(text, ">nan") && !strstr(text, "\"nan") &&
           !strstr(text, " nan") && !strstr(text, "inf<"),
       "%s: nothing from elsewhere, no number that is none", name);
    free(text);
    if (access("/usr/bin/xmllint", X_OK) == 0) {
        char *command = chex_fs_format("/usr/bin/xmllint --noout --nonet '%s'", path);
        OK(system(command) == 0, "%s: well-formed", name);
        free(command);
    } else {
        OK(true, "%s: well-formed # SKIP no xmllint here", name);
    }
    free(path);
}

static size_t count(const char *text, const char *what) {
    size_t n = 0;
    for (const char *at = text; (at = strstr(at, what)); at += strlen(what))
        n++;
    return n;
}

/* Of four classes and the legend: a page breaks between panels, a file is one drawing. */
static void check_panels(void) {
    char *page = chex_fs_join(dir, "report.html"), *file = chex_fs_join(dir, "roc.svg");
    char *html = NULL, *svg = NULL;
    BAIL_UNLESS(chex_fs_read(page, 1 << 24, &html, NULL, NULL) == CHEX_OK &&
                    chex_fs_read(file, 1 << 24, &svg, NULL, NULL) == CHEX_OK,
                "no report");
    OK(count(html, "class=\"cxs\"") == 5 && count(html, "<svg class=\"cx\" font-family") == 25,
       "report.html: a drawing a panel, of all five kinds");
    OK(count(svg, "<svg") == 1 && count(svg, "<use") == 4, "roc.svg: one drawing");
    free(html);
    free(svg);
    free(page);
    free(file);
}

/* Two evaluations of the same images, whatever their order, and of others. */
static void test_rows(const struct chex_scores *s, struct chex_published *earlier) {
    const struct chex_report r = {s, earlier, "", NULL};
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    chex_report_print(&r, f);
    fclose(f);
    OK(chex_report_rows(&r) == CHEX_ROWS_SAME &&
           strstr(text, "auroc.csv: the same images and labels") &&
           !strstr(text, "not comparable") && strstr(text, " compared\n"),
       "an evaluation of the same images compares");
    free(text);
    struct chex_predictions *other = make_table();
    other->label[0] = !other->label[0];
    struct chex_scores *changed = score(other, 0, CHEX_CLUSTER_PATIENT);
    const struct chex_report q = {changed, earlier, "", NULL};
    OK(chex_report_rows(&q) == CHEX_ROWS_OTHER, "one other label: it does not");
    json_t *o = chex_report_json(&q);
    OK(json_is_false(json_object_get(json_object_get(o, "published"), "same_images")),
       "auroc.json says so");
    json_decref(o);
    chex_scores_destroy(changed);
    chex_predictions_destroy(other);
}

static void test_files(const struct chex_predictions *table) {
    struct chex_error err;
    struct chex_scores *s = score(table, 100, CHEX_CLUSTER_PATIENT);
    struct chex_published *p = NULL, *again = NULL;
    BAIL_UNLESS(chex_published_read("published", &p, &err) == CHEX_OK, "%s", err.text);
    json_t *provenance = json_pack("{s:s,s:i,s:f,s:n}", "data", "<shards> & co", "image_size_px",
                                   224, "loss", 0.125, "engine");
    struct chex_figures *figures = NULL;
    const struct chex_figures_config how = {
        .source = CHEX_THRESHOLD_CHOSEN, .rule_text = "youden <&>", .probabilities = true};
    BAIL_UNLESS(chex_figures_create(s, &how, &figures, &err) == CHEX_OK, "%s", err.text);
    struct chex_report r = {.scores = s,
                            .published = p,
                            .title = "split test of <shards> & co",
                            .provenance = provenance,
                            .figures = figures,
                            .command = "chex-eval score --predictions 'a b'"};
    OK_STATUS(chex_report_write(&r, dir, &err), CHEX_OK, err, NULL);
    check_json(s);
    check_markup("roc.svg");
    check_markup("report.html");
    check_panels();
    char *csv = chex_fs_join(dir, "auroc.csv");
    OK_STATUS(chex_published_read(csv, &again, &err), CHEX_OK, err, NULL);
    OK(again && again->classes == 4 && again->sources == 1 &&
           fabs(chex_published_auroc(again, 0, names[1]) - s->per_class[1].auroc) < 1e-9 &&
           isnan(chex_published_auroc(again, 0, "Mass")),
       "auroc.csv is a table to compare with");
    OK(chex_report_rows(&r) == CHEX_ROWS_UNKNOWN, "of the published images nothing is known");
    test_rows(s, again);
    const struct chex_report_shared m = chex_report_shared_mean(&r);
    OK(m.classes == 1 && fabs(m.published - 0.767) < 1e-12 && m.ours == s->per_class[0].auroc,
       "the published mean is over the classes that both have, and ours beside it");

    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    chex_report_print(&r, f);
    fclose(f);
    OK(strstr(text, "Hernia") && strstr(text, "nan") && strstr(text, "mean of 2 findings") &&
           strstr(text, "split: official NIH test list") && strstr(text, "0.7670"),
       "the table: classes, nan, mean, the split of the published column");
    OK(strstr(text, "mean of the 1 finding that both have; over it ours is 0."),
       "and that the published mean is of fewer classes");
    free(text);
    OK_STATUS(chex_report_write(&r, "/nowhere", &err), CHEX_E_ENV, err,
              "cannot create /nowhere/auroc.json");
    r.published = NULL;
    r.provenance = NULL;
    OK_STATUS(chex_report_write(&r, dir, &err), CHEX_OK, err, NULL);
    free(csv);
    json_decref(provenance);
    chex_published_destroy(p);
    chex_published_destroy(again);
    chex_figures_destroy(figures);
    chex_scores_destroy(s);
}

/* Every text of the data, in every file of a report. */
static void test_hostile_texts(void) {
    static const char *const bad[] = {"<script>alert(1)</script>", "\"' onload=x &amp;",
                                      "left\xe2\x80\xaeright", "line\nfeed\x1b[31m", "\xff\xfe"};
    struct chex_predictions *t = make_table();
    struct chex_error err = {0};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        free(t->image_id[i]);
        t->image_id[i] = strdup(bad[i]);
    }
    BAIL_UNLESS(chex_predictions_add_facts(t, &err) == CHEX_OK, "%s", err.text);
    for (size_t i = 0; i < t->rows; i++)
        t->facts[i].source = strdup(bad[i % (sizeof bad / sizeof bad[0])]);
    struct chex_scores *s = score(t, 10, CHEX_CLUSTER_IMAGE);
    struct chex_cases *cases = NULL;
    struct chex_subgroups *subgroups = NULL;
    const struct chex_subgroups_config by = {.attributes = 1u << CHEX_ATTRIBUTE_SOURCE};
    BAIL_UNLESS(chex_subgroups_create(s, NULL, &by, &subgroups, &err) == CHEX_OK &&
                    subgroups->count == 1,
                "%s", err.text);
    BAIL_UNLESS(chex_cases_choose(t, 20, &cases, &err) == CHEX_OK, "%s", err.text);
    for (size_t i = 0; i < cases->count; i++)
        cases->one[i].row = i % (sizeof bad / sizeof bad[0]);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        json_t *provenance = json_pack("{s:s}", "data", i == 4 ? "x" : bad[i]);
        const struct chex_report r = {.scores = s,
                                      .title = bad[i],
                                      .provenance = provenance,
                                      .cases = cases,
                                      .subgroups = subgroups,
                                      .command = bad[i]};
        char *text = NULL;
        size_t size;
        FILE *f = open_memstream(&text, &size);
        OK_STATUS(chex_html_write(f, &r, &err), CHEX_OK, err, NULL);
        fclose(f);
        OK(!strstr(text, "<script") && !strstr(text, "onload=x &amp;\"") &&
               !strstr(text, "\xe2\x80\xae") && !strchr(text, 0x1b) && !strchr(text, '\xff') &&
               !strstr(text, "line\nfeed") && strstr(text, "left\\xE2\\x80\\xAEright"),
           "report.html: text %zu is only text", i);
        free(text);
        json_decref(provenance);
    }
    chex_subgroups_destroy(subgroups);
    chex_cases_destroy(cases);
    chex_scores_destroy(s);
    chex_predictions_destroy(t);
}

static void test_choice(const struct chex_predictions *t) {
    struct chex_error err = {0};
    struct chex_cases *k = NULL;
    OK_STATUS(chex_cases_choose(t, 3, &k, &err), CHEX_OK, err, NULL);
    /* Classes 0 and 1 have both labels, 2 has no positive, 3 is masked. */
    OK(k->count == 3 * 5, "%zu cases: three of each class and label", k->count);
    bool hardest = true, labelled = true;
    for (size_t i = 0; i < k->count; i++) {
        const struct chex_case *c = &k->one[i];
        const double score = t->score[c->row * 4 + (size_t)c->class_index];
        size_t harder = 0;
        labelled = labelled && t->label[c->row * 4 + (size_t)c->class_index] == c->positive;
        for (size_t row = 0; row < ROWS; row++) {
            const double other = t->score[row * 4 + (size_t)c->class_index];
            harder += t->label[row * 4 + (size_t)c->class_index] == c->positive &&
                      (c->positive ? other < score : other > score);
        }
        hardest = hardest && harder == i % 3;
    }
    OK(hardest && labelled, "each case is as hard as its place says");
    chex_cases_destroy(k);
}

static void test_full_disk(void) {
    struct chex_error err;
    struct chex_textfile t = {0};
    char *path = chex_fs_join(dir, "big.txt");
    OK_STATUS(chex_textfile_open(path, &t, &err), CHEX_OK, err, NULL);
    FILE *real = t.f;
    t.f = fopen("/dev/full", "we");
    BAIL_UNLESS(t.f, "no /dev/full");
    fclose(real);
    fputs("text", t.f);
    char *temp = strdup(t.temp);
    OK_STATUS(chex_textfile_close(&t, CHEX_OK, &err), CHEX_E_RESOURCE, err, "cannot write");
    OK(!chex_fs_exists(path) && !chex_fs_exists(temp), "a full disk leaves nothing");
    free(temp);
    free(path);
}

static void test_csv(void) {
    struct chex_error err = {0};
    char *text = NULL;
    size_t size = 0;
    json_t *lost = NULL;
    FILE *f = open_memstream(&text, &size);
    OK_STATUS(chex_csv_write(f, "class=name,n,share,other?,flag,absent",
                             json_pack("[{s:s,s:i,s:n,s:n,s:b}]", "name", "a,b", "n", 3, "share",
                                       "other", "flag", 1),
                             &err),
              CHEX_OK, err, NULL);
    fclose(f);
    OK(strcmp(text, "class,n,share,other,flag,absent\n\"a,b\",3,nan,,1,\n") == 0,
       "null is nan or, after ?, empty like a missing key: %s", text);
    free(text);
    chex_json_append(&lost, json_integer(1));
    OK_STATUS(chex_csv_write(stderr, "n", lost, &err), CHEX_E_RESOURCE, err, "out of memory");
}

int main(void) {
    struct chex_error err = {0};
    BAIL_UNLESS(mkdtemp(dir), "no scratch folder");
    struct chex_predictions *table = make_table();
    test_scores(table);
    test_too_few(table);
    test_bundled();
    test_compare_files();
    test_files(table);
    test_choice(table);
    test_hostile_texts();
    test_full_disk();
    test_csv();
    chex_predictions_destroy(table);
    chex_fs_remove_tree(dir, &err);
    return tap_done();
}
