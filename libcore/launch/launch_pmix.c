/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank that a PMIx server started: srun --mpi=pmix, prterun, mpirun.
 *
 * What Slurm 22.05's server does shapes this file. Its fence may return at once while ranks on
 * other nodes are still late (with TreeWidth above the number of nodes), it returns success when a
 * participant dies, and after a time-out of a fence nothing works any more. So no fence is trusted:
 * an exchange is over when every rank's value is here, by our own clock. Values are put under a key
 * that was never used before, for PMIx keeps the first value that it was told.
 *
 * Requests that do not come back in time are left to themselves: the ticket they write to is freed
 * by whoever lets go of it last.
 */
#include <pmix.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "launch/methods.h"

enum {
    NAMING_MS = 1000,     /* how long to look for those who did not come */
    FINISH_MS = 600000,   /* the last exchange; another rank may still be writing its results */
    NAMED_RANKS = 8,      /* in one message */
    POLL_FIRST_US = 500,  /* between two questions for the same value: first, */
    POLL_LAST_US = 50000, /* and at last */
    KEY_BYTES = 128,
};

struct pmix_self {
    pmix_proc_t me;
    unsigned round; /* of exchanges, the same on all ranks */
    bool broken;    /* an exchange failed: no further collective call */
};

/* One request under way. */
struct ticket {
    pthread_mutex_t lock;
    pthread_cond_t came;
    int holders; /* the caller and the callback */
    bool done;
    pmix_status_t status;
    void *data;
    size_t bytes;
    pmix_info_t info;
    pmix_proc_t proc;
};

static enum chex_status pmix_error(struct chex_error *err, enum chex_status status,
                                   const char *call, pmix_status_t rc) {
    return chex_error_set(err, status, "%s: %s (PMIx status %d)", call, PMIx_Error_string(rc), rc);
}

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
    t->holders -= holders;
    bool last = t->holders == 0;
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
        if (t->data) {
            memcpy(t->data, value->data.bo.bytes, value->data.bo.size);
            t->bytes = value->data.bo.size;
        } else {
            t->status = PMIX_ERR_NOMEM;
        }
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

/* False where the deadline passes first. */
static bool ticket_wait(struct ticket *t, uint64_t deadline_ns) {
    pthread_mutex_lock(&t->lock);
    while (!t->done && chex_clock_cond_wait(&t->came, &t->lock, deadline_ns) == 0)
        ;
    bool done = t->done;
    pthread_mutex_unlock(&t->lock);
    return done;
}

/* Numbers that the server holds: of `rank`, or of the job with PMIX_RANK_WILDCARD. */
static int served_int(const struct pmix_self *self, pmix_rank_t rank, const char *key,
                      int otherwise) {
    pmix_proc_t proc = self->me;
    proc.rank = rank;
    pmix_value_t *value = NULL;
    if (PMIx_Get(&proc, key, NULL, 0, &value) != PMIX_SUCCESS || !value)
        return otherwise;
    int n = otherwise;
    if (value->type == PMIX_UINT32)
        n = (int)value->data.uint32;
    else if (value->type == PMIX_UINT16)
        n = value->data.uint16;
    else if (value->type == PMIX_INT)
        n = value->data.integer;
    else if (value->type == PMIX_PROC_RANK)
        n = (int)value->data.rank;
    PMIX_VALUE_RELEASE(value);
    return n;
}

/* The node of a rank; Slurm serves it for ranks of other nodes too. */
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

/* Slurm's name space is slurm.pmix.JOB.STEP. A step without PMIx that was started from within one
 * with PMIx inherits the outer one's variables, which lead to nowhere. */
static bool of_another_step(const char *space) {
    const char *step = getenv("SLURM_STEP_ID"), *dot = strrchr(space, '.');
    return strncmp(space, "slurm.pmix.", 11) == 0 && step && dot && strcmp(dot + 1, step) != 0;
}

static bool present(void) {
    const char *space = getenv("PMIX_NAMESPACE");
    return space && *space && getenv("PMIX_RANK") && !of_another_step(space);
}

