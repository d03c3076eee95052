/* SPDX-License-Identifier: Apache-2.0
 *
 * The ring of a trace: order, what is dropped, many threads, a reader beside them.
 */
#include "base/trace.h"

#include <pthread.h>
#include <stdatomic.h>

#include "tap.h"

static struct chex_error err;

enum { SIZE = 64, THREADS = 4, EACH = 20000 };

static struct chex_trace_event out[SIZE];

static void put(struct chex_trace *t, uint64_t i) {
    const struct chex_trace_event e = {2 * i, 2 * i + 1, i, CHEX_TRACE_BATCH, CHEX_TRACE_INPUT};
    chex_trace_add(t, &e);
}

static void test_ring(void) {
    struct chex_trace *t = NULL;
    uint64_t dropped = 9;
    MUST(chex_trace_create(SIZE, &t, &err));
    OK(chex_trace_read(t, out, &dropped) == 0 && dropped == 0, "an empty ring");
    for (uint64_t i = 0; i < SIZE; i++)
        put(t, i);
    bool right = chex_trace_read(t, out, &dropped) == SIZE && dropped == 0;
    for (uint64_t i = 0; i < SIZE; i++)
        right = right && out[i].value == i && out[i].begin_ns == 2 * i &&
                out[i].end_ns == 2 * i + 1 && out[i].kind == CHEX_TRACE_BATCH &&
                out[i].thread == CHEX_TRACE_INPUT;
    OK(right, "a full ring holds all, in order");
    for (uint64_t i = SIZE; i < SIZE + 10; i++)
        put(t, i);
    OK(chex_trace_read(t, out, &dropped) == SIZE && dropped == 10 && out[0].value == 10 &&
           out[SIZE - 1].value == SIZE + 9,
       "one that runs over keeps the last and counts the rest");
    chex_trace_count(t, CHEX_TRACE_LOSS, 0.25);
    double value;
    chex_trace_read(t, out, &dropped);
    memcpy(&value, &out[SIZE - 1].value, sizeof value);
    OK(value == 0.25 && out[SIZE - 1].kind == CHEX_TRACE_LOSS, "a count");
    const uint64_t from = chex_trace_now(t);
    chex_trace_span(t, CHEX_TRACE_MAIN, CHEX_TRACE_STEP, from, 7);
    chex_trace_read(t, out, &dropped);
    OK(from && out[SIZE - 1].begin_ns == from && out[SIZE - 1].end_ns >= from &&
           out[SIZE - 1].value == 7,
       "a span");
    chex_trace_destroy(t);
    chex_trace_span(NULL, CHEX_TRACE_MAIN, CHEX_TRACE_STEP, chex_trace_now(NULL), 0);
    chex_trace_count(NULL, CHEX_TRACE_LOSS, 1);
    chex_trace_destroy(NULL);
    OK(chex_trace_now(NULL) == 0, "without a trace nothing happens");
}

static struct chex_trace *shared;

static void *record(void *arg) {
    const uint64_t mine = *(const uint64_t *)arg;
    for (uint64_t i = 0; i < EACH; i++)
        put(shared, mine * EACH + i);
    return NULL;
}

/* Whatever is read is whole: its three numbers belong together. */
static bool whole(size_t n) {
    for (size_t i = 0; i < n; i++)
        if (out[i].begin_ns != 2 * out[i].value || out[i].end_ns != 2 * out[i].value + 1)
            return false;
    return true;
}

static void test_threads(void) {
    pthread_t id[THREADS];
    uint64_t number[THREADS], dropped;
    bool good = true;
    MUST(chex_trace_create(SIZE, &shared, &err));
    for (uint64_t i = 0; i < THREADS; i++) {
        number[i] = i;
        BAIL_UNLESS(pthread_create(&id[i], NULL, record, &number[i]) == 0, "no thread");
    }
    for (int i = 0; i < 200; i++)
        good = good && whole(chex_trace_read(shared, out, &dropped));
    OK(good, "a reader beside the writers gets whole events");
    for (int i = 0; i < THREADS; i++)
        pthread_join(id[i], NULL);
    const size_t n = chex_trace_read(shared, out, &dropped);
    OK(n == SIZE && whole(n) && dropped == (uint64_t)THREADS * EACH - SIZE,
       "%d threads: all are counted", THREADS);
    chex_trace_destroy(shared);
}

int main(void) {
    for (int k = 0; k < CHEX_TRACE_KINDS; k++)
        BAIL_UNLESS(chex_trace_texts[k].name && chex_trace_texts[k].value, "kind %d", k);
    test_ring();
    test_threads();
    return tap_done();
}
