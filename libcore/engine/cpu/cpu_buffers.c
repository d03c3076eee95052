/* SPDX-License-Identifier: Apache-2.0
 *
 * Decisions and allocations at creation: tiles of each operation, placement of the buffers in
 * memory, scratch per thread. After this the engine allocates nothing.
 */

#include "base/alloc.h"
#include "engine/cpu/cpu_fusion.h"
#include "engine/lifetimes.h"

/* A batch is cut into at least this many tiles, if it has enough images... */
enum { TILES = 8 };
/* ...but a tile of whole images has at least this many pixels. With fewer, register tiles are
 * partly empty and each loaded weight is used too rarely. */
enum { MIN_PIXELS = 48 };

struct cpu_tiling chex_cpu_tiling(int hw, int pixels) {
    int rows = pixels / hw;
    rows = rows < 1 ? 1 : rows;
    if (rows < hw) {
        int bands = (hw + rows - 1) / rows;
        return (struct cpu_tiling){hw, (hw + bands - 1) / bands, 1};
    }
    return (struct cpu_tiling){hw, hw, pixels / (hw * hw)};
}

struct cpu_tiling chex_cpu_tiling_for(struct cpu_tiling largest, int n) {
    if (largest.rows < largest.hw)
        return largest;
    int area = largest.hw * largest.hw;
    int images = (n + TILES - 1) / TILES, min_images = (MIN_PIXELS + area - 1) / area;
    images = images < min_images ? min_images : images;
    images = images > largest.images ? largest.images : images;
    int count = (n + images - 1) / images;
    largest.images = (n + count - 1) / count;
    return largest;
}

int chex_cpu_tile_count(struct cpu_tiling t, int n) {
    return t.rows < t.hw ? n * ((t.hw + t.rows - 1) / t.rows) : (n + t.images - 1) / t.images;
}

struct cpu_tile chex_cpu_tile(struct cpu_tiling t, int n, int index) {
    if (t.rows < t.hw) {
        int bands = (t.hw + t.rows - 1) / t.rows, row = index % bands * t.rows;
        return (struct cpu_tile){index / bands, 1, row, t.hw - row < t.rows ? t.hw - row : t.rows};
    }
    int image = index * t.images;
    return (struct cpu_tile){image, n - image < t.images ? n - image : t.images, 0, t.hw};
}

struct cpu_job chex_cpu_job(struct cpu_engine *e, int index, const struct chex_batch *batch,
                            struct cpu_tiling largest) {
    struct cpu_job job = {.e = e,
                          .index = index,
                          .op = &e->net->ops[index],
                          .n = batch->n,
                          .pixels = batch->pixels,
                          .tiling = chex_cpu_tiling_for(largest, batch->n)};
    job.tiles = chex_cpu_tile_count(job.tiling, batch->n);
    return job;
}

/* The most tiles for any n up to `batch`. */
static int max_tiles(struct cpu_tiling largest, int batch) {
    int tiles = 0;
    for (int n = 1; n <= batch; n++) {
        int count = chex_cpu_tile_count(chex_cpu_tiling_for(largest, n), n);
        tiles = count > tiles ? count : tiles;
    }
    return tiles;
}

void *chex_cpu_alloc(struct cpu_engine *e, size_t count, size_t size) {
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes))
        return NULL;
    struct cpu_block *owned = realloc(e->owned, (e->owned_count + 1) * sizeof *owned);
    if (!owned)
        return NULL;
    e->owned = owned;
    void *p = chex_alloc_map(bytes);
    if (!p)
        return NULL;
    e->owned[e->owned_count++] = (struct cpu_block){p, bytes};
    e->bytes += bytes;
    return p;
}

