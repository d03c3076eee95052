/* SPDX-License-Identifier: Apache-2.0
 *
 * chex-eval export: writes the parameters of a checkpoint as a safetensors file, or the network as
 * an ONNX model, with the checkpoint's description as metadata.
 */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/text.h"
#include "evaluate/ensemble_files.h"
#include "evaluate/network.h"
#include "evaluate/output.h"
#include "evaluate/subcommands.h"
#include "model/onnx.h"
#include "model/weights.h"

static enum chex_status check_options(const struct chex_eval_settings *s, struct chex_error *err) {
    if (!s->checkpoint || !s->output)
        return chex_error_set(err, CHEX_E_USAGE, "chex-eval export needs --%s",
                              s->checkpoint ? "output FILE.safetensors or FILE.onnx"
                                            : "checkpoint FILE");
    if (!chex_text_ends_with(s->output, ".safetensors") && !chex_text_ends_with(s->output, ".onnx"))
        return chex_error_set(
            err, CHEX_E_USAGE,
            "--output %s: expected the name of a file that ends in .safetensors or "
            ".onnx",
            s->output);
    return chex_eval_files_check(s, err);
}

/* Stays {0} if the file does not recalibrate. */
static enum chex_status copy_calibration(const struct chex_deployment *d,
                                         struct chex_onnx_calibration *out,
                                         struct chex_error *err) {
    if (!chex_deployment_recalibrates(d))
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

static enum chex_status write_onnx(const struct chex_eval_settings *s,
                                   const struct chex_eval_network *n,
                                   const struct chex_safetensors_about *about,
                                   struct chex_error *err) {
    const int size = chex_eval_image_size(s, n, EVAL_IMAGE_PX);
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
    const struct chex_onnx_ensemble ensemble = {n->member, n->networks, n->mean == CHEX_MEAN_LOGIT};
    st = copy_calibration(n->deployment, &calibration, err);
    if (st == CHEX_OK)
        st = chex_onnx_write(s->output, n->net, n->state, size, about, n->member ? &ensemble : NULL,
                             calibration.slope ? &calibration : NULL, err);
    free(calibration.slope);
    free(calibration.intercept);
    return st;
}

/* A copy through export would lose what the file holds besides parameters. */
static enum chex_status refuse_copy(const struct chex_eval_settings *s, struct chex_error *err) {
    if (s->classes || !chex_text_ends_with(s->output, ".safetensors") ||
        !chex_fs_exists(s->checkpoint) || chex_fs_is_dir(s->checkpoint) ||
        chex_weights_format(s->checkpoint) != CHEX_WEIGHTS_SAFETENSORS)
        return CHEX_OK;
    return chex_error_set(err, CHEX_E_USAGE, "--checkpoint %s is safetensors already: copy it",
                          s->checkpoint);
}

enum chex_status chex_evaluate_export(const struct chex_eval_settings *s, struct chex_error *err) {
    CHEX_TRY(check_options(s, err));
    struct chex_eval_network n = {0};
    struct chex_safetensors_about about = {0};
    int lock = -1;
    enum chex_status st = chex_eval_network_open(s, 0, &n, err);
    if (st == CHEX_OK)
        st = refuse_copy(s, err);
    if (st == CHEX_OK)
        st = chex_eval_network_about(&n, &about, err);
    if (st == CHEX_OK)
        st = chex_eval_file_lock(s->output, &lock, err);
    if (st == CHEX_OK)
        st = chex_text_ends_with(s->output, ".onnx")
                 ? write_onnx(s, &n, &about, err)
                 : chex_safetensors_write(s->output, n.net, n.state, n.step, &about, NULL, 0, err);
    chex_eval_file_unlock(s->output, lock);
    free(about.ensemble);
    if (st == CHEX_OK)
        chex_info("%s: %zu parameters of %s", s->output, n.net->param_count, n.net->model);
    chex_eval_network_release(&n);
    return st;
}
