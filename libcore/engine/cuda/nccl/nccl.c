/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL, opened at run time. This is the only file that includes nccl.h. Contract: nccl.h of this
 * folder.
 *
 * Non-blocking calls. A call to a non-blocking communicator may return "in progress". Until it is
 * complete, only ncclCommGetAsyncError and ncclCommAbort are allowed. So each call starts with the
 * lock held, and is then polled: the lock is taken for each query only. Between two queries the
 * watchdog can check or abort the communicator.
 *
 * Abort. The first thread that finds a fault sets `losing`, aborts the communicator, makes the roll
 * call, writes `error` and sets `lost`. All other threads wait for `lost` and return the same
 * error.
 *
 * Messages need no ncclGroup: the order of additions is fixed, so each message waits for the
 * previous one anyway.
 */
#include "engine/cuda/nccl/nccl.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "engine/cuda/host/device.h"

#if defined(__has_include)
#if __has_include(<nccl.h>)
#include <nccl.h>
#endif
#endif

/* The minimum version of header and library: the first with registered and allocated buffers. */
#define MIN_CODE 21900
#define MIN_NAME "2.19"

#if !defined(NCCL_VERSION_CODE) || NCCL_VERSION_CODE < MIN_CODE

/* Built without NCCL's header, or with one that is too old: the engine supports one rank only. */
enum chex_status gpu_nccl_create(struct chex_launch *launch, cudaStream_t stream,
                                 uint64_t timeout_ms, struct gpu_nccl **out,
                                 struct chex_error *err) {
    (void)stream, (void)timeout_ms, (void)out;
    return chex_error_set(err, CHEX_E_ENV,
                          "%d ranks with GPUs need NCCL, and this build was made without: install "
                          "NCCL " MIN_NAME
                          " or newer with its header and build again, or train on one GPU",
                          launch->size);
}
void gpu_nccl_close(struct gpu_nccl *n) { (void)n; }
void *gpu_nccl_alloc(struct gpu_nccl *n, size_t bytes) {
    (void)n, (void)bytes;
    return NULL;
}
void gpu_nccl_free(struct gpu_nccl *n, void *data) { (void)n, (void)data; }
static enum chex_status absent(struct chex_error *err) {
    return chex_error_set(err, CHEX_E_FAIL, "this build has no NCCL");
}
enum chex_status gpu_nccl_connect(struct gpu_nccl *n, struct chex_group *group,
                                  struct chex_error *err) {
    (void)n, (void)group;
    return absent(err);
}
enum chex_status gpu_nccl_enqueue(struct gpu_nccl *n, const struct gpu_nccl_message *m,
                                  struct chex_error *err) {
    (void)n, (void)m;
    return absent(err);
}
enum chex_status gpu_nccl_check(struct gpu_nccl *n, struct chex_error *err) {
    (void)n;
    return absent(err);
}

#else

enum {
    SETUP_MS = 120000,     /* limit for making the communicator; all ranks start it together */
    ROLL_CALL_MS = 5000,   /* limit for the roll call; the other ranks must notice the fault, too */
    FINISH_MS = 10000,     /* limit for a regular end of the communicator */
    WATCH_MS = 20,         /* interval of the watchdog */
    POLL_FIRST_NS = 2000,  /* interval of polling one call: at the start, */
    POLL_LAST_NS = 500000, /* and at most */
    MARKS = 64, /* messages tracked at once; later ones wait for the tracked ones anyway */
    /* Limit of NCCL's thread blocks. The engine's tensor kernels have one block a multiprocessor,
     * with most of its shared memory: each of NCCL's blocks makes one of them wait for a second
     * round. The environment's NCCL_MAX_CTAS goes first. A guess: not measured. */
    CTAS_MAX = 2,
    TEXT_BYTES = 96,
};

/* ---- the library ---- */

