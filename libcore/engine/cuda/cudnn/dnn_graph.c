/* SPDX-License-Identifier: Apache-2.0
 *
 * Builds cuDNN graphs: tensors, the operation, and the text of the graph, which is part of the plan
 * cache's key.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "engine/cuda/cudnn/dnn_graph.h"

enum { ALIGNMENT_BYTES = 16 }; /* slices begin at 64 bytes, allocations at 256 */

/* ---- errors ---- */

static enum chex_status status_of(cudnnStatus_t status) {
    if (status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
        status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED)
        return CHEX_E_RESOURCE;
    switch (CUDNN_STATUS_CATEGORY((int)status)) {
    case CUDNN_STATUS_NOT_SUPPORTED: return CHEX_E_ENV;
    case CUDNN_STATUS_EXECUTION_FAILED: return CHEX_E_NODE;
    default: return CHEX_E_FAIL;
    }
}

enum chex_status dnn_check(cudnnStatus_t status, const char *expr, const char *file, int line,
                           struct chex_error *err) {
    char last[256] = "";
    if (status == CUDNN_STATUS_SUCCESS)
        return CHEX_OK;
    cudnnGetLastErrorString(last, sizeof last);
    last[sizeof last - 1] = '\0';
    for (char *p = last; *p; p++)
        *p = *p == '\n' ? ' ' : *p;
    return chex_error_set(err, status_of(status), "cuDNN: %s at %s:%d: %s: %s", expr, file, line,
                          cudnnGetErrorString(status), last);
}

/* ---- descriptors ---- */

static bool is_ok(const struct dnn_graph *g) { return g->err.status == CHEX_OK; }

