/* SPDX-License-Identifier: Apache-2.0
 *
 * chex-eval export: writes the parameters of a checkpoint as a safetensors file, or the network as
 * an ONNX model, with the checkpoint's description as metadata.
 */
#include <stdio.h>

#include "eval_commands.h"

static const struct chex_opt export_opts[] = {
    CHEX_OPT_COMMON,
    OPTION_GROUP("Files"),
    EVAL_CHECKPOINT_ROWS,
    EVAL_ENSEMBLE_ROW,
    EVAL_OUTPUT_ROW("FILE", "the new file; its name ends in .safetensors or .onnx"),
    EVAL_FORCE_ROW,
    OPTION_GROUP("Network"),
    OPTION("model", STRING, EVAL_AT(model), .metavar = "NAME", .choices = chex_net_names,
           .listed = &chex_net_count,
           .help = "network of a checkpoint that names none; the first by default"),
    EVAL_CLASSES_ROW,
    OPTION("image-size", INT, EVAL_AT(image_size), .def = "0", .metavar = "PX", .min = 0,
           .max = 4096,
           .help = "side of the input of an ONNX model; 0: what the checkpoint says, else 224"),
};

static enum chex_status run_export(struct chex_opt_set *set, void *settings,
                                   struct chex_error *err) {
    (void)set;
    return eval_write_file(settings, "chexnet-eval-export", chex_evaluate_export, err);
}

const struct chex_opt_program eval_export_program = {
    .name = "chex-eval export",
    .summary = "the network of a checkpoint for other programs: safetensors or ONNX",
    .usage = "chex-eval export --checkpoint FILE --output FILE.safetensors|FILE.onnx [options]",
    .opts = export_opts,
    .count = COUNT(export_opts),
    .epilog = "Examples\n"
              "  chex-eval export --checkpoint run/best.h5 --output best.safetensors\n"
              "  chex-eval export --checkpoint run/best.h5 --output best.onnx\n\n" EVAL_EXIT_STATUS,
    .settings_size = sizeof(struct chex_eval_settings),
    .run = run_export,
    .alone = true,
    .word = "export",
};
