/* SPDX-License-Identifier: Apache-2.0
 *
 * The private state of the CUDA engine, and the functions that its host files share:
 *   cuda_engine.c                   create, destroy, table of entries
 *   cuda_buffers.c                  fixed choice of convolution algorithms, layout of device memory
 *   cuda_choices.c cuda_measure.c   other choices: by measurement, or as another engine made them
 *   cuda_state.c                    parameters in and out, optimiser update
 *   cuda_forward.c cuda_backward.c  launch the operations on a stream
 *   cuda_input.c                    raw batches (stored bytes, augmented on the device)
 *   cuda_run.c                      batches, synchronisation
 *   cuda_graphs.c                   captured graphs
 *   cuda_sync.c                     batch statistics of several logical ranks
 *   cuda_maps.c                     class maps
 *   cuda_limits.c                   measured memory and copy rates
 *
 * An engine uses one stream for all its kernels and a second one for uploads. Only these calls wait
 * for the device:
 *   - pass, for its loss; backward may still be running when it returns;
 *   - infer and infer_end, for the logits of a batch. infer_begin waits for nothing but the slot
 *     that it needs, so that a batch is uploaded while the one before it is computed;
 *   - pass with config.sync, at each batch norm;
 *   - set, get, grad_get and class_maps and features, for their copies.
 */
#ifndef CHEX_ENGINE_CUDA_HOST_CUDA_ENGINE_H
#define CHEX_ENGINE_CUDA_HOST_CUDA_ENGINE_H

#include "engine/cuda/host/device.h"
#include "engine/cuda/host/gpu.h"
#include "engine/cuda/nccl/cuda_reduce.h"
#include "engine/engine.h"

enum {
    CUDA_SLOTS = 2,    /* batches in flight: one is uploaded, one is computed */
    CUDA_SEGMENTS = 5, /* parts of backward; after each, gradients are reported ready */
    CUDA_GRAPHS = 64,  /* captured graphs, at most */
    CUDA_ALIGN = 256,  /* alignment of every block in device memory, bytes */
    CUDA_S5_CAPABILITY = 90,
    CUDA_ALGO_NAMES = 8,       /* algorithms tried for one convolution, at most */
    CUDA_CANDIDATES = 32,      /* kernels compared for one convolution, at most */
    CUDA_CANDIDATE_BYTES = 96, /* text of one of them */
    /* Device memory reserved for what the driver allocates later: code that is loaded on first
     * use, captured graphs, cuDNN; and for NCCL's buffers, for each rank of the node. Guesses. */
    CUDA_DRIVER_BYTES = 512 << 20,
    CUDA_RANK_BYTES = 64 << 20,
    CUDA_PARTS_BYTES = 64 << 20, /* parts of weight gradients that wait to be added. A guess. */
};

enum cuda_stage { CUDA_S0, CUDA_S1, CUDA_S4, CUDA_S5, CUDA_STAGES }; /* see cuda_engine.c */

struct cuda_buf {
    int hw, channels;
    bool normed;             /* a batch norm reads the buffer */
    char *x, *g;             /* (batch, hw, hw, channels); g NULL unless training */
    float *mean, *var, *inv; /* of the batch, [channels] */
    float *bsum, *csum;      /* gpu.h, backward */
};

/* A kernel for one direction of a convolution. */
struct cuda_kernel {
    const struct gpu_conv_algo *algo;
    void *state; /* of the algorithm; owned by cuda_op */
    int variant;
};

struct cuda_op {
    struct cuda_kernel kernel[2]; /* CONV without own_stem: of forward, of backward */
    bool own_stem;                /* CONV by stem.cu instead of an algorithm */
    char *weight, *weight_t;      /* copies of the engine's type */
    uint8_t *argmax;              /* MAXPOOL */
    bool add, side_add;           /* see engine/lifetimes.h */
    size_t backward_bytes;        /* of the workspace */
};

/* Host and device buffers of one batch in flight. */
struct cuda_slot {
    float *pixels_host;  /* pinned; NULL before the first batch of pixels */
    int8_t *labels_host; /* pinned */
    float *pixels;       /* device */
    int8_t *labels;
    uint8_t *stored_host, *stored; /* raw batches: pinned, device; same for crops */
    struct gpu_crop *crops_host, *crops;
    float *shifts;        /* device: scratch of gpu_augment */
    bool contrast;        /* some crop changes the contrast */
    cudaEvent_t uploaded; /* the upload of the batch is complete */
    cudaEvent_t consumed; /* the pass over the batch is complete */
    float *logits_host;   /* pinned: logits of an inference */
    int n;                /* images of the inference */
};

