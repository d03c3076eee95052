/* SPDX-License-Identifier: Apache-2.0
 *
 * chex-eval score: scores a table of predictions, without a network.
 */
#include <stdio.h>

#include "eval_commands.h"

static const struct chex_opt score_opts[] = {
    CHEX_OPT_COMMON,
    OPTION_GROUP("What is scored"),
    OPTION("predictions", STRING, EVAL_AT(predictions), .letter = 'p', .metavar = "FILE[,FILE...]",
           .help = "table to score: image_id, patient_id, y_CLASS and p_CLASS for each "
                   "finding; may be .gz; several are the folds of a cross-validation"),
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

static enum chex_status run_score(struct chex_opt_set *set, void *settings,
                                  struct chex_error *err) {
    return chex_evaluate_score(set, settings, stdout, err);
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
    .settings_size = sizeof(struct chex_eval_settings),
    .run = run_score,
    .alone = true,
    .word = "score",
};
