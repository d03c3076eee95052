/* SPDX-License-Identifier: Apache-2.0
 *
 * Lifetimes of a network's feature maps and gradients. Buffers with disjoint lifetimes share
 * memory. Engines use this to lay out their arena.
 */
#ifndef CHEX_ENGINE_LIFETIMES_H
#define CHEX_ENGINE_LIFETIMES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "model/net.h"

/* A buffer that is in use from op `from` to op `to`, both included. */
struct chex_life {
    size_t bytes, offset;
    int from, to;
    bool placed; /* private to chex_lives_place */
};

/* Sets from and to of every buffer (buffer_count entries) for inference: from its first writer to
 * its last reader. */
void chex_lives_of_buffers(const struct chex_net *net, struct chex_life *lives);

/* Sets from and to of maps (x) and gradients (g) for a training pass, buffer_count entries each.
 * - Time: op i runs forward at i and backward at 2 * op_count - 1 - i.
 * - A map lives until the backward of its first writer. So the gradient of an early map may use
 *   the memory of a late map. */
void chex_lives_of_pass(const struct chex_net *net, struct chex_life *x, struct chex_life *g);

/* Sets the offset of each buffer and returns the bytes of the whole arena. Sizes should be
 * multiples of the alignment. */
size_t chex_lives_place(struct chex_life *lives, int count);

/* Which backward operations add to a gradient and which ones overwrite it. op_count entries each.
 * - add[i]: true if a later op has already written the gradient of op i's `in`. Then op i adds to
 *   it, else it overwrites it. side_add[i]: the same for `side_in`.
 * - The op that overwrites must write every channel that other ops add to; else CHEX_E_USAGE. */
enum chex_status chex_gradient_adds(const struct chex_net *net, bool *add, bool *side_add,
                                    struct chex_error *err);

#endif