/* State of raw batches; see cuda_input.c. */
struct cuda_raw {
    int stored_px; /* 0: raw batches are not prepared */
    size_t row_bytes;
    char *staging;     /* device: buffers of the slots */
    uint8_t *resident; /* device: rows [first, end); NULL: rows are not resident */
    size_t first, end; /* row numbers of the set */
    bool *uploaded;    /* host, end - first flags: the row was uploaded */
    uint64_t bytes;    /* device memory in use */
};

/* A captured graph and its key (all members after used). */
struct cuda_graph {
    cudaGraphExec_t exec; /* NULL: run once, captured at the second run */
    uint64_t used;        /* graph_uses at its last use */
    int part;             /* enum cuda_part, or a segment of backward */
    int slot, n;
    const float *grad;
    int optim;
    bool clips;
};

struct cuda_engine {
    const struct chex_net *net;
    struct chex_engine_config config;
    struct gpu_device device;
    enum gpu_type type; /* type of maps and of the weight copies */
    enum cuda_stage stage;
    const char *variant; /* "s4" */

    cudaStream_t stream, uploads;
    struct gpu_reduce *reduce; /* NULL: gradients are not reduced, or reduced in host memory */
    char *arena;               /* one device allocation for all except vectors and raw batches */
    size_t arena_bytes, arena_at;
    uint64_t vector_bytes; /* device memory of gradient vectors */

    struct cuda_op *ops;
    struct cuda_buf *bufs;
    float **running_inv;  /* per batch norm */
    bool running_current; /* running_inv matches the present state */

    float *w, *moment[2], *ema; /* state_count each; ema NULL: none is kept */
    char *copies, *copies_t;
    size_t copies_count, copies_t_count;
    struct gpu_param *params;    /* device */
    struct gpu_report_job *jobs; /* device; one for each batch norm */
    float *norms;
    struct gpu_step *step, *step_host; /* device, pinned */
    struct gpu_clip *clip;             /* device */
    struct gpu_loss_scale *loss_scale; /* device; fp16 only */
    char *shared_sums;                 /* bsum and csum of all buffers, zeroed with one memset */
    size_t shared_sums_bytes;
    char *maps,
        *statistics; /* parts of the arena: maps and gradients; means, variances, inverses */
    size_t maps_bytes, statistics_bytes;
    float *partial[2]; /* scratch for an operation and for its side input */
    unsigned *ticket;  /* 2 * GPU_TICKETS */
    float *pooled, *dpooled, *logits, *dlogits;
    double *loss, *loss_host; /* device, pinned */
    struct gpu_loss_terms loss_terms;
    float *padded_dweight; /* of the first convolution, with padded input channels */
    char *image;           /* (batch, size, size, image_channels) */
    int image_channels;    /* 3 plus padding: 4 or 8 */
    char *folded;          /* folded weights of stem.cu */
    void *workspace; /* scratch of convolutions; workspace_at: in use by operations of backward */
    size_t workspace_bytes, workspace_at;
    struct gpu_side side; /* cuda_side.c; stream NULL: none */
    cudaEvent_t side_done;

    struct cuda_slot slots[CUDA_SLOTS];
    struct cuda_raw raw;
    int slot;  /* slot of the last batch */
    int begun; /* inferences begun and not ended; the last one is in slot */
    int segment_end[CUDA_SEGMENTS + 1]; /* op indices: segment k is ops [end[k+1], end[k]) */
    int segments;
    int first_trained;                           /* chex_first_trained_op: backward ends there */
    cudaEvent_t segment_done[CUDA_SEGMENTS + 1]; /* [0]: the batch statistics */
    /* Timing events. Two sets alternate: a pass reads the times of the backward before it. */
    cudaEvent_t forward_began[2], forward_done[2], backward_done[2];
    int passes;  /* passes so far; passes % 2 selects the set of timing events */
    bool waited; /* a pass has waited for its loss since the last update */
    struct cuda_graph graphs[CUDA_GRAPHS];
    int graph_count;
    uint64_t graph_uses;
    float *sync_host; /* pinned: three values for each channel of the widest map; only with sync */
    double *sync_values; /* two values */
    double *sync_sums;   /* two values, on the device */
    bool no_graphs;      /* single launches: CHEX_CUDA_GRAPHS is 0 or sync, or a capture failed */
    bool dependents;     /* kernels of a part are dependent launches (dependent.h) */
    bool sync_ops; /* CHEX_CUDA_GRAPHS=sync: wait after each operation, and name one that fails */
    /* Arguments of the last pass, for op_times; last_n 0: no pass yet. */
    int last_n;
    float *last_grad;
};

