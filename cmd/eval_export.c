/* SPDX-License-Identifier: Apache-2.0
 *
 * chex-eval export: writes the parameters of a checkpoint as a safetensors file, or the network as
 * an ONNX model, with the checkpoint's description as metadata.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/log.h"
#include "eval_commands.h"
#include "model/onnx.h"
#include "model/weights.h"

static const struct chex_opt export_opts[] = {
    CHEX_OPT_COMMON,
    OPTION_GROUP("Files"),
    EVAL_CHECKPOINT_ROWS,
    EVAL_OUTPUT_ROW("FILE", "the new file; its name ends in .safetensors or .onnx"),
    EVAL_FORCE_ROW,
    OPTION_GROUP("Network"),
    OPTION("model", STRING, EVAL_AT(model), .metavar = "NAME",
           .help = "densenet121 or resnet50, where the checkpoint does not say (densenet121)"),
    EVAL_CLASSES_ROW,
    OPTION("image-size", INT, EVAL_AT(image_size), .def = "0", .metavar = "PX", .min = 0,
           .max = 4096,
           .help = "side of the input of an ONNX model; 0: what the checkpoint says, else 224"),
};

static bool ends_with(const char *text, const char *suffix) {
    const size_t n = strlen(text), k = strlen(suffix);
    return n > k && strcmp(text + n - k, suffix) == 0;
}

static bool same_file(const char *a, const char *b) {
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static enum chex_status check_options(const struct eval_settings *s, struct chex_error *err) {
    if (!s->checkpoint || !s->output)
        return chex_error_set(err, CHEX_E_USAGE, "chex-eval export needs --%s",
                              s->checkpoint ? "output FILE.safetensors or FILE.onnx"
                                            : "checkpoint FILE");
    if (!ends_with(s->output, ".safetensors") && !ends_with(s->output, ".onnx"))
        return chex_error_set(
            err, CHEX_E_USAGE,
            "--output %s: expected the name of a file that ends in .safetensors or "
            ".onnx",
            s->output);
    if (same_file(s->output, s->checkpoint))
        return chex_error_set(err, CHEX_E_USAGE, "--output %s is what is read: name another file",
                              s->output);
    if (chex_fs_exists(s->output) && !s->force)
        return chex_error_set(err, CHEX_E_USAGE, "--output %s exists: say --force to replace it",
                              s->output);
    return chex_fs_check_create(s->output, err);
}

/* Stays {0} if the file does not recalibrate. */
static enum chex_status copy_calibration(const struct chex_deployment *d,
                                         struct chex_onnx_calibration *out,
                                         struct chex_error *err) {
    if (!d || strcmp(d->recalibration, chex_recalibration_names[CHEX_RECALIBRATE_NONE]) == 0)
        return CHEX_OK;
    out->slope = chex_alloc_zeroed((size_t)d->classes, sizeof *out->slope);
    out->intercept = chex_alloc_zeroed((size_t)d->classes, sizeof *out->intercept);
    if (!out->slope || !out->intercept)
        return chex_error_memory(err, "the recalibration");
    for (int c = 0; c < d->classes; c++) {
        out->slope[c] = (float)d->calibration[c].slope;
        out->intercept[c] = (float)d->calibration[c].intercept;
    }
    return CHEX_OK;
}

static enum chex_status write_onnx(const struct eval_settings *s, const struct eval_network *n,
                                   struct chex_error *err) {
    const int size = eval_image_size(s, n, EVAL_IMAGE_PX);
    int *sides = chex_alloc_zeroed((size_t)n->net->buffer_count, sizeof *sides);
    if (!sides)
        return chex_error_memory(err, NULL);
    enum chex_status st = chex_net_shapes(n->net, size, sides, err);
    free(sides);
    CHEX_TRY(st);
    if (!s->image_size && !n->about.image_size)
        chex_warn("%s does not say at what image size it was trained: %d px is taken; --image-size "
                  "says another",
                  s->checkpoint, size);
    struct chex_onnx_calibration calibration = {0};
    st = copy_calibration(n->deployment, &calibration, err);
    if (st == CHEX_OK)
        st = chex_onnx_write(s->output, n->net, n->state, size, &n->about,
                             calibration.slope ? &calibration : NULL, err);
    free(calibration.slope);
    free(calibration.intercept);
    return st;
}

/* A copy through export would lose what the file holds besides parameters. */
static enum chex_status refuse_copy(const struct eval_settings *s, struct chex_error *err) {
    if (s->classes || !ends_with(s->output, ".safetensors") ||
        chex_weights_format(s->checkpoint) != CHEX_WEIGHTS_SAFETENSORS)
        return CHEX_OK;
    return chex_error_set(err, CHEX_E_USAGE, "--checkpoint %s is safetensors already: copy it",
                          s->checkpoint);
}

static enum chex_status run_export(struct chex_opt_set *set, void *settings,
                                   struct chex_error *err) {
    const struct eval_settings *s = settings;
    (void)set;
    CHEX_TRY(check_options(s, err));
    struct eval_network n = {0};
    int lock = -1;
    enum chex_status st = eval_network_open(s, 0, &n, err);
    if (st == CHEX_OK)
        st = refuse_copy(s, err);
    if (st == CHEX_OK)
        st = eval_file_lock(s->output, &lock, err);
    if (st == CHEX_OK)
        st = ends_with(s->output, ".onnx")
                 ? write_onnx(s, &n, err)
                 : chex_safetensors_write(s->output, n.net, n.state, n.step, &n.about, err);
    eval_file_unlock(s->output, lock);
    if (st == CHEX_OK)
        chex_info("%s: %zu parameters of %s", s->output, n.net->param_count, n.net->model);
    eval_network_release(&n);
    return st;
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
    .settings_size = sizeof(struct eval_settings),
    .run = run_export,
    .alone = true,
    .word = "export",
};
