/* SPDX-License-Identifier: Apache-2.0
 *
 * The operations of a network as arguments of kernels, for tests in which nothing runs: only
 * whether pointers are NULL, and their alignment, mean something.
 */
#ifndef CHEX_TESTS_GPU_LAYERS_H
#define CHEX_TESTS_GPU_LAYERS_H

#include "engine/cuda/host/gpu.h"
#include "model/net.h"

enum { MAX_BUFFERS = 512 };

static _Alignas(256) char somewhere[256];
static float *const vector = (float *)(void *)somewhere;
static unsigned *const ticket = (unsigned *)(void *)somewhere;

static struct gpu_map map(enum gpu_type type, int n, int hw, int channels, int pitch) {
    return (struct gpu_map){
        .data = somewhere, .type = type, .n = n, .hw = hw, .channels = channels, .pitch = pitch};
}

/* An operation and the maps that it reads and writes. */
struct layer {
    const struct chex_net *net;
    const struct chex_op *op;
    int n, size;
    struct gpu_map in, out;
    struct gpu_norm norm;
    struct gpu_stats stats;
    struct gpu_sums sums;
    struct gpu_deferred_grad out_g;
};

static struct layer layer_of(const struct chex_net *net, int op, const int *hw, enum gpu_type type,
                             int n, int size) {
    struct layer l = {.net = net, .op = &net->ops[op], .n = n, .size = size};
    const struct chex_op *o = l.op;
    l.in = o->in == CHEX_NET_IMAGE
               ? map(type, n, size, 8, 8)
               : map(type, n, hw[o->in], o->in_channels, net->buffers[o->in].channels);
    if (o->out >= 0)
        l.out = map(type, n, hw[o->out], o->out_channels, net->buffers[o->out].channels);
    if (o->in_bn >= 0)
        l.norm = (struct gpu_norm){vector, vector, vector, vector, true};
    l.stats = (struct gpu_stats){.partial = vector,
                                 .ticket = ticket,
                                 .mean = vector,
                                 .var = vector,
                                 .inv = vector,
                                 .eps = 1e-5f};
    l.sums = (struct gpu_sums){.partial = o->in_bn < 0 ? NULL : vector,
                               .ticket = ticket,
                               .dgamma = vector,
                               .dbeta = vector,
                               .bsum = vector,
                               .csum = vector};
    l.out_g = (struct gpu_deferred_grad){.g = l.out, .x = l.out, .bsum = vector, .csum = vector};
    return l;
}

/* The backward of a convolution; without the gradient of an image. */
static struct gpu_conv_backward backward_of(const struct layer *l) {
    struct gpu_conv_backward b = {.out = l->out_g,
                                  .in = l->in,
                                  .norm = l->norm,
                                  .window = {l->op->kernel, l->op->stride, l->op->pad},
                                  .weight = somewhere,
                                  .weight_t = somewhere,
                                  .sums = l->sums,
                                  .dweight = vector};
    if (l->op->in != CHEX_NET_IMAGE)
        b.in_g = l->in;
    return b;
}

#endif
