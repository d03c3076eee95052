/* SPDX-License-Identifier: Apache-2.0
 *
 * The reference engine's own state, shared by engine_ref.c (life, state vectors, the table of
 * calls) and ref_walk.c (the op list forward and backward).
 */
#ifndef CHEX_ENGINE_REF_ENGINE_REF_H
#define CHEX_ENGINE_REF_ENGINE_REF_H

#include "engine/engine.h"
#include "engine/ref/ref_ops.h"

/* One per batch norm. */
struct chex_ref_norm {
    double *mean, *var, *inv; /* of the batch, or in infer the running ones */
};

struct chex_ref_engine {
    struct chex_engine_config config;
    const struct chex_net *net;
    struct chex_ref_ctx ctx;   /* rounds what is stored to bf16 where that was asked for */
    struct chex_ref_ctx plain; /* the same without rounding, for values that are not stored */
    uint64_t bytes;
    int *hw; /* height of each buffer */

    float *state;                   /* state_count */
    float *moment1, *moment2;       /* state_count; NULL unless training */
    float **buffers;                /* buffer_count: (batch, hw, hw, channels) */
    float **grads;                  /* their gradients; NULL unless training */
    struct chex_ref_norm *bns;      /* bn_count */
    int32_t **won;                  /* op_count: winners of a maximum pooling, else NULL */
    float *image;                   /* (batch, size, size, 3) */
    float *act;                     /* relu(bn(input)) of the op at hand */
    float *dact;                    /* its gradient */
    float *pooled;                  /* (batch, features) */
    float *logits, *dlogits;        /* (batch, classes) */
    double *forward_s, *backward_s; /* op_count */
};

/* Runs the op list; logits end in r->logits. training: batch statistics, else running ones. */
void chex_ref_walk_forward(struct chex_ref_engine *r, const struct chex_batch *batch,
                           bool training);

/* class_maps of chex_engine_impl; pooled: room for (hw, hw, features). */
void chex_ref_walk_class_maps(struct chex_ref_engine *r, int image, float *pooled, float *maps_out);

/* After a training forward, with r->dlogits filled. Writes every element of grad. */
void chex_ref_walk_backward(struct chex_ref_engine *r, int n, float *grad, chex_grad_ready_fn ready,
                            void *ready_arg);

#endif
