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
#include "launch/devices.h"
#include "model/net.h"

enum chex_precision { CHEX_BF16, CHEX_FP32, CHEX_FP32_STRICT, CHEX_FP16 };
extern const char *const chex_precision_names[]; /* as the option spells them, NULL-terminated */

struct chex_engine_config {
    const struct chex_net *net; /* borrowed: outlives the engine */
    int image_size;
    int batch; /* the largest n of any call */
    enum chex_precision precision;
    int threads;                   /* >= 1 */
    bool training;                 /* false: infer only, no gradients or moments */
    const char *variant;           /* behind the colon of --engine cpu:avx2; NULL: the best here */
    const struct chex_gpu *device; /* chex_choose_gpu's, which create copies; NULL: the engine
                                    * computes on no GPU, or on the first one it sees */
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

/* Stored rows that an engine with raw batches (input/batch.h) may be given. */
struct chex_hold {
    int stored_px;     /* side of the largest that will come */
    size_t first, end; /* rows [first, end) of the set it may hold for good; equal: none */
};
struct chex_held {
    bool raw;      /* it takes raw batches, */
    bool held;     /* with row numbers too: every row of [first, end) has to come but once */
    char why[160]; /* a line for the log: what it does with rows, and why; "" for nothing to say */
};

/* Called from within a pass, on the calling thread, while backward goes on: gradient elements
 * [from, to) are final. Ranges come once each, from the end of the vector to its start; the batch
 * statistics [param_count, state_count) come first. The callee may read and write them at once;
 * where the engine has a reduce_memory, in the order that this gives to the device's work. */
typedef void (*chex_grad_ready_fn)(void *arg, size_t from, size_t to);

/* What the machine can do at most, as an engine measures it. */
struct chex_engine_limits {
    double flop_per_s;  /* of the engine's own inner product, on operands from the caches */
    double bytes_per_s; /* from and to memory, both counted */
    /* To and from a memory that is not the host's. */
    double upload_bytes_per_s, download_bytes_per_s;
};

struct chex_engine;
struct chex_launch;
struct chex_reduce_memory;

/* What an engine file provides; one line per engine in engine.c. Text of errors: object, value,
 * limit. Entries marked (optional) may be NULL. */
struct chex_engine_impl {
    const char *name;    /* "cpu" */
    const char *summary; /* for chex-env */
    /* (optional) The engine proper, from its module, which stays open. Where an entry has this,
     * those of its others that are optional may be asked for by it alone, and create to bytes are
     * not called. CHEX_E_ENV where the module is not there. */
    enum chex_status (*load)(const struct chex_engine_impl **impl_out, struct chex_error *err);
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
    /* (optional) What the head says of each position of the maps that it averages, as if the whole
     * image were like it: maps_out (hw, hw, classes), host memory, for image `image` of the last
     * call's batch, which was infer. hw: chex_net_shapes of the head's input. Their mean over the
     * positions is the image's logits, but for rounding. May allocate. */
    enum chex_status (*class_maps)(void *self, int image, float *maps_out, struct chex_error *err);
    /* Batch norms use the batch's statistics. grad_out: a vector from grad_alloc or reduce_memory,
     * overwritten. */
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
    /* (optional) The memory that has to be free for an engine like this one with another largest
     * batch: its bytes, and what it would leave to others. UINT64_MAX: there is no such engine. For
     * a preview: in set-up, before the first pass; leaves everything as it is. */
    uint64_t (*bytes_with_batch)(void *self, int batch);
    /* (optional: the engine is in host memory) Bytes of the device's memory that are free now. */
    uint64_t (*device_left)(void *self);
    /* (optional) per-operation time of the last pass, op_count entries each, in seconds. */
    void (*op_times)(void *self, double *forward_s, double *backward_s);
    /* (optional: 1) Of each operation the share of the time that the products counted for it would
     * take by the limits: less where the engine needs fewer. op_count entries. */
    void (*product_shares)(void *self, double *share_out);
    /* (optional) The limits of this machine for this engine's variant, precision and threads,
     * measured in less than a second; leaves the state as it is. Arrays take most_bytes at most; a
     * rate that needs larger ones stays 0, and so does one that the engine does not measure. */
    enum chex_status (*limits)(void *self, uint64_t most_bytes,
                               struct chex_engine_limits *limits_out, struct chex_error *err);
    /* (optional: host memory) Where the vectors of a reduction for this engine's passes lie and how
     * they travel: chex_reduce_config's memory, owned by the engine. A message that takes longer
     * than timeout_ms (0: no limit) is a lost rank. Called once. Collective. */
    enum chex_status (*reduce_memory)(void *self, struct chex_launch *launch, uint64_t timeout_ms,
                                      const struct chex_reduce_memory **memory_out,
                                      struct chex_error *err);
    /* (optional: fp32) What to take where no precision is asked for; variant as in the config. */
    enum chex_precision (*usual_precision)(const char *variant);
    /* (optional) The devices this process may compute on, one of which the config names: those that
     * CUDA shows to it, sorted by chex_gpu_sort. At least one, else CHEX_E_ENV or CHEX_E_NODE with
     * the cause: no driver, too old a driver, none visible. Makes no context. */
    enum chex_status (*devices)(struct chex_gpu_list *out, struct chex_error *err);
    /* (optional: it does not) Whether it can crop and augment stored rows of this side itself. */
    bool (*takes_raw)(void *self, int stored_px);
    /* (with takes_raw) Takes the memory for raw batches, before the first one and once; for the
     * rows themselves where they fit with some to spare. That they do not fit is no failure. */
    enum chex_status (*hold)(void *self, const struct chex_hold *hold, struct chex_held *held_out,
                             struct chex_error *err);
};

struct chex_engine {
    const struct chex_engine_impl *impl;
    void *self;
    struct chex_engine_config config;
    int raw_px; /* the largest stored rows that raw batches may have; 0: no raw batches */
};

/* The engines compiled in, NULL-terminated. */
extern const struct chex_engine_impl *const chex_engines[];

/* spec: "cpu", "ref", "cpu:avx2". "auto" is resolved by the caller, who knows the launch. Checks
 * config (image size against the network, batch, precision) before the engine sees it. */
enum chex_status chex_engine_create(const char *spec, const struct chex_engine_config *config,
                                    struct chex_engine **engine_out, struct chex_error *err);
void chex_engine_destroy(struct chex_engine *engine); /* NULL allowed */

/* The engine that `spec` names, from its module where it has one. */
enum chex_status chex_engine_load(const char *spec, const struct chex_engine_impl **impl_out,
                                  struct chex_error *err);

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
/* CHEX_E_FAIL where the engine has no class maps. */
enum chex_status chex_engine_class_maps(struct chex_engine *e, int image, float *maps_out,
                                        struct chex_error *err);
enum chex_status chex_engine_pass(struct chex_engine *e, const struct chex_batch *batch,
                                  float *grad_out, chex_grad_ready_fn ready, void *ready_arg,
                                  struct chex_pass_result *result_out, struct chex_error *err);
enum chex_status chex_engine_update(struct chex_engine *e, const struct chex_update *update,
                                    const float *grad, struct chex_error *err);
/* As hold; with an engine that takes no raw batches, held_out is all false. */
enum chex_status chex_engine_hold(struct chex_engine *e, const struct chex_hold *hold,
                                  struct chex_held *held_out, struct chex_error *err);
float *chex_engine_grad_alloc(struct chex_engine *e);
void chex_engine_grad_free(struct chex_engine *e, float *grad);

#endif
