/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoint files: HDF5, one dataset per parameter under its torchvision name.
 *
 * doc/checkpoint-format.md describes the file. The seal after the HDF5 data, a digest of the whole
 * file, detects changes that the hashes of meta and of each dataset do not cover. A file without a
 * seal is refused.
 *
 * A file is written under a temporary name, fsynced and renamed.
 */
#ifndef CHEX_MODEL_CHECKPOINT_H
#define CHEX_MODEL_CHECKPOINT_H

#include <jansson.h>
#include <stdbool.h>

#include "base/hash.h"
#include "model/net.h"

enum { CHEX_CHECKPOINT_VECTORS = 4 };

struct chex_checkpoint {
    char model[32];
    int classes;
    char **class_names; /* (classes) */
    int image_size;     /* of the training, in pixels */
    char *meta;         /* JSON text */
    /* (state_count) each, in row-major order; all but params may be NULL. ema: the moving average.
     * `vectors` has the same in the order of enum chex_state_part. */
    union {
        struct {
            float *params, *moment1, *moment2, *ema;
        };
        float *vectors[CHEX_CHECKPOINT_VECTORS];
    };
};

/* Copies of the file that chex_checkpoint_write holds in memory at the same time. */
enum { CHEX_CHECKPOINT_COPIES = 2 };

/* Writes `c` to path; `net` gives names and shapes. Call it on one rank only. */
enum chex_status chex_checkpoint_write(const char *path, const struct chex_net *net,
                                       const struct chex_checkpoint *c, struct chex_error *err);

/* The digest of the state, whatever file holds it: XXH3-128 (seed 0) of the values of params,
 * moment1, moment2 and ema, where they are set, one after the other. Each is a flat vector of
 * little-endian f32 (doc/checkpoint-format.md has its order). */
void chex_checkpoint_digest(const struct chex_net *net, const struct chex_checkpoint *c,
                            char out[CHEX_HASH128_HEX_BYTES]);

/* Reads a checkpoint and verifies every checksum.
 * - *net_out: the network of the file's model and classes; the caller destroys it.
 * - with_moments false: does not read the moments; the moving average is read if there is one.
 * - CHEX_E_DATA: the file is truncated, not a checkpoint, or of another version; or a parameter is
 *   missing, damaged or has another shape. */
enum chex_status chex_checkpoint_read(const char *path, bool with_moments,
                                      struct chex_net **net_out, struct chex_checkpoint **c_out,
                                      struct chex_error *err);
/* Reads only the JSON text of meta; the caller frees it. CHEX_E_DATA as above. */
enum chex_status chex_checkpoint_read_meta(const char *path, char **meta_out,
                                           struct chex_error *err);
/* CHEX_E_DATA: `net` normalises pixels with other values than those in meta (mean, std: three
 * numbers each). Values that meta lacks are not checked. */
enum chex_status chex_checkpoint_check_pixels(const char *path, const json_t *meta,
                                              const struct chex_net *net, struct chex_error *err);
void chex_checkpoint_destroy(struct chex_checkpoint *c); /* NULL allowed */
CHEX_AUTO_POINTER(struct chex_checkpoint, chex_checkpoint_destroy)

#endif
