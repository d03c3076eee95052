/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank that a PMIx server started: srun --mpi=pmix, prterun, mpirun.
 *
 * Problem 1: the fence of Slurm 22.05's server is not reliable. It may return at once while ranks
 * on other nodes are still late (with TreeWidth above the number of nodes). It returns success when
 * a participant dies. After a time-out of a fence, nothing works any more.
 *
 * So no fence is trusted. An exchange is complete when the values of all ranks are here, before a
 * deadline of our own clock. Each value has a key that was never used before, because PMIx keeps
 * the first value of a key.
 *
 * Problem 2: the server may have ended (mpirun was killed) or stalled (it was stopped, or its node
 * swaps). A blocking PMIx call may then never return. So each call runs on a thread of its own, and
 * the caller waits for it until a deadline (call_within). A wait for other ranks may last for
 * hours; meanwhile a check every 30 s asks the server for an answer. If PMIx reports a lost
 * connection, all waits end at once.
 *
 * Problem 3: the daemon of a step ends with the last task of its node. If this node's daemon is
 * then asked for a value of that node, it tries to send for 31 s and answers no other request
 * meanwhile. Its ranks then find all others silent, and the others find them silent. A fence has
 * the same effect on one neighbour of the node. So before ranks are named as missing, Slurm is
 * asked which nodes have left the step (find_ended). If some have, only their ranks are missing:
 * look-ups prove nothing then. If Slurm does not answer and ranks of several nodes are silent, none
 * is named.
 *
 * A request that does not return in time is abandoned, not cancelled. Its ticket has two holders,
 * the caller and the callback; the last one frees it.
 *
 * Problem 4: MPI shares this client of PMIx. PMIx counts PMIx_Init and PMIx_Finalize, and Open MPI
 * 4 calls both. Open MPI 5 and 6 call PMIx_Init only if PMIx_Initialized() is false, but that call
 * alone gives them their name space and rank, and they always call PMIx_Finalize. So
 * PMIx_Initialized() is defined here, and is false: MPI calls both.
 * Two other orders were tried. PMIx_Finalize before MPI_Init and PMIx_Init after it: Open MPI 4.1
 * does not start then. MPI_Init before PMIx_Init: MPI waits without limit for a rank that is lost,
 * and cannot name it.
 */
#include <pmix.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "launch/methods.h"
#include "launch/slurm_step.h"

#ifndef PMIX_ERR_LOST_CONNECTION /* OpenPMIx 3 */
#define PMIX_ERR_LOST_CONNECTION PMIX_ERR_LOST_PEER_CONNECTION
#endif
enum {
    NAMING_MS = 1000,     /* how long to look for the ranks that are missing */
    FINISH_MS = 600000,   /* the last exchange; another rank may still write its results */
    POLL_FIRST_US = 500,  /* pause between two requests for the same value: first ... */
    POLL_LAST_US = 50000, /* ... and longest */
    KEY_BYTES = 128,
    SERVER_MS = 60000, /* a server that does not answer within this time is lost */
    CHECK_MS = 30000,  /* pause between two checks that the server is alive */
    START_MS = 120000, /* PMIx_Init and the job's rank and size, from the server of this node */
    END_MS = 5000,     /* publish, PMIx_Abort and PMIx_Finalize, which must not delay the end */
    FIRST_MS = 3000,   /* head start of local rank 0 in asking for it */
    SPOKEN_MS = 1000,  /* before PMIx_Abort: srun ends at once and loses output on its way to it */
    GONE_MS = 200,     /* pause between two checks of server_gone */
};

/* The connection to this node's server is lost (reported by PMIx). It never comes back. */
static atomic_bool server_gone;
/* The server has not answered for SERVER_MS. */
static atomic_bool server_silent;

struct pmix_self {
    pmix_proc_t me;
    atomic_bool *ended; /* (size) ranks whose node has left the step; it never comes back */
};

typedef pmix_status_t (*call_fn)(void *arg);

/* One pending request. Freed by the last of its holders. */
struct ticket {
    pthread_mutex_t lock;
    pthread_cond_t came;
    int holders;      /* the caller and the callback */
    call_fn function; /* of call_within */
    void *arg;
    bool done;
    pmix_status_t status;
    void *data;
    size_t bytes;
    /* What the request points to. PMIx reads it until the answer is here. */
    pmix_info_t info;
    pmix_proc_t proc;
    char key[KEY_BYTES];
};