#define NCCL_FUNCTIONS(X)                                                                          \
    X(ncclGetVersion, true)                                                                        \
    X(ncclGetUniqueId, true)                                                                       \
    X(ncclCommInitRankConfig, true)                                                                \
    X(ncclCommFinalize, true)                                                                      \
    X(ncclCommDestroy, true)                                                                       \
    X(ncclCommAbort, true)                                                                         \
    X(ncclCommGetAsyncError, true)                                                                 \
    X(ncclGetErrorString, true)                                                                    \
    X(ncclGetLastError, true)                                                                      \
    X(ncclSend, true)                                                                              \
    X(ncclRecv, true)                                                                              \
    X(ncclBroadcast, true)                                                                         \
    X(ncclAllReduce, true)                                                                         \
    X(ncclCommRegister, false)                                                                     \
    X(ncclCommDeregister, false)                                                                   \
    X(ncclMemAlloc, false)                                                                         \
    X(ncclMemFree, false)

struct library {
#define MEMBER(name, required) __typeof__(name) *name;
    NCCL_FUNCTIONS(MEMBER)
#undef MEMBER
};

/* Standard output is for results only. NCCL_DEBUG writes there by default. */
static void debug_to_stderr(void) {
    const char *level = getenv("NCCL_DEBUG");
    if (level && *level)
        setenv("NCCL_DEBUG_FILE", "/dev/stderr", 0);
}

static enum chex_status load_library(struct library *lib, int *version_out,
                                     struct chex_error *err) {
    const char *set = getenv("CHEX_NCCL"), *file = set && *set ? set : "libnccl.so.2";
    debug_to_stderr();
    void *handle = dlopen(file, RTLD_NOW | RTLD_LOCAL); /* stays open, as modules do */
    if (!handle)
        return chex_error_set(err, CHEX_E_ENV,
                              "more than one rank with GPUs needs NCCL: %s; install it or name the "
                              "file in CHEX_NCCL",
                              dlerror());
    const struct {
        const char *name;
        size_t offset;
        bool required;
    } wanted[] = {
#define ENTRY(function, needed) {#function, offsetof(struct library, function), needed},
        NCCL_FUNCTIONS(ENTRY)
#undef ENTRY
    };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        void *at = dlsym(handle, wanted[i].name);
        if (!at && wanted[i].required)
            return chex_error_set(err, CHEX_E_ENV,
                                  "NCCL %s has no %s: expected " MIN_NAME " or newer", file,
                                  wanted[i].name);
        memcpy((char *)lib + wanted[i].offset, &at, sizeof at);
    }
    if (lib->ncclGetVersion(version_out) != ncclSuccess || *version_out < MIN_CODE)
        return chex_error_set(err, CHEX_E_ENV,
                              "NCCL %s is of version %d.%d: expected " MIN_NAME " or newer", file,
                              *version_out / 10000, *version_out / 100 % 100);
    return CHEX_OK;
}

/* ---- state ---- */

/* A block returned by gpu_nccl_alloc. */
struct block {
    struct block *next;
    void *data, *registered;
    bool of_nccl;
};

/* A message in the stream, for the watchdog. */
struct message_event {
    cudaEvent_t event; /* recorded after the message */
    char what[TEXT_BYTES];
};

struct gpu_nccl {
    struct library lib;
    struct chex_launch *launch;
    cudaStream_t stream;
    int device, version; /* version: NCCL's code */
    uint64_t timeout_ms;

    pthread_mutex_t lock;
    pthread_cond_t changed;
    ncclComm_t comm; /* NULL before init and after an abort */
    struct message_event marks[MARKS];
    int first, pending;
    uint64_t first_ns;            /* time at which marks[first] became the first */
    atomic_uint_fast64_t buckets; /* broadcasts and sums so far; compared in the roll call */
    struct block *blocks;

    pthread_t thread;
    bool started, stop;
    bool losing, lost; /* a fault was found; the roll call is done and error is written */
    struct chex_error error;
};

/* Messages that ranks exchange: at set-up, and through the launcher in a roll call. */
struct setup_message {
    int32_t version; /* NCCL's version code */
    int32_t sms;     /* multiprocessors of the rank's GPU */
    ncclUniqueId id; /* set by rank 0 */
};
struct roll_call_message {
    uint64_t buckets;
    char host[CHEX_HOST_BYTES];
};