/* Feature maps and their gradients. */
static bool place_maps(struct cpu_engine *e, struct chex_life *lives) {
    const struct chex_net *net = e->net;
    const int count = net->buffer_count;
    struct chex_life *g = e->config.training ? lives + count : NULL;
    if (g)
        chex_lives_of_pass(net, lives, g);
    else
        chex_lives_of_buffers(net, lives);
    chex_cpu_fusions_extend_lives(e, lives);
    for (int b = 0; b < count; b++) {
        size_t area = (size_t)e->bufs[b].hw * (size_t)e->bufs[b].hw;
        size_t bytes = (size_t)e->config.batch * area * (size_t)e->bufs[b].channels * e->elem_bytes;
        lives[b].bytes = (bytes + 63) / 64 * 64;
        if (g)
            g[b].bytes = lives[b].bytes;
    }
    const struct cpu_engine *lender = e->config.lender ? e->config.lender->self : NULL;
    e->map_bytes = chex_lives_place(lives, g ? 2 * count : count);
    e->maps = lender && lender->map_bytes >= e->map_bytes ? lender->maps
                                                          : chex_cpu_alloc(e, e->map_bytes, 1);
    for (int b = 0; b < count && e->maps; b++) {
        e->bufs[b].x = e->maps + lives[b].offset;
        e->bufs[b].g = g ? e->maps + g[b].offset : NULL;
    }
    return e->maps != NULL;
}

static bool alloc_statistics(struct cpu_engine *e) {
    for (int b = 0; b < e->net->buffer_count; b++) {
        struct cpu_buf *buf = &e->bufs[b];
        size_t channels = (size_t)buf->channels;
        if (!buf->normed || !e->config.training)
            continue;
        float *f = chex_cpu_alloc(e, 6 * channels, sizeof *f);
        double *d = chex_cpu_alloc(e, 2 * channels, sizeof *d);
        if (!f || !d)
            return false;
        float **const each[] = {&buf->mean, &buf->var, &buf->inv, &buf->xshift, &buf->b, &buf->c};
        for (size_t k = 0; k < 6; k++)
            *each[k] = f + k * channels;
        buf->bsum = d;
        buf->csum = d + channels;
    }
    size_t all = 0;
    for (int i = 0; i < e->net->bn_count; i++)
        all += 2 * (size_t)e->net->bns[i].channels;
    float *f = chex_cpu_alloc(e, all, sizeof *f);
    if (!f)
        return false;
    for (int i = 0; i < e->net->bn_count; i++) {
        size_t channels = (size_t)e->net->bns[i].channels;
        e->bns[i] = (struct cpu_bn){f, f + channels};
        f += 2 * channels;
    }
    return true;
}

static size_t weight_bytes(const struct cpu_engine *e, int i) {
    const struct chex_op *op = &e->net->ops[i];
    const size_t count = chex_cpu_weight_count(op);
    if (op->in == CHEX_NET_IMAGE)
        return chex_cpu_stem_depth(op) * (size_t)op->out_channels * sizeof(float);
    if (e->ops[i].winograd)
        return sizeof(float) * (e->config.training ? count
                                                   : chex_cpu_winograd_weight(e, op->in_channels,
                                                                              op->out_channels));
    return count * e->operand_bytes * chex_cpu_halves(e);
}

static bool alloc_weights(struct cpu_engine *e) {
    size_t all = 0;
    for (int pass = 0; pass < 2; pass++) {
        char *f = pass ? chex_cpu_alloc(e, all, 1) : NULL;
        if (pass && !f)
            return false;
        for (int i = 0; i < e->net->op_count; i++) {
            const struct chex_op *op = &e->net->ops[i];
            if (op->kind != CHEX_OP_CONV)
                continue;
            bool back = e->config.training && op->in != CHEX_NET_IMAGE;
            size_t bytes = weight_bytes(e, i);
            if (!pass) {
                all += back ? 2 * bytes : bytes;
                continue;
            }
            e->ops[i].weight = f;
            e->ops[i].weight_t = back ? f + bytes : NULL;
            f += back ? 2 * bytes : bytes;
        }
    }
    return true;
}

const struct cpu_kind *chex_cpu_kind_of(const struct chex_op *op) {
    switch (op->kind) {
    case CHEX_OP_CONV: return op->in == CHEX_NET_IMAGE ? &chex_cpu_stem : &chex_cpu_conv;
    case CHEX_OP_MAXPOOL:
    case CHEX_OP_AVGPOOL: return &chex_cpu_pool;
    case CHEX_OP_RESIDUAL_ADD: return &chex_cpu_residual_add;
    case CHEX_OP_HEAD: break;
    }
    return &chex_cpu_head;
}

