/* SPDX-License-Identifier: Apache-2.0
 *
 * Networks: the table of names, the functions that build one, shapes, and initial values.
 *
 * If a building function runs out of memory, it sets op_count = -1, and the later calls do nothing.
 * chex_net_finish reports it. So network files are plain lists without error handling.
 */
#include "model/net.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/pool.h"
#include "base/rng.h"
#include "model/networks.h"
#include "model/normal.h"

static const struct {
    const char *name;
    void (*build)(struct chex_net *net, int size, const int blocks[CHEX_NET_BLOCKS]);
    int size, blocks[CHEX_NET_BLOCKS];
} networks[] = {
#define ROW(name, family, size, ...) {#name, chex_net_build_##family, size, {__VA_ARGS__}},
    CHEX_NETWORKS(ROW) CHEX_TEST_NETWORKS(ROW)
#undef ROW
};

const char *const chex_net_names[] = {
#define NAME(name, ...) #name,
    CHEX_NETWORKS(NAME) CHEX_TEST_NETWORKS(NAME)
#undef NAME
        NULL,
};

#define ONE(...) +1
const size_t chex_net_count = 0 CHEX_NETWORKS(ONE);
#undef ONE

static bool failed(const struct chex_net *net) { return !net || net->op_count < 0; }
static int fail_build(struct chex_net *net) {
    if (net)
        net->op_count = -1;
    return 0;
}

struct chex_net *chex_net_new(const char *model, int classes) {
    struct chex_net *net = chex_alloc_zeroed(1, sizeof *net);
    if (!net)
        return NULL;
    net->model = model;
    net->classes = classes;
    net->bn_eps = 1e-5f;
    net->bn_momentum = 0.1f;
    /* ImageNet's values, which torchvision's weights expect. */
    static const float mean[3] = {0.485f, 0.456f, 0.406f}, std[3] = {0.229f, 0.224f, 0.225f};
    memcpy(net->mean, mean, sizeof mean);
    memcpy(net->std, std, sizeof std);
    return net;
}

int chex_net_add_buffer(struct chex_net *net, int channels) {
    if (failed(net) || !chex_alloc_grow(&net->buffers, (size_t)net->buffer_count,
                                        &net->buffer_capacity, sizeof *net->buffers))
        return fail_build(net);
    net->buffers[net->buffer_count] = (struct chex_buffer){.channels = channels, .from_op = -1};
    return net->buffer_count++;
}

static int add_param(struct chex_net *net, const char *name, const char *suffix,
                     enum chex_param_kind kind, int d0, int d1, int d2, int d3) {
    if (failed(net) || !chex_alloc_grow(&net->params, (size_t)net->param_total,
                                        &net->param_capacity, sizeof *net->params))
        return fail_build(net);
    struct chex_param *p = &net->params[net->param_total];
    *p = (struct chex_param){.kind = kind, .layer = net->layer, .dims = {d0, d1, d2, d3}};
    p->rank = kind == CHEX_PARAM_CONV ? 4 : kind == CHEX_PARAM_FC_WEIGHT ? 2 : 1;
    p->count = (size_t)d0 * (size_t)d1 * (size_t)d2 * (size_t)d3;
    snprintf(p->name, sizeof p->name, "%s.%s", name, suffix);
    return net->param_total++;
}

int chex_net_add_bn(struct chex_net *net, const char *name, int buffer, int channels) {
    if (failed(net) ||
        !chex_alloc_grow(&net->bns, (size_t)net->bn_count, &net->bn_capacity, sizeof *net->bns))
        return fail_build(net);
    struct chex_bn *bn = &net->bns[net->bn_count];
    *bn = (struct chex_bn){.channels = channels, .buffer = buffer};
    snprintf(bn->name, sizeof bn->name, "%s", name);
    bn->weight = add_param(net, name, "weight", CHEX_PARAM_BN_WEIGHT, channels, 1, 1, 1);
    bn->bias = add_param(net, name, "bias", CHEX_PARAM_BN_BIAS, channels, 1, 1, 1);
    bn->mean = add_param(net, name, "running_mean", CHEX_PARAM_BN_MEAN, channels, 1, 1, 1);
    bn->var = add_param(net, name, "running_var", CHEX_PARAM_BN_VAR, channels, 1, 1, 1);
    return net->bn_count++;
}

