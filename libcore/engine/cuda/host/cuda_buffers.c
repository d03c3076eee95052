/* SPDX-License-Identifier: Apache-2.0
 *
 * Decisions made once, when the engine is created: the algorithm of each convolution (a fixed
 * choice, which cuda_choices.c may change), and the layout of device memory.
 *
 * Device memory is one allocation, the arena. The same functions lay it out twice. The first time
 * the arena does not exist: addresses are placeholders and only the bytes count. The algorithms are
 * chosen in between, because their scratch memory is part of the arena. Feature maps and gradients
 * whose lifetimes do not overlap share memory (engine/lifetimes.h).
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "engine/cuda/host/cuda_engine.h"
#include "engine/frozen.h"
#include "engine/lifetimes.h"
#include "engine/update.h"

/* The algorithms that each stage tries, best first. An algorithm that does not support the
 * convolution, or whose preparation fails, is skipped. Those of s5 that s4 does not have are for
 * capability 9.0 only. */
static const char *const stage_algos[CUDA_STAGES][CUDA_ALGO_NAMES] = {
    [CUDA_S0] = {"plain"},
    [CUDA_S1] = {"dnn", "plain"},
    [CUDA_S4] = {"1x1", "3x3", "dnn", "plain"},
    [CUDA_S5] = {"1x1-wgmma", "1x1-cluster", "3x3-wgmma", "1x1", "3x3", "dnn", "plain"},
};

/* ---- kernel arguments ---- */

static char *at_channel(const struct cuda_engine *e, char *base, int first) {
    return base ? base + (size_t)first * gpu_type_bytes(e->type) : NULL;
}

struct gpu_map chex_cuda_x(const struct cuda_engine *e, int buffer, int n, int first,
                           int channels) {
    const struct cuda_buf *b = &e->bufs[buffer];
    return (struct gpu_map){.data = at_channel(e, b->x, first),
                            .type = e->type,
                            .n = n,
                            .hw = b->hw,
                            .channels = channels,
                            .pitch = b->channels};
}

struct gpu_map chex_cuda_g(const struct cuda_engine *e, int buffer, int n, int first,
                           int channels) {
    struct gpu_map m = chex_cuda_x(e, buffer, n, first, channels);
    m.data = at_channel(e, e->bufs[buffer].g, first);
    return m;
}

struct gpu_map chex_cuda_in(const struct cuda_engine *e, const struct chex_op *op, int n) {
    if (op->in != CHEX_NET_IMAGE)
        return chex_cuda_x(e, op->in, n, 0, op->in_channels);
    return (struct gpu_map){.data = e->image,
                            .type = e->type,
                            .n = n,
                            .hw = e->config.image_size,
                            .channels = e->image_channels,
                            .pitch = e->image_channels};
}

struct gpu_norm chex_cuda_norm(const struct cuda_engine *e, int bn, bool relu, bool training) {
    if (bn < 0)
        return (struct gpu_norm){0};
    const struct chex_bn *b = &e->net->bns[bn];
    const struct cuda_buf *buf = &e->bufs[b->buffer];
    const struct chex_param *p = e->net->params;
    return (struct gpu_norm){.mean = training ? buf->mean : e->w + p[b->mean].offset,
                             .inv = training ? buf->inv : e->running_inv[bn],
                             .gamma = e->w + p[b->weight].offset,
                             .beta = e->w + p[b->bias].offset,
                             .relu = relu};
}

struct gpu_stats chex_cuda_stats(const struct cuda_engine *e, const struct chex_op *op,
                                 bool training) {
    const struct cuda_buf *b = &e->bufs[op->out];
    if (!training || !b->normed)
        return (struct gpu_stats){0};
    return (struct gpu_stats){.partial = e->partial[0],
                              .ticket = e->ticket,
                              .mean = b->mean + op->out_first,
                              .var = b->var + op->out_first,
                              .inv = b->inv + op->out_first,
                              .eps = e->net->bn_eps};
}

