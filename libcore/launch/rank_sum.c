/* SPDX-License-Identifier: Apache-2.0
 *
 * A barrier of the process's threads, and the plan of the reduction tree (launch/reduce_order.h) on
 * the vectors that the threads have brought. The result is copied to a buffer of its own, because a
 * thread may return and reuse its vector before the others have read the sum. The buffer is
 * overwritten in the next sum, which every thread must join first.
 */
#include "launch/rank_sum.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "launch/reduce.h"
#include "launch/reduce_order.h"

enum { TAG = 20000 }; /* the reduction's tags are below 16384, the group's is 32000 */

struct chex_rank_sum {
    struct chex_coll *coll;
    struct chex_reduce_order plan;
    int from;    /* first logical rank of this process */
    size_t most; /* longest vector */
    double **at; /* [plan.vectors] the vectors of the plan, in memory of the threads */
    double *received, *result; /* [most] */
    atomic_bool waits;

    pthread_mutex_t lock;
    pthread_cond_t changed; /* signalled at the end of a sum and at an error */
    double **values;        /* [plan.leaves] of the threads that have come */
    size_t count;           /* of the present sum */
    int came;
    uint64_t done; /* sums */
    struct chex_error error;
};

static void add(double *restrict to, const double *restrict from, size_t count) {
    for (size_t i = 0; i < count; i++)
        to[i] += from[i];
}

static enum chex_status exchange(struct chex_rank_sum *s, struct chex_error *err) {
    struct chex_coll *c = s->coll;
    const size_t bytes = s->count * sizeof(double);
    for (int i = 0; i < s->plan.cross_count; i++) {
        const struct chex_reduce_op *op = &s->plan.cross[i];
        double *mine = s->at[op->vector];
        switch (op->action) {
        case CHEX_REDUCE_ADD: add(mine, s->at[op->other], s->count); break;
        case CHEX_REDUCE_SEND:
            CHEX_TRY(c->impl->send(c->self, mine, bytes, op->other, TAG, err));
            break;
        case CHEX_REDUCE_RECEIVE:
            CHEX_TRY(c->impl->receive(c->self, s->received, bytes, op->other, TAG, err));
            add(mine, s->received, s->count);
            break;
        }
    }
    return c->impl->broadcast(c->self, s->at[0], bytes, 0, err);
}

/* All threads of the process have come. The sum is in at[0] and in result. */
static enum chex_status add_all(struct chex_rank_sum *s, struct chex_error *err) {
    const struct chex_reduce_order *plan = &s->plan;
    enum chex_status st = CHEX_OK;
    for (int i = 0, k = 0; i < plan->leaves; i++) {
        s->at[plan->leaf_vector[i]] = s->values[i];
        for (; k < plan->local_end[i]; k++)
            add(s->at[plan->local[k].vector], s->at[plan->local[k].other], s->count);
    }
    if (s->coll->size > 1) {
        atomic_store_explicit(&s->waits, true, memory_order_relaxed);
        st = exchange(s, err);
        atomic_store_explicit(&s->waits, false, memory_order_relaxed);
    }
    memcpy(s->result, s->at[0], s->count * sizeof *s->result);
    return st;
}

/* With the lock held. */
static void fail(struct chex_rank_sum *s, const struct chex_error *error) {
    if (s->error.status == CHEX_OK)
        s->error = *error;
    pthread_cond_broadcast(&s->changed);
}

void chex_rank_sum_fail(struct chex_rank_sum *s, const struct chex_error *error) {
    pthread_mutex_lock(&s->lock);
    fail(s, error);
    pthread_mutex_unlock(&s->lock);
}

/* With the lock held: joins the sum; the last thread completes it without the lock. */
static void join(struct chex_rank_sum *s, int leaf, double *values, size_t count) {
    const uint64_t sum = s->done;
    struct chex_error err = {0};
    if (s->came == 0)
        s->count = count;
    s->values[leaf] = values;
    if (count > s->most || count != s->count) {
        chex_error_set(&err, CHEX_E_FAIL,
                       "a sum over logical ranks of %zu and %zu elements "
                       "(expected equal numbers, at most %zu)",
                       count, s->count, s->most);
        fail(s, &err);
    } else if (++s->came < s->plan.leaves) {
        while (s->done == sum && s->error.status == CHEX_OK)
            pthread_cond_wait(&s->changed, &s->lock);
    } else {
        pthread_mutex_unlock(&s->lock);
        const enum chex_status st = add_all(s, &err);
        pthread_mutex_lock(&s->lock);
        s->came = 0;
        s->done++;
        if (st != CHEX_OK)
            fail(s, &err);
        pthread_cond_broadcast(&s->changed);
    }
}

enum chex_status chex_rank_sum_add(struct chex_rank_sum *s, int v, double *values, size_t count,
                                   struct chex_error *err) {
    enum chex_status st = CHEX_OK;
    pthread_mutex_lock(&s->lock);
    if (s->error.status == CHEX_OK)
        join(s, v - s->from, values, count);
    if (s->error.status != CHEX_OK)
        st = chex_error_set(err, s->error.status, "%s", s->error.text);
    pthread_mutex_unlock(&s->lock);
    if (st == CHEX_OK)
        memcpy(values, s->result, count * sizeof *values);
    return st;
}

bool chex_rank_sum_waits(const struct chex_rank_sum *s) {
    return atomic_load_explicit(&s->waits, memory_order_relaxed);
}

static enum chex_status set_up(struct chex_rank_sum *s, int logical_ranks, struct chex_error *err) {
    const struct chex_coll *c = s->coll;
    int to;
    chex_reduce_run(logical_ranks, c->size, c->rank, &s->from, &to);
    CHEX_TRY(chex_reduce_order_init(&s->plan, logical_ranks, s->from, to, c->size, err));
    s->at = chex_alloc_zeroed((size_t)s->plan.vectors, sizeof *s->at);
    s->values = chex_alloc_zeroed((size_t)s->plan.leaves, sizeof *s->values);
    s->received = chex_alloc_zeroed(s->most, sizeof *s->received);
    s->result = chex_alloc_zeroed(s->most, sizeof *s->result);
    return s->at && s->values && s->received && s->result
               ? CHEX_OK
               : chex_error_memory(err, "sums over logical ranks");
}

enum chex_status chex_rank_sum_create(struct chex_coll *coll, int logical_ranks, size_t count,
                                      struct chex_rank_sum **sum_out, struct chex_error *err) {
    struct chex_rank_sum *s = chex_alloc_zeroed(1, sizeof *s);
    if (!s)
        return chex_error_memory(err, NULL);
    s->coll = coll;
    s->most = count;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    const enum chex_status st = set_up(s, logical_ranks, err);
    if (st != CHEX_OK)
        chex_rank_sum_destroy(s);
    else
        *sum_out = s;
    return st;
}

void chex_rank_sum_destroy(struct chex_rank_sum *s) {
    if (!s)
        return;
    free(s->at);
    free(s->values);
    free(s->received);
    free(s->result);
    chex_reduce_order_release(&s->plan);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    free(s);
}