/* Standard output belongs to results; libraries that greet there are sent to standard error. Only
 * while no other thread runs. */
static int stdout_away(void) {
    fflush(stdout);
    int kept = dup(STDOUT_FILENO);
    if (kept >= 0)
        dup2(STDERR_FILENO, STDOUT_FILENO);
    return kept;
}

static void stdout_back(int kept) {
    if (kept < 0)
        return;
    fflush(stdout);
    dup2(kept, STDOUT_FILENO);
    close(kept);
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
    chex_launch_fill_names(launch);
    if (!getenv("SLURMD_NODENAME"))
        served_host(self, launch->rank, launch->host, sizeof launch->host);
    if (launch->size < 1 || launch->rank >= launch->size || launch->local_rank < 0 ||
        launch->local_rank >= launch->local_size || launch->node < 0 ||
        launch->node >= launch->nodes)
        return chex_error_set(
            err, CHEX_E_ENV,
            "the PMIx server gives rank %d of %d, local rank %d of %d, node %d of "
            "%d, which cannot be",
            launch->rank, launch->size, launch->local_rank, launch->local_size, launch->node,
            launch->nodes);
    return CHEX_OK;
}

static enum chex_status init(struct chex_launch *launch, struct chex_error *err) {
    struct pmix_self *self = calloc(1, sizeof *self);
    if (!self)
        return chex_error_set(err, CHEX_E_RESOURCE, "out of memory");
    int kept = stdout_away();
    pmix_status_t rc = PMIx_Init(&self->me, NULL, 0);
    stdout_back(kept);
    if (rc != PMIX_SUCCESS) {
        free(self);
        return chex_error_set(
            err, CHEX_E_ENV, "PMIx_Init: %s (PMIx status %d); name space %s, client library %s",
            PMIx_Error_string(rc), rc, getenv("PMIX_NAMESPACE"), PMIx_Get_version());
    }
    enum chex_status st = fill(launch, self, err);
    if (st != CHEX_OK) {
        PMIx_Finalize(NULL, 0);
        free(self);
        return st;
    }
    launch->self = self;
    return CHEX_OK;
}

static enum chex_status put(const char *key, const void *mine, size_t bytes,
                            struct chex_error *err) {
    pmix_value_t value;
    PMIX_VALUE_CONSTRUCT(&value);
    value.type = PMIX_BYTE_OBJECT;
    char none = 0; /* an empty value is sent as one byte */
    value.data.bo.bytes = bytes ? (char *)(uintptr_t)mine : &none;
    value.data.bo.size = bytes ? bytes : 1;
    pmix_status_t rc = PMIx_Put(PMIX_GLOBAL, key, &value);
    if (rc != PMIX_SUCCESS)
        return pmix_error(err, CHEX_E_LOST, "PMIx_Put", rc);
    rc = PMIx_Commit();
    if (rc != PMIX_SUCCESS)
        return pmix_error(err, CHEX_E_LOST, "PMIx_Commit", rc);
    return CHEX_OK;
}

/* *came_out is false where the deadline passed first. */
static enum chex_status fence(uint64_t deadline_ns, bool *came_out, struct chex_error *err) {
    struct ticket *t = ticket_create();
    if (!t)
        return chex_error_set(err, CHEX_E_RESOURCE, "out of memory");
    bool yes = true;
    PMIX_INFO_LOAD(&t->info, PMIX_COLLECT_DATA, &yes, PMIX_BOOL);
    pmix_status_t rc = PMIx_Fence_nb(NULL, 0, &t->info, 1, on_op, t);
    if (rc != PMIX_SUCCESS) { /* the callback will not be called */
        ticket_drop(t, 2);
        *came_out = rc == PMIX_OPERATION_SUCCEEDED;
        return *came_out ? CHEX_OK : pmix_error(err, CHEX_E_LOST, "PMIx_Fence_nb", rc);
    }
    bool came = ticket_wait(t, deadline_ns);
    rc = came ? t->status : PMIX_SUCCESS;
    ticket_drop(t, 1);
    if (rc == PMIX_ERR_TIMEOUT)
        came = false;
    else if (rc != PMIX_SUCCESS)
        return pmix_error(err, CHEX_E_LOST, "PMIx_Fence_nb", rc);
    *came_out = came;
    return CHEX_OK;
}

