/* SPDX-License-Identifier: Apache-2.0
 *
 * chex-eval deploy: fixes what a network needs to decide on new images. It predicts the validation
 * split, chooses a threshold for each class, fits a recalibration, and writes one safetensors file
 * with the parameters and all of that (doc/deployment.md).
 */
#include <stdio.h>

#include "eval_commands.h"

static const struct chex_opt deploy_opts[] = {
    CHEX_OPT_COMMON,
    OPTION_GROUP("Files"),
    OPTION("data", STRING, EVAL_AT(data), .letter = 'd', .metavar = "DIR",
           .help = "folder of shards made by chex-shard"),
    EVAL_CHECKPOINT_ROWS(EVAL_ENSEMBLE_FILES),
    EVAL_ENSEMBLE_ROW,
    EVAL_OUTPUT_ROW("FILE", "the new file; its name ends in .safetensors"),
    EVAL_FORCE_ROW,
    OPTION_GROUP("Decisions"),
    OPTION("split", CHOICE, EVAL_AT(split), .def = "val", .metavar = "SPLIT",
           .choices = chex_split_names, .help = "images on which thresholds are chosen"),
    OPTION("allow-overlap", FLAG, EVAL_AT(allow_overlap),
           .help = "choose thresholds on images that the network was trained on"),
    OPTION("threshold", STRING, EVAL_AT(threshold), .def = "youden", .metavar = "youden|f1",
           .help = "how thresholds are chosen: youden, f1, sensitivity=X or specificity=X"),
    OPTION("recalibrate", CHOICE, EVAL_AT(recalibrate), .def = "none", .metavar = "METHOD",
           .choices = chex_recalibration_names,
           .help = "correct the probabilities: temperature (one slope) or platt (slope and "
                   "intercept of each finding)"),
    OPTION("cluster", CHOICE, EVAL_AT(cluster), .def = "patient", .metavar = "UNIT",
           .choices = chex_cluster_names, .help = "what the printed intervals take as independent"),
    OPTION("distribution-images", INT, EVAL_AT(distribution_images), .def = "5000", .metavar = "N",
           .min = 0, .max = 1e7,
           .help = "training images, and images of --split, for the statistics by which predict "
                   "marks unusual images; 0: none"),
    OPTION_GROUP("Network"),
    EVAL_NETWORK_ROWS,
    EVAL_BATCH_ROW,
    EVAL_THREADS_ROW("compute threads; 0: the cores of the rank"),
    OPTION("workers", INT, EVAL_AT(workers), .def = "2", .metavar = "N", .min = 1, .max = 256,
           .help = "reader threads"),
};

static enum chex_status run_deploy(struct chex_opt_set *set, void *settings,
                                   struct chex_error *err) {
    return chex_evaluate_deploy(set, settings, stdout, err);
}

const struct chex_opt_program eval_deploy_program = {
    .name = "chex-eval deploy",
    .summary = "one file with parameters, thresholds and calibration, for decisions on new images",
    .usage = "chex-eval deploy --data DIR --checkpoint FILE --output FILE.safetensors [options]",
    .opts = deploy_opts,
    .count = COUNT(deploy_opts),
    .epilog = "Examples\n"
              "  chex-eval deploy --data shards/ --checkpoint run/best.h5 --output "
              "deployed.safetensors\n"
              "  chex-eval --data shards/ --checkpoint deployed.safetensors --output "
              "run/eval/\n\n" EVAL_EXIT_STATUS,
    .settings_size = sizeof(struct chex_eval_settings),
    .run = run_deploy,
    .word = "deploy",
};
