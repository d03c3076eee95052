/* SPDX-License-Identifier: Apache-2.0
 *
 * Winograd's minimal filtering F(4x4, 3x3) for 3x3 convolutions with stride 1: 36 products for 16
 * results instead of 144 (Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, 2016).
 *
 * Forward. With d the 6x6 input of a square of 4x4 results and g the kernel,
 *     y = A' [(G g G') * (B' d B)] A,
 * where * multiplies position by position and sums over channels: 36 matrix products. The
 * interpolation points are 0, +-sqrt(1/2), +-sqrt(2) and infinity. Their mean error is 2 to 2.5
 * times that of direct sums in fp32 (tests/op/winograd_cpu.c); with the usual 0, +-1, +-2 it is 3
 * to 4 times.
 *
 * Data gradient. The same, with the output's gradient as input and the kernel rotated by 180
 * degrees.
 *
 * Weight gradient. The derivative of the formula by g is
 *     dg = G' [sum over squares (A dy A') * (B' d B)] G.
 * We exchange the roles of the two maps, which rotates dg by 180 degrees. Then B' d B of the
 * output's gradient is shared with the data gradient, and squares of the input need no border.
 *
 * Precision. Sums and transforms are fp32 in every precision; with bf16 the operands are rounded
 * before the transforms. Even against bf16 dot products at twice the rate of fp32 this takes fewer
 * instructions. Not used with AMX tiles, which are faster, nor with fp32-strict.
 */
#include <string.h>

#include "engine/cpu/cpu_engine.h"

enum { SQUARE = 4, SIDE = 6, POSITIONS = SIDE * SIDE, TAPS = 9, COLUMNS = CPU_CHANNELS };
/* Squares per tile. Many squares: each loaded weight is used often. Few squares: the operands stay
 * in the second-level cache beside the weights; in the third, if the weights of all positions
 * exceed the second. */
enum { FORWARD_FLOATS = 32 * 128, WIDE_SQUARES = 48, BACKWARD_SQUARES = 56 };

static int forward_squares(int channels) {
    return channels > 128 ? WIDE_SQUARES : FORWARD_FLOATS / channels;
}

struct range {
    int first, channels;
};

/* The squares of a tile: `down` x `across` of each image. */
struct grid {
    int down, across, count;
};

static struct grid grid_of(int hw, struct cpu_tile tile) {
    int down = (tile.rows + SQUARE - 1) / SQUARE, across = (hw + SQUARE - 1) / SQUARE;
    return (struct grid){down, across, tile.images * down * across};
}

/* Width and height in pixels of the input that a grid of squares reads. */
static int width_of(struct grid g) { return g.across * SQUARE + SIDE - SQUARE; }
static int height_of(struct grid g) { return g.down * SQUARE + SIDE - SQUARE; }

static size_t pitch_of(int channels) { return (size_t)channels + CPU_PAD; }

struct cpu_border chex_cpu_winograd_border(int hw, struct cpu_tile tile, int channels) {
    struct grid g = grid_of(hw, tile);
    return (struct cpu_border){width_of(g), height_of(g), pitch_of(channels), sizeof(float)};
}

/* Floats from one position to the next, of `squares` rows of `pitch`. */
static size_t position_of(int squares, size_t pitch) { return (size_t)squares * pitch + CPU_PAD; }

static struct cpu_square positions(const float *at, size_t position) {
    return (struct cpu_square){(float *)(uintptr_t)at, (ptrdiff_t)(SIDE * position),
                               (ptrdiff_t)position};
}

/* In small maps a large part of the squares lies outside the map. With many channels the transform
 * of the weights costs more than it saves. */
enum { MIN_PX = 2 * SQUARE, MAX_CHANNELS = 256 };

bool chex_cpu_winograd_fits(const struct cpu_engine *e, const struct chex_op *op) {
    return e->config.precision != CHEX_FP32_STRICT && !(e->dot2 && e->dot2->three_products) &&
           op->kernel == 3 && op->stride == 1 && op->pad == 1 && op->in != CHEX_NET_IMAGE &&
           op->in_channels % CPU_CHANNELS == 0 && e->bufs[op->out].hw >= MIN_PX &&
           op->in_channels <= MAX_CHANNELS && op->out_channels <= MAX_CHANNELS;
}

