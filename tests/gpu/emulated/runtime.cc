/* SPDX-License-Identifier: Apache-2.0
 *
 * The runtime behind include/cuda_runtime_api.h. Device memory is malloc's and filled with 0xff, so
 * that a value nobody wrote is NaN. A capture is one for the whole process: streams join it by
 * waiting for an event recorded in it, and the graph is what they were given, in that order. It
 * refuses kernels that have not run before. A graph is instantiated only if each of its kernels is
 * still allowed the shared memory that it was captured with. EMULATED_GRAPHS=0: never. A capture
 * ends with an error if the work of a stream that joined it is not awaited by the first stream.
 *
 * Streams run at once, in the thread that calls. EMULATED_STREAMS=late: each has a thread that
 * begins its work a little later than it could, so that a wait for an event that was forgotten
 * shows.
 *
 * The default stream too is late then, and copies from the host's ordinary memory and memset return
 * before it has done them, as CUDA's may.
 *
 * EMULATED_GPU: "0" takes the device away; "8.0" sets its compute capability (9.0 unless
 * said). EMULATED_SMS: its multiprocessors (4). EMULATED_BYTES: how much memory it has.
 * EMULATED_CLUSTERS: how many clusters of any shape it runs at once.
 * EMULATED_SPIN: a wait for an event that would spin is refused.
 * EMULATED_BUSES: "5d,1b" for two devices on these buses (names, not more memory or threads: all
 * are one). EMULATED_DRIVER: the newest CUDA that the driver serves, 12020 for 12.2.
 * EMULATED_TIMES: events then tell a made-up time instead of the clock's. A launch takes longer the
 * more dynamic shared memory it has ("shared"), or the less ("unshared"), with steps large enough
 * to tell launches apart. Not with late streams. EMULATED_FAULT: number of the launch, from 1, that
 * fails as it runs: from then on every wait reports it. EMULATED_FILL=0: memory of the device is
 * not filled, so that a machine with less memory can hold what is never touched.
 */
#include <regex.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "fibers.h"
#include "include/cuda_runtime.h"
#include "races.h"

/* One record of an event. */
struct moment {
    bool done;
    double s;
};
struct emulated_stream {
    bool captured, after_kernel;
    int given,
        rejoined; /* in a capture: operations so far; of them, those that the origin awaits */
    std::unique_ptr<std::thread> worker; /* null: work is done by the caller */
    std::deque<std::function<void()>> queue;
    bool busy, stop;
};
struct emulated_event {
    bool captured, blocking;
    cudaStream_t of; /* in a capture: its stream, and the operations ahead of it there */
    int after;
    std::shared_ptr<moment> last;
    std::deque<std::shared_ptr<moment>> launched; /* of launches of graphs that record it */
};
struct emulated_graph {
    std::vector<std::function<void()>> work;
    std::vector<std::pair<const void *, size_t>> kernels; /* with their dynamic shared memory */
    std::vector<cudaEvent_t> records;
};

namespace {
std::recursive_mutex lock;
bool capturing;
cudaStream_t capture_origin;
std::thread::id capture_thread;
emulated_graph *captured;
std::vector<cudaStream_t> joined;
cudaError_t last_error;
int launches; /* counted while EMULATED_FAULT is set */
bool faulty;
double made_up_s; /* EMULATED_TIMES: of all launches so far */
std::map<void *, size_t> resident;
size_t held_bytes;
struct emulated_default : emulated_stream {
    emulated_default() : emulated_stream() {}
    ~emulated_default();
};
std::mutex queues; /* of all streams, and all moments */
std::condition_variable moved;
std::set<cudaStream_t> late_streams;
emulated_default default_stream;             /* after what it needs to end */
std::set<const void *> loaded;               /* kernels that have run */
std::map<const void *, size_t> shared_asked; /* dynamic bytes that a kernel was allowed */

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
    const char *text = getenv("EMULATED_GPU");
    return text ? text : "9.0";
}
bool present() { return strcmp(capability(), "0") != 0; }

