/* SPDX-License-Identifier: Apache-2.0
 *
 * The CUDA engine's own state, shared by its host files: cuda_engine.c (life and the table of
 * calls), cuda_plan.c (ways and memory), cuda_state.c (parameters in and out, the update),
 * cuda_forward.c and cuda_backward.c (the op list on a stream), cuda_input.c (raw batches),
 * cuda_run.c (batches, captured graphs, when things happen), cuda_maps.c (class maps).
 *
 * All work of an engine is on one stream, uploads on a second. Nothing waits for the device but: a
 * pass for its loss, which is known before backward begins; infer for its logits; class_maps, get
 * and grad_get.
 */
#ifndef CHEX_ENGINE_CUDA_CUDA_ENGINE_H
#define CHEX_ENGINE_CUDA_CUDA_ENGINE_H

#include "engine/cuda/device.h"
#include "engine/cuda/gpu.h"
#include "engine/cuda/reduce.h"
#include "engine/engine.h"

enum {
    CUDA_SLOTS = 2,               /* batches that are uploaded or worked on */
    CUDA_SEGMENTS = 4,            /* parts of backward after which gradients are handed on */
    CUDA_GRAPHS = 64,             /* captured */
    CUDA_ALIGN = 256,             /* of everything in device memory */
    CUDA_WAY_NAMES = 5,           /* the longest list of ways to try */
    CUDA_OTHERS_BYTES = 64 << 20, /* of device memory: what the driver, cuDNN and NCCL take */
};

struct cuda_buf {
    int hw, channels;
    bool normed;             /* some batch norm reads it */
    char *x, *g;             /* (batch, hw, hw, channels); g NULL unless training */
    float *mean, *var, *inv; /* of the batch, [channels] */
    float *bsum, *csum;      /* gpu.h, backward */
};

struct cuda_op {
    const struct gpu_way *forward_way, *backward_way; /* CONV, but for the own stem */
    void *forward_state, *backward_state;
    bool own_stem;           /* stem.cu instead of a way */
    char *weight, *weight_t; /* copies of the engine's type */
    uint8_t *argmax;         /* MAXPOOL */
    bool add, side_add;      /* see engine/lifetimes.h */
};

/* Where a batch waits for its turn. */
struct cuda_slot {
    float *pixels_host;  /* pinned; NULL before the first batch of pixels */
    int8_t *labels_host; /* pinned */
    float *pixels;       /* device */
    int8_t *labels;
    uint8_t *stored_host, *stored; /* raw batches: pinned, device; crops likewise */
    struct gpu_crop *crops_host, *crops;
    float *shifts;        /* device: gpu_augment's */
    bool contrast;        /* some crop has it */
    cudaEvent_t uploaded; /* the device has it */
    cudaEvent_t consumed; /* its pass is through */
};

/* What raw batches need; cuda_input.c. */
struct cuda_raw {
    int stored_px; /* 0: not prepared for them */
    size_t row_bytes;
    char *staging;     /* device: the slots' parts */
    uint8_t *held;     /* device: rows [first, end); NULL: none are held */
    size_t first, end; /* of the set */
    bool *there;       /* (end - first) host: it came with some batch */
    uint64_t bytes;    /* of device memory */
};

/* What was captured once and is launched since. */
struct cuda_graph {
    cudaGraphExec_t exec; /* NULL: run once, not yet captured */
    int part;             /* enum cuda_part, or a segment of backward */
    int slot, n;
    const float *grad;
    int optim;
};

struct cuda_engine {
    const struct chex_net *net;
    struct chex_engine_config config;
    struct gpu_device device;
    enum gpu_type type; /* of maps and of the weights' copies */
    int stage;          /* 0..4 */
    char variant[8];    /* "s4" */

    cudaStream_t stream, uploads;
    struct gpu_reduce *reduce; /* NULL: gradients are not reduced, or in host memory */
    char *arena;               /* all device memory but gradient vectors */
    size_t arena_bytes, arena_at;
    uint64_t vector_bytes; /* of gradient vectors */

    struct cuda_op *ops;
    struct cuda_buf *bufs;
    float **running_inv;  /* per batch norm */
    bool running_current; /* those are of the present state */