static struct ticket *ticket_create(void) {
    struct ticket *t = calloc(1, sizeof *t);
    if (!t)
        return NULL;
    chex_clock_cond_init(&t->came);
    pthread_mutex_init(&t->lock, NULL);
    t->holders = 2;
    return t;
}

static void ticket_drop(struct ticket *t, int holders) {
    pthread_mutex_lock(&t->lock);
    const bool last = (t->holders -= holders) == 0;
    pthread_mutex_unlock(&t->lock);
    if (!last)
        return;
    pthread_cond_destroy(&t->came);
    pthread_mutex_destroy(&t->lock);
    free(t->data);
    free(t);
}

static void ticket_answer(struct ticket *t, pmix_status_t status, const pmix_value_t *value) {
    pthread_mutex_lock(&t->lock);
    t->status = status;
    if (status == PMIX_SUCCESS && value && value->type == PMIX_BYTE_OBJECT) {
        t->data = malloc(value->data.bo.size ? value->data.bo.size : 1);
        t->bytes = value->data.bo.size;
        t->status = t->data ? PMIX_SUCCESS : PMIX_ERR_NOMEM;
        if (t->data)
            memcpy(t->data, value->data.bo.bytes, t->bytes);
    }
    t->done = true;
    pthread_cond_signal(&t->came);
    pthread_mutex_unlock(&t->lock);
    ticket_drop(t, 1);
}

static void on_op(pmix_status_t status, void *arg) { ticket_answer(arg, status, NULL); }

static void on_value(pmix_status_t status, pmix_value_t *value, void *arg) {
    ticket_answer(arg, status, value);
}

/* Waits for the answer. False if the deadline passes first or the server is gone. */
static bool ticket_wait(struct ticket *t, uint64_t deadline_ns) {
    pthread_mutex_lock(&t->lock);
    for (uint64_t now = 0; !t->done && now < deadline_ns && !atomic_load(&server_gone);) {
        const uint64_t next = chex_clock_in_ms(GONE_MS);
        (void)chex_clock_cond_wait(&t->came, &t->lock, next < deadline_ns ? next : deadline_ns);
        now = chex_clock_ns();
    }
    bool done = t->done;
    pthread_mutex_unlock(&t->lock);
    return done;
}

static uint64_t sooner(uint64_t a_ns, uint64_t b_ns) { return a_ns < b_ns ? a_ns : b_ns; }

/* ---- calls that may never return ---- */

static void *run_call(void *ticket) {
    struct ticket *t = ticket;
    ticket_answer(t, t->function(t->arg), NULL);
    return NULL;
}

/* Runs function(arg) on a thread and waits until the deadline, or until the server is gone. False:
 * the function has not returned. The thread then continues, and `arg` must stay valid for ever. */
static bool call_within(call_fn function, void *arg, uint64_t deadline_ns, pmix_status_t *rc_out) {
    struct ticket *t = ticket_create();
    pthread_t thread;
    *rc_out = PMIX_ERR_NOMEM;
    if (!t)
        return true;
    t->function = function;
    t->arg = arg;
    if (pthread_create(&thread, NULL, run_call, t) != 0) {
        ticket_drop(t, 2);
        return true;
    }
    pthread_detach(thread);
    const bool returned = ticket_wait(t, deadline_ns);
    if (returned)
        *rc_out = t->status;
    ticket_drop(t, 1);
    return returned;
}

/* The error of a PMIx call that did not return. */
static enum chex_status server_lost_error(struct chex_error *err, const char *call) {
    if (atomic_load(&server_gone))
        return chex_error_set(err, CHEX_E_LOST,
                              "%s: the PMIx server of this node is gone: mpirun or Slurm's step "
                              "daemon has ended",
                              call);
    return chex_error_set(err, CHEX_E_LOST, "%s: the PMIx server of this node does not answer",
                          call);
}

