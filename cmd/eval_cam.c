/* SPDX-License-Identifier: Apache-2.0
 *
 * chex-eval cam: draws the class activation map of one image, which shows where the network sees a
 * finding.
 */
#include <stdio.h>

#include "eval_commands.h"

static const struct chex_opt cam_opts[] = {
    CHEX_OPT_COMMON,
    OPTION_GROUP("What is looked at"),
    OPTION("image", STRING, EVAL_AT(image), .letter = 'i', .metavar = "FILE",
           .help = "radiograph: PNG, JPEG or DICOM"),
    EVAL_CHECKPOINT_ROWS(""),
    OPTION("class", STRING, EVAL_AT(class_list), .metavar = "NAMES",
           .help = "findings to draw, with commas between, or all; by default the most "
                   "probable one"),
    OPTION_GROUP("Network"),
    EVAL_NETWORK_ROWS,
    EVAL_STORED_SIZE_ROW,
    EVAL_THREADS_ROW("compute threads; 0: the cores of the process"),
    OPTION_GROUP("Picture"),
    OPTION("alpha", FLOAT, EVAL_AT(alpha), .def = "0.55", .metavar = "SHARE", .min = 0, .max = 1,
           .help = "opacity of the strongest evidence, 0 to 1"),
    OPTION("scale", FLOAT, EVAL_AT(scale), .def = "0", .metavar = "LOGIT", .min = 0, .max = 1000,
           .help = "evidence at the top of the scale, to compare pictures; 0: the most of each "
                   "finding, at least 1"),
    OPTION_GROUP("Results"),
    EVAL_OUTPUT_ROW("FILE",
                    "the picture; its name ends in .png. The same picture with text is beside "
                    "it, in .svg"),
    EVAL_FORCE_ROW,
};

static enum chex_status run_cam(struct chex_opt_set *set, void *settings, struct chex_error *err) {
    return chex_evaluate_cam(set, settings, stdout, err);
}

const struct chex_opt_program eval_cam_program = {
    .name = "chex-eval cam",
    .summary = "where in an image the network sees a finding, as a picture",
    .usage = "chex-eval cam --image FILE --checkpoint FILE --output FILE.png [options]",
    .opts = cam_opts,
    .count = COUNT(cam_opts),
    .epilog = "Examples\n"
              "  chex-eval cam --image chest.png --checkpoint run/best.h5 --output cam.png\n"
              "  chex-eval cam --image chest.dcm --checkpoint run/best.h5 --class "
              "Effusion,Mass --output two.png\n\n" EVAL_EXIT_STATUS,
    .settings_size = sizeof(struct chex_eval_settings),
    .run = run_cam,
    .alone = true,
    .word = "cam",
};
