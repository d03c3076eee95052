/* SPDX-License-Identifier: Apache-2.0 */
#include "base/pool.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

struct worker {
    struct chex_pool *pool;
    pthread_t thread;
    int index;
};

struct chex_pool {
    int threads;
    int started; /* threads that must be joined */
    struct worker *workers;
    pthread_mutex_t lock;
    pthread_cond_t wake, done;
    atomic_ulong generation; /* grows by one a loop */
    atomic_int busy;         /* workers that have not finished the current loop */
    bool stop;
    chex_pool_fn fn;
    void *arg;
    size_t items;
    atomic_size_t next;
};

/* Loops follow each other within microseconds while a network runs, and their last items end at
 * about one time, so a thread looks this often, some 30 us, before it sleeps. */
enum { SPINS = 2000 };

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
    for (;;) {
        for (int i = 0;
             i < SPINS && atomic_load_explicit(&p->generation, memory_order_relaxed) == seen; i++)
            pause_a_little();
        pthread_mutex_lock(&p->lock);
        while (atomic_load(&p->generation) == seen && !p->stop)
            pthread_cond_wait(&p->wake, &p->lock);
        if (p->stop) {
            pthread_mutex_unlock(&p->lock);
            return NULL;
        }
        seen = atomic_load(&p->generation);
        pthread_mutex_unlock(&p->lock);
        take_items(p, w->index);
        pthread_mutex_lock(&p->lock);
        if (atomic_fetch_sub(&p->busy, 1) == 1)
            pthread_cond_signal(&p->done);
        pthread_mutex_unlock(&p->lock);
    }
}

enum chex_status chex_pool_create(int threads, struct chex_pool **pool_out,
                                  struct chex_error *err) {
    struct chex_pool *p = calloc(1, sizeof *p);
    if (p)
        p->workers = calloc((size_t)threads, sizeof *p->workers);
    if (!p || !p->workers) {
        free(p);
        return chex_error_errno(err, CHEX_E_FAIL, ENOMEM, "a pool of %d threads", threads);
    }
    p->threads = threads;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    pthread_cond_init(&p->done, NULL);
    for (int i = 1; i < threads; i++) {
        p->workers[i] = (struct worker){.pool = p, .index = i};
        int rc = pthread_create(&p->workers[i].thread, NULL, work, &p->workers[i]);
        if (rc) {
            chex_pool_destroy(p);
            return chex_error_errno(err, CHEX_E_ENV, rc, "cannot start thread %d of %d", i,
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
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->lock);
    for (int i = 1; i <= p->started; i++)
        pthread_join(p->workers[i].thread, NULL);
    pthread_cond_destroy(&p->wake);
    pthread_cond_destroy(&p->done);
    pthread_mutex_destroy(&p->lock);
    free(p->workers);
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
    atomic_store(&p->busy, p->threads - 1);
    atomic_store(&p->next, 0);
    atomic_fetch_add(&p->generation, 1);
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->lock);
    take_items(p, 0);
    for (int i = 0; i < SPINS && atomic_load(&p->busy); i++)
        pause_a_little();
    pthread_mutex_lock(&p->lock);
    while (atomic_load(&p->busy))
        pthread_cond_wait(&p->done, &p->lock);
    pthread_mutex_unlock(&p->lock);
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
