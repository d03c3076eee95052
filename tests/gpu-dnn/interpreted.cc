/* SPDX-License-Identifier: Apache-2.0
 *
 * The part of cuDNN that chexnet uses, for tests without a GPU: the operation of a graph is
 * interpreted over the memory of emulated devices. Arithmetic is double, and the result is rounded
 * to the type that its tensor declares. So a graph computes here what it says, and what cuDNN's
 * kernels should compute except for their order of sums.
 *
 * Stricter than the library where it can be: shapes must agree, pointers be bound and aligned, and
 * of the configurations offered the first calls itself nondeterministic and refuses to run.
 */
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cudnn_backend.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace {

struct descriptor {
    cudnnBackendDescriptorType_t type;
    std::map<int, std::vector<char>> attributes;
    bool final = false;
    bool sure = true;                              /* configurations, plans: deterministic */
    std::vector<std::shared_ptr<descriptor>> kept; /* those that its attributes name */
};

/* What the caller has not destroyed. A descriptor lives on while another one names it, as in the
 * library. */
std::map<descriptor *, std::shared_ptr<descriptor>> owned;

std::string last_error;

cudnnStatus_t refuse(cudnnStatus_t status, const std::string &why) {
    last_error = "interpreted: " + why;
    return status;
}

size_t size_of(cudnnBackendAttributeType_t type) {
    switch (type) {
    case CUDNN_TYPE_BOOLEAN: return sizeof(bool);
    case CUDNN_TYPE_CHAR: return 1;
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR: return 8;
    default: return 4;
    }
}

template <class T> std::vector<T> all(const descriptor *d, int name) {
    const auto at = d->attributes.find(name);
    if (at == d->attributes.end())
        return {};
    std::vector<T> v(at->second.size() / sizeof(T));
    memcpy(v.data(), at->second.data(), at->second.size());
    return v;
}
template <class T> T one(const descriptor *d, int name) {
    const std::vector<T> v = all<T>(d, name);
    if (v.size() != 1)
        throw std::string("attribute " + std::to_string(name) + " is not set");
    return v[0];
}
descriptor *child(const descriptor *d, int name) { return one<descriptor *>(d, name); }
bool set(const descriptor *d, int name) { return d->attributes.count(name) != 0; }

/* ---- tensors ---- */

struct tensor {
    std::vector<int64_t> dim, stride;
    cudnnDataType_t type;
    int64_t uid, alignment;
};

tensor tensor_of(const descriptor *d) {
    return {all<int64_t>(d, CUDNN_ATTR_TENSOR_DIMENSIONS),
            all<int64_t>(d, CUDNN_ATTR_TENSOR_STRIDES),
            one<cudnnDataType_t>(d, CUDNN_ATTR_TENSOR_DATA_TYPE),
            one<int64_t>(d, CUDNN_ATTR_TENSOR_UNIQUE_ID),
            one<int64_t>(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT)};
}

size_t count(const tensor &t) {
    size_t n = 1;
    for (int64_t d : t.dim)
        n *= (size_t)d;
    return n;
}

/* Element i in row-major order of the dimensions: where it lies. */
int64_t offset(const tensor &t, size_t i) {
    int64_t at = 0;
    for (size_t k = t.dim.size(); k-- > 0; i /= (size_t)t.dim[k])
        at += (int64_t)(i % (size_t)t.dim[k]) * t.stride[k];
    return at;
}

double load(cudnnDataType_t type, const void *p, int64_t at) {
    switch (type) {
    case CUDNN_DATA_BFLOAT16: return (double)__bfloat162float(((const __nv_bfloat16 *)p)[at]);
    case CUDNN_DATA_HALF: return (double)__half2float(((const __half *)p)[at]);
    default: return (double)((const float *)p)[at];
    }
}
void store(cudnnDataType_t type, void *p, int64_t at, double v) {
    switch (type) {
    case CUDNN_DATA_BFLOAT16: ((__nv_bfloat16 *)p)[at] = __float2bfloat16_rn((float)v); break;
    case CUDNN_DATA_HALF: ((__half *)p)[at] = __float2half_rn((float)v); break;
    default: ((float *)p)[at] = (float)v; break;
    }
}

/* ---- one run ---- */

typedef std::vector<double> values;

struct run {
    std::map<int64_t, void *> bound;

    void *pointer(const tensor &t) {
        const auto at = bound.find(t.uid);
        if (at == bound.end())
            throw std::string("tensor " + std::to_string(t.uid) + " has no pointer");
        if ((uintptr_t)at->second % (uintptr_t)t.alignment)
            throw std::string("tensor " + std::to_string(t.uid) + " is not aligned");
        return at->second;
    }
    values read(const tensor &t) {
        const void *p = pointer(t);
        values v(count(t));
        for (size_t i = 0; i < v.size(); i++)
            v[i] = load(t.type, p, offset(t, i));
        return v;
    }
    void write(const tensor &t, const values &v) {
        if (v.size() != count(t))
            throw std::string("a result has another shape than its tensor");
        void *p = pointer(t);
        for (size_t i = 0; i < v.size(); i++)
            store(t.type, p, offset(t, i), v[i]);
    }
};

void run_matmul(run &r, const descriptor *op) {
    const tensor a = tensor_of(child(op, CUDNN_ATTR_OPERATION_MATMUL_ADESC));
    const tensor b = tensor_of(child(op, CUDNN_ATTR_OPERATION_MATMUL_BDESC));
    const tensor c = tensor_of(child(op, CUDNN_ATTR_OPERATION_MATMUL_CDESC));
    const size_t rows = (size_t)a.dim[1], inner = (size_t)a.dim[2], columns = (size_t)b.dim[2];
    if (a.dim[2] != b.dim[1] || c.dim[1] != a.dim[1] || c.dim[2] != b.dim[2] || a.dim[0] != 1)
        throw std::string("matrices whose shapes do not agree");
    const values as = r.read(a), bs = r.read(b);
    values cs(rows * columns, 0.0);
    for (size_t i = 0; i < rows; i++)
        for (size_t k = 0; k < inner; k++)
            for (size_t j = 0; j < columns; j++)
                cs[i * columns + j] += as[i * inner + k] * bs[k * columns + j];
    r.write(c, cs);
}

/* One of the three is the sum over pairs of the others: x (n, c, h, w), w (k, c, r, s),
 * y (n, k, p, q). */
void run_convolution(run &r, const descriptor *op, int conv, int xname, int wname, int yname,
                     int result) {
    const descriptor *d = child(op, conv);
    const tensor x = tensor_of(child(op, xname)), w = tensor_of(child(op, wname));
    const tensor y = tensor_of(child(op, yname));
    const int64_t stride = all<int64_t>(d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES)[0];
    const int64_t pad = all<int64_t>(d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS)[0];
    const int64_t N = x.dim[0], C = x.dim[1], H = x.dim[2], K = w.dim[0], R = w.dim[2];
    const int64_t P = y.dim[2];
    if (w.dim[1] != C || y.dim[0] != N || y.dim[1] != K || x.dim[3] != H || y.dim[3] != P ||
        P != (H + 2 * pad - R) / stride + 1)
        throw std::string("a convolution whose shapes do not agree");
    const values xs = result == xname ? values(count(x), 0.0) : r.read(x);
    const values ws = result == wname ? values(count(w), 0.0) : r.read(w);
    const values ys = result == yname ? values(count(y), 0.0) : r.read(y);
    values out((result == xname ? xs : result == wname ? ws : ys).size(), 0.0);
    for (int64_t n = 0; n < N; n++)
        for (int64_t k = 0; k < K; k++)
            for (int64_t p = 0; p < P; p++)
                for (int64_t q = 0; q < P; q++)
                    for (int64_t c = 0; c < C; c++)
                        for (int64_t t = 0; t < R * R; t++) {
                            const int64_t h = p * stride - pad + t / R,
                                          v = q * stride - pad + t % R;
                            if (h < 0 || h >= H || v < 0 || v >= H)
                                continue;
                            const size_t xi = (size_t)(((n * C + c) * H + h) * H + v);
                            const size_t wi = (size_t)((k * C + c) * R * R + t);
                            const size_t yi = (size_t)(((n * K + k) * P + p) * P + q);
                            if (result == yname)
                                out[yi] += xs[xi] * ws[wi];
                            else if (result == xname)
                                out[xi] += ys[yi] * ws[wi];
                            else
                                out[wi] += ys[yi] * xs[xi];
                        }
    r.write(result == xname ? x : result == wname ? w : y, out);
}

void run_operation(run &r, const descriptor *op) {
    switch (op->type) {
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR: return run_matmul(r, op);
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
        return run_convolution(
            r, op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y);
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
        return run_convolution(r, op, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                               CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                               CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                               CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                               CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX);
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
        return run_convolution(r, op, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                               CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                               CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                               CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                               CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW);
    default: throw std::string("operation " + std::to_string((int)op->type));
    }
}

} // namespace

