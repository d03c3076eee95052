/* SPDX-License-Identifier: Apache-2.0
 *
 * The backward pass, and the backward of the convolution.
 *
 * One sweep over the tiles of the input map computes the data gradient and a partial weight
 * gradient. So both read the output's gradient and the normalised input while these are in cache.
 *
 * Strides. Input pixels are grouped by their phase (py, px) = position modulo the stride. All
 * pixels of a group use the same kernel positions, with output pixels at fixed distances. So no
 * products with inserted zeros are needed. With stride 1 there is one group: the tile itself.
 *
 * Partial weight gradients. Each group of tiles has its own, so threads need no lock. They are
 * added in the order of the groups at the end. The number of groups depends on the shapes only, so
 * the result does not depend on the number of threads.
 */
#include <string.h>

#include "base/clock.h"
#include "engine/cpu/cpu_engine.h"
#include "engine/frozen.h"

/* At most GROUPS partial weight gradients per operation, and at most MAX_FLOATS in total. */
enum { GROUPS = 16, MAX_FLOATS = 1 << 20, RANGE = 128 };

int chex_cpu_conv_groups(const struct chex_net *net, int op, int tiles) {
    size_t count = net->params[net->ops[op].weight].count;
    int groups = (int)(MAX_FLOATS / count);
    groups = groups > GROUPS ? GROUPS : groups < 1 ? 1 : groups;
    return groups > tiles ? tiles : groups;
}

/* The output pixels that read a tile of input pixels: rows [row_lo, row_hi] and `columns` columns
 * from column_lo on. They may lie outside the map. */
struct window {
    int row_lo, row_hi, column_lo, columns;
};

static struct window window_of(const struct cpu_job *job, struct cpu_tile tile) {
    const struct chex_op *op = job->op;
    int reach = op->pad - (op->kernel - 1), s = op->stride;
    int lo = chex_cpu_floor_div(reach, s);
    int hi = chex_cpu_floor_div(job->tiling.hw - 1 + op->pad, s);
    return (struct window){chex_cpu_floor_div(tile.row + reach, s),
                           chex_cpu_floor_div(tile.row + tile.rows - 1 + op->pad, s), lo,
                           hi - lo + 1};
}

static void fill_gradient(const struct cpu_job *job, struct cpu_tile tile, struct window w,
                          char *dst) {
    const struct chex_op *op = job->op;
    int hw = job->e->bufs[op->out].hw;
    size_t pitch = chex_cpu_pitch(job->e, op->out_channels);
    if (op->kernel == 1 && op->stride == 1) {
        chex_cpu_load_grad_operand(job, dst, pitch, chex_cpu_tile_pixel(job->tiling, tile),
                                   chex_cpu_tile_pixels(job->tiling, tile));
        return;
    }
    const int before = -w.column_lo, rest = w.columns - before;
    const int inside = rest < hw ? rest : hw; /* the last columns may read no input pixel */
    const struct cpu_border border = {w.columns, w.row_hi - w.row_lo + 1, pitch,
                                      job->e->operand_bytes};
    chex_cpu_load_border(job, tile, hw, w.row_lo, before, inside, border, dst,
                         chex_cpu_load_grad_operand);
}

/* The input pixels of one phase of the stride, and the kernel positions that use them. */
struct group {
    int first, count; /* in the tile's list of pixels (scratch off) */
    int run, runs;    /* in scratch runs */
    int tap_count;
    struct cpu_tap tap[CPU_MAX_TAPS];
    int position[CPU_MAX_TAPS]; /* kernel position of each tap */
};

static int list_taps(const struct cpu_job *job, struct window w, int py, int px, struct group *g) {
    const struct chex_op *op = job->op;
    int s = op->stride, count = 0;
    ptrdiff_t pitch = (ptrdiff_t)chex_cpu_pitch(job->e, op->out_channels);
    for (int t = 0; t < op->kernel * op->kernel; t++) {
        int dy = py + op->pad - t / op->kernel, dx = px + op->pad - t % op->kernel;
        if (dy % s || dx % s)
            continue;
        g->position[count] = t;
        g->tap[count++] = (struct cpu_tap){
            ((ptrdiff_t)chex_cpu_floor_div(dy, s) * w.columns + chex_cpu_floor_div(dx, s)) * pitch,
            (ptrdiff_t)t * chex_cpu_padded(op->out_channels) * job->e->k->panel};
    }
    return count;
}

