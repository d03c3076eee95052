/* SPDX-License-Identifier: Apache-2.0
 *
 * Builds cuDNN graphs: tensors, operations, and the text of the graph, which is part of the plan
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
static void set_bool(struct dnn_graph *g, cudnnBackendDescriptor_t d,
                     cudnnBackendAttributeName_t name, bool value) {
    set(g, d, name, CUDNN_TYPE_BOOLEAN, 1, &value);
}
static void set_desc(struct dnn_graph *g, cudnnBackendDescriptor_t d,
                     cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t value) {
    set(g, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}
static void set_tensor(struct dnn_graph *g, cudnnBackendDescriptor_t d,
                       cudnnBackendAttributeName_t name, dnn_tensor t) {
    if (is_ok(g))
        set_desc(g, d, name, g->tensors[t].desc);
}

void dnn_graph_init(struct dnn_graph *g) {
    memset(g, 0, sizeof *g);
    g->tensor_count = 1;
}

void dnn_graph_release(struct dnn_graph *g) {
    while (g->descriptor_count)
        cudnnBackendDestroyDescriptor(g->descriptors[--g->descriptor_count]);
    dnn_graph_init(g);
}

/* ---- shapes ---- */

struct dnn_shape dnn_shape_map(const struct gpu_map *m) {
    const int64_t row = m->hw * m->pitch;
    return (struct dnn_shape){
        4, {m->n, m->channels, m->hw, m->hw}, {m->hw * row, 1, row, m->pitch}};
}

struct dnn_shape dnn_shape_rows(const struct gpu_map *m) {
    const int64_t pixels = gpu_map_pixels(m);
    return (struct dnn_shape){3, {1, pixels, m->channels}, {pixels * m->pitch, m->pitch, 1}};
}

struct dnn_shape dnn_shape_columns(const struct gpu_map *m) {
    const int64_t pixels = gpu_map_pixels(m);
    return (struct dnn_shape){3, {1, m->channels, pixels}, {pixels * m->pitch, 1, m->pitch}};
}

struct dnn_shape dnn_shape_vector(int rank, int channels) {
    return rank == 4 ? (struct dnn_shape){4, {1, channels, 1, 1}, {channels, 1, channels, channels}}
                     : (struct dnn_shape){3, {1, 1, channels}, {channels, channels, 1}};
}

struct dnn_shape dnn_shape_filter(int out, int kernel, int in) {
    const int64_t row = (int64_t)kernel * in;
    return (struct dnn_shape){4, {out, in, kernel, kernel}, {kernel * row, 1, row, in}};
}

/* ---- tensors ---- */

static cudnnDataType_t data_type(enum gpu_type type) {
    return type == GPU_F32    ? CUDNN_DATA_FLOAT
           : type == GPU_BF16 ? CUDNN_DATA_BFLOAT16
                              : CUDNN_DATA_HALF;
}