/* Asks for a value. NULL where there is no memory or PMIx refuses. */
static struct ticket *ask(const struct pmix_self *self, int rank, const char *key) {
    struct ticket *t = ticket_create();
    if (!t)
        return NULL;
    t->proc = self->me;
    t->proc.rank = (pmix_rank_t)rank;
    pmix_status_t rc = PMIx_Get_nb(&t->proc, key, NULL, 0, on_value, t);
    if (rc != PMIX_SUCCESS) {
        ticket_drop(t, 2);
        return NULL;
    }
    return t;
}

/* Asks again and again until the value of `rank` is here (true) or the deadline passes. */
static bool get(const struct pmix_self *self, int rank, const char *key, void *out, size_t bytes,
                uint64_t deadline_ns, size_t *found_bytes_out) {
    unsigned pause_us = POLL_FIRST_US;
    for (;;) {
        struct ticket *t = ask(self, rank, key);
        bool have = t && ticket_wait(t, deadline_ns) && t->status == PMIX_SUCCESS && t->data;
        if (have) {
            *found_bytes_out = t->bytes;
            if (bytes && t->bytes == bytes)
                memcpy(out, t->data, bytes);
        }
        if (t)
            ticket_drop(t, 1);
        if (have)
            return true;
        if (chex_clock_ns() >= deadline_ns)
            return false;
        usleep(pause_us);
        pause_us = pause_us * 2 < POLL_LAST_US ? pause_us * 2 : POLL_LAST_US;
    }
}

/* One more question to each rank of [from, to) that has not answered and is not being asked; takes
 * what has come. True where nothing is missing. */
