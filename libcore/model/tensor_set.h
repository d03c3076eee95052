/* SPDX-License-Identifier: Apache-2.0
 *
 * The named tensors of a parameter file, and how they become the parameters of a network. The
 * readers of safetensors files, of PyTorch files and of checkpoints fill a set; this file does the
 * rest: names, shapes, types, the head.
 */
#ifndef CHEX_MODEL_TENSOR_SET_H
#define CHEX_MODEL_TENSOR_SET_H

#include <stdbool.h>

#include "model/net.h"

enum { CHEX_TENSOR_RANK = 8 };

enum chex_tensor_type {
    CHEX_TENSOR_F32,
    CHEX_TENSOR_F16,
    CHEX_TENSOR_BF16,
    CHEX_TENSOR_F64,
    CHEX_TENSOR_OTHER, /* cannot be a parameter */
};

/* A type of elements by the name that safetensors files give it. */
struct chex_dtype {
    const char *name; /* "F32" */
    enum chex_tensor_type type;
    size_t bytes; /* of an element */
};
const struct chex_dtype *chex_dtype_find(const char *name); /* NULL: unknown */

struct chex_tensor {
    char *name;                 /* as the file has it */
    char type_name[16];         /* of struct chex_dtype, or another text for messages */
    enum chex_tensor_type type; /* set by chex_tensor_set_add */
    size_t rank, dims[CHEX_TENSOR_RANK];
    size_t strides[CHEX_TENSOR_RANK]; /* elements between neighbours of each dimension */
    const char *data; /* the first element, in the byte order of this host; any alignment */
};

/* Converts all elements to fp32, in row-major order. A value that fp32 cannot hold becomes
 * infinite. */
void chex_tensor_values(const struct chex_tensor *t, float *out);

/* Starts as {0}. */
struct chex_tensor_set {
    char *path; /* for messages */
    struct chex_tensor *tensors;
    size_t count, capacity;
    void *bytes; /* what `data` points into; freed with the set */
};

/* Gives the set its path and the bytes that it owns from now on, even after an error. */
enum chex_status chex_tensor_set_begin(struct chex_tensor_set *set, const char *path, void *bytes,
                                       struct chex_error *err);

/* Adds a copy of `tensor` with a copy of its name.
 * - strides NULL: row-major.
 * - The caller has checked that all elements are inside `bytes`.
 * - CHEX_E_DATA: the name is not printable UTF-8. */
enum chex_status chex_tensor_set_add(struct chex_tensor_set *set, const struct chex_tensor *tensor,
                                     const size_t *strides, struct chex_error *err);
void chex_tensor_set_release(struct chex_tensor_set *set);

/* The name of the network whose parameters, except the head, are all in the set, by name. Of
 * several the one whose shapes they have; of these the one with the most parameters, because a deep
 * ResNet has all parameters of a shallower one. NULL: no network. */
const char *chex_tensor_set_model(const struct chex_tensor_set *set);

/* Outputs of the head: rows of its weight. 0: no head, or a head of several layers. */
int chex_tensor_set_outputs(const struct chex_tensor_set *set);

/* Reads parameters into state by name.
 * - Names are mapped by chex_parameter_name().
 * - The head (classifier or fc) is not read if its shape differs; then *head_loaded_out is false.
 *   head_loaded_out NULL: never read the head.
 * - A first convolution with one input channel is torchxrayvision's. It becomes one of three
 *   channels with equal results (tensor_set.c explains how).
 * - CHEX_E_DATA: any other parameter is missing, has another shape or type, or a value that is not
 *   finite; the text names it.
 * - On error state is unchanged. */
enum chex_status chex_tensor_set_load(const struct chex_tensor_set *set, const struct chex_net *net,
                                      float *state, bool *head_loaded_out, struct chex_error *err);

/* Warns of tensors that chex_tensor_set_load ignores, and of a first convolution that it widens.
 * Call it once for each file, on one rank. Errors: those of names in chex_tensor_set_load. */
enum chex_status chex_tensor_set_warn(const struct chex_tensor_set *set, const struct chex_net *net,
                                      struct chex_error *err);

#endif