/* Allocates the scratch of all threads as one block. The parts of two threads share no page. */
static bool alloc_scratch(struct cpu_engine *e, const struct cpu_need *need) {
    const size_t bytes[] = {need->a,
                            need->b,
                            need->c,
                            need->d,
                            need->pixels * sizeof(int32_t),
                            need->pixels * sizeof(struct cpu_run)};
    enum { PARTS = CHEX_COUNT(bytes), PAGE = 4096 };
    size_t end[PARTS], all = 0;
    for (int k = 0; k < PARTS; k++) {
        end[k] = all + (bytes[k] + CPU_LINE - 1) / CPU_LINE * CPU_LINE;
        all = end[k] + CPU_LINE; /* a gap, for the address sanitizer */
    }
    all = (all + PAGE - 1) / PAGE * PAGE;
    char *p = chex_cpu_alloc(e, (size_t)e->config.threads, all);
    for (int t = 0; t < e->config.threads && p; t++, p += all) {
        void *part[PARTS] = {p};
        for (int k = 0; k < PARTS; k++) {
            chex_mem_gap(p + end[k], CPU_LINE);
            if (k > 0)
                part[k] = p + end[k - 1] + CPU_LINE;
        }
        struct cpu_scratch *s = &e->scratch[t];
        s->a = part[0];
        s->b = part[1];
        s->c = part[2];
        s->d = part[3];
        s->off = part[4];
        s->runs = part[5];
    }
    return p != NULL;
}

/* Chooses the tilings of all ops, then allocates scratch and partial sums from their sizes. */
static bool plan_ops(struct cpu_engine *e) {
    struct cpu_need need = {0};
    size_t parts = 0, wparts = 0, widest = 0, features = 0, batch = (size_t)e->config.batch;
    for (int i = 0; i < e->net->op_count; i++) {
        const struct chex_op *op = &e->net->ops[i];
        if (!chex_cpu_kind_of(op)->plan(e, i, &need))
            return false;
        size_t channels =
            (size_t)(op->in_channels > op->out_channels ? op->in_channels : op->out_channels);
        int tiles = max_tiles(e->ops[i].bwd, e->config.batch);
        parts = chex_cpu_max(parts, (size_t)tiles * channels);
        if (op->kind == CHEX_OP_CONV)
            wparts =
                chex_cpu_max(wparts, (size_t)chex_cpu_conv_groups(e->net, i, tiles) *
                                         (op->in == CHEX_NET_IMAGE ? chex_cpu_stem_partial(e, op)
                                                                   : chex_cpu_weight_count(op)));
        tiles = max_tiles(e->ops[i].fwd, e->config.batch);
        parts = chex_cpu_max(parts, (size_t)tiles * channels);
        widest = chex_cpu_max(widest, channels);
        if (op->kind == CHEX_OP_HEAD)
            features = (size_t)op->in_channels;
    }
    if (!chex_cpu_fusions_plan(e, &need))
        return false;
    if (need.winograd && !(e->winograd = chex_cpu_alloc(e, need.winograd, sizeof(float))))
        return false;
    for (int k = 0; k < 4 && e->config.training; k++)
        if (!(e->part[k] = chex_cpu_alloc(e, parts, sizeof(float))))
            return false;
    if (e->config.training && !(e->wpart = chex_cpu_alloc(e, wparts, sizeof(float))))
        return false;
    return alloc_scratch(e, &need) &&
           (e->row_sum = chex_cpu_alloc(e, 2 * widest, sizeof(double))) &&
           (e->feature = chex_cpu_alloc(e, 2 * batch * features, sizeof(float))) &&
           (e->logit = chex_cpu_alloc(e, batch * (size_t)e->net->classes, sizeof(float)));
}

static enum chex_status check_shapes(const struct cpu_engine *e, struct chex_error *err) {
    for (int i = 0; i < e->net->op_count; i++) {
        const struct chex_op *op = &e->net->ops[i];
        /* The fused end of a residual block and the stem have no form for uneven channels. */
        const int step = op->kind == CHEX_OP_RESIDUAL_ADD || op->in == CHEX_NET_IMAGE
                             ? CPU_CHANNELS
                             : CPU_CHANNEL_STEP;
        bool even = op->in < 0 || op->in_channels % step == 0;
        if (op->kind != CHEX_OP_HEAD)
            even = even && op->out_channels % step == 0;
        if (op->kind == CHEX_OP_RESIDUAL_ADD && e->bufs[op->out].normed)
            return chex_error_set(
                err, CHEX_E_USAGE,
                "cpu engine: %s: a batch norm reads a residual sum (not supported)", op->name);
        if (!even || op->kernel * op->kernel > CPU_MAX_TAPS ||
            op->stride * op->stride > CPU_MAX_PLACES)
            return chex_error_set(
                err, CHEX_E_USAGE,
                "cpu engine: %s: %d to %d channels, kernel %d, stride %d (expected channels in "
                "multiples of %d, a kernel of at most 7, a stride of at most 2)",
                op->name, op->in_channels, op->out_channels, op->kernel, op->stride, step);
    }
    return CHEX_OK;
}

