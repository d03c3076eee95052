/* SPDX-License-Identifier: Apache-2.0
 *
 * Helpers of the two cuDNN convolution algorithms (dnn_conv.c, dnn_fused.c): supported maps, plans,
 * division of the scratch memory, and the weight gradient.
 */
#ifndef CHEX_ENGINE_CUDA_CUDNN_DNN_ALGO_H
#define CHEX_ENGINE_CUDA_CUDNN_DNN_ALGO_H

#include "engine/cuda/cudnn/dnn_graphs.h"

/* Whether cuDNN supports the type on this device. */
bool dnn_takes_type(const struct gpu_device *device, enum gpu_type type);

/* CHEX_E_ENV if the map has more than 2^31 - 1 elements: cuDNN's kernels may use 32-bit indices. */
enum chex_status dnn_check_map(const struct gpu_map *m, const char *what, struct chex_error *err);

/* The prepared state of one convolution.
 *
 * A plan has one fixed shape: n images. With fewer images the plans still run over n images. The
 * maps have memory for n images, and the contents of the images past the last one do not matter.
 * Operations that sum over images must handle the extra images themselves. */
struct dnn_state {
    const struct dnn_target *target; /* borrowed: dnn_target_drop releases it */
    struct dnn_plan forward, dgrad, wgrad;
    int n;
    bool wide;      /* wgrad writes fp32 */
    bool sums;      /* forward writes sums for statistics */
    void *fallback; /* state of gpu_conv_algo_dnn, used if there are fewer images; may be NULL */
};

/* `prepare` of struct gpu_conv_algo. forward and backward make the plans of one direction. */
enum chex_status dnn_state_prepare(
    const struct gpu_device *device, const struct gpu_conv_forward *f,
    const struct gpu_conv_backward *b,
    enum chex_status (*forward)(struct dnn_state *s, const struct gpu_conv_forward *f,
                                struct chex_error *err),
    enum chex_status (*backward)(struct dnn_state *s, const struct gpu_conv_backward *b,
                                 struct chex_error *err),
    void **state_out, struct chex_error *err);
void dnn_state_release(void *state); /* NULL allowed */

/* Makes the graph's plan, with the plan cache in the user's folder, and releases the graph. what:
 * prefix of the error text, such as "dgrad". */
enum chex_status dnn_make_plan(struct dnn_graph *g, const char *what,
                               const struct dnn_target *target, enum gpu_type type,
                               struct dnn_plan *plan_out, struct chex_error *err);

/* Divides scratch memory into 256-byte aligned blocks. base NULL: only counts the bytes. */
struct dnn_scratch {
    char *base;
    size_t bytes;
};
void *dnn_scratch_take(struct dnn_scratch *arena, size_t bytes);

/* The shape of m, packed (no gaps between pixels), at data. */
struct gpu_map dnn_packed(const struct gpu_map *m, void *data);
/* Bytes of packed m for the n images of the plans. */
size_t dnn_packed_bytes(const struct dnn_state *s, const struct gpu_map *m);

/* Bytes of dweight in the map's type: the output of a wgrad that is not `wide`. */
size_t dnn_dweight_bytes(const struct gpu_conv_backward *b);

/* Computes dweight of b.
 *   - x: the activated input; og: the gradient of the output. Images past the last one are set to
 *     zero in both, because wgrad sums over images.
 *   - narrow: scratch for the 16-bit gradient if the plan is not `wide`.
 *   - cudnn: workspace of the plan. */
cudaError_t dnn_run_wgrad(const struct dnn_state *s, const struct gpu_conv_backward *b,
                          const struct gpu_map *x, const struct gpu_map *og, void *narrow,
                          void *cudnn, cudaStream_t stream);

/* Whether p is 16-byte aligned, as cuDNN's stores need. */
bool dnn_aligned(const void *p);

#define DNN_TRY(call)                                                                              \
    do {                                                                                           \
        const cudaError_t dnn_try_ = (call);                                                       \
        if (dnn_try_ != cudaSuccess)                                                               \
            return dnn_try_;                                                                       \
    } while (0)

#endif
