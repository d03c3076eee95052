/* SPDX-License-Identifier: Apache-2.0
 *
 * What the two ways to convolve by cuDNN share: which maps they take, plans, and how a
 * convolution's scratch is divided.
 */
#ifndef CHEX_ENGINE_CUDA_DNN_WAY_H
#define CHEX_ENGINE_CUDA_DNN_WAY_H

#include "engine/cuda/dnn_graphs.h"

/* Whether cuDNN has tensor cores (or plain arithmetic) for the type on this device. */
bool dnn_takes_type(const struct gpu_device *device, enum gpu_type type);

/* cuDNN's kernels may count elements in 32 bits, so larger maps are refused; CHEX_E_ENV. */
enum chex_status dnn_check_map(const struct gpu_map *m, const char *what, struct chex_error *err);

/* What a way prepares for one convolution.
 *
 * A plan is of one shape, that of n images. With fewer the plans run over n all the same: the maps
 * have room for so many, images do not mix, and what becomes of those past the last is nobody's
 * matter. Where images do mix, in sums, a way takes care of it. */
struct dnn_state {
    const struct dnn_target *target; /* held */
    struct dnn_plan forward, dgrad, wgrad;
    int n;
    bool wide;  /* wgrad writes fp32 */
    bool sums;  /* forward writes sums for statistics */
    void *rest; /* of gpu_way_dnn, for fewer images where this way's plans mix them; may be NULL */
};

/* prepare of struct gpu_way, given how the way plans either direction. */
enum chex_status dnn_state_prepare(
    const struct gpu_device *device, const struct gpu_conv_forward *f,
    const struct gpu_conv_backward *b,
    enum chex_status (*forward)(struct dnn_state *s, const struct gpu_conv_forward *f,
                                struct chex_error *err),
    enum chex_status (*backward)(struct dnn_state *s, const struct gpu_conv_backward *b,
                                 struct chex_error *err),
    void **state_out, struct chex_error *err);
void dnn_state_release(void *state); /* NULL allowed */

/* Plans the graph with the cache of the user's folder and releases it. what: "dgrad", for the
 * error. */
enum chex_status dnn_make_plan(struct dnn_graph *g, const char *what,
                               const struct dnn_target *target, enum gpu_type type,
                               struct dnn_plan *plan_out, struct chex_error *err);

/* Hands out 256-byte aligned pieces one after the other; with base NULL it only counts. */
struct dnn_room {
    char *base;
    size_t bytes;
};
void *dnn_room_take(struct dnn_room *room, size_t bytes);

/* m without gaps between pixels, at data. */
struct gpu_map dnn_packed(const struct gpu_map *m, void *data);
/* Bytes of it for the n images that the plans run over. */
size_t dnn_packed_bytes(const struct dnn_state *s, const struct gpu_map *m);

/* Bytes of dweight in the map's type, which a wgrad that is not wide writes. */
size_t dnn_dweight_bytes(const struct gpu_conv_backward *b);

/* dweight of b, given what the convolution read and its output's gradient; images past the last are
 * zeroed in both. narrow: room for the 16-bit gradient where the plan is not wide. */
cudaError_t dnn_run_wgrad(const struct dnn_state *s, const struct gpu_conv_backward *b,
                          const struct gpu_map *x, const struct gpu_map *og, void *narrow,
                          void *cudnn, cudaStream_t stream);

/* cuDNN writes 16 bytes at a time. */
bool dnn_aligned(const void *p);

#define DNN_TRY(call)                                                                              \
    do {                                                                                           \
        const cudaError_t dnn_try_ = (call);                                                       \
        if (dnn_try_ != cudaSuccess)                                                               \
            return dnn_try_;                                                                       \
    } while (0)

#endif
