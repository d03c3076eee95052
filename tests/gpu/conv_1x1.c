/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu_conv_algo_1x1 against engine/ref (conv_test.h), on devices of different size, and what it
 * does not take.
 */
#include "gpu/conv_test.h"

static const struct ct_algo algo = {&gpu_conv_algo_1x1, ct_finish_sum, false};

enum { ADA = 99, AMPERE = 163 /* KiB of shared memory of capability 8.6, 8.9, 12.0; of 8.0 */ };

static const struct ct_shape shapes[] = {
    {GPU_BF16, {1, 1, 0}, 64, 128, 1, 1, true, true, true, true, 4, 0, 0},
    {GPU_BF16, {1, 1, 0}, 96, 128, 3, 7, true, true, true, true, 1, 0, 0},
    {GPU_F16, {1, 1, 0}, 160, 128, 3, 10, true, true, true, true, 5, 0, 0},
    {GPU_BF16, {1, 1, 0}, 160, 96, 3, 10, true, true, true, false, 2, ADA, 0},
    {GPU_F16, {1, 1, 0}, 256, 128, 1, 10, false, false, true, false, 2, 0, 0},
    {GPU_BF16, {1, 1, 0}, 64, 32, 3, 10, true, true, false, true, 3, ADA, 0},
    {GPU_F16, {1, 1, 0}, 160, 32, 3, 10, true, true, true, true, 2, 0, 0},
    {GPU_BF16, {1, 1, 0}, 160, 128, 3, 10, true, true, true, true, 2, AMPERE, 0},
    {GPU_BF16, {1, 1, 0}, 64, 64, 3, 10, false, false, true, true, 1, AMPERE, 0},
    {GPU_BF16, {1, 1, 0}, 1024, 128, 1, 3, true, true, true, true, 16, 0, 0},
    {GPU_BF16, {1, 1, 0}, 992, 128, 1, 10, true, true, true, true, 1, ADA, 0},
    {GPU_BF16, {1, 1, 0}, 160, 256, 3, 7, true, true, true, true, 4, 0, 0},
    {GPU_F16, {1, 1, 0}, 64, 256, 3, 10, true, true, true, true, 1, 0, 0},
    {GPU_F16, {1, 1, 0}, 64, 160, 3, 7, false, false, true, true, 2, ADA, 0},
    {GPU_BF16, {1, 1, 0}, 32, 160, 3, 14, false, false, true, true, 2, 0, 0},
    {GPU_BF16, {1, 1, 0}, 96, 256, 1, 10, true, true, false, false, 1, 0, 0},
    {GPU_BF16, {1, 1, 0}, 64, 1024, 1, 3, false, false, true, false, 4, ADA, 0},
    {GPU_BF16, {1, 1, 0}, 512, 512, 1, 3, false, false, true, false, 4, ADA, 0},
    /* more blocks than a group: their sums are added in two steps */
    {GPU_BF16, {1, 1, 0}, 64, 128, 3, 32, true, true, true, true, 48, 0, 0},
    {GPU_F16, {1, 1, 0}, 64, 256, 3, 28, true, true, true, true, 96, 0, 0},
};

static const struct ct_shape with_variants[] = {
    {GPU_BF16, {1, 1, 0}, 96, 128, 1, 13, true, true, true, true, 2, 0, 0},
    {GPU_F16, {1, 1, 0}, 160, 160, 1, 7, false, false, true, false, 2, 0, 0},
};

static void refusals(void) {
    const struct ct_shape s = {GPU_BF16, {1, 1, 0}, 64, 128, 1, 3, true, true, true, true, 4, 0, 0};
    struct ct t = ct_make(&algo, &s);
    CT_REFUSED(t, d.capability = 75, CT_FORWARD, "capability 7.5 is refused");
    CT_REFUSED(t, d.capability = 75, CT_BACKWARD, "and backward");
    CT_REFUSED(t, d.shared_max = 40 << 10, CT_FORWARD, "40 KiB of shared memory are refused");
    CT_REFUSED(t, d.shared_max = 40 << 10, CT_BACKWARD, "and backward");
    CT_REFUSED(t, f.window.stride = 2, CT_FORWARD, "a stride is refused");
    CT_REFUSED(t, (f.window = (struct gpu_window){3, 1, 1}), CT_FORWARD, "3x3 is refused");
    CT_REFUSED(t, f.in.type = f.out.type = GPU_F32, CT_FORWARD, "fp32 is refused");
    CT_REFUSED(t, f.in.channels = 40, CT_FORWARD, "40 channels are refused");
    CT_REFUSED(t, f.norm.relu = false, CT_FORWARD, "a batch norm without ReLU is refused");
    gt_release_all();
}

int main(void) {
    ct_init(80, 1024 * 512);
    ct_check_all(&algo, shapes, sizeof shapes / sizeof *shapes);
    for (size_t i = 0; i < sizeof with_variants / sizeof *with_variants; i++)
        ct_variants(&algo, &with_variants[i]);
    ct_not_a_number(&algo);
    refusals();
    return st_done();
}
