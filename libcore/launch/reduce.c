/* SPDX-License-Identifier: Apache-2.0
 *
 * The reduce thread: it carries out a plan (launch/reduce_order.h) bucket by bucket.
 *
 * Buckets start at multiples of their size. They are processed from the end of the vector to its
 * start, because backward completes the gradients in this order. After the last leaf, the messages
 * of the tree follow for each bucket. The broadcast of bucket k is sent after the tree messages of
 * bucket k + 1, so that a process has something to send while the root still adds. The order is the
 * same on all processes and does not depend on timing.
 */
#include "launch/reduce.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "launch/reduce_order.h"

enum {
    BUCKET_BYTES = 4 << 20,
    LINE = CHEX_ALLOC_ALIGN / sizeof(float), /* buckets begin on cache lines */
    TAGS = 16384, /* below 32767, the least maximum that MPI guarantees */
};

struct chex_reduce {
    struct chex_reduce_config config;
    struct chex_reduce_memory memory;
    struct chex_reduce_order plan;
    int from;     /* first logical rank of this process */
    bool by_tree; /* the messages between processes are the plan's; else the library sums */
    size_t bucket, buckets;
    float **vector;
    float *received;   /* one bucket */
    atomic_int across; /* the bucket whose messages are in progress, from 1 */

    pthread_mutex_t lock;
    pthread_cond_t changed; /* signalled at any change of the fields below */
    pthread_t thread;
    bool started, stop, done; /* done: the step's sum is complete */
    size_t *low;              /* per leaf: elements from here on are final */
    int filling;              /* the leaf that the pass fills, -1 before the first */
    int added;                /* leaves that the thread has finished */
    struct chex_error error;  /* the first error; the thread stops at it */
};

/* ---- host memory; self is the struct chex_coll ---- */

static float *host_alloc(void *self, size_t count) {
    (void)self;
    return chex_alloc_aligned(count, sizeof(float));
}

static void host_free(void *self, float *vector) {
    (void)self;
    free(vector);
}

static enum chex_status host_add(void *self, float *restrict to, const float *restrict from,
                                 size_t n, struct chex_error *err) {
    (void)self, (void)err;
    for (size_t i = 0; i < n; i++)
        to[i] += from[i];
    return CHEX_OK;
}

static enum chex_status host_send(void *self, const float *data, size_t n, int to, int tag,
                                  struct chex_error *err) {
    struct chex_coll *c = self;
    return c->impl->send(c->self, data, n * sizeof *data, to, tag, err);
}

static enum chex_status host_receive(void *self, float *data, size_t n, int from, int tag,
                                     struct chex_error *err) {
    struct chex_coll *c = self;
    return c->impl->receive(c->self, data, n * sizeof *data, from, tag, err);
}

static enum chex_status host_broadcast(void *self, float *data, size_t n, int root,
                                       struct chex_error *err) {
    struct chex_coll *c = self;
    return c->impl->broadcast(c->self, data, n * sizeof *data, root, err);
}

static enum chex_status host_sum(void *self, float *data, size_t n, struct chex_error *err) {
    struct chex_coll *c = self;
    return c->impl->sum_f32(c->self, data, n, err);
}

static struct chex_reduce_memory host_memory(struct chex_coll *coll) {
    return (struct chex_reduce_memory){.name = coll->impl->name,
                                       .self = coll,
                                       .alloc = host_alloc,
                                       .free = host_free,
                                       .add = host_add,
                                       .send = host_send,
                                       .receive = host_receive,
                                       .broadcast = host_broadcast,
                                       .sum = host_sum};
}

/* ---- the plan, bucket by bucket ---- */

/* Bucket k, counted from the end of the vector. */
static size_t bucket_from(const struct chex_reduce *r, size_t k) {
    return (r->buckets - 1 - k) * r->bucket;
}

static size_t bucket_count(const struct chex_reduce *r, size_t k) {
    size_t from = bucket_from(r, k), left = r->config.count - from;
    return left < r->bucket ? left : r->bucket;
}

static enum chex_status carry_out(struct chex_reduce *r, const struct chex_reduce_op *op, size_t k,
                                  struct chex_error *err) {
    const struct chex_reduce_memory *m = &r->memory;
    const size_t n = bucket_count(r, k);
    const int tag = (int)(k % TAGS);
    float *mine = r->vector[op->vector] + bucket_from(r, k);
    switch (op->action) {
    case CHEX_REDUCE_ADD:
        return m->add(m->self, mine, r->vector[op->other] + bucket_from(r, k), n, err);
    case CHEX_REDUCE_SEND: return m->send(m->self, mine, n, op->other, tag, err);
    case CHEX_REDUCE_RECEIVE:
        CHEX_TRY(m->receive(m->self, r->received, n, op->other, tag, err));
        return m->add(m->self, mine, r->received, n, err);
    }
    return CHEX_OK;
}

