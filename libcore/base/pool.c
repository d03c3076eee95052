/* SPDX-License-Identifier: Apache-2.0
 *
 * The thread pool. Within a loop, threads take items from an atomic counter. After a loop a thread
 * spins for about 30 us, because the next loop often starts within microseconds. Then it sleeps on
 * a condition variable; one variable serves 32 threads, so a short loop does not wake all of them.
 */
#include "base/pool.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

struct worker {
    struct chex_pool *pool;
    pthread_t thread;
    int index;
};

struct chex_pool {
    int threads;
    int started; /* threads that must be joined */
    int active;  /* threads of the current loop: the first ones, including the caller */
    pthread_mutex_t lock;
    pthread_cond_t *wake; /* one per GROUP threads: a short loop leaves other groups asleep */
    pthread_cond_t done;
    atomic_ulong generation; /* grows by one a loop */
    atomic_int busy;         /* workers that have not finished the current loop */
    bool stop;
    chex_pool_fn fn;
    void *arg;
    size_t items;
    atomic_size_t next;
    struct worker workers[]; /* (threads) */
};

/* While a network runs, loops follow each other within microseconds, and their last items end at
 * about the same time. So a thread checks this many times (about 30 us) before it sleeps. */
enum { SPINS = 2000 };
enum { GROUP = 32 };

static int groups(int threads) { return (threads + GROUP - 1) / GROUP; }

/* With the lock held. Wakes the first `threads` threads, and the rest of their last group of 32. */
static void wake(struct chex_pool *p, int threads) {
    for (int g = 0; g < groups(threads); g++)
        pthread_cond_broadcast(&p->wake[g]);
}

static void pause_a_little(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#else
    __asm__ volatile("" ::: "memory");
#endif
}

static void take_items(struct chex_pool *p, int worker) {
    for (;;) {
        size_t i = atomic_fetch_add_explicit(&p->next, 1, memory_order_relaxed);
        if (i >= p->items)
            return;
        p->fn(p->arg, i, worker);
    }
}

static void *work(void *arg) {
    struct worker *w = arg;
    struct chex_pool *p = w->pool;
    unsigned long seen = 0;
    bool active = true; /* took part in the last loop; only then it spins for the next one */
    for (;;) {
        for (int i = 0; active && i < SPINS &&
                        atomic_load_explicit(&p->generation, memory_order_relaxed) == seen;
             i++)
            pause_a_little();
        pthread_mutex_lock(&p->lock);
        while (atomic_load(&p->generation) == seen && !p->stop)
            pthread_cond_wait(&p->wake[w->index / GROUP], &p->lock);
        if (p->stop) {
            pthread_mutex_unlock(&p->lock);
            return NULL;
        }
        seen = atomic_load(&p->generation);
        active = w->index < p->active;
        pthread_mutex_unlock(&p->lock);
        if (!active)
            continue;
        take_items(p, w->index);
        pthread_mutex_lock(&p->lock);
        if (atomic_fetch_sub(&p->busy, 1) == 1)
            pthread_cond_signal(&p->done);
        pthread_mutex_unlock(&p->lock);
    }
}

enum chex_status chex_pool_create(int threads, struct chex_pool **pool_out,
                                  struct chex_error *err) {
    struct chex_pool *p = calloc(1, sizeof *p + (size_t)threads * sizeof *p->workers);
    if (!p || !(p->wake = calloc((size_t)groups(threads), sizeof *p->wake))) {
        free(p);
        return chex_error_memory(err, "a pool of %d threads", threads);
    }
    p->threads = threads;
    pthread_mutex_init(&p->lock, NULL);
    for (int g = 0; g < groups(threads); g++)
        pthread_cond_init(&p->wake[g], NULL);
    pthread_cond_init(&p->done, NULL);
    for (int i = 1; i < threads; i++) {
        p->workers[i] = (struct worker){.pool = p, .index = i};
        int rc = pthread_create(&p->workers[i].thread, NULL, work, &p->workers[i]);
        if (rc) {
            chex_pool_destroy(p);
            return chex_error_errno(err, CHEX_E_RESOURCE, rc, "cannot start thread %d of %d", i,
                                    threads);
        }
        p->started = i;
    }
    *pool_out = p;
    return CHEX_OK;
}