static void list_pixels(const struct cpu_job *job, struct cpu_tile tile, struct window w, int py,
                        int px, struct cpu_scratch *s, struct group *g) {
    const struct chex_op *op = job->op;
    int hw = job->tiling.hw, step = op->stride, rows = w.row_hi - w.row_lo + 1, at = g->first;
    size_t pitch = chex_cpu_pitch(job->e, op->out_channels);
    for (int image = 0; image < tile.images; image++)
        for (int y = tile.row; y < tile.row + tile.rows; y++) {
            if (y % step != py || px >= hw)
                continue;
            size_t pixel = chex_cpu_row(hw, tile.image + image, y);
            int in_row = (hw - px + step - 1) / step;
            struct cpu_run *last = g->runs ? &s->runs[g->run + g->runs - 1] : NULL;
            if (last && step == 1)
                last->count += in_row;
            else
                s->runs[g->run + g->runs++] =
                    (struct cpu_run){pixel + (size_t)px, at, in_row, step};
            size_t row = (size_t)(image * rows + y / step - w.row_lo) * (size_t)w.columns;
            for (int x = 0; x < in_row; x++)
                s->off[at++] = (int32_t)((row + (size_t)(x - w.column_lo)) * pitch);
        }
    g->count = at - g->first;
}

/* Lists the groups of a tile that have pixels; returns their number. */
static int list_groups(const struct cpu_job *job, struct cpu_tile tile, struct window w,
                       struct cpu_scratch *s, struct group groups[CPU_MAX_PLACES]) {
    const int stride = job->op->stride, align = (int)chex_cpu_outer_group(job->e);
    int count = 0, first = 0, run = 0;
    for (int place = 0; place < stride * stride; place++) {
        int py = place / stride, px = place % stride;
        struct group *g = &groups[count];
        *g = (struct group){.first = first, .run = run};
        list_pixels(job, tile, w, py, px, s, g);
        if (!g->count)
            continue;
        g->tap_count = list_taps(job, w, py, px, g);
        first = (first + g->count + align - 1) / align * align;
        run += g->runs;
        count++;
    }
    return count;
}

struct range {
    int first, channels;
};

/* At most `channels` channels from `first` on, before `end`. */
static struct range range_at(int first, int channels, int end) {
    return (struct range){first, end - first < channels ? end - first : channels};
}

static void load_input(const struct cpu_job *job, struct range r, const struct cpu_run *run,
                       const struct cpu_scratch *s) {
    const struct cpu_engine *e = job->e;
    const struct chex_op *op = job->op;
    struct cpu_stored x = chex_cpu_x(e, op->in, run->pixel, r.first, run->step);
    struct cpu_affine norm = chex_cpu_affine(e, op->in_bn, r.first);
    int flags = chex_cpu_operand_flags(e, norm);
    size_t pitch = chex_cpu_outer_pitch(e, r.channels);
    if (e->dot2)
        e->dot2->load_pairs(s->b, pitch, run->at, &x, run->count, r.channels, norm.scale,
                            norm.shift, flags | chex_cpu_split_flag(e));
    else
        e->k->load(chex_cpu_at(e, s->b, (size_t)run->at * pitch), pitch, &x, run->count, r.channels,
                   norm.scale, norm.shift, flags);
}

/* Destination of the data gradient of a group of pixels. */
struct target {
    const struct cpu_job *job;
    int tile;
    const struct group *group;
    const struct cpu_run *runs; /* of the group */
};

/* A block of results may cover several runs of the group; stores each part. */
static void gradient_epilogue(void *arg, const struct cpu_results *results) {
    const struct target *t = arg;
    int from = t->group->first + results->row, to = from + results->rows;
    for (int i = 0; i < t->group->runs; i++) {
        const struct cpu_run *run = &t->runs[i];
        int lo = run->at > from ? run->at : from;
        int hi = run->at + run->count < to ? run->at + run->count : to;
        if (lo >= hi)
            continue;
        const struct cpu_run part = {run->pixel + (size_t)(lo - run->at) * (size_t)run->step, lo,
                                     hi - lo, run->step};
        chex_cpu_back_store(t->job, t->tile, 0, results->column, results->columns, part,
                            results->c + (size_t)(lo - from) * results->pitch, results->pitch);
    }
}

/* A partial weight gradient. begun: kernel positions that an earlier tile has written, so that the
 * next tile adds to them. */
struct partial {
    float *at;
    bool begun[CPU_MAX_TAPS];
};