/* ---- a lost rank ---- */

/* Asks all ranks through the launcher. Writes which rank is missing, or which has done the slowest
 * buckets. */
static void call_roll(struct gpu_nccl *n, char *buf, size_t size) {
    struct chex_launch *launch = n->launch;
    struct chex_error err = {0};
    const uint64_t wait_ms =
        n->timeout_ms && n->timeout_ms < ROLL_CALL_MS ? n->timeout_ms : ROLL_CALL_MS;
    struct roll_call_message mine = {.buckets = atomic_load(&n->buckets)};
    struct roll_call_message *all = chex_alloc_zeroed((size_t)launch->size, sizeof *all);
    int slowest = 0, fastest = 0;
    buf[0] = '\0';
    if (!all)
        return;
    memcpy(mine.host, launch->host, sizeof mine.host);
    if (chex_launch_exchange(launch, "rollcall", &mine, sizeof mine, all, wait_ms, &err) !=
        CHEX_OK) {
        snprintf(buf, size, "%s", err.text);
        free(all);
        return;
    }
    for (int r = 1; r < launch->size; r++) {
        slowest = all[r].buckets < all[slowest].buckets ? r : slowest;
        fastest = all[r].buckets > all[fastest].buckets ? r : fastest;
    }
    if (all[slowest].buckets == all[fastest].buckets)
        snprintf(buf, size, "all ranks answered; all are at the same bucket");
    else
        snprintf(buf, size,
                 "all ranks answered; furthest behind is rank %d (%.63s), by %llu "
                 "buckets",
                 slowest, all[slowest].host,
                 (unsigned long long)(all[fastest].buckets - all[slowest].buckets));
    free(all);
}

static enum chex_status return_lost(struct gpu_nccl *n, struct chex_error *err) {
    pthread_mutex_lock(&n->lock);
    while (!n->lost)
        pthread_cond_wait(&n->changed, &n->lock);
    pthread_mutex_unlock(&n->lock);
    return chex_error_set(err, n->error.status, "%s", n->error.text);
}

/* Handles a fault: aborts the communicator, makes the roll call, sets the error of all later calls.
 * If another thread is already doing so, it waits for that error. Call it without the lock. */
__attribute__((format(printf, 3, 4))) static enum chex_status
abort_and_report(struct gpu_nccl *n, struct chex_error *err, const char *fmt, ...) {
    char reason[320], roll[CHEX_ERROR_TEXT_BYTES];
    va_list args;
    va_start(args, fmt);
    vsnprintf(reason, sizeof reason, fmt, args);
    va_end(args);
    pthread_mutex_lock(&n->lock);
    const bool mine = !n->losing, connected = n->started;
    ncclComm_t comm = n->comm;
    n->losing = true;
    if (mine)
        n->comm = NULL;
    pthread_mutex_unlock(&n->lock);
    if (!mine)
        return return_lost(n, err);
    if (comm)
        n->lib.ncclCommAbort(comm);
    call_roll(n, roll, sizeof roll);
    chex_error_set(&n->error, CHEX_E_LOST, "rank %d on %s, %s: %s%s%s", n->launch->rank,
                   n->launch->host, connected ? "reducing gradients" : "connecting GPUs", reason,
                   roll[0] ? "; " : "", roll);
    pthread_mutex_lock(&n->lock);
    n->lost = true;
    pthread_cond_broadcast(&n->changed);
    pthread_mutex_unlock(&n->lock);
    return return_lost(n, err);
}

/* NCCL's error text, in one line. Call it with the lock held. */
static void error_text(const struct gpu_nccl *n, ncclResult_t rc, char *buf, size_t size) {
    const char *last = n->comm ? n->lib.ncclGetLastError(n->comm) : NULL;
    snprintf(buf, size, "%s%s%.160s", n->lib.ncclGetErrorString(rc), last && *last ? ": " : "",
             last ? last : "");
    for (char *c = buf; *c; c++)
        if (*c == '\n')
            *c = ' ';
}