struct gpu_sums chex_cuda_sums(const struct cuda_engine *e, int bn, int side, float *grad) {
    if (bn < 0)
        return (struct gpu_sums){0};
    const struct chex_bn *b = &e->net->bns[bn];
    const struct cuda_buf *buf = &e->bufs[b->buffer];
    return (struct gpu_sums){.partial = e->partial[side],
                             .ticket = e->ticket + side * GPU_TICKETS,
                             .dgamma = grad ? grad + e->net->params[b->weight].offset : NULL,
                             .dbeta = grad ? grad + e->net->params[b->bias].offset : NULL,
                             .bsum = buf->bsum,
                             .csum = buf->csum};
}

struct gpu_deferred_grad chex_cuda_deferred_grad(const struct cuda_engine *e,
                                                 const struct chex_op *op, int n) {
    const struct cuda_buf *b = &e->bufs[op->out];
    struct gpu_deferred_grad t = {.g = chex_cuda_g(e, op->out, n, op->out_first, op->out_channels),
                                  .x = chex_cuda_x(e, op->out, n, op->out_first, op->out_channels)};
    if (b->normed) {
        t.bsum = b->bsum + op->out_first;
        t.csum = b->csum + op->out_first;
    }
    return t;
}

struct gpu_conv_forward chex_cuda_conv_forward(const struct cuda_engine *e, int index, int n,
                                               bool training) {
    const struct chex_op *op = &e->net->ops[index];
    return (struct gpu_conv_forward){
        .in = chex_cuda_in(e, op, n),
        .norm = chex_cuda_norm(e, op->in_bn, true, training),
        .window = {op->kernel, op->stride, op->pad},
        .weight = e->ops[index].weight,
        .out = chex_cuda_x(e, op->out, n, op->out_first, op->out_channels),
        .stats = chex_cuda_stats(e, op, training),
        .variant = e->ops[index].kernel[0].variant,
    };
}

struct gpu_conv_backward chex_cuda_conv_backward(const struct cuda_engine *e, int index, int n,
                                                 float *grad) {
    const struct chex_op *op = &e->net->ops[index];
    const bool image = op->in == CHEX_NET_IMAGE;
    struct gpu_conv_backward b = {
        .out = chex_cuda_deferred_grad(e, op, n),
        .in = chex_cuda_in(e, op, n),
        .norm = chex_cuda_norm(e, op->in_bn, true, true),
        .window = {op->kernel, op->stride, op->pad},
        .weight = e->ops[index].weight,
        .weight_t = e->ops[index].weight_t,
        .add = e->ops[index].add,
        .variant = e->ops[index].kernel[1].variant,
        .sums = chex_cuda_sums(e, op->in_bn, 0, grad),
        .dweight = image  ? e->padded_dweight
                   : grad ? grad + e->net->params[op->weight].offset
                          : NULL,
    };
    if (!image)
        b.in_g = chex_cuda_g(e, op->in, n, 0, op->in_channels);
    return b;
}

void chex_cuda_conv(const struct cuda_engine *e, int op, bool backward, float *grad,
                    struct cuda_conv *out) {
    *out = (struct cuda_conv){.f = backward ? NULL : &out->forward,
                              .b = backward ? &out->backward : NULL};
    if (backward)
        out->backward = chex_cuda_conv_backward(e, op, e->config.batch, grad);
    else
        out->forward = chex_cuda_conv_forward(e, op, e->config.batch, e->config.training);
}

/* ---- choice of algorithms ---- */

static const struct gpu_conv_algo *algo_of(const char *name) {
    for (size_t i = 0; name && gpu_conv_algos[i]; i++)
        if (strcmp(gpu_conv_algos[i]->name, name) == 0)
            return gpu_conv_algos[i];
    return NULL;
}

