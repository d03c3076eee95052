/* SPDX-License-Identifier: Apache-2.0
 *
 * What the threads of a process did when: spans and counts, in a ring of fixed size that keeps the
 * last ones. Recording takes no lock, allocates nothing and costs tens of nanoseconds
 * (tests/bench/trace.c); a NULL trace costs a comparison. Who writes them to a file is none of this
 * file's business.
 *
 * A thread takes the time, does its work, and records the span at its end:
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
    CHEX_TRACE_STEP, /* of training; those up to EXCHANGE lie within */
    CHEX_TRACE_DATA,
    CHEX_TRACE_PASS, /* of a device, as the host sees it */
    CHEX_TRACE_FORWARD,
    CHEX_TRACE_BACKWARD,
    CHEX_TRACE_REDUCE, /* waiting for the sum */
    CHEX_TRACE_UPDATE,
    CHEX_TRACE_EXCHANGE,
    CHEX_TRACE_VALIDATE,
    CHEX_TRACE_SAVE,
    CHEX_TRACE_CLOCKS, /* comparing clocks with rank 0 */
    CHEX_TRACE_ADD,    /* a bucket of gradients: within the process, */
    CHEX_TRACE_BUCKET, /* and with the others */
    CHEX_TRACE_BATCH,
    /* counts: */
    CHEX_TRACE_RATE,
    CHEX_TRACE_LOSS,
    CHEX_TRACE_READY,
    CHEX_TRACE_KINDS
};

struct chex_trace_text {
    const char *name, *category;
    const char *value; /* what the number beside it is; of a count, its unit */
};
extern const struct chex_trace_text chex_trace_texts[CHEX_TRACE_KINDS];

static inline bool chex_trace_is_count(enum chex_trace_kind kind) {
    return kind >= CHEX_TRACE_RATE;
}

/* The rows of a process in the picture. */
enum { CHEX_TRACE_MAIN, CHEX_TRACE_REDUCER, CHEX_TRACE_DEVICE, CHEX_TRACE_INPUT /* + worker */ };

/* Plain bytes: ranks send it as it lies. Times are chex_clock_ns of the process. */
struct chex_trace_event {
    uint64_t begin_ns, end_ns; /* of a count: the same */
    uint64_t value;            /* a number; of a count, the bits of a double */
    uint32_t kind, thread;
};

struct chex_trace;

/* A ring of `events`, a power of two. */
enum chex_status chex_trace_create(size_t events, struct chex_trace **trace_out,
                                   struct chex_error *err);
void chex_trace_destroy(struct chex_trace *t); /* NULL allowed; nobody may record */

/* Any thread; t may be NULL. Spans of one thread lie within each other or apart. */
void chex_trace_add(struct chex_trace *t, const struct chex_trace_event *event);
void chex_trace_count(struct chex_trace *t, enum chex_trace_kind kind, double value);

static inline uint64_t chex_trace_now(const struct chex_trace *t) {
    return t ? chex_clock_ns() : 0;
}

/* From begin_ns to now. */
static inline void chex_trace_span(struct chex_trace *t, unsigned thread, enum chex_trace_kind kind,
                                   uint64_t begin_ns, uint64_t value) {
    if (!t)
        return;
    const struct chex_trace_event e = {begin_ns, chex_clock_ns(), value, kind, thread};
    chex_trace_add(t, &e);
}

/* What the ring holds, in order of recording: events_out has room for all of it. Returns how many;
 * dropped_out: how many came before them. Others may record meanwhile: what they overwrite is left
 * out, and counts as dropped. */
size_t chex_trace_read(const struct chex_trace *t, struct chex_trace_event *events_out,
                       uint64_t *dropped_out);

#endif
