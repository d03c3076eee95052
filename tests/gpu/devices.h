/* SPDX-License-Identifier: Apache-2.0
 *
 * Limits and rates of the devices that the models and the checks of launches know.
 *
 * Limits: CUDA C++ programming guide, table "technical specifications per compute capability".
 * Multiprocessors, bandwidth and dense bf16 rate: NVIDIA's data sheets of A100 80 GB SXM, H100 SXM,
 * H200 SXM, HGX B200 (a GPU's part) and L40S, as commonly quoted. clock: at which a multiprocessor
 * with its tensor cores reaches that rate.
 *
 * Guesses; nothing was measured here:
 *   - mma_share: what mma.sync reaches of the tensor cores' rate. On 9.0 the peak needs wgmma, and
 *     microbenchmarks report about 0.62.
 *   - wgmma_share: the same of wgmma; 1 where there is none.
 *   - l2_clock_bytes: of all multiprocessors together. 5,120 is NVIDIA's figure for the A100.
 */
#ifndef CHEX_TESTS_GPU_DEVICES_H
#define CHEX_TESTS_GPU_DEVICES_H

#include <math.h>

#include "engine/cuda/host/gpu.h"

struct test_device {
    struct gpu_device gpu;
    unsigned threads;   /* of a multiprocessor */
    double bytes_per_s; /* of memory; this and the rest 0: in no model */
    double flop_per_s, mma_share, wgmma_share, clock_hz, l2_clock_bytes;
};

#define TEST_GPU(name_, capability_, sms_, shared_max_)                                            \
    { .name = (name_), .capability = (capability_), .sms = (sms_), .shared_max = (shared_max_) }
static const struct test_device test_devices[] = {
    {TEST_GPU("T4", 75, 40, 65536), 1024, 0, 0, 0, 0, 0, 0},
    {TEST_GPU("A100", 80, 108, 166912), 2048, 2.04e12, 312e12, 0.9, 1, 1.41e9, 5120},
    {TEST_GPU("A40", 86, 84, 101376), 1536, 0, 0, 0, 0, 0, 0},
    {TEST_GPU("L40S", 89, 142, 101376), 1536, 0.864e12, 362e12, 0.9, 1, 2.49e9, 2560},
    {TEST_GPU("H100", 90, 132, 232448), 2048, 3.35e12, 989e12, 0.62, 0.8, 1.83e9, 5120},
    {TEST_GPU("H200", 90, 132, 232448), 2048, 4.8e12, 989e12, 0.62, 0.8, 1.83e9, 5120},
    {TEST_GPU("B200", 100, 148, 232448), 2048, 8.0e12, 2250e12, 0.5, 1, 1.86e9, 5120},
    {TEST_GPU("RTX PRO 6000", 120, 188, 101376), 1536, 0, 0, 0, 0, 0, 0},
};
#undef TEST_GPU
enum { TEST_DEVICES = sizeof test_devices / sizeof *test_devices };

enum { DEVICE_STATIC_BYTES = 128, DEVICE_BLOCK_BYTES = 1024 };

/* Blocks of a launch that fit on one multiprocessor by shared memory and threads. The shared memory
 * of a multiprocessor is 1 KiB more than a block may have, and each block takes 1 KiB of it. */
static inline unsigned device_fitting(const struct test_device *d, size_t shared,
                                      unsigned threads) {
    const size_t each = shared + DEVICE_STATIC_BYTES + DEVICE_BLOCK_BYTES;
    const size_t by_shared = (d->gpu.shared_max + DEVICE_BLOCK_BYTES) / each;
    const size_t by_threads = d->threads / threads;
    return (unsigned)(by_shared < by_threads ? by_shared : by_threads);
}

/* The share of multiprocessors that have a block, over all rounds of a launch. */
static inline double device_filled(const struct test_device *d, double blocks, unsigned fitting) {
    const double slots = (double)d->gpu.sms * fitting;
    return blocks <= slots ? fmin(1, blocks / d->gpu.sms) : blocks / (ceil(blocks / slots) * slots);
}

#endif
