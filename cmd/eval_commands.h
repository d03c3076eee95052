/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by the option tables of chex-eval and its subcommands. Each is a file eval_NAME.c and one
 * line in chex-eval.c; the work is in libcore/evaluate.
 */
#ifndef CHEX_CMD_EVAL_COMMANDS_H
#define CHEX_CMD_EVAL_COMMANDS_H

#include <stddef.h>
#include <stdio.h>

#include "engine/engine.h"
#include "evaluate/subcommands.h"
#include "infer/cases.h"
#include "infer/split_run.h"
#include "option_rows.h"
#include "stats/calibration.h"
#include "stats/scores.h"
#include "stats/subgroups.h"
#include "stats/unit_scores.h"

/* evaluate is the command itself. */
extern const struct chex_opt_program eval_program, eval_score_program, eval_compare_program,
    eval_predict_program, eval_deploy_program, eval_cam_program, eval_export_program,
    eval_card_program;
extern const struct chex_opt_program *const eval_subcommands[];

/* `write` writes the file --output. --json then prints an object with `schema` and `output`. */
enum chex_status eval_write_file(const struct chex_eval_settings *s, const char *schema,
                                 enum chex_status (*write)(const struct chex_eval_settings *s,
                                                           struct chex_error *err),
                                 struct chex_error *err);
enum chex_status eval_print_file(const struct chex_eval_settings *s, const char *schema,
                                 const char *path, struct chex_error *err); /* only prints */

/* CHEX_E_USAGE if the command line gives one of these options; names ends in NULL. */
enum chex_status eval_refuse(const struct chex_opt_set *set, const char *const *names,
                             const char *why, struct chex_error *err);

/* Options of several tables. */
#define EVAL_AT(field) offsetof(struct chex_eval_settings, field)
#define EVAL_ENSEMBLE_FILES "; of an ensemble A,B,... or a folder of runs (best.h5 of each)"
#define EVAL_CHECKPOINT_ROWS(or_several)                                                           \
    OPTION("checkpoint", STRING, EVAL_AT(checkpoint), .basic = true, .letter = 'c',                \
           .metavar = "FILE", .of_rank = true,                                                     \
           .help = "checkpoint of chex-train, safetensors or PyTorch file, recognised by "         \
                   "content" or_several),                                                          \
        OPTION("weights", CHOICE, EVAL_AT(weights), .def = "auto", .metavar = "auto|ema|last",     \
               .choices = chex_eval_weights_names,                                                 \
               .help = "parameters of a checkpoint: their moving average (chex-train --ema), or "  \
                       "those of the last update; auto: the average if there is one")
#define EVAL_ENSEMBLE_ROW                                                                          \
    OPTION("ensemble", CHOICE, EVAL_AT(ensemble), .def = "auto", .metavar = "MEAN",                \
           .choices = chex_ensemble_names,                                                         \
           .help = "score of several networks: mean-probability or mean-logit; auto: what a file " \
                   "of several says, else mean-probability")
#define EVAL_CLASSES_ROW                                                                           \
    OPTION("classes", STRING, EVAL_AT(classes), .metavar = "LIST",                                 \
           .help =                                                                                 \
               "names of the outputs in order, with commas between, where the checkpoint does "    \
               "not say")
#define EVAL_NETWORK_ROWS                                                                          \
    OPTION("model", STRING, EVAL_AT(model), .metavar = "NAME", .choices = chex_net_names,          \
           .listed = &chex_net_count,                                                              \
           .help = "network of a checkpoint that names none; the first by default"),               \
        EVAL_CLASSES_ROW,                                                                          \
        OPTION("image-size", INT, EVAL_AT(image_size), .def = "0", .metavar = "PX", .min = 0,      \
               .max = 4096,                                                                        \
               .help = "side of the centre crop; 0: what the checkpoint says, else 224, or the "   \
                       "stored size where that is smaller"),                                       \
        OPTION("precision", CHOICE, EVAL_AT(precision), .def = "fp32", .metavar = "NAME",          \
               .choices = chex_precision_names,                                                    \
               .help = "arithmetic; where the cpu engine has AMX or the GPU multiplies it, the "   \
                       "default is bf16"),                                                         \
        OPTION("engine", STRING, EVAL_AT(engine), .basic = true, .def = "auto",                    \
               .metavar = "auto|cuda|cpu|ref", .of_rank = true,                                    \
               .help = "what computes, with a variant as in cpu:avx2")
#define EVAL_THREADS_ROW(what)                                                                     \
    OPTION("threads", INT, EVAL_AT(threads), .basic = true, .of_rank = true, .def = "0",           \
           .metavar = "N", .min = 0, .max = 4096, .help = what)
#define EVAL_BATCH_ROW                                                                             \
    OPTION("batch-size", INT, EVAL_AT(batch_size), .basic = true, .def = "16", .metavar = "N",     \
           .min = 1, .max = 65536, .help = "images at once on each rank")
