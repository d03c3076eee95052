/* SPDX-License-Identifier: Apache-2.0
 *
 * Parameter files in formats of other programs, recognised by their content.
 */
#ifndef CHEX_MODEL_FOREIGN_H
#define CHEX_MODEL_FOREIGN_H

#include "base/error.h"

/* CHEX_E_DATA: the file is PyTorch's (.pth, .pt, .ckpt: a zip archive or a pickle). The text has
 * the Python code that converts it to safetensors. CHEX_OK: any other file, and a file that cannot
 * be read; the caller reports that when it opens the file. */
enum chex_status chex_model_refuse_pytorch(const char *path, struct chex_error *err);

/* The same for an HDF5 file. The text says how to export a checkpoint as safetensors. */
enum chex_status chex_model_refuse_hdf5(const char *path, struct chex_error *err);

#endif
