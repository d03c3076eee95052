/* SPDX-License-Identifier: Apache-2.0
 *
 * Host side of the 3x3 convolutions that conv_3x3.cu and conv_3x3_sm90.cu share: which convolutions
 * fit, how images are cut into places, the layout of shared memory, the kernels' arguments, and the
 * entries of the algorithm.
 */
#ifndef CHEX_ENGINE_CUDA_KERNELS_CONV_3X3_PLAN_CUH
#define CHEX_ENGINE_CUDA_KERNELS_CONV_3X3_PLAN_CUH

#include "engine/cuda/kernels/conv_3x3_product.cuh"
#include "engine/cuda/kernels/conv_3x3_weight.cuh"

namespace conv3 {

static inline unsigned round_up(unsigned v, unsigned to) { return (v + to - 1) / to * to; }

/* Appends `bytes` to a layout that ends at *end; returns the offset. */
static inline unsigned append(unsigned *end, size_t bytes) {
    const unsigned at = *end;
    *end = at + round_up((unsigned)bytes, 128);
    return at;
}

static inline conv3_places places_of(int n, int hw, int tile, int strips) {
    conv3_places g = {};
    g.n = n;
    g.hw = hw;
    g.strips = strips;
    g.width = (hw + strips - 1) / strips;
    g.pitch = g.width + (strips == 1 ? 1 : 2);
    g.halo = g.pitch + 1;
    g.loaded = (int)round_up((unsigned)(tile + 2 * g.halo), 64);
    g.tile = tile;
    g.places = (int64_t)n * strips * (hw + 1) * g.pitch;
    g.tiles = (int)((g.places + tile - 1) / tile);
    g.by_pitch = conv3_divisor_of((unsigned)g.pitch);
    g.by_rows = conv3_divisor_of((unsigned)hw + 1);
    g.by_strips = conv3_divisor_of((unsigned)strips);
    return g;
}

/* Dynamic shared memory that a launch may use. gpu_last_block needs some static shared memory. */
static inline size_t shared_limit(const gpu_device &device) {
    return device.shared_max > 128 ? device.shared_max - 128 : 0;
}

/* Most strips that an image is cut into: narrower ones waste too many places. */
static inline int most_strips(int hw) {
    int strips = 1;
    while (strips < hw && (hw + strips - 1) / strips > 8)
        strips++;
    return strips;
}

/* The cut into strips with the lowest cost(places), a guess, among those whose shared(places) bytes
 * fit. places 0: none fits. */
template <class F, class G>
static inline conv3_places cut(int n, int hw, int tile, size_t limit, F shared, G cost) {
    conv3_places best = {};
    for (int strips = 1; strips <= most_strips(hw); strips++) {
        const conv3_places g = places_of(n, hw, tile, strips);
        if (shared(g) <= limit && (!best.places || cost(g) < cost(best)))
            best = g;
    }
    return best;
}

/* Number of blocks for each of `share` runs of channels. */
static inline int blocks_of(const gpu_device &device, int share) {
    return device.sms > share ? device.sms / share : 1;
}

/* Number of tiles of the busiest multiprocessor. */
static inline double rounds_of(const gpu_device &device, const conv3_places &g, int share) {
    const int blocks = blocks_of(device, share);
    const int waves = (blocks * share + device.sms - 1) / device.sms;
    return (double)((g.tiles + blocks - 1) / blocks * waves);
}

static inline bool sixteen(enum gpu_type type) { return type != GPU_F32; }

static inline bool window_fits(gpu_window w) {
    return w.kernel == 3 && w.stride == 1 && w.pad == 1;
}

/* Place numbers have 32 bits. A pixel needs at most 6 places (strips of one column). */
static inline bool size_fits(const gpu_map &m) { return gpu_map_pixels(&m) < (int64_t)1 << 29; }

/* The distance between pixels, in bytes, fits in 32 bits. */
static inline bool pitch_fits(const gpu_map &m) { return m.pitch % 8 == 0 && m.pitch < 1 << 30; }

static inline bool map_fits(const gpu_map &m) {
    return sixteen(m.type) && pitch_fits(m) && m.channels % 32 == 0 && size_fits(m);
}

static inline bool norm_fits(const gpu_norm &n) { return !n.mean || n.relu; }

static inline bool forward_fits(const gpu_conv_forward &f) {
    return window_fits(f.window) && map_fits(f.in) && map_fits(f.out) && f.in.type == f.out.type &&
           norm_fits(f.norm);
}
static inline bool backward_fits(const gpu_conv_backward &b) {
    const enum gpu_type type = b.in.type;
    return window_fits(b.window) && map_fits(b.in) && map_fits(b.out.g) && b.out.g.type == type &&
           norm_fits(b.norm) && (!b.out.x.data || (b.out.x.type == type && pitch_fits(b.out.x))) &&
           (!b.in_g.data || (b.in_g.type == type && pitch_fits(b.in_g)));
}

/* ---- forward and dgrad ---- */

struct shape_info {
    int m, n;
    bool split;  /* SPLIT 2: forward only, with two runs or more */
    double cost; /* guess, per place and output; half is tensor cores, half loading operands */
};

/* Parameters of a product that determine the choice of its shape. */
struct product {
    int in, out, n, hw;
    bool deferred_grad, back;
};

/* Use of shared memory: resident weights or not, number of stages. */
struct staging {
    bool resident;
    int stages;
};
enum { STAGINGS = 4 };
static const staging stagings[STAGINGS] = {{true, 3}, {false, 3}, {true, 2}, {false, 2}};

/* One way to compute a product. */
struct choice {
    int shape; /* index among those that are compiled */
    conv3_places places;
    staging staged;
    int variant; /* its number, from 1 */
    double cost; /* a guess */
};

/* slots: tables of places. */
static inline conv3_product_shared product_shared(const product &p, const shape_info &s,
                                                  const conv3_places &g, const staging &t,
                                                  int slots) {
    conv3_product_shared l = {};
    unsigned end = 0;
    const size_t stage = (size_t)g.loaded * CONV3_KC * 2, n = (size_t)s.n;
    l.weights = append(&end, (t.resident ? (size_t)p.in / CONV3_KC : 2) * 9 * n * CONV3_KC * 2);
    l.stages = append(&end, (size_t)t.stages * stage);
    l.x_stages = append(&end, p.deferred_grad ? (size_t)(t.stages - 1) * stage : 0);
    l.exchange = append(&end, s.split ? (size_t)s.m * n * sizeof(float) : 0);
    l.places = append(&end, (size_t)slots * (size_t)g.loaded * sizeof(int));
    l.scale = append(&end, (size_t)2 * (size_t)p.in * sizeof(float));
    l.mask = append(&end, p.back ? 3 * n * sizeof(float) : 0);
    l.bytes = end;
    return l;
}

/* Guessed cost: products of all rounds, plus copies. Copying a place or a row of weights costs
 * about as much as 8 outputs; a place of a gradient with deferred terms half as much again. With
 * two stages, loading and computing do not overlap fully: factor 1.5. */
static inline double product_cost(const gpu_device &device, const product &p, const shape_info &s,
                                  const conv3_places &g, const staging &t) {
    const double load =
        (p.deferred_grad ? 12.0 : 8.0) * g.loaded + (t.resident ? 0.0 : 8.0 * 9 * s.n);
    return rounds_of(device, g, p.out / s.n) * (s.cost * s.n * g.tile + load) *
           (t.stages == 2 ? 1.5 : 1.0);
}

static inline product forward_product(const gpu_conv_forward &f) {
    return product{f.in.channels, f.out.channels, f.in.n, f.in.hw, false, false};
}
static inline product backward_product(const gpu_conv_backward &b) {
    return product{b.out.g.channels, b.in.channels, b.in.n, b.in.hw, true, true};
}

/* Arguments without what the choice of a shape decides. */
static inline conv3_product_args forward_args(const gpu_conv_forward &f) {
    conv3_product_args args = {};
    args.source = conv3_source_of(f.in, f.norm);
    args.source_norm = f.norm;
    args.weight = f.weight;
    args.to = f.out.data;
    args.to_pitch = (unsigned)f.out.pitch;
    args.stats = f.stats;
    return args;
}
static inline conv3_product_args backward_args(const gpu_conv_backward &b) {
    conv3_product_args args = {};
    args.source = conv3_source_of(b.out);
    args.bsum = b.out.bsum;
    args.csum = b.out.csum;
    args.weight = b.weight_t;
    args.to = b.in_g.data;
    args.to_pitch = (unsigned)b.in_g.pitch;
    args.x = b.in.data;
    args.x_pitch = (unsigned)b.in.pitch;
    args.norm = b.norm;
    args.add = b.add;
    args.sums = b.sums;
    return args;
}

/* Completes the arguments; returns the number of blocks for each run of outputs. */
static inline int complete_args(const gpu_device &device, const product &p, const shape_info &s,
                                const conv3_places &g, const staging &t, int slots,
                                conv3_product_args *args) {
    args->places = g;
    args->in = p.in;
    args->out = p.out;
    args->runs = p.in / CONV3_KC;
    args->resident = t.resident;
    args->stages = t.stages;
    args->pixels = (double)p.n * p.hw * p.hw;
    args->shared = product_shared(p, s, g, t, slots);
    int blocks = blocks_of(device, p.out / s.n);
    blocks = blocks < g.tiles ? blocks : g.tiles;
    return blocks < GPU_MAX_BLOCKS ? blocks : GPU_MAX_BLOCKS;
}

/* ---- dW ---- */

struct weight_choice {
    bool wide; /* 128 inputs by 32 outputs; else 64 by 64 */
    conv3_places places;
    int splits, most_splits; /* for this number of pixels; upper limit for fewer pixels too */
};

static inline conv3_weight_shared weight_shared(bool wide, const conv3_places &g) {
    conv3_weight_shared l = {};
    unsigned end = 0;
    const size_t in = wide ? 128 : 64, out = wide ? 32 : 64;
    l.v = append(&end, (size_t)3 * (size_t)g.tile * in * 2);
    l.g = append(&end, (size_t)3 * (size_t)g.loaded * out * 2);
    l.x = append(&end, (size_t)2 * (size_t)g.loaded * out * 2);
    l.places = append(&end, CONV3_SLOTS * (size_t)g.loaded * sizeof(int));
    l.v_scale = append(&end, 2 * in * sizeof(float));
    l.g_scale = append(&end, 2 * out * sizeof(float));
    l.bytes = end;
    return l;
}

/* Variants of dW. */
enum weight_variant { WEIGHT_GUESS, WEIGHT_FEWER_SPLITS, WEIGHT_MORE_SPLITS, WEIGHT_SMALLER_TILE };
enum { WEIGHT_VARIANTS = WEIGHT_SMALLER_TILE + 1 };

/* Upper limit of splits. More splits shorten the products but lengthen the sum of the parts. A
 * pixel has as many products as a part has floats. sqrt(pixels / 4) splits balance the two if a
 * multiprocessor needs 16 ns per pixel, and memory 70 ns to write and read a part of 147 KB. Both
 * times are guesses: variants have half and twice as many. */
static inline int most_splits_of(const gpu_device &device, int64_t pixels, int share, int variant) {
    const int all = blocks_of(device, share);
    int splits = 1;
    while (splits < all && (int64_t)splits * splits * 4 < pixels)
        splits++;
    if (variant == WEIGHT_FEWER_SPLITS)
        return (splits + 1) / 2;
    return variant == WEIGHT_MORE_SPLITS && splits <= all / 2 ? 2 * splits : splits;
}
/* The smallest number of splits with the same number of rounds. */
static inline int splits_of(int most, int tiles) {
    const int splits = most < tiles ? most : tiles;
    const int rounds = (tiles + splits - 1) / splits;
    return (tiles + rounds - 1) / rounds;
}

/* False: it does not fit. */
static inline bool choose_weight(const gpu_device &device, const gpu_conv_backward &b, int variant,
                                 weight_choice *out) {
    const int in = b.in.channels, k = b.out.g.channels;
    const bool wide = in % 128 == 0;
    if (!wide && (in % 64 || k % 64))
        return false;
    const int share = wide ? in / 128 * (k / 32) : in / 64 * (k / 64);
    auto shared = [&](const conv3_places &g) { return weight_shared(wide, g).bytes; };
    /* Guess: copying and completing a place of the gradient costs a tenth of a place's products. */
    auto cost = [](const conv3_places &g) { return g.tiles * (g.tile + 0.1 * g.loaded); };
    bool smaller = variant == WEIGHT_SMALLER_TILE;
    for (int tile = 128; tile >= 32; tile /= 2) {
        const conv3_places g = cut(b.in.n, b.in.hw, tile, shared_limit(device), shared, cost);
        if (!g.places)
            continue;
        if (smaller) {
            smaller = false;
            continue;
        }
        const int most = most_splits_of(device, gpu_map_pixels(&b.in), share, variant);
        *out = weight_choice{wide, g, splits_of(most, g.tiles), most};
        return true;
    }
    return false;
}

static inline size_t weight_bytes(const gpu_conv_backward &b, const weight_choice &c) {
    return (size_t)c.most_splits * 9 * (size_t)b.in.channels * (size_t)b.out.g.channels *
           sizeof(float);
}

static inline conv3_weight_args weight_args(const gpu_conv_backward &b, const weight_choice &c,
                                            void *workspace) {
    conv3_weight_args args = {};
    args.places = c.places;
    args.v = conv3_source_of(b.in, b.norm);
    args.v_norm = b.norm;
    args.g = conv3_source_of(b.out);
    args.bsum = b.out.bsum;
    args.csum = b.out.csum;
    args.in = b.in.channels;
    args.out = b.out.g.channels;
    args.parts = (float *)workspace;
    args.shared = weight_shared(c.wide, c.places);
    return args;
}

/* ---- the algorithm, by the kernels of a family F ----
 *   - F::choose: the choice with a number, or for 0 the one with the least guessed cost. False: it
 *     does not fit. F::choose_weight: the same for dW.
 *   - F::shape_of: the shape of a choice. F::SLOTS: tables of places.
 *   - F::launch<T, BACK>, F::launch_weight<T>: launch the kernel of a choice.
 * A variant of backward has one of the product and one of dW. */

enum { WEIGHT_SHIFT = 24 };
static inline int product_part(int variant) { return variant & ((1 << WEIGHT_SHIFT) - 1); }
static inline int weight_part(int variant) { return variant >> WEIGHT_SHIFT; }

template <class F>
cudaError_t run_product(const gpu_device &device, const product &p, int variant, enum gpu_type type,
                        conv3_product_args &args, cudaStream_t stream) {
    choice c;
    if (!F::choose(device, p, product_part(variant), &c))
        return cudaErrorInvalidValue;
    const int blocks =
        complete_args(device, p, F::shape_of(c), c.places, c.staged, F::SLOTS, &args);
    return gpu_with_16_bits(type, [&](auto t) {
        using T = decltype(t);
        return p.back ? F::template launch<T, true>(c.shape, args, blocks, stream)
                      : F::template launch<T, false>(c.shape, args, blocks, stream);
    });
}

template <class F>
cudaError_t forward(const gpu_device *device, const void *, const gpu_conv_forward *f, void *,
                    cudaStream_t stream) {
    conv3_product_args args = forward_args(*f);
    return run_product<F>(*device, forward_product(*f), f->variant, f->in.type, args, stream);
}

template <class F>
cudaError_t backward(const gpu_device *device, const void *, const gpu_conv_backward *b,
                     void *workspace, cudaStream_t stream) {
    weight_choice c;
    if (b->in_g.data) {
        conv3_product_args args = backward_args(*b);
        CHEX_GPU_TRY(
            run_product<F>(*device, backward_product(*b), b->variant, b->in.type, args, stream));
    }
    if (!F::choose_weight(*device, *b, weight_part(b->variant), &c))
        return cudaErrorInvalidValue;
    const conv3_weight_args args = weight_args(*b, c, workspace);
    CHEX_GPU_TRY(gpu_with_16_bits(b->in.type, [&](auto t) {
        return F::template launch_weight<decltype(t)>(c, args, stream);
    }));
    return gpu_launch_add_parts(b->side, args.parts, c.splits, (int64_t)args.in * args.out * 9,
                                b->dweight, stream);
}

template <class F>
bool fits(const gpu_device *device, const gpu_conv_forward *f, const gpu_conv_backward *b) {
    choice c;
    weight_choice w;
    if (!F::runs_on(device->capability))
        return false;
    if (f)
        return forward_fits(*f) && F::choose(*device, forward_product(*f), 0, &c);
    return backward_fits(*b) && F::choose(*device, backward_product(*b), 0, &c) &&
           F::choose_weight(*device, *b, WEIGHT_GUESS, &w);
}

/* Smaller batches never need more memory; their splits may be more even. */
template <class F>
size_t workspace(const gpu_device *device, const void *, const gpu_conv_forward *,
                 const gpu_conv_backward *b) {
    weight_choice c;
    return b && F::choose_weight(*device, *b, weight_part(b->variant), &c) ? weight_bytes(*b, c)
                                                                           : 0;
}

} // namespace conv3

#endif
