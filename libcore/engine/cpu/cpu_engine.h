/* SPDX-License-Identifier: Apache-2.0
 *
 * The internals of the cpu engine: fp32 arithmetic, NHWC feature maps stored as fp32 or bf16.
 *
 * Tiles. An operation works tile by tile. A tile is a few rows of one image or a few whole images,
 * small enough that its normalised input and its output stay in the second-level cache. Batch norm
 * and ReLU are applied when a tile is loaded.
 *
 * Concatenation. The channels of a buffer are contiguous in each pixel. A convolution of a dense
 * block writes its slice of the channels, so concatenation needs no copy.
 *
 * Deferred backward of batch norm. All norms that read a channel share its mean and variance. With
 * A = gamma * inv, S1 = sum du, S2 = sum du * xhat over M pixels, the gradient at the channel is
 *     dx = sum A * du  +  (sum -A * S2 * inv / M) * (x - mean)  +  (sum -A * S1 / M),
 * where the outer sums run over the norms. The consumers accumulate the first sum in the buffer's
 * `g`. The other two sums are the scalars `b` and `c` of the channel. The producer of the buffer
 * combines the three terms when it loads its output gradient.
 *
 * Order of sums. The partial sums of a tile depend only on shapes and on the number of images. They
 * are added in the order of tiles. Threads divide tiles and ranges of channels; two threads never
 * add to the same sum. So results do not depend on the number of threads.
 *
 * Operands of matrix products are fp32, or bf16 if the kernels have bf16 dot products (`dot2`).
 * They are passed as void pointers; offsets and pitches count elements of the operand type.
 * Split operands represent fp32 by two bf16 values: x * y = xh * yh + xh * yl + xl * yh. The
 * kernels compute this as a convolution with three times as many positions.
 *
 * Order of a convolution's parameters and gradients: (kernel position, in, out).
 *
 * Uneven operations. Matrix products are made for blocks of 32 channels. If an operation has an odd
 * multiple of 16 channels, its packed weights and partial weight gradients have 16 rows or columns
 * more (chex_cpu_padded). Products of the surplus rows and columns are not used: the operands of
 * dot2 end with zeros, fp32 products stop at the last channel, and nothing reads the surplus
 * results.
 */
#ifndef CHEX_ENGINE_CPU_CPU_ENGINE_H
#define CHEX_ENGINE_CPU_CPU_ENGINE_H

#include <string.h>

#include "base/pool.h"
#include "engine/cpu/kernels.h"
#include "engine/engine.h"
#include "engine/update.h"

enum {
    CPU_LINE = 64,     /* bytes of a cache line */
    CPU_PAD = 16,      /* floats added to a row of scratch, so that rows use different cache sets */
    CPU_MAX_TAPS = 49, /* positions of a 7x7 kernel */
    CPU_MAX_PLACES = 4, /* phases of a stride: stride * stride */
    CPU_FUSION_OPS = 4, /* see cpu_fusion.h */
};

/* How a map of hw x hw pixels is cut into tiles: `rows` rows of one image, or `images` whole images
 * if rows == hw. */
struct cpu_tiling {
    int hw, rows, images;
};
struct cpu_tile {
    int image, images, row, rows;
};

/* `count` pixels of a tile, `step` pixels apart in memory. */
struct cpu_run {
    size_t pixel; /* first pixel of the run in the batch: (image * hw + row) * hw + column */
    int at;       /* index of the first pixel in the tile's list of pixels */
    int count, step;
};

struct cpu_buf {
    char *x, *g; /* (n, hw, hw, channels), see elem_bytes; g: training only */
    int hw, channels;
    bool normed;                      /* at least one batch norm reads it */
    float *mean, *var, *inv, *xshift; /* batch statistics per channel; xshift = -mean * inv */
    double *bsum, *csum;              /* deferred batch norm terms b and c, accumulated so far */
    float *b, *c;                     /* the same, complete and rounded to fp32 */
};

struct cpu_bn {
    float *scale, *shift;
};

struct cpu_op {
    struct cpu_tiling fwd, bwd;      /* largest tiles; chex_cpu_tiling_for adapts them to n */
    void *weight, *weight_t;         /* packed for the forward pass, for the data gradient */
    uint8_t *argmax;                 /* MAXPOOL: (n, hw, hw, channels) of the output */
    bool winograd;                   /* see cpu_winograd.c; then weights are panels of fp32 */
    const struct cpu_fusion *fusion; /* its fusion group (cpu_fusion.h); NULL: none */
    double forward_s, backward_s;
};