void chex_cpu_product_shares(void *self, double *share_out) {
    const struct cpu_engine *e = self;
    /* These products are fp32. If the limit is that of bf16 dot products, which do twice as many
     * per instruction, they count twice. */
    const double share = (e->dot2 ? 2.0 : 1.0) * POSITIONS / (SQUARE * SQUARE * TAPS);
    for (int i = 0; i < e->net->op_count; i++)
        share_out[i] = e->ops[i].winograd ? share : 1;
}

static struct cpu_tiling tiling_of(int hw, int squares) {
    int across = (hw + SQUARE - 1) / SQUARE, down = squares / across;
    down = down < 1 ? 1 : down;
    if (down >= across)
        return (struct cpu_tiling){hw, hw, squares / (across * across)};
    int bands = (across + down - 1) / down, rows = (across + bands - 1) / bands * SQUARE;
    return (struct cpu_tiling){hw, rows < hw ? rows : hw, 1};
}

/* Floats of scratch for the products of a tile, and for one row of its squares. */
static size_t sums_of(struct grid g) {
    return POSITIONS * position_of(g.count, pitch_of(COLUMNS)) +
           (size_t)SQUARE * SQUARE * (size_t)g.across * pitch_of(COLUMNS);
}

size_t chex_cpu_winograd_need(struct cpu_tiling t, int channels, struct cpu_need *need) {
    struct cpu_tile tile = {0, t.images, 0, t.rows};
    struct grid g = grid_of(t.hw, tile);
    chex_cpu_need_floats(&need->b, POSITIONS * position_of(g.count, pitch_of(channels)));
    chex_cpu_need_floats(&need->c, sums_of(g));
    need->pixels = chex_cpu_max(need->pixels, (size_t)g.count);
    return (size_t)t.images * (size_t)width_of(g) * (size_t)height_of(g) * pitch_of(channels);
}

struct cpu_tiling chex_cpu_winograd_tiling(int hw, int channels) {
    return tiling_of(hw, forward_squares(channels));
}

/* Floats of one position of a panel of weights of this depth, of a panel, and of all panels. */
static size_t weight_position(const struct cpu_engine *e, int depth) {
    return (size_t)chex_cpu_padded(depth) * (size_t)e->k->panel + CPU_PAD;
}
size_t chex_cpu_winograd_weight(const struct cpu_engine *e, int depth, int columns) {
    return (size_t)(chex_cpu_padded(columns) / e->k->panel) * POSITIONS * weight_position(e, depth);
}

void chex_cpu_winograd_plan(struct cpu_engine *e, int index, struct cpu_need *need) {
    const struct chex_op *op = &e->net->ops[index];
    struct cpu_op *mine = &e->ops[index];
    const int hw = e->bufs[op->out].hw, in = op->in_channels, out = op->out_channels;
    mine->fwd = chex_cpu_winograd_tiling(hw, in);
    mine->bwd = tiling_of(hw, BACKWARD_SQUARES);
    chex_cpu_need_floats(&need->a, chex_cpu_winograd_need(mine->fwd, in, need));
    need->winograd = chex_cpu_max(need->winograd, chex_cpu_winograd_weight(e, in, out));
    if (!e->config.training)
        return;
    chex_cpu_need_floats(&need->a, chex_cpu_winograd_need(mine->bwd, out, need));
    chex_cpu_need_floats(&need->d,
                         POSITIONS * ((size_t)in * (size_t)chex_cpu_padded(out) + CPU_PAD));
    need->winograd = chex_cpu_max(need->winograd, chex_cpu_winograd_weight(e, out, in));
}

/* ---- weights ---- */

struct weights_job {
    struct cpu_engine *e;
    const float *w;
    float *u;
    int depth;
    bool turned;
};

enum { DEPTHS = CPU_CHANNELS };

/* Item: DEPTHS rows of a panel. A panel holds its positions one after the other. */
static void weights_item(void *arg, size_t item, int worker) {
    (void)worker;
    const struct weights_job *job = arg;
    const struct cpu_kernels *k = job->e->k;
    size_t parts = (size_t)(job->depth / DEPTHS), count = (size_t)(DEPTHS * k->panel);
    size_t panel = item / parts, from = item % parts * count;
    size_t position = weight_position(job->e, job->depth);
    ptrdiff_t tap = (ptrdiff_t)(parts * count);
    float *w = (float *)(uintptr_t)job->w + (ptrdiff_t)(panel * TAPS) * tap + from;
    struct cpu_square src = {w, 3 * tap, tap};
    if (job->turned)
        src = (struct cpu_square){w + (TAPS - 1) * tap, -3 * tap, -tap};
    k->winograd[CPU_WINOGRAD_WEIGHT](
        positions(job->u + panel * POSITIONS * position + from, position), src, (int)count);
}

