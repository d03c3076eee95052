/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoint files: HDF5, one dataset per parameter under its torchvision name.
 *
 * Root attributes: format="chexnet-checkpoint", version=1, model, classes, image_size, meta (a JSON
 * object: training position, options, provenance), meta_xxh3. Groups: /params (parameters and
 * running statistics), /moment1 and /moment2 where the optimiser has them. Each dataset has the
 * attribute xxh3 of its bytes. Written under a temporary name, fsynced, renamed.
 */
#ifndef CHEX_MODEL_CHECKPOINT_H
#define CHEX_MODEL_CHECKPOINT_H

#include <stdbool.h>

#include "model/net.h"

struct chex_checkpoint {
    char model[32];
    int classes;
    char **class_names; /* (classes) */
    int image_size;     /* what it was trained at */
    char *meta;         /* JSON text */
    /* (state_count) each, in row-major order; moments are NULL where there are none */
    float *params, *moment1, *moment2;
};

/* Copies of the file that chex_checkpoint_write holds in memory on its way to the disk. */
enum { CHEX_CHECKPOINT_COPIES = 2 };

/* Writes `c`; `net` gives names and shapes. Only one rank calls it. */
enum chex_status chex_checkpoint_write(const char *path, const struct chex_net *net,
                                       const struct chex_checkpoint *c, struct chex_error *err);

/* Reads all of it and checks every checksum; *net_out is built from the file's model and classes
 * (the caller destroys it). CHEX_E_DATA: truncated, not a checkpoint, a later version, a parameter
 * missing, of another shape or damaged. with_moments false skips those. */
enum chex_status chex_checkpoint_read(const char *path, bool with_moments,
                                      struct chex_net **net_out, struct chex_checkpoint **c_out,
                                      struct chex_error *err);
/* The meta object's text alone, in fresh memory. CHEX_E_DATA as above. */
enum chex_status chex_checkpoint_read_meta(const char *path, char **meta_out,
                                           struct chex_error *err);
/* Whether `net` normalises pixels as the meta object says that its training did (mean, std: three
 * numbers each): CHEX_E_DATA where not. What it does not say is taken to be so. */
enum chex_status chex_checkpoint_check_pixels(const char *path, const char *meta,
                                              const struct chex_net *net, struct chex_error *err);
void chex_checkpoint_destroy(struct chex_checkpoint *c); /* NULL allowed */

#endif