/* Shared memory of a block: CUDA C++ programming guide, "technical specifications". */
int shared_most() {
    const double v = atof(capability());
    const bool small = v >= 12 || (v > 8.05 && v < 8.95);
    return v < 7.45 ? 98304 : v < 7.95 ? 65536 : v < 8.05 ? 166912 : small ? 101376 : 232448;
}

/* The bus of a device, or -1 where there are not so many. */
int bus_of(int device) {
    const char *p = getenv("EMULATED_BUSES");
    if (!p)
        return present() && device == 0 ? 1 : -1;
    for (; device > 0 && p; device--)
        p = strchr(p, ',') ? strchr(p, ',') + 1 : nullptr;
    return present() && device == 0 && p ? (int)strtol(p, nullptr, 16) : -1;
}
int driver_version() {
    const char *text = getenv("EMULATED_DRIVER");
    return text ? atoi(text) : 13000;
}
thread_local int current; /* as CUDA has it */

size_t total_bytes() {
    const char *text = getenv("EMULATED_BYTES");
    return text ? (size_t)strtoull(text, nullptr, 10) : (size_t)8 << 30;
}

bool late() {
    const char *text = getenv("EMULATED_STREAMS");
    return text && strcmp(text, "late") == 0;
}

void start(cudaStream_t s);
emulated_stream *real(cudaStream_t s) {
    if (s)
        return s;
    guard g(lock);
    if (late() && !default_stream.worker)
        start(&default_stream);
    return &default_stream;
}

void come(const std::shared_ptr<moment> &m) {
    std::lock_guard<std::mutex> q(queues);
    m->s = getenv("EMULATED_TIMES") ? made_up_s : seconds();
    m->done = true;
    moved.notify_all();
}
void wait_for(const std::shared_ptr<moment> &m) {
    std::unique_lock<std::mutex> q(queues);
    moved.wait(q, [&]() { return m->done; });
}
std::shared_ptr<moment> new_moment() { return std::make_shared<moment>(); }

void serve(cudaStream_t s) {
    unsigned turn = 0;
    for (;;) {
        std::unique_lock<std::mutex> q(queues);
        moved.wait(q, [&]() { return s->stop || !s->queue.empty(); });
        if (s->queue.empty())
            return;
        std::function<void()> work = std::move(s->queue.front());
        s->queue.pop_front();
        s->busy = true;
        q.unlock();
        std::this_thread::sleep_for(std::chrono::microseconds(turn++ * 37 % 151));
        work();
        q.lock();
        s->busy = false;
        moved.notify_all();
    }
}
void start(cudaStream_t s) {
    std::lock_guard<std::mutex> q(queues);
    late_streams.insert(s);
    s->worker.reset(new std::thread(serve, s));
}
void end(cudaStream_t s) {
    {
        std::lock_guard<std::mutex> q(queues);
        s->stop = true;
        late_streams.erase(s);
        moved.notify_all();
    }
    s->worker->join();
    s->worker.reset();
}
emulated_default::~emulated_default() {
    if (worker)
        end(this);
}
void drain(cudaStream_t s) {
    std::unique_lock<std::mutex> q(queues);
    moved.wait(q, [&]() { return s->queue.empty() && !s->busy; });
}
void drain_all() {
    std::unique_lock<std::mutex> q(queues);
    moved.wait(q, []() {
        for (cudaStream_t s : late_streams)
            if (!s->queue.empty() || s->busy)
                return false;
        return true;
    });
}

/* What a capture must not meet; in its mode, of the thread that began it. */
cudaError_t not_captured() {
    const bool mine = capturing && capture_thread == std::this_thread::get_id();
    return mine ? keep(cudaErrorStreamCaptureInvalidated) : cudaSuccess;
}
} // namespace

