/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of the reference engine. engine_ref.c has create, destroy, state vectors and the table
 * of entries; ref_walk.c runs the op list forward and backward.
 */
#ifndef CHEX_ENGINE_REF_ENGINE_REF_H
#define CHEX_ENGINE_REF_ENGINE_REF_H

#include "engine/engine.h"
#include "engine/ref/ref_ops.h"
#include "engine/update.h"

/* One per batch norm. */
struct chex_ref_norm {
    double *mean, *var,
        *inv; /* batch statistics; in infer the running ones. var is mean + channels */
};

struct chex_ref_engine {
    struct chex_engine_config config;
    const struct chex_net *net;
    struct chex_ref_ctx ctx;   /* with precision bf16: rounds stored values to bf16 */
    struct chex_ref_ctx plain; /* never rounds; for values that are not stored */
    uint64_t bytes;
    int *hw; /* height of each buffer */

    float *state;             /* state_count */
    float *moment1, *moment2; /* state_count; NULL unless training */
    float *ema;               /* state_count; NULL unless training with an average */
    struct chex_clip clip;
    float **buffers;                /* buffer_count: (batch, hw, hw, channels) */
    float **grads;                  /* their gradients; NULL unless training */
    struct chex_ref_norm *bns;      /* bn_count */
    double *bn_sums;                /* two sums per channel of the widest batch norm */
    int32_t **argmax;               /* op_count: positions of the maxima of a max pool, else NULL */
    float *image;                   /* (batch, size, size, 3) */
    float *act;                     /* relu(bn(input)) of the current op */
    float *dact;                    /* gradient of act */
    float *pooled;                  /* (batch, features) */
    float *logits, *dlogits;        /* (batch, classes) */
    double *forward_s, *backward_s; /* op_count */
};

/* Runs the op list forward and leaves the logits in r->logits. training: use batch statistics, else
 * the running ones. Fails only if config.sync does; backward too. */
enum chex_status chex_ref_walk_forward(struct chex_ref_engine *r, const struct chex_batch *batch,
                                       bool training, struct chex_error *err);

/* class_maps of struct chex_engine_maps. pooled: scratch of (hw, hw, features) floats. */
void chex_ref_walk_class_maps(struct chex_ref_engine *r, int image, float *pooled, float *maps_out);

/* Backward. Call it after a training forward, with r->dlogits filled. Writes every element of
 * grad. */
enum chex_status chex_ref_walk_backward(struct chex_ref_engine *r, int n, float *grad,
                                        chex_grad_ready_fn ready, void *ready_arg,
                                        struct chex_error *err);

#endif