/* The weight gradient of a group of pixels. The outer loop is over blocks of rows, the inner one
 * over positions, so a block's slice of the input stays in the first-level cache. */
static void add_weight_gradient(const struct cpu_job *job, struct range r, const struct group *g,
                                const struct cpu_scratch *s, struct partial *dw,
                                struct cpu_prefetch *prefetch) {
    const struct cpu_engine *e = job->e;
    const struct chex_op *op = job->op;
    struct cpu_outer o = {.v = s->b,
                          .off = s->off + g->first,
                          .first = g->first,
                          .count = g->count,
                          .channels = r.channels,
                          .n = op->out_channels,
                          .prefetch = prefetch};
    for (int max_rows = chex_cpu_outer_rows(e); o.row < r.channels; o.row += max_rows) {
        o.rows = r.channels - o.row < max_rows ? r.channels - o.row : max_rows;
        for (int t = 0; t < g->tap_count; t++) {
            int at = g->position[t] * chex_cpu_padded(op->in_channels) + r.first + o.row;
            o.d = chex_cpu_at(e, s->a, (size_t)g->tap[t].a);
            o.w = dw->at + (size_t)at * (size_t)chex_cpu_padded(op->out_channels);
            o.fresh = !dw->begun[g->position[t]];
            chex_cpu_outer(e, &o);
        }
    }
}

void chex_cpu_prefetch_input(const struct cpu_job *job, struct cpu_tile tile, int first,
                             int channels, struct cpu_prefetch *gradient,
                             struct cpu_prefetch *input) {
    const int in = job->op->in, hw = job->tiling.hw, end = tile.row + tile.rows - 1;
    chex_cpu_prefetch_rows(gradient, chex_cpu_g(job->e, in, 0, first, 1), hw, tile, tile.row, end,
                           channels);
    chex_cpu_prefetch_rows(input, chex_cpu_x(job->e, in, 0, first, 1), hw, tile, tile.row, end,
                           channels);
}

void chex_cpu_prefetch_output(const struct cpu_job *job, struct cpu_tile tile, int lo, int hi,
                              struct cpu_prefetch *h) {
    const struct cpu_engine *e = job->e;
    const struct chex_op *op = job->op;
    const int hw = e->bufs[op->out].hw, channels = op->out_channels;
    chex_cpu_prefetch_rows(h, chex_cpu_g(e, op->out, 0, op->out_first, 1), hw, tile, lo, hi,
                           channels);
    if (e->bufs[op->out].normed)
        chex_cpu_prefetch_rows(h, chex_cpu_x(e, op->out, 0, op->out_first, 1), hw, tile, lo, hi,
                               channels);
}

/* Prefetches the data that the next tile `index` loads first. r: its first range. */
static void prefetch_tile(const struct cpu_job *job, int index, struct range r,
                          struct cpu_prefetch *gradient, struct cpu_prefetch *h) {
    if (index >= job->tiles)
        return;
    struct cpu_tile tile = chex_cpu_tile(job->tiling, job->n, index);
    struct window w = window_of(job, tile);
    chex_cpu_prefetch_input(job, tile, r.first, r.channels, gradient, h);
    chex_cpu_prefetch_output(job, tile, w.row_lo, w.row_hi, h);
}

/* Both gradients of one group of a tile's pixels, from the output gradient in s->a. If a stride
 * larger than the kernel skips these pixels, their data gradient is zero and they have no weight
 * gradient. */
static void conv_group(const struct cpu_job *job, int index, struct range r, const struct group *g,
                       struct cpu_scratch *s, struct partial *dw, struct cpu_prefetch *gradient,
                       struct cpu_prefetch *next) {
    const struct cpu_engine *e = job->e;
    const struct chex_op *op = job->op;
    struct target target = {job, index, g, s->runs + g->run};
    if (g->tap_count)
        for (int i = g->run; i < g->run + g->runs; i++)
            load_input(job, r, &s->runs[i], s);
    chex_cpu_gemm(e, &(struct cpu_product){.a = s->a,
                                           .weight = e->ops[job->index].weight_t,
                                           .off = s->off + g->first,
                                           .taps = g->tap,
                                           .rows = g->count,
                                           .tap_count = g->tap_count,
                                           .positions = op->kernel * op->kernel,
                                           .depth = op->out_channels,
                                           .first = r.first,
                                           .n = r.channels,
                                           .c = s->c,
                                           .prefetch = gradient,
                                           .epilogue = gradient_epilogue,
                                           .arg = &target});
    add_weight_gradient(job, r, g, s, dw, next);
}

