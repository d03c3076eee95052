/* SPDX-License-Identifier: Apache-2.0
 *
 * Nanoseconds that a span of a trace costs whoever records it, two looks at the clock included: in
 * one thread, and in several that share the ring. Argument: how many threads at most (default 4).
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/trace.h"

enum { SPANS = 2000000, RING = 1 << 16, MAX_THREADS = 64 };

static struct chex_trace *trace; /* NULL: what remains where none is wanted */

static void *record(void *arg) {
    const unsigned thread = *(const unsigned *)arg;
    for (uint64_t i = 0; i < SPANS; i++) {
        const uint64_t from_ns = chex_trace_now(trace);
        chex_trace_span(trace, thread, CHEX_TRACE_BATCH, from_ns, i);
    }
    return NULL;
}

static void measure(const char *what, int threads) {
    pthread_t id[MAX_THREADS];
    unsigned number[MAX_THREADS];
    double best = 1e9;
    for (int turn = 0; turn < 5; turn++) {
        const double start_s = chex_clock_s();
        for (int i = 0; i < threads; i++) {
            number[i] = (unsigned)i;
            if (pthread_create(&id[i], NULL, record, &number[i]) != 0)
                exit(1);
        }
        for (int i = 0; i < threads; i++)
            pthread_join(id[i], NULL);
        const double ns = (chex_clock_s() - start_s) * 1e9 / SPANS;
        best = ns < best ? ns : best;
    }
    printf("%s, %d thread%s: %.1f ns a span\n", what, threads, threads > 1 ? "s" : "", best);
}

static void measure_clock(void) {
    uint64_t sum = 0;
    const double start_s = chex_clock_s();
    for (int i = 0; i < SPANS; i++)
        sum += chex_clock_ns();
    printf("the clock alone: %.1f ns (%llu)\n", (chex_clock_s() - start_s) * 1e9 / SPANS,
           (unsigned long long)(sum & 1));
}

int main(int argc, char **argv) {
    struct chex_error err = {0};
    const int most = argc > 1 ? atoi(argv[1]) : 4;
    if (most < 1 || most > MAX_THREADS) {
        fprintf(stderr, "usage: bench-trace [THREADS], 1 to %d\n", MAX_THREADS);
        return 2;
    }
    measure_clock();
    measure("no trace", 1);
    if (chex_trace_create(RING, &trace, &err) != CHEX_OK) {
        fprintf(stderr, "%s\n", err.text);
        return 9;
    }
    for (int threads = 1; threads <= most; threads *= 2)
        measure("a ring", threads);
    chex_trace_destroy(trace);
    return 0;
}