void chex_cpu_winograd_pack(struct cpu_engine *e, const float *panels, int depth, int columns,
                            bool turned, float *u) {
    struct weights_job job = {e, panels, u, chex_cpu_padded(depth), turned};
    const int all = chex_cpu_padded(columns) / e->k->panel;
    chex_pool_run(e->pool, (size_t)(all * (job.depth / DEPTHS)), weights_item, &job);
}

/* The transformed weights of the op. Training transforms them before each loop, inference once. */
static const float *weights_of(const struct cpu_job *job) {
    const struct cpu_engine *e = job->e;
    return e->config.training ? e->winograd : e->ops[job->index].weight;
}
void chex_cpu_winograd_prepare(const struct cpu_job *job, bool backward) {
    const struct cpu_op *mine = &job->e->ops[job->index];
    const struct chex_op *op = job->op;
    if (!job->e->config.training)
        return;
    if (backward)
        chex_cpu_winograd_pack(job->e, mine->weight_t, op->out_channels, op->in_channels, true,
                               job->e->winograd);
    else
        chex_cpu_winograd_pack(job->e, mine->weight, op->in_channels, op->out_channels, false,
                               job->e->winograd);
}

/* ---- maps ---- */

static void load_input(const struct cpu_job *job, struct range r, float *dst, size_t pitch,
                       size_t pixel, int pixels) {
    const struct cpu_engine *e = job->e;
    const struct chex_op *op = job->op;
    struct cpu_stored x = chex_cpu_x(e, op->in, pixel, r.first, 1);
    struct cpu_affine norm = chex_cpu_affine(e, op->in_bn, r.first);
    e->k->load(dst, pitch, &x, pixels, r.channels, norm.scale, norm.shift,
               chex_cpu_operand_flags(e, norm));
}

static void load_all_input(const struct cpu_job *job, void *dst, size_t pitch, size_t pixel,
                           int pixels) {
    load_input(job, (struct range){0, job->op->in_channels}, dst, pitch, pixel, pixels);
}

/* Loads the rows of a tile with the border that its squares read; zeros outside the map. */
static void fill(const struct cpu_job *job, struct cpu_tile tile, int channels, float *dst,
                 cpu_load_fn *load) {
    const int hw = job->tiling.hw;
    chex_cpu_load_border(job, tile, hw, tile.row - 1, 1, hw,
                         chex_cpu_winograd_border(hw, tile, channels), dst, load);
}

/* B' d B of all squares: rows of `pitch`, position by position. */
static void transform_map(const struct cpu_engine *e, const float *src, int images, struct grid g,
                          int channels, float *dst) {
    size_t pitch = pitch_of(channels), width = (size_t)width_of(g), height = (size_t)height_of(g);
    size_t position = position_of(g.count, pitch), square = 0;
    for (int image = 0; image < images; image++)
        for (int y = 0; y < g.down; y++)
            for (int x = 0; x < g.across; x++, square++) {
                size_t pixel =
                    ((size_t)image * height + (size_t)(y * SQUARE)) * width + (size_t)(x * SQUARE);
                e->k->winograd[CPU_WINOGRAD_INPUT](
                    positions(dst + square * pitch, position),
                    (struct cpu_square){(float *)(uintptr_t)(src + pixel * pitch),
                                        (ptrdiff_t)(width * pitch), (ptrdiff_t)pitch},
                    channels);
            }
}

static void list_squares(int count, size_t pitch, int32_t *off) {
    for (int i = 0; i < count; i++)
        off[i] = (int32_t)((size_t)i * pitch);
}

/* Columns [r.first, r.first + r.channels) of the 36 products. a: result of transform_map. */
static void multiply(const struct cpu_job *job, const float *a, const int32_t *off, int count,
                     int depth, struct range r, float *c, struct cpu_prefetch *prefetch) {
    static const struct cpu_tap origin = {0, 0};
    const struct cpu_engine *e = job->e;
    size_t panel = (size_t)e->k->panel, weight = weight_position(e, depth);
    size_t a_position = position_of(count, pitch_of(depth));
    size_t c_position = position_of(count, pitch_of(COLUMNS));
    const float *u = weights_of(job) + (size_t)r.first / panel * POSITIONS * weight;
    for (size_t p = 0; p < POSITIONS; p++)
        e->k->gemm(a + p * a_position, off, count, &origin, 1, depth, u + p * weight,
                   POSITIONS * weight, r.channels, c + p * c_position, pitch_of(COLUMNS), prefetch);
}

