/* SPDX-License-Identifier: Apache-2.0
 *
 * The common interface of the engines: ref (plain loops, the definition), cpu, cuda.
 *
 * An engine holds one replica of a network: parameters (fp32 master copies), optimiser moments,
 * activations and packed weights. In a step, the trainer calls *pass* once per logical rank
 * (forward, loss, backward into a gradient vector). It then reduces the gradients and calls
 * *update* once. create allocates all memory; pass, infer and update allocate nothing.
 *
 * Vectors. A state or gradient vector has net->state_count elements at the offsets of
 * net->params. Inside one parameter the engine chooses the order, for example a packed layout;
 * get and set translate to the row-major order of the files. Sums and element-wise updates do not
 * depend on the order, so gradients are reduced and averaged without translation.
 *
 * Batch statistics. Elements [param_count, state_count) of a gradient vector hold the batch mean
 * and unbiased variance of each batch norm. They are reduced with the gradients. update then moves
 * the running statistics: running += bn_momentum * (reduced - running). With one logical rank this
 * is PyTorch's rule; with more it is the mean of the values that each rank would keep. With a
 * `sync` in the configuration every rank reports the statistics of the whole batch of the step.
 *
 * Moving average. With ema_decay the engine keeps an exponential moving average of the whole state,
 * which every update moves (engine/update.h). Passes never use it. chex_engine_swap_ema puts it in
 * the place of the parameters, for inference.
 *
 * Determinism. The results of a pass depend on state and batch only (with `sync` on the batches of
 * all logical ranks), not on the number of threads or on timing.
 *
 * Precision.
 *   fp32         stored as fp32; products keep at least 16 mantissa bits
 *   fp32-strict  plain fp32 FMA
 *   bf16         activations, their gradients and the working copies of the weights are rounded to
 *                bf16 when they are stored. Sums are fp32 or wider. Master copies, statistics,
 *                parameter gradients and the head are fp32.
 *   fp16         as bf16, with loss scaling (GPU only)
 */
#ifndef CHEX_ENGINE_ENGINE_H
#define CHEX_ENGINE_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "engine/loss.h"
#include "engine/sync.h"
#include "input/batch.h"
#include "launch/devices.h"
#include "model/net.h"

enum chex_precision { CHEX_BF16, CHEX_FP32, CHEX_FP32_STRICT, CHEX_FP16 };
extern const char *const chex_precision_names[]; /* values of --precision, NULL-terminated */

struct chex_engine_config {
    const struct chex_net *net; /* borrowed; must outlive the engine */
    int image_size;             /* side of the network's input, in pixels */
    int batch;                  /* the largest n of any call */
    enum chex_precision precision;
    int threads;                   /* >= 1 */
    bool training;                 /* false: infer only, no gradients or moments */
    const char *variant;           /* "avx2" of --engine cpu:avx2; NULL: the engine chooses */
    const struct chex_gpu *device; /* from chex_choose_gpu, copied by create; NULL: no GPU, or the
                                    * first visible one */
    int node_ranks;                /* ranks of this run on the node; 0: one */
    struct chex_loss loss;         /* of pass; all zero: plain binary cross-entropy */
    const double *lr_scales;       /* (param_total) factor of the learning rate, 0: frozen
                                      (engine/frozen.h); borrowed as net is. NULL: 1 for all */
    double ema_decay; /* of the moving average of the state (CHEX_STATE_EMA); 0: none is kept */
    /* Batch statistics of all logical ranks (engine/sync.h), complete before the first pass and
     * borrowed; NULL: each pass uses those of its batch. */
    const struct chex_engine_sync *sync;
    /* For inference: an engine of the same table, batch and image size that never infers at the
     * same time and lives longer. Its memory for feature maps may be used. NULL: none. */
    const struct chex_engine *lender;
};

enum chex_optim { CHEX_ADAM, CHEX_ADAMW, CHEX_SGD, CHEX_LARS };
extern const char *const chex_optim_names[];