void chex_pool_destroy(struct chex_pool *p) {
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    atomic_fetch_add(&p->generation, 1);
    wake(p, p->threads);
    pthread_mutex_unlock(&p->lock);
    for (int i = 1; i <= p->started; i++)
        pthread_join(p->workers[i].thread, NULL);
    for (int g = 0; g < groups(p->threads); g++)
        pthread_cond_destroy(&p->wake[g]);
    pthread_cond_destroy(&p->done);
    pthread_mutex_destroy(&p->lock);
    free(p->wake);
    free(p);
}

int chex_pool_threads(const struct chex_pool *p) { return p->threads; }

void chex_pool_run(struct chex_pool *p, size_t items, chex_pool_fn fn, void *arg) {
    if (p->threads == 1 || items <= 1) {
        for (size_t i = 0; i < items; i++)
            fn(arg, i, 0);
        return;
    }
    pthread_mutex_lock(&p->lock);
    p->fn = fn;
    p->arg = arg;
    p->items = items;
    p->active = items < (size_t)p->threads ? (int)items : p->threads;
    atomic_store(&p->busy, p->active - 1);
    atomic_store(&p->next, 0);
    atomic_fetch_add(&p->generation, 1);
    wake(p, p->active);
    pthread_mutex_unlock(&p->lock);
    take_items(p, 0);
    for (int i = 0; i < SPINS && atomic_load(&p->busy); i++)
        pause_a_little();
    pthread_mutex_lock(&p->lock);
    while (atomic_load(&p->busy))
        pthread_cond_wait(&p->done, &p->lock);
    pthread_mutex_unlock(&p->lock);
}

struct attempt {
    chex_pool_try_fn fn;
    void *arg;
    atomic_size_t lowest; /* number of the failed item; SIZE_MAX: none */
    pthread_mutex_t lock; /* guards `first` */
    struct chex_error first;
};

static void try_item(void *arg, size_t item, int worker) {
    struct attempt *a = arg;
    struct chex_error err = {0};
    if (item > atomic_load_explicit(&a->lowest, memory_order_relaxed))
        return;
    const enum chex_status st = a->fn(a->arg, item, worker, &err);
    if (st == CHEX_OK)
        return;
    pthread_mutex_lock(&a->lock);
    if (item < atomic_load(&a->lowest)) {
        atomic_store(&a->lowest, item);
        a->first = err;
        a->first.status = st;
    }
    pthread_mutex_unlock(&a->lock);
}

enum chex_status chex_pool_try_on(struct chex_pool *pool, size_t items, chex_pool_try_fn fn,
                                  void *arg, struct chex_error *err) {
    struct attempt a = {
        .fn = fn, .arg = arg, .lowest = SIZE_MAX, .lock = PTHREAD_MUTEX_INITIALIZER};
    if (pool)
        chex_pool_run(pool, items, try_item, &a);
    for (size_t i = 0; !pool && i < items; i++)
        try_item(&a, i, 0);
    pthread_mutex_destroy(&a.lock);
    if (a.first.status != CHEX_OK && err)
        *err = a.first;
    return a.first.status;
}

enum chex_status chex_pool_try(int threads, size_t items, chex_pool_try_fn fn, void *arg,
                               struct chex_error *err) {
    struct chex_pool *pool = NULL;
    CHEX_TRY(chex_pool_create(threads, &pool, err));
    const enum chex_status st = chex_pool_try_on(pool, items, fn, arg, err);
    chex_pool_destroy(pool);
    return st;
}

/* The kernel refuses a set that is smaller than its own, and cpu_set_t ends at 1,024 CPUs. */
int chex_cpu_count(void) {
    enum { MOST = 1 << 20 };
    int n = 0;
    for (size_t cpus = CPU_SETSIZE; n == 0 && cpus <= MOST; cpus *= 2) {
        const size_t bytes = CPU_ALLOC_SIZE(cpus);
        cpu_set_t *set = CPU_ALLOC(cpus);
        const int rc = set ? sched_getaffinity(0, bytes, set) : -1;
        const bool small = set && rc != 0 && errno == EINVAL;
        if (rc == 0)
            n = CPU_COUNT_S(bytes, set);
        CPU_FREE(set);
        if (!small)
            break;
    }
    return n > 0 ? n : 1;
}