/* The error of a PMIx call that returned `rc`. */
static enum chex_status pmix_error(struct chex_error *err, enum chex_status status,
                                   const char *call, pmix_status_t rc) {
    if (rc == PMIX_ERR_UNREACH || rc == PMIX_ERR_LOST_CONNECTION ||
        rc == PMIX_ERR_LOST_CONNECTION_TO_SERVER) {
        atomic_store(&server_gone, true);
        return server_lost_error(err, call);
    }
    return chex_error_set(err, status, "%s: %s (PMIx status %d)", call, PMIx_Error_string(rc), rc);
}

/* Handles the event of a lost connection. Passes the event on, because others in this process (an
 * MPI library) may handle it too. */
static void on_lost(size_t id, pmix_status_t status, const pmix_proc_t *source, pmix_info_t info[],
                    size_t ninfo, pmix_info_t *results, size_t nresults,
                    pmix_event_notification_cbfunc_fn_t done, void *arg) {
    (void)id, (void)status, (void)source, (void)info, (void)ninfo, (void)results, (void)nresults;
    atomic_store(&server_gone, true);
    if (done)
        done(PMIX_EVENT_NO_ACTION_TAKEN, NULL, 0, NULL, NULL, arg);
}

static void on_registered(pmix_status_t status, size_t id, void *arg) {
    (void)status, (void)id, (void)arg;
}

static void watch_connection(void) {
    static pmix_status_t codes[] = {PMIX_ERR_LOST_CONNECTION, PMIX_ERR_LOST_CONNECTION_TO_SERVER};
    PMIx_Register_event_handler(codes, sizeof codes / sizeof codes[0], NULL, 0, on_lost,
                                on_registered, NULL);
}

/* In place of the library's function, for every library of this process; see problem 3. False never
 * harms: a library that then calls PMIx_Init is counted. */
__attribute__((visibility("default"))) int PMIx_Initialized(void) { return 0; }

/* Reads an integer from the server: of `rank`, or of the job (PMIX_RANK_WILDCARD). */
static int served_int(const struct pmix_self *self, pmix_rank_t rank, const char *key,
                      int otherwise) {
    pmix_proc_t proc = self->me;
    proc.rank = rank;
    pmix_value_t *value = NULL;
    if (PMIx_Get(&proc, key, NULL, 0, &value) != PMIX_SUCCESS || !value)
        return otherwise;
    int n = otherwise;
    if (value->type == PMIX_UINT32 || value->type == PMIX_PROC_RANK) /* a rank is a uint32_t */
        n = (int)value->data.uint32;
    else if (value->type == PMIX_UINT16)
        n = value->data.uint16;
    else if (value->type == PMIX_INT)
        n = value->data.integer;
    PMIX_VALUE_RELEASE(value);
    return n;
}

/* The node name of a rank. Slurm's server also knows ranks of other nodes. */
static void served_host(const struct pmix_self *self, int rank, char *buf, size_t size) {
    pmix_proc_t proc = self->me;
    proc.rank = (pmix_rank_t)rank;
    bool yes = true;
    pmix_info_t here;
    PMIX_INFO_LOAD(&here, PMIX_OPTIONAL, &yes, PMIX_BOOL);
    pmix_value_t *value = NULL;
    pmix_status_t rc = PMIx_Get(&proc, PMIX_HOSTNAME, &here, 1, &value);
    bool known = rc == PMIX_SUCCESS && value && value->type == PMIX_STRING;
    snprintf(buf, size, "%s", known ? value->data.string : "host unknown");
    if (value)
        PMIX_VALUE_RELEASE(value);
}

/* Whether PMIX_NAMESPACE belongs to another step. Slurm's name space is slurm.pmix.JOB.STEP. A step
 * without PMIx that was started inside a step with PMIx inherits the outer step's variables, which
 * are not valid here. */
static bool of_another_step(const char *space) {
    const char *step = getenv("SLURM_STEP_ID"), *dot = strrchr(space, '.');
    return strncmp(space, "slurm.pmix.", 11) == 0 && step && dot && strcmp(dot + 1, step) != 0;
}

static bool present(void) {
    const char *space = getenv("PMIX_NAMESPACE");
    return space && *space && getenv("PMIX_RANK") && !of_another_step(space);
}

/* Standard output is for results. Libraries that print there at start are redirected to standard
 * error. Call only while no other thread runs. */
