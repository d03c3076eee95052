/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds the fusion groups of a network and runs them; cpu_fusion.h explains fusion. The steps of
 * the groups are in cpu_fusion_conv.c and cpu_fusion_pool.c.
 */
#include "engine/cpu/cpu_fusion.h"

struct kind {
    struct cpu_tiling (*plan)(struct cpu_engine *e, const struct cpu_fusion *c,
                              struct cpu_need *need);
    chex_cpu_fusion_step_fn *step;
};

static const struct kind *kind_of(const struct chex_net *net, const struct cpu_fusion *c) {
    static const struct kind conv = {chex_cpu_fusion_conv_plan, chex_cpu_fusion_conv};
    static const struct kind max = {chex_cpu_fusion_max_plan, chex_cpu_fusion_max};
    static const struct kind average = {chex_cpu_fusion_average_plan, chex_cpu_fusion_average};
    const struct chex_op *first = &net->ops[c->op[0]];
    return first->kind == CHEX_OP_AVGPOOL ? &average : first->in == CHEX_NET_IMAGE ? &max : &conv;
}

/* The only reader of op i's output, if op i writes the whole buffer and the reader uses it as its
 * first input; else NONE. */
static int sole_reader(const struct chex_net *net, int i) {
    int out = net->ops[i].out, reader = CHEX_NET_NONE;
    if (out < 0 || net->ops[i].out_channels != net->buffers[out].channels)
        return CHEX_NET_NONE;
    for (int j = 0; j < net->op_count; j++) {
        const struct chex_op *op = &net->ops[j];
        bool reads = op->in == out || (op->kind == CHEX_OP_RESIDUAL_ADD && op->side_in == out);
        if ((reads && reader >= 0) || (reads && op->in != out) || (j != i && op->out == out))
            return CHEX_NET_NONE;
        if (reads)
            reader = j;
    }
    return reader;
}

static bool is_conv(const struct chex_net *net, int i, int kernel, int stride) {
    const struct chex_op *op = i >= 0 ? &net->ops[i] : NULL;
    return op && op->kind == CHEX_OP_CONV && op->in >= 0 && op->kernel == kernel &&
           op->pad == kernel / 2 && (op->stride == stride || !stride);
}

/* The fusion group that begins with op i. count 0: none. */
static struct cpu_fusion fusion_from(const struct chex_net *net, int i) {
    struct cpu_fusion c = {.op = {i}};
    const struct chex_op *op = &net->ops[i];
    int next = sole_reader(net, i);
    if (next < 0)
        return c;
    c.op[1] = next;
    bool image = op->kind == CHEX_OP_CONV && op->in == CHEX_NET_IMAGE;
    if ((image && net->ops[next].kind == CHEX_OP_MAXPOOL) ||
        (op->kind == CHEX_OP_AVGPOOL && is_conv(net, next, 1, 1)) ||
        (is_conv(net, i, 1, 1) && is_conv(net, next, 3, 0)))
        c.count = 2;
    if (!c.count || !is_conv(net, next, 3, 0))
        return c;
    int third = sole_reader(net, next),
        last = is_conv(net, third, 1, 1) ? sole_reader(net, third) : CHEX_NET_NONE;
    if (last >= 0 && net->ops[last].kind == CHEX_OP_RESIDUAL_ADD) {
        c.op[2] = third;
        c.op[3] = last;
        c.count = 4;
    }
    return c;
}

bool chex_cpu_fusions_plan(struct cpu_engine *e, struct cpu_need *need) {
    const struct chex_net *net = e->net;
    e->fusions = chex_cpu_alloc(e, (size_t)net->op_count, sizeof *e->fusions);
    if (!e->fusions)
        return false;
    for (int i = 0; i < net->op_count; i++) {
        struct cpu_fusion c = fusion_from(net, i);
        if (!c.count || e->ops[i].fusion) /* op i is already in another group */
            continue;
        c.step = kind_of(net, &c)->plan(e, &c, need);
        e->fusions[e->fusion_count] = c;
        for (int k = 0; k < c.count; k++)
            e->ops[c.op[k]].fusion = &e->fusions[e->fusion_count];
        e->fusion_count++;
    }
    return true;
}

