/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of the cpu engine: fp32 arithmetic, NHWC feature maps stored as fp32 or bf16.
 *
 * A buffer has all its channels beside each other, so a convolution that writes a slice of the
 * channels of a dense block is the concatenation. An operation works tile by tile: a tile is a few
 * rows of one image or a few whole images, small enough that its normalised input and its output
 * stay in the second-level cache. Batch norm and ReLU are applied where a tile is loaded.
 *
 * Backward of batch norm. All norms that read a channel share its mean and variance, and with
 * A = gamma * inv, S1 = sum du, S2 = sum du * xhat over M pixels, the gradient at the channel is
 *     dx = sum A * du  +  (sum -A * S2 * inv / M) * (x - mean)  +  (sum -A * S1 / M),
 * sums over the norms. The first sum is gathered in the buffer's `g` as the consumers run, the
 * other two are the scalars `b` and `c` of the channel, and the producer puts the three together
 * when it loads its output gradient.
 *
 * Order of sums. A tile's partial sums depend on shapes and on the number of images alone; they are
 * added in the order of tiles. Threads share tiles and ranges of channels, never a sum.
 *
 * Operands of matrix products are fp32, or bf16 where the kernels multiply pairs of those
 * (`pairs`); offsets and pitches count elements of whichever it is, behind void pointers. Split
 * operands are bf16 too: x * y = xh * yh + xh * yl + xl * yh, which to the kernels are three
 * positions of a convolution instead of one.
 *
 * Order inside a convolution's parameters and gradients: (kernel position, in, out).
 */
#ifndef CHEX_ENGINE_CPU_CPU_H
#define CHEX_ENGINE_CPU_CPU_H

#include "base/pool.h"
#include "engine/cpu/kernels.h"
#include "engine/engine.h"

enum {
    CPU_LINE = 64, /* bytes */
    CPU_PAD = 16,  /* floats between rows of scratch, against rows that meet in one cache set */
    CPU_MAX_TAPS = 49,
    CPU_MAX_PLACES = 4, /* of a pixel within a stride */
    CPU_MAX_BLOCKS = 512,
    CPU_CHAIN_OPS = 4, /* see cpu_chain.h */
};

/* How a map of hw x hw pixels is cut: `rows` rows of one image, or `images` whole images where
 * rows == hw. */
struct cpu_tiling {
    int hw, rows, images;
};
struct cpu_tile {
    int image, images, row, rows;
};

/* Pixels of a tile that lie at one distance in memory. */
struct cpu_run {
    size_t pixel; /* of the batch: (image * hw + row) * hw + column */
    int at;       /* place in the tile's list of pixels */
    int count, step;
};

struct cpu_buf {
    char *x, *g; /* (n, hw, hw, channels), see elem_bytes; g: training only */
    int hw, channels;
    bool normed;                      /* some batch norm reads it */
    float *mean, *var, *inv, *xshift; /* of the batch, per channel; xshift = -mean * inv */
    double *bsum, *csum;              /* the scalars b and c so far */
    float *b, *c;
};

struct cpu_bn {
    float *scale, *shift;
};

struct cpu_op {
    struct cpu_tiling fwd, bwd;    /* upper limits; chex_cpu_tiling_for makes them fit n */
    void *weight, *weight_t;       /* packed for the forward pass, for the data gradient */
    uint8_t *argmax;               /* MAXPOOL: (n, hw, hw, channels) of the output */
    bool winograd;                 /* see cpu_winograd.c; weights are panels of fp32 then */
    bool add, side_add;            /* the gradient of in (side_in) has been begun by a later op */
    const struct cpu_chain *chain; /* see cpu_chain.h; NULL: in none */
    double forward_s, backward_s;
};

/* See cpu_stem.c. Output rows that equal kernel rows join to the image are of one class. */
struct cpu_reach {
    int lo, hi;
};
struct cpu_stem {
    int classes;
    struct cpu_reach reach[2 * CPU_MAX_TAPS];
    uint8_t *of;     /* class of each output row, and column */
    float *constant; /* (class of row, class of column, out) */
    double *one;     /* weights of the constant: (position, out) */
};

/* Per thread. */
struct cpu_scratch {
    void *a, *b;                   /* operands */
    float *c;                      /* results */
    void *d;                       /* rows between two operations of a chain */
    double spent_s[CPU_CHAIN_OPS]; /* on each operation of a chain */
    int32_t *off;
    struct cpu_run *runs;
};

