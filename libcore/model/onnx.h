/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes a network, or several as an ensemble, as an ONNX model, which inference programs read
 * without chexnet.
 *
 * Input `image`: u8 (batch, 1, image_size, image_size), the grey pixels after resize and centre
 * crop. The division by 255, the three channels and the normalisation are in the model.
 * Outputs: `logits` and `probabilities`, f32 (batch, classes). batch is free. Probabilities are
 * recalibrated, logits are not. Of several networks the logits are those of infer/ensemble.h.
 */
#ifndef CHEX_MODEL_ONNX_H
#define CHEX_MODEL_ONNX_H

#include "model/safetensors.h"

/* Opset and IR version of the files: ONNX 1.12 (2022) and newer read them. */
enum { CHEX_ONNX_OPSET = 17, CHEX_ONNX_IR = 8 };

/* Networks that chex_net_join made one. */
struct chex_onnx_ensemble {
    struct chex_net *const *member; /* (count) */
    int count;
    bool mean_logit; /* the mean of the logits, else of the probabilities */
};

/* sigmoid(slope * logit + intercept) is the probability of a class. */
struct chex_onnx_calibration {
    float *slope, *intercept; /* (classes) */
};

/* Writes a file.
 * - Parameters are initializers by their torchvision names, bit for bit. Batch norms stay
 *   operations of their own (BatchNormalization).
 * - about: becomes metadata_props with the keys of a safetensors export, but image_size is that of
 *   the argument.
 * - image_size: pixels; the caller has checked it by chex_net_shapes().
 * - ensemble: NULL: one network.
 * - calibration: NULL: probabilities are the sigmoid of the logits.
 * - CHEX_E_FAIL: the network has an operation that this writer does not know. */
enum chex_status chex_onnx_write(const char *path, const struct chex_net *net, const float *state,
                                 int image_size, const struct chex_safetensors_about *about,
                                 const struct chex_onnx_ensemble *ensemble,
                                 const struct chex_onnx_calibration *calibration,
                                 struct chex_error *err);

#endif