struct cudnnContext {
    cudaStream_t stream;
};

extern "C" {

size_t cudnnGetVersion(void) { return CUDNN_VERSION; }
const char *cudnnGetErrorString(cudnnStatus_t status) {
    return status == CUDNN_STATUS_SUCCESS ? "success" : "refused";
}
void cudnnGetLastErrorString(char *message, size_t max_size) {
    snprintf(message, max_size, "%s", last_error.c_str());
}
cudnnStatus_t cudnnCreate(cudnnHandle_t *handle) {
    *handle = new cudnnContext{nullptr};
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
    delete handle;
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
    handle->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t *out) {
    const std::shared_ptr<descriptor> d = std::make_shared<descriptor>();
    d->type = type;
    owned[d.get()] = d;
    *out = d.get();
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t d) {
    return owned.erase(static_cast<descriptor *>(d)) == 1
               ? CUDNN_STATUS_SUCCESS
               : refuse(CUDNN_STATUS_BAD_PARAM, "a descriptor is destroyed twice");
}
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor_) {
    descriptor *d = static_cast<descriptor *>(descriptor_);
    d->final = true;
    if (d->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR &&
        set(d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG))
        d->sure = child(d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)->sure;
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor_,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t elements,
                                       const void *array) {
    descriptor *d = static_cast<descriptor *>(descriptor_);
    if (d->final)
        return refuse(CUDNN_STATUS_BAD_PARAM, "a descriptor is changed after it was finalised");
    if (name == CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION)
        return refuse(CUDNN_STATUS_NOT_SUPPORTED, "plans are not read back");
    const char *bytes = static_cast<const char *>(array);
    d->attributes[name].assign(bytes, bytes + (size_t)elements * size_of(type));
    if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
        for (descriptor *named : all<descriptor *>(d, name)) {
            const auto at = owned.find(named);
            if (at == owned.end() || !named->final)
                return refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "a descriptor not finalised");
            d->kept.push_back(at->second);
        }
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t give_results(descriptor *d, int64_t wanted, int64_t *got, void *array) {
    descriptor **results = static_cast<descriptor **>(array);
    const bool first = one<int>(d, CUDNN_ATTR_ENGINEHEUR_MODE) == CUDNN_HEUR_MODE_A;
    if (!first || wanted < 2) {
        *got = 0;
        return CUDNN_STATUS_SUCCESS;
    }
    for (int i = 0; i < 2; i++) {
        results[i]->attributes[CUDNN_ATTR_ENGINECFG_ENGINE] =
            d->attributes[CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH];
        results[i]->kept = d->kept;
        results[i]->final = true;
        results[i]->sure = i == 1;
    }
    *got = 2;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t descriptor_,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t, int64_t wanted, int64_t *got,
                                       void *array) {
    descriptor *d = static_cast<descriptor *>(descriptor_);
    switch (name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS: return give_results(d, wanted, got, array);
    case CUDNN_ATTR_ENGINECFG_ENGINE: (*static_cast<descriptor **>(array))->sure = d->sure; break;
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
        *static_cast<int *>(array) = CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
        *got = d->sure ? 0 : 1;
        return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE: *static_cast<int64_t *>(array) = 0; break;
    default: return refuse(CUDNN_STATUS_NOT_SUPPORTED, "attribute " + std::to_string((int)name));
    }
    *got = 1;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan_,
                                  cudnnBackendDescriptor_t pack_) {
    const descriptor *plan = static_cast<descriptor *>(plan_);
    const descriptor *pack = static_cast<descriptor *>(pack_);
    if (!plan->sure)
        return refuse(CUDNN_STATUS_EXECUTION_FAILED, "a nondeterministic plan is run");
    run r;
    const std::vector<int64_t> uids = all<int64_t>(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    const std::vector<void *> data = all<void *>(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    for (size_t i = 0; i < uids.size(); i++)
        r.bound[uids[i]] = data.at(i);
    const descriptor *graph =
        child(child(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG), CUDNN_ATTR_ENGINECFG_ENGINE);
    const std::vector<descriptor *> ops = all<descriptor *>(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS);
    const std::vector<std::shared_ptr<descriptor>> alive = plan->kept;
    emulated::enqueue(handle->stream, [=]() {
        run mine = r;
        (void)alive;
        try {
            for (const descriptor *op : ops)
                run_operation(mine, op);
        } catch (const std::string &why) {
            fprintf(stderr, "interpreted: %s\n", why.c_str());
            abort();
        }
    });
    return CUDNN_STATUS_SUCCESS;
}

} /* extern "C" */
