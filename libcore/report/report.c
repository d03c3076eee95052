/* SPDX-License-Identifier: Apache-2.0
 *
 * The result table, auroc.json and auroc.csv, and the list of all result files.
 */
#include "report/report.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/result.h"
#include "base/textfile.h"
#include "report/figures_text.h"
#include "report/table.h"
#include "stats/delong.h"

const char *const chex_report_files[] = {
    "predictions.csv", CHEX_REPORT_KEY, "auroc.csv", "figures.csv", "curves.csv",
    "subgroups.csv",   "shortcuts.csv", "roc.svg",   "report.html", NULL};

static const struct chex_column within_folds = {"auroc_within_folds", "auroc_within_folds",
                                                offsetof(struct chex_class_score, within)};

static double published(const struct chex_report *r, int c) {
    return r->published ? chex_published_auroc(r->published, r->published->headline,
                                               r->scores->per_class[c].name)
                        : NAN;
}

struct chex_report_row chex_report_row(const struct chex_report *r, int c) {
    const struct chex_scores *s = r->scores;
    if (c == s->classes)
        return (struct chex_report_row){.auroc = s->mean,
                                        .published = chex_report_shared_mean(r).published,
                                        .within = &s->mean_within,
                                        .interval = s->mean_interval,
                                        .too_few = s->too_few && s->config.replicates};
    const struct chex_class_score *k = &s->per_class[c];
    return (struct chex_report_row){.score = k,
                                    .auroc = k->auroc,
                                    .published = published(r, c),
                                    .within = &k->within,
                                    .interval = k->interval,
                                    .too_few = k->too_few && s->config.replicates};
}

struct chex_report_shared chex_report_shared_mean(const struct chex_report *r) {
    struct chex_report_shared s = {0};
    for (int c = 0; c < r->scores->classes; c++) {
        const double theirs = published(r, c), ours = r->scores->per_class[c].auroc;
        if (isnan(theirs) || isnan(ours))
            continue;
        s.classes++;
        s.published += theirs;
        s.ours += ours;
    }
    s.published = s.classes ? s.published / s.classes : NAN;
    s.ours = s.classes ? s.ours / s.classes : NAN;
    return s;
}

bool chex_report_shares_fewer(const struct chex_report *r) {
    const int shared = chex_report_shared_mean(r).classes;
    return r->published && shared > 0 && shared < r->scores->defined;
}

enum chex_report_rows chex_report_rows(const struct chex_report *r) {
    const struct chex_published *p = r->published;
    int same = 0, unknown = 0;
    for (int c = 0; c < r->scores->classes; c++)
        for (int k = 0; k < p->classes; k++) {
            const struct chex_class_score *ours = &r->scores->per_class[c];
            if (isnan(published(r, c)) || strcmp(p->class_names[k], ours->name) != 0)
                continue;
            if (p->rows_digest[k] && p->rows_digest[k] != ours->rows_digest)
                return CHEX_ROWS_OTHER;
            same += p->rows_digest[k] != 0;
            unknown += p->rows_digest[k] == 0;
        }
    return same && !unknown ? CHEX_ROWS_SAME : CHEX_ROWS_UNKNOWN;
}

void chex_report_put_source(const struct chex_report *r, FILE *to,
                            void (*put)(FILE *to, const char *text)) {
    const struct chex_published *p = r->published;
    const struct chex_published_source *s = &p->source[p->headline];
    const enum chex_report_rows rows = chex_report_rows(r);
    put(to, p->file ? p->file : s->name);
    if (p->file && strcmp(s->name, "auroc") != 0) {
        fputs(", column ", to);
        put(to, s->name);
    }
    if (s->source[0]) {
        fputs(", ", to);
        put(to, s->source);
    }
    if (rows != CHEX_ROWS_UNKNOWN) {
        fputs(rows == CHEX_ROWS_SAME ? ": the same images and labels" : ": other images or labels",
              to);
        return;
    }
    fputs("; split: ", to);
    put(to, s->split[0] ? s->split : "not stated");
}

