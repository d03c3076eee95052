/* SPDX-License-Identifier: Apache-2.0
 *
 * chex-eval predict: predicts new images, without labels and without shards, on all ranks.
 */
#include <stdio.h>

#include "eval_commands.h"

static const struct chex_opt predict_opts[] = {
    CHEX_OPT_COMMON,
    OPTION_GROUP("What is predicted"),
    OPTION("images", STRING, EVAL_AT(images), .letter = 'i', .metavar = "DIR|FILE", .repeats = true,
           .help = "images: PNG, JPEG or DICOM files, folders of them, archives (.tar, .tar.gz, "
                   ".tgz). Several values may follow, and the option may be repeated"),
    EVAL_CHECKPOINT_ROWS(EVAL_ENSEMBLE_FILES),
    EVAL_ENSEMBLE_ROW,
    OPTION("max-bad", INT, EVAL_AT(max_bad), .def = "-1", .metavar = "N", .min = -1, .max = 1e15,
           .help = "fail if more files than this cannot be used; -1: no limit"),
    OPTION_GROUP("Network"),
    EVAL_NETWORK_ROWS,
    EVAL_STORED_SIZE_ROW,
    EVAL_BATCH_ROW,
    EVAL_THREADS_ROW("compute threads; 0: the cores of the rank"),
    OPTION("workers", INT, EVAL_AT(workers), .def = "0", .metavar = "N", .min = 0, .max = 4096,
           .help = "threads that decode images; 0: the cores of the rank"),
    OPTION_GROUP("Results"),
    EVAL_OUTPUT_ROW("DIR", "folder for predictions.csv, rejected.csv and predict.json"),
    OPTION("heat-maps", STRING, EVAL_AT(heat_maps), .metavar = "N|all",
           .help = "draw class activation maps of the first N images of the list into DIR/maps"),
    OPTION("sheet", FLAG, EVAL_AT(sheet),
           .help = "also write contact-sheet.html, a page with the first 500 images of the list"),
    EVAL_FORCE_ROW,
};

static enum chex_status run_predict(struct chex_opt_set *set, void *settings,
                                    struct chex_error *err) {
    return chex_evaluate_predict(set, settings, stdout, err);
}

const struct chex_opt_program eval_predict_program = {
    .name = "chex-eval predict",
    .summary = "the findings of new images, without labels and shards",
    .usage = "chex-eval predict --images DIR|FILE... --checkpoint FILE --output DIR [options]",
    .opts = predict_opts,
    .count = COUNT(predict_opts),
    .epilog = "Examples\n"
              "  chex-eval predict --images scans/ --checkpoint run/best.h5 --output out/\n"
              "  chex-eval predict --images a.dcm b.dcm --checkpoint chest.safetensors --output "
              "out/ --sheet\n"
              "  srun -n 8 --gpus-per-task=1 chex-eval predict --images scans.tar \\\n"
              "       --checkpoint chest.safetensors --output out/\n\n" EVAL_EXIT_STATUS,
    .words = "the images to predict after --images",
    .max_words = SIZE_MAX,
    .settings_size = sizeof(struct chex_eval_settings),
    .run = run_predict,
    .word = "predict",
};
