/* SPDX-License-Identifier: Apache-2.0
 *
 * A sweep: one row for each run, compared with the first one.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/result.h"
#include "base/text.h"
#include "model/training_facts.h"
#include "report/paired_report.h"
#include "stats/difference.h"

/* The folder of a run, from RUN/eval/predictions.csv. The caller frees it. */
static char *run_of(const char *path) {
    char *run = strdup(path);
    for (int i = 0; run && i < 2; i++)
        if (strrchr(run, '/'))
            *strrchr(run, '/') = '\0';
    return run;
}

/* What sweep.sbatch has decided about a run; NULL: nothing. */
static json_t *decision_of(const char *run) {
    char *path = chex_fs_join(run, "sweep-stop.json");
    json_t *decision = path ? json_load_file(path, 0, NULL) : NULL;
    free(path);
    return decision;
}

/* "--lr 1e-4 --seed 2": the options of a run that differ from the reference. */
static char *options_of(const struct chex_paired_report *r, size_t i) {
    json_t *training = chex_paired_training_json(&r->file[i].training, &r->file[0].training);
    json_t *options = json_object(), *item;
    size_t k;
    json_array_foreach(json_object_get(training, "differs"), k, item)
        json_object_set(options, json_string_value(json_object_get(item, "option")),
                        json_object_get(item, "first"));
    char *text = json_is_null(training) ? strdup("unknown") : chex_training_options_text(options);
    json_decref(options);
    json_decref(training);
    return text;
}

/* Row i; 0: the reference. */
static json_t *row_json(const struct chex_paired_report *r, size_t i, double p_holm) {
    const struct chex_paired_class *k = &r->compared[i ? i - 1 : 0]->mean;
    char *run = run_of(r->file[i].path), *options = options_of(r, i);
    json_t *decision = run ? decision_of(run) : NULL;
    const bool stopped = json_is_true(json_object_get(decision, "stopped"));
    json_t *row =
        chex_result(CHEX_FIELD("run", run), CHEX_FIELD("path", r->file[i].path),
                    CHEX_FIELD("auroc", k->auroc[i > 0]), CHEX_FIELD_IF(i, "gain", -k->difference),
                    CHEX_FIELD_IF(i, "ci_low", -k->interval.high),
                    CHEX_FIELD_IF(i, "ci_high", -k->interval.low),
                    CHEX_FIELD_IF(i, "p_value", k->p_value), CHEX_FIELD_IF(i, "p_holm", p_holm),
                    CHEX_FIELD_IF(stopped, "stopped_epoch",
                                  json_integer_value(json_object_get(decision, "epoch"))),
                    CHEX_FIELD("options", i ? options : "reference"));
    json_decref(decision);
    free(options);
    free(run);
    return row;
}

json_t *chex_sweep_json(const struct chex_paired_report *r) {
    double *p = chex_alloc_zeroed(r->count, 2 * sizeof *p);
    json_t *rows = p ? json_array() : NULL;
    struct chex_error err;
    size_t tests;
    for (size_t i = 0; p && i < r->count; i++)
        p[i] = r->compared[i]->mean.p_value;
    if (p && chex_difference_holm(p, r->count, p + r->count, &tests, &err) == CHEX_OK)
        for (size_t i = 0; i <= r->count; i++)
            chex_json_append(&rows, row_json(r, i, i ? p[r->count + i - 1] : NAN));
    else
        json_decref(rows);
    free(p);
    return rows;
}

static double real_of(const json_t *row, const char *key) {
    const json_t *v = json_object_get(row, key);
    return json_is_number(v) ? json_number_value(v) : NAN;
}

static void print_row(FILE *to, int width, const json_t *row) {
    const char *run = json_string_value(json_object_get(row, "run"));
    const char *options = json_string_value(json_object_get(row, "options"));
    const long long epoch = json_integer_value(json_object_get(row, "stopped_epoch"));
    const struct chex_interval i = {real_of(row, "ci_low"), real_of(row, "ci_high"), 0};
    char text[96];
    chex_text_printf(to, "%-*s  %7.4f", chex_text_field(run, width), run, real_of(row, "auroc"));
    if (isnan(i.low))
        snprintf(text, sizeof text, "%8s  %18s  %7s  %7s", "-", "-", "-", "-");
    else
        snprintf(text, sizeof text, "%+8.4f  %+.4f to %+.4f  %7.4f  %7.4f", real_of(row, "gain"),
                 i.low, i.high, real_of(row, "p_value"), real_of(row, "p_holm"));
    chex_text_printf(to, "  %s  %s", text, options ? options : "");
    if (epoch)
        fprintf(to, " (stopped after epoch %lld)", epoch);
    putc('\n', to);
}

void chex_sweep_print(const struct chex_paired_report *r, FILE *to) {
    json_t *rows = chex_sweep_json(r), *row;
    const struct chex_paired *first = r->compared[0];
    int width = 3;
    size_t i;
    json_array_foreach(rows, i, row) {
        const int n = chex_text_columns(json_string_value(json_object_get(row, "run")));
        width = n > width ? n : width;
    }
    fprintf(to, "%-*s  %7s  %8s  %18s  %7s  %7s  %s\n", width, "run", "AUROC", "gain",
            "95 % interval", "p", "p Holm", "options");
    json_array_foreach(rows, i, row) print_row(to, width, row);
    fprintf(to,
            "\nAUROC: mean of %d finding%s on %zu images; gain: over the first run, on the same "
            "images\n"
            "interval, p: 95 %%, paired DeLong by %s: other patients, no other training; p Holm: "
            "corrected for %zu run%s\n"
            "The best of many runs is partly luck: evaluate it on the test split, or train it with "
            "several --seed and use --runs\n",
            first->defined, chex_text_s((uint64_t)first->defined), first->joined,
            chex_cluster_names[r->config->cluster], r->count, chex_text_s(r->count));
    json_decref(rows);
}
