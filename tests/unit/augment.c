/* SPDX-License-Identifier: Apache-2.0
 *
 * Augment: every form of the kernel gives the bytes of the plain one, and the plain one is bilinear
 * interpolation within the rounding of its weights.
 */
#include "input/augment.h"

#include "base/rng.h"
#include "input/augment_private.h"
#include "tap.h"

enum { MOST_STORED = 1024, MOST_SIZE = 600 };
static uint8_t *image;
static float *out, *other;
static void *scratch;

/* Smooth, noisy or of extremes. */
static void make_image(int stored, int kind) {
    for (int i = 0; i < stored * stored; i++) {
        struct chex_rng4 r = chex_rng(3, CHEX_RNG_TEST, (uint64_t)i, (uint32_t)kind);
        int x = i % stored, y = i / stored;
        image[i] = kind == 0   ? (uint8_t)((x + 2 * y) * 80 / stored)
                   : kind == 1 ? (uint8_t)r.v[0]
                               : (uint8_t)(r.v[0] & 1 ? 255 : 0);
    }
}

/* Double arithmetic, straight from the definition of bilinear without antialias. */
static double bilinear(int stored, struct chex_crop c, int size, int x, int y) {
    double fy = fmax((y + 0.5) * c.height / size - 0.5, 0);
    double fx = fmax(((c.flip ? size - 1 - x : x) + 0.5) * c.width / size - 0.5, 0);
    int y0 = (int)fy, x0 = (int)fx;
    int y1 = y0 + 1 < c.height ? y0 + 1 : y0, x1 = x0 + 1 < c.width ? x0 + 1 : x0;
    double wy = fy - y0, wx = fx - x0;
    const uint8_t *a = image + (size_t)(c.top + y0) * (size_t)stored + c.left;
    const uint8_t *b = image + (size_t)(c.top + y1) * (size_t)stored + c.left;
    return ((1 - wy) * ((1 - wx) * a[x0] + wx * a[x1]) + wy * ((1 - wx) * b[x0] + wx * b[x1])) /
           255;
}

/* Weights are off by at most 2^-9 and 2^-15 of a step of 255 grey levels, then fp32. */
static const double bound = 0x1p-9 + 0x1p-15 + 1e-6;

static double worst_error(int stored, struct chex_crop c, int size) {
    double worst = 0;
    chex_augment_apply_with(&chex_augment_plain, image, stored, c, size, out, scratch);
    for (int y = 0; y < size; y++)
        for (int x = 0; x < size; x++)
            worst = fmax(worst, fabs((double)out[y * size + x] - bilinear(stored, c, size, x, y)));
    return worst;
}

static bool same_as_plain(int stored, struct chex_crop c, int size) {
    size_t bytes = (size_t)size * (size_t)size * sizeof *out;
    memset(other, 0xff, bytes);
    chex_augment_apply_with(&chex_augment_plain, image, stored, c, size, out, scratch);
    chex_augment_apply(image, stored, c, size, other, scratch);
    return memcmp(out, other, bytes) == 0;
}

static void test_kernels(void) {
    static const int shapes[][2] = {{256, 224},  {64, 64},  {64, 56}, {65, 33}, {40, 47}, {17, 8},
                                    {1024, 224}, {33, 100}, {8, 1},   {1, 5},   {2, 2}};
    double worst = 0;
    bool equal = true;
    int crops = 0;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        int stored = shapes[i][0], size = shapes[i][1], draws = stored > 200 ? 4 : 30;
        for (int kind = 0; kind < 3; kind++) {
            make_image(stored, kind);
            for (int k = 0; k < draws; k++, crops++) {
                struct chex_crop c = chex_augment_draw(5, 1, (uint64_t)(kind * 100 + k), stored);
                equal = equal && same_as_plain(stored, c, size);
                worst = fmax(worst, worst_error(stored, c, size));
            }
        }
    }
    OK(equal, "%s gives the bytes of plain over %d crops", chex_augment_best()->name, crops);
    OK(worst <= bound, "plain is bilinear within %.2e (bound %.2e)", worst, bound);
}

static void test_extremes(void) {
    bool good = true;
    image[0] = 200;
    struct chex_crop one = {.height = 1, .width = 1};
    chex_augment_apply(image, 1, one, 224, out, scratch);
    for (int i = 0; i < 224 * 224; i++)
        good = good && fabsf(out[i] - 200.0f / 255) < 1e-6f;
    OK(good, "one pixel fills 224 x 224");
    memset(image, 255, (size_t)MOST_STORED * MOST_STORED);
    struct chex_crop all = chex_augment_centre(MOST_STORED, MOST_STORED);
    float least = 2, most = -1;
    chex_augment_apply(image, MOST_STORED, all, 224, out, scratch);
    for (int i = 0; i < 224 * 224; i++) {
        least = fminf(least, out[i]);
        most = fmaxf(most, out[i]);
    }
    OK(least == 1.0f && most == 1.0f, "white 1024 -> 224 is 1 everywhere");
    memset(image, 0, (size_t)MOST_STORED * MOST_STORED);
    chex_augment_apply(image, MOST_STORED, all, 224, out, scratch);
    good = true;
    for (int i = 0; i < 224 * 224; i++)
        good = good && out[i] == 0;
    OK(good, "black is 0 everywhere");
}

