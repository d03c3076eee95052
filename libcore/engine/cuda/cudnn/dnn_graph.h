/* SPDX-License-Identifier: Apache-2.0
 *
 * Operation graphs for cuDNN's backend interface: build node by node, plan for a device, run. The
 * graphs of the networks' convolutions are in dnn_graphs.h.
 *
 * Planning does not need a device: it can use recorded properties (dnn_target_recorded). Engine
 * search and code generation are the same. Only loading and running a plan need a driver.
 *
 * Errors while building are sticky: the first one is kept, later calls do nothing, and
 * dnn_graph_plan returns it. All arithmetic is fp32. The type of a tensor gives the rounding of the
 * value between two operations.
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

/* ---- the device that a plan is made for ---- */

enum { DNN_KEY_BYTES = 192 };

struct dnn_target {
    cudnnHandle_t handle;                /* NULL: recorded properties */
    cudnnBackendDescriptor_t properties; /* NULL: properties of the handle's device */
    char key[DNN_KEY_BYTES];             /* cuDNN version, device name, capability: cache key */
};

/* Opens a handle on the device, and makes it the calling thread's device. Only one thread at a time
 * may use a handle. */
enum chex_status dnn_target_open(const struct gpu_device *device, struct dnn_target *target_out,
                                 struct chex_error *err);
/* A target without a device. json: output of dnn_target_record on such a device. */
enum chex_status dnn_target_recorded(const char *json, struct dnn_target *target_out,
                                     struct chex_error *err);
/* The device's properties as JSON. The caller frees it. */
enum chex_status dnn_target_record(const struct dnn_target *target, char **json_out,
                                   struct chex_error *err);
void dnn_target_close(struct dnn_target *target);

/* Shared targets. A handle uses much memory, so plans share handles. A plan runs on the handle that
 * made it.
 *   - borrow: returns an open target that no other thread is planning with, and counts a reference.
 *   - settle: planning is done; other threads may plan with the target.
 *   - drop: ends the reference. The last one closes the handle. */
enum chex_status dnn_target_borrow(const struct gpu_device *device, const struct dnn_target **out,
                                   struct chex_error *err);
void dnn_target_settle(const struct dnn_target *target);
void dnn_target_drop(const struct dnn_target *target); /* NULL allowed */

/* ---- building ---- */

enum {
    DNN_MAX_DESCRIPTORS = 96,
    DNN_MAX_TENSORS = 48,
    DNN_MAX_OPS = 20,
    DNN_GRAPH_KEY_BYTES = 6144
};

/* Dimensions in cuDNN's order: rank 4 is (n, c, h, w), rank 3 is (batch, rows, columns). */
struct dnn_shape {
    int rank;
    int64_t dim[4], stride[4];
};

struct dnn_graph {
    cudnnBackendDescriptor_t descriptors[DNN_MAX_DESCRIPTORS]; /* destroyed in reverse order */
    int descriptor_count;
    struct {
        cudnnBackendDescriptor_t desc;
        struct dnn_shape shape;
        int uid;
    } tensors[DNN_MAX_TENSORS]; /* index 0 means no tensor */
    int tensor_count;
    cudnnBackendDescriptor_t ops[DNN_MAX_OPS];
    int op_count;
    char key[DNN_GRAPH_KEY_BYTES]; /* text of all nodes: part of the cache key */
    size_t key_length;
    struct chex_error err; /* the first error */
};

/* A tensor is an index > 0. Its role (1 .. DNN_MAX_ROLES - 1) is the index of its pointer in
 * dnn_plan_run. Role 0: a virtual tensor, which exists only inside the kernel. */
typedef int dnn_tensor;
enum { DNN_MAX_ROLES = 32 };

struct dnn_shape dnn_shape_map(const struct gpu_map *m);        /* rank 4 */
struct dnn_shape dnn_shape_rows(const struct gpu_map *m);       /* rank 3: pixels x channels */
struct dnn_shape dnn_shape_columns(const struct gpu_map *m);    /* rank 3: channels x pixels */
struct dnn_shape dnn_shape_vector(int rank, int channels);      /* one value per channel */
struct dnn_shape dnn_shape_filter(int out, int kernel, int in); /* (out, ky, kx, in) in memory */

void dnn_graph_init(struct dnn_graph *g);
void dnn_graph_release(struct dnn_graph *g);

dnn_tensor dnn_graph_tensor(struct dnn_graph *g, int role, enum gpu_type type,
                            struct dnn_shape shape);
/* y = x op v; v has x's shape or is broadcast. Without _to the result is virtual and has x's shape.
 */
dnn_tensor dnn_graph_binary(struct dnn_graph *g, cudnnPointwiseMode_t mode, dnn_tensor x,
                            dnn_tensor v, enum gpu_type type);
void dnn_graph_binary_to(struct dnn_graph *g, cudnnPointwiseMode_t mode, dnn_tensor x, dnn_tensor v,
                         dnn_tensor y);
dnn_tensor dnn_graph_unary(struct dnn_graph *g, cudnnPointwiseMode_t mode, dnn_tensor x,
                           enum gpu_type type);
void dnn_graph_unary_to(struct dnn_graph *g, cudnnPointwiseMode_t mode, dnn_tensor x, dnn_tensor y);
/* dy where x > 0, else 0. */
dnn_tensor dnn_graph_mask(struct dnn_graph *g, dnn_tensor dy, dnn_tensor x);
/* y = sum of x over all dimensions in which y has size 1. */
void dnn_graph_sum(struct dnn_graph *g, dnn_tensor x, dnn_tensor y);
/* c = a b, rank 3. */
void dnn_graph_matmul(struct dnn_graph *g, dnn_tensor a, dnn_tensor b, dnn_tensor c);
/* Cross-correlation, data gradient and filter gradient; rank 4. */
void dnn_graph_forward(struct dnn_graph *g, struct gpu_window window, dnn_tensor x, dnn_tensor w,
                       dnn_tensor y);
void dnn_graph_dgrad(struct dnn_graph *g, struct gpu_window window, dnn_tensor dy, dnn_tensor w,
                     dnn_tensor dx);
void dnn_graph_wgrad(struct dnn_graph *g, struct gpu_window window, dnn_tensor x, dnn_tensor dy,
                     dnn_tensor dw);

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
/* Makes a plan from the first configuration that works. cache: folder of plans (dnn_cache.h); NULL:
 * no cache. CHEX_E_ENV: no configuration works; the text has cuDNN's reason. */
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
