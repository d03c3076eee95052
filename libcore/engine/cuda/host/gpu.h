/* SPDX-License-Identifier: Apache-2.0
 *
 * The interface between the CUDA engine's host files and its kernels: feature maps in device
 * memory, batch norms, convolution algorithms, and the kernel launchers.
 *
 * Layout. A map is NHWC: channel c of pixel (i, y, x) is element
 * ((i * hw + y) * hw + x) * pitch + c. A network buffer is one allocation; its pitch is its number
 * of channels. A slice is a shifted pointer with the same pitch. Slices begin at multiples of 32
 * channels. Element offsets are 64 bits wide.
 *
 * Convolution weights are stored as (out, ky, kx, in): in the fp32 master weights, in the gradient
 * vector, and in the copies of type `enum gpu_type` that kernels read.
 *
 * Batch norm. y = fma(a, x, b) with a = gamma * inv and b = fma(-mean, a, beta), in fp32, then
 * max(y, 0). Every kernel, forward and backward, uses exactly this form. So the ReLU passes the
 * same elements in both directions. Convolution inputs are rounded to the map's type.
 *
 * Backward (arithmetic of dx: Ioffe and Szegedy 2015, rearranged). dU is the gradient after the
 * ReLU mask. S1 = sum dU and S2 = sum dU * (x - mean) * inv, over the n pixels of the channel:
 *     dx = A dU + B x + C,  A = a,  B = -a S2 inv / n,  C = -a (S1 / n - mean inv S2 / n).
 * B and C depend on complete sums, so they are deferred. Every operation that reads a channel adds
 * A dU to the buffer's gradient map G at once. When its sums are complete, it adds B and C to the
 * buffer's vectors bsum and csum. The operation that wrote the channel then reads its gradient as
 * G + bsum x + csum. dbeta = S1, dgamma = S2.
 *
 * Sums over pixels: each block sums in fp32; block sums are added in double, in the order of block
 * indices, by groups of blocks if there are many. Results do not depend on which block ends first.
 *
 * Launchers: they return the launch's status, never synchronise and never allocate.
 */
#ifndef CHEX_ENGINE_CUDA_HOST_GPU_H
#define CHEX_ENGINE_CUDA_HOST_GPU_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "base/error.h"

/* If `call` fails, returns its status from the calling function. */
#define CHEX_GPU_TRY(call)                                                                         \
    do {                                                                                           \
        cudaError_t gpu_try_ = (call);                                                             \
        if (gpu_try_ != cudaSuccess)                                                               \
            return gpu_try_;                                                                       \
    } while (0)

enum gpu_type { GPU_F32, GPU_BF16, GPU_F16 };

static inline size_t gpu_type_bytes(enum gpu_type type) { return type == GPU_F32 ? 4 : 2; }

/* A map, or a slice of one. */
struct gpu_map {
    void *data;
    enum gpu_type type;
    int n, hw;    /* images; height = width */
    int channels; /* of the slice */
    int64_t pitch;
};

static inline int64_t gpu_map_pixels(const struct gpu_map *m) {
    return (int64_t)m->n * m->hw * m->hw;
}

/* A batch norm and the ReLU after it, for the channels of a slice. mean NULL: neither. */
struct gpu_norm {
    const float *mean, *inv; /* of the buffer's channels; inv = 1 / sqrt(var + eps) */
    const float *gamma, *beta;
    bool relu; /* false: batch norm alone (the shortcut of a residual block) */
};

/* The gradient of an operation's output: g + bsum * x + csum. bsum NULL: g alone. */
struct gpu_deferred_grad {
    struct gpu_map g, x;      /* same slice; x.data may be NULL if bsum is NULL */
    const float *bsum, *csum; /* shifted to the slice's first channel */
};

/* Destination of the batch statistics of an operation's output. partial NULL: no statistics.
 * mean, var (biased) and inv point to the slice's first channel. */
struct gpu_stats {
    float *partial;   /* scratch: GPU_MAX_BLOCKS * 2 * channels */
    unsigned *ticket; /* GPU_TICKETS counters; 0 between launches */
    float *mean, *var, *inv;
    float eps;
};