#define EVAL_SCORES_ROW                                                                            \
    OPTION("scores", CHOICE, EVAL_AT(scores), .def = "probability", .metavar = "KIND",             \
           .choices = chex_score_kind_names,                                                       \
           .help = "what p_CLASS holds; any: numbers that only order the images, such as logits")
#define EVAL_CLUSTER_ROW                                                                           \
    OPTION("cluster", CHOICE, EVAL_AT(cluster), .def = "patient", .metavar = "UNIT",               \
           .choices = chex_cluster_names, .help = "what the intervals take as independent")
#define EVAL_SEED_ROW                                                                              \
    OPTION("seed", INT, EVAL_AT(seed), .def = "1", .metavar = "N", .help = "seed of the bootstrap")
#define EVAL_FIGURE_ROWS                                                                           \
    OPTION_GROUP("Figures"),                                                                       \
        OPTION("bootstrap", INT, EVAL_AT(bootstrap), .def = "1000", .metavar = "N", .min = 0,      \
               .max = 1e6,                                                                         \
               .help = "replicates of --interval bootstrap; 0: no intervals by any method"),       \
        EVAL_CLUSTER_ROW,                                                                          \
        OPTION("interval", CHOICE, EVAL_AT(interval), .def = "delong", .metavar = "METHOD",        \
               .choices = chex_interval_names,                                                     \
               .help = "how intervals are computed; logit: DeLong's of the textbooks; bootstrap: " \
                       "percentiles; both too narrow with few positives"),                         \
        EVAL_SEED_ROW,                                                                             \
        OPTION("compare", STRING, EVAL_AT(compare), .basic = true, .def = "published",             \
               .metavar = "published|none|FILE", .of_rank = true,                                  \
               .help =                                                                             \
                   "bundled figures (published:COLUMN for one), or a table such as auroc.csv"),    \
        OPTION("threshold", STRING, EVAL_AT(threshold), .basic = true,                             \
               .metavar = "youden|f1|FILE",                                                        \
               .help = "thresholds of decisions: youden, f1, sensitivity=X or specificity=X "      \
                       "chooses them on these images; a number; a file of chex-eval deploy "       \
                       "(that of the checkpoint, else youden)"),                                   \
        OPTION("prevalence", STRING, EVAL_AT(prevalence), .metavar = "LIST",                       \
               .help = "share of positives for which predictive values are also given: X, or "     \
                       "CLASS=X,..."),                                                             \
        OPTION("table", CHOICE, EVAL_AT(table), .basic = true, .def = "auroc", .metavar = "KIND",  \
               .choices = chex_eval_table_names,                                                   \
               .help = "printed table: auroc, operating, calibration, or all three")
#define EVAL_GROUP_ROWS                                                                            \
    OPTION("unit", CHOICE, EVAL_AT(unit), .basic = true, .def = "image", .metavar = "UNIT",        \
           .choices = chex_unit_names, .help = "what is scored: each image, study or patient"),    \
        OPTION("unit-score", CHOICE, EVAL_AT(unit_score), .def = "max", .metavar = "HOW",          \
               .choices = chex_unit_score_names,                                                   \
               .help = "score of a study or patient from those of its images"),                    \
        OPTION("subgroups", STRING, EVAL_AT(subgroups), .basic = true, .metavar = "all|none|LIST", \
               .help = "print figures by sex, age, view, source, size, fold; results always have " \
                       "them where images differ"),                                                \
        OPTION("age-bands", STRING, EVAL_AT(age_bands), .def = CHEX_AGE_BANDS_DEFAULT,             \
               .metavar = "YEARS,...", .help = "first ages of the age bands after the first")
#define EVAL_OUTPUT_ROW(value, what)                                                               \
    OPTION("output", STRING, EVAL_AT(output), .basic = true, .of_rank = true, .letter = 'o',       \
           .metavar = value, .help = what)
#define EVAL_FORCE_ROW                                                                             \
    OPTION("force", FLAG, EVAL_AT(force), .basic = true, .of_rank = true, .letter = 'f',           \
           .help = "replace results that stand there")

#define EVAL_EXIT_STATUS                                                                           \
    "Exit status: 0 done, 1 failure of ours, 2 usage, 3 bad input data, 4 environment, 5 node,\n"  \
    "7 a rank was lost, 8 a prediction is not finite, 9 out of memory or disk.\n"
#define EVAL_STORED_SIZE_ROW                                                                       \
    OPTION("stored-size", INT, EVAL_AT(stored_size), .def = "0", .metavar = "PX", .min = 0,        \
           .max = 4096,                                                                            \
           .help = "side to which the image is resized before the crop, as by chex-shard --size; " \
                   "0: what the checkpoint says, else 8/7 of the crop")

#endif
