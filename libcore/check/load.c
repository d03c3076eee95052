/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures the memory rate of all threads with the triad, in time slices.
 *
 * All threads start together, after each has touched its arrays. The arrays are larger than a
 * core's share of the last-level cache. Each thread counts its bytes per slice; the result is the
 * median over the slices.
 */
#include "check/load.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "check/outlier.h"
#include "engine/triad.h"

enum {
    ARRAYS = 3,
    MAX_BYTES = 32 << 20, /* per array: far above a core's share of the last-level cache */
    MIN_BYTES = 8 << 20,
    PIECE = 1 << 18, /* elements between two reads of the clock */
    SLICES = 10,     /* time slices, each with its own rate */
};

struct run {
    double seconds;
    size_t array_bytes;
    int threads;
    atomic_int ready; /* threads that have touched their pages */
    atomic_bool failed;
};

struct thread {
    struct run *run;
    pthread_t id;
    double bytes[SLICES], wall_s, cpu_s;
};

static double cpu_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Waits until all threads are ready or one has failed. Polling starts them within 1 ms. */
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
        now = chex_clock_s();
        const int slice = (int)((now - start) / t->run->seconds * SLICES);
        t->bytes[slice < SLICES ? slice : SLICES - 1] += (double)ARRAYS * PIECE * sizeof(float);
    }
    t->wall_s = now - start;
    t->cpu_s = cpu_s() - cpu_start;
}

static void *work(void *arg) {
    struct thread *t = arg;
    const size_t bytes = ARRAYS * t->run->array_bytes;
    float *memory = chex_alloc_map(bytes);
    if (memory)
        memset(memory, 0, bytes);
    else
        atomic_store(&t->run->failed, true);
    wait_for_all(t->run);
    if (!atomic_load(&t->run->failed))
        sweep(t, memory);
    chex_alloc_unmap(memory, bytes);
    return NULL;
}

static void sum_up(const struct thread *t, int threads, double seconds, struct chex_load *out) {
    double rates[SLICES] = {0};
    *out = (struct chex_load){.cpu_share = 1};
    for (int i = 0; i < threads; i++) {
        const double share = t[i].cpu_s / t[i].wall_s;
        for (int k = 0; k < SLICES; k++)
            rates[k] += t[i].bytes[k] / (seconds / SLICES);
        if (share < out->cpu_share)
            out->cpu_share = share;
    }
    double mean = 0;
    for (int k = 0; k < SLICES; k++)
        mean += rates[k] / SLICES;
    /* The median is 0 if no thread ran in most slices. Then the mean is the better estimate. */
    const double median = chex_median(rates, SLICES);
    out->bytes_per_s = median > 0 ? median : mean;
    out->spread = chex_spread(rates, SLICES);
}

enum chex_status chex_load_memory(int threads, double seconds, uint64_t max_bytes,
                                  struct chex_load *out, struct chex_error *err) {
    const size_t piece_bytes = PIECE * sizeof(float);
    uint64_t array = max_bytes / ARRAYS / (uint64_t)threads / piece_bytes * piece_bytes;
    if (array < MIN_BYTES)
        return chex_error_set(err, CHEX_E_RESOURCE,
                              "too little memory is free: a quarter of this rank's share is %llu "
                              "MiB, and %d threads need %d",
                              (unsigned long long)(max_bytes >> 20), threads,
                              threads * ARRAYS * (MIN_BYTES >> 20));
    struct run run = {.seconds = seconds,
                      .array_bytes = array < MAX_BYTES ? (size_t)array : MAX_BYTES,
                      .threads = threads};
    struct thread *t = chex_alloc_zeroed((size_t)threads, sizeof *t);
    int started = 0;
    if (!t)
        return chex_error_memory(err, NULL);
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
        sum_up(t, threads, seconds, out);
    free(t);
    return atomic_load(&run.failed)
               ? chex_error_set(err, CHEX_E_RESOURCE, "no memory, or no threads, for the load")
               : CHEX_OK;
}
