/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu_conv_algo_3x3: 3x3 convolutions with stride 1 and padding 1 in 16-bit types on tensor cores
 * (capability 8.0 and up). Batch norm and ReLU are fused before the product; statistics, or the
 * mask and its sums, after it. No other intermediate is stored. The kernels are in
 * conv_3x3_product.cuh (forward and dgrad) and conv_3x3_weight.cuh. This file chooses their shapes
 * so that they fit in shared memory.
 *
 * Numerics. Operands are rounded to the type. Products and sums within a tile are fp32. Statistics
 * are of the rounded output. Every result is the same in every run.
 *
 * Cost model for one dense layer (128 -> 32, 56 x 56, batch 256, 802,816 pixels): forward 257 MB
 * and 59 GFLOP; dgrad 514 MB and 59 GFLOP; dW 308 MB and 59 GFLOP. Places between images and strips
 * add 9 % to the products (31 % at 7 x 7). Halos are read again from the L2 cache.
 *
 * Variants: shape, staging and strips of a product; tile and splits of dW. The costs in this file
 * are guesses: no device has been measured. They only order the variants: the first one is
 * variant 0, the next few are worth a measurement. A variant decides speed, and by its blocks and
 * splits the order of sums.
 *
 * Estimated clocks of a multiprocessor for 256 places of this layer. Assumptions: a scheduler
 * issues one instruction per clock and one product (mma.sync) per 6.1 clocks; shared memory moves
 * 128 bytes per clock, device memory 18.6 (H200):
 *
 *              memory   products   instructions   shared memory
 *   forward      4400       7000           7500           10000
 *   dgrad        8800       7000           7600            5600
 *   dW           5300       7000           6500            7300
 */
#include <cstdio>

#include "engine/cuda/kernels/conv_3x3_plan.cuh"

