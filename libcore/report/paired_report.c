/* SPDX-License-Identifier: Apache-2.0
 *
 * The tables of paired comparisons, compare.json and compare.csv.
 */
#include "report/paired_report.h"

#include <math.h>

#include "base/alloc.h"
#include "base/result.h"
#include "base/text.h"
#include "base/textfile.h"
#include "report/table.h"
#include "stats/delong.h"

const char *const chex_paired_report_files[] = {"compare.json", "compare.csv", "compare.svg", NULL};

/* ---- the table ---- */

static const char *format_p(double p, char buf[16]) {
    if (isnan(p))
        snprintf(buf, 16, "-");
    else if (p < 0.0001)
        snprintf(buf, 16, "<0.0001");
    else
        snprintf(buf, 16, "%.4f", p);
    return buf;
}

static const char *format_interval(const struct chex_interval *i, bool too_few, char buf[40]) {
    if (!isnan(i->low))
        snprintf(buf, 40, "%+.4f to %+.4f", i->low, i->high);
    else
        snprintf(buf, 40, "%s", too_few ? "too few" : "-");
    return buf;
}

static const char *format_verdict(const struct chex_paired_class *k, char buf[64]) {
    const enum chex_margin_verdict first = k->verdict[0], second = k->verdict[1];
    const char *who = first > second ? "first" : "second";
    if (first == second)
        snprintf(buf, 64, "%s%s", first == CHEX_NOT_SHOWN ? "" : "both ",
                 chex_margin_verdict_names[first]);
    else
        snprintf(buf, 64, "%s %s", who, chex_margin_verdict_names[first > second ? first : second]);
    return buf;
}

static void print_row(const struct chex_paired_report *r, FILE *to, int width, const char *name,
                      const struct chex_paired_class *k, bool patients_known, const char *tail) {
    char positives[24] = "", patients[24] = "", p[16], holm[16], interval[40], text[64];
    if (k->name) {
        snprintf(positives, sizeof positives, "%zu", k->positives);
        snprintf(patients, sizeof patients, patients_known ? "%zu" : "-", k->positive_patients);
    }
    fprintf(to, "%-*s %9s %8s", chex_text_field(name, width), name, positives, patients);
    if (isnan(k->difference))
        fprintf(to, "  %7s  %7s  %10s", "nan", "nan", "nan");
    else
        fprintf(to, "  %7.4f  %7.4f  %+10.4f", k->auroc[0], k->auroc[1], k->difference);
    fprintf(to, "  %18s  %7s  %7s", format_interval(&k->interval, k->too_few, interval),
            format_p(k->p_value, p), k->name || !isnan(k->p_holm) ? format_p(k->p_holm, holm) : "");
    if (r->config->replicates)
        fprintf(to, "  %18s", format_interval(&k->bootstrap, k->too_few, interval));
    if (r->runs[0])
        fprintf(to, "  %7.4f  %7.4f  %*.0f%s", k->sd[0], k->sd[1], isnan(k->training_share) ? 9 : 8,
                100 * k->training_share, isnan(k->training_share) ? "" : "%");
    if (!isnan(r->config->margin))
        fprintf(to, "  %s", isnan(k->interval.low) ? "-" : format_verdict(k, text));
    chex_text_printf(to, *tail ? "  %s\n" : "\n", tail);
}

static void print_heading(const struct chex_paired_report *r, FILE *to, int width,
                          const char *name) {
    fprintf(to, "%-*s %9s %8s  %7s  %7s  %10s  %18s  %7s  %7s", width, name, "positives",
            "patients", "first", "second", "difference", "95 % interval", "p", "p Holm");
    if (r->config->replicates)
        fprintf(to, "  %18s", "bootstrap");
    if (r->runs[0])
        fprintf(to, "  %7s  %7s  %9s", "SD 1st", "SD 2nd", "trainings");
    fputs(isnan(r->config->margin) ? "\n" : "  verdict\n", to);
}

