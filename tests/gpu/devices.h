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
    double flop_per_s, mma_share, clock_hz, l2_clock_bytes;
};

static const struct test_device test_devices[] = {
    {{.name = "T4", .capability = 75, .sms = 40, .shared_max = 65536}, 1024, 0, 0, 0, 0, 0},
    {{.name = "A100", .capability = 80, .sms = 108, .shared_max = 166912},
     2048,
     2.04e12,
     312e12,
     0.9,
     1.41e9,
     5120},
    {{.name = "A40", .capability = 86, .sms = 84, .shared_max = 101376}, 1536, 0, 0, 0, 0, 0},
    {{.name = "L40S", .capability = 89, .sms = 142, .shared_max = 101376},
     1536,
     0.864e12,
     362e12,
     0.9,
     2.49e9,
     2560},
    {{.name = "H100", .capability = 90, .sms = 132, .shared_max = 232448},
     2048,
     3.35e12,
     989e12,
     0.62,
     1.83e9,
     5120},
    {{.name = "H200", .capability = 90, .sms = 132, .shared_max = 232448},
     2048,
     4.8e12,
     989e12,
     0.62,
     1.83e9,
     5120},
    {{.name = "B200", .capability = 100, .sms = 148, .shared_max = 232448},
     2048,
     8.0e12,
     2250e12,
     0.5,
     1.86e9,
     5120},
    {{.name = "RTX PRO 6000", .capability = 120, .sms = 188, .shared_max = 101376},
     1536,
     0,
     0,
     0,
     0,
     0},
};
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
