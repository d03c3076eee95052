/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL between processes of one machine over Unix sockets without a name in the file system.
 *
 * Stricter than the real one where that finds faults: a send ends only when it was received, so a
 * circle of senders hangs; what is received must be what the peer thinks it sends; while a call is
 * in progress (as every third one is for a moment) another is refused. As with the real one, work
 * is done in the stream's order, a peer that goes away is an error of the communicator, and the
 * work at hand hangs until an abort.
 */
#include <dlfcn.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "include/nccl.h"

namespace {

typedef std::chrono::steady_clock steady;

enum kind { SEND = 1, BROADCAST, REDUCE };

struct header {
    int kind;
    unsigned long long count;
};

struct world {
    int rank, size;
    std::string name;
    std::vector<int> sockets; /* per rank; -1 */
    std::atomic<int> state{ncclInProgress};
    std::atomic<bool> aborted{false};
    std::atomic<int> under_way{0};
    std::string last_error;
    std::thread maker;
    unsigned calls = 0;
    steady::time_point busy_until{};

    ~world() {
        if (maker.joinable())
            maker.join();
        for (int s : sockets)
            if (s >= 0)
                close(s);
    }
};

/* Nothing more comes of this piece of work. */
bool hang(world &w, ncclResult_t why, const std::string &text) {
    if (!w.aborted) {
        w.last_error = text;
        w.state = why;
    }
    while (!w.aborted)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return false;
}

bool transfer(world &w, int peer, void *data, size_t bytes, bool write) {
    char *at = static_cast<char *>(data);
    const int s = w.sockets[(size_t)peer];
    while (bytes > 0) {
        struct pollfd p = {s, (short)(write ? POLLOUT : POLLIN), 0};
        if (w.aborted)
            return false;
        if (poll(&p, 1, 10) == 0)
            continue;
        const ssize_t n = write ? send(s, at, bytes, MSG_NOSIGNAL | MSG_DONTWAIT)
                                : recv(s, at, bytes, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            continue;
        if (n <= 0)
            return hang(w, ncclRemoteError, "peer " + std::to_string(peer) + " has gone");
        at += n;
        bytes -= (size_t)n;
    }
    return true;
}

bool give(world &w, int peer, int kind, const void *data, size_t count) {
    header h = {kind, count};
    char deferred_grad;
    return transfer(w, peer, &h, sizeof h, true) &&
           transfer(w, peer, const_cast<void *>(data), count * sizeof(float), true) &&
           transfer(w, peer, &deferred_grad, 1, false);
}

bool take(world &w, int peer, int kind, void *data, size_t count) {
    header h = {};
    char deferred_grad = 1;
    if (!transfer(w, peer, &h, sizeof h, false))
        return false;
    if (h.kind != kind || h.count != count)
        return hang(w, ncclInternalError, "another message was expected");
    return transfer(w, peer, data, count * sizeof(float), false) &&
           transfer(w, peer, &deferred_grad, 1, true);
}

bool spread(world &w, int kind, float *data, size_t count, int root) {
    if (w.rank != root)
        return take(w, root, kind, data, count);
    for (int r = 0; r < w.size; r++)
        if (r != root && !give(w, r, kind, data, count))
            return false;
    return true;
}

template <class T> bool reduce(world &w, T *data, size_t count) {
    const size_t words = count * sizeof(T) / sizeof(float);
    float *const both = reinterpret_cast<float *>(data);
    if (w.rank != 0)
        return give(w, 0, REDUCE, data, words) && spread(w, REDUCE, both, words, 0);
    std::vector<T> theirs(count);
    for (int r = 1; r < w.size; r++) {
        if (!take(w, r, REDUCE, theirs.data(), words))
            return false;
        for (size_t i = 0; i < count; i++)
            data[i] += theirs[i];
    }
    return spread(w, REDUCE, both, words, 0);
}

/* ---- the set-up ---- */

socklen_t address(sockaddr_un &a, const std::string &name, int rank) {
    const std::string full = name + "-" + std::to_string(rank);
    memset(&a, 0, sizeof a);
    a.sun_family = AF_UNIX;
    memcpy(a.sun_path + 1, full.data(), full.size());
    return (socklen_t)(offsetof(sockaddr_un, sun_path) + 1 + full.size());
}

/* Higher ranks call lower ones. */
bool call(world &w, int peer) {
    sockaddr_un a;
    const socklen_t size = address(a, w.name, peer);
    const int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    while (!w.aborted && connect(s, (sockaddr *)&a, size) != 0)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    w.sockets[(size_t)peer] = s;
    return transfer(w, peer, &w.rank, sizeof w.rank, true);
}

bool answer(world &w, int listening) {
    struct pollfd p = {listening, POLLIN, 0};
    int s = -1, peer = -1;
    while (!w.aborted && poll(&p, 1, 10) == 0)
        ;
    if (w.aborted || (s = accept(listening, nullptr, nullptr)) < 0)
        return false;
    if (recv(s, &peer, sizeof peer, MSG_WAITALL) != sizeof peer || peer <= w.rank ||
        peer >= w.size) {
        close(s);
        return false;
    }
    w.sockets[(size_t)peer] = s;
    return true;
}

void make(world &w) {
    sockaddr_un a;
    const socklen_t size = address(a, w.name, w.rank);
    const int listening = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool well = bind(listening, (sockaddr *)&a, size) == 0 && listen(listening, w.size) == 0;
    for (int r = 0; well && r < w.rank; r++)
        well = call(w, r);
    for (int r = w.rank + 1; well && r < w.size; r++)
        well = answer(w, listening);
    close(listening);
    w.state = well ? ncclSuccess : ncclSystemError;
}

/* ---- one call ---- */

/* The streams' owner is the program, or the module that a command has opened. */
decltype(&cudaLaunchHostFunc) find_launch() {
    const char *name = "cudaLaunchHostFunc", *folder = getenv("CHEX_LIBDIR");
    void *at = dlsym(RTLD_DEFAULT, name), *module = nullptr;
    if (!at && folder)
        module = dlopen((std::string(folder) + "/chexnet-cuda.so").c_str(), RTLD_NOW | RTLD_NOLOAD);
    at = module ? dlsym(module, name) : at;
    if (!at)
        fprintf(stderr, "emulated NCCL: there is no emulated runtime\n"), abort();
    return reinterpret_cast<decltype(&cudaLaunchHostFunc)>(at);
}

struct job {
    std::shared_ptr<world> w;
    std::function<bool(world &)> work;
};

void run(void *arg) {
    std::unique_ptr<job> j(static_cast<job *>(arg));
    if (!j->w->aborted)
        j->work(*j->w);
    j->w->under_way--;
}

ncclResult_t state_of(world &w) {
    const int state = w.state;
    return state == ncclSuccess && steady::now() < w.busy_until ? ncclInProgress
                                                                : (ncclResult_t)state;
}

ncclResult_t enqueue(const std::shared_ptr<world> &w, cudaStream_t stream,
                     std::function<bool(world &)> work) {
    const ncclResult_t state = state_of(*w);
    if (state != ncclSuccess)
        return state == ncclInProgress ? ncclInvalidUsage : state;
    static const auto launch = find_launch();
    w->under_way++;
    if (launch(stream, run, new job{w, std::move(work)}) != cudaSuccess)
        return ncclUnhandledCudaError;
    if (w->calls++ % 3 != 0)
        return ncclSuccess;
    w->busy_until = steady::now() + std::chrono::microseconds(300);
    return ncclInProgress;
}

} // namespace

struct ncclComm {
    std::shared_ptr<world> w;
    std::set<void *> registered;
};

#pragma GCC visibility push(default)
extern "C" {

ncclResult_t ncclGetVersion(int *version) {
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}
ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "chexnet-nccl-%d-%lld", (int)getpid(),
             (long long)steady::now().time_since_epoch().count());
    return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t *config) {
    if (size < 1 || rank < 0 || rank >= size || config->blocking)
        return ncclInvalidArgument;
    std::shared_ptr<world> w = std::make_shared<world>();
    w->rank = rank;
    w->size = size;
    w->name = id.internal;
    w->sockets.assign((size_t)size, -1);
    w->maker = std::thread([w]() { make(*w); });
    *comm = new ncclComm{w};
    return ncclInProgress;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state) {
    *state = state_of(*comm->w);
    return ncclSuccess;
}
ncclResult_t ncclCommFinalize(ncclComm_t comm) {
    while (comm->w->under_way > 0 && comm->w->state == ncclSuccess)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return state_of(*comm->w);
}
static ncclResult_t end(ncclComm_t comm) {
    comm->w->aborted = true;
    if (comm->w->maker.joinable())
        comm->w->maker.join();
    delete comm;
    return ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    return comm->w->under_way > 0 ? ncclInvalidUsage : end(comm);
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
    for (void *handle : comm->registered)
        delete static_cast<size_t *>(handle);
    return end(comm);
}
const char *ncclGetErrorString(ncclResult_t result) {
    switch (result) {
    case ncclSuccess: return "no error";
    case ncclRemoteError: return "remote process exited or there was a network error";
    case ncclInvalidUsage: return "invalid usage";
    default: return "emulated NCCL error";
    }
}
const char *ncclGetLastError(ncclComm_t comm) {
    return !comm || comm->w->state == ncclSuccess ? "" : comm->w->last_error.c_str();
}
ncclResult_t ncclSend(const void *data, size_t count, ncclDataType_t, int to, ncclComm_t comm,
                      cudaStream_t stream) {
    return enqueue(comm->w, stream, [=](world &w) { return give(w, to, SEND, data, count); });
}
ncclResult_t ncclRecv(void *data, size_t count, ncclDataType_t, int from, ncclComm_t comm,
                      cudaStream_t stream) {
    return enqueue(comm->w, stream, [=](world &w) { return take(w, from, SEND, data, count); });
}
ncclResult_t ncclBroadcast(const void *data, void *out, size_t count, ncclDataType_t, int root,
                           ncclComm_t comm, cudaStream_t stream) {
    if (data != out)
        return ncclInvalidArgument; /* chexnet works in place */
    return enqueue(comm->w, stream, [=](world &w) {
        return spread(w, BROADCAST, static_cast<float *>(out), count, root);
    });
}
ncclResult_t ncclAllReduce(const void *data, void *out, size_t count, ncclDataType_t type,
                           ncclRedOp_t, ncclComm_t comm, cudaStream_t stream) {
    if (data != out)
        return ncclInvalidArgument;
    return enqueue(comm->w, stream, [=](world &w) {
        return type == ncclFloat64 ? reduce(w, static_cast<double *>(out), count)
                                   : reduce(w, static_cast<float *>(out), count);
    });
}
/* What is not given back before destroy is there for a leak checker. */
ncclResult_t ncclCommRegister(ncclComm_t comm, void *, size_t bytes, void **handle) {
    comm->registered.insert(*handle = new size_t(bytes));
    return ncclSuccess;
}
ncclResult_t ncclCommDeregister(ncclComm_t comm, void *handle) {
    if (comm->registered.erase(handle) == 0)
        return ncclInvalidArgument;
    delete static_cast<size_t *>(handle);
    return ncclSuccess;
}

} /* extern "C" */
#pragma GCC visibility pop
