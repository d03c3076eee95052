/* SPDX-License-Identifier: Apache-2.0
 *
 * safetensors files (8-byte little-endian header length, JSON header, raw tensors): parameters by
 * torchvision's name, read and written, F32 written, F32, F16 and BF16 read.
 */
#ifndef CHEX_MODEL_SAFETENSORS_H
#define CHEX_MODEL_SAFETENSORS_H

#include "model/net.h"

/* state (state_count) row-major. `metadata` is a JSON object of strings, or NULL. Parameters plus
 * running statistics, and num_batches_tracked (I64) for each batch norm. */
enum chex_status chex_safetensors_write(const char *path, const struct chex_net *net,
                                        const float *state, int64_t batches_tracked,
                                        const char *metadata, struct chex_error *err);

/* Fills the parameters that the file has, by name (torchvision's 2018 names with `norm.1` and
 * `conv.1` too, and a leading "module." dropped). The head (classifier or fc) is left alone where
 * its shape differs and *head_loaded_out is false. Anything else missing or misshapen is
 * CHEX_E_DATA with the name. */
enum chex_status chex_safetensors_read(const char *path, const struct chex_net *net, float *state,
                                       bool *head_loaded_out, struct chex_error *err);

#endif