int chex_cuda_stage_algos(const struct cuda_engine *e,
                          const struct gpu_conv_algo *out[CUDA_ALGO_NAMES]) {
    int count = 0;
    for (int i = 0; i < CUDA_ALGO_NAMES && stage_algos[e->stage][i]; i++)
        if ((out[count] = algo_of(stage_algos[e->stage][i])))
            count++;
    return count;
}

static bool is_of_stage(enum cuda_stage stage, const struct gpu_conv_algo *algo) {
    for (int i = 0; i < CUDA_ALGO_NAMES && stage_algos[stage][i]; i++)
        if (strcmp(stage_algos[stage][i], algo->name) == 0)
            return true;
    return false;
}

/* Counts convolutions that use the plain kernels although the stage has faster algorithms, and
 * those that use an algorithm of stage s5. why: reason for the first one that is plain. */
struct fallback_count {
    int all, plain, s5;
    struct chex_error why;
};

static void count_algo(struct fallback_count *left, const struct cuda_engine *e,
                       const struct gpu_conv_algo *algo, const struct chex_error *why) {
    left->all++;
    if (!is_of_stage(CUDA_S4, algo))
        left->s5++;
    if (e->stage == CUDA_S0 || strcmp(algo->name, "plain") != 0)
        return;
    if (left->plain++ == 0)
        left->why = *why;
}

static enum chex_status choose_algo(struct cuda_engine *e, int index, bool backward,
                                    struct fallback_count *left, struct chex_error *err) {
    const struct gpu_conv_algo *algos[CUDA_ALGO_NAMES];
    const int count = chex_cuda_stage_algos(e, algos);
    const char *const op = e->net->ops[index].name, *const direction =
                                                        backward ? "backward" : "forward";
    struct cuda_kernel *kernel = &e->ops[index].kernel[backward];
    struct cuda_conv c;
    struct chex_error why = {0};
    chex_cuda_conv(e, index, backward, e->w, &c);
    for (int i = 0; i < count; i++) {
        const struct gpu_conv_algo *algo = algos[i];
        if (!algo->fits(&e->device, c.f, c.b))
            continue;
        if (algo->prepare && algo->prepare(&e->device, c.f, c.b, &kernel->state, &why) != CHEX_OK) {
            chex_debug("cuda: %s %s: not by %s: %s", op, direction, algo->name, why.text);
            continue;
        }
        kernel->algo = algo;
        count_algo(left, e, algo, &why);
        chex_debug("cuda: %s %s by %s", op, direction, algo->name);
        return CHEX_OK;
    }
    return chex_error_set(err, CHEX_E_ENV,
                          "cuda engine: %s %s: no algorithm of stage %s supports it%s%s", op,
                          direction, e->variant, why.text[0] ? ": " : "", why.text);
}

static enum chex_status choose_algos(struct cuda_engine *e, struct chex_error *err) {
    struct fallback_count left = {0};
    for (int i = 0; i < e->net->op_count; i++) {
        if (e->net->ops[i].kind != CHEX_OP_CONV || e->ops[i].own_stem)
            continue;
        CHEX_TRY(choose_algo(e, i, false, &left, err));
        if (e->config.training)
            CHEX_TRY(choose_algo(e, i, true, &left, err));
    }
    if (left.plain)
        chex_warn("cuda: plain kernels, which are slow, have %d of %d convolutions: %s", left.plain,
                  left.all,
                  left.why.text[0] ? left.why.text
                  : algo_of("dnn") ? "cuDNN does not take them"
                                   : "this module was built without cuDNN");
    if (e->stage == CUDA_S5 && e->device.capability == CUDA_S5_CAPABILITY && !left.s5)
        chex_info("cuda: stage s5 computes as s4: its kernels support no convolution of %s in %s",
                  e->net->model, chex_precision_names[e->config.precision]);
    return CHEX_OK;
}

/* Whether stem.cu computes the operation. It reads grey values, with the normalisation folded into
 * its weights. */
