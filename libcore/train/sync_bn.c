/* SPDX-License-Identifier: Apache-2.0
 *
 * One item of a thread pool for each engine. The pool has as many threads as items, and an item
 * returns only after all items have begun, because each waits for the others in its first sum. So
 * every thread gets one item.
 */
#include "train/sync_bn.h"

#include "base/alloc.h"
#include "base/pool.h"
#include "launch/reduce.h"

struct member {
    struct chex_sync_bn *group;
    int v; /* logical rank */
    struct chex_engine_sync sync;
    struct chex_engine *engine;
    float *grad; /* NULL in member 0 */
    enum chex_status st;
    struct chex_error err;
};

struct chex_sync_bn {
    struct chex_rank_sum *sum;
    struct chex_pool *pool;
    const struct chex_net *net;
    int count;
    struct member member[CHEX_SYNC_BN_MOST];

    /* Of the present call */
    const struct chex_batch *batches;
    struct chex_pass_result *results;
    float *first_grad;
    const struct chex_update *update;
    const float *sum_of_grads;
};

static enum chex_status sum_of_member(void *arg, double *values, size_t count,
                                      struct chex_error *err) {
    const struct member *m = arg;
    return chex_rank_sum_add(m->group->sum, m->v, values, count, err);
}

/* The longest vector: two values for each channel of the widest map. */
static size_t longest(const struct chex_net *net) {
    int widest = 1;
    for (int i = 0; i < net->buffer_count; i++)
        widest = net->buffers[i].channels > widest ? net->buffers[i].channels : widest;
    return 2 * (size_t)widest;
}

static bool normed(const struct chex_net *net, int buffer) {
    for (int i = 0; i < net->bn_count; i++)
        if (net->bns[i].buffer == buffer)
            return true;
    return false;
}

void chex_sync_bn_sums(const struct chex_net *net, int *sums_out, uint64_t *bytes_out) {
    *sums_out = 0;
    *bytes_out = 0;
    for (int i = 0; i < net->op_count; i++) {
        const struct chex_op *op = &net->ops[i];
        if (op->out < 0 || !normed(net, op->out))
            continue;
        *sums_out += 2;
        *bytes_out += 2 * 2 * (uint64_t)op->out_channels * sizeof(double);
    }
}

enum chex_status chex_sync_bn_check(const struct chex_coll *coll, int logical_ranks, bool on_device,
                                    bool old_pipeline, struct chex_error *err) {
    int from, to;
    chex_reduce_run(logical_ranks, coll->size, coll->rank, &from, &to);
    const int own = to - from;
    if (own > CHEX_SYNC_BN_MOST)
        return chex_error_set(err, CHEX_E_USAGE,
                              "--sync-bn: %d logical ranks on one rank (expected at most %d, as "
                              "each needs an engine of its own): use more ranks, or fewer logical "
                              "ranks with a larger --batch-size",
                              own, CHEX_SYNC_BN_MOST);
    if (own > 1 && on_device)
        return chex_error_set(err, CHEX_E_USAGE,
                              "--sync-bn: %d logical ranks on one GPU (expected 1): run as many "
                              "ranks as --logical-ranks, without --accumulate",
                              own);
    if (own > 1 && old_pipeline)
        return chex_error_set(err, CHEX_E_USAGE,
                              "--sync-bn: --pipeline old has one batch at a time for %d logical "
                              "ranks of one rank (expected --pipeline new)",
                              own);
    return CHEX_OK;
}

enum chex_status chex_sync_bn_create(struct chex_coll *coll, const struct chex_net *net,
                                     int logical_ranks, bool deterministic,
                                     struct chex_sync_bn **out, struct chex_error *err) {
    int from, to;
    chex_reduce_run(logical_ranks, coll->size, coll->rank, &from, &to);
    struct chex_sync_bn *b = chex_alloc_zeroed(1, sizeof *b);
    CHEX_ALLOCATED(b, err, "--sync-bn");
    b->net = net;
    b->count = to - from;
    for (int i = 0; i < b->count; i++) {
        struct member *m = &b->member[i];
        m->group = b;
        m->v = from + i;
        m->sync = (struct chex_engine_sync){logical_ranks, sum_of_member, m,
                                            !deterministic || logical_ranks == 2};
    }
    enum chex_status st = chex_rank_sum_create(coll, logical_ranks, longest(net), &b->sum, err);
    if (st == CHEX_OK)
        st = chex_pool_create(b->count, &b->pool, err);
    if (st != CHEX_OK)
        chex_sync_bn_destroy(b);
    else
        *out = b;
    return st;
}