/* One optimiser step. Element-wise definition: engine/update.h. */
struct chex_update {
    enum chex_optim optim;
    double lr, weight_decay;
    double momentum;          /* SGD, LARS */
    bool nesterov;            /* SGD */
    bool decay_norms;         /* weight decay for batch norms and biases too */
    double clip_norm;         /* largest norm of the mean gradient; 0: no limit and no norm */
    double beta1, beta2, eps; /* Adam, AdamW */
    int64_t step;             /* first step: 1 */
    double grad_scale;        /* factor of every reduced element: 1 / logical ranks */
};

/* Norms of the mean gradient before clipping, over several updates with a clip_norm. */
struct chex_grad_norms {
    double sum, largest;
    int64_t updates;
};

/* Parts of the state that checkpoints hold. */
enum chex_state_part { CHEX_STATE_PARAMS, CHEX_STATE_MOMENT1, CHEX_STATE_MOMENT2, CHEX_STATE_EMA };

struct chex_pass_result {
    double loss; /* binary cross-entropy with logits: mean over n * classes; masked labels add 0 */
    double forward_s, backward_s;
};

/* Stored rows that an engine will receive in raw batches (input/batch.h). */
struct chex_resident_request {
    int stored_px;     /* side of the largest stored row of any batch, in pixels */
    size_t first, end; /* rows [first, end) of the set that may become resident; equal: none */
};
struct chex_resident_result {
    bool raw;      /* the engine accepts raw batches */
    bool resident; /* rows stay in the engine: each row of [first, end) is sent once */
    char why[160]; /* decision and reason, one line for the log; "": nothing to log */
};

/* Reports during a pass that gradient elements [from, to) are final.
 * - Runs on the thread that called pass, while backward continues.
 * - Each element is reported once, from the end of the vector to its start. The batch statistics
 *   [param_count, state_count) come first.
 * - The callee may read and write the elements at once. With reduce_memory it must do so in the
 *   order that the memory gives to the device's work. */
typedef void (*chex_grad_ready_fn)(void *arg, size_t from, size_t to);

/* Measured limits of the machine. 0: not measured. */
struct chex_engine_limits {
    double flop_per_s;  /* the engine's own matrix product, operands in cache */
    double bytes_per_s; /* memory bandwidth of the engine: bytes read plus bytes written */
    double upload_bytes_per_s, download_bytes_per_s; /* host to device, device to host */
};

enum { CHEX_INFER_BATCHES = 2 }; /* of chex_engine_infer_begin */

struct chex_engine;
struct chex_group;
struct chex_launch;
struct chex_reduce_memory;

/* ---- Optional tables of an engine: NULL, or complete; an entry says if it may be NULL ---- */

/* What the head saw of the images of the last call, which must have been infer. */
struct chex_engine_maps {
    /* Class activation maps: the head applied to each position of its input map.
     * - maps_out: (hw, hw, classes), host memory; hw: chex_net_shapes of the head's input.
     * - image: index in the batch of the last call.
     * - The mean over the positions equals the image's logits up to rounding.
     * - May allocate. */
    enum chex_status (*class_maps)(void *self, int image, float *maps_out, struct chex_error *err);
    /* Pooled features: the mean over the positions of the head's input map.
     * - features_out: (n, channels of the head's input), host memory.
     * - n: images of the last call, from the first. */
    enum chex_status (*features)(void *self, int n, float *features_out, struct chex_error *err);
};

/* Inference in two calls: the next batch is copied and uploaded while one is computed, and its
 * logits are read while the next one is computed. Without this table infer does both. */
struct chex_engine_overlap {
    /* Starts the inference of a batch, after those begun before it. The memory of the batch is free
     * when the call returns. */
    enum chex_status (*infer_begin)(void *self, const struct chex_batch *batch,
                                    struct chex_error *err);
    /* Waits for the oldest batch that was begun and not ended; logits_out as in infer. */
    enum chex_status (*infer_end)(void *self, float *logits_out, struct chex_error *err);
};

/* Times of operations; op_count entries each. */
struct chex_engine_timing {
    /* Seconds of the last pass. */
    void (*op_times)(void *self, double *forward_s, double *backward_s);
    /* For each operation: the fraction of its counted products (engine/cost.h) that takes time at
     * the measured limit. Winograd in fp32 needs a quarter. */
    void (*product_shares)(void *self, double *share_out);
};

