/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads and writes parameters as safetensors files: 8-byte little-endian header length, JSON
 * header, raw tensors. Tensors have torchvision's names. Writes F32; reads F32, F16, BF16 and F64.
 */
#ifndef CHEX_MODEL_SAFETENSORS_H
#define CHEX_MODEL_SAFETENSORS_H

#include <jansson.h>
#include <stdbool.h>

#include "model/net.h"
#include "model/tensor_set.h"

/* A tensor that is no parameter. Its name begins with CHEX_STATISTIC_PREFIX. */
#define CHEX_STATISTIC_PREFIX "chexnet."
struct chex_statistic {
    char *name;
    int rank, dims[2];
    float *data; /* row-major */
};

/* The `__metadata__` of a file. NULL or 0: unknown. Our exports have all fields, files of
 * torchvision and timm have none. */
struct chex_safetensors_about {
    char *model, *resize, *split, *source_digest;
    char *members;      /* see shard/members.h */
    char *fold;         /* of a training with --fold, see shard/folds.h */
    char *unions;       /* --findings of a training, if it has unions (shard/selection.h) */
    char *weights;      /* "ema": the moving average of a training; "last": the last update */
    char **class_names; /* (classes) in the order of the head */
    int classes;
    int image_size;   /* of the training, in pixels */
    int stored_size;  /* side of the stored images of the training, in pixels */
    char *deployment; /* JSON text: see infer/deployment.h */
    char *ensemble;   /* JSON text of several networks: see evaluate/ensemble_files.h. NULL: one
                         network */
    /* Options of a loss that shifts probabilities: "--loss focal --label-smoothing 0.1". NULL:
     * plain cross-entropy, or unknown. Only checkpoints state it. */
    char *training_loss;
    json_t *training; /* see model/training_facts.h. NULL: unknown. Only checkpoints state it. */
};

/* Writes parameters, running statistics, and num_batches_tracked (I64) for each batch norm.
 * - state: (state_count), row-major.
 * - about: written as metadata, together with the preprocessing of images (doc/export.md
 *   lists the keys). NULL: no metadata.
 * - statistics: (count), written after the parameters. */
enum chex_status chex_safetensors_write(const char *path, const struct chex_net *net,
                                        const float *state, int64_t batches_tracked,
                                        const struct chex_safetensors_about *about,
                                        const struct chex_statistic *statistics, int count,
                                        struct chex_error *err);

/* The metadata of an export, with values that are all strings: numbers are written in decimal, the
 * list of classes as JSON. The caller owns the object. NULL: out of memory. */
json_t *chex_safetensors_metadata(const struct chex_net *net,
                                  const struct chex_safetensors_about *about);

/* Reads a whole file. The caller releases both outputs; either may be NULL.
 * - A metadata value that has not our form is unknown, with a warning. */
enum chex_status chex_safetensors_open(const char *path, struct chex_tensor_set *set_out,
                                       struct chex_safetensors_about *about_out,
                                       struct chex_error *err);

void chex_safetensors_about_release(struct chex_safetensors_about *about);

/* Copies all F32 tensors of a set whose name begins with CHEX_STATISTIC_PREFIX, in the order of the
 * file. The caller calls chex_statistics_destroy. *out: NULL if there are none. */
enum chex_status chex_statistics_read(const struct chex_tensor_set *set,
                                      struct chex_statistic **out, int *count_out,
                                      struct chex_error *err);
void chex_statistics_destroy(struct chex_statistic *statistics, int count); /* NULL allowed */

/* Whether the file's head can have these classes: its class names are equal, or unknown. */
bool chex_safetensors_may_be(const struct chex_safetensors_about *about,
                             const char *const *class_names, int classes);

#endif
