/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory budget: adds up what engine, reduction, input and checkpoint need, and compares the
 * sum over the ranks of a node with the node's limit and its free memory. Also finds the largest
 * --batch-size that fits, by bisection.
 */
#include "train/memory_budget.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/memory_limit.h"
#include "base/units.h"
#include "engine/update.h"
#include "train/head_only.h"

/* A sixteenth of the host's memory is reserved for what is not counted: partly filled huge pages,
 * stacks, growth of the heap, kernel tables. */
static uint64_t usable(uint64_t bytes) { return bytes - bytes / 16; }

static uint64_t minus(uint64_t from, uint64_t bytes) { return from > bytes ? from - bytes : 0; }

/* Host memory without engine and gradients. */
static uint64_t host_besides(const struct chex_train_needs *n) {
    return n->program + n->ring + n->rows + n->snapshot;
}

uint64_t chex_train_file_bytes(const struct chex_net *net, const struct chex_train_config *c) {
    const uint64_t parts = 1 + (uint64_t)chex_optim_moments(c->update.optim) + (c->ema_decay > 0);
    return parts * net->state_count * sizeof(float);
}

/* For a checkpoint: the copy of the state, and the file's image in memory. */
static uint64_t saving_bytes(const struct chex_net *net, const struct chex_train_config *c) {
    return (3 + (c->ema_decay > 0)) * net->state_count * sizeof(float) +
           CHEX_CHECKPOINT_COPIES * chex_train_file_bytes(net, c);
}

enum chex_status chex_session_measure(struct chex_session *s, struct chex_error *err) {
    const struct chex_engine_impl *impl = s->engine->impl;
    const uint64_t state = s->net->state_count * sizeof(float);
    struct chex_pipeline_needs input;
    struct chex_reduce_facts reduce;
    CHEX_TRY(chex_train_input_measure(&s->input, s->config.batch, &input, err));
    chex_reduce_facts(s->reduce, &reduce);
    const uint64_t engines = (uint64_t)chex_sync_bn_engines(s->sync_bn);
    const struct chex_engine *extractor = s->extractor;
    const bool extractor_on_device = extractor && extractor->impl->device;
    const uint64_t extractor_bytes = extractor ? extractor->impl->bytes(extractor->self) : 0;
    const uint64_t resident =
        engines * impl->bytes(s->engine->self) + (extractor_on_device ? 0 : extractor_bytes);
    struct chex_train_needs n = {.program = s->needs.program,
                                 .params = engines * state,
                                 .moments = (2 * engines + (s->config.ema_decay > 0)) *
                                            state, /* whatever the optimiser */
                                 .gradients = reduce.memory_bytes + (engines - 1) * state,
                                 .ring = input.ring_bytes,
                                 .rows = input.rows_bytes + chex_head_only_bytes(s),
                                 .snapshot = s->rank == 0 ? saving_bytes(s->net, &s->config) : 0,
                                 .on_device = impl->device != NULL,
                                 .first_read = input.first_read_bytes,
                                 .later_read = input.later_read_bytes};
    /* A GPU engine already counts the gradients, which are in the GPU's memory. */
    if (s->config
            .audit_steps) /* a gradient, and a state in host memory (train/watch/pass_audit.h) */
        n.snapshot += (n.on_device ? 1 : 2) * state;
    n.work = minus(resident, n.params + n.moments + (n.on_device ? n.gradients : 0));
    n.device = n.on_device ? resident : 0;
    n.device_left = n.on_device ? impl->device->bytes_left(s->engine->self) : 0;
    n.host = host_besides(&n) + (n.on_device ? 0 : resident + n.gradients);
    if (s->config.head_only && !s->config.features)
        n.first_read = chex_head_only_reads(s);
    s->needs = n;
    return CHEX_OK;
}

/* ---- the largest batch ---- */

static bool fits(struct chex_session *s, int batch, uint64_t host_bytes, uint64_t device_bytes) {
    const struct chex_train_needs *n = &s->needs;
    struct chex_pipeline_needs input;
    if (chex_train_input_measure(&s->input, batch, &input, NULL) != CHEX_OK)
        return false;
    const uint64_t engines = (uint64_t)chex_sync_bn_engines(s->sync_bn);
    uint64_t engine = s->engine->impl->capacity->bytes_with_batch(s->engine->self, batch);
    engine = engine > UINT64_MAX / engines ? UINT64_MAX : engines * engine;
    const uint64_t besides = host_besides(n) - n->ring + input.ring_bytes;
    if (n->on_device)
        return engine <= device_bytes && besides <= usable(host_bytes);
    return engine <= host_bytes && engine + n->gradients + besides <= usable(host_bytes);
}

