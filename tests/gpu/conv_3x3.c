/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu_conv_algo_3x3 against engine/ref (conv_test.h), on devices of 227, 163 and 99 KiB of shared
 * memory, and what it does not take.
 */
#include "gpu/conv_test.h"

static float finish(float g, float x, float b, float c) { return fmaf(b, x, g) + c; }
static const struct ct_algo algo = {&gpu_conv_algo_3x3, finish, false};

static const struct ct_shape shapes[] = {
    /* the dense layer */
    {GPU_BF16, {3, 1, 1}, 128, 32, 1, 1, true, true, true, false, 4, 227, 0},
    {GPU_BF16, {3, 1, 1}, 128, 32, 3, 7, true, true, true, true, 4, 227, 0},
    {GPU_F16, {3, 1, 1}, 128, 32, 1, 10, true, true, true, false, 1, 227, 0},
    {GPU_BF16, {3, 1, 1}, 128, 32, 3, 10, true, true, true, false, 4, 163, 0},
    {GPU_BF16, {3, 1, 1}, 128, 32, 3, 3, true, true, true, true, 4, 99, 0},
    {GPU_F16, {3, 1, 1}, 128, 32, 3, 14, true, true, true, true, 1, 99, 0},
    {GPU_BF16, {3, 1, 1}, 128, 32, 1, 37, true, true, true, false, 1, 227, 0},
    {GPU_F16, {3, 1, 1}, 128, 32, 1, 26, true, true, true, true, 3, 227, 0},
    /* residual blocks */
    {GPU_BF16, {3, 1, 1}, 64, 64, 3, 7, true, true, true, false, 2, 227, 0},
    {GPU_F16, {3, 1, 1}, 64, 64, 1, 15, false, false, true, true, 1, 227, 0},
    {GPU_F16, {3, 1, 1}, 64, 64, 2, 10, false, false, true, true, 4, 99, 0},
    {GPU_BF16, {3, 1, 1}, 64, 64, 1, 29, true, true, false, false, 1, 99, 0},
    {GPU_BF16, {3, 1, 1}, 128, 128, 1, 10, true, true, true, false, 1, 227, 0},
    {GPU_F16, {3, 1, 1}, 128, 128, 1, 14, true, true, true, true, 1, 227, 0},
    {GPU_F16, {3, 1, 1}, 64, 256, 1, 3, false, false, false, false, 8, 163, 0},
    {GPU_BF16, {3, 1, 1}, 512, 64, 1, 2, true, true, true, false, 8, 227, 0},
    /* strips of images; weights that come with each step; two stages; several tiles of each */
    {GPU_BF16, {3, 1, 1}, 128, 32, 1, 32, true, true, true, false, 1, 227, 0},
    {GPU_F16, {3, 1, 1}, 128, 32, 1, 35, true, true, true, true, 1, 163, 0},
    {GPU_BF16, {3, 1, 1}, 64, 64, 1, 32, true, true, true, false, 2, 163, 0},
    {GPU_BF16, {3, 1, 1}, 128, 128, 1, 22, true, true, true, false, 1, 227, 0},
    {GPU_BF16, {3, 1, 1}, 128, 128, 2, 17, true, true, true, false, 1, 163, 0},
    {GPU_F16, {3, 1, 1}, 128, 128, 2, 11, true, true, true, true, 1, 99, 0},
    /* more blocks than a group: their sums are added in two steps */
    {GPU_BF16, {3, 1, 1}, 128, 32, 2, 37, true, true, true, true, 40, 227, 0},
};

static const struct ct_shape with_variants[] = {
    {GPU_BF16, {3, 1, 1}, 128, 32, 1, 5, true, true, true, true, 3, 227, 0},
    {GPU_F16, {3, 1, 1}, 64, 64, 1, 7, false, false, true, false, 2, 99, 0},
};

static void refusals(void) {
    const struct ct_shape s = {GPU_BF16, {3, 1, 1}, 128,   32, 1, 3, true,
                               true,     true,      false, 4,  0, 0};
    struct ct t = ct_make(&algo, &s);
    CT_REFUSED(t, d.capability = 75, CT_FORWARD, "capability 7.5 is refused");
    CT_REFUSED(t, d.shared_max = 48 << 10, CT_FORWARD, "48 KiB of shared memory are refused");
    CT_REFUSED(t, f.window.stride = 2, CT_FORWARD, "stride 2 is refused");
    CT_REFUSED(t, f.in.type = f.out.type = GPU_F32, CT_FORWARD, "fp32 is refused");
    CT_REFUSED(t, f.out.channels = 48, CT_FORWARD, "48 outputs are refused");
    CT_REFUSED(t, f.in.n = 1 << 28, CT_FORWARD, "more pixels than have a number are refused");
    gt_release_all();
}

int main(void) {
    ct_init(80, (size_t)512 * 512 * 9);
    ct_check_all(&algo, shapes, sizeof shapes / sizeof *shapes);
    for (size_t i = 0; i < sizeof with_variants / sizeof *with_variants && !TAP_SLOW_BUILD; i++)
        ct_variants(&algo, &with_variants[i]);
    refusals();
    return st_done();
}