/* Destination of the two sums of a batch norm's backward. partial NULL: no batch norm. */
struct gpu_sums {
    float *partial;   /* scratch: GPU_MAX_BLOCKS * 2 * channels */
    unsigned *ticket; /* GPU_TICKETS counters; 0 between launches */
    float *dgamma, *dbeta;
    float *bsum, *csum; /* += B, += C */
};

/* GPU_MAX_BLOCKS: upper limit of blocks that write partial sums of one channel. Launchers limit
 * their grids to it. GPU_RUNS: upper limit of runs of channels that are completed separately.
 * GPU_GROUP (a guess): blocks whose sums are added by the last one of them. */
enum {
    GPU_MAX_BLOCKS = 1024,
    GPU_RUNS = 64,
    GPU_GROUP = 16,
    GPU_GROUPS = GPU_MAX_BLOCKS / GPU_GROUP,
    GPU_TICKETS = GPU_RUNS + GPU_RUNS * GPU_GROUPS /* a counter for each run, and for each group */
};

/* Properties of the device that launchers use. */
struct gpu_device {
    int index;
    int capability;    /* 90 for 9.0 */
    int sms;           /* multiprocessors */
    size_t shared_max; /* shared memory of one block, bytes (opt-in limit) */
    size_t l2_bytes;
    size_t memory_bytes, free_bytes;
    char name[96], pci_bus_id[32];
};

/* A second stream: the kernel that adds the parts of a weight gradient runs there, beside the
 * operations that follow. */
struct gpu_side {
    cudaStream_t stream;
    cudaEvent_t parts_written; /* for the launcher */
    bool used;                 /* the launcher has enqueued a kernel there */
};

/* ---- one convolution ---- */

struct gpu_window {
    int kernel, stride, pad;
};

struct gpu_conv_forward {
    struct gpu_map in;
    struct gpu_norm norm; /* of the input */
    struct gpu_window window;
    const void *weight; /* (out, ky, kx, in) */
    struct gpu_map out;
    struct gpu_stats stats; /* of out, as rounded */
    int variant;            /* of gpu_conv_algo.variants; 0: the algorithm's own choice */
};

struct gpu_conv_backward {
    struct gpu_deferred_grad out;
    struct gpu_map in; /* as in forward */
    struct gpu_norm norm;
    struct gpu_window window;
    const void *weight;   /* as in forward */
    const void *weight_t; /* (in, ky, kx, out), taps reversed: ky' = k - 1 - ky */
    struct gpu_map in_g;  /* gradient of in; data NULL: not computed (the image) */
    bool add;             /* true: in_g += A dU; false: in_g = A dU */
    struct gpu_sums sums;
    float *dweight;        /* (out, ky, kx, in), overwritten */
    struct gpu_side *side; /* NULL: dweight is complete in the order of the main stream. Else it may
                            * be complete only in the order of side->stream, and the workspace in
                            * use until then */
    int variant;           /* as in forward */
};

/* ---- convolution algorithms ----
 * One file fills this table; one line in conv_algorithms.c adds it.
 *   - Exactly one of f and b is NULL in every call: b for a forward convolution, f for a backward.
 *   - fits, prepare and workspace may compare pointers inside f and b with NULL. They must not use
 *     their values, which are not final yet.
 *   - forward and backward may get fewer images than prepare and workspace saw, and no statistics.
 *   - Maps always have memory for as many images as prepare saw. An algorithm may overwrite the
 *     images past the last one.
 *
 * Variants are ways of one algorithm to compute a convolution: tiles, stages, splits, fused or not.
 * They differ in time and in the order of sums, nothing else. A number stands for the same kernel
 * and tile with any number of images; 0 stands for the algorithm's own choice, which is a guess by
 * shape and device. workspace, forward and backward read the number from f or b. The engine
 * measures the variants (cuda_choices.c).
 *
 * The members after `uses_side` may be left out. */