static int stdout_to_stderr(void) {
    fflush(stdout);
    int kept = dup(STDOUT_FILENO);
    if (kept >= 0)
        dup2(STDERR_FILENO, STDOUT_FILENO);
    return kept;
}

static void stdout_restore(int kept) {
    if (kept < 0)
        return;
    fflush(stdout);
    dup2(kept, STDOUT_FILENO);
    close(kept);
}

/* Numbers the nodes by the host names of the ranks. mpirun inside an allocation counts its own node
 * as number 0, also if it starts no rank there; then a rank may be on "node 1 of 1". Changes
 * nothing if a host name is unknown. */
static void number_nodes(struct chex_launch *launch, const struct pmix_self *self) {
    char(*hosts)[CHEX_HOST_BYTES] = calloc((size_t)launch->size, sizeof *hosts);
    int nodes = 0, mine = -1;
    for (int r = 0; hosts && r < launch->size; r++) {
        int k = 0;
        served_host(self, r, hosts[nodes], sizeof hosts[nodes]);
        while (strcmp(hosts[k], hosts[nodes]) != 0)
            k++;
        if (r == launch->rank)
            mine = k;
        nodes += k == nodes;
    }
    bool known = hosts;
    for (int k = 0; known && k < nodes; k++)
        known = strcmp(hosts[k], "host unknown") != 0;
    if (known && mine >= 0) {
        launch->node = mine;
        launch->nodes = nodes;
    }
    free(hosts);
}

static enum chex_status fill(struct chex_launch *launch, struct pmix_self *self,
                             struct chex_error *err) {
    const pmix_rank_t mine = self->me.rank, job = PMIX_RANK_WILDCARD;
    launch->rank = (int)mine;
    launch->size = served_int(self, job, PMIX_JOB_SIZE, 0);
    launch->local_rank =
        served_int(self, mine, PMIX_LOCAL_RANK, chex_launch_env_int("SLURM_LOCALID", -1));
    launch->local_size = served_int(self, job, PMIX_LOCAL_SIZE, 0);
    launch->node = served_int(self, mine, PMIX_NODEID, chex_launch_env_int("SLURM_NODEID", -1));
    launch->nodes =
        served_int(self, job, PMIX_NUM_NODES, chex_launch_env_int("SLURM_STEP_NUM_NODES", 0));
    if (launch->size > 1 && strncmp(self->me.nspace, "slurm.pmix.", 11) != 0)
        number_nodes(launch, self);
    chex_launch_fill_names(launch);
    if (!getenv("SLURMD_NODENAME"))
        served_host(self, launch->rank, launch->host, sizeof launch->host);
    if (launch->size < 1 || launch->rank >= launch->size || launch->local_rank < 0 ||
        launch->local_rank >= launch->local_size || launch->node < 0 ||
        launch->node >= launch->nodes)
        return chex_error_set(
            err, CHEX_E_ENV,
            "PMIx server: inconsistent values: rank %d of %d, local rank %d of %d, node %d of %d",
            launch->rank, launch->size, launch->local_rank, launch->local_size, launch->node,
            launch->nodes);
    return CHEX_OK;
}

/* The result of call_start, filled on its thread. */
struct start {
    struct chex_launch launch;
    struct pmix_self *self;
    enum chex_status status;
    struct chex_error error;
};

static pmix_status_t call_start(void *arg) {
    struct start *s = arg;
    const pmix_status_t rc = PMIx_Init(&s->self->me, NULL, 0);
    if (rc != PMIX_SUCCESS) {
        s->status =
            chex_error_set(&s->error, CHEX_E_ENV,
                           "PMIx_Init: %s (PMIx status %d); name space %s, client library "
                           "%s",
                           PMIx_Error_string(rc), rc, getenv("PMIX_NAMESPACE"), PMIx_Get_version());
        return rc;
    }
    watch_connection();
    s->status = fill(&s->launch, s->self, &s->error);
    return rc;
}

static pmix_status_t call_finalize(void *arg) {
    (void)arg;
    return PMIx_Finalize(NULL, 0);
}

