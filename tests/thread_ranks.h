/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks that are threads: a transport for struct chex_group that exchanges in memory, and
 * allocations that fail on one of them.
 *
 * - A rank that waits longer than wait_ms for the others returns CHEX_E_LOST. So a rank that
 *   returned early fails the test and does not hang it.
 * - Ranks that meet in different exchanges get CHEX_E_FAIL.
 * - A program that includes this is linked with --wrap for the functions below (CMakeLists.txt).
 */
#ifndef CHEX_TESTS_THREAD_RANKS_H
#define CHEX_TESTS_THREAD_RANKS_H

#include <pthread.h>

#include "base/clock.h"
#include "launch/group.h"
#include "tap.h"

enum { RANKS_MAX = 8, RANKS_WAIT_MS = 20000 };

struct ranks_meeting {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int size, arrived;
    unsigned round;
    bool left, differ;
    struct {
        const char *key;
        const void *data;
        size_t bytes;
    } given[RANKS_MAX];
};

struct ranks_member {
    struct ranks_meeting *meeting;
    int rank;
};

/* True if all ranks came in time. Requires the lock. */
static bool ranks_meet(struct ranks_meeting *m, uint64_t wait_ms) {
    const unsigned round = m->round;
    const uint64_t deadline_ns = chex_clock_ns() + wait_ms * 1000000u;
    if (++m->arrived == m->size) {
        m->differ = false;
        for (int r = 1; r < m->size; r++)
            m->differ = m->differ || strcmp(m->given[r].key, m->given[0].key) != 0 ||
                        m->given[r].bytes != m->given[0].bytes;
        m->arrived = 0;
        m->round++;
        pthread_cond_broadcast(&m->changed);
    }
    while (m->round == round && !m->left && chex_clock_ns() < deadline_ns)
        (void)chex_clock_cond_wait(&m->changed, &m->lock, deadline_ns);
    m->left = m->left || m->round == round;
    return m->round != round;
}

static enum chex_status ranks_exchange(void *arg, const char *key, const void *mine, size_t bytes,
                                       void *all_out, uint64_t wait_ms, struct chex_error *err) {
    struct ranks_member *self = arg;
    struct ranks_meeting *m = self->meeting;
    enum chex_status st = CHEX_OK;
    pthread_mutex_lock(&m->lock);
    m->given[self->rank].key = key;
    m->given[self->rank].data = mine;
    m->given[self->rank].bytes = bytes;
    if (!ranks_meet(m, wait_ms))
        st = chex_error_set(err, CHEX_E_LOST, "a rank did not come to exchange %s", key);
    else if (m->differ)
        st = chex_error_set(err, CHEX_E_FAIL, "the ranks are in different exchanges, here %s", key);
    for (int r = 0; st == CHEX_OK && bytes && r < m->size; r++)
        memcpy((char *)all_out + (size_t)r * bytes, m->given[r].data, bytes);
    if (st == CHEX_OK && !ranks_meet(m, wait_ms)) /* the others have read `mine` */
        st = chex_error_set(err, CHEX_E_LOST, "a rank left exchange %s", key);
    pthread_mutex_unlock(&m->lock);
    return st;
}

static const struct chex_group_transport ranks_transport = {.exchange = ranks_exchange};

typedef void ranks_fn(struct chex_group *g, void *arg);

struct ranks_thread {
    struct ranks_member member;
    struct chex_group *group;
    ranks_fn *fn;
    void *arg;
};

static void *ranks_main(void *arg) {
    struct ranks_thread *t = arg;
    t->fn(t->group, t->arg);
    return NULL;
}

/* Runs fn on `size` ranks, rank r on host "node<r>" with args + r * arg_bytes. */
static void ranks_run(int size, ranks_fn *fn, void *args, size_t arg_bytes) {
    struct ranks_meeting meeting = {.size = size};
    struct ranks_thread threads[RANKS_MAX];
    pthread_t ids[RANKS_MAX];
    struct chex_error err;
    char host[32];
    pthread_mutex_init(&meeting.lock, NULL);
    chex_clock_cond_init(&meeting.changed);
    for (int r = 0; r < size; r++) {
        struct ranks_thread *t = &threads[r];
        *t = (struct ranks_thread){{&meeting, r}, NULL, fn, (char *)args + (size_t)r * arg_bytes};
        snprintf(host, sizeof host, "node%d", r);
        BAIL_UNLESS(chex_group_create(r, size, host, &ranks_transport, &t->member, RANKS_WAIT_MS,
                                      &t->group, &err) == CHEX_OK,
                    "%s", err.text);
    }
    for (int r = 0; r < size; r++)
        BAIL_UNLESS(pthread_create(&ids[r], NULL, ranks_main, &threads[r]) == 0, "no thread");
    for (int r = 0; r < size; r++) {
        pthread_join(ids[r], NULL);
        chex_group_destroy(threads[r].group);
    }
    pthread_cond_destroy(&meeting.changed);
    pthread_mutex_destroy(&meeting.lock);
}

/* ---- allocations that fail ---- */

/* The calling thread's allocation with this number fails, counted from 1; 0: none. Its other
 * allocations, and those of other threads, succeed. */
static _Thread_local int ranks_fail_at, ranks_allocated;

static inline void ranks_fail_allocation(int number) {
    ranks_fail_at = number;
    ranks_allocated = 0;
}

/* Whether the allocation that should fail was reached. Ends the failing. */
static inline bool ranks_allocation_failed(void) {
    const bool failed = ranks_fail_at && ranks_allocated >= ranks_fail_at;
    ranks_fail_at = 0;
    return failed;
}

static inline bool ranks_fail_now(void) {
    return ranks_fail_at && ++ranks_allocated == ranks_fail_at;
}

/* NOLINTBEGIN: the names are the linker's */
void *__real_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes) {
    return ranks_fail_now() ? NULL : __real_calloc(count, bytes);
}
void *__real_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes) { return ranks_fail_now() ? NULL : __real_malloc(bytes); }
/* NOLINTEND */

#endif
