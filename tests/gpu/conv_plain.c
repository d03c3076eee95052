/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu_conv_algo_plain, the reference of the other algorithms, against engine/ref (conv_test.h).
 */
#include "gpu/conv_test.h"

static const struct ct_algo plain = {&gpu_conv_algo_plain, ct_finish_sum, false};

static const struct ct_shape shapes[] = {
    {GPU_F32, {7, 2, 3}, 4, 64, 3, 10, false, false, true, false, 132, 0, 0},   /* image */
    {GPU_F32, {7, 2, 3}, 8, 64, 1, 7, false, false, false, false, 132, 0, 0},   /* image */
    {GPU_F32, {1, 1, 0}, 96, 128, 3, 7, true, true, true, true, 132, 0, 0},     /* bottleneck */
    {GPU_F32, {3, 1, 1}, 128, 32, 1, 7, true, true, true, false, 132, 0, 0},    /* growth */
    {GPU_F32, {1, 2, 0}, 64, 128, 3, 7, true, false, true, true, 132, 0, 0},    /* shortcut */
    {GPU_F32, {3, 2, 1}, 64, 64, 3, 10, true, true, true, false, 132, 0, 0},    /* stride 2 */
    {GPU_F32, {3, 1, 1}, 64, 96, 3, 1, true, true, true, false, 132, 0, 0},     /* one pixel */
    {GPU_F32, {1, 1, 0}, 256, 160, 1, 3, false, false, false, true, 132, 0, 0}, /* pooled */
    {GPU_F32, {3, 2, 1}, 32, 32, 1, 3, true, true, false, true, 132, 0, 0},     /* 3 pixels */
    {GPU_F32, {1, 1, 0}, 64, 32, 3, 10, true, true, true, true, 132, 0, 0},     /* runs */
    {GPU_F32, {1, 1, 0}, 64, 32, 3, 10, true, true, true, true, 1, 0, 0},       /* one run */
    {GPU_F32, {5, 3, 0}, 32, 32, 1, 9, true, true, true, false, 132, 0, 0},     /* no pad */
};
/* More pixels than fp32 sums over, on a device that one run of pixels would fill. */
static const struct ct_shape many_pixels = {GPU_F32, {1, 1, 0}, 32,    32, 1, 71, true,
                                            true,    true,      false, 1,  0, 0};

int main(void) {
    ct_init(0, 1 << 18);
    for (int type = GPU_F32; type <= GPU_F16; type++)
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            struct ct_shape s = shapes[i];
            s.type = (enum gpu_type)type;
            ct_check(&plain, &s);
        }
    ct_check(&plain, &many_pixels);
    return st_done();
}