/* What the machine allows, for --plan, chex-env and bench. */
struct chex_engine_capacity {
    /* Free bytes that the same engine would need with another largest batch, with the reserve it
     * leaves to others. UINT64_MAX: no such engine can be built.
     * Call it in set-up, before the first pass. Changes nothing. */
    uint64_t (*bytes_with_batch)(void *self, int batch);
    /* Measures the limits for the engine's variant, precision and threads in about a second, with
     * any number of threads.
     * - Arrays take at most max_bytes. A rate that needs larger arrays stays 0.
     * - The engine's state does not change. */
    enum chex_status (*limits)(void *self, uint64_t max_bytes,
                               struct chex_engine_limits *limits_out, struct chex_error *err);
};

/* State and gradient vectors are in a device's memory. Without this table they are in host memory,
 * and the collectives carry the messages. */
struct chex_engine_device {
    uint64_t (*bytes_left)(void *self); /* free bytes of the device's memory */
    /* Allocates a zeroed vector of state_count elements. NULL result: out of memory. */
    float *(*grad_alloc)(void *self);
    void (*grad_free)(void *self, float *grad);
    /* Returns the memory and transport for chex_reduce_config. The engine owns it.
     * - timeout_ms: a message that takes longer counts as a lost rank; 0: no limit.
     * - Called once. Collective; `group` has all ranks. */
    enum chex_status (*reduce_memory)(void *self, struct chex_launch *launch,
                                      struct chex_group *group, uint64_t timeout_ms,
                                      const struct chex_reduce_memory **memory_out,
                                      struct chex_error *err);
};

/* The hardware that an engine would use; asked before create. Without this table: fp32, no GPU. */
struct chex_engine_hardware {
    /* Default of --precision on this machine. variant: as in the config. */
    enum chex_precision (*usual_precision)(const char *variant);
    /* Lists the GPUs that CUDA shows to this process, sorted by chex_gpu_sort; count 0: the engine
     * uses no GPU. Creates no context. CHEX_E_ENV or CHEX_E_NODE with the cause if the engine needs
     * a GPU and there is none: no driver, too old a driver, no visible GPU. NULL: no GPU. */
    enum chex_status (*devices)(struct chex_gpu_list *out, struct chex_error *err);
};

/* Raw batches. Without this table the engine accepts none. */
struct chex_engine_resident {
    /* Whether the engine can crop and augment stored rows of this side. */
    bool (*takes_raw)(void *self, int stored_px);
    /* Allocates the memory for raw batches, and for the rows themselves if they fit with a reserve.
     * Rows that do not fit are no error: resident_out reports it. Called at most once, before the
     * first raw batch. */
    enum chex_status (*make_resident)(void *self, const struct chex_resident_request *make_resident,
                                      struct chex_resident_result *resident_out,
                                      struct chex_error *err);
};

/* Choices between kernels that compute the same convolution (engine/kernel_choices.h). Call these
 * entries after create, before the engine has its state. */
struct chex_engine_choices {
    /* The choices in use, as lines of text. The first names the kind of device, each other one is
     * "CONVOLUTION: KERNEL". The caller frees it. */
    enum chex_status (*get)(void *self, char **text_out, struct chex_error *err);
    /* Uses the choices of such a text. A convolution that it does not name keeps its choice; so
     * does one whose kernel this engine does not have, with a warning. */
    enum chex_status (*set)(void *self, const char *text, struct chex_error *err);
    /* Measures the kernels of each convolution on the device, for at most limit_s seconds, and uses
     * the fastest. What an earlier measurement on the same kind of device found is not measured
     * again. The state is undefined afterwards. */
    enum chex_status (*measure)(void *self, double limit_s, struct chex_error *err);
};

/* The table of an engine. engine.c lists one per engine.
 * - All entries are set, except `load` and the optional tables.
 * - Error texts have the form: object, value, limit.
 * - Only entries marked "Collective" need all ranks. */