static enum chex_status init(struct chex_launch *launch, struct chex_error *err) {
    struct start *s = calloc(1, sizeof *s);
    pmix_status_t rc = PMIX_ERR_NOMEM;
    if (s)
        s->self = calloc(1, sizeof *s->self);
    if (!s || !s->self) {
        free(s);
        return chex_error_memory(err, NULL);
    }
    s->launch = *launch;
    s->status = chex_error_set(&s->error, CHEX_E_RESOURCE, "cannot start a thread for PMIx");
    int kept = stdout_to_stderr();
    const bool returned = call_within(call_start, s, chex_clock_in_ms(START_MS), &rc);
    stdout_restore(kept);
    if (!returned)
        return server_lost_error(err, "PMIx_Init");
    enum chex_status st = s->status;
    if (st == CHEX_OK) {
        s->self->ended = calloc((size_t)s->launch.size, sizeof *s->self->ended);
        if (!s->self->ended)
            st = chex_error_memory(&s->error, NULL);
    }
    if (st == CHEX_OK) {
        *launch = s->launch;
        launch->self = s->self;
    } else {
        *err = s->error;
        if (rc == PMIX_SUCCESS)
            (void)call_within(call_finalize, NULL, chex_clock_in_ms(END_MS), &rc);
        free(s->self);
    }
    free(s);
    return st;
}

/* A value to be published. */
struct value_to_put {
    char key[KEY_BYTES];
    size_t bytes;
    char data[];
};

static pmix_status_t call_put(void *arg) {
    struct value_to_put *p = arg;
    pmix_value_t value;
    PMIX_VALUE_CONSTRUCT(&value);
    value.type = PMIX_BYTE_OBJECT;
    value.data.bo.bytes = p->data;
    value.data.bo.size = p->bytes;
    pmix_status_t rc = PMIx_Put(PMIX_GLOBAL, p->key, &value);
    if (rc == PMIX_SUCCESS)
        rc = PMIx_Commit();
    free(p);
    return rc;
}

static enum chex_status put(const char *key, const void *mine, size_t bytes, uint64_t deadline_ns,
                            struct chex_error *err) {
    struct value_to_put *p = calloc(1, sizeof *p + bytes + 1);
    pmix_status_t rc;
    if (!p)
        return chex_error_memory(err, NULL);
    snprintf(p->key, sizeof p->key, "%s", key);
    p->bytes = bytes ? bytes : 1; /* an empty value is sent as one byte */
    if (bytes)
        memcpy(p->data, mine, bytes);
    if (!call_within(call_put, p, deadline_ns, &rc))
        return server_lost_error(err, "PMIx_Commit");
    return rc == PMIX_SUCCESS ? CHEX_OK : pmix_error(err, CHEX_E_LOST, "PMIx_Commit", rc);
}

static pmix_status_t call_commit(void *arg) {
    (void)arg;
    return PMIx_Commit();
}

/* Waits for other ranks. Meanwhile checks every CHECK_MS that the server answers. CHEX_E_LOST as
 * soon as the server does not answer. *came_out is false if the deadline passes first. */
static enum chex_status wait_for_others(struct ticket *t, const char *call, uint64_t deadline_ns,
                                        bool *came_out, struct chex_error *err) {
    for (;;) {
        *came_out = ticket_wait(t, sooner(chex_clock_in_ms(CHECK_MS), deadline_ns));
        if (*came_out)
            return CHEX_OK;
        if (atomic_load(&server_gone))
            return server_lost_error(err, call);
        if (chex_clock_ns() >= deadline_ns)
            return CHEX_OK;
        pmix_status_t rc;
        if (!call_within(call_commit, NULL, sooner(chex_clock_in_ms(SERVER_MS), deadline_ns),
                         &rc) &&
            chex_clock_ns() < deadline_ns) {
            atomic_store(&server_silent, true);
            return server_lost_error(err, call);
        }
    }
}