int chex_session_largest_batch(struct chex_session *s, uint64_t host_bytes, uint64_t device_bytes) {
    if (!s->engine->impl->capacity)
        return -1;
    const size_t max_batch =
        s->input.order.rows / (size_t)s->config.logical_ranks; /* one step per epoch */
    int have = 0, too_many = max_batch < 65536 ? (int)max_batch + 1 : 65537;
    while (too_many - have > 1) {
        const int batch = have + (too_many - have) / 2;
        *(fits(s, batch, host_bytes, device_bytes) ? &have : &too_many) = batch;
    }
    return have;
}

/* ---- what the node has ---- */

static uint64_t share(const struct chex_launch *l, uint64_t bytes) {
    return bytes / (uint64_t)l->local_size;
}

uint64_t chex_train_allowed_bytes(const struct chex_launch *l) {
    return share(l, chex_memory_limit("").bytes);
}

uint64_t chex_train_free_bytes(const struct chex_launch *l) {
    const uint64_t left = chex_memory_free_bytes("");
    return left ? share(l, left) + chex_memory_own_bytes("") : 0;
}

struct place {
    int32_t node, unused;
    uint64_t bytes, resident;
};

/* The memory that all ranks of this node need, and the part that they have already allocated. */
static enum chex_status need_of_node(const struct chex_train_world *w, uint64_t own_bytes,
                                     uint64_t *bytes_out, uint64_t *resident_out,
                                     struct chex_error *err) {
    const struct place mine = {
        .node = w->launch->node, .bytes = own_bytes, .resident = chex_memory_own_bytes("")};
    CHEX_TRY(chex_group_exchange(w->coll->group, "memory", &mine, sizeof mine, err));
    const struct place *all = w->coll->group->all;
    *bytes_out = *resident_out = 0;
    for (int r = 0; r < w->launch->size; r++) {
        *bytes_out += all[r].node == mine.node ? all[r].bytes : 0;
        *resident_out += all[r].node == mine.node ? all[r].resident : 0;
    }
    return CHEX_OK;
}

static enum chex_status refuse(struct chex_session *s, uint64_t need,
                               const struct chex_memory_limit *limit, struct chex_error *err) {
    const struct chex_launch *l = s->world.launch;
    char a[32], b[32], fits[96] = "lower --batch-size";
    const int batch = chex_session_largest_batch(s, share(l, limit->bytes), UINT64_MAX);
    if (batch >= 0)
        snprintf(fits, sizeof fits,
                 batch ? "the largest --batch-size that fits is %d" : "not even one image fits",
                 batch);
    if (s->config.head_only)
        snprintf(fits, sizeof fits, "the features of its images take %s",
                 chex_format_bytes(a, sizeof a, chex_head_only_bytes(s)));
    return chex_error_set(err, CHEX_E_RESOURCE,
                          "%d rank%s of this node take%s %s of memory, and the %s allows %s: %s; "
                          "use %s%s",
                          l->local_size, l->local_size > 1 ? "s" : "", l->local_size > 1 ? "" : "s",
                          chex_format_bytes(a, sizeof a, need), limit->from,
                          chex_format_bytes(b, sizeof b, limit->bytes), fits,
                          strcmp(limit->from, "machine") == 0 ? "larger nodes"
                                                              : "a higher limit (Slurm: --mem)",
                          l->local_size > 1 ? ", or fewer ranks on a node" : "");
}

enum chex_status chex_session_check_memory(struct chex_session *s, struct chex_error *err) {
    const struct chex_memory_limit limit = chex_memory_limit("");
    const uint64_t left = chex_memory_free_bytes("");
    uint64_t need, resident;
    char a[32], b[32];
    CHEX_TRY(need_of_node(&s->world, s->needs.host, &need, &resident, err));
    if (limit.bytes && need > limit.bytes && !limit.asked)
        return refuse(s, need, &limit, err);
    const bool beyond = limit.bytes && need > usable(limit.bytes);
    if (beyond || (left && need > usable(left + resident)))
        snprintf(s->memory_warning, sizeof s->memory_warning,
                 "%s: the ranks there need %s of memory, and %s %s: the kernel or Slurm may end "
                 "them",
                 s->world.launch->host, chex_format_bytes(a, sizeof a, need),
                 !beyond       ? "the free memory is"
                 : limit.asked ? "Slurm was asked for"
                               : "the limit is",
                 chex_format_bytes(b, sizeof b, beyond ? limit.bytes : left + resident));
    if (s->memory_warning[0] && !s->config.plan_only && s->world.launch->local_rank == 0)
        chex_warn("%s", s->memory_warning);
    return CHEX_OK;
}