static bool own_stem_fits(const struct cuda_engine *e, const struct chex_op *op) {
    return e->stage >= CUDA_S4 && e->type != GPU_F32 && e->device.capability >= 80 &&
           op->kind == CHEX_OP_CONV && op->in == CHEX_NET_IMAGE && op->kernel == 7 &&
           op->stride == 2 && op->pad == 3 && op->out_channels == 64;
}

/* The largest need of an operation, and room for parts of the weight gradients of others, so that
 * operations rarely wait for each other's sums. */
static void size_workspace(struct cuda_engine *e) {
    size_t largest = 0, backward = 0;
    for (int i = 0; i < e->net->op_count; i++) {
        struct cuda_op *op = &e->ops[i];
        size_t need[3] = {chex_cuda_candidates_bytes(e, i, false),
                          chex_cuda_candidates_bytes(e, i, true), 0};
        if (op->own_stem)
            need[2] = gpu_stem_workspace(&e->device, e->config.batch, e->config.image_size);
        op->backward_bytes = op->own_stem ? need[2] : chex_cuda_choice_bytes(e, i, true);
        if (op->kernel[1].algo && op->kernel[1].algo->uses_side)
            backward += cuda_padded(need[1]);
        for (int k = 0; k < 3; k++)
            largest = need[k] > largest ? need[k] : largest;
    }
    const size_t room = backward < CUDA_PARTS_BYTES ? backward : CUDA_PARTS_BYTES;
    e->workspace_bytes = cuda_padded(largest) + room;
}

/* ---- memory ---- */

/* Takes count * size bytes of the arena. If the arena does not exist yet, the result is a non-NULL
 * placeholder. */
static void *arena_take(struct cuda_engine *e, size_t count, size_t size) {
    char *p = (char *)((uintptr_t)e->arena + CUDA_ALIGN * (e->arena == NULL) + e->arena_at);
    e->arena_at += cuda_padded(count * size);
    return p;
}

static size_t map_bytes(const struct cuda_engine *e, int buffer) {
    const struct cuda_buf *b = &e->bufs[buffer];
    return cuda_padded((size_t)e->config.batch * (size_t)b->hw * (size_t)b->hw *
                       (size_t)b->channels * gpu_type_bytes(e->type));
}

/* Places feature maps and their gradients. lives: array of 2 * buffer_count. */
static void place_maps(struct cuda_engine *e, struct chex_life *lives) {
    const int count = e->net->buffer_count;
    struct chex_life *g = e->config.training ? lives + count : NULL;
    if (g)
        chex_lives_of_pass(e->net, lives, g);
    else
        chex_lives_of_buffers(e->net, lives);
    for (int b = 0; b < count; b++) {
        lives[b].bytes = map_bytes(e, b);
        if (g)
            g[b].bytes = lives[b].bytes;
    }
    e->maps_bytes = chex_lives_place(lives, g ? 2 * count : count);
    char *base = e->maps = arena_take(e, e->maps_bytes, 1);
    for (int b = 0; b < count; b++) {
        e->bufs[b].x = base + lives[b].offset;
        e->bufs[b].g = g ? base + g[b].offset : NULL;
    }
}

static void place_statistics(struct cuda_engine *e) {
    const size_t begin = e->arena_at;
    e->statistics = arena_take(e, 0, 1);
    for (int b = 0; b < e->net->buffer_count; b++) {
        struct cuda_buf *buf = &e->bufs[b];
        if (!buf->normed || !e->config.training)
            continue;
        buf->mean = arena_take(e, 3 * (size_t)buf->channels, sizeof *buf->mean);
        buf->var = buf->mean + buf->channels;
        buf->inv = buf->var + buf->channels;
    }
    e->statistics_bytes = e->arena_at - begin;
    const size_t before = e->arena_at;
    e->shared_sums = arena_take(e, 0, 1);
    for (int b = 0; b < e->net->buffer_count; b++) {
        struct cuda_buf *buf = &e->bufs[b];
        if (!buf->normed || !e->config.training)
            continue;
        buf->bsum = arena_take(e, 2 * (size_t)buf->channels, sizeof *buf->bsum);
        buf->csum = buf->bsum + buf->channels;
    }
    e->shared_sums_bytes = e->arena_at - before;
    for (int i = 0; i < e->net->bn_count; i++)
        e->running_inv[i] = arena_take(e, (size_t)e->net->bns[i].channels, sizeof(float));
}

