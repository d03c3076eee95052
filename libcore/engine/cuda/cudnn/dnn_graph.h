/* SPDX-License-Identifier: Apache-2.0
 *
 * cuDNN's backend interface for one convolution: graph, plan for a device, run. A graph is a single
 * convolution or matrix product.
 *
 * Planning does not need a device: it can use recorded properties, as the tests do
 * (tests/gpu-dnn/recorded.h). Engine search and code generation are the same. Only loading and
 * running a plan need a driver.
 *
 * Errors while building are sticky: the first one is kept, and dnn_graph_plan returns it. All
 * arithmetic is fp32.
 */
#ifndef CHEX_ENGINE_CUDA_CUDNN_DNN_GRAPH_H
#define CHEX_ENGINE_CUDA_CUDNN_DNN_GRAPH_H

#include <cudnn_backend.h>

#include "engine/cuda/host/gpu.h"

/* Translates a cuDNN status to an error: expression, file and line, code, and cuDNN's last message.
 */
#define CHEX_DNN(call, err) dnn_check((call), #call, __FILE__, __LINE__, (err))
enum chex_status dnn_check(cudnnStatus_t status, const char *expr, const char *file, int line,
                           struct chex_error *err);

/* The calls of the backend interface: `kind`, `name` and `type` without cuDNN's prefixes. */
#define DNN_CREATE(kind, descriptor, err)                                                          \
    CHEX_DNN(cudnnBackendCreateDescriptor(CUDNN_BACKEND_##kind##_DESCRIPTOR, descriptor), err)
#define DNN_SET(descriptor, name, type, count, values, err)                                        \
    CHEX_DNN(                                                                                      \
        cudnnBackendSetAttribute(descriptor, CUDNN_ATTR_##name, CUDNN_TYPE_##type, count, values), \
        err)
#define DNN_GET(descriptor, name, type, count, count_out, values, err)                             \
    CHEX_DNN(cudnnBackendGetAttribute(descriptor, CUDNN_ATTR_##name, CUDNN_TYPE_##type, count,     \
                                      count_out, values),                                          \
             err)

/* ---- the device that a plan is made for ---- */

enum { DNN_KEY_BYTES = 192 };

struct dnn_target {
    cudnnHandle_t handle;                /* NULL: recorded properties */
    cudnnBackendDescriptor_t properties; /* NULL: properties of the handle's device */
    char key[DNN_KEY_BYTES];             /* cuDNN version, device name, capability: cache key */
};

void dnn_target_close(struct dnn_target *target);

/* Shared targets. A handle uses much memory, so plans share handles. A plan runs on the handle that
 * made it. Only one thread at a time may use a handle.
 *   - borrow: makes `device` the calling thread's device and returns an open target that no other
 * thread is planning with, and counts a reference.
 *   - settle: planning is done; other threads may plan with the target.
 *   - drop: ends the reference. The last one closes the handle. */
enum chex_status dnn_target_borrow(const struct gpu_device *device, const struct dnn_target **out,
                                   struct chex_error *err);
void dnn_target_settle(const struct dnn_target *target);
void dnn_target_drop(const struct dnn_target *target); /* NULL allowed */

/* ---- building ---- */

enum { DNN_MAX_DESCRIPTORS = 8, DNN_GRAPH_KEY_BYTES = 1024 };

struct dnn_graph {
    cudnnBackendDescriptor_t descriptors[DNN_MAX_DESCRIPTORS]; /* destroyed in reverse order */
    int descriptor_count;
    cudnnBackendDescriptor_t op;
    char key[DNN_GRAPH_KEY_BYTES]; /* text of the operation: part of the cache key */
    size_t key_length;
    struct chex_error err; /* the first error */
};

/* Roles of tensors: indices of their pointers in dnn_plan_run. */
enum dnn_role {
    DNN_IN = 1, /* input map of the convolution */
    DNN_WEIGHT,
    DNN_OUT,  /* output map */
    DNN_G,    /* gradient map of out */
    DNN_IN_G, /* gradient map of in, written */
    DNN_DWEIGHT,
    DNN_MAX_ROLES,
};

/* Each builds the graph g. Pointers in the maps are not used. Release g after planning. */

/* out = x * w. */
void dnn_forward(struct dnn_graph *g, const struct gpu_map *x, struct gpu_window window,
                 const struct gpu_map *out);
/* in_g = data gradient; og: gradient of out. */
void dnn_dgrad(struct dnn_graph *g, const struct gpu_map *in_g, struct gpu_window window,
               const struct gpu_map *og);
/* dweight in x's type, the only one that cuDNN offers for convolutions. */
void dnn_wgrad(struct dnn_graph *g, const struct gpu_map *x, struct gpu_window window,
               const struct gpu_map *og);
/* dweight in fp32 of a 1x1 convolution with stride 1: a matrix product over pixels. */
void dnn_wgrad_product(struct dnn_graph *g, const struct gpu_map *x, const struct gpu_map *og);
void dnn_graph_release(struct dnn_graph *g);

/* ---- planning ---- */

struct dnn_plan {
    cudnnBackendDescriptor_t desc;   /* NULL: none */
    cudnnBackendDescriptor_t config; /* its configuration; NULL: read from the cache */
    cudnnHandle_t handle;            /* the handle that made it; borrowed */
    size_t workspace;                /* bytes */
};

/* Allowed engines: only those that cuDNN calls deterministic. Not allowed: FFT and Winograd
 * transforms, narrowed inputs, and sums in less than fp32. strict: no tensor cores either, so only
 * plain fp32 FMA remains. */

/* found_out: number of allowed configurations; 0 is not an error. Needs no device. But without
 * libcuda.so.1 cuDNN offers no generated kernels. */
enum chex_status dnn_graph_search(struct dnn_graph *g, const struct dnn_target *target, bool strict,
                                  int *found_out, struct chex_error *err);
/* Makes a plan from the first configuration that works. cache: folder of plans
 * (host/device_cache.h); NULL: no cache. CHEX_E_ENV: no configuration works; the text has cuDNN's
 * reason. */
enum chex_status dnn_graph_plan(struct dnn_graph *g, const struct dnn_target *target, bool strict,
                                const char *cache, struct dnn_plan *plan_out,
                                struct chex_error *err);
void dnn_plan_release(struct dnn_plan *plan);

/* Enqueues the plan.
 *   - pointers[role]: address of the tensor with this role; NULL entries are ignored.
 *   - The call may be captured, but not a plan's first run, which may load code.
 *   - A cuDNN error is logged and returned as cudaErrorUnknown. */
cudaError_t dnn_plan_run(const struct dnn_plan *plan, void *const pointers[DNN_MAX_ROLES],
                         void *workspace, cudaStream_t stream);

#endif