/* Both gradients of a tile for the channels in `span`, range by range. The output's gradient is
 * loaded once for all ranges. */
static void conv_tile(const struct cpu_job *job, int index, struct range span,
                      struct cpu_scratch *s, struct partial *dw) {
    const struct chex_op *op = job->op;
    struct cpu_tile tile = chex_cpu_tile(job->tiling, job->n, index);
    struct window w = window_of(job, tile);
    struct group groups[CPU_MAX_PLACES];
    int count = list_groups(job, tile, w, s, groups), max_rows = chex_cpu_outer_rows(job->e);
    const int end = span.first + span.channels;
    chex_cpu_clear_sums(job, index, span.first, span.channels);
    fill_gradient(job, tile, w, s->a);
    for (int first = span.first; first < end; first += RANGE) {
        struct range r = range_at(first, RANGE, end), after = range_at(first + RANGE, RANGE, end);
        struct cpu_prefetch gradient = {.calls = 1};
        struct cpu_prefetch next = {.calls = (r.channels + max_rows - 1) / max_rows * op->kernel *
                                             op->kernel};
        /* The first results of a product are added to the input's gradient soon after it starts,
         * too early for a prefetch by the same product. So each product prefetches for the next. */
        if (after.channels > 0)
            chex_cpu_prefetch_input(job, tile, after.first, after.channels, &gradient, &next);
        else
            prefetch_tile(job, index + 1, range_at(span.first, RANGE, end), &gradient, &next);
        for (int i = 0; i < count; i++)
            conv_group(job, index, r, &groups[i], s, dw, &gradient, &next);
    }
    for (int i = 0; i < count; i++)
        for (int t = 0; t < groups[i].tap_count; t++)
            dw->begun[groups[i].position[t]] = true;
}

/* Kernel positions that no pixel used (the map is smaller than the kernel) get zeros. */
static void clear_rest(const struct chex_op *op, struct range span, struct partial *dw) {
    size_t in = (size_t)chex_cpu_padded(op->in_channels);
    size_t out = (size_t)chex_cpu_padded(op->out_channels);
    for (int t = 0; t < op->kernel * op->kernel; t++)
        if (!dw->begun[t])
            memset(dw->at + ((size_t)t * in + (size_t)span.first) * out, 0,
                   (size_t)span.channels * out * sizeof *dw->at);
}

/* The partial weight gradient of a group of tiles. That of group 0 is the gradient itself, unless
 * the operation is uneven. */
static float *partial_of(const struct cpu_job *job, int group) {
    const struct chex_op *op = job->op;
    if (!chex_cpu_uneven(op) && group-- == 0)
        return job->grad + job->e->net->params[op->weight].offset;
    return job->e->wpart + (size_t)group * chex_cpu_weight_count(op);
}

/* Item: a group of tiles, which has its own partial weight gradient, and a span of input channels.
 */
static void conv_item(void *arg, size_t item, int worker) {
    const struct cpu_job *job = arg;
    struct cpu_engine *e = job->e;
    const struct chex_op *op = job->op;
    int group = (int)item;
    struct range span = {0, op->in_channels};
    if (group >= job->whole) {
        const int cut = group - job->whole;
        group = job->whole + cut / job->ranges;
        span =
            range_at(cut % job->ranges * job->range_channels, job->range_channels, op->in_channels);
    }
    struct partial dw = {.at = partial_of(job, group)};
    int from = (int)((int64_t)group * job->tiles / job->tile_runs);
    int to = (int)((int64_t)(group + 1) * job->tiles / job->tile_runs);
    if (e->ops[job->index].winograd) {
        chex_cpu_winograd_backward(job, from, to, span.first, span.channels, &e->scratch[worker],
                                   dw.at);
        return;
    }
    chex_cpu_product_begin(e);
    for (int t = from; t < to; t++)
        conv_tile(job, t, span, &e->scratch[worker], &dw);
    chex_cpu_product_end(e);
    clear_rest(op, span, &dw);
}

enum { REDUCE = 2048 }; /* floats of an item: sum and one addend fit the first-level cache */