/* Input channels of the weight copies; padded for the image. */
static int padded_in(const struct cuda_engine *e, const struct chex_op *op) {
    return op->in == CHEX_NET_IMAGE ? e->image_channels : op->in_channels;
}

/* The copies of a kind, one after the other; returns the first. */
static char *place_copies(struct cuda_engine *e, bool transposed, size_t *count_out) {
    const size_t bytes = gpu_type_bytes(e->type), begin = e->arena_at;
    char *first = arena_take(e, 0, 1);
    for (int i = 0; i < e->net->op_count; i++) {
        const struct chex_op *op = &e->net->ops[i];
        const size_t taps = (size_t)(op->kernel * op->kernel);
        if (op->kind != CHEX_OP_CONV ||
            (transposed && (op->in == CHEX_NET_IMAGE || !e->config.training)))
            continue;
        *(transposed ? &e->ops[i].weight_t : &e->ops[i].weight) =
            arena_take(e, (size_t)op->out_channels * taps * (size_t)padded_in(e, op), bytes);
    }
    *count_out = (e->arena_at - begin) / bytes;
    return first;
}

static void place_weights(struct cuda_engine *e) {
    e->copies = place_copies(e, false, &e->copies_count);
    e->copies_t = place_copies(e, true, &e->copies_t_count);
}

static void place_state(struct cuda_engine *e) {
    const size_t state = e->net->state_count;
    e->w = arena_take(e, state, sizeof(float));
    for (int k = 0; k < 2 && e->config.training; k++)
        e->moment[k] = arena_take(e, state, sizeof(float));
    if (e->config.training && e->config.ema_decay > 0)
        e->ema = arena_take(e, state, sizeof(float));
    e->params = arena_take(e, (size_t)e->net->param_total, sizeof *e->params);
    e->jobs = arena_take(e, (size_t)e->net->bn_count, sizeof *e->jobs);
    e->norms = arena_take(e, 2 * (size_t)e->net->param_total, sizeof(float));
    e->step = arena_take(e, 1, sizeof *e->step);
    e->clip = arena_take(e, 1, sizeof *e->clip);
    e->loss_scale = arena_take(e, 1, sizeof *e->loss_scale);
}

static void place_rest(struct cuda_engine *e) {
    const size_t n = (size_t)e->config.batch, size = (size_t)e->config.image_size;
    const size_t classes = (size_t)e->net->classes;
    size_t widest = 0, features = 0, first_count = 0;
    for (int b = 0; b < e->net->buffer_count; b++)
        widest = (size_t)e->bufs[b].channels > widest ? (size_t)e->bufs[b].channels : widest;
    for (int i = 0; i < e->net->op_count; i++) {
        const struct chex_op *op = &e->net->ops[i];
        if (op->kind == CHEX_OP_HEAD)
            features = (size_t)op->in_channels;
        if (op->kind == CHEX_OP_CONV && op->in == CHEX_NET_IMAGE)
            first_count = (size_t)(op->out_channels * op->kernel * op->kernel * e->image_channels);
        if (op->kind == CHEX_OP_MAXPOOL && e->config.training) {
            const size_t hw = (size_t)e->bufs[op->out].hw;
            e->ops[i].argmax = arena_take(e, n * hw * hw * (size_t)op->out_channels, 1);
        }
    }
    for (int k = 0; k < 2; k++)
        e->partial[k] = arena_take(e, 2 * (size_t)GPU_MAX_BLOCKS * widest, sizeof(float));
    e->ticket = arena_take(e, 2 * GPU_TICKETS, sizeof *e->ticket);
    e->pooled = arena_take(e, n * features, sizeof(float));
    e->dpooled = arena_take(e, n * features, sizeof(float));
    e->logits = arena_take(e, n * classes, sizeof(float));
    e->dlogits = arena_take(e, n * classes, sizeof(float));
    e->loss = arena_take(e, 1, sizeof *e->loss);
    e->loss_terms.factors = arena_take(e, classes * GPU_LABELS, sizeof *e->loss_terms.factors);
    e->padded_dweight = arena_take(e, first_count, sizeof(float));
    e->image = arena_take(e, n * size * size * (size_t)e->image_channels, gpu_type_bytes(e->type));
    e->folded = arena_take(e, gpu_stem_folded_bytes(), 1);
    for (int s = 0; s < CUDA_SLOTS; s++) {
        e->slots[s].pixels = arena_take(e, n * size * size, sizeof(float));
        e->slots[s].labels = arena_take(e, n * classes, 1);
    }
    e->workspace = arena_take(e, e->workspace_bytes, 1);
}