struct chex_engine_impl {
    const char *name;    /* "cpu" */
    const char *summary; /* for chex-env */
    /* Opens the module that holds the engine and returns its table. The module stays open.
     * This table has only name, summary and load; the returned one is complete. CHEX_E_ENV: the
     * module is missing or cannot be loaded. NULL: this table is complete. */
    enum chex_status (*load)(const struct chex_engine_impl **impl_out, struct chex_error *err);
    /* Whether the engine can run on this machine. text_out: with which hardware, for example
     * "avx2, 2 threads". On failure err says why not. */
    enum chex_status (*probe)(char *text_out, size_t size, struct chex_error *err);

    /* Refuses a variant (NULL: the default) or precision that the engine does not have here, before
     * anything is built. NULL: it has all of them, or `create` refuses. */
    enum chex_status (*check)(const char *variant, enum chex_precision precision,
                              struct chex_error *err);
    /* After `check`. After a failure the caller destroys *self_out, unless it is NULL. */
    enum chex_status (*create)(const struct chex_engine_config *config, void **self_out,
                               struct chex_error *err);
    void (*destroy)(void *self);        /* self may be NULL or half built */
    const char *(*variant)(void *self); /* variant in use: "avx2" */
    uint64_t (*bytes)(void *self);      /* bytes that the engine holds now */
    /* Copy one part of the state: state_count elements in row-major order, host memory. */
    enum chex_status (*set)(void *self, enum chex_state_part part, const float *state,
                            struct chex_error *err);
    enum chex_status (*get)(void *self, enum chex_state_part part, float *state_out,
                            struct chex_error *err);
    /* The same for a gradient vector. For tests and checks. */
    enum chex_status (*grad_get)(void *self, const float *grad, float *out, struct chex_error *err);

    /* Forward with the running statistics. logits_out: (n, classes), host memory. */
    enum chex_status (*infer)(void *self, const struct chex_batch *batch, float *logits_out,
                              struct chex_error *err);
    /* Forward with the batch's statistics, loss and backward. Overwrites grad_out, which comes
     * from chex_engine_grad_alloc or from reduce_memory. ready may be NULL. */
    enum chex_status (*pass)(void *self, const struct chex_batch *batch, float *grad_out,
                             chex_grad_ready_fn ready, void *ready_arg,
                             struct chex_pass_result *result_out, struct chex_error *err);
    /* One optimiser step with the reduced gradient; also moves the running statistics. */
    enum chex_status (*update)(void *self, const struct chex_update *update, const float *grad,
                               struct chex_error *err);
    /* Returns the norms of the updates since the last call, and starts anew. Waits for them. An
     * update that is skipped (fp16) counts as none. */
    enum chex_status (*grad_norms)(void *self, struct chex_grad_norms *out, struct chex_error *err);

    const struct chex_engine_maps *maps;
    const struct chex_engine_overlap *overlap;
    const struct chex_engine_timing *timing;
    const struct chex_engine_capacity *capacity;
    const struct chex_engine_device *device;
    const struct chex_engine_hardware *hardware;
    const struct chex_engine_resident *resident;
    const struct chex_engine_choices *choices;
};

struct chex_engine {
    const struct chex_engine_impl *impl;
    void *self;
    struct chex_engine_config config;
    int raw_px; /* largest side of a stored row in a raw batch; 0: no raw batches */
    float *begun[CHEX_INFER_BATCHES]; /* logits of the batches begun and not ended, oldest first */
    int begun_count;
};

/* The engines compiled in, NULL-terminated. */
extern const struct chex_engine_impl *const chex_engines[];

/* Creates an engine.
 * - spec: "cpu", "ref", "cpu:avx2". The caller has resolved "auto" (engine/choose.h).
 * - Checks image size, batch and threads of config first: CHEX_E_USAGE.
 * - config->variant is replaced by the variant in spec. */
enum chex_status chex_engine_create(const char *spec, const struct chex_engine_config *config,
                                    struct chex_engine **engine_out, struct chex_error *err);
/* The same by a table that is not in the list, without its checks. */
enum chex_status chex_engine_make(const struct chex_engine_impl *impl,
                                  const struct chex_engine_config *config,
                                  struct chex_engine **engine_out, struct chex_error *err);
