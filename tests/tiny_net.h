/* SPDX-License-Identifier: Apache-2.0
 *
 * The network of the recorded parameter files in tests/data: one convolution, two batch norms and a
 * head of three classes. Element i of tensor number t is (i - 5) / 16 + t.
 */
#ifndef CHEX_TESTS_TINY_NET_H
#define CHEX_TESTS_TINY_NET_H

#include "model/net.h"
#include "tap.h"

#define TINY_LAYER "features.denseblock1.denselayer1."

static struct chex_net *tiny_net(int classes) {
    struct chex_net *n = chex_net_new("tiny", classes);
    int a = chex_net_add_buffer(n, 4), b = chex_net_add_buffer(n, 8);
    struct chex_op conv0 = {.kind = CHEX_OP_CONV, .in = CHEX_NET_IMAGE, .in_channels = 3};
    conv0.in_bn = CHEX_NET_NONE;
    conv0.out = a;
    conv0.out_channels = 4;
    conv0.kernel = 3;
    conv0.stride = conv0.pad = 1;
    chex_net_add_op(n, conv0, "features.conv0");
    struct chex_op conv1 = {.kind = CHEX_OP_CONV, .in = a, .in_channels = 4, .kernel = 1};
    conv1.in_bn = chex_net_add_bn(n, TINY_LAYER "norm1", a, 4);
    conv1.out = b;
    conv1.out_channels = 8;
    conv1.stride = 1;
    chex_net_add_op(n, conv1, TINY_LAYER "conv1");
    struct chex_op head = {.kind = CHEX_OP_HEAD, .in = b, .in_channels = 8};
    head.in_bn = chex_net_add_bn(n, TINY_LAYER "norm2", b, 8);
    chex_net_add_op(n, head, "classifier");
    BAIL_UNLESS(chex_net_finish(n, NULL) == CHEX_OK, "network");
    return n;
}

enum { TINY_UNREAD = -77 };

static inline void tiny_clear(const struct chex_net *net, float *state) {
    for (size_t i = 0; i < net->state_count; i++)
        state[i] = TINY_UNREAD;
}

static inline bool tiny_untouched(const struct chex_net *net, const float *state) {
    bool same = true;
    for (size_t i = 0; i < net->state_count; i++)
        same = same && state[i] == TINY_UNREAD;
    return same;
}

/* Whether the state holds the recorded values; without the head if `head` is false. */
static inline bool tiny_holds_recorded(const struct chex_net *net, const float *state, bool head) {
    static const char *const order[] = {
        "features.conv0.weight",
        TINY_LAYER "norm1.weight",
        TINY_LAYER "norm1.bias",
        TINY_LAYER "norm1.running_mean",
        TINY_LAYER "norm1.running_var",
        TINY_LAYER "conv1.weight",
        TINY_LAYER "norm2.weight",
        TINY_LAYER "norm2.bias",
        TINY_LAYER "norm2.running_mean",
        TINY_LAYER "norm2.running_var",
        "classifier.weight",
        "classifier.bias",
    };
    bool good = true;
    for (size_t t = 0; t < sizeof order / sizeof order[0]; t++) {
        int at = chex_net_find_param(net, order[t]);
        if (at < 0)
            return false;
        const struct chex_param *p = &net->params[at];
        for (size_t i = 0; i < p->count; i++) {
            float want = ((float)i - 5) / 16 + (float)t;
            if (!head && (p->kind == CHEX_PARAM_FC_WEIGHT || p->kind == CHEX_PARAM_FC_BIAS))
                want = TINY_UNREAD;
            good = good && state[p->offset + i] == want;
        }
    }
    return good;
}

#endif