/* A fence with collection of data. *came_out is false if the deadline passes first. */
static enum chex_status fence(uint64_t deadline_ns, bool *came_out, struct chex_error *err) {
    struct ticket *t = ticket_create();
    if (!t)
        return chex_error_memory(err, NULL);
    bool yes = true;
    PMIX_INFO_LOAD(&t->info, PMIX_COLLECT_DATA, &yes, PMIX_BOOL);
    pmix_status_t rc = PMIx_Fence_nb(NULL, 0, &t->info, 1, on_op, t);
    if (rc != PMIX_SUCCESS) { /* the callback will not be called */
        ticket_drop(t, 2);
        *came_out = rc == PMIX_OPERATION_SUCCEEDED;
        return *came_out ? CHEX_OK : pmix_error(err, CHEX_E_LOST, "PMIx_Fence_nb", rc);
    }
    bool came = false;
    const enum chex_status st = wait_for_others(t, "PMIx_Fence", deadline_ns, &came, err);
    rc = came ? t->status : PMIX_SUCCESS;
    ticket_drop(t, 1);
    if (st != CHEX_OK)
        return st;
    if (rc == PMIX_ERR_TIMEOUT)
        came = false;
    else if (rc != PMIX_SUCCESS)
        return pmix_error(err, CHEX_E_LOST, "PMIx_Fence_nb", rc);
    *came_out = came;
    return CHEX_OK;
}

/* Requests a value. NULL if memory is short or PMIx refuses. */
static struct ticket *ask(const struct pmix_self *self, int rank, const char *key) {
    struct ticket *t = ticket_create();
    if (!t)
        return NULL;
    t->proc = self->me;
    t->proc.rank = (pmix_rank_t)rank;
    snprintf(t->key, sizeof t->key, "%s", key);
    pmix_status_t rc = PMIx_Get_nb(&t->proc, t->key, NULL, 0, on_value, t);
    if (rc != PMIX_SUCCESS) {
        ticket_drop(t, 2);
        return NULL;
    }
    return t;
}

/* Pauses between two requests, each time longer. */
static void pause_longer(unsigned *us) {
    usleep(*us);
    *us = *us * 2 < POLL_LAST_US ? *us * 2 : POLL_LAST_US;
}

/* Repeats the request until the value of `rank` is here (true), the deadline passes, or the server
 * is lost (false). */
static bool get(const struct pmix_self *self, int rank, const char *key, void *out, size_t bytes,
                uint64_t deadline_ns, size_t *found_bytes_out) {
    unsigned pause_us = POLL_FIRST_US;
    for (;;) {
        struct ticket *t = ask(self, rank, key);
        struct chex_error none = {0};
        bool came = false;
        const bool alive =
            !t || wait_for_others(t, "PMIx_Get", deadline_ns, &came, &none) == CHEX_OK;
        const bool have = came && t->status == PMIX_SUCCESS && t->data;
        if (have) {
            *found_bytes_out = t->bytes;
            if (bytes && t->bytes == bytes)
                memcpy(out, t->data, bytes);
        }
        if (t)
            ticket_drop(t, 1);
        if (have)
            return true;
        if (!alive || chex_clock_ns() >= deadline_ns)
            return false;
        pause_longer(&pause_us);
    }
}

/* One round of lookup: sends a request to each rank of [from, to) that runs, has no value and no
 * pending request, and collects the answers that are here. True if no value is missing. */
static bool lookup_round(const struct chex_launch *launch, const char *key, int from, int to,
                         size_t bytes, unsigned char *all_out, bool *came, struct ticket **asked) {
    struct pmix_self *self = launch->self;
    bool whole = true;
    for (int i = 0; i < to - from; i++) {
        if (came[i] || from + i == launch->rank || atomic_load(&self->ended[from + i]))
            continue;
        if (!asked[i])
            asked[i] = ask(self, from + i, key);
        struct ticket *t = asked[i];
        if (t && ticket_wait(t, 0)) {
            came[i] = t->status == PMIX_SUCCESS && t->data && (!bytes || t->bytes == bytes);
            if (came[i] && bytes)
                memcpy(all_out + (size_t)i * bytes, t->data, bytes);
            ticket_drop(t, 1);
            asked[i] = NULL;
        }
        whole = whole && came[i];
    }
    return whole;
}