enum {
    GPU_VARIANTS = 16,
    GPU_VARIANT_BYTES = 64,
    GPU_VARIANTS_VERSION = 1 /* raise it if a kernel becomes faster or slower, or a name changes */
};
struct gpu_conv_algo {
    const char *name; /* "plain" */
    /* Whether the algorithm supports this convolution on this device. */
    bool (*fits)(const struct gpu_device *device, const struct gpu_conv_forward *f,
                 const struct gpu_conv_backward *b);
    /* (optional) Computes what the algorithm needs once for this convolution; may take seconds. If
     * the algorithm does not work after all, it returns an error with the reason. */
    enum chex_status (*prepare)(const struct gpu_device *device, const struct gpu_conv_forward *f,
                                const struct gpu_conv_backward *b, void **state_out,
                                struct chex_error *err);
    void (*release)(void *state); /* (optional) NULL allowed */
    /* Bytes of scratch memory. All operations share one scratch buffer, 256-byte aligned. */
    size_t (*workspace)(const struct gpu_device *device, const void *state,
                        const struct gpu_conv_forward *f, const struct gpu_conv_backward *b);
    cudaError_t (*forward)(const struct gpu_device *device, const void *state,
                           const struct gpu_conv_forward *f, void *workspace, cudaStream_t stream);
    cudaError_t (*backward)(const struct gpu_device *device, const void *state,
                            const struct gpu_conv_backward *b, void *workspace,
                            cudaStream_t stream);
    bool uses_side; /* backward: see gpu_conv_backward.side */
    /* Variants that are worth a measurement: numbers in out, 0 first, then the others in the order
     * of the guess. Returns how many, at least 1. NULL: 0 alone. */
    int (*variants)(const struct gpu_device *device, const struct gpu_conv_forward *f,
                    const struct gpu_conv_backward *b, int out[GPU_VARIANTS]);
    /* The name of a variant other than 0, "256x128". Set together with `variants`. */
    void (*variant_name)(bool backward, int variant, char out[GPU_VARIANT_BYTES]);
    /* Used only where nothing else of a stage fits, and not compared: it is much slower, or its
     * preparation takes longer than a measurement may. */
    bool fallback;
};

/* conv_algorithms.c: all of the following that are compiled in, NULL-terminated. */
extern const struct gpu_conv_algo *const gpu_conv_algos[];

/* conv_plain.cu: every shape and type, fp32 arithmetic, no library. The reference for the others.
 */
extern const struct gpu_conv_algo gpu_conv_algo_plain;
/* conv_1x1.cu: own tensor-core kernels for 1x1 convolutions with stride 1 in 16-bit types. */
extern const struct gpu_conv_algo gpu_conv_algo_1x1;
/* conv_1x1_sm90.cu: forward only, by TMA and wgmma; capability 9.0 only. */
extern const struct gpu_conv_algo gpu_conv_algo_1x1_sm90;
/* conv_1x1_backward_sm90.cu: backward of 1x1 convolutions on capability 9.0, by clusters. */
extern const struct gpu_conv_algo gpu_conv_algo_1x1_backward_sm90;
/* conv_3x3.cu: the same for 3x3 with stride 1 and padding 1. */
extern const struct gpu_conv_algo gpu_conv_algo_3x3;
/* conv_3x3_sm90.cu: the same with wgmma, for capability 9.0 only. */
extern const struct gpu_conv_algo gpu_conv_algo_3x3_sm90;
/* dnn_conv.c: cuDNN's convolutions on slices, surrounded by norm.cu's kernels. */
extern const struct gpu_conv_algo gpu_conv_algo_dnn;

/* ---- norm.cu: batch norm, ReLU and statistics for convolutions that do not fuse them ---- */

/* Batch statistics of a map that is already written. */
cudaError_t gpu_stats_of(const struct gpu_map *m, const struct gpu_stats *stats,
                         cudaStream_t stream);
/* out (packed or a slice) = norm(in), rounded to out's type. */
cudaError_t gpu_activate(const struct gpu_map *in, const struct gpu_norm *norm,
                         const struct gpu_map *out, cudaStream_t stream);
/* out = g + bsum x + csum, rounded to out's type. */
cudaError_t gpu_finish_grad(const struct gpu_deferred_grad *deferred_grad,
                            const struct gpu_map *out, cudaStream_t stream);
/* Gradient through norm and ReLU. dv: gradient of norm(in), packed or a slice.
 * in_g (+)= A dU, and the sums. Without a norm: in_g (+)= dv. */
cudaError_t gpu_mask(const struct gpu_map *dv, const struct gpu_map *in,
                     const struct gpu_norm *norm, const struct gpu_map *in_g, bool add,
                     const struct gpu_sums *sums, cudaStream_t stream);
