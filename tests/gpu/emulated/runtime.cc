/* SPDX-License-Identifier: Apache-2.0
 *
 * The runtime behind include/cuda_runtime_api.h. Device memory is malloc's and filled with 0xff, so
 * that a value nobody wrote is NaN. A capture is one for the whole process: streams join it by
 * waiting for an event recorded in it, and the graph is what they were given, in that order.
 *
 * CHEX_EMULATED_GPU: "0" takes the device away; "8.0" sets its compute capability (9.0 unless
 * said). CHEX_EMULATED_BYTES: how much memory it has.
 */
#include <chrono>
#include <cstdlib>
#include <map>
#include <mutex>
#include <vector>

#include "include/cuda_runtime.h"

struct emulated_stream {
    bool captured;
};
struct emulated_event {
    bool captured, recorded;
    double s;
};
struct emulated_graph {
    std::vector<std::function<void()>> work;
};

namespace {
std::recursive_mutex lock;
bool capturing;
cudaStream_t capture_origin;
emulated_graph *captured;
std::vector<cudaStream_t> joined;
cudaError_t last_error;
std::map<void *, size_t> held;
size_t held_bytes;
emulated_stream default_stream;

typedef std::lock_guard<std::recursive_mutex> guard;

double seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

cudaError_t keep(cudaError_t e) {
    if (e != cudaSuccess)
        last_error = e;
    return e;
}

const char *capability() {
    const char *text = getenv("CHEX_EMULATED_GPU");
    return text ? text : "9.0";
}
bool present() { return strcmp(capability(), "0") != 0; }

size_t total_bytes() {
    const char *text = getenv("CHEX_EMULATED_BYTES");
    return text ? (size_t)strtoull(text, nullptr, 10) : (size_t)8 << 30;
}

emulated_stream *real(cudaStream_t s) { return s ? s : &default_stream; }

/* What a capture must not meet. */
cudaError_t not_captured() {
    return capturing ? keep(cudaErrorStreamCaptureInvalidated) : cudaSuccess;
}
} // namespace

namespace emulated {
cudaError_t enqueue(cudaStream_t stream, std::function<void()> work) {
    guard g(lock);
    if (real(stream)->captured)
        captured->work.push_back(std::move(work));
    else
        work();
    return cudaSuccess;
}
} // namespace emulated