dnn_tensor dnn_graph_tensor(struct dnn_graph *g, int role, enum gpu_type type,
                            struct dnn_shape shape) {
    const int64_t alignment = ALIGNMENT_BYTES;
    const int t = g->tensor_count;
    if (is_ok(g) && t == DNN_MAX_TENSORS)
        chex_error_set(&g->err, CHEX_E_FAIL, "cuDNN graph: more than %d tensors", DNN_MAX_TENSORS);
    cudnnBackendDescriptor_t d = make(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    if (!is_ok(g))
        return 0;
    const int64_t uid = role ? role : DNN_MAX_ROLES + t;
    set_type(g, d, CUDNN_ATTR_TENSOR_DATA_TYPE, data_type(type));
    set(g, d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, shape.rank, shape.dim);
    set(g, d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, shape.rank, shape.stride);
    set(g, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid);
    set(g, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    set_bool(g, d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, !role);
    finish(g, d);
    add_to_key(g, "t%d:%d:%d", (int)uid, role, (int)type);
    for (int i = 0; i < shape.rank; i++)
        add_to_key(g, ":%lld/%lld", (long long)shape.dim[i], (long long)shape.stride[i]);
    add_to_key(g, ";");
    g->tensors[t].desc = d;
    g->tensors[t].shape = shape;
    g->tensors[t].uid = (int)uid;
    g->tensor_count++;
    return t;
}

/* A virtual tensor with x's shape, packed, in the memory order of x's strides. */
static dnn_tensor packed_like(struct dnn_graph *g, dnn_tensor x, enum gpu_type type) {
    struct dnn_shape s = g->tensors[x].shape;
    if (!is_ok(g))
        return 0;
    bool placed[4] = {false};
    int64_t stride = 1;
    for (int i = 0; i < s.rank; i++) {
        int next = -1; /* the innermost dimension that has no stride yet; ties: the last */
        for (int j = 0; j < s.rank; j++)
            if (!placed[j] &&
                (next < 0 || g->tensors[x].shape.stride[j] <= g->tensors[x].shape.stride[next]))
                next = j;
        placed[next] = true;
        s.stride[next] = stride;
        stride *= s.dim[next];
    }
    return dnn_graph_tensor(g, 0, type, s);
}

/* ---- operations ---- */

static void add_op(struct dnn_graph *g, cudnnBackendDescriptor_t op) {
    finish(g, op);
    if (is_ok(g) && g->op_count == DNN_MAX_OPS)
        chex_error_set(&g->err, CHEX_E_FAIL, "cuDNN graph: more than %d operations", DNN_MAX_OPS);
    if (is_ok(g))
        g->ops[g->op_count++] = op;
}

static cudnnBackendDescriptor_t pointwise(struct dnn_graph *g, cudnnPointwiseMode_t mode) {
    cudnnBackendDescriptor_t d = make(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    set(g, d, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    set_type(g, d, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT);
    finish(g, d);
    cudnnBackendDescriptor_t op = make(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, d);
    return op;
}

void dnn_graph_binary_to(struct dnn_graph *g, cudnnPointwiseMode_t mode, dnn_tensor x, dnn_tensor v,
                         dnn_tensor y) {
    cudnnBackendDescriptor_t op = pointwise(g, mode);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, v);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    add_op(g, op);
    add_to_key(g, "b%d:%d:%d:%d;", (int)mode, x, v, y);
}

dnn_tensor dnn_graph_binary(struct dnn_graph *g, cudnnPointwiseMode_t mode, dnn_tensor x,
                            dnn_tensor v, enum gpu_type type) {
    const dnn_tensor y = packed_like(g, x, type);
    dnn_graph_binary_to(g, mode, x, v, y);
    return y;
}

void dnn_graph_unary_to(struct dnn_graph *g, cudnnPointwiseMode_t mode, dnn_tensor x,
                        dnn_tensor y) {
    cudnnBackendDescriptor_t op = pointwise(g, mode);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    add_op(g, op);
    add_to_key(g, "u%d:%d:%d;", (int)mode, x, y);
}

dnn_tensor dnn_graph_unary(struct dnn_graph *g, cudnnPointwiseMode_t mode, dnn_tensor x,
                           enum gpu_type type) {
    const dnn_tensor y = packed_like(g, x, type);
    dnn_graph_unary_to(g, mode, x, y);
    return y;
}

dnn_tensor dnn_graph_mask(struct dnn_graph *g, dnn_tensor dy, dnn_tensor x) {
    const dnn_tensor dx = packed_like(g, dy, GPU_F32);
    cudnnBackendDescriptor_t op = pointwise(g, CUDNN_POINTWISE_RELU_BWD);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_DYDESC, dy);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_DXDESC, dx);
    add_op(g, op);
    add_to_key(g, "m%d:%d:%d;", x, dy, dx);
    return dx;
}

void dnn_graph_sum(struct dnn_graph *g, dnn_tensor x, dnn_tensor y) {
    const cudnnReduceTensorOp_t add = CUDNN_REDUCE_TENSOR_ADD;
    cudnnBackendDescriptor_t d = make(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    set(g, d, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &add);
    set_type(g, d, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
    finish(g, d);
    cudnnBackendDescriptor_t op = make(g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    set_desc(g, op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, d);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    add_op(g, op);
    add_to_key(g, "s%d:%d;", x, y);
}

void dnn_graph_matmul(struct dnn_graph *g, dnn_tensor a, dnn_tensor b, dnn_tensor c) {
    cudnnBackendDescriptor_t d = make(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    set_type(g, d, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
    finish(g, d);
    cudnnBackendDescriptor_t op = make(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    set_desc(g, op, CUDNN_ATTR_OPERATION_MATMUL_DESC, d);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
    add_op(g, op);
    add_to_key(g, "x%d:%d:%d;", a, b, c);
}

/* The three kinds of convolution differ only in these names. */
struct conv_names {
    cudnnBackendDescriptorType_t op;
    cudnnBackendAttributeName_t conv, alpha, beta, x, w, y;
};

static void convolve(struct dnn_graph *g, const struct conv_names *names, struct gpu_window window,
                     dnn_tensor x, dnn_tensor w, dnn_tensor y) {
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
    cudnnBackendDescriptor_t op = make(g, names->op);
    set_desc(g, op, names->conv, d);
    set_tensor(g, op, names->x, x);
    set_tensor(g, op, names->w, w);
    set_tensor(g, op, names->y, y);
    set(g, op, names->alpha, CUDNN_TYPE_FLOAT, 1, &one);
    set(g, op, names->beta, CUDNN_TYPE_FLOAT, 1, &zero);
    add_op(g, op);
    add_to_key(g, "c%d:%d:%d:%d:%d:%d:%d;", (int)names->op, window.kernel, window.stride,
               window.pad, x, w, y);
}

void dnn_graph_forward(struct dnn_graph *g, struct gpu_window window, dnn_tensor x, dnn_tensor w,
                       dnn_tensor y) {
    static const struct conv_names names = {
        CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
    };
    convolve(g, &names, window, x, w, y);
}

void dnn_graph_dgrad(struct dnn_graph *g, struct gpu_window window, dnn_tensor dy, dnn_tensor w,
                     dnn_tensor dx) {
    static const struct conv_names names = {
        CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
    };
    convolve(g, &names, window, dx, w, dy);
}

void dnn_graph_wgrad(struct dnn_graph *g, struct gpu_window window, dnn_tensor x, dnn_tensor dy,
                     dnn_tensor dw) {
    static const struct conv_names names = {
        CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
    };
    convolve(g, &names, window, x, dw, dy);
}