static void test_identity(void) {
    enum { S = 70, N = 64 };
    make_image(S, 1);
    struct chex_crop c = chex_augment_centre(S, N);
    OK(c.top == 3 && c.left == 3 && c.height == N && c.width == N && !c.flip, "centre crop");
    chex_augment_apply(image, S, c, N, out, scratch);
    bool good = true, flipped = true;
    for (int y = 0; y < N; y++)
        for (int x = 0; x < N; x++)
            good = good && fabsf(out[y * N + x] - (float)image[(y + 3) * S + x + 3] / 255) < 1e-7f;
    OK(good, "a crop of the output's size copies pixel by pixel");
    c.flip = true;
    chex_augment_apply(image, S, c, N, other, scratch);
    for (int y = 0; y < N; y++)
        for (int x = 0; x < N; x++)
            flipped = flipped && other[y * N + x] == out[y * N + N - 1 - x];
    OK(flipped, "flip of a copy");
    struct chex_crop r = {.top = 2, .left = 5, .height = 50, .width = 61};
    chex_augment_apply(image, S, r, N, out, scratch);
    r.flip = true;
    chex_augment_apply(image, S, r, N, other, scratch);
    for (int y = 0; y < N; y++)
        for (int x = 0; x < N; x++)
            flipped = flipped && other[y * N + x] == out[y * N + N - 1 - x];
    OK(flipped, "flip of a resize");
}

static void test_draw(void) {
    enum { S = 256, N = 20000 };
    bool inside = true, area = true, ratio = true;
    int flips = 0;
    double mean_area = 0, mean_x = 0, mean_y = 0;
    for (uint64_t row = 0; row < N; row++) {
        struct chex_crop c = chex_augment_draw(1, 2, row, S);
        inside =
            inside && c.top >= 0 && c.left >= 0 && c.top + c.height <= S && c.left + c.width <= S;
        double a = (double)c.height * c.width / S / S, q = (double)c.width / c.height;
        area = area && a > 0.49 && a <= 1;
        ratio = ratio && q > 0.74 && q < 1.35;
        flips += c.flip;
        mean_area += a / N;
        mean_x += (c.left + c.width / 2.0) / N;
        mean_y += (c.top + c.height / 2.0) / N;
    }
    OK(inside && area && ratio, "crops lie inside, area 0.5 to 1, ratio 3/4 to 4/3");
    OK(abs(flips - N / 2) < 350, "half are flipped (%d of %d, 5 deviations are 354)", flips, N);
    /* 20,000 draws of torchvision's RandomResizedCrop(scale=(0.5, 1)) at 256 px: 0.6931. Below 3/4
     * because large crops stick out more often and are drawn again. */
    OK(fabs(mean_area - 0.6931) < 0.005, "mean area %.4f (torchvision 0.6931)", mean_area);
    OK(fabs(mean_x - S / 2.0) < 1 && fabs(mean_y - S / 2.0) < 1, "centred on average");
    struct chex_crop a = chex_augment_draw(1, 2, 3, S), b = chex_augment_draw(1, 2, 3, S);
    struct chex_crop e = chex_augment_draw(1, 3, 3, S), s = chex_augment_draw(2, 2, 3, S);
    OK(a.top == b.top && a.width == b.width && a.flip == b.flip, "the same key, the same crop");
    OK((a.top != e.top || a.width != e.width || a.left != e.left) &&
           (a.top != s.top || a.width != s.width || a.left != s.left),
       "another epoch or seed, another crop");
}

int main(void) {
    image = malloc((size_t)MOST_STORED * MOST_STORED);
    out = malloc((size_t)MOST_SIZE * MOST_SIZE * sizeof *out);
    other = malloc((size_t)MOST_SIZE * MOST_SIZE * sizeof *other);
    scratch = malloc(chex_augment_scratch_bytes(MOST_STORED, MOST_SIZE));
    BAIL_UNLESS(image && out && other && scratch, "memory");
    test_kernels();
    test_extremes();
    test_identity();
    test_draw();
    free(image);
    free(out);
    free(other);
    free(scratch);
    return tap_done();
}