/* What the scratch of a thread must hold: bytes, and pixels of a tile. */
struct cpu_need {
    size_t a, b, c, d, pixels;
    size_t winograd; /* floats, of all threads */
};

struct cpu_block {
    void *p;
    size_t bytes;
};

struct cpu_engine {
    const struct chex_net *net;
    struct chex_engine_config config;
    const struct cpu_kernels *k;
    struct chex_pool *pool;
    bool bf16;
    size_t elem_bytes;             /* of a feature map: 4 or 2 */
    const struct cpu_pairs *pairs; /* NULL: products are made in fp32 */
    bool split;                    /* fp32 of three products; see cpu_pairs */
    size_t operand_bytes;          /* of a factor of a product: 4 or 2 */
    struct cpu_op *ops;
    struct cpu_buf *bufs;
    struct cpu_bn *bns;
    struct cpu_stem *stem; /* of the one convolution of the image */
    struct cpu_chain *chains;
    int chain_count;
    float *param, *moment[2]; /* state_count elements each */
    struct cpu_scratch *scratch;
    float *part[4];  /* per tile and channel: cpu_moments, or S1 and S2 (and the side's) */
    float *wpart;    /* partial weight gradients */
    float *winograd; /* weights of the operation at hand, see cpu_winograd.c */
    float *feature;  /* HEAD: (n, features) */
    float *logit;    /* (n, classes); becomes its gradient */
    double *row_sum; /* per channel of the widest buffer, twice */
    struct cpu_block owned[CPU_MAX_BLOCKS]; /* everything to free */
    int owned_count;
    uint64_t bytes;
};

/* Sums of a product: rows [row, row + rows) and columns [column, column + columns) of it. */
struct cpu_results {
    int row, rows, column, columns;
    float *c;
    size_t pitch;
};

/* gemm of cpu_kernels, block by block where somebody takes the results: they are then still in the
 * first-level cache, and c has room for a block alone (chex_cpu_block_floats). weight: packed
 * panels of `positions` x `depth` rows (and as many again of the low halves); columns [first, first
 * + n) of it are wanted. */
struct cpu_product {
    const void *a, *weight;
    const int32_t *off;
    const struct cpu_tap *taps;
    int rows, tap_count, positions, depth, first, n;
    float *c;
    size_t c_pitch; /* of all results; where they are taken a block has its own */
    struct cpu_ahead *ahead;
    void (*take)(void *arg, const struct cpu_results *r); /* NULL: the results stay in c */
    void *arg;
};

/* Rows of operands that the windows of a tile reach, zeros outside the map: `width` pixels each,
 * `rows` of each image, `pitch` elements from pixel to pixel. */
struct cpu_border {
    int width, rows;
    size_t pitch, element_bytes;
};

/* One loop over the tiles of an operation: the argument of pool items. */
struct cpu_job {
    struct cpu_engine *e;
    int index; /* of the op */
    const struct chex_op *op;
    int n;
    const float *pixels;        /* of the batch */
    bool training;              /* statistics of the batch are wanted */
    struct cpu_tiling tiling;   /* fit to n */
    int tiles, tile_groups;     /* tile_groups: runs of tiles with one partial weight gradient */
    int ranges, range_channels; /* the channels are dealt out in ranges of this many */
    int whole;                  /* backward: of so many groups all channels at once */
    float *grad;
    const int8_t *labels;
};

/* ---- cpu_plan.c ---- */
struct cpu_tiling chex_cpu_tiling(int hw, int pixels);
struct cpu_tiling chex_cpu_tiling_for(struct cpu_tiling most, int n);
int chex_cpu_tile_count(struct cpu_tiling t, int n);
struct cpu_tile chex_cpu_tile(struct cpu_tiling t, int n, int index);
static inline int chex_cpu_tile_pixels(struct cpu_tiling t, struct cpu_tile tile) {
    return tile.images * tile.rows * t.hw;
}
static inline size_t chex_cpu_tile_pixel(struct cpu_tiling t, struct cpu_tile tile) {
    return ((size_t)tile.image * (size_t)t.hw + (size_t)tile.row) * (size_t)t.hw;
}
/* Tilings, memory and scratch of everything. */
enum chex_status chex_cpu_plan(struct cpu_engine *e, struct chex_error *err);
/* count * size bytes that live as long as the engine, zeroed; NULL when out of memory. */
void *chex_cpu_take(struct cpu_engine *e, size_t count, size_t size);

/* ---- engine_cpu.c ---- */
/* create of chex_engine_impl with kernels that the caller has chosen. */
enum chex_status chex_cpu_create(const struct cpu_kernels *kernels,
                                 const struct chex_engine_config *config, void **self_out,
                                 struct chex_error *err);