/* inv_out = 1 / sqrt(var + eps) of the running variance, for inference. */
cudaError_t gpu_running_inv(const float *var, int channels, float eps, float *inv_out,
                            cudaStream_t stream);
/* Two vectors in double, for sums over logical ranks; squared: second + first^2 in place of second,
 * which is linear in the images if they are mean and variance. out: (2, count). */
cudaError_t gpu_widen_pair(const float *first, const float *second, int count, bool squared,
                           double *out, cudaStream_t stream);
/* The reverse, of sums over `ranks`. inv NULL: not squared; else inv = 1 / sqrt(second + eps). */
cudaError_t gpu_narrow_pair(const double *sums, int count, int ranks, float eps, float *first,
                            float *second, float *inv, cudaStream_t stream);
/* For each of `count` norms: writes the batch mean and unbiased variance of a buffer's channels to
 * the gradient vector. jobs: in device memory. */
struct gpu_report_job {
    const float *mean, *var; /* of the buffer */
    size_t mean_at, var_at;  /* offsets in the vector, elements */
    int channels;
    int pixels; /* of one image of the buffer */
};
cudaError_t gpu_report(const struct gpu_report_job *jobs, int count, int images, float *vector,
                       cudaStream_t stream);

/* ---- pool.cu ---- */

/* out = max over the 3x3 window of norm(in), a norm with ReLU. Backward: stride 2, padding 1.
 *   - Padding is never the maximum. Of equal maxima the first in row order wins. NaN wins always.
 *   - arg: index of the winning element in its window, ky * kernel + kx; packed
 *     (n, out hw, out hw, channels); may be NULL. */
cudaError_t gpu_maxpool_forward(const struct gpu_map *in, const struct gpu_norm *norm,
                                struct gpu_window window, const struct gpu_map *out, uint8_t *arg,
                                const struct gpu_stats *stats, cudaStream_t stream);
cudaError_t gpu_maxpool_backward(const struct gpu_deferred_grad *out, const uint8_t *arg,
                                 struct gpu_window window, const struct gpu_map *in,
                                 const struct gpu_norm *norm, const struct gpu_map *in_g, bool add,
                                 const struct gpu_sums *sums, cudaStream_t stream);
/* kernel = stride = 2. Rows and columns past the last whole window are ignored (gradient 0). */
cudaError_t gpu_avgpool_forward(const struct gpu_map *in, const struct gpu_norm *norm, int kernel,
                                const struct gpu_map *out, const struct gpu_stats *stats,
                                cudaStream_t stream);
cudaError_t gpu_avgpool_backward(const struct gpu_deferred_grad *out, int kernel,
                                 const struct gpu_map *in, const struct gpu_norm *norm,
                                 const struct gpu_map *in_g, bool add, const struct gpu_sums *sums,
                                 cudaStream_t stream);

/* ---- residual_add.cu: out = max(norm(in) + side_norm(side), 0); both norms are without ReLU ----
 */
cudaError_t gpu_residual_add_forward(const struct gpu_map *in, const struct gpu_norm *norm,
                                     const struct gpu_map *side, const struct gpu_norm *side_norm,
                                     const struct gpu_map *out, cudaStream_t stream);
/* dU = gradient of out with its deferred terms, where out > 0; else 0.
 * in_g (+)= A dU with sums; side_g (+)= A' dU with side_sums. If side_norm has no mean:
 * side_g (+)= dU. */
cudaError_t gpu_residual_add_backward(const struct gpu_deferred_grad *out,
                                      const struct gpu_map *out_x, const struct gpu_map *in,
                                      const struct gpu_norm *norm, const struct gpu_map *in_g,
                                      bool add, const struct gpu_sums *sums,
                                      const struct gpu_map *side, const struct gpu_norm *side_norm,
                                      const struct gpu_map *side_g, bool side_add,
                                      const struct gpu_sums *side_sums, cudaStream_t stream);

/* ---- head.cu: all in fp32 ---- */

/* pooled (n, channels) = mean over pixels of norm(in); logits (n, classes) = pooled weight^T +
 * bias; weight (classes, channels). */
cudaError_t gpu_head_forward(const struct gpu_map *in, const struct gpu_norm *norm,
                             const float *weight, const float *bias, int classes, float *pooled,
                             float *logits, cudaStream_t stream);