/* Adds an op without side input or parameters, which the caller adds. NULL: the building failed. */
static struct chex_op *add_op(struct chex_net *net, enum chex_op_kind kind, const char *name,
                              struct chex_operand in, int out) {
    if (failed(net) ||
        !chex_alloc_grow(&net->ops, (size_t)net->op_count, &net->op_capacity, sizeof *net->ops)) {
        fail_build(net);
        return NULL;
    }
    struct chex_op *op = &net->ops[net->op_count];
    *op = (struct chex_op){.kind = kind,
                           .in = in.buffer,
                           .in_channels = in.channels,
                           .in_bn = in.bn,
                           .out = out,
                           .out_channels = in.channels,
                           .side_in = CHEX_NET_NONE,
                           .side_bn = CHEX_NET_NONE,
                           .weight = CHEX_NET_NONE,
                           .bias = CHEX_NET_NONE};
    snprintf(op->name, sizeof op->name, "%s", name);
    if (out >= 0 && net->buffers[out].from_op < 0)
        net->buffers[out].from_op = net->op_count;
    net->op_count++;
    return op;
}

static void set_window(struct chex_op *op, int kernel, int stride, int pad) {
    op->kernel = kernel;
    op->stride = stride;
    op->pad = pad;
}

void chex_net_add_conv(struct chex_net *net, const char *name, const char *module,
                       struct chex_operand in, int out, int first, int channels, int kernel,
                       int stride) {
    struct chex_op *op = add_op(net, CHEX_OP_CONV, name, in, out);
    if (!op)
        return;
    op->out_first = first;
    op->out_channels = channels;
    set_window(op, kernel, stride, kernel / 2);
    op->weight =
        add_param(net, module, "weight", CHEX_PARAM_CONV, channels, in.channels, kernel, kernel);
}

void chex_net_add_pool(struct chex_net *net, const char *name, enum chex_op_kind kind,
                       struct chex_operand in, int out) {
    struct chex_op *op = add_op(net, kind, name, in, out);
    const bool max = kind == CHEX_OP_MAXPOOL;
    if (op)
        set_window(op, max ? 3 : 2, 2, max ? 1 : 0);
}

void chex_net_add_residual(struct chex_net *net, const char *name, struct chex_operand in,
                           struct chex_operand side, int out) {
    struct chex_op *op = add_op(net, CHEX_OP_RESIDUAL_ADD, name, in, out);
    if (!op)
        return;
    op->side_in = side.buffer;
    op->side_bn = side.bn;
    set_window(op, 1, 1, 0);
}

void chex_net_add_head(struct chex_net *net, const char *name, struct chex_operand in) {
    struct chex_op *op = add_op(net, CHEX_OP_HEAD, name, in, CHEX_NET_NONE);
    if (!op)
        return;
    op->out_channels = 0;
    op->weight =
        add_param(net, name, "weight", CHEX_PARAM_FC_WEIGHT, net->classes, in.channels, 1, 1);
    op->bias = add_param(net, name, "bias", CHEX_PARAM_FC_BIAS, net->classes, 1, 1, 1);
}

static bool is_running(enum chex_param_kind kind) {
    return kind == CHEX_PARAM_BN_MEAN || kind == CHEX_PARAM_BN_VAR;
}

/* Assigns offsets and sorts params: first the trainable parameters in the order in which the
 * network file added them (forward order), then the running statistics. */