/* Gives every process the sum of bucket k in its vector 0. Before: the sum is in vector 0 of
 * process 0 (by_tree), or each vector 0 holds a part. */
static enum chex_status distribute(struct chex_reduce *r, size_t k, struct chex_error *err) {
    const struct chex_reduce_memory *m = &r->memory;
    float *data = r->vector[0] + bucket_from(r, k);
    if (r->by_tree)
        return m->broadcast(m->self, data, bucket_count(r, k), 0, err);
    return m->sum(m->self, data, bucket_count(r, k), err);
}

/* Bucket k is summed over all local leaves: combines it with the other processes. */
static enum chex_status cross_processes(struct chex_reduce *r, size_t k, struct chex_error *err) {
    if (r->config.coll->size == 1)
        return CHEX_OK;
    atomic_store_explicit(&r->across, (int)k + 1, memory_order_relaxed);
    if (!r->by_tree)
        return distribute(r, k, err);
    for (int i = 0; i < r->plan.cross_count; i++)
        CHEX_TRY(carry_out(r, &r->plan.cross[i], k, err));
    if (k > 0)
        CHEX_TRY(distribute(r, k - 1, err));
    return k + 1 == r->buckets ? distribute(r, k, err) : CHEX_OK;
}

/* Waits until elements from `from` on are final. False if the object is being destroyed. */
static bool wait_final(struct chex_reduce *r, int leaf, size_t from) {
    pthread_mutex_lock(&r->lock);
    while (r->low[leaf] > from && !r->stop)
        pthread_cond_wait(&r->changed, &r->lock);
    bool go = !r->stop;
    pthread_mutex_unlock(&r->lock);
    return go;
}

static void set_error(struct chex_reduce *r, const struct chex_error *error) {
    pthread_mutex_lock(&r->lock);
    if (r->error.status == CHEX_OK)
        r->error = *error;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
}

/* Does the work that becomes possible when bucket k of a leaf is final. */
static enum chex_status add_bucket(struct chex_reduce *r, int leaf, size_t k,
                                   struct chex_error *err) {
    const struct chex_reduce_order *plan = &r->plan;
    const struct chex_reduce_memory *m = &r->memory;
    const int begin = leaf ? plan->local_end[leaf - 1] : 0, end = plan->local_end[leaf];
    const bool last = leaf + 1 == plan->leaves;
    if (m->after && (end > begin || (last && r->config.coll->size > 1)))
        CHEX_TRY(m->after(m->self, bucket_from(r, k), err));
    const uint64_t from_ns = chex_trace_now(r->config.trace);
    const bool sends = last && r->config.coll->size > 1;
    for (int i = begin; i < end; i++)
        CHEX_TRY(carry_out(r, &plan->local[i], k, err));
    const enum chex_status st = last ? cross_processes(r, k, err) : CHEX_OK;
    if (sends || end > begin)
        chex_trace_span(r->config.trace, CHEX_TRACE_REDUCER,
                        sends ? CHEX_TRACE_BUCKET : CHEX_TRACE_ADD, from_ns, k + 1);
    return st;
}

/* Processes all buckets of one leaf. False ends the thread. */
static bool add_leaf(struct chex_reduce *r, int leaf) {
    const struct chex_reduce_order *plan = &r->plan;
    struct chex_error err = {0};
    for (size_t k = 0; k < r->buckets; k++) {
        if (!wait_final(r, leaf, bucket_from(r, k)))
            return false;
        if (add_bucket(r, leaf, k, &err) != CHEX_OK) {
            set_error(r, &err);
            return false;
        }
    }
    pthread_mutex_lock(&r->lock);
    r->added = leaf + 1;
    r->done = leaf + 1 == plan->leaves;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
    return true;
}

static void *run(void *arg) {
    struct chex_reduce *r = arg;
    for (;;) {
        for (int leaf = 0; leaf < r->plan.leaves; leaf++)
            if (!add_leaf(r, leaf))
                return NULL;
        pthread_mutex_lock(&r->lock);
        while (r->done && !r->stop)
            pthread_cond_wait(&r->changed, &r->lock);
        pthread_mutex_unlock(&r->lock);
    }
}

/* Resets the state. Called before the first pass of a step. */
static void reset(struct chex_reduce *r) {
    for (int i = 0; i < r->plan.leaves; i++)
        r->low[i] = r->config.count;
    r->filling = -1;
    r->added = 0;
    r->done = false;
    atomic_store_explicit(&r->across, 0, memory_order_relaxed);
}

