/* SPDX-License-Identifier: Apache-2.0 */
#include "check/load.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/triad.h"

enum {
    ARRAYS = 3,
    MOST_BYTES = 32 << 20, /* an array: no core's share of the last cache is near it */
    LEAST_BYTES = 8 << 20,
    PIECE = 1 << 18, /* elements between two looks at the clock */
};

struct run {
    double seconds;
    size_t array_bytes;
    int threads;
    atomic_int ready; /* threads whose pages are there */
    atomic_bool failed;
};

struct thread {
    struct run *run;
    pthread_t id;
    double bytes, wall_s, cpu_s;
};

static double cpu_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* No mutex: a thread that sleeps here would count as one that got no CPU. */
static void wait_for_all(struct run *r) {
    atomic_fetch_add(&r->ready, 1);
    while (atomic_load(&r->ready) < r->threads && !atomic_load(&r->failed))
        chex_clock_sleep_ms(1);
}

static void sweep(struct thread *t, float *memory) {
    const size_t n = t->run->array_bytes / sizeof(float);
    float *a = memory, *b = memory + n, *c = memory + 2 * n;
    const double start = chex_clock_s(), cpu_start = cpu_s();
    double now = start;
    for (size_t at = 0; now - start < t->run->seconds; at = at + PIECE < n ? at + PIECE : 0) {
        chex_triad(a + at, b + at, c + at, PIECE);
        t->bytes += (double)ARRAYS * PIECE * sizeof(float);
        now = chex_clock_s();
    }
    t->wall_s = now - start;
    t->cpu_s = cpu_s() - cpu_start;
}

static void *work(void *arg) {
    struct thread *t = arg;
    const size_t bytes = ARRAYS * t->run->array_bytes;
    float *memory = chex_mem_map(bytes);
    if (memory)
        memset(memory, 0, bytes);
    else
        atomic_store(&t->run->failed, true);
    wait_for_all(t->run);
    if (!atomic_load(&t->run->failed))
        sweep(t, memory);
    chex_mem_unmap(memory, bytes);
    return NULL;
}

static void sum_up(const struct thread *t, int threads, struct chex_load *out) {
    *out = (struct chex_load){.cpu_share = 1};
    for (int i = 0; i < threads; i++) {
        const double share = t[i].cpu_s / t[i].wall_s;
        out->bytes_per_s += t[i].bytes / t[i].wall_s;
        if (share < out->cpu_share)
            out->cpu_share = share;
    }
}

enum chex_status chex_load_memory(int threads, double seconds, uint64_t most_bytes,
                                  struct chex_load *out, struct chex_error *err) {
    const size_t piece_bytes = PIECE * sizeof(float);
    uint64_t array = most_bytes / ARRAYS / (uint64_t)threads / piece_bytes * piece_bytes;
    if (array < LEAST_BYTES)
        return chex_error_set(err, CHEX_E_RESOURCE,
                              "too little memory is free: a quarter of this rank's share is %llu "
                              "MiB, and %d threads need %d",
                              (unsigned long long)(most_bytes >> 20), threads,
                              threads * ARRAYS * (LEAST_BYTES >> 20));
    struct run run = {.seconds = seconds,
                      .array_bytes = array < MOST_BYTES ? (size_t)array : MOST_BYTES,
                      .threads = threads};
    struct thread *t = chex_mem_zalloc((size_t)threads, sizeof *t);
    int started = 0;
    if (!t)
        return chex_error_set(err, CHEX_E_RESOURCE, "out of memory");
    for (; started < threads; started++) {
        t[started].run = &run;
        if (pthread_create(&t[started].id, NULL, work, &t[started]) != 0) {
            atomic_store(&run.failed, true);
            break;
        }
    }
    for (int i = 0; i < started; i++)
        pthread_join(t[i].id, NULL);
    if (!atomic_load(&run.failed))
        sum_up(t, threads, out);
    free(t);
    return atomic_load(&run.failed)
               ? chex_error_set(err, CHEX_E_RESOURCE, "no memory, or no threads, for the load")
               : CHEX_OK;
}