static void print_rows(const struct chex_paired_report *r, const struct chex_paired *p, FILE *to) {
    char mean[48];
    int width =
        snprintf(mean, sizeof mean, "mean of %d finding%s", p->defined, p->defined == 1 ? "" : "s");
    for (int c = 0; c < p->classes; c++) {
        const int n = chex_text_columns(p->per_class[c].name);
        width = n > width ? n : width;
    }
    print_heading(r, to, width, "finding");
    for (int c = 0; c < p->classes; c++)
        print_row(r, to, width, p->per_class[c].name, &p->per_class[c], p->patients > 0, "");
    print_row(r, to, width, mean, &p->mean, p->patients > 0, "");
}

/* One row for each comparison, as of the runs of a sweep. */
static void print_means(const struct chex_paired_report *r, FILE *to) {
    int width = 0;
    for (size_t i = 0; i < r->count; i++) {
        const int n = chex_text_columns(r->file[1 + i].path);
        width = n > width ? n : width;
    }
    chex_text_printf(to, "\nmeans, first: %s\n", r->file[0].path);
    print_heading(r, to, width, "second");
    for (size_t i = 0; i < r->count; i++) {
        CHEX_AUTO_FREE char *differs =
            chex_paired_training_text(&r->file[0].training, &r->file[1 + i].training);
        print_row(r, to, width, r->file[1 + i].path, &r->compared[i]->mean, true,
                  differs ? differs : "");
    }
}

static void print_joined(const struct chex_paired_report *r, size_t i, FILE *to) {
    const struct chex_paired *p = r->compared[i];
    for (int side = 0; side < 2; side++) {
        const struct chex_paired_file *f = chex_paired_side(r, i, side);
        fputs(side ? "second: " : "first:  ", to);
        for (size_t k = 0; k < r->runs[side] + !r->runs[side]; k++)
            chex_text_printf(to, "%s%s", k ? ", " : "", f[k].path);
        putc('\n', to);
    }
    fprintf(to, "%zu image%s in both", p->joined, chex_text_s(p->joined));
    if (p->patients)
        fprintf(to, ", of %zu patient%s", p->patients, chex_text_s(p->patients));
    if (p->left_out[0] || p->left_out[1])
        fprintf(to, "; left out: %zu in the first file only, %zu in the second only",
                p->left_out[0], p->left_out[1]);
    putc('\n', to);
    CHEX_AUTO_FREE char *differs = chex_paired_training_text(&chex_paired_side(r, i, 0)->training,
                                                             &chex_paired_side(r, i, 1)->training);
    char line[4096];
    fprintf(to, "%s\n",
            differs ? chex_text_printable(differs, line, sizeof line) : "differs in: unknown");
    for (int k = 0; k < 2; k++) {
        if (p->missing_count[k])
            fprintf(to, "only in the %s file: ", k ? "second" : "first");
        for (int c = 0; c < p->missing_count[k]; c++)
            fprintf(to, "%s%s", p->missing[k][c], c + 1 < p->missing_count[k] ? ", " : "\n");
    }
}

static void print_undefined_replicates(const struct chex_paired_report *r, FILE *to) {
    const struct chex_paired *p = r->compared[0];
    for (int c = 0; c < p->classes; c++)
        if (p->per_class[c].bootstrap.undefined)
            fprintf(to, "%s: %zu of %zu replicates had no positive or no negative\n",
                    p->per_class[c].name, p->per_class[c].bootstrap.undefined,
                    r->config->replicates);
}

/* Whether the training of both models of a comparison is known. */
static bool any_training(const struct chex_paired_report *r) {
    bool any = false;
    for (size_t i = 0; i < r->count; i++)
        any = any || (chex_paired_side(r, i, 0)->training.facts &&
                      chex_paired_side(r, i, 1)->training.facts);
    return any;
}

