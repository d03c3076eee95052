/* SPDX-License-Identifier: Apache-2.0
 *
 * What the CUDA engine's host files and its kernels share: feature maps in device memory, batch
 * norms as kernels see them, and the launchers.
 *
 * Layout. A map is NHWC: channel c of pixel (i, y, x) is element
 * ((i * hw + y) * hw + x) * pitch + c. A buffer of the network is one allocation whose pitch is its
 * channels; a slice is a shifted pointer with the same pitch. Slices begin at multiples of 32
 * channels. All offsets in elements are 64 bits wide.
 *
 * Weights of a convolution are stored (out, ky, kx, in), in the masters, in the gradient vector and
 * in the copy of type `enum gpu_type` that kernels read.
 *
 * Batch norm. y = fma(a, x, b) with a = gamma * inv and b = fma(-mean, a, beta), in fp32 and
 * written in this very form in every kernel, forward and backward, so that a ReLU opens for the
 * same elements in both. Then max(y, 0). What a convolution reads is rounded to the type.
 *
 * Backward (arithmetic of dx: Ioffe and Szegedy 2015, rearranged). With dU the gradient behind the
 * ReLU's mask, S1 = sum dU, S2 = sum dU * (x - mean) * inv over the n pixels of the channel:
 *     dx = A dU + B x + C,  A = a,  B = -a S2 inv / n,  C = -a (S1 / n - mean inv S2 / n).
 * Every reader of a channel adds its A dU to the buffer's gradient map G at once, and its B and C
 * to the buffer's vectors bsum and csum when its sums are complete. Who wrote the channel takes its
 * gradient up as G + bsum x + csum. dbeta = S1, dgamma = S2.
 *
 * Sums over pixels are made per block in fp32, and over the blocks in double, in the order of
 * blocks: results do not depend on which block ends first.
 *
 * Launchers return what the launch returned; they never synchronise and allocate nothing.
 */
#ifndef CHEX_ENGINE_CUDA_GPU_H
#define CHEX_ENGINE_CUDA_GPU_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "base/error.h"

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

/* A batch norm and the ReLU behind it, for the channels of a slice. mean NULL: neither. */
struct gpu_norm {
    const float *mean, *inv; /* of the buffer's channels; inv = 1 / sqrt(var + eps) */
    const float *gamma, *beta;
    bool relu; /* false: batch norm alone (the shortcut of a residual block) */
};

/* The gradient of what an operation wrote: g + bsum * x + csum. bsum NULL: g alone. */
struct gpu_taken {
    struct gpu_map g, x;      /* same slice; x.data may be NULL where bsum is */
    const float *bsum, *csum; /* shifted to the slice's first channel */
};

/* Where the statistics of freshly written channels go. partial NULL: none are wanted.
 * mean, var (biased) and inv are shifted to the slice's first channel. */
struct gpu_stats {
    float *partial;   /* room of GPU_MAX_BLOCKS * 2 * channels */
    unsigned *ticket; /* GPU_TICKETS of them (one a run of channels); 0 before and after */
    float *mean, *var, *inv;
    float eps;
};

/* Where the two sums of a batch norm's backward go. partial NULL: there is no batch norm. */
struct gpu_sums {
    float *partial;   /* room of GPU_MAX_BLOCKS * 2 * channels */
    unsigned *ticket; /* GPU_TICKETS of them; 0 before and after */
    float *dgamma, *dbeta;
    float *bsum, *csum; /* += B, += C */
};

/* The most blocks that write partial sums of one channel; launchers cut their grids to it. */
enum { GPU_MAX_BLOCKS = 1024, GPU_TICKETS = 64 };

/* What the launchers must know of the device. */
struct gpu_device {
    int index;
    int capability;    /* 90 for 9.0 */
    int sms;           /* multiprocessors */
    size_t shared_max; /* bytes of shared memory that one block may ask for */
    size_t l2_bytes;
    size_t memory_bytes, free_bytes;
    char name[96], pci_bus_id[32];
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
};

struct gpu_conv_backward {
    struct gpu_taken out;
    struct gpu_map in; /* as in forward */
    struct gpu_norm norm;
    struct gpu_window window;
    const void *weight;   /* as in forward */
    const void *weight_t; /* (in, ky, kx, out) with the taps in reverse order: ky' = k - 1 - ky */
    struct gpu_map in_g;  /* gradient of in; data NULL: not wanted (the image) */
    bool add;             /* in_g += A dU; false: in_g = A dU */
    struct gpu_sums sums;
    float *dweight; /* (out, ky, kx, in), overwritten */
};

