/* SPDX-License-Identifier: Apache-2.0
 *
 * The one interface to the engines: ref (plain loops, the definition), cpu, cuda.
 *
 * An engine holds one replica of a network: parameters (fp32 masters), optimiser moments,
 * activations, its packed copies. The trainer asks it for one *pass* per logical rank (forward,
 * loss, backward into a gradient vector) and, after the gradients have been reduced, for one
 * *update*. All memory is taken in create: pass, infer and update allocate nothing.
 *
 * Vectors. A state or gradient vector has net->state_count elements at the offsets of
 * net->params. *Inside* one parameter the order is the engine's own (a packed layout, say);
 * get and set translate to the row-major order of the files. Sums and element-wise updates do not
 * care, so gradients are reduced and averaged as they lie.
 *
 * Batch statistics. Elements [param_count, state_count) of a gradient vector hold the pass's batch
 * mean and unbiased variance of each batch norm. They are reduced with the gradients; update then
 * moves the running statistics: running += bn_momentum * (reduced - running). With one logical rank
 * that is PyTorch's rule; with more it is the mean of what each rank would keep.
 *
 * Determinism. What a pass writes is a function of state and batch, never of the number of threads
 * or of timing.
 *
 * Precision. fp32: stored and multiplied with at least 16 mantissa bits. fp32-strict: plain fp32
 * FMA. bf16: activations, their gradients and the weights' working copies are rounded to bf16 where
 * they are stored; sums are fp32 or wider; masters, statistics, parameter gradients and the head
 * are fp32. fp16: as bf16 with loss scaling (GPU).
 */
#ifndef CHEX_ENGINE_ENGINE_H
#define CHEX_ENGINE_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "input/batch.h"
#include "model/net.h"

enum chex_precision { CHEX_BF16, CHEX_FP32, CHEX_FP32_STRICT, CHEX_FP16 };
extern const char *const chex_precision_names[]; /* as the option spells them, NULL-terminated */

struct chex_engine_config {
    const struct chex_net *net; /* borrowed: outlives the engine */
    int image_size;
    int batch; /* the largest n of any call */
    enum chex_precision precision;
    int threads;         /* >= 1 */
    bool training;       /* false: infer only, no gradients or moments */
    const char *variant; /* behind the colon of --engine cpu:avx2; NULL: the best here */
};

enum chex_optim { CHEX_ADAM, CHEX_ADAMW, CHEX_SGD, CHEX_LARS };
extern const char *const chex_optim_names[];

/* One optimiser step. Element-wise definition: engine/update.h. */
struct chex_update {
    enum chex_optim optim;
    double lr, weight_decay;
    double momentum;          /* SGD, LARS */
    double beta1, beta2, eps; /* Adam, AdamW */
    int64_t step;             /* counts from 1 */
    double grad_scale;        /* applied to every reduced element: 1 / logical ranks */
};

/* Parts of the state that checkpoints hold. */
enum chex_state_part { CHEX_STATE_PARAMS, CHEX_STATE_MOMENT1, CHEX_STATE_MOMENT2 };

struct chex_pass_result {
    double loss; /* mean over n * classes of the binary cross-entropy with logits; masked add 0 */
    double forward_s, backward_s;
};

/* Called from within a pass, on the calling thread, while backward goes on: gradient elements
 * [from, to) are final. Ranges come once each, from the end of the vector to its start; the batch
 * statistics [param_count, state_count) come first. The callee may read and write them at once. */
typedef void (*chex_grad_ready_fn)(void *arg, size_t from, size_t to);

struct chex_engine;

/* What an engine file provides; one line per engine in engine.c. Text of errors: object, value,
 * limit. Entries marked (optional) may be NULL. */
struct chex_engine_impl {
    const char *name;    /* "cpu" */
    const char *summary; /* for chex-env */
    /* Whether it can run on this machine; text_out says with what ("avx2, 2 threads") or why not.
     */
    enum chex_status (*probe)(char *text_out, size_t size, struct chex_error *err);
    enum chex_status (*create)(const struct chex_engine_config *config, void **self_out,
                               struct chex_error *err);
    void (*destroy)(void *self); /* NULL and half-built objects allowed */
    enum chex_status (*set)(void *self, enum chex_state_part part, const float *state,
                            struct chex_error *err);
    enum chex_status (*get)(void *self, enum chex_state_part part, float *state_out,
                            struct chex_error *err);
    /* Batch norms use the running statistics. logits_out: (n, classes), host memory. */
    enum chex_status (*infer)(void *self, const struct chex_batch *batch, float *logits_out,
                              struct chex_error *err);
    /* Batch norms use the batch's statistics. grad_out: a vector from grad_alloc, overwritten. */
    enum chex_status (*pass)(void *self, const struct chex_batch *batch, float *grad_out,
                             chex_grad_ready_fn ready, void *ready_arg,
                             struct chex_pass_result *result_out, struct chex_error *err);
    enum chex_status (*update)(void *self, const struct chex_update *update, const float *grad,
                               struct chex_error *err);
    /* Gradient vectors, in the engine's memory; zeroed. (optional: host memory) */
    float *(*grad_alloc)(void *self);
    void (*grad_free)(void *self, float *grad);
    /* The gradient of `grad` in row-major order, for tests. */
    enum chex_status (*grad_get)(void *self, const float *grad, float *out, struct chex_error *err);
    /* Variant in use ("avx2") and bytes held. */
    const char *(*variant)(void *self);
    uint64_t (*bytes)(void *self);
    /* (optional) per-operation time of the last pass, op_count entries each, in seconds. */
    void (*op_times)(void *self, double *forward_s, double *backward_s);
    /* (optional: fp32) What to take where no precision is asked for; variant as in the config. */
    enum chex_precision (*usual_precision)(const char *variant);
};

struct chex_engine {
    const struct chex_engine_impl *impl;
    void *self;
    struct chex_engine_config config;
};

/* The engines compiled in, NULL-terminated. */
extern const struct chex_engine_impl *const chex_engines[];

/* spec: "cpu", "ref", "cpu:avx2". "auto" is resolved by the caller, who knows the launch. Checks
 * config (image size against the network, batch, precision) before the engine sees it. */
enum chex_status chex_engine_create(const char *spec, const struct chex_engine_config *config,
                                    struct chex_engine **engine_out, struct chex_error *err);
void chex_engine_destroy(struct chex_engine *engine); /* NULL allowed */

/* What a command takes where the user asks for no precision: bf16 where the engine has an
 * instruction for it that leaves fp32 far behind, else fp32. spec as above. */
enum chex_precision chex_engine_usual_precision(const char *spec);

/* The same calls with checked arguments; see chex_engine_impl. */
enum chex_status chex_engine_set(struct chex_engine *e, enum chex_state_part part,
                                 const float *state, struct chex_error *err);
enum chex_status chex_engine_get(struct chex_engine *e, enum chex_state_part part, float *state_out,
                                 struct chex_error *err);
enum chex_status chex_engine_infer(struct chex_engine *e, const struct chex_batch *batch,
                                   float *logits_out, struct chex_error *err);
enum chex_status chex_engine_pass(struct chex_engine *e, const struct chex_batch *batch,
                                  float *grad_out, chex_grad_ready_fn ready, void *ready_arg,
                                  struct chex_pass_result *result_out, struct chex_error *err);
enum chex_status chex_engine_update(struct chex_engine *e, const struct chex_update *update,
                                    const float *grad, struct chex_error *err);
float *chex_engine_grad_alloc(struct chex_engine *e);
void chex_engine_grad_free(struct chex_engine *e, float *grad);

#endif