void chex_engine_destroy(struct chex_engine *engine); /* NULL allowed */
CHEX_AUTO_POINTER(struct chex_engine, chex_engine_destroy)

/* Whether the engine in `spec` exists here and has this variant and precision; its table.
 * CHEX_E_USAGE, CHEX_E_ENV. chex_engine_create checks again. */
enum chex_status chex_engine_check(const char *spec, enum chex_precision precision,
                                   const struct chex_engine_impl **impl_out,
                                   struct chex_error *err);

/* The entry of chex_engines for the engine in `spec`. *variant_out: in `spec`, or NULL.
 * CHEX_E_USAGE: unknown name. */
enum chex_status chex_engine_find(const char *spec, const char **variant_out,
                                  const struct chex_engine_impl **impl_out, struct chex_error *err);

/* Returns the complete table of the engine in `spec`, from its module if it has one. */
enum chex_status chex_engine_load(const char *spec, const struct chex_engine_impl **impl_out,
                                  struct chex_error *err);

/* Default of --precision for the engine in `spec`: a 16-bit type if the hardware is much faster
 * with it than with fp32, else fp32. */
enum chex_precision chex_engine_usual_precision(const char *spec);

/* The entries of chex_engine_impl, with checked arguments. */
enum chex_status chex_engine_set(struct chex_engine *e, enum chex_state_part part,
                                 const float *state, struct chex_error *err);
enum chex_status chex_engine_get(struct chex_engine *e, enum chex_state_part part, float *state_out,
                                 struct chex_error *err);
enum chex_status chex_engine_infer(struct chex_engine *e, const struct chex_batch *batch,
                                   float *logits_out, struct chex_error *err);
/* Exchanges the parameters and the moving average: infer then uses the average. Call it again
 * before the next pass or update. Two calls restore every bit. CHEX_E_FAIL: the engine keeps no
 * average. */
enum chex_status chex_engine_swap_ema(struct chex_engine *e, struct chex_error *err);
/* The same in two calls, so that an engine may overlap the work of consecutive batches. The logits
 * are the bits of infer.
 * - begin: starts a batch. logits_out is the engine's until the batch is ended; the batch itself is
 *   free when the call returns.
 * - end: completes the oldest batch that was begun. Its logits are in its logits_out.
 * - At most CHEX_INFER_BATCHES batches are begun and not ended. Until all are ended, no call but
 *   begin, end and destroy. A batch whose begin failed is not begun; one whose end failed is ended.
 */
enum chex_status chex_engine_infer_begin(struct chex_engine *e, const struct chex_batch *batch,
                                         float *logits_out, struct chex_error *err);
enum chex_status chex_engine_infer_end(struct chex_engine *e, struct chex_error *err);
/* CHEX_E_FAIL: the engine has no class maps. */
enum chex_status chex_engine_class_maps(struct chex_engine *e, int image, float *maps_out,
                                        struct chex_error *err);
/* CHEX_E_FAIL: the engine has no pooled features. */
enum chex_status chex_engine_features(struct chex_engine *e, int n, float *features_out,
                                      struct chex_error *err);
enum chex_status chex_engine_pass(struct chex_engine *e, const struct chex_batch *batch,
                                  float *grad_out, chex_grad_ready_fn ready, void *ready_arg,
                                  struct chex_pass_result *result_out, struct chex_error *err);
enum chex_status chex_engine_update(struct chex_engine *e, const struct chex_update *update,
                                    const float *grad, struct chex_error *err);
enum chex_status chex_engine_grad_norms(struct chex_engine *e, struct chex_grad_norms *out,
                                        struct chex_error *err);
/* If the engine accepts no raw batches, resident_out is all false. */
enum chex_status chex_engine_make_resident(struct chex_engine *e,
                                           const struct chex_resident_request *make_resident,
                                           struct chex_resident_result *resident_out,
                                           struct chex_error *err);
float *chex_engine_grad_alloc(struct chex_engine *e);
void chex_engine_grad_free(struct chex_engine *e, float *grad);

#endif