static bool look_once(const struct chex_launch *launch, const char *key, int from, int to,
                      size_t bytes, unsigned char *all_out, bool *came, struct ticket **asked) {
    bool whole = true;
    for (int i = 0; i < to - from; i++) {
        if (came[i] || from + i == launch->rank)
            continue;
        if (!asked[i])
            asked[i] = ask(launch->self, from + i, key);
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

/* All are asked at once, so that silent ones do not make the others late. */
static void look(const struct chex_launch *launch, const char *key, int from, int to, size_t bytes,
                 void *all_out, bool *came_out, uint64_t wait_ms) {
    const uint64_t deadline_ns = chex_clock_ns() + wait_ms * 1000000u;
    struct ticket **asked = calloc((size_t)(to - from) + 1, sizeof *asked);
    unsigned pause_us = POLL_FIRST_US;
    memset(came_out, 0, (size_t)(to - from) * sizeof *came_out);
    while (asked && !look_once(launch, key, from, to, bytes, all_out, came_out, asked) &&
           chex_clock_ns() < deadline_ns) {
        usleep(pause_us);
        pause_us = pause_us * 2 < POLL_LAST_US ? pause_us * 2 : POLL_LAST_US;
    }
    for (int i = 0; asked && i < to - from; i++)
        if (asked[i])
            ticket_drop(asked[i], 1);
    free(asked);
}

static void host(const struct chex_launch *launch, int rank, char *buf, size_t size) {
    served_host(launch->self, rank, buf, size);
}

/* After the deadline: who has not put a value? Writes "rank 3 (n1), 5 (n2) and 7 more" and returns
 * how many. */
static int name_missing(const struct chex_launch *launch, const char *key, char *buf, size_t size) {
    bool *came = calloc((size_t)launch->size, sizeof *came);
    int missing = 0;
    size_t at = 0;
    buf[0] = '\0';
    if (came)
        look(launch, key, 0, launch->size, 0, NULL, came, NAMING_MS);
    for (int r = 0; came && r < launch->size; r++) {
        if (r == launch->rank || came[r] || ++missing > NAMED_RANKS)
            continue;
        char node[CHEX_HOST_BYTES];
        host(launch, r, node, sizeof node);
        int n = snprintf(buf + at, size - at, "%s%d (%s)", missing == 1 ? "rank " : ", ", r, node);
        at = n > 0 && (size_t)n < size - at ? at + (size_t)n : size - 1;
    }
    if (missing > NAMED_RANKS)
        snprintf(buf + at, size - at, " and %d more", missing - NAMED_RANKS);
    free(came);
    return missing;
}

static enum chex_status lost(const struct chex_launch *launch, const char *name, const char *key,
                             uint64_t timeout_ms, struct chex_error *err) {
    char who[384];
    int missing = name_missing(launch, key, who, sizeof who);
    if (missing == 0)
        return chex_error_set(err, CHEX_E_LOST,
                              "exchange %s did not end within %.1f s, though every rank came to it",
                              name, (double)timeout_ms / 1e3);
    return chex_error_set(err, CHEX_E_LOST, "%s of %d did not come to exchange %s within %.1f s",
                          who, launch->size, name, (double)timeout_ms / 1e3);
}

static enum chex_status gather(const struct chex_launch *launch, const char *name, const char *key,
                               const void *mine, size_t bytes, unsigned char *all,
                               uint64_t timeout_ms, struct chex_error *err) {
    const uint64_t deadline_ns = chex_clock_ns() + timeout_ms * 1000000u;
    bool came = false;
    CHEX_TRY(put(key, mine, bytes, err));
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

static enum chex_status exchange(struct chex_launch *launch, const char *name, const void *mine,
                                 size_t bytes, void *all_out, uint64_t timeout_ms,
                                 struct chex_error *err) {
    struct pmix_self *self = launch->self;
    if (self->broken)
        return chex_error_set(err, CHEX_E_LOST, "exchange %s: an exchange before it failed", name);
    char key[KEY_BYTES];
    snprintf(key, sizeof key, "chexnet.%u.%.64s", self->round++, name);
    /* Complete here first: the caller's memory is written only on success. */
    size_t total;
    unsigned char *all = NULL;
    if (!__builtin_mul_overflow((size_t)launch->size, bytes, &total))
        all = malloc(total ? total : 1);
    enum chex_status st =
        all ? gather(launch, name, key, mine, bytes, all, timeout_ms, err)
            : chex_error_set(err, CHEX_E_RESOURCE, "exchange %s: out of memory", name);
    if (st == CHEX_OK && total)
        memcpy(all_out, all, total);
    self->broken = st != CHEX_OK;
    free(all);
    return st;
}

static enum chex_status leave(struct chex_launch *launch, const char *key, const void *mine,
                              size_t bytes, struct chex_error *err) {
    (void)launch;
    return put(key, mine, bytes, err);
}

static void abort_all(struct chex_launch *launch, int status) {
    struct pmix_self *self = launch->self;
    self->broken = true;
    PMIx_Abort(status, "chexnet ends all ranks", NULL, 0);
}

static void finish(struct chex_launch *launch) {
    struct pmix_self *self = launch->self;
    struct chex_error err = {0};
    /* Nobody takes the server away while another rank still asks it. */
    unsigned char none = 0, *all = malloc((size_t)launch->size);
    if (launch->size > 1 && all && !self->broken &&
        exchange(launch, "finish", &none, 1, all, FINISH_MS, &err) != CHEX_OK)
        chex_warn("%s", err.text);
    free(all);
    int kept = stdout_away();
    PMIx_Finalize(NULL, 0);
    stdout_back(kept);
    free(self);
    launch->self = NULL;
}

const struct chex_launch_method chex_launch_pmix = {.name = "pmix",
                                                    .rank_variable = "PMIX_RANK",
                                                    .present = present,
                                                    .init = init,
                                                    .exchange = exchange,
                                                    .leave = leave,
                                                    .look = look,
                                                    .host = host,
                                                    .abort = abort_all,
                                                    .finish = finish};