void chex_sync_bn_destroy(struct chex_sync_bn *b) {
    if (!b)
        return;
    chex_pool_destroy(b->pool);
    for (int i = 1; i < b->count; i++)
        if (b->member[i].engine) {
            chex_engine_grad_free(b->member[i].engine, b->member[i].grad);
            chex_engine_destroy(b->member[i].engine);
        }
    chex_rank_sum_destroy(b->sum);
    free(b);
}

void chex_sync_bn_configure(struct chex_sync_bn *b, int i, struct chex_engine_config *config) {
    config->sync = &b->member[i].sync;
    config->threads = config->threads > b->count ? config->threads / b->count : 1;
}

static enum chex_status make_engine(struct chex_sync_bn *b, int i, const char *spec,
                                    const struct chex_engine_config *config,
                                    struct chex_error *err) {
    struct chex_engine_config mine = *config;
    struct member *m = &b->member[i];
    chex_sync_bn_configure(b, i, &mine);
    CHEX_TRY(chex_engine_create(spec, &mine, &m->engine, err));
    m->grad = chex_engine_grad_alloc(m->engine);
    return m->grad ? CHEX_OK : chex_error_memory(err, "the gradients of a logical rank");
}

/* Gives the engines after the first its parameters and moments. */
static enum chex_status copy_state(struct chex_sync_bn *b, struct chex_error *err) {
    CHEX_AUTO_FREE float *state = chex_alloc_zeroed(b->net->state_count, sizeof *state);
    const enum chex_state_part parts[] = {CHEX_STATE_PARAMS, CHEX_STATE_MOMENT1,
                                          CHEX_STATE_MOMENT2};
    CHEX_ALLOCATED(state, err, "the state of a logical rank");
    for (size_t k = 0; k < CHEX_COUNT(parts); k++) {
        CHEX_TRY(chex_engine_get(b->member[0].engine, parts[k], state, err));
        for (int i = 1; i < b->count; i++)
            CHEX_TRY(chex_engine_set(b->member[i].engine, parts[k], state, err));
    }
    return CHEX_OK;
}

enum chex_status chex_sync_bn_start(struct chex_sync_bn *b, const char *spec,
                                    const struct chex_engine_config *config,
                                    struct chex_engine *first, struct chex_error *err) {
    b->member[0].engine = first;
    if (b->count == 1)
        return CHEX_OK;
    for (int i = 1; i < b->count; i++)
        CHEX_TRY(make_engine(b, i, spec, config, err));
    return copy_state(b, err);
}

int chex_sync_bn_engines(const struct chex_sync_bn *b) { return b ? b->count : 1; }
const struct chex_rank_sum *chex_sync_bn_sum(const struct chex_sync_bn *b) { return b->sum; }

const float *chex_sync_bn_grad(const struct chex_sync_bn *b, int i) { return b->member[i].grad; }

/* The error of the lowest engine that failed. */
static enum chex_status run_all(struct chex_sync_bn *b, chex_pool_fn fn, struct chex_error *err) {
    chex_pool_run(b->pool, (size_t)b->count, fn, b);
    for (int i = 0; i < b->count; i++)
        if (b->member[i].st != CHEX_OK)
            return chex_error_set(err, b->member[i].st, "%s", b->member[i].err.text);
    return CHEX_OK;
}

static void pass_item(void *arg, size_t i, int worker) {
    struct chex_sync_bn *b = arg;
    struct member *m = &b->member[i];
    (void)worker;
    m->st = chex_engine_pass(m->engine, &b->batches[i], i ? m->grad : b->first_grad, NULL, NULL,
                             &b->results[i], &m->err);
    if (m->st != CHEX_OK)
        chex_rank_sum_fail(b->sum, &m->err);
}

enum chex_status chex_sync_bn_pass(struct chex_sync_bn *b, const struct chex_batch *batches,
                                   float *first_grad, struct chex_pass_result *results_out,
                                   struct chex_error *err) {
    b->batches = batches;
    b->results = results_out;
    b->first_grad = first_grad;
    return run_all(b, pass_item, err);
}

static void update_item(void *arg, size_t i, int worker) {
    struct chex_sync_bn *b = arg;
    struct member *m = &b->member[i];
    (void)worker;
    m->st = chex_engine_update(m->engine, b->update, b->sum_of_grads, &m->err);
}

enum chex_status chex_sync_bn_update(struct chex_sync_bn *b, const struct chex_update *update,
                                     const float *grad, struct chex_error *err) {
    b->update = update;
    b->sum_of_grads = grad;
    return run_all(b, update_item, err);
}
