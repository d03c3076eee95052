/* SPDX-License-Identifier: Apache-2.0
 *
 * chex-eval score: scores a table of predictions, without a network.
 */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/pool.h"
#include "base/text.h"
#include "evaluate/compute.h"
#include "evaluate/output.h"
#include "evaluate/results.h"
#include "evaluate/subcommands.h"
#include "evaluate/thresholds.h"
#include "label/labels_map.h"
#include "stats/groups.h"

/* ---- several tables: the folds of a cross-validation ---- */

/* *array of `count` elements gets those of `more`. */
static bool append(void *array, size_t count, const void *more, size_t more_count, size_t size) {
    void *old, *all;
    memcpy(&old, array, sizeof old);
    if (!(all = realloc(old, (count + more_count) * size)))
        return false;
    memcpy((char *)all + count * size, more, more_count * size);
    memcpy(array, &all, sizeof all);
    return true;
}

/* Moves the rows of `from` to the end of `to`; both have facts. */
static enum chex_status add_rows(struct chex_predictions *to, struct chex_predictions *from,
                                 const char *path, struct chex_error *err) {
    const size_t classes = (size_t)to->classes, a = to->rows, b = from->rows;
    bool same = to->classes == from->classes && !to->patient_id == !from->patient_id;
    for (size_t c = 0; same && c < classes; c++)
        same = strcmp(to->class_names[c], from->class_names[c]) == 0;
    if (!same)
        return chex_error_set(err, CHEX_E_DATA, "%s: other columns than in the first table", path);
    if (!append(&to->image_id, a, from->image_id, b, sizeof *to->image_id) ||
        (to->patient_id &&
         !append(&to->patient_id, a, from->patient_id, b, sizeof *to->patient_id)) ||
        !append(&to->label, a * classes, from->label, b * classes, 1) ||
        !append(&to->score, a * classes, from->score, b * classes, sizeof *to->score) ||
        !append(&to->facts, a, from->facts, b, sizeof *to->facts))
        return chex_error_memory(err, "%s", path);
    to->rows += b;
    from->rows = 0; /* its texts belong to the other table now */
    return CHEX_OK;
}

/* Adds table number `fold`, and takes it over. Rows that state no fold are of this one. */
static enum chex_status add_table(struct chex_predictions **all, struct chex_predictions *t,
                                  const char *path, int fold, struct chex_error *err) {
    enum chex_status st = chex_predictions_add_facts(t, err);
    for (size_t i = 0; st == CHEX_OK && i < t->rows; i++)
        t->facts[i].fold = t->facts[i].fold ? t->facts[i].fold : fold;
    if (!*all) {
        *all = t;
        return st;
    }
    st = st == CHEX_OK ? add_rows(*all, t, path, err) : st;
    chex_predictions_destroy(t);
    return st;
}

#define RELEASED __attribute__((cleanup(chex_label_map_release))) = {0}

/* CHEX_E_DATA if an image is there twice, or a patient in two folds. */
static enum chex_status check_folds(const struct chex_predictions *t, struct chex_error *err) {
    struct chex_label_map images RELEASED, patients RELEASED;
    for (size_t i = 0, before; i < t->rows; i++) {
        const size_t fold = (size_t)t->facts[i].fold;
        CHEX_TRY(chex_label_map_add(&images, t->image_id[i], i, &before, err));
        if (before != i)
            return chex_error_set(err, CHEX_E_DATA, "--predictions: image %s is in two tables",
                                  t->image_id[i]);
        if (!t->patient_id || !t->patient_id[i][0])
            continue;
        CHEX_TRY(chex_label_map_add(&patients, t->patient_id[i], fold, &before, err));
        if (before != fold)
            return chex_error_set(err, CHEX_E_DATA,
                                  "--predictions: patient %s is in fold %zu and in fold %zu",
                                  t->patient_id[i], before, fold);
    }
    return CHEX_OK;
}