/* ---- the table ---- */

static const char *number(double v, const char *undefined, char buf[16]) {
    snprintf(buf, 16, "%.4f", v);
    return isnan(v) ? undefined : buf;
}

static void print_row(const struct chex_report *r, FILE *to, int width, int c) {
    const struct chex_scores *s = r->scores;
    const struct chex_report_row row = chex_report_row(r, c);
    char name[48], positives[24] = "", patients[24] = "", text[16], interval[40] = "-";
    char within[64];
    snprintf(name, sizeof name, "mean of %d finding%s", s->defined, s->defined == 1 ? "" : "s");
    if (row.score) {
        snprintf(positives, sizeof positives, "%zu", row.score->positives);
        snprintf(patients, sizeof patients, "%zu", row.score->positive_patients);
    }
    if (!isnan(row.interval.low))
        snprintf(interval, sizeof interval, "%.4f - %.4f", row.interval.low, row.interval.high);
    else if (row.too_few)
        snprintf(interval, sizeof interval, "too few");
    const char *shown = row.score ? row.score->name : name;
    fprintf(to, "%-*s %9s", chex_text_field(shown, width), shown, positives);
    if (s->patients)
        fprintf(to, "  %8s", patients);
    fprintf(to, "  %7s  %15s", number(row.auroc, "nan", text), interval);
    if (s->folds)
        fprintf(to, "  %25s", chex_figure_format(row.within, false, within, sizeof within));
    if (r->published)
        fprintf(to, "  %9s", number(row.published, "-", text));
    putc('\n', to);
}

void chex_report_method(const struct chex_scores *s, char *buf, size_t size) {
    const char *by = chex_cluster_names[s->config.cluster];
    if (s->config.method == CHEX_INTERVAL_BOOTSTRAP)
        snprintf(buf, size, "95 %%, percentiles of %zu bootstrap replicates by %s",
                 s->config.replicates, by);
    else if (s->config.method == CHEX_INTERVAL_LOGIT)
        snprintf(buf, size, "95 %%, DeLong on the logit scale by %s (Obuchowski 1997)", by);
    else
        snprintf(buf, size, "95 %%, DeLong by %s, corrected for few positives", by);
}

#define VARIANCE                                                                                   \
    "the nonparametric variance of DeLong, DeLong and Clarke-Pearson (Biometrics 1988;44:837-845)"
#define BY_PATIENT                                                                                 \
    ", extended to several images of a patient by Obuchowski (Biometrics 1997;53:567-578)"

void chex_report_methods(const struct chex_scores *s, char buf[CHEX_REPORT_METHODS_BYTES]) {
    const bool by_patient = s->config.cluster == CHEX_CLUSTER_PATIENT;
    const char *more = by_patient ? BY_PATIENT : "", *by = chex_cluster_names[s->config.cluster];
    char how[600];
    if (s->config.method == CHEX_INTERVAL_BOOTSTRAP)
        snprintf(
            how, sizeof how,
            "the 2.5th and 97.5th percentiles of %zu bootstrap replicates, which drew %ss with "
            "replacement",
            s->config.replicates, by);
    else if (s->config.method == CHEX_INTERVAL_LOGIT)
        snprintf(how, sizeof how,
                 "computed on the logit scale from " VARIANCE "%s, without bootstrap", more);
    else
        snprintf(
            how, sizeof how,
            "score intervals with quantiles of Student's t. Their variance is " VARIANCE
            "%s, moderated (Smyth, Stat Appl Genet Mol Biol 2004;3:3) by the model variance of "
            "Newcombe (Stat Med 2006;25:559-573, method 5), without bootstrap",
            more);
    snprintf(buf, CHEX_REPORT_METHODS_BYTES,
             "The 95 %% confidence intervals of the AUROC are %s (chexnet %s; independent unit: "
             "%s; %zu %ss).",
             how, CHEXNET_VERSION, by, s->clusters, by);
}