/* See cpu_stem.c. Output rows form a class if the same kernel rows [lo, hi) lie inside the image.
 * Columns have the same classes. */
struct cpu_reach {
    int lo, hi;
};
struct cpu_stem {
    int classes;
    struct cpu_reach reach[2 * CPU_MAX_TAPS];
    uint8_t *of;     /* class of each output row; also of each output column */
    float *constant; /* contribution of the constant: (class of row, class of column, out) */
    double *one;     /* weights of the constant: (position, out) */
};

/* Scratch of one thread. The scratch of all threads is one block. Each thread is the first to write
 * its own part, so the system places those pages on the thread's NUMA node. */
struct cpu_scratch {
    void *a, *b;                    /* operands */
    float *c;                       /* results */
    void *d;                        /* rows between two operations of a fusion group */
    double spent_s[CPU_FUSION_OPS]; /* seconds for each operation of a fusion group */
    int32_t *off;                   /* offsets of the tile's pixels among the operands */
    struct cpu_run *runs;
};

/* Sizes of the scratch, as maxima over all operations. */
struct cpu_need {
    size_t a, b, c, d; /* bytes per thread */
    size_t pixels;     /* pixels of a tile: length of off and runs */
    size_t winograd;   /* floats, shared by all threads */
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
    size_t elem_bytes;           /* of an element of a feature map: 4 or 2 */
    const struct cpu_dot2 *dot2; /* bf16 dot products; NULL: products are fp32 */
    bool split;                  /* an fp32 product is three bf16 products; see cpu_dot2 */
    size_t operand_bytes;        /* of an element of an operand: 4 or 2 */
    struct cpu_op *ops;
    bool *adds[2]; /* per op: see chex_gradient_adds; of in, of side_in */
    struct cpu_buf *bufs;
    struct cpu_bn *bns;
    struct cpu_stem *stem; /* of the convolution that reads the image */
    struct cpu_fusion *fusions;
    int fusion_count;
    float *param, *moment[2], *ema; /* state_count elements each; ema NULL: none is kept */
    struct chex_clip clip;
    struct cpu_scratch *scratch;
    float *part[4];  /* per tile and channel. Forward: cpu_moments in [0] to [2]. Backward:
                        S1 and S2 of in in [0] and [1], of side_in in [2] and [3] */
    float *wpart;    /* partial weight gradients */
    float *winograd; /* transformed weights of the current operation, see cpu_winograd.c */
    float *feature;  /* HEAD: (n, features) */
    float *logit;    /* (n, classes); overwritten by its gradient */
    double *row_sum; /* two sums per channel of the widest buffer */
    char *maps;      /* all feature maps and their gradients; own, or the lender's */
    size_t map_bytes;
    struct cpu_block *owned; /* all allocations, freed by destroy */
    size_t owned_count;
    uint64_t bytes; /* sum over owned */
};

/* A block of results: rows [row, row + rows) of a tile, and columns [column, column + columns) of
 * its channels. */
struct cpu_results {
    int row, rows, column, columns;
    float *c;
    size_t pitch;
};

/* Arguments of chex_cpu_gemm: gemm of cpu_kernels for any operand type.
 * - weight: packed panels of positions * padded depth rows. Split operands: as many rows of low
 *   parts follow in each panel.
 * - Computes columns [first, first + n).
 * - epilogue set: the product is computed in blocks, and epilogue receives each block while it is
 * still in the first-level cache. c then holds one block: chex_cpu_block_floats. */
struct cpu_product {
    const void *a, *weight;
    const int32_t *off;
    const struct cpu_tap *taps;
    int rows, tap_count, positions, depth, first, n;
    float *c;
    size_t c_pitch;                /* of c, unless epilogue is set: a block has its own pitch */
    struct cpu_prefetch *prefetch; /* NULL: none */
    void (*epilogue)(void *arg, const struct cpu_results *r); /* NULL: all results stay in c */
    void *arg;
};

/* Operands of a tile with the border that its windows reach, zeros outside the map: per image
 * `rows` rows of `width` pixels, `pitch` elements from pixel to pixel. */
