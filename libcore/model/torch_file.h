/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the parameters in files of torch.save: the zip format (PyTorch 1.6 and newer) and the
 * format before it. PyTorch is not needed, and no code of the file is executed.
 *
 * A file may hold a state dictionary; a dictionary of a training script with one state dictionary
 * among other entries, at most three levels deep; or a whole module, as torchxrayvision publishes
 * them.
 */
#ifndef CHEX_MODEL_TORCH_FILE_H
#define CHEX_MODEL_TORCH_FILE_H

#include "model/tensor_set.h"

/* Reads a file into a set of tensors, with the names that state_dict() would give. The caller
 * releases the set.
 * - CHEX_E_DATA: truncated or damaged; big-endian; TorchScript; no state dictionary, or several
 *   (the text lists them). */
enum chex_status chex_torch_file_open(const char *path, struct chex_tensor_set *set_out,
                                      struct chex_error *err);

#endif
