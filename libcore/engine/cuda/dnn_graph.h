/* SPDX-License-Identifier: Apache-2.0
 *
 * Graphs of operations for cuDNN's backend interface: built node by node, planned for a device,
 * run. dnn_graphs.h has the graphs of the networks; this file knows no convolution of theirs.
 *
 * A plan can be made without a device from recorded properties (dnn_target_recorded): engine
 * search and code generation then go their usual way, only loading and running need a driver.
 *
 * Building never fails at once: the first fault is kept, later calls do nothing, and
 * dnn_graph_plan says what it was. All arithmetic is fp32; the type of a tensor says to what a
 * value is rounded on its way from one operation to the next.
 */
#ifndef CHEX_ENGINE_CUDA_DNN_GRAPH_H
#define CHEX_ENGINE_CUDA_DNN_GRAPH_H

#include <cudnn_backend.h>

#include "engine/cuda/gpu.h"

/* cuDNN's results, translated once: expression, place, code and the library's own last message. */
#define CHEX_DNN(call, err) dnn_check((call), #call, __FILE__, __LINE__, (err))
enum chex_status dnn_check(cudnnStatus_t status, const char *expr, const char *file, int line,
                           struct chex_error *err);

/* ---- what plans are made for ---- */

enum { DNN_KEY_BYTES = 192 };

struct dnn_target {
    cudnnHandle_t handle;                /* NULL: recorded properties */
    cudnnBackendDescriptor_t properties; /* NULL: those of the handle's device */
    char key[DNN_KEY_BYTES];             /* cuDNN version, device name, capability: cache key */
};

/* The device, which becomes the calling thread's. A handle serves one thread at a time. */
enum chex_status dnn_target_open(const struct gpu_device *device, struct dnn_target *target_out,
                                 struct chex_error *err);
/* A device that is not there. json: what dnn_target_record gave on one. */
enum chex_status dnn_target_recorded(const char *json, struct dnn_target *target_out,
                                     struct chex_error *err);
/* The device's properties as JSON in fresh memory; the caller frees. */
enum chex_status dnn_target_record(const struct dnn_target *target, char **json_out,
                                   struct chex_error *err);
void dnn_target_close(struct dnn_target *target);

/* Handles are dear, so plans share them. borrow: an open target of the device that no other thread
 * plans with, and a hold on it; settle: planning is done, others may plan with it; drop: the hold
 * ends, with the last of them the handle. A plan runs on the handle it was made with. */
enum chex_status dnn_target_borrow(const struct gpu_device *device, const struct dnn_target **out,
                                   struct chex_error *err);
void dnn_target_settle(const struct dnn_target *target);
void dnn_target_drop(const struct dnn_target *target); /* NULL allowed */

/* ---- building ---- */

enum { DNN_MAX_HELD = 96, DNN_MAX_TENSORS = 48, DNN_MAX_OPS = 20, DNN_GRAPH_KEY_BYTES = 6144 };

/* Dimensions in cuDNN's order: (n, c, h, w) where rank is 4, (batch, rows, columns) where 3. */
struct dnn_shape {
    int rank;
    int64_t dim[4], stride[4];
};

struct dnn_graph {
    cudnnBackendDescriptor_t held[DNN_MAX_HELD]; /* destroyed in reverse order */
    int held_count;
    struct {
        cudnnBackendDescriptor_t desc;
        struct dnn_shape shape;
        int uid;
    } tensors[DNN_MAX_TENSORS]; /* tensor 0 is none */
    int tensor_count;
    cudnnBackendDescriptor_t ops[DNN_MAX_OPS];
    int op_count;
    char key[DNN_GRAPH_KEY_BYTES]; /* all that was built, as text */
    size_t key_length;
    struct chex_error err; /* the first fault */
};

/* A tensor is an index > 0. Role: the caller's number (1 .. DNN_MAX_ROLES - 1) of the pointer that
 * it is bound to in dnn_plan_run; 0: virtual, it lives inside the kernel. */
typedef int dnn_tensor;
enum { DNN_MAX_ROLES = 32 };