/* A' m A of one row of squares: SQUARE rows of pixels. */
static void transform_sums(const struct cpu_engine *e, const float *c, int count, int square,
                           int across, float *rows) {
    size_t pitch = pitch_of(COLUMNS), position = position_of(count, pitch);
    for (int x = 0; x < across; x++)
        e->k->winograd[CPU_WINOGRAD_OUTPUT](
            (struct cpu_square){rows + (size_t)(x * SQUARE) * pitch,
                                (ptrdiff_t)((size_t)(across * SQUARE) * pitch), (ptrdiff_t)pitch},
            positions(c + (size_t)(square + x) * pitch, position), COLUMNS);
}

/* Transforms the products of a tile to results and passes them to epilogue, one row of pixels at a
 * time. */
static void epilogue_rows(const struct cpu_job *job, struct cpu_tile tile, struct grid g, float *c,
                          struct range r, void (*epilogue)(void *arg, const struct cpu_results *r),
                          void *arg) {
    int hw = job->tiling.hw, square = 0;
    size_t pitch = pitch_of(COLUMNS);
    float *rows = c + POSITIONS * position_of(g.count, pitch);
    for (int image = 0; image < tile.images; image++)
        for (int y = 0; y < tile.rows; y += SQUARE, square += g.across) {
            transform_sums(job->e, c, g.count, square, g.across, rows);
            for (int i = 0; i < SQUARE && y + i < tile.rows; i++)
                epilogue(arg, &(struct cpu_results){
                                  (image * tile.rows + y + i) * hw, hw, r.first, r.channels,
                                  rows + (size_t)(i * g.across * SQUARE) * pitch, pitch});
        }
}

void chex_cpu_winograd_multiply(const struct cpu_job *job, struct cpu_tile tile, const float *src,
                                int first, int columns, struct cpu_scratch *s,
                                struct cpu_prefetch *prefetch,
                                void (*epilogue)(void *arg, const struct cpu_results *r),
                                void *arg) {
    int depth = job->op->in_channels;
    struct grid g = grid_of(job->tiling.hw, tile);
    transform_map(job->e, src, tile.images, g, depth, s->b);
    list_squares(g.count, pitch_of(depth), s->off);
    for (int end = first + columns; first < end; first += COLUMNS) {
        const struct range r = {first, end - first < COLUMNS ? end - first : COLUMNS};
        multiply(job, s->b, s->off, g.count, depth, r, s->c, prefetch);
        epilogue_rows(job, tile, g, s->c, r, epilogue, arg);
    }
}

/* ---- forward ---- */

void chex_cpu_winograd_forward(const struct cpu_job *job, struct cpu_tile tile, int first,
                               int channels, struct cpu_scratch *s, struct cpu_prefetch *prefetch,
                               struct cpu_output *out) {
    prefetch->calls = POSITIONS * (chex_cpu_padded(channels) / COLUMNS);
    fill(job, tile, job->op->in_channels, s->a, load_all_input);
    chex_cpu_winograd_multiply(job, tile, s->a, first, channels, s, prefetch,
                               chex_cpu_store_results, out);
}

/* ---- backward ---- */

static void gradient_epilogue(void *arg, const struct cpu_results *r) {
    const struct cpu_output *to = arg;
    const struct cpu_run run = {to->pixel + (size_t)r->row, 0, r->rows, 1};
    chex_cpu_back_store(to->job, to->tile, 0, r->column, r->columns, run, r->c, r->pitch);
}

/* Loads SQUARE rows of the input, from row y of an image on; zeros outside the map. */
static void load_rows(const struct cpu_job *job, struct range r, int image, int y, int end,
                      struct grid g, float *rows) {
    int hw = job->tiling.hw;
    size_t pitch = pitch_of(COLUMNS), row = (size_t)(g.across * SQUARE) * pitch;
    size_t right = row - (size_t)hw * pitch;
    for (int i = 0; i < SQUARE; i++, rows += row) {
        if (y + i >= end) {
            memset(rows, 0, row * sizeof *rows);
            continue;
        }
        load_input(job, r, rows, pitch, chex_cpu_row(hw, image, y + i), hw);
        memset(rows + row - right, 0, right * sizeof *rows);
    }
}

