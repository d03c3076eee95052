/* SPDX-License-Identifier: Apache-2.0
 *
 * The deployment part of a parameter file: what a network needs beside its parameters to decide on
 * new images, fixed on validation images. `chex-eval deploy` writes it, every command with
 * --checkpoint reads it. doc/deployment.md describes the file.
 *
 * It is the metadata key `deployment` of a safetensors file, JSON text, and tensors of statistics
 * with names that begin with "chexnet.". It belongs to the parameters of the file: their digest is
 * in the JSON text, and a file whose parameters have another digest is refused.
 */
#ifndef CHEX_INFER_DEPLOYMENT_H
#define CHEX_INFER_DEPLOYMENT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "label/values.h"
#include "model/net.h"
#include "model/safetensors.h"
#include "stats/calibration.h"

struct chex_features;

enum { CHEX_DEPLOYMENT_VIEWS = CHEX_VIEW_LATERAL + 1 };

struct chex_deployment {
    int classes;
    char **class_names;                    /* (classes) */
    char *rule;                            /* how the thresholds were chosen */
    double *threshold;                     /* (classes), on the calibrated probability; NaN:
                                              none, so there is no decision */
    struct chex_calibration *calibration;  /* (classes) */
    char *recalibration;                   /* "none", "temperature", "platt" */
    uint64_t views[CHEX_DEPLOYMENT_VIEWS]; /* training rows by enum chex_view; all 0: unknown */
    struct chex_features *features;        /* NULL: no statistics */
    json_t *provenance;                    /* object: validation set, tool version, ... */
    char parameters_digest[17];            /* chex_deployment_digest */
};

/* XXH3, 64 bits, of the parameters and running statistics as fp32 in the order of the file: 16 hex
 * digits. */
void chex_deployment_digest(const struct chex_net *net, const float *state, char out[17]);

/* Whether it changes probabilities. NULL allowed. */
bool chex_deployment_recalibrates(const struct chex_deployment *d);

/* Creates a deployment of these classes: no thresholds, calibration unchanged, no views. Texts and
 * provenance are NULL until the caller sets them to memory that the deployment then owns. */
enum chex_status chex_deployment_create(int classes, char *const *class_names,
                                        struct chex_deployment **out, struct chex_error *err);
void chex_deployment_destroy(struct chex_deployment *d); /* NULL allowed */

/* Reads the deployment part of a safetensors file. *out: NULL if the file has none.
 * CHEX_E_DATA: a part that is damaged, of a newer schema, or of other parameters than `state`. */
enum chex_status chex_deployment_read(const char *path, const struct chex_net *net,
                                      const float *state, struct chex_deployment **out,
                                      struct chex_error *err);

/* Writes parameters and deployment part to one safetensors file, atomically. Sets
 * d->parameters_digest. `about` as in chex_safetensors_write. */
enum chex_status chex_deployment_write(const char *path, const struct chex_net *net,
                                       const float *state, int64_t batches_tracked,
                                       const struct chex_safetensors_about *about,
                                       struct chex_deployment *d, struct chex_error *err);

/* The JSON text of the metadata key, as an object; the caller releases it. NULL: out of memory. */
json_t *chex_deployment_json(const struct chex_deployment *d);

/* Reads thresholds for these classes, by name, from
 * - a safetensors file with a deployment part,
 * - a JSON file with an object `thresholds` (`chex-eval deploy --json`), or
 * - an auroc.json.
 * *out: a deployment without features; destroy it. CHEX_E_DATA: not such a file, or it has no entry
 * for one of the classes. */
enum chex_status chex_deployment_thresholds(const char *path, int classes, char *const *class_names,
                                            struct chex_deployment **out, struct chex_error *err);

#endif
