/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by chex-eval and its subcommands. Each subcommand is a file eval_NAME.c and one line in
 * chex-eval.c. All use one settings struct; each has its own option table.
 */
#ifndef CHEX_CMD_EVAL_COMMANDS_H
#define CHEX_CMD_EVAL_COMMANDS_H

#include <jansson.h>
#include <stddef.h>

#include "engine/engine.h"
#include "infer/cases.h"
#include "infer/deployment.h"
#include "launch/coll.h"
#include "model/net.h"
#include "model/safetensors.h"
#include "option_rows.h"
#include "report/report.h"
#include "shard/shard.h"
#include "shard/sources.h"
#include "stats/figures.h"
#include "stats/predictions.h"
#include "stats/published.h"
#include "stats/scores.h"
#include "stats/shortcuts.h"
#include "stats/subgroups.h"
#include "stats/unit_scores.h"

struct eval_settings {
    struct chex_opt_common common;
    const char *data, *checkpoint, *predictions, *output;
    int split;
    const char *model, *engine;
    int64_t image_size, batch_size, threads, workers;
    int weights, precision, tta;
    int64_t bootstrap, seed;
    int cluster, interval;
    const char *compare;
    bool allow_overlap, force;
    int scores;
    const char *image, *class_list, *classes;
    const char *images, *heat_maps;
    int64_t max_bad;
    bool sheet;
    int64_t stored_size;
    double alpha, scale;
    const char *threshold, *prevalence;
    int table, recalibrate;
    int64_t distribution_images;
    double margin;
    const char *subgroups, *age_bands;
    int unit, unit_score;
    int64_t hardest;
    const char *evaluation;
};

/* Values of --weights. */
enum eval_weights { EVAL_WEIGHTS_AUTO, EVAL_WEIGHTS_EMA, EVAL_WEIGHTS_LAST };
extern const char *const eval_weights_names[]; /* "auto", "ema", "last", NULL */

/* The tables on stdout. */
enum eval_table { EVAL_TABLE_AUROC, EVAL_TABLE_OPERATING, EVAL_TABLE_CALIBRATION, EVAL_TABLE_ALL };
extern const char *const eval_table_names[]; /* "auroc", "operating", "calibration", "all", NULL */

/* evaluate is the command itself. */
extern const struct chex_opt_program eval_program, eval_score_program, eval_compare_program,
    eval_predict_program, eval_deploy_program, eval_cam_program, eval_export_program,
    eval_card_program;
extern const struct chex_opt_program *const eval_subcommands[];

/* Options of several tables. */
#define EVAL_AT(field) offsetof(struct eval_settings, field)
#define EVAL_CHECKPOINT_ROWS                                                                       \
    OPTION("checkpoint", STRING, EVAL_AT(checkpoint), .letter = 'c', .metavar = "FILE",            \
           .of_rank = true,                                                                        \
           .help =                                                                                 \
               "checkpoint of chex-train, safetensors or PyTorch file, recognised by content"),    \
        OPTION("weights", CHOICE, EVAL_AT(weights), .def = "auto", .metavar = "auto|ema|last",     \
               .choices = eval_weights_names,                                                      \
               .help = "parameters of a checkpoint: their moving average (chex-train --ema), or "  \
                       "those of the last update; auto: the average if there is one")
#define EVAL_CLASSES_ROW                                                                           \
    OPTION("classes", STRING, EVAL_AT(classes), .metavar = "LIST",                                 \
           .help =                                                                                 \
               "names of the outputs in order, with commas between, where the checkpoint does "    \
               "not say")
#define EVAL_NETWORK_ROWS                                                                          \
    OPTION("model", STRING, EVAL_AT(model), .metavar = "NAME",                                     \
           .help = "densenet121 or resnet50, where the checkpoint does not say (densenet121)"),    \
        EVAL_CLASSES_ROW,                                                                          \
        OPTION("image-size", INT, EVAL_AT(image_size), .def = "0", .metavar = "PX", .min = 0,      \
               .max = 4096,                                                                        \
               .help = "side of the centre crop; 0: what the checkpoint says, else 224, or the "   \
                       "stored size where that is smaller"),                                       \
        OPTION("precision", CHOICE, EVAL_AT(precision), .def = "fp32", .metavar = "NAME",          \
               .choices = chex_precision_names,                                                    \
               .help = "arithmetic; where the cpu engine has AMX or the GPU multiplies it, the "   \
                       "default is bf16"),                                                         \
        OPTION("engine", STRING, EVAL_AT(engine), .def = "auto", .metavar = "auto|cuda|cpu|ref",   \
               .of_rank = true, .help = "what computes, with a variant as in cpu:avx2")