struct cpu_border {
    int width, rows;
    size_t pitch, element_bytes;
};

/* Where a tile's results go: the argument of chex_cpu_store_results. */
struct cpu_output {
    const struct cpu_job *job;
    int tile;
    size_t pixel; /* first pixel of the tile in the batch */
};

/* One loop over the tiles of an operation: the argument of the thread pool's items. */
struct cpu_job {
    struct cpu_engine *e;
    int index; /* of the op */
    const struct chex_op *op;
    int n;                    /* images */
    const float *pixels;      /* of the batch */
    bool training;            /* use and gather batch statistics */
    struct cpu_tiling tiling; /* adapted to n */
    int tiles, tile_runs;     /* a tile group is a run of tiles with one partial weight gradient */
    int ranges, range_channels; /* items per tile or group, and channels of each */
    int whole;                  /* backward: the first `whole` groups are not divided by channels */
    float *grad;
};

/* ---- cpu_buffers.c ---- */
/* Tiles of at most about `pixels` pixels. */
struct cpu_tiling chex_cpu_tiling(int hw, int pixels);
/* The tiling for a batch of n images: tiles of whole images shrink if n is small. */
struct cpu_tiling chex_cpu_tiling_for(struct cpu_tiling largest, int n);
int chex_cpu_tile_count(struct cpu_tiling t, int n);
struct cpu_tile chex_cpu_tile(struct cpu_tiling t, int n, int index);
static inline int chex_cpu_tile_pixels(struct cpu_tiling t, struct cpu_tile tile) {
    return tile.images * tile.rows * t.hw;
}
/* Index in the batch of the first pixel of a row of a map of hw x hw pixels; of a tile. */
static inline size_t chex_cpu_row(int hw, int image, int row) {
    return ((size_t)image * (size_t)hw + (size_t)row) * (size_t)hw;
}
static inline size_t chex_cpu_tile_pixel(struct cpu_tiling t, struct cpu_tile tile) {
    return chex_cpu_row(t.hw, tile.image, tile.row);
}
/* Operation `index` on a batch, in tiles of at most `largest`. */
struct cpu_job chex_cpu_job(struct cpu_engine *e, int index, const struct chex_batch *batch,
                            struct cpu_tiling largest);
/* Decides all tilings and allocates all memory. */
enum chex_status chex_cpu_lay_out(struct cpu_engine *e, struct chex_error *err);
/* Allocates count * size zeroed bytes that the engine owns. NULL: out of memory. */
void *chex_cpu_alloc(struct cpu_engine *e, size_t count, size_t size);

/* ---- engine_cpu.c ---- */
/* create of chex_engine_impl with the given kernels. */
enum chex_status chex_cpu_create(const struct cpu_kernels *kernels,
                                 const struct chex_engine_config *config, void **self_out,
                                 struct chex_error *err);

/* ---- cpu_tiles.c ---- */
/* Requests AMX tile registers from the system; the process then keeps them. False: the processor
 * or the system has none, and why_out has the reason. */
bool chex_cpu_tiles_allowed(char *why_out, size_t size);

/* ---- cpu_pack.c ---- */
/* Convert between row-major order (files) and the engine's order. */
void chex_cpu_from_rows(const struct chex_net *net, float *own, const float *rows);
void chex_cpu_to_rows(const struct chex_net *net, float *rows, const float *own);
void chex_cpu_pack(struct cpu_engine *e); /* rebuilds all packed weights from the parameters */

/* ---- cpu_norm.c ---- */
/* Computes scale and shift of the op's batch norms from the batch statistics (training) or from the
 * running ones. */
void chex_cpu_norm_prepare(struct cpu_engine *e, const struct chex_op *op, bool training);
/* An epilogue with a struct cpu_output: stores a block of results at the op's output and gathers
 * their statistics. The blocks of a column must come in order of rows. */
void chex_cpu_store_results(void *output, const struct cpu_results *r);
/* Merges the statistics of all tiles into those of the op's output buffer, and with config.sync
 * those of all logical ranks. Fails only if config.sync does; so do chex_cpu_grad_prepare,
 * chex_cpu_forward and chex_cpu_backward. */
