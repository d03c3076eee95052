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
    n->init = CHEX_INIT_RESNET;
    int a = chex_net_add_buffer(n, 4), b = chex_net_add_buffer(n, 8);
    chex_net_add_conv(n, "", "features.conv0", CHEX_IMAGE_OPERAND, a, 0, 4, 3, 1);
    int bn = chex_net_add_bn(n, TINY_LAYER "norm1", a, 4);
    chex_net_add_conv(n, "", TINY_LAYER "conv1", (struct chex_operand){a, 4, bn}, b, 0, 8, 1, 1);
    bn = chex_net_add_bn(n, TINY_LAYER "norm2", b, 8);
    chex_net_add_head(n, "classifier", (struct chex_operand){b, 8, bn});
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
            if (!head && chex_param_is_head(p))
                want = TINY_UNREAD;
            good = good && state[p->offset + i] == want;
        }
    }
    return good;
}

#endif