#define EVAL_THREADS_ROW(what)                                                                     \
    OPTION("threads", INT, EVAL_AT(threads), .of_rank = true, .def = "0", .metavar = "N",          \
           .min = 0, .max = 4096, .help = what)
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
        OPTION("compare", STRING, EVAL_AT(compare), .def = "published",                            \
               .metavar = "published|none|FILE", .of_rank = true,                                  \
               .help =                                                                             \
                   "bundled figures (published:COLUMN for one), or a table such as auroc.csv"),    \
        OPTION("threshold", STRING, EVAL_AT(threshold), .metavar = "youden|f1|FILE",               \
               .help = "thresholds of decisions: youden, f1, sensitivity=X or specificity=X "      \
                       "chooses them on these images; a number; a file of chex-eval deploy "       \
                       "(that of the checkpoint, else youden)"),                                   \
        OPTION("prevalence", STRING, EVAL_AT(prevalence), .metavar = "LIST",                       \
               .help = "share of positives for which predictive values are also given: X, or "     \
                       "CLASS=X,..."),                                                             \
        OPTION("table", CHOICE, EVAL_AT(table), .def = "auroc", .metavar = "KIND",                 \
               .choices = eval_table_names,                                                        \
               .help = "printed table: auroc, operating, calibration, or all three")
#define EVAL_GROUP_ROWS                                                                            \
    OPTION("unit", CHOICE, EVAL_AT(unit), .def = "image", .metavar = "UNIT",                       \
           .choices = chex_unit_names, .help = "what is scored: each image, study or patient"),    \
        OPTION("unit-score", CHOICE, EVAL_AT(unit_score), .def = "max", .metavar = "HOW",          \
               .choices = chex_unit_score_names,                                                   \
               .help = "score of a study or patient from those of its images"),                    \
        OPTION("subgroups", STRING, EVAL_AT(subgroups), .metavar = "all|none|LIST",                \
               .help = "print figures by sex, age, view, source, size; results always have them "  \
                       "where images differ"),                                                     \
        OPTION("age-bands", STRING, EVAL_AT(age_bands), .def = CHEX_AGE_BANDS_DEFAULT,             \
               .metavar = "YEARS,...", .help = "first ages of the age bands after the first")
#define EVAL_OUTPUT_ROW(value, what)                                                               \
    OPTION("output", STRING, EVAL_AT(output), .of_rank = true, .letter = 'o', .metavar = value,    \
           .help = what)
#define EVAL_FORCE_ROW                                                                             \
    OPTION("force", FLAG, EVAL_AT(force), .of_rank = true, .letter = 'f',                          \
           .help = "replace results that stand there")

#define EVAL_EXIT_STATUS                                                                           \
    "Exit status: 0 done, 1 failure of ours, 2 usage, 3 bad input data, 4 environment, 5 node,\n"  \
    "7 a rank was lost, 8 a prediction is not finite, 9 out of memory or disk.\n"

/* ---- eval_network.c ---- */

/* Parameters, with the description in their file. */
struct eval_network {
    struct chex_net *net;
    float *state; /* (state_count) */
    struct chex_safetensors_about about;
    int64_t step;                       /* training steps; 0: unknown */
    struct chex_deployment *deployment; /* NULL: none */
};

/* CHEX_E_DATA if a class name is not printable UTF-8: names are printed and written into tables.
 * path: the file with the names, for the error text. */
enum chex_status eval_check_class_names(const char *path, char *const *names, int count,
                                        struct chex_error *err);

/* Reads s->checkpoint. classes: number of classes if the file does not name its own; with 0 such a
 * file is CHEX_E_DATA. The caller calls eval_network_release, after an error too. */
enum chex_status eval_network_open(const struct eval_settings *s, int classes,
                                   struct eval_network *n, struct chex_error *err);
void eval_network_release(struct eval_network *n);