static enum chex_status lay_out(struct chex_net *net, struct chex_error *err) {
    CHEX_AUTO_FREE int *moved = chex_alloc_zeroed((size_t)net->param_total, sizeof *moved);
    struct chex_param *sorted =
        moved ? chex_alloc_zeroed((size_t)net->param_total, sizeof *sorted) : NULL;
    if (!sorted)
        return chex_error_memory(err, "network %s", net->model);
    int at = 0;
    size_t offset = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < net->param_total; i++) {
            if (is_running(net->params[i].kind) != (pass == 1))
                continue;
            moved[i] = at;
            sorted[at] = net->params[i];
            sorted[at++].offset = offset;
            offset += net->params[i].count;
        }
        if (pass == 0)
            net->param_count = offset;
    }
    net->state_count = offset;
    for (int i = 0; i < net->bn_count; i++) {
        struct chex_bn *bn = &net->bns[i];
        bn->weight = moved[bn->weight];
        bn->bias = moved[bn->bias];
        bn->mean = moved[bn->mean];
        bn->var = moved[bn->var];
    }
    for (int i = 0; i < net->op_count; i++) {
        struct chex_op *op = &net->ops[i];
        op->weight = op->weight >= 0 ? moved[op->weight] : op->weight;
        op->bias = op->bias >= 0 ? moved[op->bias] : op->bias;
    }
    free(net->params);
    net->params = sorted;
    return CHEX_OK;
}

static size_t min_size(size_t a, size_t b) { return a < b ? a : b; }

/* Sets final_from of every op: the lowest offset of a parameter that the op or a later op uses. */
static void mark_final(struct chex_net *net) {
    size_t from = net->param_count;
    for (int i = net->op_count - 1; i >= 0; i--) {
        struct chex_op *op = &net->ops[i];
        if (op->weight >= 0)
            from = min_size(from, net->params[op->weight].offset);
        if (op->in_bn >= 0)
            from = min_size(from, net->params[net->bns[op->in_bn].weight].offset);
        if (op->side_bn >= 0)
            from = min_size(from, net->params[net->bns[op->side_bn].weight].offset);
        op->final_from = from;
    }
    /* A network file may add parameters out of forward order, as ResNet's downsample does. Then an
     * earlier op, whose backward is still to come, may own elements above this final_from. So
     * final_from is raised to the end of the parameters of all earlier ops. */
    size_t end = 0;
    for (int i = 0; i < net->op_count; i++) {
        struct chex_op *op = &net->ops[i];
        if (op->final_from < end)
            op->final_from = end;
        const int used[] = {op->weight, op->bias, op->in_bn >= 0 ? net->bns[op->in_bn].bias : -1,
                            op->side_bn >= 0 ? net->bns[op->side_bn].bias : -1};
        for (size_t k = 0; k < 4; k++)
            if (used[k] >= 0) {
                const struct chex_param *p = &net->params[used[k]];
                end = p->offset + p->count > end ? p->offset + p->count : end;
            }
    }
}

enum chex_status chex_net_finish(struct chex_net *net, struct chex_error *err) {
    if (failed(net))
        return chex_error_memory(err, "a network");
    if (!net->init)
        return chex_error_set(err, CHEX_E_FAIL, "network %s: no rule of initial values (init)",
                              net->model);
    CHEX_TRY(lay_out(net, err));
    mark_final(net);
    return CHEX_OK;
}

/* The number in "features-768"; 0: another name. */
static int features_of(const char *model) {
    int n = 0, end = 0;
    sscanf(model, CHEX_NET_FEATURES "%5d%n", &n, &end);
    return end && !model[end] && n > 0 && n <= CHEX_NET_FEATURES_MOST ? n : 0;
}

bool chex_net_is_features(const char *model) { return features_of(model) > 0; }

/* A network's name is its row's, or that of a classifier of features. */
static void build(struct chex_net *net, size_t row, const char *model) {
    const int channels = features_of(model);
    if (!channels) {
        networks[row].build(net, networks[row].size, networks[row].blocks);
        return;
    }
    snprintf(net->own_name, sizeof net->own_name, "%s", model);
    net->model = net->own_name;
    net->init = CHEX_INIT_DENSENET;
    const int x = chex_net_add_buffer(net, channels);
    chex_net_add_head(net, "classifier", (struct chex_operand){x, channels, CHEX_NET_NONE});
}