    float *w, *moment[2]; /* state_count each */
    char *copies, *copies_t;
    size_t copies_count, copies_t_count;
    struct gpu_param *params;    /* device */
    struct gpu_report_job *jobs; /* device; one a batch norm */
    float *norms;
    struct gpu_step *step, *step_host; /* device, pinned */
    struct gpu_loss_scale *loss_scale; /* device; fp16 only */
    char *shared_sums;                 /* bsum and csum of all buffers, to be zeroed together */
    size_t shared_sums_bytes;
    float *partial[2]; /* of an op and of its side */
    unsigned *ticket;  /* 2 * GPU_TICKETS */
    float *pooled, *dpooled, *logits, *dlogits;
    double *loss, *loss_host; /* device, pinned */
    float *logits_host;       /* pinned */
    float *padded_dweight;    /* the first convolution's, with padded input channels */
    char *image;              /* (batch, size, size, image_channels) */
    int image_channels;       /* 3 and padding */
    char *folded;             /* weights of the own stem */
    void *workspace;
    size_t workspace_bytes;

    struct cuda_slot slots[CUDA_SLOTS];
    struct cuda_raw raw;
    int slot;                           /* of the last pass */
    int segment_end[CUDA_SEGMENTS + 1]; /* op indices: segment k is ops [end[k+1], end[k]) */
    int segments;
    cudaEvent_t segment_done[CUDA_SEGMENTS + 1]; /* [0]: the batch statistics */
    /* With times, and in turn, because a pass reads those of the backward before it. */
    cudaEvent_t forward_began[2], forward_done[2], backward_done[2];
    int passes;  /* so far; its parity is the turn */
    bool waited; /* for a loss, since the last update */
    struct cuda_graph graphs[CUDA_GRAPHS];
    int graph_count;
    bool no_graphs; /* CHEX_CUDA_GRAPHS=0: every kernel is launched by itself */
    /* Of the last pass, for measuring; last_n 0: none. */
    int last_n;
    float *last_grad;
};

/* As device memory is laid out. */
static inline size_t cuda_padded(size_t bytes) {
    return (bytes + CUDA_ALIGN - 1) / CUDA_ALIGN * CUDA_ALIGN;
}
/* Device memory that stays free for what is asked for later: gradient vectors; what the driver,
 * cuDNN and NCCL take. */
static inline size_t cuda_reserve_bytes(const struct cuda_engine *e) {
    return 4 * e->net->state_count * sizeof(float) + CUDA_OTHERS_BYTES;
}

/* ---- cuda_plan.c ---- */
/* Ways, states and all device memory. */
enum chex_status chex_cuda_plan(struct cuda_engine *e, struct chex_error *err);
void chex_cuda_plan_release(struct cuda_engine *e);
/* Of the arena with another largest batch, by the ways of this one; before the first pass. */
size_t chex_cuda_arena_bytes(struct cuda_engine *e, int batch);
/* The slice [first, first + channels) of a buffer for n images; its gradient. */
struct gpu_map chex_cuda_x(const struct cuda_engine *e, int buffer, int n, int first, int channels);
struct gpu_map chex_cuda_g(const struct cuda_engine *e, int buffer, int n, int first, int channels);
/* The input map of an op, the image included. */
struct gpu_map chex_cuda_in(const struct cuda_engine *e, const struct chex_op *op, int n);
/* A batch norm as kernels see it, with the batch's statistics or the running ones. */
struct gpu_norm chex_cuda_norm(const struct cuda_engine *e, int bn, bool relu, bool training);
struct gpu_conv_forward chex_cuda_conv_forward(const struct cuda_engine *e, int op, int n,
                                               bool training);
struct gpu_conv_backward chex_cuda_conv_backward(const struct cuda_engine *e, int op, int n,
                                                 float *grad);
struct gpu_stats chex_cuda_stats(const struct cuda_engine *e, const struct chex_op *op,
                                 bool training);
struct gpu_sums chex_cuda_sums(const struct cuda_engine *e, int bn, int side, float *grad);
struct gpu_taken chex_cuda_taken(const struct cuda_engine *e, const struct chex_op *op, int n);