/* Side of the crop in px: --image-size, else the value in the network's file, else EVAL_IMAGE_PX or
 * `stored` (side of the stored images), whichever is smaller. */
enum { EVAL_IMAGE_PX = 224 };
int eval_image_size(const struct eval_settings *s, const struct eval_network *n, int stored);

/* For commands that read image files: sides of the stored image and of the crop, as in the
 * network's training; --stored-size and --image-size come first. Also checks that the training
 * images were resized by the method of image/resize.h.
 * - warn: tells the user about values that the file does not state.
 * - CHEX_E_DATA: another method. CHEX_E_USAGE: a crop larger than the stored image. */
#define EVAL_STORED_SIZE_ROW                                                                       \
    OPTION("stored-size", INT, EVAL_AT(stored_size), .def = "0", .metavar = "PX", .min = 0,        \
           .max = 4096,                                                                            \
           .help = "side to which the image is resized before the crop, as by chex-shard --size; " \
                   "0: what the checkpoint says, else 8/7 of the crop")
enum chex_status eval_network_sizes(const struct eval_settings *s, const struct eval_network *n,
                                    bool warn, int *stored_out, int *image_out,
                                    struct chex_error *err);

/* ---- eval_thresholds.c ---- */

/* What --threshold and --prevalence mean for the classes of a table. Starts as {0}. */
struct eval_figures {
    struct chex_figures_config config;
    char rule_text[CHEX_THRESHOLD_TEXT_BYTES];
    double *number, *prevalence;  /* (classes), or NULL */
    struct chex_deployment *file; /* of --threshold FILE */
};

/* Checks both options as far as that needs no classes. */
enum chex_status eval_figures_check(const struct eval_settings *s, struct chex_error *err);

/* n: the network with its deployment part, which must outlive f; NULL: a table of predictions. The
 * caller calls eval_figures_release, after an error too.
 * CHEX_E_DATA: a file of thresholds of other classes or of other parameters than the network's. */
enum chex_status eval_figures_open(const struct eval_settings *s, const struct eval_network *n,
                                   int classes, char *const *class_names, struct eval_figures *f,
                                   struct chex_error *err);
void eval_figures_release(struct eval_figures *f);

/* ---- eval_evaluate.c ---- */

/* A split that was predicted, on all ranks. */
struct eval_split {
    const struct eval_settings *s;
    struct chex_engine *engine;
    struct chex_coll *coll;
    const struct chex_set *set; /* opened with the rows of this rank */
    enum chex_split split;
    const struct eval_network *network;
    int image_size, threads;
    const struct chex_predictions *table; /* on rank 0; NULL on the others */
    json_t *provenance;                   /* on rank 0; NULL on the others */
};

/* What is done with a predicted split. */
struct eval_split_use {
    /* Before the work, on rank 0. */
    enum chex_status (*check)(const struct eval_settings *s, struct chex_error *err);
    /* Collective; all ranks return the same status. */
    enum chex_status (*work)(const struct eval_split *split, struct chex_error *err);
};

/* Opens data, network and engine, checks that they fit, and predicts --split, on all ranks. Then
 * calls use->work. */
enum chex_status eval_split_run(struct chex_opt_set *set, const struct eval_settings *s,
                                const struct eval_split_use *use, struct chex_error *err);

/* ---- eval_external.c ---- */

/* One evaluated set. */
struct eval_done {
    struct chex_predictions *table; /* of images */
    json_t *provenance;
    char *title;
    char *command;            /* of chex_opt_command */
    struct chex_cases *cases; /* the hardest; may be NULL */
};

#define EVAL_EXTERNAL_KEY "external.json" /* the file that appears last */

/* Refuses as eval_results_refuse() for the results of several sets. */
enum chex_status eval_external_refuse(const struct eval_settings *s,
                                      const struct chex_sources *sets, struct chex_error *err);

/* Computes, prints and writes the results of several sets: OUT/NAME/ for each, external.json and
 * external.csv, all or none. done: (sets->count) */
enum chex_status eval_external_report(const struct eval_settings *s, int threads,
                                      const struct chex_sources *sets, const struct eval_done *done,
                                      const struct chex_published *published,
                                      const struct eval_figures *figures, struct chex_error *err);

/* ---- eval_compute.c ---- */

