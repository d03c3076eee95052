/* SPDX-License-Identifier: Apache-2.0
 *
 * A timeline of the threads of a process: spans and counts, in a ring of fixed size that keeps the
 * latest events. Recording takes no lock, allocates nothing and costs tens of nanoseconds
 * (tests/bench/trace.c). A NULL trace costs one comparison. Writing events to a file is done
 * elsewhere.
 *
 * A thread reads the time, works, and records the span at its end:
 *   const uint64_t from = chex_trace_now(trace);
 *   work();
 *   chex_trace_span(trace, CHEX_TRACE_MAIN, CHEX_TRACE_UPDATE, from, step);
 */
#ifndef CHEX_BASE_TRACE_H
#define CHEX_BASE_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/error.h"

enum chex_trace_kind {
    CHEX_TRACE_STEP, /* a training step; the kinds up to EXCHANGE are inside it */
    CHEX_TRACE_DATA,
    CHEX_TRACE_PASS, /* a pass of a device, as the host sees it */
    CHEX_TRACE_FORWARD,
    CHEX_TRACE_BACKWARD,
    CHEX_TRACE_REDUCE, /* wait for the sum of gradients */
    CHEX_TRACE_UPDATE,
    CHEX_TRACE_EXCHANGE,
    CHEX_TRACE_VALIDATE,
    CHEX_TRACE_SAVE,
    CHEX_TRACE_CLOCKS, /* clock comparison with rank 0 */
    CHEX_TRACE_ADD,    /* one bucket: additions within the process */
    CHEX_TRACE_BUCKET, /* one bucket: additions and messages between processes */
    CHEX_TRACE_BATCH,
    /* counts: */
    CHEX_TRACE_RATE,
    CHEX_TRACE_LOSS,
    CHEX_TRACE_READY,
    CHEX_TRACE_KINDS
};

struct chex_trace_text {
    const char *name, *category;
    const char *value; /* name of the event's value; unit of a count */
};
extern const struct chex_trace_text chex_trace_texts[CHEX_TRACE_KINDS];

static inline bool chex_trace_is_count(enum chex_trace_kind kind) {
    return kind >= CHEX_TRACE_RATE;
}

/* Rows of a process in the timeline. */
enum {
    CHEX_TRACE_MAIN,
    CHEX_TRACE_REDUCER,
    CHEX_TRACE_DEVICE,
    CHEX_TRACE_WRITER, /* of checkpoints */
    CHEX_TRACE_INPUT   /* + worker */
};

/* Plain bytes: ranks send this struct as it is. Times are chex_clock_ns of the process. */
struct chex_trace_event {
    uint64_t begin_ns, end_ns; /* equal for a count */
    uint64_t value;            /* a number; for a count, the bits of a double */
    uint32_t kind, thread;
};

struct chex_trace;

/* Creates a ring of `events` events, a power of two. */
enum chex_status chex_trace_create(size_t events, struct chex_trace **trace_out,
                                   struct chex_error *err);
void chex_trace_destroy(struct chex_trace *t); /* NULL allowed; no thread may record */

/* Records an event. Any thread; t may be NULL. Two spans of one thread are nested or disjoint. */
void chex_trace_add(struct chex_trace *t, const struct chex_trace_event *event);
void chex_trace_count(struct chex_trace *t, enum chex_trace_kind kind, double value);

static inline uint64_t chex_trace_now(const struct chex_trace *t) {
    return t ? chex_clock_ns() : 0;
}

/* Records a span from begin_ns to now. */
static inline void chex_trace_span(struct chex_trace *t, unsigned thread, enum chex_trace_kind kind,
                                   uint64_t begin_ns, uint64_t value) {
    if (!t)
        return;
    const struct chex_trace_event e = {begin_ns, chex_clock_ns(), value, kind, thread};
    chex_trace_add(t, &e);
}

/* Copies the events in the ring, in order of recording.
 * - events_out: space for the size of the ring.
 * - dropped_out: number of earlier events that are no longer in the ring.
 * - Returns the number of events. Threads may record meanwhile: events that they overwrite are left
 *   out and count as dropped. */
size_t chex_trace_read(const struct chex_trace *t, struct chex_trace_event *events_out,
                       uint64_t *dropped_out);

#endif