enum chex_status chex_net_create(const char *model, int classes, struct chex_net **net_out,
                                 struct chex_error *err) {
    for (size_t i = 0; i < CHEX_COUNT(networks); i++) {
        if (!chex_net_is_features(model) && strcmp(networks[i].name, model) != 0)
            continue;
        CHEX_AUTO(chex_net_destroy_at)
        struct chex_net *net = chex_net_new(networks[i].name, classes);
        if (net)
            build(net, i, model);
        CHEX_TRY(chex_net_finish(net, err));
        *net_out = CHEX_TAKE(net);
        return CHEX_OK;
    }
    char known[256] = "";
    for (size_t i = 0, at = 0; i < chex_net_count && at < sizeof known; i++)
        at += (size_t)snprintf(known + at, sizeof known - at, "%s%s", i ? ", " : "",
                               chex_net_names[i]);
    return chex_error_set(err, CHEX_E_USAGE, "unknown model '%s': expected one of %s", model,
                          known);
}

void chex_net_destroy(struct chex_net *net) {
    if (!net)
        return;
    CHEX_FREE(net->ops, net->buffers, net->bns, net->params, net);
}

static void name_member(int k, const char *name, char out[CHEX_NET_NAME_BYTES]) {
    snprintf(out, CHEX_NET_NAME_BYTES, CHEX_NET_MEMBER "%.70s", k, name);
}

enum chex_status chex_net_join(struct chex_net *const *nets, int count, struct chex_net **net_out,
                               struct chex_error *err) {
    size_t bns = 0, params = 0;
    struct chex_net *n = *net_out = chex_net_new("ensemble", nets[0]->classes);
    for (int k = 0; k < count; k++) {
        bns += (size_t)nets[k]->bn_count;
        params += (size_t)nets[k]->param_total;
    }
    if (!n || !(n->bns = chex_alloc_zeroed(bns, sizeof *n->bns)) ||
        !(n->params = chex_alloc_zeroed(params, sizeof *n->params)))
        return chex_error_memory(err, "%d networks", count);
    for (int k = 0; k < count; k++) {
        for (int i = 0; i < nets[k]->bn_count; i++)
            name_member(k, nets[k]->bns[i].name, n->bns[n->bn_count++].name);
        for (int i = 0; i < nets[k]->param_total; i++) {
            struct chex_param *p = &n->params[n->param_total++];
            *p = nets[k]->params[i];
            name_member(k, nets[k]->params[i].name, p->name);
            p->offset += n->state_count;
        }
        n->param_count += nets[k]->param_count;
        n->state_count += nets[k]->state_count;
    }
    return CHEX_OK;
}

static int out_size(const struct chex_op *op, int in) {
    if (op->kind == CHEX_OP_RESIDUAL_ADD)
        return in;
    return (in + 2 * op->pad - op->kernel) / op->stride + 1;
}

enum chex_status chex_net_shapes(const struct chex_net *net, int size, int *hw_out,
                                 struct chex_error *err) {
    enum { MIN = 32, MAX = 4096 };
    if (size < MIN || size > MAX)
        return chex_error_set(err, CHEX_E_USAGE, "--image-size %d: %s takes %d to %d px", size,
                              net->model, MIN, MAX);
    for (int i = 0; i < net->buffer_count; i++)
        hw_out[i] = 0;
    for (int i = 0; i < net->op_count; i++) {
        const struct chex_op *op = &net->ops[i];
        if (op->out >= 0)
            hw_out[op->out] = out_size(op, op->in < 0 ? size : hw_out[op->in]);
    }
    return CHEX_OK;
}

double chex_op_macs(const struct chex_net *net, int op, int size) {
    enum { MAX_BUFFERS = 512 };
    int hw[MAX_BUFFERS];
    const struct chex_op *o = &net->ops[op];
    if (net->buffer_count > MAX_BUFFERS || chex_net_shapes(net, size, hw, NULL) != CHEX_OK)
        return 0;
    if (o->kind == CHEX_OP_HEAD)
        return (double)o->in_channels * net->classes;
    if (o->kind != CHEX_OP_CONV)
        return 0;
    return (double)hw[o->out] * hw[o->out] * o->out_channels * o->in_channels * o->kernel *
           o->kernel;
}