enum chex_status chex_cpu_norm_merge(const struct cpu_job *job, struct chex_error *err);
/* Clears the sums S1 and S2 of a tile for some channels; then _back_store adds to them while it
 * stores the gradient dv of the (normalised) operand for a run of pixels. side: 0 for in, 1 for
 * side_in. */
void chex_cpu_clear_sums(const struct cpu_job *job, int tile, int first, int channels);
void chex_cpu_back_store(const struct cpu_job *job, int tile, int side, int first, int channels,
                         struct cpu_run run, const float *dv, size_t pitch);
/* Sums S1 and S2 over all tiles: writes the parameter gradients of the op's batch norms and adds to
 * the deferred terms of the channels. */
void chex_cpu_norm_back(const struct cpu_job *job);
/* Completes the deferred terms b and c of the op's output channels, for chex_cpu_load_grad. */
enum chex_status chex_cpu_grad_prepare(struct cpu_engine *e, const struct chex_op *op,
                                       struct chex_error *err);
/* Writes mean and unbiased variance of each batch norm to a gradient vector. */
void chex_cpu_norm_report(struct cpu_engine *e, int n, float *grad);

/* ---- the operations ---- */
struct cpu_kind {
    /* Chooses the op's tiling and raises `need` to the scratch that its tiles use. False: out of
     * memory. */
    bool (*plan)(struct cpu_engine *e, int op, struct cpu_need *need);
    void (*forward)(struct cpu_job *job), (*backward)(struct cpu_job *job);
};
extern const struct cpu_kind chex_cpu_conv, chex_cpu_stem, chex_cpu_pool, chex_cpu_residual_add,
    chex_cpu_head;
const struct cpu_kind *chex_cpu_kind_of(const struct chex_op *op);

/* Loads contiguous pixels of a buffer as fp32: channels [0, channels), through batch norm bn (NONE:
 * none) and, with `relu`, its ReLU. */
void chex_cpu_load(const struct cpu_engine *e, int buffer, int bn, bool relu, size_t pixel,
                   int pixels, int channels, float *dst);
/* Loads `pixels` pixels of the op's input as operands, from `pixel` on and `step` pixels apart. */
void chex_cpu_load_input(const struct cpu_job *job, void *dst, size_t pitch, size_t pixel, int step,
                         int pixels);
typedef void cpu_load_fn(const struct cpu_job *job, void *dst, size_t pitch, size_t pixel,
                         int pixels);
/* Loads rows [from, from + b.rows) of each image of a tile with a border: zeros outside the map of
 * hw x hw pixels and in the columns that follow the `left` first and the `inside` loaded ones. */
void chex_cpu_load_border(const struct cpu_job *job, struct cpu_tile tile, int hw, int from,
                          int left, int inside, struct cpu_border b, void *dst, cpu_load_fn *load);
/* Computes the offsets of a tile's windows (off) and of the kernel's positions from there (taps)
 * among operand rows of `width` pixels, `rows` rows per image. */
void chex_cpu_windows(const struct cpu_job *job, struct cpu_tile tile, int hw, int rows, int width,
                      int32_t *off, struct cpu_tap taps[CPU_MAX_TAPS]);
/* Prefetches the input of the tile that the thread of tile `index` is likely to process next. */
void chex_cpu_prefetch_next(const struct cpu_job *job, int index, struct cpu_prefetch *h);
/* chex_cpu_gemm with the op's weight, positions and depth filled in. */
void chex_cpu_multiply(const struct cpu_job *job, struct cpu_product p);
void chex_cpu_conv_backward(struct cpu_job *job); /* of chex_cpu_conv */
/* Prefetch for a backward pass.
 * _input: a range of the channels of a tile's input, and of its gradient (read and written).
 * _output: rows [lo, hi] of the output's gradient, and of the output if a batch norm reads it. */
void chex_cpu_prefetch_input(const struct cpu_job *job, struct cpu_tile tile, int first,
                             int channels, struct cpu_prefetch *gradient,
                             struct cpu_prefetch *input);
void chex_cpu_prefetch_output(const struct cpu_job *job, struct cpu_tile tile, int lo, int hi,
                              struct cpu_prefetch *h);
