/* SPDX-License-Identifier: Apache-2.0
 *
 * chex-eval card: writes a model card from the results folder of an evaluation.
 */

#include "eval_commands.h"

static const struct chex_opt card_opts[] = {
    CHEX_OPT_COMMON,
    OPTION_GROUP("Files"),
    OPTION("evaluation", STRING, EVAL_AT(evaluation), .metavar = "DIR",
           .help = "results folder of chex-eval or chex-eval score"),
    EVAL_OUTPUT_ROW("FILE", "the new file, Markdown; its name ends in .md"),
    EVAL_FORCE_ROW,
};

static enum chex_status run_card(struct chex_opt_set *set, void *settings, struct chex_error *err) {
    (void)set;
    return eval_write_file(settings, "chexnet-eval-card", chex_evaluate_card, err);
}

const struct chex_opt_program eval_card_program = {
    .name = "chex-eval card",
    .summary = "a model card from the results of an evaluation",
    .usage = "chex-eval card --evaluation DIR --output FILE.md [--force]",
    .opts = card_opts,
    .count = COUNT(card_opts),
    .epilog = "Examples\n"
              "  chex-eval card --evaluation run/eval --output run/README.md\n\n" EVAL_EXIT_STATUS,
    .settings_size = sizeof(struct chex_eval_settings),
    .run = run_card,
    .alone = true,
    .word = "card",
};
