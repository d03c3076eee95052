/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products for the three operand types: fp32, bf16, and fp32 split into two bf16 values. For
 * split operands each position of the convolution becomes three: high * high, high * low and
 * low * high.
 */
#include "engine/cpu/cpu_engine.h"

enum { PRODUCTS = 3 };
/* Which part of each factor a product uses. */
static const struct {
    bool low_a, low_b;
} halves[PRODUCTS] = {{false, false}, {false, true}, {true, false}};

void chex_cpu_product_begin(const struct cpu_engine *e) {
    if (e->dot2 && e->dot2->begin)
        e->dot2->begin();
}

void chex_cpu_product_end(const struct cpu_engine *e) {
    if (e->dot2 && e->dot2->end)
        e->dot2->end();
}

/* A block of a product, with the positions of all parts. */
struct block {
    const struct cpu_product *p;
    const struct cpu_tap *taps;
    int tap_count, row, rows, column, columns;
};

static void multiply(const struct cpu_engine *e, const struct block *b, float *c, size_t c_pitch) {
    const struct cpu_product *p = b->p;
    const int32_t *off = p->off + b->row;
    size_t panel = (size_t)e->k->panel, first = (size_t)(p->first + b->column) / panel;
    const int depth = chex_cpu_padded(p->depth);
    size_t b_panel = chex_cpu_halves(e) * (size_t)p->positions * (size_t)depth * panel;
    const void *weight = chex_cpu_at(e, p->weight, first * b_panel);
    if (e->dot2)
        e->dot2->gemm(p->a, off, b->rows, b->taps, b->tap_count, depth, weight, b_panel, b->columns,
                      c, c_pitch, p->prefetch);
    else
        e->k->gemm(p->a, off, b->rows, b->taps, b->tap_count, p->depth, weight, b_panel, b->columns,
                   c, c_pitch, p->prefetch);
}

/* A block of fp32 results. With the data that the epilogue reads and writes, it fills three
 * quarters of the smallest first-level cache (32 KiB). */
enum { BLOCK_ROWS = 96, BLOCK_COLUMNS = CPU_CHANNELS };

static int block_columns(const struct cpu_engine *e) {
    return e->dot2 ? e->dot2->columns : BLOCK_COLUMNS;
}

static int block_rows(const struct cpu_engine *e, const int32_t *off, int rows) {
    if (e->dot2 && e->dot2->together)
        return e->dot2->together(off, rows);
    return rows < BLOCK_ROWS ? rows : BLOCK_ROWS;
}

size_t chex_cpu_block_floats(const struct cpu_engine *e) {
    return (size_t)BLOCK_ROWS * (size_t)block_columns(e);
}

/* Columns are the outer loop, so a panel of weights stays in cache for all rows. */
static void multiply_blocks(const struct cpu_engine *e, struct block b) {
    const struct cpu_product *p = b.p;
    const int calls = p->prefetch ? p->prefetch->calls : 0, max_columns = block_columns(e);
    if (p->prefetch)
        p->prefetch->calls *=
            (p->n + max_columns - 1) / max_columns * ((p->rows + BLOCK_ROWS - 1) / BLOCK_ROWS);
    for (b.column = 0; b.column < p->n; b.column += max_columns) {
        b.columns = p->n - b.column < max_columns ? p->n - b.column : max_columns;
        const size_t pitch = (size_t)chex_cpu_padded(b.columns);
        for (b.row = 0; b.row < p->rows; b.row += b.rows) {
            b.rows = block_rows(e, p->off + b.row, p->rows - b.row);
            multiply(e, &b, p->c, pitch);
            p->epilogue(p->arg, &(struct cpu_results){b.row, b.rows, p->first + b.column, b.columns,
                                                      p->c, pitch});
        }
    }
    if (p->prefetch)
        p->prefetch->calls = calls;
}

void chex_cpu_gemm(const struct cpu_engine *e, const struct cpu_product *p) {
    const int depth = chex_cpu_padded(p->depth);
    ptrdiff_t half = (ptrdiff_t)p->positions * depth * e->k->panel;
    struct cpu_tap thrice[PRODUCTS * CPU_MAX_TAPS];
    struct block all = {p, p->taps, p->tap_count, 0, p->rows, 0, p->n};
    if (e->split) {
        all.taps = thrice;
        all.tap_count = PRODUCTS * p->tap_count;
        for (int i = 0; i < all.tap_count; i++)
            thrice[i] =
                (struct cpu_tap){p->taps[i / PRODUCTS].a + (halves[i % PRODUCTS].low_a ? depth : 0),
                                 p->taps[i / PRODUCTS].b + (halves[i % PRODUCTS].low_b ? half : 0)};
    }
    if (p->epilogue)
        multiply_blocks(e, all);
    else
        multiply(e, &all, p->c, p->c_pitch);
}

size_t chex_cpu_outer_group(const struct cpu_engine *e) {
    return e->dot2 ? (size_t)e->dot2->group : 1;
}

size_t chex_cpu_outer_pitch(const struct cpu_engine *e, int channels) {
    return (size_t)chex_cpu_padded(channels) * chex_cpu_halves(e) * chex_cpu_outer_group(e) +
           CPU_LINE / e->operand_bytes;
}

int chex_cpu_outer_rows(const struct cpu_engine *e) {
    enum { ROWS = 24 }; /* two register tiles of 12, or a whole number of smaller ones */
    return e->dot2 ? e->dot2->outer_rows : ROWS;
}

void chex_cpu_outer(const struct cpu_engine *e, const struct cpu_outer *o) {
    size_t group = chex_cpu_outer_group(e), pitch = chex_cpu_outer_pitch(e, o->channels);
    const size_t w_pitch = (size_t)chex_cpu_padded(o->n);
    const void *v = chex_cpu_at(e, o->v, (size_t)o->first / group * pitch + (size_t)o->row * group);
    if (!e->dot2) {
        e->k->outer(v, pitch, o->d, o->off, o->count, o->rows, o->n, o->w, w_pitch, o->fresh,
                    o->prefetch);
        return;
    }
    for (int i = 0; i < (e->split ? PRODUCTS : 1); i++) {
        const void *half_v = chex_cpu_at(e, v, halves[i].low_a ? (size_t)o->channels * group : 0);
        const void *half_d = chex_cpu_at(e, o->d, halves[i].low_b ? w_pitch : 0);
        e->dot2->outer(half_v, pitch, half_d, o->off, o->count, o->rows, o->n, o->w, w_pitch,
                       o->fresh && i == 0, o->prefetch);
    }
}
