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

/* A NaN passes the ReLU and stays in its pixel. */
static void not_a_number(void) {
    const struct ct_shape s = {GPU_BF16, {1, 1, 0}, 64, 64, 1, 7, true, true, 0, 0, 1, 0, 0};
    struct ct t = ct_make(&algo, &s);
    const uint16_t nan_bits = 0x7fc1;
    const size_t pixel = 5;
    size_t wrong = 0;
    GT_OK(cudaMemcpy((uint16_t *)t.in.map.data + pixel * (size_t)t.in.map.pitch + 9, &nan_bits, 2,
                     cudaMemcpyHostToDevice));
    GT_OK(gpu_conv_algo_1x1.forward(&t.device, NULL, &t.f, NULL, NULL));
    float *now = gt_download_as(s.type, t.out.b.device, t.out.b.count);
    for (size_t p = 0; p < st_pixels(&t.out); p++)
        for (int c = 0; c < s.out; c++)
            wrong += (isnan(st_at(&t.out, now, p, c)) != 0) != (p == pixel);
    OK(wrong == 0, "a NaN reaches every output of its pixel and no other");
    free(now);
    ct_free(&t);
}

static void refusals(void) {
    const struct ct_shape s = {GPU_BF16, {1, 1, 0}, 64, 128, 1, 3, true, true, true, true, 4, 0, 0};
    struct ct t = ct_make(&algo, &s);
    struct gpu_device d = t.device;
    struct gpu_conv_forward f = t.f;
    d.capability = 75;
    OK(!gpu_conv_algo_1x1.fits(&d, &f, NULL) && !gpu_conv_algo_1x1.fits(&d, NULL, &t.b),
       "capability 7.5 is refused");
    d = t.device;
    d.shared_max = 40 << 10;
    OK(!gpu_conv_algo_1x1.fits(&d, &f, NULL) && !gpu_conv_algo_1x1.fits(&d, NULL, &t.b),
       "40 KiB of shared memory are refused");
    f.window = (struct gpu_window){1, 2, 0};
    OK(!gpu_conv_algo_1x1.fits(&t.device, &f, NULL), "a stride is refused");
    f.window = (struct gpu_window){3, 1, 1};
    OK(!gpu_conv_algo_1x1.fits(&t.device, &f, NULL), "3x3 is refused");
    f = t.f;
    f.in.type = f.out.type = GPU_F32;
    OK(!gpu_conv_algo_1x1.fits(&t.device, &f, NULL), "fp32 is refused");
    f = t.f;
    f.in.channels = 40;
    OK(!gpu_conv_algo_1x1.fits(&t.device, &f, NULL), "40 channels are refused");
    f = t.f;
    f.norm.relu = false;
    OK(!gpu_conv_algo_1x1.fits(&t.device, &f, NULL), "a batch norm without ReLU is refused");
    ct_free(&t);
}

int main(void) {
    ct_init(80, 1024 * 512);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        ct_check(&algo, &shapes[i]);
    for (size_t i = 0; i < sizeof with_variants / sizeof *with_variants; i++)
        ct_variants(&algo, &with_variants[i]);
    not_a_number();
    refusals();
    return ct_done();
}