/* ---- calls ---- */

static void pause_ns(long *ns) {
    nanosleep(&(struct timespec){.tv_nsec = *ns}, NULL);
    *ns = *ns * 2 < POLL_LAST_NS ? *ns * 2 : POLL_LAST_NS;
}

/* Waits until the call that returned rc is complete. Call it without the lock. */
static enum chex_status wait_complete(struct gpu_nccl *n, const char *call, ncclResult_t rc,
                                      uint64_t timeout_ms, struct chex_error *err) {
    const uint64_t begun_ns = chex_clock_ns();
    long wait_ns = POLL_FIRST_NS;
    char text[256] = "";
    while (rc == ncclInProgress) {
        pause_ns(&wait_ns);
        pthread_mutex_lock(&n->lock);
        const bool losing = n->losing;
        ncclResult_t asked = losing ? ncclSuccess : n->lib.ncclCommGetAsyncError(n->comm, &rc);
        pthread_mutex_unlock(&n->lock);
        if (losing)
            return return_lost(n, err);
        rc = asked != ncclSuccess ? asked : rc;
        if (rc == ncclInProgress && timeout_ms &&
            chex_clock_ns() - begun_ns > timeout_ms * 1000000u)
            return abort_and_report(n, err, "%s did not end within %.1f s", call,
                                    (double)timeout_ms / 1e3);
    }
    if (rc == ncclSuccess)
        return CHEX_OK;
    pthread_mutex_lock(&n->lock);
    error_text(n, rc, text, sizeof text);
    pthread_mutex_unlock(&n->lock);
    return abort_and_report(n, err, "%s: %s", call, text);
}

