/* SPDX-License-Identifier: Apache-2.0
 *
 * State vectors in host memory, for the engines ref and head.
 */
#include <string.h>

#include "base/alloc.h"
#include "engine/ref/engine_ref.h"

void *chex_ref_alloc(struct chex_ref_base *b, size_t count, size_t size) {
    void *p = NULL;
    if (chex_alloc_grow(&b->owned, b->owned_count, &b->owned_capacity, sizeof *b->owned))
        p = chex_alloc_zeroed(count, size);
    if (p) {
        b->owned[b->owned_count++] = p;
        b->bytes += (uint64_t)count * size;
    }
    b->failed = b->failed || !p;
    return p;
}

void chex_ref_alloc_parts(struct chex_ref_base *b) {
    for (size_t i = 0; i < CHEX_COUNT(b->parts); i++)
        if (i == CHEX_STATE_PARAMS ||
            (b->config.training && (i != CHEX_STATE_EMA || b->config.ema_decay > 0)))
            b->parts[i] = chex_ref_alloc(b, b->net->state_count, sizeof *b->parts[i]);
}

void chex_ref_base_release(struct chex_ref_base *b) {
    for (size_t i = 0; i < b->owned_count; i++)
        free(b->owned[i]);
    free(b->owned);
    chex_ref_ctx_release(&b->ctx);
}

void chex_ref_step(struct chex_ref_base *b, int param, const struct chex_update *u, bool frozen,
                   const float *grad) {
    const struct chex_param *p = &b->net->params[param];
    float *w = b->parts[CHEX_STATE_PARAMS] + p->offset, *ema = b->parts[CHEX_STATE_EMA];
    if (!frozen)
        chex_update_param(u, b->net, p, w, b->parts[CHEX_STATE_MOMENT1] + p->offset,
                          b->parts[CHEX_STATE_MOMENT2] + p->offset, grad);
    if (ema)
        chex_ema_move(b->config.ema_decay, ema + p->offset, w, p->count);
}

const char *chex_ref_variant(void *self) {
    (void)self;
    return "plain";
}

uint64_t chex_ref_bytes(void *self) { return ((const struct chex_ref_base *)self)->bytes; }

enum chex_status chex_ref_set(void *self, enum chex_state_part part, const float *state,
                              struct chex_error *err) {
    const struct chex_ref_base *b = self;
    (void)err;
    memcpy(b->parts[part], state, b->net->state_count * sizeof *state);
    return CHEX_OK;
}

enum chex_status chex_ref_get(void *self, enum chex_state_part part, float *state_out,
                              struct chex_error *err) {
    const struct chex_ref_base *b = self;
    (void)err;
    memcpy(state_out, b->parts[part], b->net->state_count * sizeof *state_out);
    return CHEX_OK;
}

enum chex_status chex_ref_grad_norms(void *self, struct chex_grad_norms *out,
                                     struct chex_error *err) {
    (void)err;
    chex_clip_take_norms(&((struct chex_ref_base *)self)->clip, out);
    return CHEX_OK;
}