/* A x A' of all squares of a range of the input's channels. */
static void transform_input(const struct cpu_job *job, struct cpu_tile tile, struct grid g,
                            struct range r, float *c) {
    size_t pitch = pitch_of(COLUMNS), position = position_of(g.count, pitch), square = 0;
    float *rows = c + POSITIONS * position;
    for (int image = tile.image; image < tile.image + tile.images; image++)
        for (int y = 0; y < tile.rows; y += SQUARE) {
            load_rows(job, r, image, tile.row + y, tile.row + tile.rows, g, rows);
            for (int x = 0; x < g.across; x++, square++)
                job->e->k->winograd[CPU_WINOGRAD_OUTPUT_BACK](
                    positions(c + square * pitch, position),
                    (struct cpu_square){rows + (size_t)(x * SQUARE) * pitch,
                                        (ptrdiff_t)((size_t)(g.across * SQUARE) * pitch),
                                        (ptrdiff_t)pitch},
                    COLUMNS);
        }
}

/* Floats per position of an item's weight gradient. */
static size_t gradient_position(const struct cpu_job *job, struct range span) {
    return (size_t)(span.channels * chex_cpu_padded(job->op->out_channels)) + CPU_PAD;
}

static void add_products(const struct cpu_job *job, const float *x, const float *d,
                         const int32_t *off, int count, float *du, size_t du_position, bool fresh,
                         struct cpu_prefetch *prefetch) {
    const struct cpu_engine *e = job->e;
    int out = job->op->out_channels;
    size_t x_position = position_of(count, pitch_of(COLUMNS));
    size_t d_position = position_of(count, pitch_of(out));
    for (size_t p = 0; p < POSITIONS; p++)
        e->k->outer(x + p * x_position, pitch_of(COLUMNS), d + p * d_position, off, count, COLUMNS,
                    out, du + p * du_position, (size_t)chex_cpu_padded(out), fresh, prefetch);
}

static void backward_tile(const struct cpu_job *job, int index, struct range span, bool fresh,
                          struct cpu_scratch *s) {
    const struct cpu_engine *e = job->e;
    const struct chex_op *op = job->op;
    struct cpu_tile tile = chex_cpu_tile(job->tiling, job->n, index);
    struct grid g = grid_of(job->tiling.hw, tile);
    struct cpu_output in = {job, index, chex_cpu_tile_pixel(job->tiling, tile)};
    size_t pitch = pitch_of(op->out_channels), position = gradient_position(job, span);
    chex_cpu_clear_sums(job, index, span.first, span.channels);
    fill(job, tile, op->out_channels, s->a, chex_cpu_load_grad);
    transform_map(e, s->a, tile.images, g, op->out_channels, s->b);
    list_squares(g.count, pitch, s->off);
    for (int done = 0; done < span.channels; done += COLUMNS) {
        struct range r = {span.first + done, COLUMNS};
        struct cpu_prefetch now = {.calls = POSITIONS}, next = {.calls = POSITIONS};
        chex_cpu_prefetch_input(job, tile, r.first, r.channels, &now, &now);
        if (done + COLUMNS == span.channels && index + 1 < job->tiles) {
            struct cpu_tile after = chex_cpu_tile(job->tiling, job->n, index + 1);
            chex_cpu_prefetch_output(job, after, after.row - 1, after.row + after.rows, &next);
        }
        multiply(job, s->b, s->off, g.count, op->out_channels, r, s->c, &now);
        epilogue_rows(job, tile, g, s->c, r, gradient_epilogue, &in);
        transform_input(job, tile, g, r, s->c);
        add_products(job, s->c, s->b, s->off, g.count,
                     (float *)s->d + (size_t)(done * chex_cpu_padded(op->out_channels)), position,
                     fresh, &next);
    }
}

void chex_cpu_winograd_backward(const struct cpu_job *job, int from, int to, int first,
                                int channels, struct cpu_scratch *s, float *dw) {
    const struct chex_op *op = job->op;
    struct range span = {first, channels};
    for (int t = from; t < to; t++)
        backward_tile(job, t, span, t == from, s);
    const int out = chex_cpu_padded(op->out_channels);
    ptrdiff_t tap = (ptrdiff_t)op->in_channels * out;
    float *last = dw + (TAPS - 1) * tap + (ptrdiff_t)first * out;
    job->e->k->winograd[CPU_WINOGRAD_WEIGHT_BACK]((struct cpu_square){last, -3 * tap, -tap},
                                                  positions(s->d, gradient_position(job, span)),
                                                  channels * out);
}