/* Makes the call with the lock held and waits until it is complete. */
#define CHEX_NCCL(n, function, err, ...)                                                           \
    do {                                                                                           \
        ncclResult_t nccl_rc_ = ncclSuccess;                                                       \
        pthread_mutex_lock(&(n)->lock);                                                            \
        const bool nccl_losing_ = (n)->losing;                                                     \
        if (!nccl_losing_)                                                                         \
            nccl_rc_ = (n)->lib.function(__VA_ARGS__);                                             \
        pthread_mutex_unlock(&(n)->lock);                                                          \
        if (nccl_losing_)                                                                          \
            return return_lost((n), (err));                                                        \
        CHEX_TRY(wait_complete((n), #function, nccl_rc_, (n)->timeout_ms, (err)));                 \
    } while (0)

/* Records an event after the last enqueued message, for the watchdog. */
__attribute__((format(printf, 3, 4))) static enum chex_status
record_message(struct gpu_nccl *n, struct chex_error *err, const char *fmt, ...) {
    va_list args;
    cudaError_t e = cudaSuccess;
    va_start(args, fmt);
    pthread_mutex_lock(&n->lock);
    if (n->pending < MARKS) {
        struct message_event *m = &n->marks[(n->first + n->pending) % MARKS];
        vsnprintf(m->what, sizeof m->what, fmt, args);
        e = cudaEventRecord(m->event, n->stream);
        if (n->pending++ == 0)
            n->first_ns = chex_clock_ns();
    }
    pthread_mutex_unlock(&n->lock);
    va_end(args);
    return e == cudaSuccess ? CHEX_OK : gpu_error(e, "cudaEventRecord", err);
}

enum chex_status gpu_nccl_enqueue(struct gpu_nccl *n, const struct gpu_nccl_message *m,
                                  struct chex_error *err) {
    const ncclDataType_t type = m->doubles ? ncclFloat64 : ncclFloat32;
    switch (m->kind) {
    case GPU_NCCL_SEND:
        CHEX_NCCL(n, ncclSend, err, m->data, m->count, type, m->peer, n->comm, n->stream);
        return record_message(n, err, "sending bucket %d to rank %d", m->tag, m->peer);
    case GPU_NCCL_RECEIVE:
        CHEX_NCCL(n, ncclRecv, err, m->data, m->count, type, m->peer, n->comm, n->stream);
        return record_message(n, err, "receiving bucket %d from rank %d", m->tag, m->peer);
    case GPU_NCCL_BROADCAST:
        CHEX_NCCL(n, ncclBroadcast, err, m->data, m->data, m->count, type, m->peer, n->comm,
                  n->stream);
        atomic_fetch_add(&n->buckets, 1);
        return record_message(n, err, "the broadcast of %zu sums from rank %d", m->count, m->peer);
    case GPU_NCCL_SUM: break;
    }
    CHEX_NCCL(n, ncclAllReduce, err, m->data, m->data, m->count, type, ncclSum, n->comm, n->stream);
    atomic_fetch_add(&n->buckets, 1);
    return record_message(n, err, "the all-reduce of %zu elements", m->count);
}

/* ---- the watchdog ---- */

/* Writes the fault to reason, or "". Call it with the lock held. */
static void find_fault(struct gpu_nccl *n, char *reason, size_t size) {
    ncclResult_t state = ncclSuccess, rc = n->lib.ncclCommGetAsyncError(n->comm, &state);
    state = rc != ncclSuccess ? rc : state;
    reason[0] = '\0';
    while (n->pending && cudaEventQuery(n->marks[n->first].event) == cudaSuccess) {
        n->first = (n->first + 1) % MARKS;
        n->pending--;
        n->first_ns = chex_clock_ns();
    }
    const char *what = n->pending ? n->marks[n->first].what : "between messages";
    if (state != ncclSuccess && state != ncclInProgress) {
        char text[256];
        error_text(n, state, text, sizeof text);
        snprintf(reason, size, "%s: %s", what, text);
    } else if (n->pending && n->timeout_ms &&
               chex_clock_ns() - n->first_ns > n->timeout_ms * 1000000u) {
        snprintf(reason, size, "%s did not end within %.1f s", what, (double)n->timeout_ms / 1e3);
    }
}

static void sleep_interval(struct gpu_nccl *n) {
    chex_clock_cond_wait(&n->changed, &n->lock, chex_clock_ns() + WATCH_MS * 1000000u);
}

/* The watchdog thread. Capture mode "relaxed" lets it query events while another thread captures.
 */
static void *watchdog(void *arg) {
    struct gpu_nccl *n = arg;
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    char reason[320];
    cudaSetDevice(n->device);
    cudaThreadExchangeStreamCaptureMode(&mode);
    pthread_mutex_lock(&n->lock);
    while (!n->stop) {
        sleep_interval(n);
        if (n->stop || n->losing)
            continue;
        find_fault(n, reason, sizeof reason);
        if (!reason[0])
            continue;
        pthread_mutex_unlock(&n->lock);
        (void)abort_and_report(n, NULL, "%s", reason);
        pthread_mutex_lock(&n->lock);
    }
    pthread_mutex_unlock(&n->lock);
    return NULL;
}

enum chex_status gpu_nccl_check(struct gpu_nccl *n, struct chex_error *err) {
    char reason[320] = "";
    pthread_mutex_lock(&n->lock);
    const bool losing = n->losing;
    if (!losing)
        find_fault(n, reason, sizeof reason);
    pthread_mutex_unlock(&n->lock);
    if (losing)
        return return_lost(n, err);
    return reason[0] ? abort_and_report(n, err, "%s", reason) : CHEX_OK;
}

/* ---- memory ---- */

/* Registers a buffer with NCCL. NULL: not registered; messages still work, with one more copy. */
static void *register_with(struct gpu_nccl *n, void *data, size_t bytes) {
    void *handle = NULL;
    if (!n->lib.ncclCommRegister || !n->lib.ncclCommDeregister)
        return NULL;
    pthread_mutex_lock(&n->lock);
    ncclResult_t rc =
        n->comm ? n->lib.ncclCommRegister(n->comm, data, bytes, &handle) : ncclInvalidUsage;
    pthread_mutex_unlock(&n->lock);
    if (rc == ncclSuccess)
        return handle;
    chex_debug("NCCL: buffer of %zu bytes: not registered: %s", bytes,
               n->lib.ncclGetErrorString(rc));
    return NULL;
}

void *gpu_nccl_alloc(struct gpu_nccl *n, size_t bytes) {
    struct block *b = chex_alloc_zeroed(1, sizeof *b);
    if (!b)
        return NULL;
    if (n->lib.ncclMemAlloc && n->lib.ncclMemFree)
        b->of_nccl = n->lib.ncclMemAlloc(&b->data, bytes) == ncclSuccess && b->data;
    if (!b->of_nccl && cudaMalloc(&b->data, bytes) != cudaSuccess) {
        free(b);
        return NULL;
    }
    b->registered = register_with(n, b->data, bytes);
    pthread_mutex_lock(&n->lock);
    b->next = n->blocks;
    n->blocks = b;
    pthread_mutex_unlock(&n->lock);
    return b->data;
}

void gpu_nccl_free(struct gpu_nccl *n, void *data) {
    struct block *found = NULL;
    pthread_mutex_lock(&n->lock);
    for (struct block **b = &n->blocks; data && *b; b = &(*b)->next)
        if ((*b)->data == data) {
            found = *b;
            *b = found->next;
            break;
        }
    if (found && found->registered && n->comm)
        n->lib.ncclCommDeregister(n->comm, found->registered);
    pthread_mutex_unlock(&n->lock);
    if (found && found->of_nccl)
        n->lib.ncclMemFree(found->data);
    else if (found)
        cudaFree(found->data);
    free(found);
}

/* ---- set-up and end ---- */

/* The order of sums within a kernel depends on the number of multiprocessors. */
static void warn_of_difference(const struct chex_launch *launch, const struct setup_message *all) {
    for (int r = 1; launch->rank == 0 && r < launch->size; r++)
        if (all[r].sms != all[0].sms) {
            chex_warn("cuda: the GPU of rank 0 has %d multiprocessors, that of rank %d has %d: "
                      "results are the same bits only with the same GPU for each rank",
                      all[0].sms, r, all[r].sms);
            return;
        }
}

/* Distributes rank 0's id and checks that all ranks have the same version of NCCL. */
static enum chex_status exchange_id(struct gpu_nccl *n, struct chex_group *group,
                                    ncclUniqueId *id_out, struct chex_error *err) {
    struct setup_message mine = {.version = n->version};
    enum chex_status st = CHEX_OK;
    int sms = 0;
    const ncclResult_t rc = group->rank == 0 ? n->lib.ncclGetUniqueId(&mine.id) : ncclSuccess;
    if (rc != ncclSuccess)
        st = chex_error_set(err, CHEX_E_ENV, "ncclGetUniqueId: %s (NCCL_DEBUG=WARN says more)",
                            n->lib.ncclGetErrorString(rc));
    CHEX_TRY(chex_group_follow(group, 0, st, err));
    cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, n->device);
    mine.sms = sms;
    CHEX_TRY(chex_group_exchange(group, "nccl", &mine, sizeof mine, err));
    const struct setup_message *all = group->all;
    for (int r = 0; r < group->size; r++)
        if (all[r].version != n->version)
            return chex_error_set(err, CHEX_E_ENV,
                                  "NCCL is version code %d on rank %d and %d on rank %d: expected "
                                  "the same on all",
                                  n->version, group->rank, all[r].version, r);
    warn_of_difference(n->launch, all);
    *id_out = all[0].id;
    return CHEX_OK;
}

static enum chex_status connect_all(struct gpu_nccl *n, ncclUniqueId id, uint64_t timeout_ms,
                                    struct chex_error *err) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    config.maxCTAs = CTAS_MAX;
    ncclResult_t rc =
        n->lib.ncclCommInitRankConfig(&n->comm, n->launch->size, id, n->launch->rank, &config);
    if (rc == ncclSuccess || rc == ncclInProgress)
        return wait_complete(n, "ncclCommInitRankConfig", rc, timeout_ms, err);
    const char *last = n->lib.ncclGetLastError(NULL);
    return chex_error_set(err, CHEX_E_ENV, "ncclCommInitRankConfig: %s%s%s",
                          n->lib.ncclGetErrorString(rc), last && *last ? ": " : "",
                          last ? last : "");
}

