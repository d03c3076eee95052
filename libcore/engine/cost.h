/* SPDX-License-Identifier: Apache-2.0
 *
 * The minimum work of each operation of a network: floating-point operations and bytes moved.
 * Measured time divided by the time of this work shows how far an operation is from the machine's
 * limit (a roofline model).
 *
 * Bytes. Each operation is counted alone: it reads each element once from memory and writes each
 * element once to memory. So fused operations, or maps that stay in the caches, can be faster than
 * this minimum.
 *   forward:  - the input slice, as far as the windows reach; the image: one fp32 per pixel (grey)
 *             - the output slice
 *             - the weights
 *             Batch statistics cost nothing: they are summed while the output is written.
 *   backward: - the gradient of the output
 *             - the output itself, if a batch norm reads it (its gradient has a term in the output)
 *             - the input again: weight gradient, sign of the ReLU, sums of the batch norm. A
 *               residual add reads both inputs; they give the sign of their sum
 *             - the gradient of the input: written, and also read if a later operation has already
 *               written it
 *             - the weights, and their gradient in fp32
 * Maps and convolution weights have `element_bytes`. The head's weights, the logits and all
 * parameter gradients are fp32. Not counted: batch norm parameters and sums, indices of max pools.
 *
 * Floating-point operations are counted for convolutions and the head: two per multiply-add, once
 * forward and twice backward. A convolution of the image counts once backward, because the image
 * needs no gradient. Its three channels are affine maps of one grey value, so it counts as a
 * convolution of two channels: the value, and one or zero for inside or outside the image.
 */
#ifndef CHEX_ENGINE_COST_H
#define CHEX_ENGINE_COST_H

#include "model/net.h"

struct chex_work {
    double flop, bytes;
};

struct chex_op_cost {
    struct chex_work forward, backward;
};

struct chex_cost_shape {
    int image_size, batch;
    int element_bytes; /* of feature maps: 4 or 2 */
    bool training;     /* false: backward is 0 */
};

/* Fills costs_out (op_count entries). CHEX_E_USAGE: the image is too small for the network. */
enum chex_status chex_net_cost(const struct chex_net *net, const struct chex_cost_shape *shape,
                               struct chex_op_cost *costs_out, struct chex_error *err);

#endif
