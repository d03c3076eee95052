/* SPDX-License-Identifier: Apache-2.0
 *
 * The options of chex-eval and its subcommands, as their option tables in cmd fill them. Each
 * subcommand uses the members that are in its table.
 */
#ifndef CHEX_EVALUATE_SETTINGS_H
#define CHEX_EVALUATE_SETTINGS_H

#include "base/opt.h"
#include <stdint.h>

struct chex_eval_settings {
    struct chex_opt_common common;
    const char *data, *checkpoint, *predictions, *output;
    int split; /* of chex_eval_split_names */
    const char *where;
    const char *model, *engine;
    int64_t image_size, batch_size, threads, workers;
    int weights, ensemble, precision, tta;
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
    const char *runs, *against; /* of compare */
    bool paired;
    const char *features; /* a file that is read (infer/feature_file.h) */
    const char *features_output;
};

/* Values of --split: those of enum chex_split, then "fold": what the network's training left out.
 */
extern const char *const chex_eval_split_names[];

/* Values of --weights. */
enum chex_eval_weights { EVAL_WEIGHTS_AUTO, EVAL_WEIGHTS_EMA, EVAL_WEIGHTS_LAST };
extern const char *const chex_eval_weights_names[]; /* "auto", "ema", "last", NULL */

/* The tables on stdout. */
enum chex_eval_table {
    EVAL_TABLE_AUROC,
    EVAL_TABLE_OPERATING,
    EVAL_TABLE_CALIBRATION,
    EVAL_TABLE_ALL
};
extern const char
    *const chex_eval_table_names[]; /* "auroc", "operating", "calibration", "all", NULL */

#endif