double chex_net_macs(const struct chex_net *net, int size) {
    double sum = 0;
    for (int i = 0; i < net->op_count; i++)
        sum += chex_op_macs(net, i, size);
    return sum;
}

int chex_net_find_param(const struct chex_net *net, const char *name) {
    for (int i = 0; i < net->param_total; i++)
        if (strcmp(net->params[i].name, name) == 0)
            return i;
    return -1;
}

struct init {
    const struct chex_net *net;
    uint64_t seed;
    float *state;
};

/* Elements [from, to) of a parameter. */
static void init_part(const struct init *init, int index, size_t from, size_t to) {
    const struct chex_net *net = init->net;
    const struct chex_param *p = &net->params[index];
    float *w = init->state + p->offset;
    uint64_t item = (uint64_t)index;
    bool dense = net->init == CHEX_INIT_DENSENET;
    double fan_in = (double)p->dims[1] * p->dims[2] * p->dims[3];
    double fan_out = (double)p->dims[0] * p->dims[2] * p->dims[3];
    double conv_std = sqrt(2.0 / (dense ? fan_in : fan_out));
    double features = p->kind == CHEX_PARAM_FC_WEIGHT
                          ? p->dims[1]
                          : net->params[net->ops[net->op_count - 1].weight].dims[1];
    double bound = 1.0 / sqrt(features);
    if (p->kind == CHEX_PARAM_CONV)
        chex_normal_fill(init->seed, item, (float)conv_std, w, from, to);
    for (size_t i = from; i < to; i++)
        switch (p->kind) {
        case CHEX_PARAM_CONV: return;
        case CHEX_PARAM_BN_WEIGHT:
        case CHEX_PARAM_BN_VAR: w[i] = 1; break;
        case CHEX_PARAM_BN_BIAS:
        case CHEX_PARAM_BN_MEAN: w[i] = 0; break;
        case CHEX_PARAM_FC_BIAS:
        case CHEX_PARAM_FC_WEIGHT: {
            float u = chex_rng_unit(chex_rng(init->seed, CHEX_RNG_INIT, item, (uint32_t)i).v[0]);
            w[i] = dense && p->kind == CHEX_PARAM_FC_BIAS
                       ? 0
                       : (float)((2.0 * (double)u - 1.0) * bound);
        } break;
        }
}

enum { INIT_PART = 1 << 14 }; /* elements per item, about 0.3 ms */

/* Item: a part of a parameter, counted over all of them. */
static void init_item(void *arg, size_t item, int worker) {
    (void)worker;
    const struct init *init = arg;
    for (int i = 0; i < init->net->param_total; i++) {
        size_t count = init->net->params[i].count, parts = (count + INIT_PART - 1) / INIT_PART;
        if (item < parts) {
            size_t from = item * INIT_PART;
            init_part(init, i, from, count - from < INIT_PART ? count : from + INIT_PART);
            return;
        }
        item -= parts;
    }
}

void chex_net_init_state(const struct chex_net *net, uint64_t seed, int threads, float *state) {
    struct init init = {net, seed, state};
    struct chex_pool *pool = NULL;
    struct chex_error err; /* ignored: without a thread pool the caller does all the work */
    size_t items = 0;
    for (int i = 0; i < net->param_total; i++)
        items += (net->params[i].count + INIT_PART - 1) / INIT_PART;
    if (threads > 1 && chex_pool_create(threads, &pool, &err) == CHEX_OK)
        chex_pool_run(pool, items, init_item, &init);
    else
        for (size_t i = 0; i < items; i++)
            init_item(&init, i, 0);
    chex_pool_destroy(pool);
}

void chex_net_init_head(const struct chex_net *net, uint64_t seed, float *state) {
    const struct init init = {net, seed, state};
    for (int i = 0; i < net->param_total; i++)
        if (chex_param_is_head(&net->params[i]))
            init_part(&init, i, 0, net->params[i].count);
}
