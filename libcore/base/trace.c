/* SPDX-License-Identifier: Apache-2.0
 *
 * The ring of trace events, without locks.
 *
 * Event n is stored at place n modulo the size. `version` of a place is n + 1 when event n is
 * complete, and 0 while it is written. A reader checks `version` before and after it copies the
 * event, so it knows whether the copy is whole. Release stores and acquire loads order these
 * accesses; on x86 this costs nothing. Two threads write to one place at the same time only if they
 * are a whole ring apart.
 */
#include "base/trace.h"

#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"

const struct chex_trace_text chex_trace_texts[CHEX_TRACE_KINDS] = {
    [CHEX_TRACE_STEP] = {"step", "step", "step"},
    [CHEX_TRACE_DATA] = {"wait for data", "step", "logical_rank"},
    [CHEX_TRACE_PASS] = {"pass (host)", "step", "logical_rank"},
    [CHEX_TRACE_FORWARD] = {"forward", "step", "logical_rank"},
    [CHEX_TRACE_BACKWARD] = {"backward", "step", "logical_rank"},
    [CHEX_TRACE_REDUCE] = {"wait for gradients", "step", "step"},
    [CHEX_TRACE_UPDATE] = {"optimizer", "step", "step"},
    [CHEX_TRACE_EXCHANGE] = {"wait for ranks", "step", "step"},
    [CHEX_TRACE_VALIDATE] = {"validation", "epoch", "step"},
    [CHEX_TRACE_SAVE] = {"checkpoint", "epoch", "step"},
    [CHEX_TRACE_CLOCKS] = {"compare clocks", "epoch", "step"},
    [CHEX_TRACE_ADD] = {"add bucket", "gradients", "bucket"},
    [CHEX_TRACE_BUCKET] = {"reduce bucket", "gradients", "bucket"},
    [CHEX_TRACE_BATCH] = {"make batch", "input", "batch"},
    [CHEX_TRACE_RATE] = {"images/s", "count", "images/s"},
    [CHEX_TRACE_LOSS] = {"loss", "count", "loss"},
    [CHEX_TRACE_READY] = {"ready batches", "count", "batches"},
};

/* Atomic, because a reader may copy a place while it is written. */
typedef atomic_uint_fast64_t word;

struct place {
    word version, begin_ns, end_ns, value;
    word what; /* kind in the upper 32 bits, thread in the lower 32 */
};

struct chex_trace {
    size_t size;
    word next;
    struct place at[];
};

enum chex_status chex_trace_create(size_t events, struct chex_trace **trace_out,
                                   struct chex_error *err) {
    struct chex_trace *t = chex_alloc_zeroed(1, sizeof *t + events * sizeof *t->at);
    if (!t)
        return chex_error_memory(err, "a trace of %zu events", events);
    t->size = events;
    *trace_out = t;
    return CHEX_OK;
}

void chex_trace_destroy(struct chex_trace *t) { free(t); }

static void put(word *to, uint64_t v) { atomic_store_explicit(to, v, memory_order_release); }
static uint64_t get(const word *from) { return atomic_load_explicit(from, memory_order_acquire); }

void chex_trace_add(struct chex_trace *t, const struct chex_trace_event *e) {
    if (!t)
        return;
    const uint64_t n = atomic_fetch_add_explicit(&t->next, 1, memory_order_relaxed);
    struct place *p = &t->at[n & (t->size - 1)];
    put(&p->version, 0);
    put(&p->begin_ns, e->begin_ns);
    put(&p->end_ns, e->end_ns);
    put(&p->value, e->value);
    put(&p->what, (uint64_t)e->kind << 32 | e->thread);
    put(&p->version, n + 1);
}

void chex_trace_count(struct chex_trace *t, enum chex_trace_kind kind, double value) {
    if (!t)
        return;
    const uint64_t now_ns = chex_clock_ns();
    struct chex_trace_event e = {now_ns, now_ns, 0, kind, CHEX_TRACE_MAIN};
    memcpy(&e.value, &value, sizeof e.value);
    chex_trace_add(t, &e);
}

size_t chex_trace_read(const struct chex_trace *t, struct chex_trace_event *out,
                       uint64_t *dropped_out) {
    const uint64_t end = get(&t->next);
    const uint64_t first = end > t->size ? end - t->size : 0;
    size_t count = 0;
    for (uint64_t n = first; n < end; n++) {
        const struct place *p = &t->at[n & (t->size - 1)];
        if (get(&p->version) != n + 1)
            continue;
        const uint64_t what = get(&p->what);
        const struct chex_trace_event e = {get(&p->begin_ns), get(&p->end_ns), get(&p->value),
                                           (uint32_t)(what >> 32), (uint32_t)what};
        if (get(&p->version) == n + 1)
            out[count++] = e;
    }
    *dropped_out = end - count;
    return count;
}
