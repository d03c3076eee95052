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

/* A NaN passes the ReLU and stays in its pixel. */
static void not_a_number(void) {
    const struct ct_shape s = {GPU_BF16, {1, 1, 0}, 64, 64, 1, 7, true, true, 0, 0, 1, 0, 0};
    struct ct t = ct_make(&algo, &s);
    const uint16_t nan_bits = 0x7fc1;
    const size_t pixel = 5;
    size_t wrong = 0;
    GT_OK(cudaMemcpy((uint16_t *)t.in.map.data + pixel * (size_t)t.in.map.pitch + 9, &nan_bits, 2,
                     cudaMemcpyHostToDevice));
    GT_OK(algo.algo->forward(&t.device, NULL, &t.f, NULL, NULL));
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
    static const int others[] = {80, 89, 100, 120};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        d.capability = others[i];
        OK(!algo.algo->fits(&d, &f, NULL), "capability %d.%d is refused", others[i] / 10,
           others[i] % 10);
    }
    d = t.device;
    d.shared_max = 64 << 10;
    OK(!algo.algo->fits(&d, &f, NULL), "64 KiB of shared memory are refused");
    OK(!algo.algo->fits(&t.device, NULL, &t.b), "backward is refused");
    f.window = (struct gpu_window){1, 2, 0};
    OK(!algo.algo->fits(&t.device, &f, NULL), "a stride is refused");
    f = t.f;
    f.in.type = f.out.type = GPU_F32;
    OK(!algo.algo->fits(&t.device, &f, NULL), "fp32 is refused");
    f = t.f;
    f.norm.relu = false;
    OK(!algo.algo->fits(&t.device, &f, NULL), "a batch norm without ReLU is refused");
    ct_free(&t);
}

int main(void) {
    ct_init(90, 608 * 128);
    if (ct_device.capability != 90)
        SKIP_ALL("capability %d, expected 90", ct_device.capability);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct ct t = ct_make(&algo, &shapes[i]);
        ct_forward(&t);
        ct_free(&t);
    }
    not_a_number();
    refusals();
    return ct_done();
}