/* Lays out the whole arena from its start. */
static void place_all(struct cuda_engine *e, struct chex_life *lives) {
    e->arena_at = 0;
    place_maps(e, lives);
    place_statistics(e);
    place_weights(e);
    place_state(e);
    place_rest(e);
}

/* The largest batch whose memory fits in `limit`, by bisection; 0: none. Assumes that the workspace
 * grows with the batch. */
static int largest_batch(struct cuda_engine *e, struct chex_life *lives, size_t limit) {
    const int asked = e->config.batch;
    int fits = 0, too_many = asked;
    while (too_many - fits > 1) {
        e->config.batch = fits + (too_many - fits) / 2;
        size_workspace(e);
        place_all(e, lives);
        *(e->arena_at <= limit ? &fits : &too_many) = e->config.batch;
    }
    e->config.batch = asked;
    return fits;
}

size_t chex_cuda_arena_bytes(struct cuda_engine *e, int batch) {
    const int asked = e->config.batch;
    CHEX_AUTO_FREE struct chex_life *lives =
        chex_alloc_zeroed(2 * (size_t)e->net->buffer_count, sizeof *lives);
    if (!lives)
        return SIZE_MAX;
    e->config.batch = batch;
    size_workspace(e);
    place_all(e, lives);
    const size_t bytes = e->arena_at;
    e->config.batch = asked;
    size_workspace(e);
    place_all(e, lives);
    return bytes;
}

static enum chex_status allocate(struct cuda_engine *e, struct chex_life *lives,
                                 struct chex_error *err) {
    const size_t others = cuda_reserve_bytes(e);
    /* Query free memory again: the algorithms have loaded their code since the device was opened.
     */
    size_t free_bytes, total_bytes;
    CHEX_CUDA(cudaMemGetInfo(&free_bytes, &total_bytes));
    place_all(e, lives);
    const size_t wanted = e->arena_at;
    const size_t limit = free_bytes > others ? free_bytes - others : 0;
    if (wanted <= limit) {
        e->arena_bytes = wanted;
        CHEX_CUDA(cudaMalloc((void **)&e->arena, wanted));
        place_all(e, lives);
        return CHEX_OK;
    }
    const int fits = largest_batch(e, lives, limit);
    char advice[96];
    snprintf(advice, sizeof advice,
             fits ? "the largest batch that fits is %d" : "not even one image fits", fits);
    return chex_error_set(err, CHEX_E_RESOURCE,
                          "%s (%s): %.1f GiB are free, but %s with %d px and batch %d needs %.1f "
                          "GiB: %s",
                          e->device.name, e->device.pci_bus_id, (double)free_bytes / 1073741824.0,
                          e->net->model, e->config.image_size, e->config.batch,
                          (double)(wanted + others) / 1073741824.0, advice);
}

/* Cuts backward, from the last operation to the first: first into segments with about the same
 * number of parameters, then the last of them, which takes most of the time and has few parameters,
 * at half of its products. So most gradients travel before it ends. */