static void print_undefined_replicates(const struct chex_scores *s, FILE *to) {
    for (int c = 0; c < s->classes; c++)
        if (!isnan(s->per_class[c].auroc) && s->per_class[c].interval.undefined)
            fprintf(to, "%s: %zu of %zu replicates had no positive or no negative\n",
                    s->per_class[c].name, s->per_class[c].interval.undefined, s->config.replicates);
}

static void put_plain(FILE *to, const char *text) { fputs(text, to); }

/* The heading of the last column. */
static const char *column_name(const struct chex_report *r) {
    return r->published->file ? "compared" : "published";
}

const char chex_report_folds[] =
    "only pairs of images of the same fold, which one network scored; the AUROC before it also "
    "compares scores of different networks. The intervals take the networks and the folds as given";

static void print_notes(const struct chex_report *r, FILE *to) {
    const struct chex_scores *s = r->scores;
    char method[100];
    if (s->defined < s->classes)
        fprintf(to, "nan: no positive or no negative image; left out of the mean\n");
    if (s->config.replicates) {
        chex_report_method(s, method, sizeof method);
        fprintf(to, "interval: %s\n", method);
    }
    if (s->config.replicates && s->too_few)
        fprintf(to,
                "too few: positives or negatives of fewer than %d %ss; no interval, nor for "
                "the mean\n",
                CHEX_DELONG_MIN_CLUSTERS, chex_cluster_names[s->config.cluster]);
    print_undefined_replicates(s, to);
    if (s->folds)
        fprintf(to, "within folds: %s\n", chex_report_folds);
    if (!r->published)
        return;
    fprintf(to, "%s: ", column_name(r));
    chex_report_put_source(r, to, put_plain);
    putc('\n', to);
    if (chex_report_shares_fewer(r)) {
        const struct chex_report_shared m = chex_report_shared_mean(r);
        fprintf(to, "           mean of the %d finding%s that both have; over %s ours is %.4f\n",
                m.classes, m.classes == 1 ? "" : "s", m.classes == 1 ? "it" : "them", m.ours);
    }
    if (chex_report_rows(r) != CHEX_ROWS_SAME)
        fprintf(to, "           AUROCs of different images are not comparable\n");
}

void chex_report_print(const struct chex_report *r, FILE *to) {
    const struct chex_scores *s = r->scores;
    const int width = chex_names_width(s->table->class_names, s->classes, 20);
    fprintf(to, "%-*s %9s%s  %7s  %15s", width, "finding", "positives",
            s->patients ? "  patients" : "", "AUROC", "95 % interval");
    if (s->folds)
        fprintf(to, "  %25s", "within folds");
    if (r->published)
        fprintf(to, "  %9s", column_name(r));
    putc('\n', to);
    for (int c = 0; c <= s->classes; c++)
        print_row(r, to, width, c);
    print_notes(r, to);
    if (r->gains)
        chex_gains_print(to, r->gains);
}

/* ---- auroc.json ---- */

static json_t *class_json(const struct chex_report *r, int c) {
    const struct chex_class_score *k = &r->scores->per_class[c];
    const bool patients = r->scores->patients > 0;
    char digest[17];
    snprintf(digest, sizeof digest, "%016" PRIx64, k->rows_digest);
    json_t *o = chex_result(
        CHEX_MEMBER(k, name), CHEX_MEMBER(k, auroc), CHEX_FIELD("ci_low", k->interval.low),
        CHEX_FIELD("ci_high", k->interval.high), CHEX_MEMBER(k, delong_se),
        CHEX_MEMBER(k, positives), CHEX_MEMBER(k, negatives), CHEX_MEMBER(k, masked),
        CHEX_FIELD("replicates_undefined", k->interval.undefined),
        CHEX_FIELD("published", published(r, c)),
        CHEX_FIELD_IF(patients, "positive_patients", k->positive_patients),
        CHEX_FIELD_IF(patients, "negative_patients", k->negative_patients), CHEX_MEMBER(k, too_few),
        CHEX_FIELD("rows_digest", digest));
    if (r->scores->folds)
        chex_columns_set(&o, &within_folds, 1, k);
    if (r->figures)
        chex_figures_class_json(r->figures, c, &o);
    if (r->gains)
        chex_gains_set(&o, r->gains, c);
    return o;
}

