/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives by MPI. The same source is compiled for Open MPI (module chexnet-mpi.so) and for the
 * ABI of MPICH (chexnet-mpich.so, CHEX_MPICH); launch/coll.h says when each is used.
 *
 * Every operation is non-blocking, followed by MPI_Test in a loop. A blocking MPI call spins and
 * takes a core from the forward pass. After 200 tests the waiting thread sleeps between tests, 10
 * to 200 us. MPI counts are int, so long messages are sent in pieces of 64 MiB.
 *
 * All-gather and sum are those of launch/circulant.h and not MPI's. Those of Open MPI 4.1 are not
 * made for many ranks: MPI_Iallgather sends a message from each rank to each, MPI_Iallreduce in
 * place sends whole vectors through rank 0, and MPI does not state the order of the additions.
 */
#include <mpi.h>
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/module.h"
#include "launch/circulant.h"
#include "launch/coll.h"

CHEX_MODULE_VERSION_SYMBOL

enum {
    PIECE_BYTES = 64 << 20, /* a multiple of every element size */
    SPIN_COUNT = 200,       /* tests before the first sleep */
    SLEEP_FIRST_NS = 10000,
    SLEEP_LAST_NS = 200000,
};

#ifdef CHEX_MPICH
static const char library[] = "mpich", load_instead[] = "an MPICH that uses PMI-1 (hydra)";
#else
static const char library[] = "openmpi",
                  load_instead[] = "an Open MPI built with PMIx, or set CHEX_MPI=mpich";
#endif

struct mpi_self {
    MPI_Comm comm;
    int rank, size;
    bool broken;    /* a call failed: MPI_Finalize would wait for ranks that are gone */
    float *scratch; /* of the sums */
    size_t scratch_count;
};

enum { EXCHANGE_TAG = 32001 }; /* coll.c and reduce.c use those below */

static enum chex_status failed(struct mpi_self *self, const char *call, int rc,
                               struct chex_error *err) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int n = 0;
    MPI_Error_string(rc, text, &n);
    if (self)
        self->broken = true;
    return chex_error_set(err, CHEX_E_LOST, "%s: %s", call, text);
}

/* Waits until the request is complete. */
static enum chex_status finish(struct mpi_self *self, MPI_Request *request, const char *call,
                               struct chex_error *err) {
    long sleep_ns = SLEEP_FIRST_NS;
    for (int tries = 0;; tries++) {
        int through = 0, rc = MPI_Test(request, &through, MPI_STATUS_IGNORE);
        if (rc != MPI_SUCCESS)
            return failed(self, call, rc, err);
        if (through)
            return CHEX_OK;
        if (tries < SPIN_COUNT) {
            sched_yield();
            continue;
        }
        nanosleep(&(struct timespec){.tv_nsec = sleep_ns}, NULL);
        sleep_ns = sleep_ns * 2 < SLEEP_LAST_NS ? sleep_ns * 2 : SLEEP_LAST_NS;
    }
}

