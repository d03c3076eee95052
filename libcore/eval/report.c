/* SPDX-License-Identifier: Apache-2.0 */
#include "eval/report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/text.h"
#include "eval/textfile.h"

const char *const chex_report_files[] = {"auroc.json", "auroc.csv", "roc.svg", "report.html", NULL};

static double published(const struct chex_report *r, int c) {
    return r->published ? chex_published_auroc(r->published, r->published->headline,
                                               r->scores->per_class[c].name)
                        : NAN;
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

/* ---- the table ---- */

static const char *number(double v, char buf[16]) {
    if (isnan(v))
        snprintf(buf, 16, "%s", "-");
    else
        snprintf(buf, 16, "%.4f", v);
    return buf;
}

static void print_line(FILE *to, int width, const char *name, const char *positives, double auroc,
                       const struct chex_interval *i, bool has_published, double other) {
    char a[16], lo[16], hi[16], p[16], interval[40] = "-";
    if (!isnan(i->low))
        snprintf(interval, sizeof interval, "%s - %s", number(i->low, lo), number(i->high, hi));
    fprintf(to, "%-*s %9s  %7s  %15s", chex_text_field(name, width), name, positives,
            isnan(auroc) ? "nan" : number(auroc, a), interval);
    if (has_published)
        fprintf(to, "  %9s", number(other, p));
    putc('\n', to);
}

static void print_notes(const struct chex_report *r, FILE *to) {
    const struct chex_scores *s = r->scores;
    if (s->defined < s->classes)
        fprintf(to, "nan: no positive or no negative image; left out of the mean\n");
    if (s->config.replicates && s->config.cluster == CHEX_CLUSTER_PATIENT && s->patients < 2)
        fprintf(to, "no interval: all images are of one patient\n");
    else if (s->config.replicates)
        fprintf(to, "interval: 95 %%, %zu bootstrap replicates by %s\n", s->config.replicates,
                chex_cluster_names[s->config.cluster]);
    if (!r->published)
        return;
    const struct chex_published_source *p = &r->published->source[r->published->headline];
    fprintf(to, "published: %s%s%s; split: %s\n", p->name, p->source[0] ? ", " : "", p->source,
            p->split[0] ? p->split : "not stated");
    if (chex_report_shares_fewer(r)) {
        const struct chex_report_shared m = chex_report_shared_mean(r);
        fprintf(to, "           mean of the %d class%s that both have; over %s ours is %.4f\n",
                m.classes, m.classes == 1 ? "" : "es", m.classes == 1 ? "it" : "them", m.ours);
    }
    fprintf(to, "           AUROCs of different splits do not compare\n");
}

void chex_report_print(const struct chex_report *r, FILE *to) {
    const struct chex_scores *s = r->scores;
    char text[32];
    int width = 20;
    for (int c = 0; c < s->classes; c++) {
        int n = chex_text_columns(s->per_class[c].name);
        width = n > width ? n : width;
    }
    fprintf(to, "%-*s %9s  %7s  %15s%s\n", width, "class", "positives", "AUROC", "95 % interval",
            r->published ? "  published" : "");
    for (int c = 0; c < s->classes; c++) {
        const struct chex_class_score *k = &s->per_class[c];
        snprintf(text, sizeof text, "%zu", k->positives);
        print_line(to, width, k->name, text, k->auroc, &k->interval, r->published != NULL,
                   published(r, c));
    }
    char mean[48];
    snprintf(mean, sizeof mean, "mean of %d class%s", s->defined, s->defined == 1 ? "" : "es");
    print_line(to, width, mean, "", s->mean, &s->mean_interval, r->published != NULL,
               chex_report_shared_mean(r).published);
    print_notes(r, to);
}

/* ---- auroc.json ---- */

static json_t *real(double v) { return isfinite(v) ? json_real(v) : json_null(); }

static json_t *class_json(const struct chex_report *r, int c) {
    const struct chex_class_score *k = &r->scores->per_class[c];
    return json_pack("{s:s,s:o,s:o,s:o,s:o,s:I,s:I,s:I,s:I,s:o}", "name", k->name, "auroc",
                     real(k->auroc), "ci_low", real(k->interval.low), "ci_high",
                     real(k->interval.high), "delong_se", real(k->delong_se), "positives",
                     (json_int_t)k->positives, "negatives", (json_int_t)k->negatives, "masked",
                     (json_int_t)k->masked, "replicates_undefined",
                     (json_int_t)k->interval.undefined, "published", real(published(r, c)));
}

static json_t *interval_json(const struct chex_scores *s) {
    if (!s->config.replicates)
        return json_null();
    return json_pack("{s:s,s:f,s:I,s:s,s:I}", "method", "percentile bootstrap", "level", 0.95,
                     "replicates", (json_int_t)s->config.replicates, "cluster",
                     chex_cluster_names[s->config.cluster], "seed", (json_int_t)s->config.seed);
}

static json_t *published_json(const struct chex_report *r) {
    if (!r->published)
        return json_null();
    const struct chex_published_source *p = &r->published->source[r->published->headline];
    const struct chex_report_shared m = chex_report_shared_mean(r);
    return json_pack("{s:s,s:s,s:s,s:b,s:o,s:o,s:i}", "column", p->name, "source", p->source,
                     "split", p->split, "official_split", p->official, "mean", real(m.published),
                     "own_mean", real(m.ours), "class_count", m.classes);
}

enum chex_status chex_report_json(const struct chex_report *r, json_t **json_out,
                                  struct chex_error *err) {
    const struct chex_scores *s = r->scores;
    json_t *classes = json_array();
    int failed = classes == NULL;
    for (int c = 0; c < s->classes; c++)
        failed |= json_array_append_new(classes, class_json(r, c)) != 0;
    json_t *o = json_pack(
        "{s:i,s:s,s:s,s:o,s:o,s:o,s:i,s:i,s:I,s:o,s:o,s:o,s:o,s:o}", "schema", 1, "tool_version",
        CHEXNET_VERSION, "title", r->title, "mean", real(s->mean), "mean_ci_low",
        real(s->mean_interval.low), "mean_ci_high", real(s->mean_interval.high), "defined_count",
        s->defined, "class_count", s->classes, "images", (json_int_t)s->table->rows, "patients",
        s->patients ? json_integer((json_int_t)s->patients) : json_null(), "interval",
        interval_json(s), "classes", classes, "published", published_json(r), "provenance",
        r->provenance ? json_deep_copy(r->provenance) : json_object());
    if (failed || !o) {
        json_decref(o);
        return chex_error_set(err, CHEX_E_RESOURCE, "out of memory for the results as JSON");
    }
    *json_out = o;
    return CHEX_OK;
}

static enum chex_status write_json(FILE *f, const struct chex_report *r, struct chex_error *err) {
    json_t *o = NULL;
    CHEX_TRY(chex_report_json(r, &o, err));
    json_dumpf(o, f, JSON_INDENT(2)); /* what fails here is seen when the file is closed */
    putc('\n', f);
    json_decref(o);
    return CHEX_OK;
}

/* ---- auroc.csv ---- */

/* Undefined numbers are nan; a cell is empty where there is nothing to be defined. */
static void put_number(FILE *f, double v) {
    if (isnan(v))
        fputs(",nan", f); /* never "-nan" */
    else
        fprintf(f, ",%.9g", v);
}

static void put_published(FILE *f, double v) {
    if (isnan(v))
        putc(',', f);
    else
        put_number(f, v);
}

static enum chex_status write_csv(FILE *f, const struct chex_report *r, struct chex_error *err) {
    (void)err;
    const struct chex_scores *s = r->scores;
    fputs("class,positives,negatives,masked,auroc,ci_low,ci_high,delong_se,published\n", f);
    for (int c = 0; c < s->classes; c++) {
        const struct chex_class_score *k = &s->per_class[c];
        chex_put_csv(f, k->name);
        fprintf(f, ",%zu,%zu,%zu", k->positives, k->negatives, k->masked);
        put_number(f, k->auroc);
        put_number(f, k->interval.low);
        put_number(f, k->interval.high);
        put_number(f, k->delong_se);
        put_published(f, published(r, c));
        putc('\n', f);
    }
    fputs("mean,,,", f);
    put_number(f, s->mean);
    put_number(f, s->mean_interval.low);
    put_number(f, s->mean_interval.high);
    putc(',', f); /* DeLong's error is of one class */
    put_published(f, chex_report_shared_mean(r).published);
    putc('\n', f);
    return CHEX_OK;
}

static enum chex_status write_svg(FILE *f, const struct chex_report *r, struct chex_error *err) {
    return chex_svg_roc(f, r, true, err);
}

enum chex_status chex_report_write(const struct chex_report *r, const char *dir,
                                   struct chex_error *err) {
    /* In the order of chex_report_files. */
    static enum chex_status (*const writers[])(FILE *, const struct chex_report *,
                                               struct chex_error *) = {write_json, write_csv,
                                                                       write_svg, chex_html_write};
    for (size_t i = 0; chex_report_files[i]; i++) {
        char *path = chex_fs_join(dir, chex_report_files[i]);
        if (!path)
            return chex_error_set(err, CHEX_E_RESOURCE, "%s: out of memory", dir);
        struct chex_textfile t;
        enum chex_status st = chex_textfile_open(path, &t, err);
        if (st == CHEX_OK)
            st = chex_textfile_close(&t, writers[i](t.f, r, err), err);
        free(path);
        if (st != CHEX_OK)
            return st;
    }
    return CHEX_OK;
}