static json_t *interval_json(const struct chex_scores *s) {
    static const char *const methods[] = {[CHEX_INTERVAL_DELONG] = "moderated DeLong",
                                          [CHEX_INTERVAL_LOGIT] = "DeLong on the logit scale",
                                          [CHEX_INTERVAL_BOOTSTRAP] = "percentile bootstrap"};
    const bool drawn = s->config.method == CHEX_INTERVAL_BOOTSTRAP;
    char sentence[CHEX_REPORT_METHODS_BYTES];
    if (!s->config.replicates)
        return json_null();
    chex_report_methods(s, sentence);
    return chex_result(CHEX_FIELD("method", methods[s->config.method]), CHEX_FIELD("level", 0.95),
                       CHEX_FIELD_IF(drawn, "replicates", s->config.replicates),
                       CHEX_FIELD("cluster", chex_cluster_names[s->config.cluster]),
                       CHEX_FIELD_IF(drawn, "seed", s->config.seed),
                       CHEX_FIELD("minimum_clusters", (int)CHEX_DELONG_MIN_CLUSTERS),
                       CHEX_FIELD("sentence", sentence));
}

static json_t *published_json(const struct chex_report *r) {
    if (!r->published)
        return json_null();
    const struct chex_published_source *p = &r->published->source[r->published->headline];
    const struct chex_report_shared m = chex_report_shared_mean(r);
    const enum chex_report_rows rows = chex_report_rows(r);
    return chex_result(
        CHEX_FIELD("column", p->name), CHEX_MEMBER(p, source), CHEX_MEMBER(p, split),
        CHEX_FIELD("official_split", p->official), CHEX_FIELD("mean", m.published),
        CHEX_FIELD("own_mean", m.ours), CHEX_FIELD("class_count", m.classes),
        CHEX_MEMBER(r->published, file),
        CHEX_FIELD_IF(rows != CHEX_ROWS_UNKNOWN, "same_images", (bool)(rows == CHEX_ROWS_SAME)));
}

/* The best member, from 1, and what belongs to the mean AUROC. */
static json_t *ensemble_json(const struct chex_gains *g) {
    json_t *o = chex_result(CHEX_FIELD("best_member", g->best + 1));
    chex_gains_set(&o, g, g->classes);
    return o;
}

json_t *chex_report_classes_json(const struct chex_report *r) {
    json_t *classes = json_array();
    for (int c = 0; c < r->scores->classes; c++)
        chex_json_append(&classes, class_json(r, c));
    return classes;
}

static json_t *folds_json(const struct chex_scores *s) {
    return chex_result(CHEX_FIELD("count", s->folds),
                       CHEX_FIELD("mean_within", s->mean_within.value),
                       CHEX_FIELD("mean_within_ci_low", s->mean_within.interval.low),
                       CHEX_FIELD("mean_within_ci_high", s->mean_within.interval.high),
                       CHEX_FIELD("method", chex_report_folds));
}

