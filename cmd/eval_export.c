/* SPDX-License-Identifier: Apache-2.0
 *
 * chex-eval export: writes the parameters of a checkpoint as a safetensors file, or the network as
 * an ONNX model, with the checkpoint's description as metadata. Or the features of a set's images.
 */

#include "base/log.h"
#include "eval_commands.h"
#include "launch/launch.h"

static const struct chex_opt export_opts[] = {
    CHEX_OPT_COMMON,
    OPTION_GROUP("Files"),
    EVAL_CHECKPOINT_ROWS(EVAL_ENSEMBLE_FILES),
    EVAL_ENSEMBLE_ROW,
    EVAL_OUTPUT_ROW("FILE", "the new file; its name ends in .safetensors or .onnx"),
    EVAL_FORCE_ROW,
    OPTION_GROUP("Features of images"),
    OPTION("features", STRING, EVAL_AT(features_output), .metavar = "FILE",
           .help = "write the network's features of all images of --data instead: HDF5 if the name "
                   "ends in .h5, an array if it ends in .npy, with a .csv of image ids beside it"),
    OPTION("data", STRING, EVAL_AT(data), .of_rank = true, .letter = 'd', .metavar = "DIR",
           .help = "folder of shards made by chex-shard"),
    OPTION("split", CHOICE, EVAL_AT(split), .def = "all", .metavar = "SPLIT",
           .choices = chex_split_names, .help = "part of the data; all: every part that there is"),
    EVAL_BATCH_ROW,
    EVAL_THREADS_ROW("compute threads; 0: the cores of the rank"),
    OPTION_GROUP("Network"),
    EVAL_NETWORK_ROWS,
};

static enum chex_status run_export(struct chex_opt_set *set, void *settings,
                                   struct chex_error *err) {
    static const char schema[] = "chexnet-eval-export";
    static const char *const own[] = {"data",   "split",     "batch-size", "threads",
                                      "engine", "precision", NULL};
    const struct chex_eval_settings *s = settings;
    if (s->features_output && s->output)
        return chex_error_set(err, CHEX_E_USAGE, "--output and --features: expected one of them");
    if (s->features_output) {
        CHEX_TRY(chex_evaluate_export_features(set, s, err));
        return chex_launch_env_rank() ? CHEX_OK
                                      : eval_print_file(s, schema, s->features_output, err);
    }
    CHEX_TRY(eval_refuse(set, own, "expected --features FILE with it", err));
    if (chex_launch_sits_out("export"))
        return CHEX_OK;
    const enum chex_status st = eval_write_file(s, schema, chex_evaluate_export, err);
    if (st != CHEX_OK) /* here: command_main waits for the other ranks, which have ended */
        chex_err("%s", err->text);
    err->text[0] = '\0';
    return st;
}

const struct chex_opt_program eval_export_program = {
    .name = "chex-eval export",
    .summary = "the network of a checkpoint for other programs, or its features of images",
    .usage = "chex-eval export --checkpoint FILE --output FILE.safetensors|FILE.onnx [options]\n"
             "chex-eval export --checkpoint FILE --data DIR --features FILE.h5|FILE.npy [options]",
    .opts = export_opts,
    .count = COUNT(export_opts),
    .epilog = "Examples\n"
              "  chex-eval export --checkpoint run/best.h5 --output best.safetensors\n"
              "  chex-eval export --checkpoint run/best.h5 --output best.onnx\n"
              "  chex-eval export --checkpoint run/best.h5 --data shards/ --features "
              "features.h5\n\n" EVAL_EXIT_STATUS,
    .settings_size = sizeof(struct chex_eval_settings),
    .run = run_export,
    .word = "export",
};
