/* SPDX-License-Identifier: Apache-2.0
 *
 * chex-eval score: scores a table of predictions, without a network.
 */
#include <stdlib.h>

#include "base/fs.h"
#include "base/pool.h"
#include "base/text.h"
#include "evaluate/compute.h"
#include "evaluate/output.h"
#include "evaluate/results.h"
#include "evaluate/subcommands.h"
#include "evaluate/thresholds.h"

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
    if (chex_fs_is_dir(s->predictions))
        return chex_error_set(
            err, CHEX_E_USAGE,
            "--predictions %s: a folder, expected a table such as predictions.csv "
            "of chex-eval",
            s->predictions);
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
    enum chex_status st =
        chex_predictions_read(s->predictions, (enum chex_score_kind)s->scores, &table, err);
    if (st == CHEX_OK)
        st = chex_eval_figures_open(s, NULL, table->classes, table->class_names, &figures, err);
    if (st == CHEX_OK)
        st = score(set, s, table, published, &figures, out, err);
    chex_eval_figures_release(&figures);
    chex_predictions_destroy(table);
    chex_published_destroy(published);
    return st;
}
