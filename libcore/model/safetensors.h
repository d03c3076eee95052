/* SPDX-License-Identifier: Apache-2.0
 *
 * safetensors files (8-byte little-endian header length, JSON header, raw tensors): parameters by
 * torchvision's name, read and written, F32 written, F32, F16 and BF16 read.
 */
#ifndef CHEX_MODEL_SAFETENSORS_H
#define CHEX_MODEL_SAFETENSORS_H

#include <stdbool.h>

#include "model/net.h"

/* What a file says of itself, in its `__metadata__`: our exports say all of it, torchvision's and
 * timm's files nothing. */
struct chex_safetensors_about {
    char *model, *resize, *split, *source_digest; /* NULL: not said */
    char *members;                                /* data/members.h; NULL: not said */
    char **class_names;                           /* (classes) in the order of the head */
    int classes;                                  /* 0: not said */
    int image_size;                               /* what it was trained at; 0: not said */
    int stored_size; /* side of the stored images that it was trained on; 0: not said */
};

/* state (state_count) row-major. `about` may be NULL. Parameters plus running statistics, and
 * num_batches_tracked (I64) for each batch norm. */
enum chex_status chex_safetensors_write(const char *path, const struct chex_net *net,
                                        const float *state, int64_t batches_tracked,
                                        const struct chex_safetensors_about *about,
                                        struct chex_error *err);

/* Fills the parameters that the file has, by name (torchvision's 2018 names with `norm.1` and
 * `conv.1` too, and a leading "module." dropped). The head (classifier or fc) is left alone where
 * its shape differs, and *head_loaded_out is false then, or where head_loaded_out is NULL: it is
 * not wanted. Anything else missing or misshapen is CHEX_E_DATA with the name. */
enum chex_status chex_safetensors_read(const char *path, const struct chex_net *net, float *state,
                                       bool *head_loaded_out, struct chex_error *err);

/* A value of another form than ours counts as not said, with a warning. The caller releases. */
enum chex_status chex_safetensors_about(const char *path, struct chex_safetensors_about *about_out,
                                        struct chex_error *err);
void chex_safetensors_about_release(struct chex_safetensors_about *about);

/* Whether the head can be one of these classes: it is named so, or not named at all. */
bool chex_safetensors_may_be(const struct chex_safetensors_about *about,
                             const char *const *class_names, int classes);

#endif