/* struct chex_loss of engine/loss.h, resolved and in fp32. */
struct gpu_loss_factors {
    float pos, neg;
};
enum { GPU_LABELS = 3 }; /* -1, 0, 1 */
struct gpu_loss_terms {
    const struct gpu_loss_factors *factors; /* (classes, GPU_LABELS), device memory */
    float gamma_pos, gamma_neg, clip;
    bool focused; /* one of them is not 0 */
};
/* loss_out: one double in device memory: the mean loss over all n * classes values. Labels below -1
 * are masked and add 0. dlogits: gradient of the loss times *scale (NULL: 1). */
cudaError_t gpu_loss(const float *logits, const int8_t *labels, int n, int classes,
                     const struct gpu_loss_terms *terms, const float *scale, double *loss_out,
                     float *dlogits, cudaStream_t stream);
/* dweight, dbias overwritten; in_g (+)= A dU; sums. dpooled: scratch (n, channels). */
cudaError_t gpu_head_backward(const struct gpu_map *in, const struct gpu_norm *norm,
                              const float *weight, int classes, const float *pooled,
                              const float *dlogits, float *dpooled, float *dweight, float *dbias,
                              const struct gpu_map *in_g, bool add, const struct gpu_sums *sums,
                              cudaStream_t stream);

/* ---- augment.cu: chex_augment_apply (input/augment.h) on the device, bit-identical ---- */

/* struct chex_crop as kernels read it. */
struct gpu_crop {
    size_t from;          /* byte offset of the image's row (stored, stored) */
    int64_t cosine, sine; /* of the rotation angle, if rotated */
    double b_per_mean;    /* this and k: from chex_augment_colour_of */
    int top, left, height, width;
    float k;
    bool flip, antialias, rotated, contrast;
};
/* crop.c: converts a crop. from: see struct gpu_crop. */
struct chex_crop;
struct gpu_crop gpu_crop_of(const struct chex_crop *crop, size_t from);
/* Shared memory that one block needs, bytes. Compare with the device's shared_max. */
size_t gpu_augment_shared(int stored, int size);
/* out: (n, size, size). crops: n crops in device memory. contrast: whether any crop has contrast.
 * shifts: scratch of n floats, used if contrast is set. */
cudaError_t gpu_augment(const uint8_t *rows, const struct gpu_crop *crops, int n, int stored,
                        int size, bool contrast, float *shifts, float *out, cudaStream_t stream);

/* ---- image.cu ---- */

/* Normalises grey (n, size, size) in [0, 1]: channels c < 3 of out are (grey - mean[c]) / std[c],
 * the others 0. out.channels is 4 or 8. */
cudaError_t gpu_image(const float *grey, const float mean[3], const float std[3],
                      const struct gpu_map *out, cudaStream_t stream);

/* ---- stem.cu: the first convolution (7x7, stride 2, padding 3, 64 outputs) in 16-bit types on
 * tensor cores.
 * All three image channels are affine functions of one grey value. So two input channels are
 * enough: u = 255 grey - 128, and the constant 1 inside the image (0 in the padding).
 *   - Folded weights: sum_c w_c / (255 std_c) for u; sum_c w_c (128 / 255 - mean_c) / std_c for 1.
 *   - Backward: dw_c = ((D_u + 128 D_1) / 255 - mean_c D_1) / std_c, where D_u and D_1 are the
 *     weight gradients of the two channels. ---- */
size_t gpu_stem_folded_bytes(void);
cudaError_t gpu_stem_fold(const float *w /* (64, 7, 7, 3) */, const float mean[3],
                          const float std[3], enum gpu_type type, void *folded_out,
                          cudaStream_t stream);
cudaError_t gpu_stem_forward(const struct gpu_device *device,
                             const float *grey /* (n, size, size) */, int n, int size,
                             const void *folded, const struct gpu_map *out,
                             const struct gpu_stats *stats, cudaStream_t stream);
size_t gpu_stem_workspace(const struct gpu_device *device, int n, int size);
cudaError_t gpu_stem_backward(const struct gpu_device *device, const float *grey, int n, int size,
                              const struct gpu_deferred_grad *out, const float mean[3],
                              const float std[3], float *dweight /* (64, 7, 7, 3) */,
                              void *workspace, cudaStream_t stream);

