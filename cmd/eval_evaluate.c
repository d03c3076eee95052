/* SPDX-License-Identifier: Apache-2.0
 *
 * chex-eval without a subcommand: predicts a split of shards on all ranks. Rank 0 scores the
 * predictions and writes the results.
 */
#include <stdio.h>

#include "eval_commands.h"

static const struct chex_opt evaluate_opts[] = {
    CHEX_OPT_COMMON,
    OPTION_GROUP("What is evaluated"),
    OPTION("data", STRING, EVAL_AT(data), .basic = true, .of_rank = true, .letter = 'd',
           .metavar = "DIR",
           .help = "folder of shards made by chex-shard; several sets: DIR,NAME=DIR,..., the "
                   "first is the internal one"),
    EVAL_CHECKPOINT_ROWS(EVAL_ENSEMBLE_FILES),
    EVAL_ENSEMBLE_ROW,
    OPTION("features", STRING, EVAL_AT(features), .metavar = "FILE",
           .help = "features of the images, for a checkpoint of chex-train --features"),
    OPTION("split", CHOICE, EVAL_AT(split), .basic = true, .def = "test", .metavar = "SPLIT",
           .choices = chex_eval_split_names,
           .help = "part of the data; all: every part that there is; fold: what --fold left out of "
                   "the training, and the default for such a network"),
    OPTION("where", STRING, EVAL_AT(where), .metavar = "CONDITIONS",
           .help = "evaluate the images that meet all conditions, such as view=PA,age>=18,sex=F"),
    OPTION("allow-overlap", FLAG, EVAL_AT(allow_overlap),
           .help = "evaluate images that the network was trained on"),
    OPTION_GROUP("Network"),
    EVAL_NETWORK_ROWS,
    EVAL_BATCH_ROW,
    EVAL_THREADS_ROW("compute threads; 0: the cores of the rank"),
    OPTION("workers", INT, EVAL_AT(workers), .basic = true, .of_rank = true, .def = "2",
           .metavar = "N", .min = 1, .max = 256, .help = "reader threads"),
    OPTION("tta", CHOICE, EVAL_AT(tta), .basic = true, .def = "none", .metavar = "KIND",
           .choices = chex_tta_names, .help = "average over the mirror image, or over ten crops"),
    EVAL_FIGURE_ROWS,
    EVAL_GROUP_ROWS,
    OPTION_GROUP("Results"),
    EVAL_OUTPUT_ROW("DIR",
                    "folder for predictions.csv, auroc.json, auroc.csv, figures.csv, curves.csv, "
                    "subgroups.csv, shortcuts.csv, roc.svg and report.html"),
    EVAL_FORCE_ROW,
    OPTION("hardest", INT, EVAL_AT(hardest), .def = "3", .metavar = "N", .min = 0,
           .max = CHEX_CASES_MOST,
           .help = "images of false positives, and of false negatives, of each finding in "
                   "report.html; 0: none"),
};

static enum chex_status run_evaluate(struct chex_opt_set *set, void *settings,
                                     struct chex_error *err) {
    static const char *const of_images[] = {"tta",    "image-size", "model", "precision",
                                            "engine", "hardest",    NULL};
    if (((struct chex_eval_settings *)settings)->features)
        CHEX_TRY(eval_refuse(set, of_images, "no network of images runs with --features", err));
    return chex_evaluate(set, settings, stdout, err);
}

const struct chex_opt_program eval_program = {
    .name = "chex-eval",
    .summary = "AUROC of each finding, with its interval",
    .usage = "chex-eval --data DIR --checkpoint FILE --output DIR [options]\n"
             "chex-eval score --predictions FILE.csv [--output DIR] [options]\n"
             "chex-eval compare A.csv B.csv... [--output DIR] [options]\n"
             "chex-eval predict --images DIR|FILE... --checkpoint FILE --output DIR [options]\n"
             "chex-eval deploy --data DIR --checkpoint FILE --output FILE.safetensors [options]\n"
             "chex-eval cam --image FILE --checkpoint FILE --output FILE.png [options]\n"
             "chex-eval export --checkpoint FILE --output FILE.safetensors|FILE.onnx [options]\n"
             "chex-eval export --checkpoint FILE --data DIR --features FILE.h5|FILE.npy [options]\n"
             "chex-eval card --evaluation DIR --output FILE.md [--force]",
    .opts = evaluate_opts,
    .count = COUNT(evaluate_opts),
    .epilog = "Examples\n"
              "  chex-eval --data shards/ --checkpoint run/best.h5 --output "
              "run/eval/\n\n" EVAL_EXIT_STATUS,
    .settings_size = sizeof(struct chex_eval_settings),
    .run = run_evaluate,
    .subcommands = eval_subcommands,
};