extern "C" {

cudaError_t cudaGetDeviceCount(int *count) {
    *count = present();
    return present() ? cudaSuccess : keep(cudaErrorNoDevice);
}
cudaError_t cudaGetDevice(int *device) {
    *device = 0;
    return present() ? cudaSuccess : keep(cudaErrorNoDevice);
}
cudaError_t cudaSetDevice(int device) {
    return present() && device == 0 ? cudaSuccess : keep(cudaErrorInvalidDevice);
}
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device) {
    if (!present() || device != 0)
        return keep(cudaErrorInvalidDevice);
    *p = cudaDeviceProp{};
    snprintf(p->name, sizeof p->name, "emulated GPU");
    p->totalGlobalMem = total_bytes();
    p->sharedMemPerBlockOptin = 232448;
    p->major = atoi(capability());
    p->minor = strchr(capability(), '.') ? atoi(strchr(capability(), '.') + 1) : 0;
    p->multiProcessorCount = 4;
    p->l2CacheSize = 60 << 20;
    p->pciBusID = 1;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attr, int device) {
    cudaDeviceProp p;
    cudaError_t e = cudaGetDeviceProperties(&p, device);
    if (e != cudaSuccess)
        return e;
    switch (attr) {
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = (int)p.sharedMemPerBlockOptin; break;
    case cudaDevAttrMultiProcessorCount: *value = p.multiProcessorCount; break;
    case cudaDevAttrL2CacheSize: *value = p.l2CacheSize; break;
    case cudaDevAttrComputeCapabilityMajor: *value = p.major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = p.minor; break;
    }
    return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char *id, int size, int device) {
    snprintf(id, (size_t)size, "00000000:%02X:00.0", device + 1);
    return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int *v) {
    *v = present() ? 13000 : 0;
    return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int *v) {
    *v = 13000;
    return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total) {
    guard g(lock);
    *total = total_bytes();
    *free_bytes = *total > held_bytes ? *total - held_bytes : 0;
    return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize(void) { return not_captured(); }

const char *cudaGetErrorString(cudaError_t e) {
    switch (e) {
    case cudaSuccess: return "no error";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorNoDevice: return "no CUDA-capable device is detected";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorStreamCaptureInvalidated: return "operation failed due to a stream capture";
    default: return "emulated error";
    }
}
const char *cudaGetErrorName(cudaError_t e) {
    return e == cudaSuccess ? "cudaSuccess" : "cudaError";
}
cudaError_t cudaGetLastError(void) {
    cudaError_t e = last_error;
    last_error = cudaSuccess;
    return e;
}
cudaError_t cudaPeekAtLastError(void) { return last_error; }

cudaError_t cudaMalloc(void **p, size_t bytes) {
    guard g(lock);
    if (not_captured() != cudaSuccess)
        return cudaErrorStreamCaptureInvalidated;
    if (held_bytes + bytes > total_bytes())
        return keep(cudaErrorMemoryAllocation);
    *p = aligned_alloc(256, (bytes + 255) / 256 * 256);
    if (!*p)
        return keep(cudaErrorMemoryAllocation);
    memset(*p, 0xff, (bytes + 255) / 256 * 256);
    held[*p] = bytes;
    held_bytes += bytes;
    return cudaSuccess;
}
cudaError_t cudaFree(void *p) {
    guard g(lock);
    if (!p)
        return cudaSuccess;
    auto at = held.find(p);
    if (at == held.end())
        return keep(cudaErrorInvalidValue);
    held_bytes -= at->second;
    held.erase(at);
    free(p);
    return cudaSuccess;
}
cudaError_t cudaMallocHost(void **p, size_t bytes) {
    *p = aligned_alloc(256, (bytes + 255) / 256 * 256);
    return *p ? cudaSuccess : keep(cudaErrorMemoryAllocation);
}
cudaError_t cudaFreeHost(void *p) {
    free(p);
    return cudaSuccess;
}
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind) {
    if (not_captured() != cudaSuccess)
        return cudaErrorStreamCaptureInvalidated;
    memcpy(to, from, bytes);
    return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind,
                            cudaStream_t stream) {
    return emulated::enqueue(stream, [=]() { memmove(to, from, bytes); });
}
cudaError_t cudaMemset(void *p, int value, size_t bytes) {
    if (not_captured() != cudaSuccess)
        return cudaErrorStreamCaptureInvalidated;
    memset(p, value, bytes);
    return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t stream) {
    return emulated::enqueue(stream, [=]() { memset(p, value, bytes); });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned) {
    *stream = new emulated_stream{};
    return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int) {
    return cudaStreamCreateWithFlags(stream, flags);
}
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    delete stream;
    return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    return real(stream)->captured ? keep(cudaErrorStreamCaptureInvalidated) : cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
    guard g(lock);
    if (event->captured && capturing && !real(stream)->captured) {
        real(stream)->captured = true;
        joined.push_back(real(stream));
    }
    return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned) {
    *event = new emulated_event{};
    return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t *event) { return cudaEventCreateWithFlags(event, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
    delete event;
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    guard g(lock);
    event->captured = real(stream)->captured;
    event->recorded = !event->captured;
    event->s = seconds();
    return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    return event->captured && capturing ? keep(cudaErrorStreamCaptureInvalidated) : cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end) {
    if (!start->recorded || !end->recorded)
        return keep(cudaErrorInvalidValue);
    *ms = (float)(1e3 * (end->s - start->s));
    return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode) {
    guard g(lock);
    if (capturing || !stream)
        return keep(cudaErrorStreamCaptureInvalidated);
    capturing = true;
    capture_origin = stream;
    stream->captured = true;
    joined.assign(1, stream);
    captured = new emulated_graph{};
    return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
    guard g(lock);
    if (!capturing || stream != capture_origin)
        return keep(cudaErrorStreamCaptureInvalidated);
    for (cudaStream_t each : joined)
        each->captured = false;
    capturing = false;
    *graph = captured;
    captured = nullptr;
    return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long) {
    *exec = new emulated_graph(*graph);
    return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
    return emulated::enqueue(stream, [=]() {
        for (const auto &work : exec->work)
            work();
    });
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    delete graph;
    return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    delete exec;
    return cudaSuccess;
}

} /* extern "C" */