/* ---- one way to convolve: a file fills this, one line of the table in ways.c names it ----
 * In every entry one of f and b is NULL: it is a forward or a backward convolution. Before forward
 * and backward are called, pointers of theirs other than NULL or not NULL mean nothing. They may
 * then come with fewer images than prepare and workspace saw, and without statistics; the memory of
 * their maps holds as many images as prepare saw, and a way may write to those past the last. */
struct gpu_way {
    const char *name; /* "plain" */
    /* Whether it takes this convolution on this device. */
    bool (*fits)(const struct gpu_device *device, const struct gpu_conv_forward *f,
                 const struct gpu_conv_backward *b);
    /* (optional) What the way works out once for this convolution; may take seconds. A way that
     * finds here that it does not work after all says why. */
    enum chex_status (*prepare)(const struct gpu_device *device, const struct gpu_conv_forward *f,
                                const struct gpu_conv_backward *b, void **state_out,
                                struct chex_error *err);
    void (*release)(void *state); /* (optional) NULL allowed */
    /* Bytes of scratch, which operations share; 256-byte aligned. */
    size_t (*workspace)(const struct gpu_device *device, const void *state,
                        const struct gpu_conv_forward *f, const struct gpu_conv_backward *b);
    cudaError_t (*forward)(const struct gpu_device *device, const void *state,
                           const struct gpu_conv_forward *f, void *workspace, cudaStream_t stream);
    cudaError_t (*backward)(const struct gpu_device *device, const void *state,
                            const struct gpu_conv_backward *b, void *workspace,
                            cudaStream_t stream);
};

/* ways.c: all of the following that are compiled in, NULL-terminated. */
extern const struct gpu_way *const gpu_ways[];

/* conv_plain.cu: every shape and type in fp32 arithmetic, no library: the anchor. */
extern const struct gpu_way gpu_way_plain;
/* conv_1x1.cu: own tensor-core kernels for 1x1 convolutions with stride 1 in 16-bit types. */
extern const struct gpu_way gpu_way_1x1;
/* conv_3x3.cu: the same for 3x3 with stride 1 and padding 1. */
extern const struct gpu_way gpu_way_3x3;
/* dnn_conv.c: cuDNN's convolutions on slices, surrounded by norm.cu's kernels. */
extern const struct gpu_way gpu_way_dnn;
/* dnn_fused.c: cuDNN graphs with batch norm before and statistics behind the product. */
extern const struct gpu_way gpu_way_dnn_fused;

/* ---- norm.cu: what surrounds convolutions where they are not fused ---- */

/* Statistics of a map that has been written. */
cudaError_t gpu_stats_of(const struct gpu_map *m, const struct gpu_stats *stats,
                         cudaStream_t stream);
/* out (packed or a slice) = norm(in), rounded to out's type. */
cudaError_t gpu_activate(const struct gpu_map *in, const struct gpu_norm *norm,
                         const struct gpu_map *out, cudaStream_t stream);
/* out = g + bsum x + csum, rounded to out's type. */
cudaError_t gpu_take(const struct gpu_taken *taken, const struct gpu_map *out, cudaStream_t stream);
/* dv: gradient of norm(in), packed or a slice. in_g (+)= A dU; sums. Without norm in_g (+)= dv. */
cudaError_t gpu_mask(const struct gpu_map *dv, const struct gpu_map *in,
                     const struct gpu_norm *norm, const struct gpu_map *in_g, bool add,
                     const struct gpu_sums *sums, cudaStream_t stream);
/* The running statistics as a norm's mean and inv, for inference. */
cudaError_t gpu_running_inv(const float *var, int channels, float eps, float *inv_out,
                            cudaStream_t stream);
/* For each of `count` norms: batch mean and unbiased variance of a buffer's channels into a
 * gradient vector. jobs: device memory. */
struct gpu_report_job {
    const float *mean, *var; /* of the buffer */
    size_t mean_at, var_at;  /* elements of the vector */
    int channels;
    int pixels; /* of one image of the buffer */
};
cudaError_t gpu_report(const struct gpu_report_job *jobs, int count, int images, float *vector,
                       cudaStream_t stream);