/* bytes rounded up to CUDA_ALIGN. */
static inline size_t cuda_padded(size_t bytes) {
    return (bytes + CUDA_ALIGN - 1) / CUDA_ALIGN * CUDA_ALIGN;
}
/* Device memory that the driver and libraries may allocate later. */
static inline size_t cuda_driver_bytes(const struct cuda_engine *e) {
    const size_t ranks = e->config.node_ranks > 1 ? (size_t)e->config.node_ranks : 0;
    return CUDA_DRIVER_BYTES + ranks * CUDA_RANK_BYTES;
}
/* Device memory that the arena leaves free for later allocations: gradient vectors and those. */
static inline size_t cuda_reserve_bytes(const struct cuda_engine *e) {
    const size_t vectors = e->config.training ? 4 * e->net->state_count * sizeof(float) : 0;
    return vectors + cuda_driver_bytes(e);
}

/* ---- cuda_buffers.c ---- */
/* Chooses and prepares the convolution algorithms; allocates and lays out the arena. */
enum chex_status chex_cuda_plan(struct cuda_engine *e, struct chex_error *err);
void chex_cuda_plan_release(struct cuda_engine *e);
/* Bytes of the arena for another batch size, with the algorithms chosen for this one. Call it
 * before the first pass. SIZE_MAX: out of host memory. */
size_t chex_cuda_arena_bytes(struct cuda_engine *e, int batch);
/* x: the slice [first, first + channels) of a buffer, n images. g: the same slice of its gradient.
 */
struct gpu_map chex_cuda_x(const struct cuda_engine *e, int buffer, int n, int first, int channels);
struct gpu_map chex_cuda_g(const struct cuda_engine *e, int buffer, int n, int first, int channels);
/* The input map of an operation; for the first one, the image. */
struct gpu_map chex_cuda_in(const struct cuda_engine *e, const struct chex_op *op, int n);
/* The kernels' view of a batch norm: batch statistics if training, else running statistics. bn < 0:
 * no norm. */
struct gpu_norm chex_cuda_norm(const struct cuda_engine *e, int bn, bool relu, bool training);
struct gpu_conv_forward chex_cuda_conv_forward(const struct cuda_engine *e, int op, int n,
                                               bool training);
struct gpu_conv_backward chex_cuda_conv_backward(const struct cuda_engine *e, int op, int n,
                                                 float *grad);
/* One direction of a convolution of a whole batch, as its algorithm gets it: f or b is NULL. grad:
 * of backward. */
struct cuda_conv {
    struct gpu_conv_forward forward;
    struct gpu_conv_backward backward;
    const struct gpu_conv_forward *f;
    const struct gpu_conv_backward *b;
};
void chex_cuda_conv(const struct cuda_engine *e, int op, bool backward, float *grad,
                    struct cuda_conv *out);
struct gpu_stats chex_cuda_stats(const struct cuda_engine *e, const struct chex_op *op,
                                 bool training);
struct gpu_sums chex_cuda_sums(const struct cuda_engine *e, int bn, int side, float *grad);
struct gpu_deferred_grad chex_cuda_deferred_grad(const struct cuda_engine *e,
                                                 const struct chex_op *op, int n);

/* The algorithms of the engine's stage that are compiled in, in the order in which it tries them.
 * Returns how many. */
int chex_cuda_stage_algos(const struct cuda_engine *e,
                          const struct gpu_conv_algo *out[CUDA_ALGO_NAMES]);

/* ---- cuda_choices.c ---- */
/* The kernels that the engine may use, the fixed choice first. Returns how many, at least 1. Only
 * the first of them can be a fallback. */