static enum chex_status allocate(struct chex_reduce *r, struct chex_error *err) {
    const struct chex_reduce_order *plan = &r->plan;
    const struct chex_reduce_memory *m = &r->memory;
    bool whole = true;
    r->vector = chex_alloc_zeroed((size_t)plan->vectors, sizeof *r->vector);
    r->low = chex_alloc_zeroed((size_t)plan->leaves, sizeof *r->low);
    r->received = m->alloc(m->self, r->bucket);
    whole = r->vector && r->low && r->received;
    for (int i = 0; whole && i < plan->vectors; i++) {
        r->vector[i] = m->alloc(m->self, r->config.count);
        whole = r->vector[i] != NULL;
    }
    if (!whole)
        return chex_error_set(err, CHEX_E_RESOURCE,
                              "out of memory for %d gradient vectors of %zu elements",
                              plan->vectors, r->config.count);
    return CHEX_OK;
}

/* Whether the library's sum over the processes gives the same bits as the tree: it adds along the
 * tree, and each process owns a whole subtree of the same depth. */
static bool library_adds_alike(const struct chex_reduce_config *c) {
    const struct chex_coll *coll = c->coll;
    const bool whole_subtrees = (c->logical_ranks & (c->logical_ranks - 1)) == 0;
    return !c->memory && whole_subtrees && coll->impl->sums_by_tree &&
           coll->impl->sums_by_tree(coll->size);
}

static enum chex_status set_up(struct chex_reduce *r, struct chex_error *err) {
    const struct chex_reduce_config *config = &r->config;
    const int V = config->logical_ranks, size = config->coll->size;
    int to;
    size_t bytes = config->bucket_bytes ? config->bucket_bytes : BUCKET_BYTES;
    r->bucket = (bytes / sizeof(float) + LINE - 1) / LINE * LINE;
    if (r->bucket == 0)
        r->bucket = LINE;
    if (r->bucket > config->count)
        r->bucket = config->count;
    r->buckets = (config->count + r->bucket - 1) / r->bucket;
    chex_reduce_run(V, size, config->coll->rank, &r->from, &to);
    r->by_tree = config->deterministic && !library_adds_alike(config);
    if (r->by_tree)
        CHEX_TRY(chex_reduce_order_init(&r->plan, V, r->from, to, size, err));
    else
        CHEX_TRY(chex_reduce_order_init(&r->plan, to - r->from, 0, to - r->from, 1, err));
    CHEX_TRY(allocate(r, err));
    reset(r);
    if (pthread_create(&r->thread, NULL, run, r) != 0)
        return chex_error_set(err, CHEX_E_RESOURCE, "cannot start the reduce thread");
    r->started = true;
    return CHEX_OK;
}

enum chex_status chex_reduce_create(const struct chex_reduce_config *config,
                                    struct chex_reduce **reduce_out, struct chex_error *err) {
    if (config->logical_ranks < config->coll->size)
        return chex_error_set(err, CHEX_E_USAGE,
                              "--logical-ranks %d: too few for %d ranks, expected at least as many",
                              config->logical_ranks, config->coll->size);
    if (config->count == 0)
        return chex_error_set(err, CHEX_E_FAIL, "reduction: no elements (expected at least 1)");
    struct chex_reduce *r = chex_alloc_zeroed(1, sizeof *r);
    if (!r)
        return chex_error_memory(err, NULL);
    r->config = *config;
    r->memory = config->memory ? *config->memory : host_memory(config->coll);
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->changed, NULL);
    enum chex_status st = set_up(r, err);
    if (st != CHEX_OK)
        chex_reduce_destroy(r);
    else
        *reduce_out = r;
    return st;
}

void chex_reduce_destroy(struct chex_reduce *r) {
    if (!r)
        return;
    if (r->started) {
        pthread_mutex_lock(&r->lock);
        r->stop = true;
        pthread_cond_broadcast(&r->changed);
        pthread_mutex_unlock(&r->lock);
        pthread_join(r->thread, NULL);
    }
    (void)chex_reduce_settle(r, NULL);
    for (int i = 0; r->vector && i < r->plan.vectors; i++)
        r->memory.free(r->memory.self, r->vector[i]);
    free(r->vector);
    free(r->low);
    r->memory.free(r->memory.self, r->received);
    chex_reduce_order_release(&r->plan);
    pthread_cond_destroy(&r->changed);
    pthread_mutex_destroy(&r->lock);
    free(r);
}

