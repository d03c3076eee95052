/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures the limits of this machine on all threads of the engine.
 * - Floating-point rate: the engine's own matrix product (cpu_product.c) with operands in the
 * caches of a core. Useful operations are counted: three products of split operands count as one.
 * - Memory bandwidth: copy and triad over arrays far larger than the caches. Streaming stores are
 *   used if the processor has them, so that no line is read only to be overwritten.
 * Each limit is the best of several short rounds, because a disturbance can only lower a rate.
 * The work grows with the cores, not with the threads, so that it takes a second with any number.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "engine/cpu/cpu_engine.h"
#include "engine/triad.h"

enum { ROUNDS = 8, ITEMS = 16 /* per busy core and round */ };

/* Cores that the engine's threads keep busy. */
static size_t busy_cores(const struct cpu_engine *e) {
    const int cores = chex_cpu_count();
    return (size_t)(e->config.threads < cores ? e->config.threads : cores);
}

/* Seconds of the fastest round. */
static double fastest(struct cpu_engine *e, size_t items, chex_pool_fn fn, void *arg) {
    double best = 0;
    for (int i = 0; i < ROUNDS; i++) {
        double start = chex_clock_s();
        chex_pool_run(e->pool, items, fn, arg);
        double seconds = chex_clock_s() - start;
        best = i && best < seconds ? best : seconds;
    }
    return best;
}

/* ---- operations ---- */

struct shape {
    int rows, depth, n;
};
/* Operands in the first-level cache; and in the second-level cache, as in a 1x1 convolution. */
static const struct shape shapes[] = {{48, 64, 64}, {96, 256, 128}};

struct product_run {
    const struct cpu_engine *e;
    struct shape shape;
    int repeats;
    char *memory; /* thread_bytes for each thread */
    size_t a_bytes, weight_bytes, c_bytes, off_bytes, thread_bytes;
};

static size_t lines(size_t bytes) { return (bytes + CPU_LINE - 1) / CPU_LINE * CPU_LINE; }

static void lay_out(struct product_run *r) {
    const struct cpu_engine *e = r->e;
    size_t rows = (size_t)r->shape.rows + (e->dot2 ? (size_t)e->dot2->spare_rows : 0);
    size_t depth = (size_t)r->shape.depth * chex_cpu_halves(e), n = (size_t)r->shape.n;
    r->a_bytes = lines(rows * chex_cpu_pitch(e, r->shape.depth) * e->operand_bytes);
    r->weight_bytes = lines(depth * n * e->operand_bytes);
    r->c_bytes = lines((size_t)r->shape.rows * (n + CPU_PAD) * sizeof(float));
    r->off_bytes = lines((size_t)r->shape.rows * sizeof(int32_t));
    r->thread_bytes = r->a_bytes + r->weight_bytes + r->c_bytes + r->off_bytes;
}

static void product_item(void *arg, size_t item, int worker) {
    (void)item;
    const struct product_run *r = arg;
    const struct cpu_engine *e = r->e;
    char *a = r->memory + (size_t)worker * r->thread_bytes;
    int32_t *off = (int32_t *)(void *)(a + r->a_bytes + r->weight_bytes + r->c_bytes);
    for (int i = 0; i < r->shape.rows; i++)
        off[i] = (int32_t)((size_t)i * chex_cpu_pitch(e, r->shape.depth));
    const struct cpu_tap tap = {0, 0};
    const struct cpu_product p = {.a = a,
                                  .weight = a + r->a_bytes,
                                  .off = off,
                                  .taps = &tap,
                                  .rows = r->shape.rows,
                                  .tap_count = 1,
                                  .positions = 1,
                                  .depth = r->shape.depth,
                                  .n = r->shape.n,
                                  .c = (float *)(void *)(a + r->a_bytes + r->weight_bytes),
                                  .c_pitch = (size_t)r->shape.n + CPU_PAD};
    chex_cpu_product_begin(e);
    for (int i = 0; i < r->repeats; i++)
        chex_cpu_gemm(e, &p);
    chex_cpu_product_end(e);
}

static double product_flop(struct shape s) { return 2.0 * s.rows * s.depth * s.n; }

