/* SPDX-License-Identifier: Apache-2.0
 *
 * Lifetimes of feature maps and gradients, and their placement in one arena.
 *
 * Placement is first fit by decreasing size: the largest buffer first, each at the lowest offset
 * that no buffer with an overlapping lifetime occupies. Finding the smallest arena is NP-hard
 * (dynamic storage allocation), so this is a heuristic.
 */
#include "engine/lifetimes.h"

#include <stdlib.h>

#include "base/alloc.h"

void chex_lives_of_buffers(const struct chex_net *net, struct chex_life *lives) {
    for (int b = 0; b < net->buffer_count; b++) {
        lives[b].from = net->buffers[b].from_op;
        lives[b].to = net->buffers[b].from_op;
    }
    for (int i = 0; i < net->op_count; i++) {
        const struct chex_op *op = &net->ops[i];
        const int used[] = {op->in, op->out, op->side_in};
        for (int k = 0; k < 3; k++)
            if (used[k] >= 0 && lives[used[k]].to < i)
                lives[used[k]].to = i;
    }
}

void chex_lives_of_pass(const struct chex_net *net, struct chex_life *x, struct chex_life *g) {
    const int end = 2 * net->op_count - 1;
    chex_lives_of_buffers(net, g);
    for (int b = 0; b < net->buffer_count; b++) {
        const int first = g[b].from, last = g[b].to;
        x[b].from = first;
        g[b].from = end - last;
        x[b].to = g[b].to = end - first;
    }
}

/* The lowest offset at which lives[i] overlaps no placed buffer in both time and memory. Each
 * collision moves the offset to the end of the buffer in the way, until no collision is left. */
static size_t lowest(const struct chex_life *lives, int count, int i) {
    size_t at = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (int j = 0; j < count; j++) {
            bool alive =
                lives[j].placed && lives[j].from <= lives[i].to && lives[i].from <= lives[j].to;
            if (alive && at < lives[j].offset + lives[j].bytes &&
                lives[j].offset < at + lives[i].bytes) {
                at = lives[j].offset + lives[j].bytes;
                moved = true;
            }
        }
    }
    return at;
}

size_t chex_lives_place(struct chex_life *lives, int count) {
    size_t end = 0;
    for (int i = 0; i < count; i++)
        lives[i].placed = false;
    for (int n = 0; n < count; n++) {
        int next = -1;
        for (int i = 0; i < count; i++)
            if (!lives[i].placed && (next < 0 || lives[i].bytes > lives[next].bytes))
                next = i;
        lives[next].offset = lowest(lives, count, next);
        lives[next].placed = true;
        const size_t to = lives[next].offset + lives[next].bytes;
        end = to > end ? to : end;
    }
    return end;
}

enum chex_status chex_gradient_adds(const struct chex_net *net, bool *add, bool *side_add,
                                    struct chex_error *err) {
    int *begun = chex_alloc_zeroed((size_t)net->buffer_count, sizeof *begun);
    if (!begun)
        return chex_error_memory(err, NULL);
    enum chex_status st = CHEX_OK;
    for (int i = net->op_count - 1; i >= 0 && st == CHEX_OK; i--) {
        const struct chex_op *op = &net->ops[i];
        const int used[] = {op->in, op->side_in};
        bool *const adds[] = {&add[i], &side_add[i]};
        for (int k = 0; k < 2 && st == CHEX_OK; k++) {
            *adds[k] = used[k] >= 0 && begun[used[k]] > 0;
            if (used[k] < 0)
                continue;
            if (*adds[k] && op->in_channels > begun[used[k]])
                st = chex_error_set(err, CHEX_E_USAGE,
                                    "%s: reads %d channels of its input (the last reader of the "
                                    "buffer reads %d, expected no more)",
                                    op->name, op->in_channels, begun[used[k]]);
            if (!*adds[k])
                begun[used[k]] = op->in_channels;
        }
    }
    free(begun);
    return st;
}
