/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu_conv_algo_3x3_sm90 against engine/ref (conv_test.h), and what it does not take. On another
 * capability than 9.0 the program is skipped.
 */
#include "gpu/conv_test.h"

/* Of slow builds, and of the race detector: small shapes only. */
#ifdef CHEX_TEST_RACES
enum { FEW = 1 };
#else
enum { FEW = TAP_SLOW_BUILD };
#endif

static float finish(float g, float x, float b, float c) { return fmaf(b, x, g) + c; }
static const struct ct_algo algo = {&gpu_conv_algo_3x3_sm90, finish, false};

static const struct ct_shape shapes[] = {
    /* the dense layer: 32 outputs forward, 128 in the data gradient, whose tiles are single steps
     */
    {GPU_BF16, {3, 1, 1}, 128, 32, 1, 1, true, true, true, false, 4, 227, 0},
    {GPU_F16, {3, 1, 1}, 128, 32, 3, 7, true, true, true, true, 1, 227, 0},
    {GPU_BF16, {3, 1, 1}, 128, 32, 1, 17, true, true, true, true, 3, 227, 0},
    /* residual blocks */
    {GPU_F16, {3, 1, 1}, 64, 64, 1, 10, false, false, true, true, 1, 227, 0},
    {GPU_BF16, {3, 1, 1}, 256, 256, 1, 3, false, false, false, false, 8, 163, 0},
    /* strips of images; weights that come with each step; two stages; several tiles of each */
    {GPU_BF16, {3, 1, 1}, 128, 128, 2, 11, true, true, true, true, 1, 99, 0},
};
/* Every variant of these: all shapes, and weights that stay or come with each step. */
static const struct ct_shape varied[] = {
    {GPU_BF16, {3, 1, 1}, 128, 128, 1, 15, true, true, true, true, 1, 227, 0},
    {GPU_F16, {3, 1, 1}, 64, 64, 2, 7, true, true, true, false, 1, 227, 0},
    {GPU_BF16, {3, 1, 1}, 128, 32, 1, 11, true, true, true, false, 1, 227, 0},
};

static void refusals(void) {
    const struct ct_shape s = {GPU_BF16, {3, 1, 1}, 128,   32, 1, 3, true,
                               true,     true,      false, 4,  0, 0};
    struct ct t = ct_make(&algo, &s);
    for (int capability = 80; capability <= 120; capability += 20) {
        CT_REFUSED(t, d.capability = capability, CT_FORWARD, "another capability is refused");
        CT_REFUSED(t, d.capability = capability, CT_BACKWARD, "and backward");
    }
    CT_REFUSED(t, f.window.stride = 2, CT_FORWARD, "stride 2 is refused");
    gt_release_all();
}

int main(void) {
    ct_init(90, (size_t)512 * 512 * 9);
    if (ct_device.capability != 90)
        SKIP_ALL("capability %d, expected 90", ct_device.capability);
    ct_check_all(&algo, shapes, sizeof shapes / sizeof *shapes);
    for (size_t i = 0; i < sizeof varied / sizeof *varied && !FEW; i++)
        ct_variants(&algo, &varied[i]);
    refusals();
    return st_done();
}
