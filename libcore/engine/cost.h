/* SPDX-License-Identifier: Apache-2.0
 *
 * The least work of each operation of a network: what any engine must multiply and move for it. A
 * measured time against this says how far an operation is from the machine's limit.
 *
 * Bytes. Every operation is taken alone: it reads from memory and writes to memory, each element
 * once, and nothing is left in the caches by the operation before. So an engine that fuses two
 * operations, or maps that fit into the caches, can be faster than this allows.
 *   forward:  the input slice as far as the windows reach, the output slice, the weights. Of the
 *             image one fp32 a pixel (it is grey). Batch statistics are sums over what is being
 *             written anyway.
 *   backward: the output's gradient, and the output itself where a batch norm reads it (its
 *             gradient has a term in it); the input again (weight gradient, sign of the ReLU, sums
 *             of the batch norm); the input's gradient, written, and read before where a later
 *             operation has begun it; the weights, and their gradient in fp32. A join reads both
 *             inputs, from which the sign of their sum follows.
 * Maps and the weights of convolutions have `element_bytes`; the head's weights and logits and all
 * parameter gradients are fp32. Batch norm parameters, sums and the indices of a max pool are left
 * out.
 *
 * Operations are counted for convolutions and the head: two a multiply-add, once forward and twice
 * backward, once only where the input is the image and needs no gradient. The image is one grey
 * value under three affine maps, so a convolution of it is one of two channels: the value, and
 * whether there is one.
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
    bool training;     /* false: there is no backward, which is 0 then */
};

/* costs_out has op_count entries. CHEX_E_USAGE where the image is too small for the network. */
enum chex_status chex_net_cost(const struct chex_net *net, const struct chex_cost_shape *shape,
                               struct chex_op_cost *costs_out, struct chex_error *err);

#endif