/* Number of partial weight gradients of an op. */
int chex_cpu_conv_groups(const struct chex_net *net, int op, int tiles);
size_t chex_cpu_stem_depth(const struct chex_op *op); /* rows of its folded weight */
/* Floats of a partial weight gradient. */
size_t chex_cpu_stem_partial(const struct cpu_engine *e, const struct chex_op *op);
void chex_cpu_stem_pack(struct cpu_engine *e, int op);
/* Computes the op's output for a tile into s->c, rows of out_channels + CPU_PAD. */
void chex_cpu_stem_products(const struct cpu_job *job, struct cpu_tile tile, struct cpu_scratch *s);
/* Computes output row y from normalised input rows; rows[0] is input row first_row. argmax of the
 * row may be NULL. */
void chex_cpu_pool_row(const struct cpu_job *job, int y, const float *rows, int first_row,
                       float *dst, uint8_t *argmax);

/* ---- cpu_winograd.c ---- */
/* Whether the op uses Winograd's algorithm; decided once, in plan. */
bool chex_cpu_winograd_fits(const struct cpu_engine *e, const struct chex_op *op);
void chex_cpu_product_shares(void *self, double *share_out); /* of struct chex_engine_impl */
void chex_cpu_winograd_plan(struct cpu_engine *e, int op, struct cpu_need *need);
/* For callers that make a tile's operands themselves (fusion groups):
 * _tiling  the op's tiles
 * _need    raises `need` to the scratch of the products; returns the floats of the operands
 * _border  the layout of the operands */
struct cpu_tiling chex_cpu_winograd_tiling(int hw, int channels);
size_t chex_cpu_winograd_need(struct cpu_tiling t, int channels, struct cpu_need *need);
struct cpu_border chex_cpu_winograd_border(int hw, struct cpu_tile tile, int channels);
/* Size of the transformed weights in floats, and their computation from panels of 3x3 positions.
 * turned: rotate the kernel by 180 degrees, for the data gradient. */
size_t chex_cpu_winograd_weight(const struct cpu_engine *e, int depth, int columns);
void chex_cpu_winograd_pack(struct cpu_engine *e, const float *panels, int depth, int columns,
                            bool turned, float *u);
/* Transforms the op's weights. Call it before a loop over the op's tiles. */
void chex_cpu_winograd_prepare(const struct cpu_job *job, bool backward);
/* Computes columns [first, first + columns) of a tile's results and passes them to epilogue, one
 * row of pixels at a time. src: operands in the layout of _border. */
void chex_cpu_winograd_multiply(const struct cpu_job *job, struct cpu_tile tile, const float *src,
                                int first, int columns, struct cpu_scratch *s,
                                struct cpu_prefetch *prefetch,
                                void (*epilogue)(void *arg, const struct cpu_results *r),
                                void *arg);
/* Forward of a tile for `channels` output channels from `first` on. */
void chex_cpu_winograd_forward(const struct cpu_job *job, struct cpu_tile tile, int first,
                               int channels, struct cpu_scratch *s, struct cpu_prefetch *prefetch,
                               struct cpu_output *out);
/* Backward of tiles [from, to) for `channels` input channels from `first` on. Writes their part of
 * dw, a weight gradient with all input channels. */
void chex_cpu_winograd_backward(const struct cpu_job *job, int from, int to, int first,
                                int channels, struct cpu_scratch *s, float *dw);

/* ---- cpu_head.c ---- */
/* Entries of struct chex_engine_maps. */
enum chex_status chex_cpu_class_maps(void *self, int image, float *maps_out,
                                     struct chex_error *err);
enum chex_status chex_cpu_features(void *self, int n, float *features_out, struct chex_error *err);

/* ---- cpu_prefetch.c ---- */
/* Adds `channels` channels of rows [lo, hi] of a tile's images to the prefetch list; rows outside
 * the map are skipped. from: the first pixel of the map, at the first of these channels. */
void chex_cpu_prefetch_rows(struct cpu_prefetch *h, struct cpu_stored from, int hw,
                            struct cpu_tile tile, int lo, int hi, int channels);

/* ---- cpu_forward.c, cpu_backward.c ---- */
enum chex_status chex_cpu_forward(struct cpu_engine *e, const struct chex_batch *batch,
                                  bool training, struct chex_error *err);
enum chex_status chex_cpu_backward(struct cpu_engine *e, const struct chex_batch *batch,
                                   float *grad, chex_grad_ready_fn ready, void *ready_arg,
                                   struct chex_error *err);
