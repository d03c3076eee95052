/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu_conv_algo_3x3_sm90: gpu_conv_algo_3x3 with wgmma, for capability 9.0 only. Forward and data
 * gradient: conv_3x3_wgmma.cuh; weight gradient: conv_3x3_weight_wgmma.cuh.
 *
 * Numerics are those of conv_3x3.cu; sums within a tile are in another order.
 *
 * Model of the products, in clocks of a multiprocessor for 64 places, 16 inputs and N outputs: the
 * tensor cores need N / 2; shared memory delivers 2 KB of places and 32 N bytes of weights at 128
 * bytes a clock, 16 + N / 4. So N = 32 takes 24 clocks, 64 takes 32, 128 takes 64, where mma.sync,
 * at 6.1 clocks a scheduler, takes 24, 49 and 98 and its fragments 38, 44 and 56. In dW 64 inputs,
 * 32 outputs and 16 places take 16 clocks, by mma.sync 24; shared memory needs 10. Nothing of this
 * was measured on a device.
 */
#include <cstdio>

#include "engine/cuda/kernels/conv_3x3_plan.cuh"
#include "engine/cuda/kernels/conv_3x3_weight_wgmma.cuh"
#include "engine/cuda/kernels/conv_3x3_wgmma.cuh"

namespace {

using namespace conv3;

/* The shapes that are compiled. cost: a guess from the model above, per place and output. */
enum shape { N128_256, N128_128, N64_256, N64_128, N32_256, N32_128 };
enum { SHAPES = N32_128 + 1 };
const shape_info shapes[SHAPES] = {
    {256, 128, false, 0.75}, {128, 128, false, 0.75}, {256, 64, false, 0.75},
    {128, 64, false, 0.75},  {256, 32, false, 1.0},   {128, 32, false, 1.0},
};
enum { VARIANTS = 5, SLOTS = conv3_wgmma_shape<1, 32>::SLOTS };

/* The shape with too many sums to keep them twice stores its tiles while the tensor cores rest.
 * That counts most if a tile has few runs. */
shape_info shape_for(const product &p, int i) {
    shape_info s = shapes[i];
    if (i == N128_256)
        s.cost += 0.5 * CONV3_KC / p.in;
    return s;
}

/* Shape i with staging k, and the strips with the least cost. False: it does not fit. */
bool choice_of(const gpu_device &device, const product &p, int i, int k, choice *out) {
    const shape_info s = shape_for(p, i);
    const staging &t = stagings[k];
    if (p.out % s.n || p.out / s.n > GPU_RUNS || p.in % CONV3_KC ||
        (!t.resident && p.in / CONV3_KC <= 2))
        return false;
    auto shared = [&](const conv3_places &c) { return product_shared(p, s, c, t, SLOTS).bytes; };
    auto cost = [&](const conv3_places &c) { return product_cost(device, p, s, c, t); };
    const conv3_places g = cut(p.n, p.hw, s.m, shared_limit(device), shared, cost);
    if (!g.places)
        return false;
    *out = choice{i, g, t, 1 + i * STAGINGS + k, cost(g)};
    return true;
}

/* The choices with the least guessed cost, by rising cost; returns how many fit, up to `most`. */
int choices(const gpu_device &device, const product &p, int most, choice *out) {
    int count = 0;
    for (int i = 0; i < SHAPES * STAGINGS; i++) {
        choice c;
        if (!choice_of(device, p, i / STAGINGS, i % STAGINGS, &c))
            continue;
        int at = count;
        for (; at > 0 && c.cost < out[at - 1].cost; at--)
            if (at < most)
                out[at] = out[at - 1];
        if (at < most)
            out[at] = c;
        count += count < most;
    }
    return count;
}

template <class T, class S, bool BACK>
cudaError_t launch_product(const conv3_product_args &p, int blocks, cudaStream_t stream) {
    return CHEX_LAUNCH((conv3_wgmma<T, S, BACK>), dim3((unsigned)blocks, (unsigned)(p.out / S::N)),
                       dim3(CONV3_THREADS), p.shared.bytes, stream, p);
}

template <class T, bool BACK>
cudaError_t launch_shape(int shape, const conv3_product_args &p, int blocks, cudaStream_t stream) {
    switch (shape) {
    case N128_256: return launch_product<T, conv3_wgmma_shape<2, 128>, BACK>(p, blocks, stream);
    case N128_128: return launch_product<T, conv3_wgmma_shape<1, 128>, BACK>(p, blocks, stream);
    case N64_256: return launch_product<T, conv3_wgmma_shape<2, 64>, BACK>(p, blocks, stream);
    case N64_128: return launch_product<T, conv3_wgmma_shape<1, 64>, BACK>(p, blocks, stream);
    case N32_256: return launch_product<T, conv3_wgmma_shape<2, 32>, BACK>(p, blocks, stream);
    case N32_128: return launch_product<T, conv3_wgmma_shape<1, 32>, BACK>(p, blocks, stream);
    }
    return cudaErrorInvalidValue;
}

/* ---- dW ---- */

template <class T, class S>
cudaError_t launch_weight(const conv3_weight_args &p, int splits, cudaStream_t stream) {
    const dim3 grid((unsigned)splits, (unsigned)(p.in / S::IN * (p.out / S::OUT)));
    if (p.places.tile == 128)
        return CHEX_LAUNCH((conv3_weight_wgmma<T, S, 128>), grid, dim3(CONV3_THREADS),
                           p.shared.bytes, stream, p);
    return CHEX_LAUNCH((conv3_weight_wgmma<T, S, 64>), grid, dim3(CONV3_THREADS), p.shared.bytes,
                       stream, p);
}

/* ---- the algorithm ---- */

struct wgmma {
    enum { SLOTS = ::SLOTS };
    static bool runs_on(int capability) { return capability == 90; }
    static const shape_info &shape_of(const choice &c) { return shapes[c.shape]; }
    static bool choose(const gpu_device &device, const product &p, int variant, choice *out) {
        if (variant)
            return choice_of(device, p, (variant - 1) / STAGINGS, (variant - 1) % STAGINGS, out);
        return choices(device, p, 1, out) > 0;
    }
    /* The tiles that are compiled. */
    static bool choose_weight(const gpu_device &device, const gpu_conv_backward &b, int,
                              weight_choice *out) {
        return conv3::choose_weight(device, b, WEIGHT_GUESS, out) && out->places.tile >= 64;
    }
    template <class T, bool BACK>
    static cudaError_t launch(int shape, const conv3_product_args &p, int blocks,
                              cudaStream_t stream) {
        return launch_shape<T, BACK>(shape, p, blocks, stream);
    }
    template <class T>
    static cudaError_t launch_weight(const weight_choice &c, const conv3_weight_args &p,
                                     cudaStream_t stream) {
        return c.wide ? ::launch_weight<T, conv3_weight_wgmma_shape<2>>(p, c.splits, stream)
                      : ::launch_weight<T, conv3_weight_wgmma_shape<1>>(p, c.splits, stream);
    }
};

/* Of the product: shape and staging. */
int variants(const gpu_device *device, const gpu_conv_forward *f, const gpu_conv_backward *b,
             int *out) {
    choice list[VARIANTS];
    const int count =
        choices(*device, f ? forward_product(*f) : backward_product(*b), VARIANTS, list);
    for (int i = 0; i < count; i++)
        out[i] = list[i].variant;
    out[0] = 0;
    return count;
}

void variant_name(bool, int variant, char *out) {
    const shape_info &s = shapes[(variant - 1) / STAGINGS];
    const staging &t = stagings[(variant - 1) % STAGINGS];
    snprintf(out, GPU_VARIANT_BYTES, "%dx%d %dx%s", s.m, s.n, t.stages,
             t.resident ? "resident" : "read");
}

} // namespace

extern "C" const struct gpu_conv_algo gpu_conv_algo_3x3_sm90 = {
    "3x3-wgmma",           conv3::fits<wgmma>,     nullptr, nullptr,  conv3::workspace<wgmma>,
    conv3::forward<wgmma>, conv3::backward<wgmma>, true,    variants, variant_name};
