/* SPDX-License-Identifier: Apache-2.0
 *
 * chex-eval score: scores a table of predictions, without a network.
 */
#include <stdlib.h>

#include "base/fs.h"
#include "base/pool.h"
#include "base/text.h"
#include "eval_commands.h"

static const struct chex_opt score_opts[] = {
    CHEX_OPT_COMMON,
    OPTION_GROUP("What is scored"),
    OPTION("predictions", STRING, EVAL_AT(predictions), .letter = 'p', .metavar = "FILE",
           .help = "table to score: image_id, patient_id, y_CLASS and p_CLASS for each "
                   "finding; may be .gz"),
    EVAL_SCORES_ROW,
    EVAL_THREADS_ROW("threads for the intervals; 0: one for each CPU"),
    EVAL_FIGURE_ROWS,
    EVAL_GROUP_ROWS,
    OPTION_GROUP("Results"),
    EVAL_OUTPUT_ROW("DIR",
                    "folder for auroc.json, auroc.csv, figures.csv, curves.csv, subgroups.csv, "
                    "shortcuts.csv, roc.svg and report.html"),
    EVAL_FORCE_ROW,
};

static enum chex_status score(const struct chex_opt_set *set, const struct eval_settings *s,
                              struct chex_predictions *table,
                              const struct chex_published *published,
                              const struct eval_figures *figures, struct chex_error *err) {
    const struct eval_done done = {
        .table = table,
        .title = chex_fs_format("predictions of %s", s->predictions),
        .provenance = json_pack("{s:s}", "predictions", s->predictions),
        .command = chex_opt_command(set, s),
    };
    const struct eval_results results = {.s = s,
                                         .threads = s->threads ? (int)s->threads : chex_cpu_count(),
                                         .done = &done,
                                         .published = published,
                                         .figures = figures};
    struct eval_output output = {.lock = -1};
    enum chex_status st = s->output ? eval_results_begin(s, false, &output, err) : CHEX_OK;
    if (st == CHEX_OK && !(done.title && done.provenance && done.command))
        st = chex_error_memory(err, "the results");
    if (st == CHEX_OK)
        st = eval_results_report(&results, err);
    eval_results_end(s, &output, st);
    json_decref(done.provenance);
    free(done.command);
    free(done.title);
    return st;
}

static enum chex_status run_score(struct chex_opt_set *set, void *settings,
                                  struct chex_error *err) {
    const struct eval_settings *s = settings;
    if (!s->predictions)
        return chex_error_set(err, CHEX_E_USAGE, "chex-eval score needs --predictions FILE.csv");
    if (chex_fs_is_dir(s->predictions))
        return chex_error_set(
            err, CHEX_E_USAGE,
            "--predictions %s: a folder, expected a table such as predictions.csv "
            "of chex-eval",
            s->predictions);
    CHEX_TRY(eval_figures_check(s, err));
    CHEX_TRY(eval_groups_check(s, err));
    CHEX_TRY(chex_text_for_json("--predictions", s->predictions, "auroc.json", err));
    if (s->output)
        CHEX_TRY(eval_results_refuse(s, false, err));
    struct chex_predictions *table = NULL;
    struct chex_published *published = NULL;
    struct eval_figures figures = {0};
    CHEX_TRY(eval_results_compare(s, &published, err));
    enum chex_status st =
        chex_predictions_read(s->predictions, (enum chex_score_kind)s->scores, &table, err);
    if (st == CHEX_OK)
        st = eval_figures_open(s, NULL, table->classes, table->class_names, &figures, err);
    if (st == CHEX_OK)
        st = score(set, s, table, published, &figures, err);
    eval_figures_release(&figures);
    chex_predictions_destroy(table);
    chex_published_destroy(published);
    return st;
}

const struct chex_opt_program eval_score_program = {
    .name = "chex-eval score",
    .summary = "the same figures for a table of predictions, without a network",
    .usage = "chex-eval score --predictions FILE.csv [--output DIR] [options]",
    .opts = score_opts,
    .count = COUNT(score_opts),
    .epilog = "Examples\n"
              "  chex-eval score --predictions run/eval/predictions.csv --compare "
              "published:arnoweng\n\n" EVAL_EXIT_STATUS,
    .settings_size = sizeof(struct eval_settings),
    .run = run_score,
    .alone = true,
    .word = "score",
};