static void print_recipe_notes(const struct chex_paired_report *r, FILE *to) {
    const struct chex_paired *p = r->compared[0];
    fprintf(to,
            "\ndifference: mean AUROC of the %zu trainings of the first recipe minus that of the "
            "%zu of the second\n"
            "interval, p: 95 %%, for other patients and other trainings (Obuchowski and Rockette; "
            "Hillis), %s, by %s; p of the mean from its interval\n"
            "p Holm: corrected for the %zu finding%s\n"
            "SD: of the AUROCs of the trainings; trainings: share of the variance that more "
            "trainings would lower; the rest is the patients\n",
            r->runs[0], r->runs[1],
            r->paired_seeds ? "seeds paired" : "trainings nested within recipes",
            chex_cluster_names[r->config->cluster], p->tests, chex_text_s(p->tests));
    if (!isnan(p->mean.runs_to_halve))
        fprintf(to, "half the width of the mean: %.0f trainings of each recipe\n",
                p->mean.runs_to_halve);
    else if (!isnan(p->mean.interval.low))
        fputs("half the width of the mean: no number of trainings is enough, only more patients\n",
              to);
}

static void print_notes(const struct chex_paired_report *r, FILE *to) {
    const char *by = chex_cluster_names[r->config->cluster];
    int undefined = 0, too_few = 0;
    size_t tests = 0;
    for (size_t i = 0; i < r->count; i++) {
        undefined += r->compared[i]->classes - r->compared[i]->defined;
        too_few += r->compared[i]->too_few;
        tests = r->compared[i]->tests > tests ? r->compared[i]->tests : tests;
    }
    if (r->runs[0])
        print_recipe_notes(r, to);
    else
        fprintf(to,
                "\ndifference: AUROC of the first file minus that of the second, on the same "
                "images\n"
                "interval, p: 95 %%, paired DeLong by %s, corrected for few positives; p of the "
                "mean from its interval\n"
                "p Holm: corrected for the %zu finding%s of a comparison%s\n",
                by, tests, chex_text_s(tests),
                r->count > 1 ? "; in the table of means for the comparisons" : "");
    if (!r->runs[0] && any_training(r))
        fputs("differs in: training options and their values in the first; the interval covers "
              "other patients, not another training: repeat with several --seed, see --runs\n",
              to);
    if (r->config->replicates)
        fprintf(to,
                "bootstrap: 95 %%, percentiles of %zu replicates, each draws the same %ss for "
                "both files\n",
                r->config->replicates, by);
    if (r->config->replicates && r->count == 1)
        print_undefined_replicates(r, to);
    if (!isnan(r->config->margin))
        fprintf(to,
                "verdict: non-inferior if the interval excludes a loss of %g, a one-sided test at "
                "2.5 %%; superior if it excludes 0; not corrected for several findings\n",
                r->config->margin);
    if (undefined)
        fprintf(to, "nan: no positive or no negative image; left out of the mean\n");
    if (too_few)
        fprintf(to,
                "too few: positives or negatives of fewer than %d %ss; no interval, nor for the "
                "mean\n",
                CHEX_DELONG_MIN_CLUSTERS, by);
}

void chex_paired_report_print(const struct chex_paired_report *r, FILE *to) {
    for (size_t i = 0; i < r->count; i++) {
        if (i)
            putc('\n', to);
        print_joined(r, i, to);
        print_rows(r, r->compared[i], to);
    }
    if (r->count > 1)
        print_means(r, to);
    print_notes(r, to);
}

/* ---- compare.json ---- */