/* ---- cpu_tiles.c ---- */
/* Asks the system for tile registers, which this process then has; where that or the processor says
 * no, the reason is written. */
bool chex_cpu_tiles_allowed(char *why_out, size_t size);

/* ---- cpu_pack.c ---- */
/* Between row-major order (files) and the engine's own order. */
void chex_cpu_from_rows(const struct chex_net *net, float *own, const float *rows);
void chex_cpu_to_rows(const struct chex_net *net, float *rows, const float *own);
void chex_cpu_pack(struct cpu_engine *e); /* all packed copies from the parameters */

/* ---- cpu_norm.c ---- */
/* Scale and shift of a batch norm from the batch (training) or from the running statistics. */
void chex_cpu_norm_prepare(struct cpu_engine *e, int bn, bool training);
struct cpu_norm chex_cpu_norm_at(const struct cpu_engine *e, int bn, int channel);
/* Stores results of a tile, of which `pixel` is the first pixel, at the op's output, and gathers
 * their statistics. r: columns from the first output channel; rows of a column come in order. */
void chex_cpu_store(const struct cpu_job *job, int tile, size_t pixel, const struct cpu_results *r);
void chex_cpu_norm_join(const struct cpu_job *job); /* the tiles' statistics into the buffer's */
/* S1 and S2 of all tiles into the norm's gradients and the channels' scalars. side: 0 or 1. */
void chex_cpu_norm_back(const struct cpu_job *job, int bn, int side);
/* The scalars of the op's output channels, ready for chex_cpu_load_grad. */
void chex_cpu_grad_prepare(struct cpu_engine *e, const struct chex_op *op);
/* Mean and unbiased variance of each batch norm into a gradient vector. */
void chex_cpu_norm_report(struct cpu_engine *e, int n, float *grad);

/* ---- the operations ---- */
/* Adds what the op's tiles need of a thread's scratch. */
void chex_cpu_conv_plan(struct cpu_engine *e, int op, struct cpu_need *need);
void chex_cpu_conv_forward(struct cpu_job *job);
/* `pixels` pixels of the op's input, from `pixel` on and `step` apart, as operands. */
void chex_cpu_load_input(const struct cpu_job *job, void *dst, size_t pitch, size_t pixel, int step,
                         int pixels);
/* Where the windows of a tile begin among operand rows `width` pixels wide, of which each image has
 * `rows`, and where the kernel's positions lie from there. */
void chex_cpu_windows(const struct cpu_job *job, struct cpu_tile tile, int hw, int rows, int width,
                      int32_t *off, struct cpu_tap taps[CPU_MAX_TAPS]);
/* The input of the tile that the thread of tile `index` is likely to take next. */
void chex_cpu_want_next(const struct cpu_job *job, int index, struct cpu_ahead *h);
/* The op's products; of p the weight and the op's numbers are filled in. */
void chex_cpu_multiply(const struct cpu_job *job, struct cpu_product p);
void chex_cpu_conv_backward(struct cpu_job *job);
/* What is wanted soon of a backward pass: a range of the channels of a tile's input and of its
 * gradient, to which results are added; rows [lo, hi] of the output's gradient, with what finishes
 * it. */
void chex_cpu_want_input(const struct cpu_job *job, struct cpu_tile tile, int first, int channels,
                         struct cpu_ahead *gradient, struct cpu_ahead *input);
void chex_cpu_want_output(const struct cpu_job *job, struct cpu_tile tile, int lo, int hi,
                          struct cpu_ahead *h);
/* The norm's sums of a tile, of some channels, before and while its gradient is stored. */
void chex_cpu_clear_sums(const struct cpu_job *job, int tile, int first, int channels);
void chex_cpu_back_store(const struct cpu_job *job, int tile, int first, int channels,
                         const struct cpu_run *run, const float *dv, size_t pitch);
int chex_cpu_conv_groups(const struct chex_net *net, int op, int tiles);
/* False: out of memory. */
bool chex_cpu_stem_plan(struct cpu_engine *e, int op, struct cpu_need *need);
size_t chex_cpu_stem_depth(const struct chex_op *op); /* rows of its folded weight */
/* Floats of a partial weight gradient. */
size_t chex_cpu_stem_partial(const struct cpu_engine *e, const struct chex_op *op);
void chex_cpu_stem_pack(struct cpu_engine *e, int op);
void chex_cpu_stem_forward(struct cpu_job *job);
/* The sums of a tile into s->c, rows of out_channels + CPU_PAD. */
void chex_cpu_stem_products(const struct cpu_job *job, struct cpu_tile tile, struct cpu_scratch *s);
void chex_cpu_stem_backward(struct cpu_job *job);
void chex_cpu_pool_plan(struct cpu_engine *e, int op, struct cpu_need *need);
void chex_cpu_pool_forward(struct cpu_job *job);
/* Row y of the output from rows of the normalised input, of which the first is first_row; argmax of
 * the row may be NULL. */