void chex_cpu_update(struct cpu_engine *e, const struct chex_update *update, const float *grad);

/* ---- cpu_limits.c ---- */
enum chex_status chex_cpu_limits(void *self, uint64_t max_bytes,
                                 struct chex_engine_limits *limits_out, struct chex_error *err);

/* ---- cpu_product.c ---- */
/* Call these around the products of an item, on its thread. */
void chex_cpu_product_begin(const struct cpu_engine *e);
void chex_cpu_product_end(const struct cpu_engine *e);

/* Floats of c if cpu_product.epilogue is set. */
size_t chex_cpu_block_floats(const struct cpu_engine *e);
void chex_cpu_gemm(const struct cpu_engine *e, const struct cpu_product *p);

/* Arguments of chex_cpu_outer: outer of cpu_kernels for any operand type.
 * - Rows [row, row + rows) of the `channels` channels of v.
 * - Pixels [first, first + count) of the list; first is a multiple of chex_cpu_outer_group.
 * - w: rows of n floats, padded. fresh: overwrite w instead of adding to it. */
struct cpu_outer {
    const void *v, *d;
    const int32_t *off;
    int first, count, channels, row, rows, n;
    float *w;
    bool fresh;
    struct cpu_prefetch *prefetch;
};
void chex_cpu_outer(const struct cpu_engine *e, const struct cpu_outer *o);
int chex_cpu_outer_rows(const struct cpu_engine *e); /* best number of rows per call */
/* Layout of v: pixels of a group, and elements from one group to the next. */
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
/* The batch norm before an operation in the form that load expects, from channel `channel` on. No
 * batch norm: NULL, NULL and 0. */
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
/* dst = the complete gradient (with the deferred terms) of `pixels` pixels of the op's output, all
 * channels; in fp32, or in the operand type. */
cpu_load_fn chex_cpu_load_grad, chex_cpu_load_grad_operand;
/* Elements per value of an operand: 2 if operands are split. */
static inline size_t chex_cpu_halves(const struct cpu_engine *e) { return e->split ? 2 : 1; }
/* Elements of a convolution's padded weight; its parameter has fewer if the operation is uneven. */
static inline size_t chex_cpu_weight_count(const struct chex_op *op) {
    return (size_t)(op->kernel * op->kernel) * (size_t)chex_cpu_padded(op->in_channels) *
           (size_t)chex_cpu_padded(op->out_channels);
}
static inline bool chex_cpu_uneven(const struct chex_op *op) {
    return op->in != CHEX_NET_IMAGE &&
           (op->in_channels % CPU_CHANNELS || op->out_channels % CPU_CHANNELS);
}
/* Elements from one pixel of `channels` operands to the next. _at: the address of an element, which
 * may be before the base (a negative number as size_t). */
static inline size_t chex_cpu_pitch(const struct cpu_engine *e, int channels) {
    return (size_t)chex_cpu_padded(channels) * chex_cpu_halves(e) + CPU_LINE / e->operand_bytes;
}
static inline void *chex_cpu_at(const struct cpu_engine *e, const void *base, size_t element) {
    return (void *)((uintptr_t)base + element * e->operand_bytes);
}
static inline size_t chex_cpu_max(size_t a, size_t b) { return a > b ? a : b; }
/* Flag for load and load_grad of cpu_dot2. */
static inline int chex_cpu_split_flag(const struct cpu_engine *e) {
    return e->split ? CPU_SPLIT : 0;
}
static inline void chex_cpu_need_floats(size_t *need, size_t floats) {
    *need = chex_cpu_max(*need, floats * sizeof(float));
}
/* Input rows that `rows` output rows read, padding included. */
static inline int chex_cpu_halo(const struct chex_op *op, int rows) {
    return (rows - 1) * op->stride + op->kernel;
}
static inline int chex_cpu_floor_div(int a, int b) { return a >= 0 ? a / b : -((b - 1 - a) / b); }
/* Rounds a weight, which is no NaN, to the nearest bf16, ties to even. */
static inline float chex_cpu_round_bf16(float v) {
    uint32_t u;
    memcpy(&u, &v, sizeof u);
    u = (u + 0x7fff + ((u >> 16) & 1)) & 0xffff0000u;
    memcpy(&v, &u, sizeof v);
    return v;
}

#endif