/* Requests go to all ranks at once, so that ranks without a value do not delay the others. */
static void lookup(const struct chex_launch *launch, const char *key, int from, int to,
                   size_t bytes, void *all_out, bool *came_out, uint64_t wait_ms) {
    const uint64_t deadline_ns = chex_clock_in_ms(wait_ms);
    struct ticket **asked = calloc((size_t)(to - from) + 1, sizeof *asked);
    unsigned pause_us = POLL_FIRST_US;
    memset(came_out, 0, (size_t)(to - from) * sizeof *came_out);
    while (asked && !lookup_round(launch, key, from, to, bytes, all_out, came_out, asked) &&
           chex_clock_ns() < deadline_ns && !atomic_load(&server_gone))
        pause_longer(&pause_us);
    for (int i = 0; asked && i < to - from; i++)
        if (asked[i])
            ticket_drop(asked[i], 1);
    free(asked);
}

static void host(const struct chex_launch *launch, int rank, char *buf, size_t size) {
    served_host(launch->self, rank, buf, size);
}

/* ---- nodes that have left the step ---- */

/* Slurm's name space is slurm.pmix.JOB.STEP. */
static bool slurm_step(const struct pmix_self *self, char *job, char *step) {
    return sscanf(self->me.nspace, "slurm.pmix.%15[0-9].%15[0-9]", job, step) == 2;
}

/* Marks the ranks of [from, to) whose nodes have left the step. Not under mpirun: it ends the job
 * when it loses a daemon. */
static int find_ended(const struct chex_launch *launch, int from, int to, bool *known_out) {
    struct pmix_self *self = launch->self;
    char job[16], step[16];
    return chex_slurm_step_find_ended(launch, slurm_step(self, job, step) ? job : NULL, step, from,
                                      to, self->ended, known_out);
}

static int ended(const struct chex_launch *launch, int from, int to, bool *ended_out) {
    const struct pmix_self *self = launch->self;
    bool known;
    const int found = find_ended(launch, from, to, &known);
    for (int r = from; r < to; r++)
        ended_out[r - from] = atomic_load(&self->ended[r]);
    return known || found ? found : -1;
}

/* Whether ranks of two or more other nodes did not come. */
static bool several_silent(const struct chex_launch *launch, const bool *came) {
    char first[CHEX_HOST_BYTES] = "", node[CHEX_HOST_BYTES];
    for (int r = 0; r < launch->size; r++) {
        served_host(launch->self, r, node, sizeof node);
        if (came[r] || r == launch->rank || strcmp(node, first) == 0)
            continue;
        if (first[0])
            return true;
        memcpy(first, node, sizeof first);
    }
    return false;
}

/* After the deadline: which ranks came to the exchange. NULL: unknown. The caller frees it. */
static bool *find_came(const struct chex_launch *launch, const char *key) {
    const struct pmix_self *self = launch->self;
    bool *came = calloc((size_t)launch->size, sizeof *came), known;
    if (launch->local_rank > 0 && launch->nodes > 1)
        chex_clock_sleep_ms(FIRST_MS); /* it ends the job, and a node is asked by fewer ranks */
    const int gone = find_ended(launch, 0, launch->size, &known);
    for (int r = 0; came && gone && r < launch->size; r++)
        came[r] = !atomic_load(&self->ended[r]);
    if (came && !gone)
        lookup(launch, key, 0, launch->size, 0, NULL, came, NAMING_MS);
    if (came)
        came[launch->rank] = true;
    if (came && !known && several_silent(launch, came)) {
        free(came);
        came = NULL;
    }
    return came;
}

static enum chex_status lost(struct chex_launch *launch, const char *name, const char *key,
                             uint64_t timeout_ms, struct chex_error *err) {
    if (atomic_load(&server_gone) || atomic_load(&server_silent))
        return server_lost_error(err, name);
    launch->came = find_came(launch, key);
    return chex_launch_lost(launch, name,
                            "and ranks of several nodes do not answer; if a task has ended, srun "
                            "names it",
                            timeout_ms, err);
}

static enum chex_status gather(struct chex_launch *launch, const char *name, const char *key,
                               const void *mine, size_t bytes, unsigned char *all,
                               uint64_t timeout_ms, struct chex_error *err) {
    const uint64_t deadline_ns = chex_clock_in_ms(timeout_ms);
    bool came = false;
    CHEX_TRY(put(key, mine, bytes, sooner(deadline_ns, chex_clock_in_ms(SERVER_MS)), err));
    CHEX_TRY(fence(deadline_ns, &came, err));
    if (!came)
        return lost(launch, name, key, timeout_ms, err);
    for (int r = 0; r < launch->size; r++) {
        unsigned char *to = all + (size_t)r * bytes;
        size_t found = 0;
        if (r == launch->rank) {
            if (bytes)
                memcpy(to, mine, bytes);
            continue;
        }
        if (!get(launch->self, r, key, to, bytes, deadline_ns, &found))
            return lost(launch, name, key, timeout_ms, err);
        if (found != (bytes ? bytes : 1))
            return chex_error_set(err, CHEX_E_FAIL,
                                  "exchange %s: rank %d gave %zu bytes, expected %zu", name, r,
                                  found, bytes);
    }
    return CHEX_OK;
}