/* ---- pool.cu ---- */

/* out = max over the window of norm(in), padding never wins, the first maximum in row order wins, a
 * NaN over everything. arg (packed (n, out hw, out hw, channels), may be NULL): which of the
 * window's elements won, ky * kernel + kx. */
cudaError_t gpu_maxpool_forward(const struct gpu_map *in, const struct gpu_norm *norm,
                                struct gpu_window window, const struct gpu_map *out, uint8_t *arg,
                                const struct gpu_stats *stats, cudaStream_t stream);
cudaError_t gpu_maxpool_backward(const struct gpu_taken *out, const uint8_t *arg,
                                 struct gpu_window window, const struct gpu_map *in,
                                 const struct gpu_norm *norm, const struct gpu_map *in_g, bool add,
                                 const struct gpu_sums *sums, cudaStream_t stream);
/* kernel = stride; rows and columns past the last whole window take no part (gradient 0). */
cudaError_t gpu_avgpool_forward(const struct gpu_map *in, const struct gpu_norm *norm, int kernel,
                                const struct gpu_map *out, const struct gpu_stats *stats,
                                cudaStream_t stream);
cudaError_t gpu_avgpool_backward(const struct gpu_taken *out, int kernel, const struct gpu_map *in,
                                 const struct gpu_norm *norm, const struct gpu_map *in_g, bool add,
                                 const struct gpu_sums *sums, cudaStream_t stream);

/* ---- join.cu: out = max(norm(in) + side_norm(side), 0); the norms have no ReLU of their own ----
 */
cudaError_t gpu_join_forward(const struct gpu_map *in, const struct gpu_norm *norm,
                             const struct gpu_map *side, const struct gpu_norm *side_norm,
                             const struct gpu_map *out, cudaStream_t stream);
/* dU = taken gradient of out where out > 0. in_g (+)= A dU with sums; side_g (+)= A' dU with
 * side_sums, or (+)= dU where side_norm has no mean. */
cudaError_t gpu_join_backward(const struct gpu_taken *out, const struct gpu_map *out_x,
                              const struct gpu_map *in, const struct gpu_norm *norm,
                              const struct gpu_map *in_g, bool add, const struct gpu_sums *sums,
                              const struct gpu_map *side, const struct gpu_norm *side_norm,
                              const struct gpu_map *side_g, bool side_add,
                              const struct gpu_sums *side_sums, cudaStream_t stream);

/* ---- head.cu: all in fp32 ---- */

/* pooled (n, channels) = mean over pixels of norm(in); logits (n, classes) = pooled weight^T +
 * bias; weight (classes, channels). */
cudaError_t gpu_head_forward(const struct gpu_map *in, const struct gpu_norm *norm,
                             const float *weight, const float *bias, int classes, float *pooled,
                             float *logits, cudaStream_t stream);
/* loss_out: one double in device memory, the mean over n * classes of the binary cross-entropy with
 * logits, masked ones (label below 0) adding 0. dlogits: its gradient times *scale (NULL: 1). */
cudaError_t gpu_loss(const float *logits, const int8_t *labels, int n, int classes,
                     const float *scale, double *loss_out, float *dlogits, cudaStream_t stream);
/* dweight, dbias overwritten; in_g (+)= A dU; sums. dpooled: scratch (n, channels). */
cudaError_t gpu_head_backward(const struct gpu_map *in, const struct gpu_norm *norm,
                              const float *weight, int classes, const float *pooled,
                              const float *dlogits, float *dpooled, float *dweight, float *dbias,
                              const struct gpu_map *in_g, bool add, const struct gpu_sums *sums,
                              cudaStream_t stream);

/* ---- augment.cu: what chex_augment_apply (input/augment.h) makes of stored rows, to the last bit
 * ---- */

/* struct chex_crop as kernels read it. */
struct gpu_crop {
    size_t from;          /* where the image's row (stored, stored) begins, bytes */
    int64_t cosine, sine; /* of its angle, where it is turned */
    double b_per_mean;    /* chex_augment_colour_of's, as k */
    int top, left, height, width;
    float k;
    bool flip, antialias, turned, contrast;
};
/* crop.c. from: gpu_crop's. */
struct chex_crop;
struct gpu_crop gpu_crop_of(const struct chex_crop *crop, size_t from);
/* Shared memory that a block needs: not every size fits every device. */
size_t gpu_augment_shared(int stored, int size);
/* out (n, size, size). crops: n of them in device memory. contrast: one of them has it; shifts:
 * room of n, needed then. */
