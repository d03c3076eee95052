/* SPDX-License-Identifier: Apache-2.0
 *
 * Event n goes to place n modulo the size. `turn` is n + 1 once it is there whole, and 0 while it
 * is written, so a reader knows what it has read: it looks before and behind. That stores become
 * visible in their order, and loads are made in theirs, costs nothing on x86. (Two threads would
 * have to be a whole ring apart to write to one place at a time.)
 */
#include "base/trace.h"

#include <stdatomic.h>
#include <string.h>

#include "base/mem.h"

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

/* Atomic, because a reader may come while it is written. */
typedef atomic_uint_fast64_t word;

struct place {
    word turn, begin_ns, end_ns, value, what; /* what: kind above, thread below */
};

struct chex_trace {
    size_t size;
    word next;
    struct place at[];
};

enum chex_status chex_trace_create(size_t events, struct chex_trace **trace_out,
                                   struct chex_error *err) {
    struct chex_trace *t = chex_mem_zalloc(1, sizeof *t + events * sizeof *t->at);
    if (!t)
        return chex_error_set(err, CHEX_E_RESOURCE, "out of memory for a trace of %zu events",
                              events);
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
    put(&p->turn, 0);
    put(&p->begin_ns, e->begin_ns);
    put(&p->end_ns, e->end_ns);
    put(&p->value, e->value);
    put(&p->what, (uint64_t)e->kind << 32 | e->thread);
    put(&p->turn, n + 1);
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
        if (get(&p->turn) != n + 1)
            continue;
        const uint64_t what = get(&p->what);
        const struct chex_trace_event e = {get(&p->begin_ns), get(&p->end_ns), get(&p->value),
                                           (uint32_t)(what >> 32), (uint32_t)what};
        if (get(&p->turn) == n + 1)
            out[count++] = e;
    }
    *dropped_out = end - count;
    return count;
}
