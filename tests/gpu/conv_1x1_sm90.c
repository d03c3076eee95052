/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu_conv_algo_1x1_sm90 against engine/ref (conv_test.h), with each kind of tile, and what it does
 * not take.
 */
#include "gpu/conv_test.h"

static const struct ct_algo algo = {&gpu_conv_algo_1x1_sm90, ct_finish_sum, false};

enum { SMALL = 99 /* KiB of shared memory: few stages */ };

/* Of no meaning forward: deferred, add. */
static const struct ct_shape shapes[] = {
    /* one tile for each block: one row, parts of 16 to 64 rows, channels that fill half a stage */
    {GPU_BF16, {1, 1, 0}, 64, 128, 1, 1, true, true, false, false, 4, 0, 0},
    {GPU_F16, {1, 1, 0}, 160, 128, 3, 10, true, true, false, false, 5, 0, 2},
    {GPU_BF16, {1, 1, 0}, 96, 128, 2, 8, false, false, false, false, 1, 0, 0},
    {GPU_F16, {1, 1, 0}, 384, 64, 1, 10, true, true, false, false, 2, SMALL, 0},
    /* W stays in shared memory: several tiles, the last one in part */
    {GPU_BF16, {1, 1, 0}, 96, 128, 3, 7, true, true, false, false, 1, 0, 0},
    {GPU_F16, {1, 1, 0}, 128, 128, 3, 10, false, false, false, false, 2, 0, 1},
    {GPU_BF16, {1, 1, 0}, 160, 64, 3, 10, true, true, false, false, 1, 0, 0},
    /* columns that fill a tile in part, several column tiles */
    {GPU_BF16, {1, 1, 0}, 64, 32, 3, 10, true, true, false, false, 2, 0, 0},
    {GPU_F16, {1, 1, 0}, 64, 160, 3, 7, false, false, false, false, 2, 0, 0},
    {GPU_BF16, {1, 1, 0}, 64, 256, 3, 7, true, true, false, false, 4, 0, 0},
    /* W comes with every tile: parts of 64 rows, two parts for each warpgroup, 64 columns */
    {GPU_BF16, {1, 1, 0}, 192, 128, 3, 10, true, true, false, false, 2, SMALL, 0},
    {GPU_BF16, {1, 1, 0}, 608, 128, 3, 10, true, true, false, false, 1, 0, 0},
    {GPU_F16, {1, 1, 0}, 608, 96, 3, 8, false, false, false, false, 1, 0, 1},
    {GPU_F16, {1, 1, 0}, 384, 64, 3, 10, true, true, false, false, 2, SMALL, 0},
    /* more blocks than a group: their sums are added in two steps */
    {GPU_BF16, {1, 1, 0}, 32, 128, 3, 22, true, true, false, false, 40, 0, 0},
};

static void refusals(void) {
    const struct ct_shape s = {GPU_BF16, {1, 1, 0}, 64, 128, 1, 3, true, true, true, true, 4, 0, 0};
    struct ct t = ct_make(&algo, &s);
    CT_REFUSED(t, d.capability = 80, CT_FORWARD, "capability 8.0 is refused");
    CT_REFUSED(t, d.capability = 89, CT_FORWARD, "capability 8.9 is refused");
    CT_REFUSED(t, d.capability = 100, CT_FORWARD, "capability 10.0 is refused");
    CT_REFUSED(t, d.capability = 120, CT_FORWARD, "capability 12.0 is refused");
    CT_REFUSED(t, d.shared_max = 64 << 10, CT_FORWARD, "64 KiB of shared memory are refused");
    CT_REFUSED(t, (void)0, CT_BACKWARD, "backward is refused");
    CT_REFUSED(t, f.window.stride = 2, CT_FORWARD, "a stride is refused");
    CT_REFUSED(t, f.in.type = f.out.type = GPU_F32, CT_FORWARD, "fp32 is refused");
    CT_REFUSED(t, f.norm.relu = false, CT_FORWARD, "a batch norm without ReLU is refused");
    gt_release_all();
}

int main(void) {
    ct_init(90, 608 * 128);
    if (ct_device.capability != 90)
        SKIP_ALL("capability %d, expected 90", ct_device.capability);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct ct t = ct_make(&algo, &shapes[i]);
        ct_forward(&t);
        gt_release_all();
    }
    ct_not_a_number(&algo);
    refusals();
    return st_done();
}
