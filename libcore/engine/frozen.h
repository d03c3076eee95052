/* SPDX-License-Identifier: Apache-2.0
 *
 * Parameters with a learning rate of their own (chex_engine_config.lr_scales): factors of the rate,
 * and frozen parameters, whose factor is 0.
 *
 * A frozen parameter takes no update and no weight decay, and its moments stay. Its gradient is 0
 * in the gradient vector, so it does not count in the norm of the clipping. As in PyTorch with
 * requires_grad=False, batch norms of frozen parameters still normalise with the batch's statistics
 * in a pass, and their running statistics move. Backward ends at the first operation with a trained
 * parameter.
 */
#ifndef CHEX_ENGINE_FROZEN_H
#define CHEX_ENGINE_FROZEN_H

#include "engine/engine.h"

/* *own_out: the step `u` of parameter `param`, with its factor of the learning rate. False: it is
 * frozen. */
bool chex_update_of_param(const struct chex_engine_config *c, const struct chex_update *u,
                          int param, struct chex_update *own_out);

/* The first run of frozen elements in [at, end) of the gradient vector: [*from_out, *to_out).
 * False: there is none. */
bool chex_frozen_run(const struct chex_engine_config *c, size_t at, size_t end, size_t *from_out,
                     size_t *to_out);

/* Zeroes the frozen elements in [from, to) of a gradient vector in host memory. */
void chex_frozen_zero(const struct chex_engine_config *c, float *grad, size_t from, size_t to);

/* Index of the first operation that reads a trained parameter: backward needs none before it. */
int chex_first_trained_op(const struct chex_engine_config *c);

#endif