static json_t *class_json(const struct chex_paired_report *r, const struct chex_paired *p,
                          const struct chex_paired_class *k) {
    const bool drawn = r->config->replicates > 0, patients = p->patients && k->name;
    const char *const verdict[] = {chex_margin_verdict_names[k->verdict[0]],
                                   chex_margin_verdict_names[k->verdict[1]]};
    return chex_result(
        CHEX_FIELD("name", k->name ? k->name : "mean"), CHEX_MEMBER(k, difference),
        CHEX_FIELD("ci_low", k->interval.low), CHEX_FIELD("ci_high", k->interval.high),
        CHEX_MEMBER(k, p_value), CHEX_MEMBER(k, p_holm), CHEX_MEMBER(k, se), CHEX_MEMBER(k, df),
        CHEX_FIELD("auroc_first", k->auroc[0]), CHEX_FIELD("auroc_second", k->auroc[1]),
        CHEX_FIELD_IF(k->name, "positives", k->positives),
        CHEX_FIELD_IF(k->name, "negatives", k->negatives),
        CHEX_FIELD_IF(k->name, "masked", k->masked),
        CHEX_FIELD_IF(patients, "positive_patients", k->positive_patients),
        CHEX_FIELD_IF(patients, "negative_patients", k->negative_patients), CHEX_MEMBER(k, too_few),
        CHEX_FIELD("bootstrap_low", k->bootstrap.low),
        CHEX_FIELD("bootstrap_high", k->bootstrap.high),
        CHEX_FIELD_IF(drawn, "replicates_undefined", k->bootstrap.undefined),
        CHEX_FIELD_IF(r->runs[0], "sd_first", k->sd[0]),
        CHEX_FIELD_IF(r->runs[0], "sd_second", k->sd[1]),
        CHEX_FIELD_IF(r->runs[0], "training_share", k->training_share),
        CHEX_FIELD_IF(r->runs[0], "runs_to_halve", k->runs_to_halve),
        CHEX_FIELD("verdict", verdict[0]), CHEX_FIELD("verdict_second", verdict[1]));
}

/* The findings of a comparison. */
static json_t *classes_json(const struct chex_paired_report *r, const struct chex_paired *p) {
    json_t *classes = json_array();
    for (int c = 0; c < p->classes; c++)
        chex_json_append(&classes, class_json(r, p, &p->per_class[c]));
    return classes;
}

static json_t *comparison_json(const struct chex_paired_report *r, size_t i) {
    const struct chex_paired *p = r->compared[i];
    const struct chex_paired_file *first = chex_paired_side(r, i, 0);
    const struct chex_paired_file *second = chex_paired_side(r, i, 1);
    return chex_result(
        CHEX_FIELD("first", first->path), CHEX_FIELD("second", second->path),
        CHEX_FIELD("training", chex_paired_training_json(&first->training, &second->training)),
        CHEX_FIELD_IF(second->training.stopped_epoch, "stopped_epoch",
                      second->training.stopped_epoch),
        CHEX_FIELD("classes", classes_json(r, p)), CHEX_FIELD("mean", class_json(r, p, &p->mean)),
        CHEX_FIELD("class_count", p->classes), CHEX_FIELD("defined_count", p->defined),
        CHEX_MEMBER(p, tests), CHEX_FIELD("images", p->joined),
        CHEX_FIELD_IF(p->patients, "patients", p->patients),
        CHEX_FIELD("left_out_first", p->left_out[0]), CHEX_FIELD("left_out_second", p->left_out[1]),
        CHEX_FIELD("only_first", chex_result_texts(p->missing[0], (size_t)p->missing_count[0])),
        CHEX_FIELD("only_second", chex_result_texts(p->missing[1], (size_t)p->missing_count[1])));
}

static json_t *list_json(const struct chex_paired_report *r, size_t count,
                         json_t *(*item)(const struct chex_paired_report *r, size_t i)) {
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        chex_json_append(&list, item(r, i));
    return list;
}

static json_t *file_json(const struct chex_paired_report *r, size_t i) {
    const struct chex_paired_file *f = &r->file[i];
    return chex_result(CHEX_MEMBER(f, path), CHEX_FIELD("images", f->rows),
                       CHEX_FIELD("digest", &f->digest[0]));
}