namespace emulated {
static emulated_watch_fn watcher;
static void *watcher_arg;

bool watched(dim3 grid, dim3 block, size_t shared_bytes) {
    const emulated_launch l = {{grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, shared_bytes};
    const char *times = getenv("EMULATED_TIMES");
    const double share = (double)shared_bytes / shared_most();
    if (times)
        made_up_s += 1e-6 + 1e-3 * std::pow(strcmp(times, "shared") ? 1 - share : share, 8);
    if (watcher)
        watcher(&l, watcher_arg);
    return watcher != nullptr;
}

cudaError_t enqueue_kernel(cudaStream_t stream, std::function<void()> work) {
    const cudaError_t e = enqueue(stream, std::move(work));
    real(stream)->after_kernel = true;
    return e;
}

cudaError_t enqueue(cudaStream_t stream, std::function<void()> work) {
    real(stream)->after_kernel = false;
    if (watcher)
        return cudaSuccess;
    {
        guard g(lock);
        real(stream)->given++;
        if (real(stream)->captured) {
            captured->work.push_back(std::move(work));
            return cudaSuccess;
        }
    }
    stream = real(stream);
    if (!stream->worker) {
        work();
        return cudaSuccess;
    }
    std::lock_guard<std::mutex> q(queues);
    stream->queue.push_back(std::move(work));
    moved.notify_all();
    return cudaSuccess;
}

int shared_allowed(const void *kernel) {
    guard g(lock);
    const auto asked = shared_asked.find(kernel);
    return asked == shared_asked.end() ? SHARED_UNASKED - STATIC_SHARED : (int)asked->second;
}

bool device_range(const void *p, const void **from_out, const void **end_out) {
    guard g(lock);
    auto at = resident.upper_bound(const_cast<void *>(p));
    *from_out = nullptr;
    *end_out = at == resident.end() ? (const void *)UINTPTR_MAX : at->first;
    if (at == resident.begin())
        return false;
    --at;
    const char *const end = static_cast<const char *>(at->first) + at->second;
    const bool within = static_cast<const char *>(p) < end;
    *from_out = within ? at->first : end;
    *end_out = within ? end : *end_out;
    return within;
}
bool is_device(const void *p) {
    const void *from, *end;
    return device_range(p, &from, &end);
}

/* CUDA loads a kernel's code when it is first used, and what loading does a capture may not meet.
 */
cudaError_t may_launch(const void *kernel, size_t shared_bytes, cudaStream_t stream,
                       bool dependent) {
    guard g(lock);
    if (dependent && !real(stream)->after_kernel)
        return keep(cudaErrorInvalidValue);
    if (shared_bytes > (size_t)shared_allowed(kernel))
        return keep(cudaErrorInvalidValue);
    const char *fault = getenv("EMULATED_FAULT");
    faulty = faulty || (fault && ++launches == atoi(fault));
    if (!real(stream)->captured) {
        loaded.insert(kernel);
        return cudaSuccess;
    }
    if (!loaded.count(kernel))
        return keep(cudaErrorStreamCaptureUnsupported);
    captured->kernels.push_back({kernel, shared_bytes});
    return cudaSuccess;
}

/* Static shared memory that nvcc gives a kernel at most: the last column of the table
 * EMULATED_KERNELS, which tests/gpu/ptxas.sh compares with the records of every build. */
static size_t static_shared(const char *kernel) {
    static std::map<const char *, size_t> known;
    const auto found = known.find(kernel);
    if (found != known.end())
        return found->second;
    const std::string mangled = std::to_string(strlen(kernel)) + kernel;
    std::ifstream table(EMULATED_KERNELS);
    std::string line, name;
    size_t threads, registers, bytes;
    while (std::getline(table, line)) {
        std::istringstream fields(line);
        if (line[0] == '#' || !(fields >> name >> threads >> registers >> bytes))
            continue;
        regex_t regex;
        const bool good = regcomp(&regex, name.c_str(), REG_EXTENDED | REG_NOSUB) == 0;
        const bool match = good && regexec(&regex, mangled.c_str(), 0, nullptr, 0) == 0;
        if (good)
            regfree(&regex);
        if (match)
            return known[kernel] = bytes;
    }
    fprintf(stderr, "emulated: %s: no line of %s is about it\n", kernel, EMULATED_KERNELS);
    abort();
}

void check_static_shared(const char *kernel, const void *code, size_t dynamic) {
    guard g(lock);
    const size_t most = shared_asked.count(code) ? (size_t)shared_most() : (size_t)SHARED_UNASKED;
    if (dynamic + static_shared(kernel) <= most)
        return;
    fprintf(stderr,
            "emulated: the launch is refused: %s has %zu bytes of static and %zu of dynamic shared "
            "memory (expected at most %zu)\n",
            kernel, static_shared(kernel), dynamic, most);
    abort();
}

bool takes_cluster(dim3 grid, dim3 cluster) {
    const unsigned blocks = cluster.x * cluster.y * cluster.z;
    if (blocks == 1)
        return true;
    return atof(capability()) >= 9.0 && blocks > 1 && blocks <= CLUSTER_MOST &&
           grid.x % cluster.x == 0 && grid.y % cluster.y == 0 && grid.z % cluster.z == 0;
}

/* One block a multiprocessor. EMULATED_CLUSTERS: so many. */
cudaError_t active_clusters(dim3 cluster, int *clusters_out) {
    const char *text = getenv("EMULATED_CLUSTERS");
    int sms = 0;
    *clusters_out = 0;
    if (!takes_cluster(cluster, cluster))
        return keep(cudaErrorInvalidValue);
    cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, current);
    const int fit = sms / (int)(cluster.x * cluster.y * cluster.z);
    *clusters_out = text ? atoi(text) : fit ? fit : 1;
    return cudaSuccess;
}

cudaError_t allow_shared(const void *kernel, int attribute, int bytes) {
    guard g(lock);
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || bytes < 0 ||
        bytes + STATIC_SHARED > shared_most())
        return keep(cudaErrorInvalidValue);
    shared_asked[kernel] = (size_t)bytes;
    return cudaSuccess;
}
} // namespace emulated

