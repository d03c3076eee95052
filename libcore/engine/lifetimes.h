/* SPDX-License-Identifier: Apache-2.0
 *
 * When a network's feature maps and their gradients are alive, and how those that never live at one
 * time share memory. What every engine needs before it takes its own.
 */
#ifndef CHEX_ENGINE_LIFETIMES_H
#define CHEX_ENGINE_LIFETIMES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "model/net.h"

/* Something that is alive from one op to another, both included. */
struct chex_life {
    size_t bytes, offset;
    int from, to;
    bool placed; /* chex_lives_place's own */
};

/* Sets from and to of every buffer (buffer_count entries) in a forward pass alone: from its first
 * writer to its last reader. */
void chex_lives_of_buffers(const struct chex_net *net, struct chex_life *lives);

/* The same for maps (x) and gradients (g) of a training pass on one line of time, where op i comes
 * forward at i and backward at 2 * op_count - 1 - i: a map is read until its first writer's
 * backward, so gradients of early maps may lie where late maps were. */
void chex_lives_of_pass(const struct chex_net *net, struct chex_life *x, struct chex_life *g);

/* Gives each an offset, the largest first, at the lowest place that no living neighbour holds;
 * returns the bytes that hold all, SIZE_MAX where there is no memory to work it out. Sizes should
 * be multiples of the alignment. */
size_t chex_lives_place(struct chex_life *lives, int count);

/* add[i]: when op i's backward comes, the gradient of `in` has been begun by a later op, so it has
 * to add to it; side_add[i]: the same for side_in. op_count entries each. The op that begins a
 * gradient writes all channels that others add to; a network where it does not is CHEX_E_USAGE. */
enum chex_status chex_gradient_adds(const struct chex_net *net, bool *add, bool *side_add,
                                    struct chex_error *err);

#endif
