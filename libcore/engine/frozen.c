/* SPDX-License-Identifier: Apache-2.0
 *
 * Looks up the factors of the learning rate; frozen.h has the rules.
 */
#include "engine/frozen.h"

#include <string.h>

static bool is_frozen(const struct chex_engine_config *c, int param) {
    return c->lr_scales && c->net->params[param].offset < c->net->param_count &&
           !(c->lr_scales[param] > 0);
}

bool chex_update_of_param(const struct chex_engine_config *c, const struct chex_update *u,
                          int param, struct chex_update *own_out) {
    *own_out = *u;
    if (c->lr_scales)
        own_out->lr = u->lr * c->lr_scales[param];
    return !is_frozen(c, param);
}

bool chex_frozen_run(const struct chex_engine_config *c, size_t at, size_t end, size_t *from_out,
                     size_t *to_out) {
    size_t from = end, to = end;
    for (int i = 0; c->lr_scales && i < c->net->param_total; i++) {
        const struct chex_param *p = &c->net->params[i];
        if (!is_frozen(c, i) || p->offset + p->count <= at || p->offset >= end)
            continue;
        if (from == end)
            from = p->offset > at ? p->offset : at;
        else if (p->offset != to)
            break;
        to = p->offset + p->count < end ? p->offset + p->count : end;
    }
    *from_out = from;
    *to_out = to;
    return from < to;
}

void chex_frozen_zero(const struct chex_engine_config *c, float *grad, size_t from, size_t to) {
    for (size_t at = from, begin, end; chex_frozen_run(c, at, to, &begin, &end); at = end)
        memset(grad + begin, 0, (end - begin) * sizeof *grad);
}

static bool trains(const struct chex_engine_config *c, int param) {
    return param != CHEX_NET_NONE && !is_frozen(c, param);
}
static bool bn_trains(const struct chex_engine_config *c, int bn) {
    return bn != CHEX_NET_NONE &&
           (trains(c, c->net->bns[bn].weight) || trains(c, c->net->bns[bn].bias));
}

int chex_first_trained_op(const struct chex_engine_config *c) {
    for (int i = 0; c->lr_scales && i < c->net->op_count; i++) {
        const struct chex_op *op = &c->net->ops[i];
        if (trains(c, op->weight) || trains(c, op->bias) || bn_trains(c, op->in_bn) ||
            bn_trains(c, op->side_bn))
            return i;
    }
    return 0;
}