struct dnn_shape dnn_shape_map(const struct gpu_map *m);        /* rank 4 */
struct dnn_shape dnn_shape_rows(const struct gpu_map *m);       /* rank 3: pixels x channels */
struct dnn_shape dnn_shape_columns(const struct gpu_map *m);    /* rank 3: channels x pixels */
struct dnn_shape dnn_shape_vector(int rank, int channels);      /* one value a channel */
struct dnn_shape dnn_shape_filter(int out, int kernel, int in); /* (out, ky, kx, in) in memory */

void dnn_graph_init(struct dnn_graph *g);
void dnn_graph_release(struct dnn_graph *g);

dnn_tensor dnn_graph_tensor(struct dnn_graph *g, int role, enum gpu_type type,
                            struct dnn_shape shape);
/* y = x op v, v of x's shape or broadcast. The virtual result has x's shape. */
dnn_tensor dnn_graph_binary(struct dnn_graph *g, cudnnPointwiseMode_t mode, dnn_tensor x,
                            dnn_tensor v, enum gpu_type type);
void dnn_graph_binary_to(struct dnn_graph *g, cudnnPointwiseMode_t mode, dnn_tensor x, dnn_tensor v,
                         dnn_tensor y);
dnn_tensor dnn_graph_unary(struct dnn_graph *g, cudnnPointwiseMode_t mode, dnn_tensor x,
                           enum gpu_type type);
void dnn_graph_unary_to(struct dnn_graph *g, cudnnPointwiseMode_t mode, dnn_tensor x, dnn_tensor y);
/* dy where x > 0, else 0. */
dnn_tensor dnn_graph_mask(struct dnn_graph *g, dnn_tensor dy, dnn_tensor x);
/* y = the sum of x over all dimensions where y's is 1. */
void dnn_graph_sum(struct dnn_graph *g, dnn_tensor x, dnn_tensor y);
/* c = a b, rank 3. */
void dnn_graph_matmul(struct dnn_graph *g, dnn_tensor a, dnn_tensor b, dnn_tensor c);
/* Cross-correlation, its gradient by data and by filter; rank 4. */
void dnn_graph_forward(struct dnn_graph *g, struct gpu_window window, dnn_tensor x, dnn_tensor w,
                       dnn_tensor y);
void dnn_graph_dgrad(struct dnn_graph *g, struct gpu_window window, dnn_tensor dy, dnn_tensor w,
                     dnn_tensor dx);
void dnn_graph_wgrad(struct dnn_graph *g, struct gpu_window window, dnn_tensor x, dnn_tensor dy,
                     dnn_tensor dw);

/* ---- planning ---- */

struct dnn_plan {
    cudnnBackendDescriptor_t desc;   /* NULL: none */
    cudnnBackendDescriptor_t config; /* it was made of; NULL: read from the cache */
    cudnnHandle_t handle;            /* that it was made with; borrowed */
    size_t workspace;                /* bytes */
};

/* Only engines that cuDNN calls deterministic are taken, and none that transform, narrow their
 * inputs or sum in less than fp32. strict: no tensor cores either, which leaves plain fp32 FMA. */

/* How many configurations the search offers; 0 is no failure. Needs no driver, but to open one:
 * without libcuda.so.1 cuDNN offers no generated kernels. */
enum chex_status dnn_graph_search(struct dnn_graph *g, const struct dnn_target *target, bool strict,
                                  int *found_out, struct chex_error *err);
/* The first configuration that can be planned. cache: folder of plans (dnn_cache.h), NULL: none.
 * CHEX_E_ENV where there is none, with cuDNN's reason. */
enum chex_status dnn_graph_plan(struct dnn_graph *g, const struct dnn_target *target, bool strict,
                                const char *cache, struct dnn_plan *plan_out,
                                struct chex_error *err);
void dnn_plan_release(struct dnn_plan *plan);

/* pointers[role] for each tensor with a role; NULL entries take no part. May be captured, but a
 * plan's first run may load code, so it should not be the captured one. A failure of cuDNN is
 * logged with its text and comes back as a CUDA error. */
cudaError_t dnn_plan_run(const struct dnn_plan *plan, void *const pointers[DNN_MAX_ROLES],
                         void *workspace, cudaStream_t stream);

#endif
