/* SPDX-License-Identifier: Apache-2.0
 *
 * PMIx in one process: launch/launch_pmix.c runs on ranks that are threads, so that a test plays
 * more ranks than PMIx servers on one machine can serve.
 *
 * - The functions below take the place of the library's of the same name. They do what the PMIx
 *   standard says. Like Slurm 22.05's server, a fence may return at once on one node.
 * - A thread is the rank that started it. A program that includes this is linked with
 *   --wrap=pthread_create, because the launch code makes each call on a thread of its own.
 * - Not played: the wire between servers, a server that ends or stalls, limits of the library.
 */
#ifndef CHEX_TESTS_THREAD_PMIX_H
#define CHEX_TESTS_THREAD_PMIX_H

#include <pmix.h>
#include <pthread.h>

#include "tap.h"

enum { JOB_RANKS_MAX = 1024, JOB_FENCES_MAX = 8, JOB_VALUES_MAX = 8 };

struct job_value {
    char key[128];
    char *data;
    size_t bytes;
    bool committed;
};

/* A rank that waits in a fence. */
struct job_waiter {
    struct job_waiter *next;
    pmix_op_cbfunc_t done;
    void *arg;
};

struct job_rank {
    pthread_mutex_t lock; /* of its values */
    struct job_value value[JOB_VALUES_MAX];
    int values;
    /* Calls of this rank */
    int puts, fences, gets, aborted_with;
    /* The test's key. PMIx reads the key of a request until it answers, so no request may point
     * here. */
    const char *caller_key;
    bool points_to_caller;
    bool absent; /* set by the test: never comes to a fence */
    bool ended;
};

static struct job {
    const char *space;
    int size, node_ranks;
    int first_node; /* number of the first node in PMIX_NODEID; mpirun may begin with 1 */
    int early_node; /* where fences return at once; -1: nowhere */
    struct job_rank rank[JOB_RANKS_MAX];
    pthread_mutex_t lock; /* of the fences */
    int came[JOB_FENCES_MAX];
    struct job_waiter *waiting[JOB_FENCES_MAX];
} job;

static _Thread_local int job_me = -1; /* rank of this thread */

static int job_nodes(void) { return (job.size + job.node_ranks - 1) / job.node_ranks; }

static int job_node(int rank) { return rank / job.node_ranks; }

static void job_begin(const char *space, int size, int node_ranks, int first_node) {
    job = (struct job){.space = space,
                       .size = size,
                       .node_ranks = node_ranks,
                       .first_node = first_node,
                       .early_node = -1};
    pthread_mutex_init(&job.lock, NULL);
    for (int r = 0; r < size; r++)
        pthread_mutex_init(&job.rank[r].lock, NULL);
    setenv("PMIX_NAMESPACE", space, 1);
    setenv("PMIX_RANK", "0", 1);
}

static void job_end(void) {
    pthread_mutex_destroy(&job.lock);
    for (int r = 0; r < job.size; r++) {
        for (int i = 0; i < job.rank[r].values; i++)
            free(job.rank[r].value[i].data);
        pthread_mutex_destroy(&job.rank[r].lock);
    }
    unsetenv("PMIX_NAMESPACE");
    unsetenv("PMIX_RANK");
}

/* ---- threads ---- */

struct job_thread {
    void *(*function)(void *);
    void *arg;
    int rank;
};

static void *job_thread_main(void *arg) {
    const struct job_thread t = *(struct job_thread *)arg;
    free(arg);
    job_me = t.rank;
    return t.function(t.arg);
}

/* NOLINTBEGIN: the names are the linker's */
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*function)(void *),
                          void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*function)(void *),
                          void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*function)(void *),
                          void *arg) {
    struct job_thread *t = malloc(sizeof *t);
    BAIL_UNLESS(t, "memory");
    *t = (struct job_thread){function, arg, job_me};
    const int rc = __real_pthread_create(thread, attr, job_thread_main, t);
    if (rc != 0)
        free(t);
    return rc;
}
/* NOLINTEND */

/* ---- the library ---- */

pmix_status_t PMIx_Init(pmix_proc_t *proc, pmix_info_t info[], size_t count) {
    (void)info, (void)count;
    memset(proc, 0, sizeof *proc);
    snprintf(proc->nspace, sizeof proc->nspace, "%s", job.space);
    proc->rank = (pmix_rank_t)job_me;
    return PMIX_SUCCESS;
}

pmix_status_t PMIx_Finalize(const pmix_info_t info[], size_t count) {
    (void)info, (void)count;
    job.rank[job_me].ended = true;
    return PMIX_SUCCESS;
}

pmix_status_t PMIx_Abort(int status, const char text[], pmix_proc_t procs[], size_t count) {
    (void)text, (void)procs, (void)count;
    job.rank[job_me].aborted_with = status;
    return PMIX_SUCCESS;
}

pmix_status_t PMIx_Register_event_handler(pmix_status_t codes[], size_t code_count,
                                          pmix_info_t info[], size_t count,
                                          pmix_notification_fn_t handler,
                                          pmix_hdlr_reg_cbfunc_t done, void *arg) {
    (void)codes, (void)code_count, (void)info, (void)count, (void)handler;
    done(PMIX_SUCCESS, 0, arg);
    return PMIX_SUCCESS;
}

