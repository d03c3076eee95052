/* SPDX-License-Identifier: Apache-2.0
 *
 * chex-eval score: the figures for a table of predictions, without a network.
 */
#include <stdlib.h>

#include "base/fs.h"
#include "base/pool.h"
#include "base/text.h"
#include "eval_commands.h"

static const struct chex_opt score_opts[] = {
    CHEX_OPT_COMMON,
    EVAL_GROUP("What is scored"),
    {"predictions", 'p', CHEX_OPT_STRING, EVAL_AT(predictions), NULL, "FILE",
     "table to score: image_id, patient_id, y_CLASS and p_CLASS for each class"},
    EVAL_THREADS_ROW("threads for the intervals; 0: one for each CPU"),
    EVAL_FIGURE_ROWS,
    EVAL_GROUP("Results"),
    EVAL_OUTPUT_ROW("DIR", "folder for auroc.json, auroc.csv, roc.svg and report.html"),
    EVAL_FORCE_ROW,
};

static const struct chex_opt_program score_program = {
    .name = "chex-eval score",
    .summary = "the same figures for a table of predictions, without a network",
    .usage = "chex-eval score --predictions FILE.csv [--output DIR] [options]",
    .opts = score_opts,
    .count = COUNT(score_opts),
    .epilog = "Examples\n"
              "  chex-eval score --predictions run/eval/predictions.csv --compare "
              "published:arnoweng\n\n" EVAL_EXIT_STATUS};

static enum chex_status score(const struct eval_settings *s, const struct chex_predictions *table,
                              struct chex_error *err) {
    char *title = chex_fs_format("predictions of %s", s->predictions);
    json_t *provenance = json_pack("{s:s}", "predictions", s->predictions);
    const int threads = s->threads ? (int)s->threads : chex_cpu_count();
    struct eval_output output = {.lock = -1};
    enum chex_status st = s->output ? eval_results_begin(s, false, &output, err) : CHEX_OK;
    if (st == CHEX_OK && !(title && provenance))
        st = chex_error_set(err, CHEX_E_RESOURCE, "out of memory for the results");
    if (st == CHEX_OK)
        st = eval_results_report(s, threads, title, provenance, table, false, err);
    eval_results_end(s, &output, st);
    json_decref(provenance);
    free(title);
    return st;
}

static enum chex_status run_score(const struct eval_settings *s, const struct chex_opt_set *set,
                                  struct chex_error *err) {
    (void)set;
    if (!s->predictions)
        return chex_error_set(err, CHEX_E_USAGE, "chex-eval score needs --predictions FILE.csv");
    CHEX_TRY(chex_text_for_json("--predictions", s->predictions, "auroc.json", err));
    if (s->output)
        CHEX_TRY(eval_results_refuse(s, false, err));
    struct chex_predictions *table = NULL;
    CHEX_TRY(chex_predictions_read(s->predictions, &table, err));
    enum chex_status st = score(s, table, err);
    chex_predictions_destroy(table);
    return st;
}

const struct eval_command eval_command_score = {"score", &score_program, true, run_score};
