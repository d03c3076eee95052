/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products of an operation's operands, whatever those are: fp32, bf16, or split into two of
 * bf16, whose three products are made as if each position of the convolution were three.
 */
#include "engine/cpu/cpu.h"

enum { PRODUCTS = 3 };
/* Which half is meant, of either factor. */
static const struct {
    bool low_a, low_b;
} halves[PRODUCTS] = {{false, false}, {false, true}, {true, false}};

void chex_cpu_product_begin(const struct cpu_engine *e) {
    if (e->pairs && e->pairs->begin)
        e->pairs->begin();
}

void chex_cpu_product_end(const struct cpu_engine *e) {
    if (e->pairs && e->pairs->end)
        e->pairs->end();
}

void chex_cpu_gemm(const struct cpu_engine *e, const struct cpu_product *p) {
    size_t half = (size_t)p->positions * (size_t)p->depth * (size_t)e->k->panel;
    size_t b_panel = chex_cpu_halves(e) * half;
    const void *b = chex_cpu_at(e, p->weight, (size_t)(p->first / e->k->panel) * b_panel);
    if (!e->pairs) {
        e->k->gemm(p->a, p->off, p->rows, p->taps, p->tap_count, p->depth, b, b_panel, p->n, p->c,
                   p->c_pitch, p->ahead);
        return;
    }
    struct cpu_tap thrice[PRODUCTS * CPU_MAX_TAPS];
    const struct cpu_tap *taps = p->taps;
    int count = p->tap_count;
    if (e->split) {
        for (int i = 0; i < PRODUCTS * count; i++)
            thrice[i] = (struct cpu_tap){
                taps[i / PRODUCTS].a + (halves[i % PRODUCTS].low_a ? p->depth : 0),
                taps[i / PRODUCTS].b + (halves[i % PRODUCTS].low_b ? (ptrdiff_t)half : 0)};
        taps = thrice;
        count *= PRODUCTS;
    }
    e->pairs->gemm(p->a, p->off, p->rows, taps, count, p->depth, b, b_panel, p->n, p->c, p->c_pitch,
                   p->ahead);
}

size_t chex_cpu_outer_group(const struct cpu_engine *e) {
    return e->pairs ? (size_t)e->pairs->group : 1;
}

size_t chex_cpu_outer_pitch(const struct cpu_engine *e, int channels) {
    return (size_t)channels * chex_cpu_halves(e) * chex_cpu_outer_group(e) +
           CPU_LINE / e->operand_bytes;
}

int chex_cpu_outer_rows(const struct cpu_engine *e) {
    enum { ROWS = 24 }; /* two register tiles of 12, or a whole number of smaller ones */
    return e->pairs ? e->pairs->outer_rows : ROWS;
}

void chex_cpu_outer(const struct cpu_engine *e, const struct cpu_outer *o) {
    size_t group = chex_cpu_outer_group(e), pitch = chex_cpu_outer_pitch(e, o->channels);
    const void *v = chex_cpu_at(e, o->v, (size_t)o->first / group * pitch + (size_t)o->row * group);
    if (!e->pairs) {
        e->k->outer(v, pitch, o->d, o->off, o->count, o->rows, o->n, o->w, (size_t)o->n, o->ahead);
        return;
    }
    for (int i = 0; i < (e->split ? PRODUCTS : 1); i++) {
        const void *half_v = chex_cpu_at(e, v, halves[i].low_a ? (size_t)o->channels * group : 0);
        const void *half_d = chex_cpu_at(e, o->d, halves[i].low_b ? (size_t)o->n : 0);
        e->pairs->outer(half_v, pitch, half_d, o->off, o->count, o->rows, o->n, o->w, (size_t)o->n,
                        o->ahead);
    }
}