enum { COLLECT_RANKS = 64 }; /* that rank 0 asks at a time */

static enum chex_status gather_at_0(struct chex_launch *launch, const char *name, const char *key,
                                    const void *mine, size_t bytes, unsigned char *all,
                                    uint64_t timeout_ms, struct chex_error *err) {
    const uint64_t deadline_ns = chex_clock_in_ms(timeout_ms);
    bool came[COLLECT_RANKS];
    if (launch->rank != 0)
        return put(key, mine, bytes, sooner(deadline_ns, chex_clock_in_ms(SERVER_MS)), err);
    memcpy(all, mine, bytes);
    for (int from = 1, to; from < launch->size; from = to) {
        const uint64_t now_ns = chex_clock_ns();
        to = from + COLLECT_RANKS < launch->size ? from + COLLECT_RANKS : launch->size;
        lookup(launch, key, from, to, bytes, all + (size_t)from * bytes, came,
               now_ns < deadline_ns ? (deadline_ns - now_ns) / 1000000u : 0);
        if (memchr(came, 0, (size_t)(to - from)))
            return lost(launch, name, key, timeout_ms, err);
    }
    return CHEX_OK;
}

static enum chex_status publish(struct chex_launch *launch, const char *key, const void *mine,
                                size_t bytes, struct chex_error *err) {
    (void)launch;
    return put(key, mine, bytes, chex_clock_in_ms(END_MS), err);
}

static int abort_status;

static pmix_status_t call_abort(void *arg) {
    (void)arg;
    return PMIx_Abort(abort_status, "chexnet ends all ranks", NULL, 0);
}

static void abort_all(struct chex_launch *launch, int status) {
    pmix_status_t rc;
    launch->broken = true;
    abort_status = status;
    chex_clock_sleep_ms(SPOKEN_MS);
    (void)call_within(call_abort, NULL, chex_clock_in_ms(END_MS), &rc);
}

static void finish(struct chex_launch *launch) {
    struct pmix_self *self = launch->self;
    struct chex_error err = {0};
    /* A last exchange: no rank ends its server while another rank still needs it. */
    unsigned char none = 0, *all = malloc((size_t)launch->size);
    char job[16], step[16];
    bool came;
    if (launch->size > 1 && all && !launch->broken) {
        if (chex_launch_exchange(launch, "finish", &none, 1, all, FINISH_MS, &err) != CHEX_OK)
            chex_warn("%s", err.text);
        /* PRRTE 3 does not answer a request for a value of a rank that has ended. */
        else if (!slurm_step(self, job, step))
            (void)fence(chex_clock_in_ms(SERVER_MS), &came, &err);
    }
    free(all);
    int kept = stdout_to_stderr();
    pmix_status_t rc;
    const bool sound = !launch->broken && !atomic_load(&server_gone);
    const bool ended =
        call_within(call_finalize, NULL, chex_clock_in_ms(sound ? SERVER_MS : END_MS), &rc);
    stdout_restore(kept);
    if (ended) {
        free(self->ended);
        free(self);
    }
    launch->self = NULL;
}

static bool gone(void) { return atomic_load(&server_gone); }

const struct chex_launch_method chex_launch_pmix = {.name = "pmix",
                                                    .rank_variable = "PMIX_RANK",
                                                    .present = present,
                                                    .init = init,
                                                    .gather = gather,
                                                    .gather_at_0 = gather_at_0,
                                                    .publish = publish,
                                                    .lookup = lookup,
                                                    .host = host,
                                                    .ended = ended,
                                                    .abort = abort_all,
                                                    .finish = finish,
                                                    .gone = gone};