/* What the launcher knows of the job and of its ranks. */
pmix_status_t PMIx_Get(const pmix_proc_t *proc, const char key[], const pmix_info_t info[],
                       size_t count, pmix_value_t **value_out) {
    const int of = proc->rank == PMIX_RANK_WILDCARD ? job_me : (int)proc->rank;
    const int node = job_node(of), first = node * job.node_ranks;
    const int ranks = job.size - first < job.node_ranks ? job.size - first : job.node_ranks;
    const struct {
        const char *key;
        int number;
    } facts[] = {{PMIX_JOB_SIZE, job.size},
                 {PMIX_LOCAL_RANK, of - first},
                 {PMIX_LOCAL_SIZE, ranks},
                 {PMIX_NODEID, job.first_node + node},
                 {PMIX_NUM_NODES, job_nodes()}};
    pmix_value_t *v = NULL;
    (void)info, (void)count;
    PMIX_VALUE_CREATE(v, 1);
    BAIL_UNLESS(v, "memory");
    *value_out = v;
    if (strcmp(key, PMIX_HOSTNAME) == 0) {
        char host[32];
        snprintf(host, sizeof host, "n%d", node);
        v->type = PMIX_STRING;
        v->data.string = strdup(host);
        return PMIX_SUCCESS;
    }
    for (size_t i = 0; i < sizeof facts / sizeof facts[0]; i++)
        if (strcmp(key, facts[i].key) == 0) {
            v->type = PMIX_UINT32;
            v->data.uint32 = (uint32_t)facts[i].number;
            return PMIX_SUCCESS;
        }
    PMIX_VALUE_RELEASE(v);
    *value_out = NULL;
    return PMIX_ERR_NOT_FOUND;
}

pmix_status_t PMIx_Put(pmix_scope_t scope, const char key[], pmix_value_t *value) {
    struct job_rank *r = &job.rank[job_me];
    struct job_value v = {.bytes = value->data.bo.size, .data = malloc(value->data.bo.size)};
    (void)scope;
    BAIL_UNLESS(v.data && r->values < JOB_VALUES_MAX, "memory");
    snprintf(v.key, sizeof v.key, "%s", key);
    memcpy(v.data, value->data.bo.bytes, v.bytes);
    pthread_mutex_lock(&r->lock);
    for (int i = 0; i < r->values; i++)
        BAIL_UNLESS(strcmp(r->value[i].key, key) != 0, "the key %s is used twice", key);
    r->value[r->values++] = v;
    r->puts++;
    pthread_mutex_unlock(&r->lock);
    return PMIX_SUCCESS;
}

pmix_status_t PMIx_Commit(void) {
    struct job_rank *r = &job.rank[job_me];
    pthread_mutex_lock(&r->lock);
    for (int i = 0; i < r->values; i++)
        r->value[i].committed = true;
    pthread_mutex_unlock(&r->lock);
    return PMIX_SUCCESS;
}

/* Answers at once: PMIX_ERR_NOT_FOUND if the rank has committed no such value. */
pmix_status_t PMIx_Get_nb(const pmix_proc_t *proc, const char key[], const pmix_info_t info[],
                          size_t count, pmix_value_cbfunc_t done, void *arg) {
    struct job_rank *r = &job.rank[proc->rank];
    pmix_value_t value = {.type = PMIX_BYTE_OBJECT};
    bool found = false;
    (void)info, (void)count;
    job.rank[job_me].gets++;
    job.rank[job_me].points_to_caller |= key == job.rank[job_me].caller_key;
    pthread_mutex_lock(&r->lock);
    for (int i = 0; i < r->values && !found; i++) {
        found = r->value[i].committed && strcmp(r->value[i].key, key) == 0;
        value.data.bo.bytes = r->value[i].data;
        value.data.bo.size = r->value[i].bytes;
    }
    pthread_mutex_unlock(&r->lock);
    done(found ? PMIX_SUCCESS : PMIX_ERR_NOT_FOUND, found ? &value : NULL, arg);
    return PMIX_SUCCESS;
}

/* The last rank to come answers all. If a rank is absent: that the time is over. */
pmix_status_t PMIx_Fence_nb(const pmix_proc_t procs[], size_t proc_count, const pmix_info_t info[],
                            size_t count, pmix_op_cbfunc_t done, void *arg) {
    const int k = job.rank[job_me].fences++;
    const bool early = job_node(job_me) == job.early_node;
    struct job_waiter *mine = malloc(sizeof *mine), *all = NULL;
    int expected = 0;
    (void)procs, (void)proc_count, (void)info, (void)count;
    BAIL_UNLESS(mine && k < JOB_FENCES_MAX, "memory");
    *mine = (struct job_waiter){.done = done, .arg = arg};
    for (int r = 0; r < job.size; r++)
        expected += !job.rank[r].absent;
    pthread_mutex_lock(&job.lock);
    if (!early) {
        mine->next = job.waiting[k];
        job.waiting[k] = mine;
    }
    if (++job.came[k] == expected) {
        all = job.waiting[k];
        job.waiting[k] = NULL;
    }
    pthread_mutex_unlock(&job.lock);
    if (early) {
        done(PMIX_SUCCESS, arg);
        free(mine);
    }
    for (struct job_waiter *w = all, *next; w; w = next) {
        next = w->next;
        w->done(expected == job.size ? PMIX_SUCCESS : PMIX_ERR_TIMEOUT, w->arg);
        free(w);
    }
    return PMIX_SUCCESS;
}

#endif