/* With the lock held. A pass that has ended must have reported all elements; otherwise the wait
 * would never end. */
static void check_reported(struct chex_reduce *r, int leaf) {
    if (leaf >= 0 && r->low[leaf] != 0 && r->error.status == CHEX_OK)
        chex_error_set(&r->error, CHEX_E_FAIL,
                       "logical rank %d: gradient elements [0, %zu) were not reported",
                       r->from + leaf, r->low[leaf]);
}

float *chex_reduce_leaf(struct chex_reduce *r, int v) {
    const int leaf = v - r->from;
    struct chex_error err = {0};
    pthread_mutex_lock(&r->lock);
    assert(leaf == r->filling + 1 && leaf < r->plan.leaves);
    check_reported(r, leaf - 1);
    r->filling = leaf;
    while (r->added < r->plan.leaf_after[leaf] && r->error.status == CHEX_OK)
        pthread_cond_wait(&r->changed, &r->lock);
    pthread_mutex_unlock(&r->lock);
    if (r->memory.leaf && r->memory.leaf(r->memory.self, &err) != CHEX_OK)
        set_error(r, &err); /* finish returns it */
    return r->vector[r->plan.leaf_vector[leaf]];
}

void chex_reduce_ready(void *reduce, size_t from, size_t to) {
    struct chex_reduce *r = reduce;
    struct chex_error err = {0};
    pthread_mutex_lock(&r->lock);
    size_t *low = &r->low[r->filling];
    const size_t had = *low;
    const bool next = to == had && from <= to;
    if (next) {
        *low = from;
        /* The thread has work only if a bucket became complete. */
        if (from == 0 || (from - 1) / r->bucket != (had - 1) / r->bucket)
            pthread_cond_broadcast(&r->changed);
    }
    pthread_mutex_unlock(&r->lock);
    if (!next) {
        chex_error_set(&err, CHEX_E_FAIL,
                       "gradient elements [%zu, %zu): reported out of order (expected [.., %zu))",
                       from, to, had);
        set_error(r, &err);
    }
}

/* Waits until the thread has finished the step. */
static enum chex_status wait_done(struct chex_reduce *r, struct chex_error *err) {
    enum chex_status st = CHEX_OK;
    pthread_mutex_lock(&r->lock);
    assert(r->filling + 1 == r->plan.leaves);
    check_reported(r, r->filling);
    while (!r->done && r->error.status == CHEX_OK)
        pthread_cond_wait(&r->changed, &r->lock);
    if (r->error.status != CHEX_OK)
        st = chex_error_set(err, r->error.status, "%s", r->error.text);
    pthread_mutex_unlock(&r->lock);
    return st;
}

enum chex_status chex_reduce_finish(struct chex_reduce *r, const float **sum_out,
                                    double *exposed_s_out, struct chex_error *err) {
    const double start_s = chex_clock_s();
    double device_s = 0;
    CHEX_TRY(wait_done(r, err));
    const double exposed_s = chex_clock_s() - start_s;
    if (r->memory.finish)
        CHEX_TRY(r->memory.finish(r->memory.self, &device_s, err));
    pthread_mutex_lock(&r->lock);
    reset(r);
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
    *sum_out = r->vector[0];
    *exposed_s_out = exposed_s + device_s;
    return CHEX_OK;
}

void chex_reduce_at(const struct chex_reduce *r, int *bucket_out, int *buckets_out) {
    *bucket_out = r->config.memory ? 0 : atomic_load_explicit(&r->across, memory_order_relaxed);
    *buckets_out = (int)r->buckets;
}

void chex_reduce_facts(const struct chex_reduce *r, struct chex_reduce_facts *out) {
    const uint64_t bytes = r->config.count * sizeof(float), bucket = r->bucket * sizeof(float);
    const bool together = r->config.coll->size > 1, by_tree = r->by_tree;
    *out = (struct chex_reduce_facts){
        .carrier = together ? r->memory.name : "",
        .buckets = (int)r->buckets,
        .bucket_bytes = bucket,
        .memory_bytes = (uint64_t)r->plan.vectors * bytes + bucket,
        .summed_bytes = together && !by_tree ? bytes : 0,
        .broadcast_bytes = together && by_tree ? bytes : 0,
    };
    for (int i = 0; together && by_tree && i < r->plan.cross_count; i++)
        *(r->plan.cross[i].action == CHEX_REDUCE_SEND ? &out->sent_bytes : &out->received_bytes) +=
            bytes;
}

enum chex_status chex_reduce_settle(struct chex_reduce *r, struct chex_error *err) {
    return r->memory.settle ? r->memory.settle(r->memory.self, err) : CHEX_OK;
}