/* ---- cuda_forward.c, cuda_backward.c: enqueue ops on e->stream ---- */
enum chex_status chex_cuda_forward_op(struct cuda_engine *e, int op, const struct cuda_slot *slot,
                                      int n, bool training, struct chex_error *err);
enum chex_status chex_cuda_backward_op(struct cuda_engine *e, int op, const struct cuda_slot *slot,
                                       int n, float *grad, struct chex_error *err);

/* ---- cuda_state.c ---- */
enum chex_status chex_cuda_state_init(struct cuda_engine *e, struct chex_error *err);
enum chex_status chex_cuda_set(void *self, enum chex_state_part part, const float *state,
                               struct chex_error *err);
enum chex_status chex_cuda_get(void *self, enum chex_state_part part, float *state_out,
                               struct chex_error *err);
enum chex_status chex_cuda_grad_get(void *self, const float *grad, float *out,
                                    struct chex_error *err);
enum chex_status chex_cuda_update(void *self, const struct chex_update *update, const float *grad,
                                  struct chex_error *err);
/* The running statistics' inv of every batch norm, where they have changed since the last call. */
enum chex_status chex_cuda_running(struct cuda_engine *e, struct chex_error *err);
float *chex_cuda_grad_alloc(void *self);
void chex_cuda_grad_free(void *self, float *grad);

/* ---- cuda_input.c ---- */
bool chex_cuda_takes_raw(void *self, int stored_px);
enum chex_status chex_cuda_hold(void *self, const struct chex_hold *hold, struct chex_held *out,
                                struct chex_error *err);
void chex_cuda_input_release(struct cuda_engine *e);
/* Device memory in which raw batches of up to `batch` images wait; 0 where none are taken. */
size_t chex_cuda_slots_bytes(const struct cuda_engine *e, int batch);
/* Copies a raw batch aside and sends it on e->uploads; the slot's pinned and device memory is free.
 */
enum chex_status chex_cuda_send_raw(struct cuda_engine *e, struct cuda_slot *slot,
                                    const struct chex_batch *batch, struct chex_error *err);
/* The slot's pixels of it, on e->stream. */
enum chex_status chex_cuda_make_pixels(struct cuda_engine *e, const struct cuda_slot *slot,
                                       const struct chex_batch *batch, struct chex_error *err);

/* ---- cuda_maps.c ---- */
/* class_maps of struct chex_engine_impl. */
enum chex_status chex_cuda_class_maps(void *self, int image, float *maps_out,
                                      struct chex_error *err);

/* ---- cuda_run.c ---- */
/* reduce_memory of struct chex_engine_impl. */
enum chex_status chex_cuda_reduce_memory(void *self, struct chex_launch *launch,
                                         uint64_t timeout_ms,
                                         const struct chex_reduce_memory **memory_out,
                                         struct chex_error *err);
enum chex_status chex_cuda_run_init(struct cuda_engine *e, struct chex_error *err);
void chex_cuda_run_release(struct cuda_engine *e);
enum chex_status chex_cuda_infer(void *self, const struct chex_batch *batch, float *logits_out,
                                 struct chex_error *err);
enum chex_status chex_cuda_pass(void *self, const struct chex_batch *batch, float *grad_out,
                                chex_grad_ready_fn ready, void *ready_arg,
                                struct chex_pass_result *result_out, struct chex_error *err);
void chex_cuda_op_times(void *self, double *forward_s, double *backward_s);
/* What follows a captured or launched part: enqueue's argument. */
typedef enum chex_status (*cuda_enqueue_fn)(struct cuda_engine *e, const struct cuda_graph *what,
                                            struct chex_error *err);
/* Runs `enqueue`: directly on the first call with these keys, from then on as a graph of it. */
enum chex_status chex_cuda_launch(struct cuda_engine *e, const struct cuda_graph *what,
                                  cuda_enqueue_fn enqueue, struct chex_error *err);
enum cuda_part { CUDA_PART_FORWARD = 100, CUDA_PART_INFER, CUDA_PART_UPDATE };

/* ---- cuda_limits.c: see struct chex_engine_impl ---- */
enum chex_status chex_cuda_limits(void *self, uint64_t most_bytes,
                                  struct chex_engine_limits *limits_out, struct chex_error *err);

#endif