static enum chex_status start_watchdog(struct gpu_nccl *n, struct chex_error *err) {
    for (int i = 0; i < MARKS; i++)
        CHEX_CUDA(cudaEventCreateWithFlags(&n->marks[i].event, cudaEventDisableTiming));
    int rc = pthread_create(&n->thread, NULL, watchdog, n);
    if (rc)
        return chex_error_errno(err, CHEX_E_RESOURCE, rc, "cannot start the NCCL watchdog thread");
    pthread_mutex_lock(&n->lock);
    n->started = true;
    pthread_mutex_unlock(&n->lock);
    return CHEX_OK;
}

enum chex_status gpu_nccl_create(struct chex_launch *launch, cudaStream_t stream,
                                 uint64_t timeout_ms, struct gpu_nccl **out,
                                 struct chex_error *err) {
    struct gpu_nccl *n = chex_alloc_zeroed(1, sizeof *n);
    if (!n)
        return chex_error_memory(err, NULL);
    n->launch = launch;
    n->stream = stream;
    n->timeout_ms = timeout_ms;
    chex_clock_cond_init(&n->changed);
    pthread_mutex_init(&n->lock, NULL);
    const cudaError_t e = cudaGetDevice(&n->device);
    enum chex_status st = e == cudaSuccess ? load_library(&n->lib, &n->version, err)
                                           : gpu_error(e, "cudaGetDevice", err);
    if (st != CHEX_OK)
        gpu_nccl_close(n);
    else
        *out = n;
    return st;
}