int chex_cuda_candidates(const struct cuda_engine *e, int op, bool backward,
                         struct cuda_kernel out[CUDA_CANDIDATES]);
/* Bytes of the workspace for any of them. */
size_t chex_cuda_candidates_bytes(const struct cuda_engine *e, int op, bool backward);
/* Bytes of the workspace for the choice in use. */
size_t chex_cuda_choice_bytes(const struct cuda_engine *e, int op, bool backward);
/* "ALGORITHM", or "ALGORITHM VARIANT". */
void chex_cuda_candidate_text(const struct cuda_kernel *c, bool backward,
                              char out[CUDA_CANDIDATE_BYTES]);
/* Entries of struct chex_engine_choices. */
enum chex_status chex_cuda_choices_get(void *self, char **text_out, struct chex_error *err);
enum chex_status chex_cuda_choices_set(void *self, const char *text, struct chex_error *err);
enum chex_status chex_cuda_choices_measure(void *self, double limit_s, struct chex_error *err);

/* ---- cuda_measure.c ---- */
/* Fills the maps, statistics and weights with values that are the same in every call. */
enum chex_status chex_cuda_measure_begin(struct cuda_engine *e, struct chex_error *err);
/* Times the candidates of one direction of a convolution, after chex_cuda_measure_begin.
 *   - best_out: index of the fastest, by chex_cuda_fastest.
 *   - A candidate that cannot be launched, or whose results differ from those of the first one by
 *     more than rounding, is left out with a warning.
 *   - CHEX_E_FAIL: none can be launched, or one failed as it ran: the device cannot be used then.
 */
enum chex_status chex_cuda_measure(struct cuda_engine *e, int op, bool backward,
                                   const struct cuda_kernel *candidates, int count, int *best_out,
                                   struct chex_error *err);
/* The first whose time is within 3 % of the least; times that are not positive do not count. -1:
 * none counts. */
int chex_cuda_fastest(const double *seconds, int count);

/* ---- cuda_side.c ---- */
enum chex_status chex_cuda_side_init(struct cuda_engine *e, struct chex_error *err);
void chex_cuda_side_release(struct cuda_engine *e);
/* Scratch for the backward of an operation. It stays in use until the next join. */
enum chex_status chex_cuda_take_workspace(struct cuda_engine *e, size_t bytes, void **out,
                                          struct chex_error *err);
/* e->stream waits for all sums of weight gradients. */
enum chex_status chex_cuda_join(struct cuda_engine *e, struct chex_error *err);

/* ---- cuda_forward.c, cuda_backward.c: enqueue ops on e->stream ---- */
enum chex_status chex_cuda_forward_op(struct cuda_engine *e, int op, const struct cuda_slot *slot,
                                      int n, bool training, struct chex_error *err);
enum chex_status chex_cuda_backward_op(struct cuda_engine *e, int op, const struct cuda_slot *slot,
                                       int n, float *grad, struct chex_error *err);

/* ---- cuda_state.c ---- */
enum chex_status chex_cuda_state_init(struct cuda_engine *e, struct chex_error *err);
/* Zeroes the moments and the weight copies. */
enum chex_status chex_cuda_state_clear(struct cuda_engine *e, struct chex_error *err);
enum chex_status chex_cuda_set(void *self, enum chex_state_part part, const float *state,
                               struct chex_error *err);
enum chex_status chex_cuda_get(void *self, enum chex_state_part part, float *state_out,
                               struct chex_error *err);
enum chex_status chex_cuda_grad_get(void *self, const float *grad, float *out,
                                    struct chex_error *err);
enum chex_status chex_cuda_update(void *self, const struct chex_update *update, const float *grad,
                                  struct chex_error *err);
enum chex_status chex_cuda_grad_norms(void *self, struct chex_grad_norms *out,
                                      struct chex_error *err);
/* Recomputes running_inv of every batch norm if the state has changed since the last call. */
enum chex_status chex_cuda_running(struct cuda_engine *e, struct chex_error *err);
float *chex_cuda_grad_alloc(void *self);
void chex_cuda_grad_free(void *self, float *grad);

