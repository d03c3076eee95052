/* SPDX-License-Identifier: Apache-2.0
 *
 * Parameter files of any format, recognised by their content, not by their names: checkpoints of
 * chex-train, safetensors files, and PyTorch files.
 */
#ifndef CHEX_MODEL_WEIGHTS_H
#define CHEX_MODEL_WEIGHTS_H

#include "model/safetensors.h"
#include "model/tensor_set.h"

enum chex_weights_format {
    CHEX_WEIGHTS_CHECKPOINT,  /* HDF5; also a file that ends in .h5 and is nothing else */
    CHEX_WEIGHTS_TORCH,       /* a zip archive or a pickle */
    CHEX_WEIGHTS_SAFETENSORS, /* any other file: the reader of safetensors says what is wrong */
};

/* Looks at the first bytes. A file that cannot be read is SAFETENSORS: its reader reports it. */
enum chex_weights_format chex_weights_format(const char *path);

struct chex_weights {
    struct chex_tensor_set tensors;
    struct chex_safetensors_about about; /* `model` is found by the names, if the file has none */
    int64_t step;                        /* training steps; 0: unknown */
};

/* Reads a file of any format, and records in about.weights which parameters they are. From a
 * checkpoint with a moving average come the average, which validation measured, or with `last` the
 * parameters of the last update. The caller calls chex_weights_close, which accepts {0} too.
 * CHEX_E_DATA: as the reader of the format, and a checkpoint that was trained on pixels normalised
 * by other values. */
enum chex_status chex_weights_open(const char *path, bool last, struct chex_weights *weights_out,
                                   struct chex_error *err);
void chex_weights_close(struct chex_weights *weights);

/* For readers of checkpoints only. CHEX_E_DATA: a PyTorch file; the text says what takes it. */
enum chex_status chex_weights_refuse_torch(const char *path, struct chex_error *err);

#endif
