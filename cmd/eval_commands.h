/* SPDX-License-Identifier: Apache-2.0
 *
 * What chex-eval and its subcommands share: one file eval_NAME.c and one line in chex-eval.c each.
 * They fill one kind of settings, each with the options of its own table.
 */
#ifndef CHEX_CMD_EVAL_COMMANDS_H
#define CHEX_CMD_EVAL_COMMANDS_H

#include <jansson.h>
#include <stddef.h>

#include "base/opt.h"
#include "eval/predictions.h"
#include "eval/scores.h"
#include "model/net.h"
#include "model/safetensors.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

struct eval_settings {
    struct chex_opt_common common;
    const char *data, *checkpoint, *predictions, *output;
    int split;
    const char *model, *engine;
    int64_t image_size, batch_size, threads, workers;
    int precision, tta;
    int64_t bootstrap, seed;
    int cluster;
    const char *compare;
    bool allow_overlap, force;
    const char *image, *class_list;
    int64_t stored_size;
    double alpha, scale;
};

struct eval_command {
    const char *word; /* NULL: the command itself */
    const struct chex_opt_program *program;
    bool alone; /* the work of one process: of several ranks only rank 0 runs it */
    enum chex_status (*run)(const struct eval_settings *s, const struct chex_opt_set *set,
                            struct chex_error *err);
};

extern const struct eval_command eval_command_evaluate, eval_command_score, eval_command_cam,
    eval_command_export;

/* One place for options that several tables have. */
#define EVAL_AT(field) offsetof(struct eval_settings, field)
#define EVAL_GROUP(text)                                                                           \
    { .type = CHEX_OPT_GROUP, .help = text }
#define EVAL_CHECKPOINT_ROW                                                                        \
    {                                                                                              \
        "checkpoint", 'c', CHEX_OPT_STRING, EVAL_AT(checkpoint), NULL, "FILE",                     \
            "checkpoint of chex-train (.h5) or parameters (.safetensors)"                          \
    }
#define EVAL_NETWORK_ROWS                                                                          \
    {"model",                                                                                      \
     0,                                                                                            \
     CHEX_OPT_STRING,                                                                              \
     EVAL_AT(model),                                                                               \
     NULL,                                                                                         \
     "NAME",                                                                                       \
     "densenet121 or resnet50, where the checkpoint does not say (densenet121)"},                  \
        {"image-size",                                                                             \
         0,                                                                                        \
         CHEX_OPT_INT,                                                                             \
         EVAL_AT(image_size),                                                                      \
         "0",                                                                                      \
         "PX",                                                                                     \
         "side of the centre crop; 0: what the checkpoint says, else 224, or the stored size "     \
         "where "                                                                                  \
         "that is smaller",                                                                        \
         .min = 0,                                                                                 \
         .max = 4096},                                                                             \
        {"precision",                                                                              \
         0,                                                                                        \
         CHEX_OPT_CHOICE,                                                                          \
         EVAL_AT(precision),                                                                       \
         "fp32",                                                                                   \
         "NAME",                                                                                   \
         "arithmetic; where the cpu engine has AMX or the GPU multiplies it, the default is bf16", \
         chex_precision_names},                                                                    \
    {                                                                                              \
        "engine", 0, CHEX_OPT_STRING, EVAL_AT(engine), "auto", "auto|cuda|cpu|ref",                \
            "what computes, with a variant as in cpu:avx2"                                         \
    }
#define EVAL_THREADS_ROW(what)                                                                     \
    { "threads", 0, CHEX_OPT_INT, EVAL_AT(threads), "0", "N", what, .min = 0, .max = 4096 }
#define EVAL_FIGURE_ROWS                                                                           \
    EVAL_GROUP("Figures"),                                                                         \
        {"bootstrap",                                                                              \
         0,                                                                                        \
         CHEX_OPT_INT,                                                                             \
         EVAL_AT(bootstrap),                                                                       \
         "1000",                                                                                   \
         "N",                                                                                      \
         "replicates for the intervals; 0: no intervals",                                          \
         .min = 0,                                                                                 \
         .max = 1e6},                                                                              \
        {"cluster",                                                                                \
         0,                                                                                        \
         CHEX_OPT_CHOICE,                                                                          \
         EVAL_AT(cluster),                                                                         \
         "patient",                                                                                \
         "UNIT",                                                                                   \
         "what is drawn for the intervals",                                                        \
         chex_cluster_names},                                                                      \
        {"seed", 0, CHEX_OPT_INT, EVAL_AT(seed), "1", "N", "seed of the intervals"}, {             \
        "compare", 0, CHEX_OPT_STRING, EVAL_AT(compare), "published", "published|none|FILE",       \
            "bundled figures (published:COLUMN for one), or a table such as auroc.csv"             \
    }
#define EVAL_OUTPUT_ROW(metavar, what)                                                             \
    { "output", 'o', CHEX_OPT_STRING, EVAL_AT(output), NULL, metavar, what }
#define EVAL_FORCE_ROW                                                                             \
    { "force", 'f', CHEX_OPT_FLAG, EVAL_AT(force), .help = "replace results that stand there" }

#define EVAL_EXIT_STATUS                                                                           \
    "Exit status: 0 done, 1 failure of ours, 2 usage, 3 bad input data, 4 environment, 5 node,\n"  \
    "7 a rank was lost, 8 a prediction is not finite, 9 out of memory or disk.\n"

/* ---- eval_network.c ---- */

/* Parameters, and what their file says of them. */
struct eval_network {
    struct chex_net *net;
    float *state; /* (state_count) */
    struct chex_safetensors_about about;
    int64_t step; /* of the training; 0: not said */
};

bool eval_is_safetensors(const char *path);

/* Reads s->checkpoint. classes: what to take a head for where the file does not name its own; 0:
 * that is CHEX_E_DATA. The caller releases, after a failure too. */
enum chex_status eval_network_open(const struct eval_settings *s, int classes,
                                   struct eval_network *n, struct chex_error *err);
void eval_network_release(struct eval_network *n);

/* Side of the crop of images that are stored at `stored` px: what is asked for, what the file says,
 * else EVAL_IMAGE_PX, or the stored size where that is smaller. */
enum { EVAL_IMAGE_PX = 224 };
int eval_image_size(const struct eval_settings *s, const struct eval_network *n, int stored);

/* ---- eval_results.c ---- */

/* CHEX_E_USAGE where results stand in --output already, by name, unless --force. `network`:
 * predictions.csv is a result too. */
enum chex_status eval_results_refuse(const struct eval_settings *s, bool network,
                                     struct chex_error *err);

/* The folder of --output. Starts as {.lock = -1}. */
struct eval_output {
    bool made; /* by us, and empty until the results are there */
    int lock;
};

/* Makes and locks the folder before the work whose results it is for, and refuses once more.
 * CHEX_E_ENV where nothing can be written into it, or another evaluation is about to. */
enum chex_status eval_results_begin(const struct eval_settings *s, bool network,
                                    struct eval_output *o, struct chex_error *err);

/* After success, failure and no begin. A folder without results goes if it was made for them. */
void eval_results_end(const struct eval_settings *s, const struct eval_output *o,
                      enum chex_status status);

/* Scores, prints and, with --output, writes; write_table: the predictions too. */
enum chex_status eval_results_report(const struct eval_settings *s, int threads, const char *title,
                                     const json_t *provenance, const struct chex_predictions *table,
                                     bool write_table, struct chex_error *err);

#endif