/* Item: REDUCE elements of the weight gradient. Adds the partial gradients in order of groups. */
static void reduce_item(void *arg, size_t item, int worker) {
    (void)worker;
    const struct cpu_job *job = arg;
    const size_t count = chex_cpu_weight_count(job->op);
    size_t from = item * REDUCE, to = from + REDUCE < count ? from + REDUCE : count;
    float *dw = partial_of(job, 0);
    for (int g = 1; g < job->tile_runs; g++) {
        const float *part = partial_of(job, g);
        for (size_t i = from; i < to; i++)
            dw[i] += part[i];
    }
}

/* Item: CPU_CHANNELS input channels of a kernel position. Copies the rows and columns of the weight
 * gradient of an uneven operation from the padded sum. */
static void unpad_item(void *arg, size_t item, int worker) {
    (void)worker;
    const struct cpu_job *job = arg;
    const size_t in = (size_t)job->op->in_channels, out = (size_t)job->op->out_channels;
    const size_t padded = (size_t)chex_cpu_padded(job->op->in_channels);
    const size_t first = item * CPU_CHANNELS % padded, position = item * CPU_CHANNELS / padded;
    float *dw = job->grad + job->e->net->params[job->op->weight].offset;
    for (size_t i = first; i < first + CPU_CHANNELS && i < in; i++)
        memcpy(dw + (position * in + i) * out,
               partial_of(job, 0) +
                   (position * padded + i) * (size_t)chex_cpu_padded(job->op->out_channels),
               out * sizeof *dw);
}

/* Divides the groups into items. Spans of input channels do not change the results, so they may
 * depend on the number of threads. With many groups the last ones, one per thread, are divided, so
 * that all threads finish at about the same time. With few groups all of them are divided. */
static void split_work(struct cpu_job *job) {
    enum { ITEMS = 8, CUT = 4 }; /* items per thread; spans of each group at the end */
    const int threads = job->e->config.threads, groups = job->tile_runs;
    const int blocks = chex_cpu_padded(job->op->in_channels) / CPU_CHANNELS;
    const bool many = 2 * groups >= ITEMS * threads || threads == 1;
    int spans = many ? CUT : (ITEMS * threads + groups - 1) / groups;
    spans = spans < blocks ? spans : blocks;
    job->whole = threads == 1 ? groups : many ? groups - threads : 0;
    job->range_channels = (blocks + spans - 1) / spans * CPU_CHANNELS;
    job->ranges = (job->op->in_channels + job->range_channels - 1) / job->range_channels;
}

void chex_cpu_conv_backward(struct cpu_job *job) {
    struct cpu_engine *e = job->e;
    job->tile_runs = chex_cpu_conv_groups(e->net, job->index, job->tiles);
    split_work(job);
    if (e->ops[job->index].winograd)
        chex_cpu_winograd_prepare(job, true);
    chex_pool_run(e->pool, (size_t)(job->whole + (job->tile_runs - job->whole) * job->ranges),
                  conv_item, job);
    if (job->tile_runs > 1)
        chex_pool_run(e->pool, (chex_cpu_weight_count(job->op) + REDUCE - 1) / REDUCE, reduce_item,
                      job);
    if (chex_cpu_uneven(job->op))
        chex_pool_run(e->pool,
                      (size_t)(job->op->kernel * job->op->kernel *
                               chex_cpu_padded(job->op->in_channels) / CPU_CHANNELS),
                      unpad_item, job);
}

enum chex_status chex_cpu_backward(struct cpu_engine *e, const struct chex_batch *batch,
                                   float *grad, chex_grad_ready_fn ready, void *ready_arg,
                                   struct chex_error *err) {
    size_t final = e->net->param_count;
    chex_cpu_norm_report(e, batch->n, grad);
    if (ready)
        ready(ready_arg, e->net->param_count, e->net->state_count);
    const int first = chex_first_trained_op(&e->config);
    for (int i = e->net->op_count - 1; i >= first; i--) {
        double start = chex_clock_s();
        const struct chex_op *op = &e->net->ops[i];
        struct cpu_job job = chex_cpu_job(e, i, batch, e->ops[i].bwd);
        job.training = true;
        job.grad = grad;
        if (op->out >= 0)
            CHEX_TRY(chex_cpu_grad_prepare(e, op, err));
        chex_cpu_kind_of(op)->backward(&job);
        chex_cpu_norm_back(&job);
        e->ops[i].backward_s = chex_clock_s() - start;
        if (ready && op->final_from < final) {
            ready(ready_arg, op->final_from, final);
            final = op->final_from;
        }
    }
    if (ready && final > 0)
        ready(ready_arg, 0, final);
    return CHEX_OK;
}