/* ---- cuda_input.c ---- */
bool chex_cuda_takes_raw(void *self, int stored_px);
enum chex_status chex_cuda_make_resident(void *self,
                                         const struct chex_resident_request *make_resident,
                                         struct chex_resident_result *out, struct chex_error *err);
void chex_cuda_input_release(struct cuda_engine *e);
/* Device memory of the slots for raw batches of up to `batch` images; 0: not prepared for raw
 * batches. */
size_t chex_cuda_slots_bytes(const struct cuda_engine *e, int batch);
/* Copies a raw batch to pinned memory and enqueues its upload on e->uploads. The slot's pinned and
 * device memory must be free. */
enum chex_status chex_cuda_send_raw(struct cuda_engine *e, struct cuda_slot *slot,
                                    const struct chex_batch *batch, struct chex_error *err);
/* Enqueues crop and augmentation of the slot's rows to its pixels, on e->stream. */
enum chex_status chex_cuda_make_pixels(struct cuda_engine *e, const struct cuda_slot *slot,
                                       const struct chex_batch *batch, struct chex_error *err);

/* ---- cuda_maps.c ---- */
/* Entries of struct chex_engine_maps. */
enum chex_status chex_cuda_class_maps(void *self, int image, float *maps_out,
                                      struct chex_error *err);
enum chex_status chex_cuda_features(void *self, int n, float *features_out, struct chex_error *err);

/* ---- cuda_run.c ---- */
/* Entry of struct chex_engine_device. */
enum chex_status chex_cuda_reduce_memory(void *self, struct chex_launch *launch,
                                         struct chex_group *group, uint64_t timeout_ms,
                                         const struct chex_reduce_memory **memory_out,
                                         struct chex_error *err);
enum chex_status chex_cuda_run_init(struct cuda_engine *e, struct chex_error *err);
void chex_cuda_run_release(struct cuda_engine *e);
enum chex_status chex_cuda_infer(void *self, const struct chex_batch *batch, float *logits_out,
                                 struct chex_error *err);
/* Entries of struct chex_engine_overlap. */
enum chex_status chex_cuda_infer_begin(void *self, const struct chex_batch *batch,
                                       struct chex_error *err);
enum chex_status chex_cuda_infer_end(void *self, float *logits_out, struct chex_error *err);
enum chex_status chex_cuda_pass(void *self, const struct chex_batch *batch, float *grad_out,
                                chex_grad_ready_fn ready, void *ready_arg,
                                struct chex_pass_result *result_out, struct chex_error *err);
void chex_cuda_op_times(void *self, double *forward_s, double *backward_s);

/* ---- cuda_graphs.c ---- */
/* Enqueues one part of a step on e->stream. `what` names the part and its arguments. */
typedef enum chex_status (*cuda_enqueue_fn)(struct cuda_engine *e, const struct cuda_graph *what,
                                            struct chex_error *err);
/* Runs `enqueue`: by single launches on the first call with this key, later as a captured graph. */
enum chex_status chex_cuda_launch(struct cuda_engine *e, const struct cuda_graph *what,
                                  cuda_enqueue_fn enqueue, struct chex_error *err);
enum cuda_part { CUDA_PART_FORWARD = 100, CUDA_PART_INFER, CUDA_PART_UPDATE };
void chex_cuda_graphs_release(struct cuda_engine *e);

/* ---- cuda_sync.c: all do nothing without config.sync ---- */
enum chex_status chex_cuda_sync_init(struct cuda_engine *e, struct chex_error *err);
void chex_cuda_sync_release(struct cuda_engine *e);
/* After the forward of an operation in training: the statistics of its output become those of all
 * logical ranks. Waits for the device. */
enum chex_status chex_cuda_sync_stats(struct cuda_engine *e, const struct chex_op *op,
                                      struct chex_error *err);
/* Before the backward of an operation: the same for the deferred terms of its output. They are
 * means over the logical ranks, because they are linear in the sums S1 and S2 of each. */
enum chex_status chex_cuda_sync_grad(struct cuda_engine *e, const struct chex_op *op,
                                     struct chex_error *err);

/* ---- cuda_limits.c: entry of struct chex_engine_capacity ---- */
enum chex_status chex_cuda_limits(void *self, uint64_t max_bytes,
                                  struct chex_engine_limits *limits_out, struct chex_error *err);

#endif