cudaError_t gpu_augment(const uint8_t *rows, const struct gpu_crop *crops, int n, int stored,
                        int size, bool contrast, float *shifts, float *out, cudaStream_t stream);

/* ---- image.cu ---- */

/* grey (n, size, size) in [0, 1] to out: channels c < 3 are (grey - mean[c]) / std[c], the rest 0.
 * out.channels is 4 or 8. */
cudaError_t gpu_image(const float *grey, const float mean[3], const float std[3],
                      const struct gpu_map *out, cudaStream_t stream);

/* ---- stem.cu: the first convolution, 7x7 with stride 2, padding 3 and 64 outputs, in 16-bit types
 * on tensor cores. All three channels of the image are affine functions of one grey value, so two
 * channels do: u = 255 grey - 128 and the constant 1 inside the image. Folded weights: for u
 * sum_c w_c / (255 std_c), for 1 sum_c w_c (128 / 255 - mean_c) / std_c. Backward: with D_u, D_1
 * the two channels' gradients, dw_c = ((D_u + 128 D_1) / 255 - mean_c D_1) / std_c. ---- */
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
                              const struct gpu_taken *out, const float mean[3], const float std[3],
                              float *dweight /* (64, 7, 7, 3) */, void *workspace,
                              cudaStream_t stream);

/* ---- update.cu ---- */

/* One step's scalars, in device memory, so that a captured graph reads fresh ones. Formulas:
 * engine/update.h. */
struct gpu_step {
    int optim; /* enum chex_optim */
    float grad_scale, momentum, lr, weight_decay;
    float beta1, beta2, one_minus_beta1, one_minus_beta2; /* the latter rounded from double */
    float adam_step, adam_root;                           /* lr / (1 - b1^t), 1 / sqrt(1 - b2^t) */
    float adamw_shrink, eps;
    float bn_momentum;
};
/* fp16's loss scale and what it hangs on, in device memory. */
struct gpu_loss_scale {
    float scale;    /* of the losses of this step */
    int good_steps; /* since it last changed */
    int overflowed; /* this step's gradients are not finite: nothing is updated */
    int skipped;    /* steps so far that were not updated */
};
/* One trained parameter, in device memory. */
struct gpu_param {
    size_t offset, count;
    int trust;            /* LARS scales this parameter */
    int out, kernel, in;  /* a convolution's shape; out 0: none */
    int in_padded;        /* in of the copies: in, or more (zero filled) */
    size_t copy_offset;   /* elements from the start of the copies */
    size_t copy_t_offset; /* SIZE_MAX: no transposed copy */
};
struct gpu_update {
    const struct gpu_param *params; /* device; by offset, together [0, param_count) */
    int param_total;                /* trained ones */
    size_t param_count, state_count;
    const struct gpu_step *step;       /* device */
    struct gpu_loss_scale *loss_scale; /* device; NULL: none */
    float *w, *m, *v;                  /* state_count elements each; v NULL for SGD and LARS */
    const float *g;                    /* state_count: reduced gradient */
    float *norms;                      /* room of 2 * param_total; NULL: never LARS */
    enum gpu_type type;
    void *copies, *copies_t; /* of type: what kernels read */
};
/* All of an optimiser's step: overflow check, trust ratios, w, m, v, running statistics, and the
 * next loss scale. No copies: gpu_pack. Vectors begin at multiples of 16 bytes. */
cudaError_t gpu_update_state(const struct gpu_update *u, cudaStream_t stream);
/* copies and copies_t from w, also after a step that was skipped. Transposed copies have in_padded
 * inputs too. */
cudaError_t gpu_pack(const struct gpu_update *u, cudaStream_t stream);
/* The first `in` of `in_padded` channels of each of `rows` rows. */
cudaError_t gpu_unpad(const float *padded, size_t rows, int in_padded, int in, float *out,
                      cudaStream_t stream);
/* to += from, count elements. */
cudaError_t gpu_add(float *to, const float *from, size_t count, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