namespace {

using namespace conv3;

/* ---- forward and dgrad ---- */

/* The shapes that are compiled. */
enum shape { DENSE_256, DENSE_128, WIDE_256, WIDE_128, HALF_256, HALF_128, NARROW_256, NARROW_128 };
enum { SHAPES = NARROW_128 + 1 };
const shape_info shapes[SHAPES] = {
    {256, 32, true, 1.25},  {128, 32, true, 1.5},  {256, 128, false, 1.0}, {128, 128, false, 1.25},
    {256, 64, false, 1.25}, {128, 64, false, 1.5}, {256, 32, false, 1.5},  {128, 32, false, 2.0},
};
const char *const shape_names[SHAPES] = {"dense256", "dense128", "wide256",   "wide128",
                                         "half256",  "half128",  "narrow256", "narrow128"};

/* The number of a variant of the product: 0 is the cheapest by the guess. */
int variant_of(int shape, int staging, int strips) {
    return 1 + (strips * SHAPES + shape) * STAGINGS + staging;
}

bool shape_takes(const shape_info &s, const product &p) {
    return p.out % s.n == 0 && p.out / s.n <= GPU_RUNS && p.in % CONV3_KC == 0 &&
           !(s.split && (p.back || p.in / CONV3_KC < 2));
}
bool staging_takes(const staging &t, const product &p) { return t.resident || p.in / CONV3_KC > 2; }

/* Calls fn(choice) for each variant that fits in shared memory, in a fixed order. */
template <class F> void for_choices(const gpu_device &device, const product &p, F fn) {
    for (int i = 0; i < SHAPES; i++)
        for (int k = 0; k < STAGINGS && shape_takes(shapes[i], p); k++)
            for (int strips = 1; strips <= most_strips(p.hw) && staging_takes(stagings[k], p);
                 strips++) {
                const conv3_places g = places_of(p.n, p.hw, shapes[i].m, strips);
                if (product_shared(p, shapes[i], g, stagings[k], CONV3_SLOTS).bytes <=
                    shared_limit(device))
                    fn(choice{i, g, stagings[k], variant_of(i, k, strips),
                              product_cost(device, p, shapes[i], g, stagings[k])});
            }
}

bool choose_product(const gpu_device &device, const product &p, int variant, choice *out) {
    bool found = false;
    for_choices(device, p, [&](const choice &c) {
        if (variant ? c.variant != variant : found && c.cost >= out->cost)
            return;
        found = true;
        *out = c;
    });
    return found;
}

bool same_but_strips(const choice &a, const choice &b) {
    return a.shape == b.shape && a.staged.resident == b.staged.resident &&
           a.staged.stages == b.staged.stages;
}

/* The numbers of up to `most` variants by rising cost: the first is what 0 stands for. Of those
 * that differ in their strips only, just the cheapest counts. */
int product_variants(const gpu_device &device, const product &p, int most, int *out) {
    choice list[GPU_VARIANTS + 1] = {};
    int count = 0;
    for_choices(device, p, [&](const choice &c) {
        int at = 0;
        while (at < count && !same_but_strips(list[at], c))
            at++;
        if (at < count && c.cost >= list[at].cost)
            return;
        count += at == count;
        for (; at > 0 && c.cost < list[at - 1].cost; at--)
            list[at] = list[at - 1];
        list[at] = c;
        count = count < most ? count : most;
    });
    for (int i = 0; i < count; i++)
        out[i] = list[i].variant;
    return count;
}

template <class T, class S, bool BACK>
cudaError_t launch_product(const conv3_product_args &p, int blocks, cudaStream_t stream) {
    return CHEX_LAUNCH((conv3_product<T, S, BACK>),
                       dim3((unsigned)blocks, (unsigned)(p.out / S::N)), dim3(CONV3_THREADS),
                       p.shared.bytes, stream, p);
}

template <class T, bool BACK>
cudaError_t launch_shape(int shape, const conv3_product_args &p, int blocks, cudaStream_t stream) {
    switch (shape) {
    case WIDE_256: return launch_product<T, conv3_shape<4, 8, 2>, BACK>(p, blocks, stream);
    case WIDE_128: return launch_product<T, conv3_shape<2, 8, 2>, BACK>(p, blocks, stream);
    case HALF_256: return launch_product<T, conv3_shape<4, 4, 2>, BACK>(p, blocks, stream);
    case HALF_128: return launch_product<T, conv3_shape<2, 4, 2>, BACK>(p, blocks, stream);
    case NARROW_256: return launch_product<T, conv3_shape<2, 4, 1>, BACK>(p, blocks, stream);
    case NARROW_128: return launch_product<T, conv3_shape<1, 4, 1>, BACK>(p, blocks, stream);
    default: break;
    }
    if constexpr (!BACK) {
        if (shape == DENSE_256)
            return launch_product<T, conv3_shape<2, 4, 1, 2>, BACK>(p, blocks, stream);
        if (shape == DENSE_128)
            return launch_product<T, conv3_shape<1, 4, 1, 2>, BACK>(p, blocks, stream);
    }
    return cudaErrorInvalidValue;
}

/* ---- dW ---- */

const char *const weight_names[WEIGHT_VARIANTS] = {"", " splits/2", " splits*2", " tile/2"};

template <class T, class S>
cudaError_t launch_weight(const conv3_weight_args &p, int splits, cudaStream_t stream) {
    return CHEX_LAUNCH((conv3_weight<T, S>),
                       dim3((unsigned)splits, (unsigned)(p.in / S::IN * (p.out / S::OUT))),
                       dim3(CONV3_THREADS), p.shared.bytes, stream, p);
}

/* ---- the algorithm ---- */

struct mma {
    enum { SLOTS = CONV3_SLOTS };
    static bool runs_on(int capability) { return capability >= 80; }
    static const shape_info &shape_of(const choice &c) { return shapes[c.shape]; }
    static bool choose(const gpu_device &device, const product &p, int variant, choice *out) {
        return choose_product(device, p, variant, out);
    }
    static bool choose_weight(const gpu_device &device, const gpu_conv_backward &b, int variant,
                              weight_choice *out) {
        return conv3::choose_weight(device, b, variant, out);
    }
    template <class T, bool BACK>
    static cudaError_t launch(int shape, const conv3_product_args &p, int blocks,
                              cudaStream_t stream) {
        return launch_shape<T, BACK>(shape, p, blocks, stream);
    }
    template <class T>
    static cudaError_t launch_weight(const weight_choice &c, const conv3_weight_args &p,
                                     cudaStream_t stream) {
        return c.wide ? ::launch_weight<T, conv3_weight_shape<2>>(p, c.splits, stream)
                      : ::launch_weight<T, conv3_weight_shape<1>>(p, c.splits, stream);
    }
};

/* Of backward each variant of the data gradient with each of dW. */
int variants(const gpu_device *device, const gpu_conv_forward *f, const gpu_conv_backward *b,
             int *out) {
    enum { PRODUCTS = GPU_VARIANTS / WEIGHT_VARIANTS };
    int products[PRODUCTS] = {0}, count = 0, of_data = 1;
    if (f)
        count = product_variants(*device, forward_product(*f), GPU_VARIANTS / 2, out);
    else if (b->in_g.data)
        of_data = product_variants(*device, backward_product(*b), PRODUCTS, products);
    weight_choice guess = {}, w;
    for (int k = 0; b && k < WEIGHT_VARIANTS; k++) {
        if (!choose_weight(*device, *b, k, k ? &w : &guess) ||
            (k && w.splits == guess.splits && w.places.tile == guess.places.tile))
            continue;
        for (int i = 0; i < of_data; i++)
            out[count++] = products[i] | k << WEIGHT_SHIFT;
    }
    out[0] = 0;
    return count;
}

void variant_name(bool, int variant, char *out) {
    const int product = product_part(variant), number = product - 1;
    char text[GPU_VARIANT_BYTES] = "dW";
    if (product) {
        const staging &t = stagings[number % STAGINGS];
        snprintf(text, sizeof text, "%s %dx%s strips %d", shape_names[number / STAGINGS % SHAPES],
                 t.stages, t.resident ? "resident" : "read", number / STAGINGS / SHAPES);
    }
    snprintf(out, GPU_VARIANT_BYTES, "%s%s", text, weight_names[weight_part(variant)]);
}

} // namespace

extern "C" const struct gpu_conv_algo gpu_conv_algo_3x3 = {"3x3",
                                                           conv3::fits<mma>,
                                                           nullptr,
                                                           nullptr,
                                                           conv3::workspace<mma>,
                                                           conv3::forward<mma>,
                                                           conv3::backward<mma>,
                                                           true,
                                                           variants,
                                                           variant_name};