static void cut_segments(struct cuda_engine *e) {
    enum { BY_PARAMS = CUDA_SEGMENTS - 1 };
    const struct chex_net *net = e->net;
    const int size = e->config.image_size;
    e->first_trained = chex_first_trained_op(&e->config);
    e->segment_end[0] = net->op_count;
    e->segments = 0;
    size_t had = net->param_count;
    for (int i = net->op_count - 1; i > 0 && e->segments + 1 < BY_PARAMS; i--)
        if (had - net->ops[i].final_from >= net->param_count / BY_PARAMS) {
            e->segment_end[++e->segments] = i;
            had = net->ops[i].final_from;
        }
    double all = 0, done = 0;
    int cut = e->segment_end[e->segments];
    for (int i = 0; i < cut; i++)
        all += chex_op_macs(net, i, size);
    while (cut > 0 && done < all / 2)
        done += chex_op_macs(net, --cut, size);
    if (cut > 0 && cut < e->segment_end[e->segments])
        e->segment_end[++e->segments] = cut;
    e->segment_end[++e->segments] = 0;
}

static enum chex_status host_tables(struct cuda_engine *e, struct chex_error *err) {
    const struct chex_net *net = e->net;
    e->ops = chex_alloc_zeroed((size_t)net->op_count, sizeof *e->ops);
    e->bufs = chex_alloc_zeroed((size_t)net->buffer_count, sizeof *e->bufs);
    e->running_inv = chex_alloc_zeroed((size_t)net->bn_count, sizeof *e->running_inv);
    CHEX_AUTO_FREE int *hw = chex_alloc_zeroed((size_t)net->buffer_count, sizeof *hw);
    CHEX_AUTO_FREE bool *add = chex_alloc_zeroed(2 * (size_t)net->op_count, sizeof *add);
    if (!e->ops || !e->bufs || !e->running_inv || !hw || !add)
        return chex_error_memory(err, "cuda engine");
    CHEX_TRY(chex_net_shapes(net, e->config.image_size, hw, err));
    CHEX_TRY(chex_gradient_adds(net, add, add + net->op_count, err));
    for (int b = 0; b < net->buffer_count; b++) {
        e->bufs[b].hw = hw[b];
        e->bufs[b].channels = net->buffers[b].channels;
    }
    for (int i = 0; i < net->bn_count; i++)
        e->bufs[net->bns[i].buffer].normed = true;
    for (int i = 0; i < net->op_count; i++) {
        e->ops[i].add = add[i];
        e->ops[i].side_add = add[net->op_count + i];
        e->ops[i].own_stem = own_stem_fits(e, &net->ops[i]);
    }
    return CHEX_OK;
}

enum chex_status chex_cuda_plan(struct cuda_engine *e, struct chex_error *err) {
    e->image_channels = e->type == GPU_F32 ? 4 : 8;
    CHEX_TRY(host_tables(e, err));
    if (e->config.training)
        cut_segments(e);
    CHEX_AUTO_FREE struct chex_life *lives =
        chex_alloc_zeroed(2 * (size_t)e->net->buffer_count, sizeof *lives);
    if (!lives)
        return chex_error_memory(err, "cuda engine");
    place_all(e, lives); /* algorithms test map pointers for NULL */
    CHEX_TRY(choose_algos(e, err));
    size_workspace(e);
    CHEX_TRY(allocate(e, lives, err));
    CHEX_CUDA(cudaMemsetAsync(e->ticket, 0, 2 * GPU_TICKETS * sizeof *e->ticket, e->stream));
    return CHEX_OK;
}

void chex_cuda_plan_release(struct cuda_engine *e) {
    for (int i = 0; e->ops && i < 2 * e->net->op_count; i++) {
        const struct cuda_kernel *k = &e->ops[i / 2].kernel[i % 2];
        if (k->algo && k->algo->release)
            k->algo->release(k->state);
    }
    CHEX_FREE(e->ops, e->bufs, e->running_inv);
    cudaFree(e->arena);
}
