/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks that are threads, with a collective library of a few lines. Its sends wait for the
 * receiver, so a circle of waiting ranks would hang the test.
 */
#ifndef CHEX_TESTS_THREAD_COLL_H
#define CHEX_TESTS_THREAD_COLL_H

#include <pthread.h>

#include "base/clock.h"
#include "launch/coll.h"
#include "tap.h"

enum { COLL_RANKS_MAX = 50 };

struct coll_world {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int size, arrived, round;
    const void *shared[COLL_RANKS_MAX];
    struct {
        const void *data;
        size_t bytes;
        int tag;
        bool full;                         /* the message waits to be taken */
    } box[COLL_RANKS_MAX][COLL_RANKS_MAX]; /* from, to */
    /* Set after coll_world_open; -1: none. */
    int fail_after; /* messages until every call of send and receive fails */
    int slow;       /* this rank's long messages take 20 ms */
    int faulty;     /* element 7 of this rank's sums is wrong */
};

/* The first member of the struct that a test has for each rank. */
struct coll_rank {
    struct coll_world *world;
    struct chex_coll coll;
};

/* Requires the lock. */
static void coll_meet(struct coll_world *w) {
    const int round = w->round;
    if (++w->arrived == w->size) {
        w->arrived = 0;
        w->round++;
        pthread_cond_broadcast(&w->changed);
    }
    while (w->round == round)
        pthread_cond_wait(&w->changed, &w->lock);
}

/* Shows `data` to all ranks, which read it until the next coll_meet. Takes the lock. */
static struct coll_world *coll_share(const struct coll_rank *m, const void *data) {
    pthread_mutex_lock(&m->world->lock);
    m->world->shared[m->coll.rank] = data;
    coll_meet(m->world);
    return m->world;
}

static enum chex_status coll_barrier(void *self, struct chex_error *err) {
    struct coll_world *w = coll_share(self, NULL);
    (void)err;
    pthread_mutex_unlock(&w->lock);
    return CHEX_OK;
}

static enum chex_status coll_broadcast(void *self, void *data, size_t bytes, int root,
                                       struct chex_error *err) {
    struct coll_world *w = coll_share(self, data);
    (void)err;
    if (w->shared[root] != data)
        memcpy(data, w->shared[root], bytes);
    coll_meet(w);
    pthread_mutex_unlock(&w->lock);
    return CHEX_OK;
}

static enum chex_status coll_allgather(void *self, const void *mine, size_t bytes, void *all_out,
                                       struct chex_error *err) {
    struct coll_world *w = coll_share(self, mine);
    (void)err;
    for (int r = 0; r < w->size; r++)
        memcpy((char *)all_out + (size_t)r * bytes, w->shared[r], bytes);
    coll_meet(w);
    pthread_mutex_unlock(&w->lock);
    return CHEX_OK;
}

static enum chex_status coll_sum_f32(void *self, float *data, size_t count,
                                     struct chex_error *err) {
    const struct coll_rank *m = self;
    float *sum = calloc(count, sizeof *sum);
    (void)err;
    BAIL_UNLESS(sum, "memory");
    struct coll_world *w = coll_share(m, data);
    for (int r = 0; r < w->size; r++)
        for (size_t i = 0; i < count; i++)
            sum[i] += ((const float *)w->shared[r])[i];
    if (m->coll.rank == w->faulty && count > 7)
        sum[7] += 1;
    coll_meet(w);
    memcpy(data, sum, count * sizeof *data);
    pthread_mutex_unlock(&w->lock);
    free(sum);
    return CHEX_OK;
}

static enum chex_status coll_cut(struct coll_world *w, struct chex_error *err) {
    if (w->fail_after < 0 || w->fail_after-- > 0)
        return CHEX_OK;
    w->fail_after = 0;
    pthread_cond_broadcast(&w->changed);
    return chex_error_set(err, CHEX_E_LOST, "the wire is cut");
}

static enum chex_status coll_send(void *self, const void *data, size_t bytes, int to, int tag,
                                  struct chex_error *err) {
    const struct coll_rank *m = self;
    struct coll_world *w = m->world;
    if (bytes > 1000 && w->slow >= 0 && (m->coll.rank == w->slow || to == w->slow))
        chex_clock_sleep_ms(20);
    pthread_mutex_lock(&w->lock);
    enum chex_status st = coll_cut(w, err);
    if (st == CHEX_OK) {
        w->box[m->coll.rank][to].data = data;
        w->box[m->coll.rank][to].bytes = bytes;
        w->box[m->coll.rank][to].tag = tag;
        w->box[m->coll.rank][to].full = true;
        pthread_cond_broadcast(&w->changed);
        while (w->box[m->coll.rank][to].full && w->fail_after != 0)
            pthread_cond_wait(&w->changed, &w->lock);
        st = coll_cut(w, err);
    }
    pthread_mutex_unlock(&w->lock);
    return st;
}

static enum chex_status coll_receive(void *self, void *data, size_t bytes, int from, int tag,
                                     struct chex_error *err) {
    const struct coll_rank *m = self;
    struct coll_world *w = m->world;
    const int to = m->coll.rank;
    pthread_mutex_lock(&w->lock);
    while (!w->box[from][to].full && w->fail_after != 0)
        pthread_cond_wait(&w->changed, &w->lock);
    enum chex_status st = coll_cut(w, err);
    if (st == CHEX_OK) {
        if (w->box[from][to].bytes != bytes || w->box[from][to].tag != tag)
            st = chex_error_set(err, CHEX_E_FAIL, "another message was expected");
        else
            memcpy(data, w->box[from][to].data, bytes);
        w->box[from][to].full = false;
        pthread_cond_broadcast(&w->changed);
    }
    pthread_mutex_unlock(&w->lock);
    return st;
}

static const struct chex_coll_impl coll_threads = {.name = "threads",
                                                   .barrier = coll_barrier,
                                                   .broadcast = coll_broadcast,
                                                   .allgather = coll_allgather,
                                                   .sum_f32 = coll_sum_f32,
                                                   .send = coll_send,
                                                   .receive = coll_receive};

static void coll_world_open(struct coll_world *w, int size) {
    *w = (struct coll_world){.size = size, .fail_after = -1, .slow = -1, .faulty = -1};
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
}

static void coll_world_close(struct coll_world *w) {
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
}

static void coll_join(struct coll_world *w, struct coll_rank *m, int rank) {
    m->world = w;
    m->coll = (struct chex_coll){&coll_threads, m, rank, w->size};
}

/* Runs play(rank) for each rank of the open world, in a thread of its own, and closes the world.
 * ranks: (size) structs of `bytes` bytes that begin with a struct coll_rank. */
static inline void coll_run(struct coll_world *w, void *(*play)(void *), void *ranks,
                            size_t bytes) {
    pthread_t thread[COLL_RANKS_MAX];
    struct chex_error err = {0};
    for (int r = 0; r < w->size; r++) {
        struct coll_rank *m = (void *)((char *)ranks + (size_t)r * bytes);
        coll_join(w, m, r);
        BAIL_UNLESS(chex_coll_make_group(&m->coll, "", &err) == CHEX_OK, "%s", err.text);
    }
    for (int r = 0; r < w->size; r++)
        BAIL_UNLESS(pthread_create(&thread[r], NULL, play, (char *)ranks + (size_t)r * bytes) == 0,
                    "no thread");
    for (int r = 0; r < w->size; r++) {
        pthread_join(thread[r], NULL);
        chex_group_destroy(
            ((struct coll_rank *)(void *)((char *)ranks + (size_t)r * bytes))->coll.group);
    }
    coll_world_close(w);
}

#endif