/* Reads the file of this name, or those of a list with commas. */
static enum chex_status read_predictions(const struct chex_eval_settings *s,
                                         struct chex_predictions **out, struct chex_error *err) {
    const bool one = chex_fs_exists(s->predictions) || !strchr(s->predictions, ',');
    int tables = 0;
    for (const char *at = s->predictions; at;) {
        const size_t n = one ? strlen(at) : strcspn(at, ",");
        CHEX_AUTO_FREE char *path = strndup(at, n);
        struct chex_predictions *table = NULL;
        CHEX_ALLOCATED(path, err, "--predictions");
        if (tables == CHEX_GROUPS_MAX)
            return chex_error_set(err, CHEX_E_USAGE,
                                  "--predictions: more than %d tables (expected one for each fold)",
                                  CHEX_GROUPS_MAX);
        if (!*path || chex_fs_is_dir(path))
            return chex_error_set(
                err, CHEX_E_USAGE,
                "--predictions %s: %s, expected a table such as predictions.csv of chex-eval",
                *path ? path : s->predictions, *path ? "a folder" : "an empty name");
        CHEX_TRY(chex_predictions_read(path, (enum chex_score_kind)s->scores, &table, err));
        if (one)
            *out = table;
        else
            CHEX_TRY(add_table(out, table, path, ++tables, err));
        at = at[n] ? at + n + 1 : NULL;
    }
    return one ? CHEX_OK : check_folds(*out, err);
}

static enum chex_status score(const struct chex_opt_set *set, const struct chex_eval_settings *s,
                              struct chex_predictions *table,
                              const struct chex_published *published,
                              const struct chex_eval_figures *figures, FILE *out,
                              struct chex_error *err) {
    const struct chex_eval_done done = {
        .table = table,
        .title = chex_fs_format("predictions of %s", s->predictions),
        .provenance = json_pack("{s:s}", "predictions", s->predictions),
        .command = chex_opt_command(set, s),
    };
    const struct chex_eval_results results = {.s = s,
                                              .threads =
                                                  s->threads ? (int)s->threads : chex_cpu_count(),
                                              .done = &done,
                                              .published = published,
                                              .figures = figures,
                                              .out = out};
    struct chex_eval_output output = chex_eval_output_of_report(s, false);
    enum chex_status st = s->output ? chex_eval_output_begin(&output, err) : CHEX_OK;
    if (st == CHEX_OK && !(done.title && done.provenance && done.command))
        st = chex_error_memory(err, "the results");
    if (st == CHEX_OK)
        st = chex_eval_results_report(&results, err);
    chex_eval_output_end(&output, st);
    json_decref(done.provenance);
    free(done.command);
    free(done.title);
    return st;
}

enum chex_status chex_evaluate_score(const struct chex_opt_set *set,
                                     const struct chex_eval_settings *s, FILE *out,
                                     struct chex_error *err) {
    if (!s->predictions)
        return chex_error_set(err, CHEX_E_USAGE, "chex-eval score needs --predictions FILE.csv");
    CHEX_TRY(chex_eval_figures_check(s, err));
    CHEX_TRY(chex_eval_groups_check(s, err));
    CHEX_TRY(chex_text_for_json("--predictions", s->predictions, "auroc.json", err));
    const struct chex_eval_output output = chex_eval_output_of_report(s, false);
    if (s->output)
        CHEX_TRY(chex_eval_output_check(&output, err));
    struct chex_predictions *table = NULL;
    struct chex_published *published = NULL;
    struct chex_eval_figures figures = {0};
    CHEX_TRY(chex_published_read(s->compare, &published, err));
    enum chex_status st = read_predictions(s, &table, err);
    if (st == CHEX_OK)
        st = chex_eval_figures_open(s, NULL, table->classes, table->class_names, &figures, err);
    if (st == CHEX_OK)
        st = score(set, s, table, published, &figures, out, err);
    chex_eval_figures_release(&figures);
    chex_predictions_destroy(table);
    chex_published_destroy(published);
    return st;
}