/* Floats after a weight that the packing of its last panel may read (dot2). */
static size_t pack_excess(const struct chex_net *net) {
    size_t most = 0;
    for (int i = 0; i < net->op_count; i++)
        if (net->ops[i].kind == CHEX_OP_CONV && chex_cpu_uneven(&net->ops[i]))
            most = chex_cpu_max(most, (size_t)(net->ops[i].out_channels + 1) * CPU_CHANNEL_STEP);
    return most;
}

static bool alloc_all(struct cpu_engine *e) {
    const struct chex_net *net = e->net;
    size_t state = net->state_count;
    struct chex_life *lives = chex_alloc_zeroed(2 * (size_t)net->buffer_count, sizeof *lives);
    bool ok = lives && plan_ops(e) && place_maps(e, lives) && alloc_statistics(e) &&
              alloc_weights(e) &&
              (e->param = chex_cpu_alloc(e, state + pack_excess(net), sizeof(float)));
    for (int k = 0; k < 2 && ok && e->config.training; k++)
        ok = (e->moment[k] = chex_cpu_alloc(e, state, sizeof(float))) != NULL;
    if (ok && e->config.training && e->config.ema_decay > 0)
        ok = (e->ema = chex_cpu_alloc(e, state, sizeof(float))) != NULL;
    for (int i = 0; i < net->op_count && ok && e->config.training; i++) {
        const struct chex_op *op = &net->ops[i];
        if (op->kind != CHEX_OP_MAXPOOL)
            continue;
        size_t hw = (size_t)e->bufs[op->out].hw;
        e->ops[i].argmax =
            chex_cpu_alloc(e, (size_t)e->config.batch * hw * hw * (size_t)op->out_channels, 1);
        ok = e->ops[i].argmax != NULL;
    }
    free(lives);
    return ok;
}

enum chex_status chex_cpu_lay_out(struct cpu_engine *e, struct chex_error *err) {
    const struct chex_net *net = e->net;
    e->ops = chex_cpu_alloc(e, (size_t)net->op_count, sizeof *e->ops);
    e->bufs = chex_cpu_alloc(e, (size_t)net->buffer_count, sizeof *e->bufs);
    e->bns = chex_cpu_alloc(e, (size_t)net->bn_count, sizeof *e->bns);
    e->scratch = chex_cpu_alloc(e, (size_t)e->config.threads, sizeof *e->scratch);
    e->adds[0] = chex_cpu_alloc(e, 2 * (size_t)net->op_count, sizeof *e->adds[0]);
    int *hw = chex_cpu_alloc(e, (size_t)net->buffer_count, sizeof *hw);
    if (!e->ops || !e->bufs || !e->bns || !e->scratch || !e->adds[0] || !hw)
        return chex_error_memory(err, "cpu engine");
    e->adds[1] = e->adds[0] + net->op_count;
    CHEX_TRY(chex_net_shapes(net, e->config.image_size, hw, err));
    for (int b = 0; b < net->buffer_count; b++) {
        e->bufs[b].hw = hw[b];
        e->bufs[b].channels = net->buffers[b].channels;
    }
    for (int i = 0; i < net->bn_count; i++)
        e->bufs[net->bns[i].buffer].normed = true;
    CHEX_TRY(check_shapes(e, err));
    CHEX_TRY(chex_gradient_adds(net, e->adds[0], e->adds[1], err));
    if (!alloc_all(e))
        return chex_error_set(err, CHEX_E_RESOURCE,
                              "cpu engine: out of memory after %.1f MiB, for %s, %d px, batch %d",
                              (double)e->bytes / 1048576.0, net->model, e->config.image_size,
                              e->config.batch);
    return CHEX_OK;
}