json_t *chex_report_json(const struct chex_report *r) {
    const struct chex_scores *s = r->scores;
    return chex_result(
        CHEX_FIELD("schema", 1), CHEX_FIELD("tool_version", CHEXNET_VERSION), CHEX_MEMBER(r, title),
        CHEX_MEMBER(s, mean), CHEX_FIELD("mean_ci_low", s->mean_interval.low),
        CHEX_FIELD("mean_ci_high", s->mean_interval.high), CHEX_FIELD("defined_count", s->defined),
        CHEX_FIELD("class_count", s->classes), CHEX_FIELD("images", s->table->rows),
        CHEX_FIELD_IF(s->patients, "patients", s->patients),
        CHEX_FIELD("interval", interval_json(s)), CHEX_FIELD_IF(s->folds, "folds", folds_json(s)),
        CHEX_FIELD_IF(r->figures, "operating", chex_figures_json(r->figures)),
        CHEX_FIELD("unit", r->unit ? r->unit : "image"), CHEX_MEMBER(r, unit_score),
        CHEX_FIELD("classes", chex_report_classes_json(r)),
        CHEX_FIELD_IF(r->subgroups, "subgroups", chex_subgroups_json(r->subgroups)),
        CHEX_FIELD_IF(r->shortcuts, "shortcuts", chex_shortcuts_json(r->shortcuts)),
        CHEX_FIELD_IF(r->gains, "ensemble", ensemble_json(r->gains)),
        CHEX_FIELD("published", published_json(r)),
        CHEX_FIELD("provenance", r->provenance ? json_deep_copy(r->provenance) : json_object()),
        CHEX_FIELD_IF(r->table_digest, "predictions_digest", r->table_digest));
}

static enum chex_status write_json(FILE *f, const struct chex_report *r, struct chex_error *err) {
    return chex_result_print(f, chex_report_json(r), NULL, JSON_INDENT(2), err);
}

/* ---- the files ---- */

static enum chex_status write_csv(FILE *f, const struct chex_report *r, struct chex_error *err) {
    const struct chex_report_row mean = chex_report_row(r, r->scores->classes);
    char names[8192] = ""; /* of some hundred members */
    struct chex_text_line line = {names, sizeof names, 0};
    json_t *rows = chex_report_classes_json(r);
    json_t *last =
        chex_result(CHEX_FIELD("name", "mean"), CHEX_MEMBER(&mean, auroc),
                    CHEX_FIELD("ci_low", mean.interval.low),
                    CHEX_FIELD("ci_high", mean.interval.high), CHEX_MEMBER(&mean, published));
    chex_text_append(&line, "class=name,positives,negatives,masked,auroc,ci_low,ci_high,delong_se,"
                            "published?,positive_patients?,negative_patients?,rows_digest");
    if (r->gains) {
        chex_gains_names(&line, r->gains);
        chex_gains_set(&last, r->gains, r->gains->classes);
    }
    chex_json_append(&rows, last);
    return chex_csv_write(f, names, rows, err);
}

static enum chex_status write_svg(FILE *f, const struct chex_report *r, struct chex_error *err) {
    return chex_svg_roc(f, r, true, err);
}

enum chex_status chex_report_write(const struct chex_report *r, const char *dir,
                                   struct chex_error *err) {
    /* In the same order as chex_report_files, after predictions.csv. */
    static chex_report_put_fn *const writers[] = {write_json,
                                                  write_csv,
                                                  chex_figures_put_csv,
                                                  chex_figures_put_curves,
                                                  chex_subgroups_put_csv,
                                                  chex_shortcuts_put_csv,
                                                  write_svg,
                                                  chex_html_write};
    for (size_t i = 0; i < CHEX_COUNT(writers); i++) {
        struct chex_textfile t;
        if ((!r->figures &&
             (writers[i] == chex_figures_put_csv || writers[i] == chex_figures_put_curves)) ||
            (!r->subgroups && writers[i] == chex_subgroups_put_csv) ||
            (!r->shortcuts && writers[i] == chex_shortcuts_put_csv))
            continue;
        CHEX_TRY(chex_textfile_open_in(dir, chex_report_files[i + 1], &t, err));
        CHEX_TRY(chex_textfile_close(&t, writers[i](t.f, r, err), err));
    }
    return CHEX_OK;
}