void chex_cpu_pool_row(const struct cpu_job *job, int y, const float *rows, int first_row,
                       float *dst, uint8_t *argmax);
void chex_cpu_pool_backward(struct cpu_job *job);
void chex_cpu_join_plan(struct cpu_engine *e, int op, struct cpu_need *need);
void chex_cpu_join_forward(struct cpu_job *job);
void chex_cpu_join_backward(struct cpu_job *job);
void chex_cpu_head_plan(struct cpu_engine *e, int op, struct cpu_need *need);
void chex_cpu_head_forward(struct cpu_job *job);
double chex_cpu_head_loss(struct cpu_job *job); /* logits become their gradient */
void chex_cpu_head_backward(struct cpu_job *job);

/* ---- cpu_winograd.c ---- */
/* Whether the op is computed so; decided once. */
bool chex_cpu_winograd_fits(const struct cpu_engine *e, const struct chex_op *op);
void chex_cpu_product_shares(void *self, double *share_out); /* of struct chex_engine_impl */
void chex_cpu_winograd_plan(struct cpu_engine *e, int op, struct cpu_need *need);
/* For whoever has a tile's operands already: how it is cut; what of a thread's scratch its products
 * take (returned: floats of the operands); rows of operands. */
struct cpu_tiling chex_cpu_winograd_tiling(int hw, int channels);
size_t chex_cpu_winograd_need(struct cpu_tiling t, int channels, struct cpu_need *need);
struct cpu_border chex_cpu_winograd_border(int hw, struct cpu_tile tile, int channels);
/* Transformed weights, in floats, and how they are made of panels of 3x3 positions. */
size_t chex_cpu_winograd_weight(const struct cpu_engine *e, int depth, int columns);
void chex_cpu_winograd_pack(struct cpu_engine *e, const float *panels, int depth, int columns,
                            bool turned, float *u);
/* Before a loop over the op's tiles. */
void chex_cpu_winograd_prepare(const struct cpu_job *job, bool backward);
/* Columns [first, first + columns) of a tile's sums, a row of pixels after the other. src: rows of
 * operands with their border. */
void chex_cpu_winograd_multiply(const struct cpu_job *job, struct cpu_tile tile, const float *src,
                                int first, int columns, struct cpu_scratch *s,
                                struct cpu_ahead *ahead,
                                void (*take)(void *arg, const struct cpu_results *r), void *arg);
void chex_cpu_winograd_forward(struct cpu_job *job); /* ranges have been dealt out */
/* Tiles [from, to), of which the weight gradient of `channels` input channels from `first` on is
 * written to dw, which has all of them. */
void chex_cpu_winograd_backward(const struct cpu_job *job, int from, int to, int first,
                                int channels, struct cpu_scratch *s, float *dw);

/* ---- cpu_maps.c ---- */
/* class_maps of struct chex_engine_impl. */
enum chex_status chex_cpu_class_maps(void *self, int image, float *maps_out,
                                     struct chex_error *err);

/* ---- cpu_ahead.c ---- */
/* Adds `channels` channels of rows [lo, hi] of the images of a tile (as far as there are such) to
 * what is wanted. from: the first pixel of the map at the first of the channels. */
void chex_cpu_want(struct cpu_ahead *h, struct cpu_stored from, int hw, struct cpu_tile tile,
                   int lo, int hi, int channels);

/* ---- cpu_forward.c, cpu_backward.c ---- */
void chex_cpu_forward(struct cpu_engine *e, const struct chex_batch *batch, bool training);
void chex_cpu_backward(struct cpu_engine *e, const struct chex_batch *batch, float *grad,
                       chex_grad_ready_fn ready, void *ready_arg);
void chex_cpu_update(struct cpu_engine *e, const struct chex_update *update, const float *grad);

/* ---- cpu_limits.c ---- */
enum chex_status chex_cpu_limits(void *self, uint64_t most_bytes,
                                 struct chex_engine_limits *limits_out, struct chex_error *err);