/* The number of products for an item of about a millisecond, from the time of the first few. */
static int repeats_for(struct product_run *r) {
    enum { FIRST = 16, MAX = 1 << 20 };
    const double item_s = 1e-3;
    double seconds = 0;
    r->repeats = FIRST;
    for (int i = 0; i < 2; i++) { /* the first one warms up */
        double start = chex_clock_s();
        product_item(r, 0, 0);
        seconds = chex_clock_s() - start;
    }
    double repeats = seconds > 0 ? FIRST * item_s / seconds : MAX;
    return repeats > MAX ? MAX : repeats < 1 ? 1 : (int)repeats;
}

static enum chex_status flop_limit(struct cpu_engine *e, double *flop_per_s_out,
                                   struct chex_error *err) {
    /* Two bf16 values 1.0; as fp32 nearly 1.0. No denormals, which would be slow. */
    const uint32_t ones = 0x3f803f80;
    size_t threads = (size_t)e->config.threads, items = busy_cores(e) * ITEMS;
    double best = 0;
    for (int i = 0; i < (int)CHEX_COUNT(shapes); i++) {
        struct product_run r = {.e = e, .shape = shapes[i]};
        lay_out(&r);
        r.memory = chex_alloc_aligned(threads, r.thread_bytes);
        if (!r.memory)
            return chex_error_memory(err, "cpu engine");
        for (size_t at = 0; at < threads * r.thread_bytes; at += sizeof ones)
            memcpy(r.memory + at, &ones, sizeof ones);
        r.repeats = repeats_for(&r);
        double seconds = fastest(e, items, product_item, &r);
        double rate = product_flop(r.shape) * r.repeats * (double)items / seconds;
        best = rate > best ? rate : best;
        free(r.memory);
    }
    *flop_per_s_out = best;
    return CHEX_OK;
}

/* ---- bytes ---- */

enum { PIECE = 1 << 20, PIECE_FLOATS = PIECE / sizeof(float) }; /* bytes of an array per item */

struct stream_run {
    float *a, *b, *c;
    bool triad; /* a = b + s * c; else a = b */
};

static void stream_item(void *arg, size_t item, int worker) {
    (void)worker;
    const struct stream_run *r = arg;
    size_t at = item * PIECE_FLOATS;
    chex_triad(r->a + at, r->b + at, r->triad ? r->c + at : NULL, PIECE_FLOATS);
}

/* Writes each page before it is timed, so that page faults are not measured. */
static void fill_item(void *arg, size_t item, int worker) {
    (void)worker;
    const struct stream_run *r = arg;
    size_t at = item * PIECE_FLOATS;
    memset(r->a + at, 0, PIECE);
    memset(r->b + at, 0, PIECE);
    memset(r->c + at, 0, PIECE);
}

static enum chex_status bytes_limit(struct cpu_engine *e, uint64_t max_bytes,
                                    double *bytes_per_s_out, struct chex_error *err) {
    /* Pieces of an array: 64 MiB per core, so 192 MiB in the three arrays. A core's share of the
     * last-level cache is about 16 MiB at most. At most 6 GiB in total. */
    enum { PER_CORE = 64, MIN = 128, MAX = 2048 };
    size_t pieces = busy_cores(e) * PER_CORE;
    pieces = pieces < MIN ? MIN : pieces > MAX ? MAX : pieces;
    if (max_bytes / 3 / PIECE < pieces)
        return CHEX_OK;
    CHEX_AUTO_FREE float *memory = chex_alloc_aligned(3 * pieces, PIECE);
    if (!memory)
        return chex_error_memory(err, "cpu engine");
    struct stream_run r = {
        .a = memory, .b = memory + pieces * PIECE_FLOATS, .c = memory + 2 * pieces * PIECE_FLOATS};
    chex_pool_run(e->pool, pieces, fill_item, &r);
    double moved = (double)pieces * PIECE;
    double copy = 2 * moved / fastest(e, pieces, stream_item, &r);
    r.triad = true;
    double triad = 3 * moved / fastest(e, pieces, stream_item, &r);
    *bytes_per_s_out = copy > triad ? copy : triad;
    return CHEX_OK;
}

enum chex_status chex_cpu_limits(void *self, uint64_t max_bytes,
                                 struct chex_engine_limits *limits_out, struct chex_error *err) {
    struct cpu_engine *e = self;
    struct chex_engine_limits l = {0};
    CHEX_TRY(flop_limit(e, &l.flop_per_s, err));
    CHEX_TRY(bytes_limit(e, max_bytes, &l.bytes_per_s, err));
    *limits_out = l;
    return CHEX_OK;
}
