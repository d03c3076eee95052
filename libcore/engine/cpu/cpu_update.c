/* SPDX-License-Identifier: Apache-2.0
 *
 * The optimiser step: engine/update.c on pieces of the parameters in parallel, then the packed
 * weights are rebuilt. Pieces have a fixed size, so the result does not depend on the number of
 * threads.
 */
#include "engine/cpu/cpu_engine.h"
#include "engine/frozen.h"

enum { PIECE = 16384 };

struct update_job {
    struct cpu_engine *e;
    const struct chex_update *update;
    const float *grad;
    const struct chex_param *p;
    size_t piece;
    bool frozen;
};

static void update_item(void *arg, size_t item, int worker) {
    (void)worker;
    const struct update_job *job = arg;
    struct cpu_engine *e = job->e;
    size_t from = item * job->piece, at = job->p->offset + from;
    struct chex_param part = *job->p;
    part.count = job->p->count - from < job->piece ? job->p->count - from : job->piece;
    if (!job->frozen)
        chex_update_param(job->update, e->net, &part, e->param + at, e->moment[0] + at,
                          e->moment[1] + at, job->grad + at);
    if (e->ema)
        chex_ema_move(e->config.ema_decay, e->ema + at, e->param + at, part.count);
}

static void sum_item(void *arg, size_t item, int worker) {
    (void)worker;
    const struct update_job *job = arg;
    chex_clip_sum(&job->e->clip, job->grad, job->e->net->param_count, (int)item);
}

/* The step for trained parameters. */
static struct chex_update clipped(struct cpu_engine *e, const struct chex_update *update,
                                  const float *grad) {
    if (!(update->clip_norm > 0))
        return *update;
    struct update_job job = {.e = e, .grad = grad};
    chex_pool_run(e->pool, CHEX_NORM_PIECES, sum_item, &job);
    return chex_clip_apply(&e->clip, update);
}

void chex_cpu_update(struct cpu_engine *e, const struct chex_update *update, const float *grad) {
    const struct chex_update trained = clipped(e, update, grad);
    for (int i = 0; i < e->net->param_total; i++) {
        const struct chex_param *p = &e->net->params[i];
        /* LARS needs the norm of the whole parameter. */
        size_t piece = update->optim == CHEX_LARS ? p->count : PIECE;
        const bool trains = p->offset < e->net->param_count;
        struct chex_update own;
        const bool frozen = !chex_update_of_param(&e->config, trains ? &trained : update, i, &own);
        struct update_job job = {e, &own, grad, p, piece, frozen};
        chex_pool_run(e->pool, (p->count + piece - 1) / piece, update_item, &job);
    }
    chex_cpu_pack(e);
}