extern "C" {

cudaError_t cudaGetDeviceCount(int *count) {
    *count = 0;
    if (driver_version() < 13000)
        return keep(cudaErrorInsufficientDriver);
    while (bus_of(*count) >= 0)
        ++*count;
    return *count ? cudaSuccess : keep(cudaErrorNoDevice);
}
cudaError_t cudaGetDevice(int *device) {
    *device = current;
    return present() ? cudaSuccess : keep(cudaErrorNoDevice);
}
cudaError_t cudaSetDevice(int device) {
    if (bus_of(device) < 0)
        return keep(cudaErrorInvalidDevice);
    current = device;
    return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device) {
    if (bus_of(device) < 0)
        return keep(cudaErrorInvalidDevice);
    *p = cudaDeviceProp{};
    snprintf(p->name, sizeof p->name, "emulated GPU");
    p->totalGlobalMem = total_bytes();
    p->sharedMemPerBlockOptin = (size_t)shared_most();
    p->major = atoi(capability());
    p->minor = strchr(capability(), '.') ? atoi(strchr(capability(), '.') + 1) : 0;
    const char *sms = getenv("EMULATED_SMS");
    p->multiProcessorCount = sms ? atoi(sms) : 4;
    p->l2CacheSize = 60 << 20;
    p->pciBusID = bus_of(device);
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
    snprintf(id, (size_t)size, "0000:%02X:00.0", bus_of(device));
    return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int *v) {
    *v = driver_version();
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
cudaError_t cudaDeviceSynchronize(void) {
    if (not_captured() != cudaSuccess)
        return cudaErrorStreamCaptureInvalidated;
    drain_all();
    return cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t e) {
    switch (e) {
    case cudaSuccess: return "no error";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorNoDevice: return "no CUDA-capable device is detected";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    case cudaErrorNotReady: return "device not ready";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorStreamCaptureUnsupported: return "operation not permitted while capturing";
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
    const char *fill = getenv("EMULATED_FILL");
    if (!fill || strcmp(fill, "0") != 0)
        memset(*p, 0xff, (bytes + 255) / 256 * 256);
    resident[*p] = bytes;
    held_bytes += bytes;
    return cudaSuccess;
}
cudaError_t cudaFree(void *p) {
    if (!p)
        return cudaSuccess;
    if (not_captured() != cudaSuccess)
        return cudaErrorStreamCaptureInvalidated;
    drain_all(); /* as CUDA's does */
    guard g(lock);
    auto at = resident.find(p);
    if (at == resident.end())
        return keep(cudaErrorInvalidValue);
    held_bytes -= at->second;
    resident.erase(at);
    free(p);
    return cudaSuccess;
}
cudaError_t cudaMallocHost(void **p, size_t bytes) {
    if (not_captured() != cudaSuccess)
        return cudaErrorStreamCaptureInvalidated;
    *p = aligned_alloc(256, (bytes + 255) / 256 * 256);
    return *p ? cudaSuccess : keep(cudaErrorMemoryAllocation);
}
cudaError_t cudaFreeHost(void *p) {
    if (p && not_captured() != cudaSuccess)
        return cudaErrorStreamCaptureInvalidated;
    free(p);
    return cudaSuccess;
}
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
    if (not_captured() != cudaSuccess)
        return cudaErrorStreamCaptureInvalidated;
    if (kind == cudaMemcpyHostToDevice) { /* done when the host's bytes are in a staging buffer */
        const char *begin = static_cast<const char *>(from);
        const std::vector<char> staged(begin, begin + bytes);
        return emulated::enqueue(nullptr, [=]() { memcpy(to, staged.data(), staged.size()); });
    }
    emulated::enqueue(nullptr, [=]() { memcpy(to, from, bytes); });
    if (kind != cudaMemcpyDeviceToDevice)
        drain(real(nullptr));
    return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind,
                            cudaStream_t stream) {
    return emulated::enqueue(stream, [=]() { memmove(to, from, bytes); });
}
cudaError_t cudaMemset(void *p, int value, size_t bytes) {
    if (not_captured() != cudaSuccess)
        return cudaErrorStreamCaptureInvalidated;
    return emulated::enqueue(nullptr, [=]() { memset(p, value, bytes); });
}
cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t stream) {
    return emulated::enqueue(stream, [=]() { memset(p, value, bytes); });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned) {
    *stream = new emulated_stream{};
    if (late())
        start(*stream);
    return cudaSuccess;
}
void emulated_watch_launches(emulated_watch_fn fn, void *arg) {
    emulated::watcher = fn;
    emulated::watcher_arg = arg;
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
    if (stream->worker) {
        drain(stream);
        end(stream);
    }
    delete stream;
    return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    if (real(stream)->captured)
        return keep(cudaErrorStreamCaptureInvalidated);
    drain(real(stream));
    return faulty ? keep(cudaErrorLaunchFailure) : cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
    stream = real(stream);
    std::lock_guard<std::mutex> q(queues);
    return stream->queue.empty() && !stream->busy ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
    std::shared_ptr<moment> m;
    {
        guard g(lock);
        if (event->captured && capturing) {
            if (!real(stream)->captured) {
                real(stream)->captured = true;
                real(stream)->given = real(stream)->rejoined = 0;
                joined.push_back(real(stream));
            }
            real(stream)->after_kernel = false;
            if (real(stream) == capture_origin)
                event->of->rejoined = std::max(event->of->rejoined, event->after);
            return cudaSuccess;
        }
        std::lock_guard<std::mutex> q(queues);
        m = event->last;
    }
    if (m) /* an event that was never recorded is over */
        return emulated::enqueue(stream, [m]() { wait_for(m); });
    return cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *data) {
    return emulated::enqueue(stream, [=]() { fn(data); });
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
    *event = new emulated_event{};
    (*event)->blocking = flags & cudaEventBlockingSync;
    return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t *event) { return cudaEventCreateWithFlags(event, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
    delete event;
    return cudaSuccess;
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
    std::shared_ptr<moment> m = new_moment();
    {
        guard g(lock);
        const bool external = flags & cudaEventRecordExternal;
        if (external && !real(stream)->captured)
            return keep(cudaErrorInvalidValue);
        event->captured = real(stream)->captured && !external;
        event->of = real(stream);
        event->after = real(stream)->given;
        if (real(stream)->captured) {
            if (external) {
                captured->records.push_back(event);
                captured->work.push_back([event]() {
                    std::shared_ptr<moment> of_launch;
                    {
                        std::lock_guard<std::mutex> q(queues);
                        of_launch = event->launched.front();
                        event->launched.pop_front();
                    }
                    come(of_launch);
                });
            }
            return cudaSuccess;
        }
        std::lock_guard<std::mutex> q(queues);
        event->last = m;
    }
    const bool after_kernel =
        real(stream)->after_kernel; /* a record comes between no two kernels */
    const cudaError_t e = emulated::enqueue(stream, [m]() { come(m); });
    real(stream)->after_kernel = after_kernel;
    return e;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    return cudaEventRecordWithFlags(event, stream, 0);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    std::shared_ptr<moment> m;
    {
        guard g(lock);
        if (event->captured && capturing)
            return keep(cudaErrorStreamCaptureInvalidated);
        if (!event->blocking && getenv("EMULATED_SPIN"))
            return keep(cudaErrorInvalidValue);
        std::lock_guard<std::mutex> q(queues);
        m = event->last;
    }
    if (m)
        wait_for(m);
    return faulty ? keep(cudaErrorLaunchFailure) : cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
    std::lock_guard<std::mutex> q(queues);
    return !event->last || event->last->done ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end) {
    std::lock_guard<std::mutex> q(queues);
    if (!start->last || !end->last)
        return keep(cudaErrorInvalidValue);
    if (!start->last->done || !end->last->done)
        return cudaErrorNotReady;
    *ms = (float)(1e3 * (end->last->s - start->last->s));
    return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode) {
    static thread_local enum cudaStreamCaptureMode of_thread = cudaStreamCaptureModeGlobal;
    std::swap(*mode, of_thread);
    return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode) {
    guard g(lock);
    if (capturing || !stream)
        return keep(cudaErrorStreamCaptureInvalidated);
    capturing = true;
    capture_origin = stream;
    capture_thread = std::this_thread::get_id();
    stream->captured = true;
    stream->after_kernel = false;
    joined.assign(1, stream);
    captured = new emulated_graph{};
    return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
    guard g(lock);
    if (!capturing || stream != capture_origin)
        return keep(cudaErrorStreamCaptureInvalidated);
    bool unjoined = false;
    for (cudaStream_t each : joined) {
        each->captured = false;
        unjoined = unjoined || (each != stream && each->rejoined < each->given);
    }
    stream->after_kernel = false;
    capturing = false;
    *graph = unjoined ? nullptr : captured;
    if (unjoined)
        delete captured;
    captured = nullptr;
    return unjoined ? keep(cudaErrorStreamCaptureUnjoined) : cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long) {
    const char *graphs = getenv("EMULATED_GRAPHS");
    if (graphs && strcmp(graphs, "0") == 0)
        return keep(cudaErrorInvalidValue);
    for (const auto &kernel : graph->kernels)
        if (kernel.second > (size_t)emulated::shared_allowed(kernel.first))
            return keep(cudaErrorInvalidValue);
    *exec = new emulated_graph(*graph);
    return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
    {
        std::lock_guard<std::mutex> q(queues);
        for (cudaEvent_t event : exec->records)
            event->launched.push_back(event->last = new_moment());
    }
    /* The graph may be destroyed before its work has begun. */
    return emulated::enqueue(stream, [all = exec->work]() {
        for (const auto &work : all)
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