/* ---- update.cu ---- */

/* The target of the PTX from which the loaded kernels were made, 80 or 90; 0: unknown. */
int gpu_code_target(void);

/* The scalars of one step. They are in device memory, so a captured graph reads new values in each
 * launch. Formulas: engine/update.h. */
struct gpu_step {
    int optim; /* enum chex_optim */
    bool nesterov;
    bool decays_all; /* weight decay is 0, or for batch norms and biases too */
    float grad_scale, momentum, lr, weight_decay;
    float beta1, beta2, one_minus_beta1, one_minus_beta2; /* the latter rounded from double */
    float adam_step, adam_root;                           /* lr / (1 - b1^t), 1 / sqrt(1 - b2^t) */
    float adamw_shrink, eps;
    float bn_momentum;
    float ema_rest;                  /* 1 - decay of the moving average */
    bool scaled;                     /* parameters have their own learning rates, from these: */
    double lr64, decay64, adam_bias; /* lr, weight decay, 1 - b1^t */
    double clip_norm, clip_scale;    /* grad_scale before it is rounded */
};
/* The loss scale of fp16 and its counters, in device memory. */
struct gpu_loss_scale {
    float scale;    /* factor of this step's loss */
    int good_steps; /* steps since scale last changed */
    int overflowed; /* this step's gradients are not finite: the update is skipped */
    int skipped;    /* number of skipped updates so far */
};
/* Clipping by norm, in device memory. */
enum { GPU_CLIP_BLOCKS = 256 };
struct gpu_clip {
    double squares[GPU_CLIP_BLOCKS]; /* sums of squares of the reduced gradient */
    double sum, largest;             /* norms of the updates since the last reset */
    int64_t updates;
    float grad_scale; /* of this step: gpu_step.grad_scale with the factor of the clipping */
};
/* One trained parameter, in device memory. */
struct gpu_param {
    size_t offset, count;
    int is_weight;        /* of a convolution or the head: LARS trust ratio and weight decay */
    int out, kernel, in;  /* shape of a convolution; out 0: not a convolution */
    int in_padded;        /* input channels of the copies: >= in, zero filled */
    double lr_scale;      /* factor of the learning rate; 0: frozen. Used if gpu_step.scaled */
    size_t copy_offset;   /* elements from the start of the copies */
    size_t copy_t_offset; /* SIZE_MAX: no transposed copy */
};
struct gpu_update {
    const struct gpu_param *params; /* device; sorted by offset, they cover [0, param_count) */
    int param_total;                /* number of params */
    size_t param_count, state_count;
    const struct gpu_step *step;       /* device */
    struct gpu_loss_scale *loss_scale; /* device; NULL: none */
    struct gpu_clip *clip;             /* device; NULL: gradients are not clipped */
    float *w, *m, *v;                  /* state_count elements each; v NULL for SGD and LARS */
    float *ema;                        /* state_count; NULL: no moving average */
    const float *g;                    /* state_count: reduced gradient */
    float *norms;                      /* scratch: 2 * param_total; NULL unless LARS */
    enum gpu_type type;
    void *copies, *copies_t; /* weights of type `type` that kernels read */
};
/* Whether gpu_update_state has a rule for the optimiser (enum chex_optim). */
bool gpu_has_optim(int optim);
/* One optimiser step: overflow check, clipping, trust ratios, w, m, v, running statistics, next
 * loss scale. Does not refresh the copies: call gpu_pack. Vectors are 16-byte aligned. */
cudaError_t gpu_update_state(const struct gpu_update *u, cudaStream_t stream);
/* Refreshes copies and copies_t from w, also after a skipped step. Transposed copies have in_padded
 * inputs too. */
cudaError_t gpu_pack(const struct gpu_update *u, cudaStream_t stream);
/* Copies the first `in` of `in_padded` channels of each of `rows` rows. */
cudaError_t gpu_unpad(const float *padded, size_t rows, int in_padded, int in, float *out,
                      cudaStream_t stream);
/* Converts count values to fp32. Both arrays are 16-byte aligned. */
cudaError_t gpu_widen(enum gpu_type type, const void *from, size_t count, float *out,
                      cudaStream_t stream);
/* to += from, count elements. */
cudaError_t gpu_add(float *to, const float *from, size_t count, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