/* Checks --subgroups and --age-bands. */
enum chex_status eval_groups_check(const struct eval_settings *s, struct chex_error *err);

/* Everything that is computed from one table. Starts as {0}. */
struct eval_computed {
    struct chex_predictions *units; /* of --unit study or patient; NULL: images */
    struct chex_scores *scores;     /* of the units */
    struct chex_figures *figures;
    struct chex_subgroups *subgroups;
    struct chex_shortcuts *shortcuts;
};

/* - table: of images. It and `figures` must outlive `out`.
 * - title: what an error of the table is about
 * - pool: may be NULL
 * The caller calls eval_computed_release, after an error too. */
enum chex_status eval_compute(const struct eval_settings *s, const char *title,
                              const struct chex_predictions *table,
                              const struct chex_figures_config *figures, struct chex_pool *pool,
                              struct eval_computed *out, struct chex_error *err);
void eval_computed_release(struct eval_computed *c);

/* The report of a table. It borrows everything. */
struct chex_report eval_report_of(const struct eval_settings *s, const struct eval_computed *c,
                                  const char *title, const json_t *provenance,
                                  const struct chex_published *published);

/* Writes the files of a report into an existing folder. predictions: NULL, or the images for
 * predictions.csv. */
enum chex_status eval_write_files(const char *dir, const struct chex_report *report,
                                  const struct chex_predictions *predictions,
                                  struct chex_error *err);

/* ---- eval_results.c ---- */

/* Prepares the writing of one result file: creates its folder, locks .NAME.lock there, and removes
 * temporary files that killed runs have left. CHEX_E_ENV: another process writes this file.
 * *lock_out is for eval_file_unlock, which ignores -1. */
enum chex_status eval_file_lock(const char *path, int *lock_out, struct chex_error *err);
void eval_file_unlock(const char *path, int lock);

/* CHEX_E_USAGE if --output already holds one of these files and --force was not given; the text
 * lists them. files: NULL-terminated, the key file of report/staging.h first. also: one more, or
 * NULL.
 */
enum chex_status eval_output_refuse(const struct eval_settings *s, const char *also,
                                    const char *const *files, struct chex_error *err);

/* The same for the results of an evaluation. network: predictions.csv counts as a result too. */
enum chex_status eval_results_refuse(const struct eval_settings *s, bool network,
                                     struct chex_error *err);

/* The folder of --output. Starts as {.lock = -1}. */
struct eval_output {
    bool made; /* created by this process */
    int lock;
};

/* Creates and locks the folder. CHEX_E_ENV: the folder is not writable, or another command has
 * locked it. */
enum chex_status eval_output_lock(const struct eval_settings *s, struct eval_output *o,
                                  struct chex_error *err);

/* Creates and locks the folder before the work, and repeats the check of eval_output_refuse.
 * CHEX_E_ENV: the folder is not writable, or another process has locked it. */
enum chex_status eval_output_begin(const struct eval_settings *s, const char *also,
                                   const char *const *files, struct eval_output *o,
                                   struct chex_error *err);
enum chex_status eval_results_begin(const struct eval_settings *s, bool network,
                                    struct eval_output *o, struct chex_error *err);

/* As eval_results_begin() without the check of eval_results_refuse. key: the file that appears
 * last.
 */
enum chex_status eval_results_open(const struct eval_settings *s, const char *key,
                                   struct eval_output *o, struct chex_error *err);

/* Releases the lock. After an error it removes the folder if this process created it and it is
 * empty. May be called without eval_results_begin. */
void eval_results_end(const struct eval_settings *s, const struct eval_output *o,
                      enum chex_status status);

/* Reads the figures of --compare, before the work. *published_out: NULL for "none"; the caller
 * destroys it. */
enum chex_status eval_results_compare(const struct eval_settings *s,
                                      struct chex_published **published_out,
                                      struct chex_error *err);

/* What eval_results_report needs. */
struct eval_results {
    const struct eval_settings *s;
    int threads;
    const struct eval_done *done;
    const struct chex_published *published; /* may be NULL */
    const struct eval_figures *figures;
    bool write_table; /* also writes predictions.csv */
};

/* Computes and prints the scores and figures. With --output it writes all result files or none. */
enum chex_status eval_results_report(const struct eval_results *results, struct chex_error *err);

#endif