static void add_to_key(struct dnn_graph *g, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static void add_to_key(struct dnn_graph *g, const char *fmt, ...) {
    const size_t space = sizeof g->key - g->key_length;
    va_list args;
    va_start(args, fmt);
    const int length = vsnprintf(g->key + g->key_length, space, fmt, args);
    va_end(args);
    if (length < 0 || (size_t)length >= space)
        chex_error_set(&g->err, CHEX_E_FAIL, "cuDNN graph: its key is longer than %d bytes",
                       DNN_GRAPH_KEY_BYTES);
    else
        g->key_length += (size_t)length;
}

static cudnnBackendDescriptor_t make(struct dnn_graph *g, cudnnBackendDescriptorType_t type) {
    cudnnBackendDescriptor_t d = NULL;
    if (!is_ok(g))
        return NULL;
    if (g->descriptor_count == DNN_MAX_DESCRIPTORS) {
        chex_error_set(&g->err, CHEX_E_FAIL, "cuDNN graph: more than %d descriptors",
                       DNN_MAX_DESCRIPTORS);
        return NULL;
    }
    if (CHEX_DNN(cudnnBackendCreateDescriptor(type, &d), &g->err) == CHEX_OK)
        g->descriptors[g->descriptor_count++] = d;
    return d;
}

static void set(struct dnn_graph *g, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t count, const void *values) {
    if (is_ok(g))
        (void)CHEX_DNN(cudnnBackendSetAttribute(d, name, type, count, values), &g->err);
}

static void finish(struct dnn_graph *g, cudnnBackendDescriptor_t d) {
    if (is_ok(g))
        (void)CHEX_DNN(cudnnBackendFinalize(d), &g->err);
}

static void set_type(struct dnn_graph *g, cudnnBackendDescriptor_t d,
                     cudnnBackendAttributeName_t name, cudnnDataType_t type) {
    set(g, d, name, CUDNN_TYPE_DATA_TYPE, 1, &type);
}
static void set_desc(struct dnn_graph *g, cudnnBackendDescriptor_t d,
                     cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t value) {
    set(g, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

void dnn_graph_release(struct dnn_graph *g) {
    while (g->descriptor_count)
        cudnnBackendDestroyDescriptor(g->descriptors[--g->descriptor_count]);
    memset(g, 0, sizeof *g);
}

/* ---- tensors ---- */

/* Dimensions in cuDNN's order: rank 4 is (n, c, h, w), rank 3 is (batch, rows, columns). */
struct shape {
    int rank;
    int64_t dim[4], stride[4];
};

static cudnnDataType_t data_type(enum gpu_type type) {
    return type == GPU_F32    ? CUDNN_DATA_FLOAT
           : type == GPU_BF16 ? CUDNN_DATA_BFLOAT16
                              : CUDNN_DATA_HALF;
}

static cudnnBackendDescriptor_t tensor(struct dnn_graph *g, enum dnn_role role, enum gpu_type type,
                                       struct shape shape) {
    const int64_t alignment = ALIGNMENT_BYTES, uid = role;
    cudnnBackendDescriptor_t d = make(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    set_type(g, d, CUDNN_ATTR_TENSOR_DATA_TYPE, data_type(type));
    set(g, d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, shape.rank, shape.dim);
    set(g, d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, shape.rank, shape.stride);
    set(g, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid);
    set(g, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    finish(g, d);
    add_to_key(g, "t%d:%d", (int)role, (int)type);
    for (int i = 0; i < shape.rank; i++)
        add_to_key(g, ":%lld/%lld", (long long)shape.dim[i], (long long)shape.stride[i]);
    add_to_key(g, ";");
    return d;
}

static cudnnBackendDescriptor_t map(struct dnn_graph *g, enum dnn_role role,
                                    const struct gpu_map *m) {
    const int64_t row = m->hw * m->pitch;
    return tensor(
        g, role, m->type,
        (struct shape){4, {m->n, m->channels, m->hw, m->hw}, {m->hw * row, 1, row, m->pitch}});
}

/* (out, ky, kx, in) in memory. */
static cudnnBackendDescriptor_t filter(struct dnn_graph *g, enum dnn_role role,
                                       const struct gpu_map *in, struct gpu_window window,
                                       const struct gpu_map *out) {
    const int64_t c = in->channels, k = window.kernel;
    return tensor(g, role, in->type,
                  (struct shape){4, {out->channels, c, k, k}, {k * k * c, 1, k * c, c}});
}

/* ---- operations ---- */

static void start(struct dnn_graph *g, cudnnBackendDescriptorType_t op) {
    memset(g, 0, sizeof *g);
    add_to_key(g, "op%d;", (int)op);
}

/* The three kinds of convolution differ only in these names. */
struct conv_names {
    cudnnBackendDescriptorType_t op;
    cudnnBackendAttributeName_t conv, alpha, beta, x, w, y;
};

static void convolve(struct dnn_graph *g, const struct conv_names *names, struct gpu_window window,
                     cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t w,
                     cudnnBackendDescriptor_t y) {
    const int64_t dims = 2, stride[2] = {window.stride, window.stride}, dilation[2] = {1, 1};
    const int64_t pad[2] = {window.pad, window.pad};
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    const float one = 1, zero = 0;
    cudnnBackendDescriptor_t d = make(g, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    set_type(g, d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT);
    set(g, d, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    set(g, d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &dims);
    set(g, d, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, dilation);
    set(g, d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, stride);
    set(g, d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, pad);
    set(g, d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, pad);
    finish(g, d);
    g->op = make(g, names->op);
    set_desc(g, g->op, names->conv, d);
    set_desc(g, g->op, names->x, x);
    set_desc(g, g->op, names->w, w);
    set_desc(g, g->op, names->y, y);
    set(g, g->op, names->alpha, CUDNN_TYPE_FLOAT, 1, &one);
    set(g, g->op, names->beta, CUDNN_TYPE_FLOAT, 1, &zero);
    finish(g, g->op);
    add_to_key(g, "c%d:%d:%d;", window.kernel, window.stride, window.pad);
}

#define CONV_NAMES(kind, attr, x, w, y)                                                            \
    {                                                                                              \
        CUDNN_BACKEND_OPERATION_CONVOLUTION_##kind##_DESCRIPTOR,                                   \
            CUDNN_ATTR_OPERATION_CONVOLUTION_##attr##_CONV_DESC,                                   \
            CUDNN_ATTR_OPERATION_CONVOLUTION_##attr##_ALPHA,                                       \
            CUDNN_ATTR_OPERATION_CONVOLUTION_##attr##_BETA,                                        \
            CUDNN_ATTR_OPERATION_CONVOLUTION_##attr##_##x,                                         \
            CUDNN_ATTR_OPERATION_CONVOLUTION_##attr##_##w,                                         \
            CUDNN_ATTR_OPERATION_CONVOLUTION_##attr##_##y                                          \
    }

void dnn_forward(struct dnn_graph *g, const struct gpu_map *x, struct gpu_window window,
                 const struct gpu_map *out) {
    static const struct conv_names names = CONV_NAMES(FORWARD, FORWARD, X, W, Y);
    start(g, names.op);
    convolve(g, &names, window, map(g, DNN_IN, x), filter(g, DNN_WEIGHT, x, window, out),
             map(g, DNN_OUT, out));
}

void dnn_dgrad(struct dnn_graph *g, const struct gpu_map *in_g, struct gpu_window window,
               const struct gpu_map *og) {
    static const struct conv_names names = CONV_NAMES(BACKWARD_DATA, BWD_DATA, DX, W, DY);
    start(g, names.op);
    convolve(g, &names, window, map(g, DNN_IN_G, in_g), filter(g, DNN_WEIGHT, in_g, window, og),
             map(g, DNN_G, og));
}

void dnn_wgrad(struct dnn_graph *g, const struct gpu_map *x, struct gpu_window window,
               const struct gpu_map *og) {
    static const struct conv_names names = CONV_NAMES(BACKWARD_FILTER, BWD_FILTER, X, DW, DY);
    start(g, names.op);
    convolve(g, &names, window, map(g, DNN_IN, x), filter(g, DNN_DWEIGHT, x, window, og),
             map(g, DNN_G, og));
}

void dnn_wgrad_product(struct dnn_graph *g, const struct gpu_map *x, const struct gpu_map *og) {
    const int64_t pixels = gpu_map_pixels(x), in = x->channels, out = og->channels;
    const struct shape rows = {3, {1, pixels, in}, {pixels * x->pitch, x->pitch, 1}},
                       columns = {3, {1, out, pixels}, {pixels * og->pitch, 1, og->pitch}},
                       dweight = {3, {1, out, in}, {out * in, in, 1}};
    start(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    cudnnBackendDescriptor_t a = tensor(g, DNN_G, og->type, columns),
                             b = tensor(g, DNN_IN, x->type, rows),
                             c = tensor(g, DNN_DWEIGHT, GPU_F32, dweight),
                             d = make(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    set_type(g, d, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
    finish(g, d);
    g->op = make(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    set_desc(g, g->op, CUDNN_ATTR_OPERATION_MATMUL_DESC, d);
    set_desc(g, g->op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    set_desc(g, g->op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    set_desc(g, g->op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
    finish(g, g->op);
}