enum chex_status gpu_nccl_connect(struct gpu_nccl *n, struct chex_group *group,
                                  struct chex_error *err) {
    const uint64_t timeout_ms =
        n->timeout_ms && n->timeout_ms < SETUP_MS ? n->timeout_ms : SETUP_MS;
    ncclUniqueId id;
    CHEX_TRY(exchange_id(n, group, &id, err));
    CHEX_TRY(connect_all(n, id, timeout_ms, err));
    return start_watchdog(n, err);
}

/* Ends the communicator. If the other ranks do not end in time, it is aborted; no messages are
 * pending by then. */
static void end_comm(struct gpu_nccl *n) {
    const uint64_t begun_ns = chex_clock_ns();
    long wait_ns = POLL_FIRST_NS;
    if (!n->comm)
        return;
    ncclResult_t rc = n->lib.ncclCommFinalize(n->comm);
    while (rc == ncclInProgress && chex_clock_ns() - begun_ns < FINISH_MS * 1000000ull) {
        pause_ns(&wait_ns);
        ncclResult_t asked = n->lib.ncclCommGetAsyncError(n->comm, &rc);
        rc = asked != ncclSuccess ? asked : rc;
    }
    if (rc == ncclSuccess)
        n->lib.ncclCommDestroy(n->comm);
    else
        n->lib.ncclCommAbort(n->comm);
    n->comm = NULL;
}

void gpu_nccl_close(struct gpu_nccl *n) {
    if (!n)
        return;
    if (n->started) {
        pthread_mutex_lock(&n->lock);
        n->stop = true;
        pthread_cond_broadcast(&n->changed);
        pthread_mutex_unlock(&n->lock);
        pthread_join(n->thread, NULL);
        end_comm(n);
    } else if (n->comm) {
        n->lib.ncclCommAbort(n->comm);
    }
    while (n->blocks)
        gpu_nccl_free(n, n->blocks->data);
    for (int i = 0; i < MARKS; i++)
        gpu_event_destroy(n->marks[i].event);
    pthread_cond_destroy(&n->changed);
    pthread_mutex_destroy(&n->lock);
    free(n);
}

#endif
