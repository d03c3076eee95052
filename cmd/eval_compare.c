/* SPDX-License-Identifier: Apache-2.0
 *
 * chex-eval compare: compares tables of predictions of the same images. The first file is the
 * reference; each other file is read, compared with it and released before the next.
 */
#include <stdio.h>

#include "eval_commands.h"

static const struct chex_opt compare_opts[] = {
    CHEX_OPT_COMMON,
    OPTION_GROUP("What is compared"),
    OPTION("runs", STRING, EVAL_AT(runs), .metavar = "A1,A2,A3",
           .help =
               "trainings of one recipe, which differ in the seed: tables or folders of results"),
    OPTION("against", STRING, EVAL_AT(against), .metavar = "B1,B2,B3",
           .help = "trainings of the recipe that --runs is compared with"),
    OPTION("paired", FLAG, EVAL_AT(paired),
           .help = "the k-th training of both recipes has the same seed"),
    EVAL_SCORES_ROW,
    EVAL_THREADS_ROW("threads for the bootstrap; 0: one for each CPU"),
    OPTION_GROUP("Figures"),
    EVAL_CLUSTER_ROW,
    OPTION("margin", FLOAT, EVAL_AT(margin), .def = "0", .metavar = "X", .min = 0, .max = 1,
           .help = "loss of AUROC that non-inferiority excludes; 0: no verdict"),
    OPTION("bootstrap", INT, EVAL_AT(bootstrap), .def = "0", .metavar = "N", .min = 0, .max = 1e6,
           .help = "replicates of bootstrap intervals beside those of DeLong; 0: none"),
    EVAL_SEED_ROW,
    OPTION_GROUP("Results"),
    EVAL_OUTPUT_ROW("DIR", "folder for compare.json, compare.csv and compare.svg"),
    EVAL_FORCE_ROW,
};

static enum chex_status run_compare(struct chex_opt_set *set, void *settings,
                                    struct chex_error *err) {
    return chex_evaluate_compare(set, settings, stdout, err);
}

const struct chex_opt_program eval_compare_program = {
    .name = "chex-eval compare",
    .summary = "differences of AUROCs between models on the same images, with intervals and tests",
    .usage = "chex-eval compare A.csv B.csv [C.csv ...] [--output DIR] [options]\n"
             "chex-eval compare --runs A1,A2,A3 --against B1,B2,B3 [--paired] [options]",
    .opts = compare_opts,
    .count = COUNT(compare_opts),
    .epilog = "The files are tables such as predictions.csv. Each other file is compared with the\n"
              "first one, on the images that both have. A difference is first minus second. The\n"
              "training options that differ are read from the auroc.json next to each table.\n"
              "With --runs the interval covers other patients and other trainings.\n\n"
              "Examples\n"
              "  chex-eval compare new/predictions.csv old/predictions.csv --margin 0.01\n"
              "  chex-eval compare a.csv b.csv c.csv --bootstrap 1000 --output comparison/\n"
              "  chex-eval compare --runs a1/eval,a2/eval,a3/eval --against "
              "b1/eval,b2/eval,b3/eval\n\n" EVAL_EXIT_STATUS,
    .words = "two or more tables of predictions",
    .max_words = SIZE_MAX,
    .settings_size = sizeof(struct chex_eval_settings),
    .run = run_compare,
    .alone = true,
    .listed = "differences of AUROCs between models on the same images",
    .word = "compare",
};