static json_t *interval_json(const struct chex_paired_report *r) {
    const char *method = !r->runs[0]       ? "moderated paired DeLong"
                         : r->paired_seeds ? "Obuchowski-Rockette-Hillis, seeds paired"
                                           : "Obuchowski-Rockette-Hillis, trainings nested";
    return chex_result(CHEX_FIELD("method", method), CHEX_FIELD("level", 0.95),
                       CHEX_FIELD("cluster", chex_cluster_names[r->config->cluster]),
                       CHEX_FIELD_IF(r->runs[0], "trainings_first", r->runs[0]),
                       CHEX_FIELD_IF(r->runs[0], "trainings_second", r->runs[1]),
                       CHEX_FIELD("minimum_clusters", (int)CHEX_DELONG_MIN_CLUSTERS));
}

static json_t *correction_json(void) {
    return chex_result(CHEX_FIELD("method", "Holm"),
                       CHEX_FIELD("family", "findings of one comparison"),
                       CHEX_FIELD("family_of_means", "comparisons"));
}

static json_t *bootstrap_json(const struct chex_paired_config *config) {
    if (!config->replicates)
        return json_null();
    return chex_result(CHEX_FIELD("method", "paired percentile bootstrap"),
                       CHEX_MEMBER(config, replicates), CHEX_MEMBER(config, seed));
}

json_t *chex_paired_report_json(const struct chex_paired_report *r) {
    json_auto_t *first = comparison_json(r, 0);
    json_t *o = chex_result(
        CHEX_FIELD("schema", 1), CHEX_FIELD("tool_version", CHEXNET_VERSION),
        CHEX_FIELD("files",
                   list_json(r, r->runs[0] ? r->runs[0] + r->runs[1] : r->count + 1, file_json)),
        CHEX_FIELD("interval", interval_json(r)), CHEX_FIELD("correction", correction_json()),
        CHEX_FIELD("bootstrap", bootstrap_json(r->config)), CHEX_MEMBER(r->config, margin),
        CHEX_FIELD("comparisons", list_json(r, r->count, comparison_json)));
    if (o && json_object_update(o, first) == 0)
        return o;
    json_decref(o);
    return NULL;
}

static enum chex_status write_json(FILE *f, const struct chex_paired_report *r,
                                   struct chex_error *err) {
    return chex_result_print(f, chex_paired_report_json(r), NULL, JSON_INDENT(2), err);
}

#define CSV_NAMES                                                                                  \
    "first,second,class=name,positives?,negatives?,masked?,positive_patients?,"                    \
    "negative_patients?,auroc_first,auroc_second,difference,ci_low,ci_high,p_value,p_holm,se,"     \
    "df,bootstrap_low,bootstrap_high,verdict?,verdict_second?"

static enum chex_status write_csv(FILE *f, const struct chex_paired_report *r,
                                  struct chex_error *err) {
    json_t *rows = json_array();
    for (size_t i = 0; i < r->count; i++)
        for (int c = 0; c <= r->compared[i]->classes; c++) {
            const struct chex_paired *p = r->compared[i];
            json_t *row = class_json(r, p, c < p->classes ? &p->per_class[c] : &p->mean);
            chex_json_set(&row, "first", chex_json_text(chex_paired_side(r, i, 0)->path));
            chex_json_set(&row, "second", chex_json_text(chex_paired_side(r, i, 1)->path));
            chex_json_append(&rows, row);
        }
    return chex_csv_write(
        f, r->runs[0] ? CSV_NAMES ",sd_first,sd_second,training_share,runs_to_halve?" : CSV_NAMES,
        rows, err);
}

enum chex_status chex_paired_report_write(const struct chex_paired_report *r, const char *dir,
                                          struct chex_error *err) {
    /* In the order of chex_paired_report_files. */
    static enum chex_status (*const writers[])(FILE *, const struct chex_paired_report *,
                                               struct chex_error *) = {write_json, write_csv,
                                                                       chex_paired_svg};
    for (size_t i = 0; i < CHEX_COUNT(writers); i++) {
        struct chex_textfile t;
        CHEX_TRY(chex_textfile_open_in(dir, chex_paired_report_files[i], &t, err));
        CHEX_TRY(chex_textfile_close(&t, writers[i](t.f, r, err), err));
    }
    return CHEX_OK;
}