void chex_cpu_fusions_extend_lives(const struct cpu_engine *e, struct chex_life *lives) {
    for (int i = 0; i < e->fusion_count; i++) {
        const struct cpu_fusion *c = &e->fusions[i];
        int in = e->net->ops[c->op[0]].in, last = c->op[c->count - 1];
        if (in >= 0 && lives[in].to < last)
            lives[in].to = last;
    }
}

void chex_cpu_fusion_operand(const struct cpu_engine *e, int bn, float *c, size_t c_pitch,
                             void *dst, size_t pitch, int pixels, int channels, bool plain) {
    struct cpu_stored src = {c, c_pitch, false};
    struct cpu_affine norm = chex_cpu_affine(e, bn, 0);
    int flags = norm.relu | (e->bf16 ? CPU_ROUND | CPU_STORED : 0);
    if (e->dot2 && !plain)
        e->dot2->load(dst, pitch, &src, pixels, channels, norm.scale, norm.shift,
                      flags | chex_cpu_split_flag(e));
    else
        e->k->load(dst, pitch, &src, pixels, channels, norm.scale, norm.shift, flags);
}

static void fusion_item(void *arg, size_t item, int worker) {
    const struct cpu_fusion_run *r = arg;
    struct cpu_scratch *s = &r->e->scratch[worker];
    chex_cpu_fusion_step_fn *step = kind_of(r->e->net, r->fusion)->step;
    int n = r->job[0].n;
    if (r->step.rows == r->step.hw) {
        step(r, chex_cpu_tile(r->step, n, (int)item), false, s);
        return;
    }
    int image = (int)item / r->bands, band = (int)item % r->bands;
    int from = band * r->steps / r->bands, to = (band + 1) * r->steps / r->bands;
    for (int k = from; k < to; k++)
        step(r, chex_cpu_tile(r->step, n, image * r->steps + k), k > from, s);
}

static struct cpu_fusion_run run_of(struct cpu_engine *e, const struct cpu_fusion *c,
                                    const struct chex_batch *batch) {
    struct cpu_fusion_run r = {.e = e, .fusion = c, .step = chex_cpu_tiling_for(c->step, batch->n)};
    for (int k = 0; k < c->count; k++)
        r.job[k] = chex_cpu_job(e, c->op[k], batch, e->ops[c->op[k]].fwd);
    r.steps = (r.step.hw + r.step.rows - 1) / r.step.rows;
    r.bands = (2 * e->config.threads + batch->n - 1) / batch->n;
    r.bands = r.bands > r.steps ? r.steps : r.bands;
    r.items = r.step.rows == r.step.hw ? chex_cpu_tile_count(r.step, batch->n) : batch->n * r.bands;
    return r;
}

/* The time of an operation is its mean over the threads. */
static void store_times(const struct cpu_fusion_run *r) {
    for (int k = 0; k < r->fusion->count; k++) {
        double seconds = 0;
        for (int t = 0; t < r->e->config.threads; t++) {
            seconds += r->e->scratch[t].spent_s[k];
            r->e->scratch[t].spent_s[k] = 0;
        }
        r->e->ops[r->fusion->op[k]].forward_s = seconds / r->e->config.threads;
    }
}

bool chex_cpu_fusion_forward(struct cpu_engine *e, int i, const struct chex_batch *batch) {
    const struct cpu_fusion *c = e->ops[i].fusion;
    if (!c)
        return false;
    struct cpu_fusion_run r = run_of(e, c, batch);
    if (r.items < e->config.threads)
        return false;
    if (i != c->op[c->count - 1])
        return true;
    for (int k = 0; k < c->count; k++) {
        chex_cpu_norm_prepare(e, r.job[k].op, false);
        if (e->ops[c->op[k]].winograd)
            chex_cpu_winograd_prepare(&r.job[k], false);
    }
    chex_pool_run(e->pool, (size_t)r.items, fusion_item, &r);
    store_times(&r);
    return true;
}
