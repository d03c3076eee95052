/* SPDX-License-Identifier: Apache-2.0
 *
 * Limits of the devices that the checks of launches know: CUDA C++ programming guide, table
 * "technical specifications per compute capability"; multiprocessors: NVIDIA's data sheets.
 */
#ifndef CHEX_TESTS_GPU_DEVICES_H
#define CHEX_TESTS_GPU_DEVICES_H

#include "engine/cuda/host/gpu.h"

#define TEST_GPU(name_, capability_, sms_, shared_max_)                                            \
    { .name = (name_), .capability = (capability_), .sms = (sms_), .shared_max = (shared_max_) }
static const struct gpu_device test_devices[] = {
    TEST_GPU("T4", 75, 40, 65536),      TEST_GPU("A100", 80, 108, 166912),
    TEST_GPU("A40", 86, 84, 101376),    TEST_GPU("L40S", 89, 142, 101376),
    TEST_GPU("H100", 90, 132, 232448),  TEST_GPU("H200", 90, 132, 232448),
    TEST_GPU("B200", 100, 148, 232448), TEST_GPU("RTX PRO 6000", 120, 188, 101376),
};
#undef TEST_GPU
enum { TEST_DEVICES = sizeof test_devices / sizeof *test_devices, TEST_STATIC_BYTES = 128 };

#endif