/* Starts `call`, which fills `request`, and waits for it. */
#define CHEX_MPI(self, request, call, err)                                                         \
    do {                                                                                           \
        int mpi_rc_ = (call);                                                                      \
        if (mpi_rc_ != MPI_SUCCESS)                                                                \
            return failed((self), #call, mpi_rc_, (err));                                          \
        CHEX_TRY(finish((self), &(request), #call, (err)));                                        \
    } while (0)

/* The bytes of a message in its piece that begins at byte `done`. */
static int piece(size_t bytes, size_t done) {
    return bytes <= done ? 0 : bytes - done < PIECE_BYTES ? (int)(bytes - done) : (int)PIECE_BYTES;
}

static enum chex_status barrier(void *arg, struct chex_error *err) {
    struct mpi_self *self = arg;
    MPI_Request request;
    CHEX_MPI(self, request, MPI_Ibarrier(self->comm, &request), err);
    return CHEX_OK;
}

static enum chex_status broadcast(void *arg, void *data, size_t bytes, int root,
                                  struct chex_error *err) {
    struct mpi_self *self = arg;
    for (size_t done = 0; done < bytes; done += PIECE_BYTES) {
        char *at = (char *)data + done;
        const int n = piece(bytes, done);
        MPI_Request request;
        CHEX_MPI(self, request, MPI_Ibcast(at, n, MPI_BYTE, root, self->comm, &request), err);
    }
    return CHEX_OK;
}

/* Sends `out` and receives `in` at the same time. 0 bytes: there is no such message. */
static enum chex_status exchange_tagged(struct mpi_self *self, const void *out, size_t out_bytes,
                                        int to, void *in, size_t in_bytes, int from, int tag,
                                        struct chex_error *err) {
    for (size_t done = 0; done < out_bytes || done < in_bytes; done += PIECE_BYTES) {
        const int n_out = piece(out_bytes, done), n_in = piece(in_bytes, done);
        MPI_Request sent = MPI_REQUEST_NULL, received = MPI_REQUEST_NULL;
        int rc = MPI_SUCCESS;
        if (n_in > 0)
            rc = MPI_Irecv((char *)in + done, n_in, MPI_BYTE, from, tag, self->comm, &received);
        if (rc == MPI_SUCCESS && n_out > 0)
            rc = MPI_Isend((const char *)out + done, n_out, MPI_BYTE, to, tag, self->comm, &sent);
        if (rc != MPI_SUCCESS)
            return failed(self, "MPI_Isend or MPI_Irecv", rc, err);
        CHEX_TRY(finish(self, &received, "MPI_Irecv", err));
        CHEX_TRY(finish(self, &sent, "MPI_Isend", err));
    }
    return CHEX_OK;
}

static enum chex_status exchange(void *self, const void *out, size_t out_bytes, int to, void *in,
                                 size_t in_bytes, int from, struct chex_error *err) {
    return exchange_tagged(self, out, out_bytes, to, in, in_bytes, from, EXCHANGE_TAG, err);
}

static struct chex_circulant circulant(struct mpi_self *self) {
    return (struct chex_circulant){self, self->rank, self->size, exchange};
}

static enum chex_status allgather(void *arg, const void *mine, size_t bytes, void *all_out,
                                  struct chex_error *err) {
    const struct chex_circulant c = circulant(arg);
    return chex_circulant_allgather(&c, mine, bytes, all_out, err);
}

static enum chex_status sum_f32(void *arg, float *data, size_t count, struct chex_error *err) {
    struct mpi_self *self = arg;
    const struct chex_circulant c = circulant(self);
    const size_t needed = chex_circulant_scratch(self->size, count);
    if (needed > self->scratch_count) {
        free(self->scratch);
        self->scratch = malloc(needed * sizeof *self->scratch);
        self->scratch_count = self->scratch ? needed : 0;
        if (!self->scratch)
            return chex_error_memory(err, NULL);
    }
    return chex_circulant_sum(&c, data, count, self->scratch, err);
}

static enum chex_status send(void *self, const void *data, size_t bytes, int to, int tag,
                             struct chex_error *err) {
    return exchange_tagged(self, data, bytes, to, NULL, 0, to, tag, err);
}

static enum chex_status receive(void *self, void *data, size_t bytes, int from, int tag,
                                struct chex_error *err) {
    return exchange_tagged(self, NULL, 0, from, data, bytes, from, tag, err);
}

static enum chex_status start(struct chex_error *err) {
    int have = 0, ended = 0, provided = MPI_THREAD_SINGLE;
    MPI_Initialized(&have);
    MPI_Finalized(&ended);
    if (ended)
        return chex_error_set(err, CHEX_E_FAIL, "MPI was ended in this process and cannot restart");
    int rc = have ? MPI_Query_thread(&provided)
                  : MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided);
    if (rc != MPI_SUCCESS)
        return chex_error_set(err, CHEX_E_ENV, "MPI_Init_thread failed with %d", rc);
    if (provided < MPI_THREAD_SERIALIZED)
        return chex_error_set(
            err, CHEX_E_ENV,
            "MPI: thread level %d allows calls from the first thread only (expected "
            "MPI_THREAD_SERIALIZED or higher): build MPI with thread support",
            provided);
    return CHEX_OK;
}

/* Logs the first part of "Open MPI v4.1.4, package: ..." or "MPICH Version:\t4.0.2\nMPICH ...". */
static enum chex_status agree_with_launch(const struct chex_launch *launch,
                                          struct chex_error *err) {
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int rank = -1, size = -1, n;
    MPI_Get_library_version(version, &n);
    version[strcspn(version, ",\n")] = '\0';
    char *tab = strchr(version, '\t');
    if (tab)
        *tab = ' ';
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (rank != launch->rank || size != launch->size)
        return chex_error_set(
            err, CHEX_E_ENV, "%.40s says rank %d of %d where %s says rank %d of %d: load %s",
            version, rank, size, launch->method, launch->rank, launch->size, load_instead);
    chex_info("%d ranks: %s", size, version);
    return CHEX_OK;
}

static enum chex_status init(struct chex_launch *launch, struct chex_group *group, void **self_out,
                             struct chex_error *err) {
    (void)group;
    CHEX_TRY(start(err));
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    CHEX_TRY(agree_with_launch(launch, err));
    struct mpi_self *self = calloc(1, sizeof *self);
    if (!self)
        return chex_error_memory(err, NULL);
    self->rank = launch->rank;
    self->size = launch->size;
    int rc = MPI_Comm_dup(MPI_COMM_WORLD, &self->comm);
    if (rc != MPI_SUCCESS) {
        free(self);
        return failed(NULL, "MPI_Comm_dup", rc, err);
    }
    MPI_Comm_set_errhandler(self->comm, MPI_ERRORS_RETURN);
    *self_out = self;
    return CHEX_OK;
}

#ifdef CHEX_MPICH
/* In place of MPI_Finalize. That of MPICH 4.0 hangs with UCX: a rank that has closed its
 * connections waits in a barrier of PMI, and does not serve the ranks that still close theirs. Here
 * all ranks serve the others until the barrier is through. Then no message is under way, and the
 * process may end. */
static void leave(struct mpi_self *self) {
    static const char ask[] = "cmd=barrier_in\n";
    struct pollfd answer = {.fd = atoi(getenv("PMI_FD")), .events = POLLIN};
    if (barrier(self, NULL) != CHEX_OK ||
        write(answer.fd, ask, sizeof ask - 1) != (ssize_t)sizeof ask - 1)
        return;
    for (int found; poll(&answer, 1, 1) == 0;)
        MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, self->comm, &found, MPI_STATUS_IGNORE);
}
#else
static void leave(struct mpi_self *self) {
    MPI_Comm_free(&self->comm);
    MPI_Finalize();
}
#endif

static void destroy(void *arg) {
    struct mpi_self *self = arg;
    if (!self->broken)
        leave(self);
    free(self->scratch);
    free(self);
}

__attribute__((visibility("default"))) extern const struct chex_coll_impl chexnet_coll_mpi;
const struct chex_coll_impl chexnet_coll_mpi = {
    .name = library,
    .init = init,
    .destroy = destroy,
    .barrier = barrier,
    .broadcast = broadcast,
    .allgather = allgather,
    .sum_f32 = sum_f32,
    .sums_by_tree = chex_circulant_is_tree,
    .send = send,
    .receive = receive,
};
