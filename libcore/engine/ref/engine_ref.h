/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of the reference engine. engine_ref.c has create, destroy and the table of entries;
 * ref_base.c the state vectors; ref_walk.c runs the op list forward and backward.
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

/* What the engines ref and head share: state vectors in host memory, in row-major order. It is the
 * first member of both. */
struct chex_ref_base {
    const char *name; /* of the engine */
    struct chex_engine_config config;
    const struct chex_net *net;
    struct chex_ref_ctx ctx;          /* with precision bf16: rounds stored values */
    float *parts[CHEX_STATE_EMA + 1]; /* by enum chex_state_part; NULL: not kept */
    struct chex_clip clip;
    void **owned; /* all allocations */
    size_t owned_count, owned_capacity;
    uint64_t bytes; /* of them */
    bool failed;    /* one of them */
};

struct chex_ref_engine {
    struct chex_ref_base base;
    struct chex_ref_ctx plain;      /* never rounds; for values that are not stored */
    int *hw;                        /* height of each buffer */
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

/* ---- ref_base.c ---- */
/* Allocates zeroed memory that the engine owns. NULL: b->failed is true. */
void *chex_ref_alloc(struct chex_ref_base *b, size_t count, size_t size);
/* Allocates the parts that the configuration needs. */
void chex_ref_alloc_parts(struct chex_ref_base *b);
void chex_ref_base_release(struct chex_ref_base *b);
/* The optimiser step and the moving average of one parameter; frozen: only the average. grad: of
 * the parameter. */
void chex_ref_step(struct chex_ref_base *b, int param, const struct chex_update *u, bool frozen,
                   const float *grad);
/* Entries of struct chex_engine_impl. */
const char *chex_ref_variant(void *self);
uint64_t chex_ref_bytes(void *self);
enum chex_status chex_ref_set(void *self, enum chex_state_part part, const float *state,
                              struct chex_error *err);
enum chex_status chex_ref_get(void *self, enum chex_state_part part, float *state_out,
                              struct chex_error *err);
enum chex_status chex_ref_grad_norms(void *self, struct chex_grad_norms *out,
                                     struct chex_error *err);

/* ---- ref_walk.c ---- */
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
