/* SPDX-License-Identifier: Apache-2.0
 *
 * The vector has one block per rank. Ranks stand in a circle; "block v + i" means modulo n.
 *
 * Reduce-scatter. Rank v holds partial sums of the blocks v + i with i < s, at first s = n. In a
 * round, half = ceil(s / 2): rank v sends the blocks v + i with half <= i < s to rank v + half, for
 * which they are the blocks with i - half. It adds what rank v - half sends, and s becomes half. At
 * the end (s = 1) it holds the sum of block v. Each partial sum is in one place at any time, so
 * each addend counts once.
 *
 * All-gather is the same in reverse: rank v gets the blocks v + i with half <= i < s from rank
 * v + half.
 *
 * Order of additions. If n is a power of two, the first round pairs v with v + n / 2, the next one
 * v with v + n / 4, and so on. The circle of a sum is therefore numbered with reversed bits: the
 * first round then adds ranks 2 k and 2 k + 1, the next one pairs of these, as in the fixed tree
 * (launch/reduce.h). Left and right operand may change places, which does not change a sum. The
 * long messages of the first rounds also stay between neighbours, mostly on one node.
 */
#include "launch/circulant.h"

#include <stdint.h>
#include <string.h>

bool chex_circulant_is_tree(int size) { return (size & (size - 1)) == 0; }

int chex_circulant_place(int size, int k) {
    int m = 0;
    if (!chex_circulant_is_tree(size))
        return k;
    for (int bit = 1; bit < size; bit *= 2)
        m = 2 * m + ((k & bit) != 0);
    return m;
}

/* A circle with the data that travels in it. */
struct circle {
    const struct chex_circulant *c;
    int place; /* of this rank */
    bool mirrored;
    char *data;
    size_t count, element_bytes;
};

static int rank_at(const struct circle *o, int place) {
    const int size = o->c->size, k = (place + size) % size;
    return o->mirrored ? chex_circulant_place(size, k) : k;
}

size_t chex_circulant_block(size_t count, int size, int b) {
    return count / (size_t)size * (size_t)b + count % (size_t)size * (size_t)b / (size_t)size;
}

/* The elements of the blocks [from, to) of the circle, to - from <= size: one piece, or two where
 * the range passes the end of the vector. */
struct pieces {
    size_t from[2], count[2];
};

static struct pieces pieces_of(const struct circle *o, int from, int to) {
    const int size = o->c->size;
    const int a = (from + size) % size, b = a + to - from;
    const size_t first = chex_circulant_block(o->count, size, a);
    if (b <= size)
        return (struct pieces){{first, 0}, {chex_circulant_block(o->count, size, b) - first, 0}};
    return (struct pieces){{first, 0},
                           {o->count - first, chex_circulant_block(o->count, size, b - size)}};
}

/* Sends the pieces `out` and receives the pieces `in`: into `scratch`, one after the other, or, if
 * it is NULL, into their places. */
static enum chex_status exchange(const struct circle *o, const struct pieces *out, int to,
                                 const struct pieces *in, int from, char *scratch,
                                 struct chex_error *err) {
    const size_t bytes = o->element_bytes;
    for (int k = 0; k < 2; k++) {
        char *here =
            scratch ? scratch + (k ? in->count[0] * bytes : 0) : o->data + in->from[k] * bytes;
        if (out->count[k] || in->count[k])
            CHEX_TRY(o->c->exchange(o->c->self, o->data + out->from[k] * bytes,
                                    out->count[k] * bytes, rank_at(o, to), here,
                                    in->count[k] * bytes, rank_at(o, from), err));
    }
    return CHEX_OK;
}

/* s before round `round` of the reduce-scatter, counted from 0. */
static int width_before(int size, int round) {
    while (round-- > 0)
        size = (size + 1) / 2;
    return size;
}

static int round_count(int size) {
    int n = 0;
    for (; size > 1; size = (size + 1) / 2)
        n++;
    return n;
}

static enum chex_status reduce_scatter(const struct circle *o, float *scratch,
                                       struct chex_error *err) {
    for (int s = o->c->size, half; s > 1; s = half) {
        half = (s + 1) / 2;
        const struct pieces out = pieces_of(o, o->place + half, o->place + s);
        const struct pieces in = pieces_of(o, o->place, o->place + s - half);
        CHEX_TRY(exchange(o, &out, o->place + half, &in, o->place - half, (char *)scratch, err));
        const float *from = scratch;
        for (int k = 0; k < 2; k++) {
            float *restrict to = (float *)o->data + in.from[k];
            for (size_t i = 0; i < in.count[k]; i++)
                to[i] += from[i];
            from += in.count[k];
        }
    }
    return CHEX_OK;
}

/* Block `place` is in its place; the other blocks follow. */
static enum chex_status spread(const struct circle *o, struct chex_error *err) {
    const int size = o->c->size;
    for (int round = round_count(size) - 1; round >= 0; round--) {
        const int s = width_before(size, round), half = (s + 1) / 2;
        const struct pieces out = pieces_of(o, o->place, o->place + s - half);
        const struct pieces in = pieces_of(o, o->place + half, o->place + s);
        CHEX_TRY(exchange(o, &out, o->place - half, &in, o->place + half, NULL, err));
    }
    return CHEX_OK;
}

enum chex_status chex_circulant_allgather(const struct chex_circulant *c, const void *mine,
                                          size_t bytes, void *all_out, struct chex_error *err) {
    const struct circle o = {.c = c,
                             .place = c->rank,
                             .data = all_out,
                             .count = (size_t)c->size,
                             .element_bytes = bytes};
    if (bytes == 0)
        return CHEX_OK;
    memcpy(o.data + (size_t)c->rank * bytes, mine, bytes);
    return spread(&o, err);
}

size_t chex_circulant_scratch(int size, size_t count) {
    /* At most size / 2 blocks arrive in a round, each at most one element longer than the mean. */
    return count / 2 + (size_t)size + 1;
}

enum chex_status chex_circulant_sum(const struct chex_circulant *c, float *data, size_t count,
                                    float *scratch, struct chex_error *err) {
    const struct circle o = {.c = c,
                             .place = chex_circulant_place(c->size, c->rank),
                             .mirrored = true,
                             .data = (char *)data,
                             .count = count,
                             .element_bytes = sizeof *data};
    CHEX_TRY(reduce_scatter(&o, scratch, err));
    return spread(&o, err);
}
