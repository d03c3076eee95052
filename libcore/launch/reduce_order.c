/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes the part of the reduction tree that one process carries out.
 *
 * A depth-first walk visits children before parents, in the order in which leaves become ready. A
 * leaf takes the free vector with the lowest number. An addition frees the right operand's vector
 * for later leaves, so a subtree of n = 2^k local leaves needs only k + 1 vectors.
 *
 * A node with all its leaves in [from, to) is a local addition. Any other node adds the value at
 * the first leaf of its right half to the value at its own first leaf. If two processes own these
 * leaves, one sends and the other receives. All processes walk the tree in the same order, so sends
 * and receives match and cannot deadlock.
 */
#include "launch/reduce_order.h"

#include <limits.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "launch/reduce.h"

void chex_reduce_run(int logical_ranks, int size, int rank, int *from_out, int *to_out) {
    *from_out = (int)((int64_t)rank * logical_ranks / size);
    *to_out = (int)(((int64_t)rank + 1) * logical_ranks / size);
}

/* The process that owns a leaf: the inverse of chex_reduce_run. */
static int owner(int logical_ranks, int size, int leaf) {
    return (int)((((int64_t)leaf + 1) * size - 1) / logical_ranks);
}

struct builder {
    struct chex_reduce_order *plan;
    int logical_ranks, size, from, to;
    int *freed_by; /* per vector: the leaf after which it is free again; -1: never used; BUSY: in
                      use */
};

enum { BUSY = INT_MAX };

static void take_vector(struct builder *b, int i) {
    struct chex_reduce_order *plan = b->plan;
    int v = 0;
    while (b->freed_by[v] == BUSY)
        v++;
    plan->leaf_vector[i] = v;
    plan->leaf_after[i] = b->freed_by[v] + 1;
    plan->local_end[i] = plan->local_count;
    b->freed_by[v] = BUSY;
    if (v + 1 > plan->vectors)
        plan->vectors = v + 1;
}

static void add_local(struct builder *b, int first, int middle, int last) {
    struct chex_reduce_order *plan = b->plan;
    int right = plan->leaf_vector[middle - b->from];
    plan->local[plan->local_count++] =
        (struct chex_reduce_op){CHEX_REDUCE_ADD, plan->leaf_vector[first - b->from], right};
    plan->local_end[last - b->from] = plan->local_count;
    b->freed_by[right] = last - b->from;
}

static void add_cross(struct builder *b, int first, int middle) {
    struct chex_reduce_order *plan = b->plan;
    const bool left_here = first >= b->from && first < b->to;
    const bool right_here = middle >= b->from && middle < b->to;
    struct chex_reduce_op op = {.action = CHEX_REDUCE_ADD};
    if (!left_here && !right_here)
        return;
    op.vector = plan->leaf_vector[(left_here ? first : middle) - b->from];
    if (left_here && right_here) {
        op.other = plan->leaf_vector[middle - b->from];
    } else {
        op.action = left_here ? CHEX_REDUCE_RECEIVE : CHEX_REDUCE_SEND;
        op.other = owner(b->logical_ranks, b->size, left_here ? middle : first);
    }
    plan->cross[plan->cross_count++] = op;
}

/* The node over [first, end), children before parents. */
static void visit(struct builder *b, int first, int end) {
    if (end <= b->from || first >= b->to)
        return;
    if (end - first == 1) {
        take_vector(b, first - b->from);
        return;
    }
    int half = 1;
    while (half < end - first - half)
        half *= 2;
    visit(b, first, first + half);
    visit(b, first + half, end);
    if (first >= b->from && end <= b->to)
        add_local(b, first, first + half, end - 1);
    else
        add_cross(b, first, first + half);
}

enum chex_status chex_reduce_order_init(struct chex_reduce_order *plan, int logical_ranks, int from,
                                        int to, int size, struct chex_error *err) {
    const int n = to - from;
    struct chex_reduce_order made = {.leaves = n};
    struct builder b = {&made, logical_ranks, size, from, to, NULL};
    /* At most 31 nodes on each side of the run are shared with other processes. */
    enum { CROSS_MAX = 64 };
    made.leaf_vector = chex_alloc_zeroed((size_t)n, sizeof *made.leaf_vector);
    made.leaf_after = chex_alloc_zeroed((size_t)n, sizeof *made.leaf_after);
    made.local_end = chex_alloc_zeroed((size_t)n, sizeof *made.local_end);
    made.local = chex_alloc_zeroed((size_t)n, sizeof *made.local);
    made.cross = chex_alloc_zeroed(CROSS_MAX, sizeof *made.cross);
    b.freed_by = chex_alloc_zeroed((size_t)n, sizeof *b.freed_by);
    if (!made.leaf_vector || !made.leaf_after || !made.local_end || !made.local || !made.cross ||
        !b.freed_by) {
        chex_reduce_order_release(&made);
        free(b.freed_by);
        return chex_error_set(err, CHEX_E_RESOURCE, "out of memory for %d logical ranks", n);
    }
    for (int i = 0; i < n; i++)
        b.freed_by[i] = -1;
    visit(&b, 0, logical_ranks);
    free(b.freed_by);
    *plan = made;
    return CHEX_OK;
}

void chex_reduce_order_release(struct chex_reduce_order *plan) {
    free(plan->leaf_vector);
    free(plan->leaf_after);
    free(plan->local_end);
    free(plan->local);
    free(plan->cross);
    *plan = (struct chex_reduce_order){0};
}