/* ---- cpu_product.c ---- */
/* Around an item's products, on its thread. */
void chex_cpu_product_begin(const struct cpu_engine *e);
void chex_cpu_product_end(const struct cpu_engine *e);

/* Floats of c where results are taken. */
size_t chex_cpu_block_floats(const struct cpu_engine *e);
void chex_cpu_gemm(const struct cpu_engine *e, const struct cpu_product *p);

/* outer of cpu_kernels, on rows [row, row + rows) of the `channels` of v, pixels [first, first +
 * count) of its list; first is a multiple of the group. w is n wide. */
struct cpu_outer {
    const void *v, *d;
    const int32_t *off;
    int first, count, channels, row, rows, n;
    float *w;
    bool fresh;
    struct cpu_ahead *ahead;
};
void chex_cpu_outer(const struct cpu_engine *e, const struct cpu_outer *o);
int chex_cpu_outer_rows(const struct cpu_engine *e); /* the most that are useful in one call */
/* Pixels that stand beside each other in v, and elements from one such group to the next. */
size_t chex_cpu_outer_group(const struct cpu_engine *e);
size_t chex_cpu_outer_pitch(const struct cpu_engine *e, int channels);

/* ---- small helpers ---- */
static inline struct cpu_stored chex_cpu_x(const struct cpu_engine *e, int buffer, size_t pixel,
                                           int channel, int step) {
    const struct cpu_buf *b = &e->bufs[buffer];
    size_t pitch = (size_t)b->channels;
    return (struct cpu_stored){b->x + (pixel * pitch + (size_t)channel) * e->elem_bytes,
                               pitch * (size_t)step, e->bf16};
}
static inline struct cpu_stored chex_cpu_g(const struct cpu_engine *e, int buffer, size_t pixel,
                                           int channel, int step) {
    const struct cpu_buf *b = &e->bufs[buffer];
    size_t pitch = (size_t)b->channels;
    return (struct cpu_stored){b->g + (pixel * pitch + (size_t)channel) * e->elem_bytes,
                               pitch * (size_t)step, e->bf16};
}
/* The batch norm `bn` in front of an operation as load takes it, from a channel on: without one
 * NULL, NULL and 0. Operands are rounded where they are bf16. */
struct cpu_affine {
    const float *scale, *shift;
    int relu;
};
static inline struct cpu_affine chex_cpu_affine(const struct cpu_engine *e, int bn, int channel) {
    if (bn < 0)
        return (struct cpu_affine){NULL, NULL, 0};
    return (struct cpu_affine){e->bns[bn].scale + channel, e->bns[bn].shift + channel, CPU_RELU};
}
static inline int chex_cpu_operand_flags(const struct cpu_engine *e, struct cpu_affine a) {
    return a.relu && e->bf16 ? a.relu | CPU_ROUND : a.relu;
}
/* dst = the finished gradient of `pixels` pixels of the op's output, all its channels; in fp32, or
 * as an operand. */
void chex_cpu_load_grad(const struct cpu_job *job, float *dst, size_t pitch, size_t pixel,
                        int pixels);
void chex_cpu_load_grad_operand(const struct cpu_job *job, void *dst, size_t pitch, size_t pixel,
                                int pixels);
/* Elements that one value of an operand takes. */
static inline size_t chex_cpu_halves(const struct cpu_engine *e) { return e->split ? 2 : 1; }
/* Elements from one row of `channels` operands to the next, and a place among operands. */
static inline size_t chex_cpu_pitch(const struct cpu_engine *e, int channels) {
    return (size_t)channels * chex_cpu_halves(e) + CPU_LINE / e->operand_bytes;
}
static inline void *chex_cpu_at(const struct cpu_engine *e, const void *base, size_t element) {
    return (char *)(uintptr_t)base + element * e->operand_bytes;
}
static inline size_t chex_cpu_max(size_t a, size_t b) { return a > b ? a : b; }
/* What load and load_grad of the pairs do to operands. */
static inline int chex_cpu_split_flag(const struct cpu_engine *e) {
    return e->split ? CPU_SPLIT : 0;
}
static inline void chex_cpu_need_floats(size_t *need, size_t floats) {
    *need = chex_cpu_max(*need, floats * sizeof(float));
}
/* Input rows that the windows of `rows` output rows reach, padding included. */
static inline int chex_cpu_halo(const struct chex_op *op, int rows) {
    return (rows - 1) * op->stride + op->kernel;
}
static inline int chex_cpu_floor_div(int a, int b) { return a >= 0 ? a / b : -((b - 1 - a) / b); }

#endif
