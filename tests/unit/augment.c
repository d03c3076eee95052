/* SPDX-License-Identifier: Apache-2.0
 *
 * Augment: every form of the kernels gives the bytes of the plain one, the plain one is bilinear
 * interpolation within the rounding of its weights, and all of it is torchvision's within the
 * bounds that stand here (values recorded by tests/peers/record_augment.py).
 */
#include "input/augment.h"

#include "base/alloc.h"
#include "base/rng.h"
#include "input/augment_private.h"
#include "tap.h"

enum { MOST_STORED = 1024, MOST_SIZE = 640, MOST_SCRATCH = 16 << 20 };
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
    chex_augment_apply_with(&chex_augment_plain, image, stored, &c, size, false, out, scratch);
    for (int y = 0; y < size; y++)
        for (int x = 0; x < size; x++)
            worst = fmax(worst, fabs((double)out[y * size + x] - bilinear(stored, c, size, x, y)));
    return worst;
}

static void apply(struct chex_crop c, int stored, int size, float *to) {
    chex_augment_apply(image, stored, &c, size, false, to, scratch);
}

/* Names the kernels that differ; once stored as usual and once streamed, and nothing outside. */
static const char *differs(int stored, struct chex_crop c, int size) {
    const size_t n = (size_t)size * (size_t)size;
    chex_augment_apply_with(&chex_augment_plain, image, stored, &c, size, false, out, scratch);
    for (int k = 0; chex_augment_all[k]; k++)
        for (int stream = 0; stream < 2 && chex_augment_all[k]->supported(); stream++) {
            memset(other, 0xff, (n + 1) * sizeof *other);
            chex_augment_apply_with(chex_augment_all[k], image, stored, &c, size, stream, other,
                                    scratch);
            if (memcmp(out, other, n * sizeof *out) != 0 || !isnan(other[n]))
                return chex_augment_all[k]->name;
        }
    return NULL;
}

static const int shapes[][2] = {{256, 224}, {64, 64},    {64, 56},   {65, 33},  {40, 47},
                                {17, 8},    {1024, 224}, {33, 100},  {8, 1},    {1, 5},
                                {2, 2},     {16, 512},   {1024, 16}, {300, 97}, {515, 256}};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

static void test_bilinear(void) {
    double worst = 0;
    for (size_t i = 0; i < SHAPES; i++)
        for (int kind = 0; kind < 3; kind++) {
            make_image(shapes[i][0], kind);
            for (uint64_t k = 0; k < 4; k++) {
                struct chex_crop c =
                    chex_augment_draw(&chex_augment_defaults, 5, 1, k, shapes[i][0]);
                worst = fmax(worst, worst_error(shapes[i][0], c, shapes[i][1]));
            }
        }
    OK(worst <= bound, "plain is bilinear within %.2e (bound %.2e)", worst, bound);
}

/* All shapes, each with all 16 mixtures of options. */
static void test_kernels(void) {
    int crops = 0;
    for (size_t i = 0; i < SHAPES; i++) {
        const int stored = shapes[i][0], size = shapes[i][1];
        const char *bad = NULL;
        for (int mix = 0; mix < 16 && !bad; mix++) {
            const struct chex_augment_options o = {.crop_scale = mix & 1 ? 0.08 : 0.5,
                                                   .hflip = 0.5,
                                                   .antialias = mix & 1,
                                                   .rotate = mix & 2 ? 30 : 0,
                                                   .brightness = mix & 4 ? 0.9 : 0,
                                                   .contrast = mix & 8 ? 1.5 : 0};
            make_image(stored, mix % 3);
            for (uint64_t k = 0; k < (stored > 200 ? 2 : 8) && !bad; k++, crops++)
                bad = differs(stored, chex_augment_draw(&o, 5, 1, k, stored), size);
        }
        OK(!bad, "%d -> %d: all kernels give the bytes of plain%s%s", stored, size,
           bad ? ", but not " : "", bad ? bad : "");
    }
    printf("# %d crops; this CPU's kernels: %s\n", crops, chex_augment_kernels_name());
}

/* Every height, width and place of small rows, every output size. */
static void test_all_small(void) {
    enum { S = 9, N = 20 };
    const char *bad = NULL;
    make_image(S, 1);
    for (int h = 1; h <= S; h++)
        for (int w = 1; w <= S; w++)
            for (int size = 1; size <= N && !bad; size++)
                for (int mix = 0; mix < 4 && !bad; mix++)
                    bad = differs(S,
                                  (struct chex_crop){.top = S - h,
                                                     .left = (S - w) / 2,
                                                     .height = h,
                                                     .width = w,
                                                     .flip = mix & 1,
                                                     .antialias = mix & 2},
                                  size);
    OK(!bad, "all crops of a row of %d px to 1..%d px%s%s", S, N, bad ? ": not " : "",
       bad ? bad : "");
}

static void test_weights(void) {
    enum { L = 2400 };
    static int32_t first[L];
    static int16_t weights[L * 64];
    bool sums = true, inside = true, positive = true;
    for (int length = 1; length < 1200; length += length < 40 ? 1 : 37)
        for (int size = length / 30 + 1; size < 700; size += size < 40 ? 1 : 41)
            for (int antialias = 0; antialias < 2; antialias++) {
                struct chex_augment_taps taps = {
                    .outputs = size,
                    .taps = chex_augment_tap_count(length, size, antialias),
                    .pair_stride = 2,
                    .first = first,
                    .weights = weights};
                taps.output_stride = (size_t)taps.taps;
                chex_augment_make_taps(length, size, antialias, false, 14, &taps);
                for (int i = 0; i < size; i++) {
                    int sum = 0;
                    for (int t = 0; t < taps.taps; t++) {
                        const int w = weights[i * taps.taps + t];
                        sum += w;
                        positive = positive && w >= 0;
                        inside = inside && (w == 0 || (first[i] >= 0 && first[i] + t < length));
                    }
                    sums = sums && sum == 1 << 14;
                }
            }
    OK(sums && positive && inside, "weights sum to 2^14, none below 0, none outside of the crop");
}

static void test_extremes(void) {
    bool good = true;
    image[0] = 200;
    struct chex_crop one = {.height = 1, .width = 1};
    apply(one, 1, 224, out);
    for (int i = 0; i < 224 * 224; i++)
        good = good && fabsf(out[i] - 200.0f / 255) < 1e-6f;
    OK(good, "one pixel fills 224 x 224");
    memset(image, 255, (size_t)MOST_STORED * MOST_STORED);
    struct chex_crop all = chex_augment_centre(MOST_STORED, MOST_STORED);
    float least = 2, most = -1;
    apply(all, MOST_STORED, 224, out);
    for (int i = 0; i < 224 * 224; i++) {
        least = fminf(least, out[i]);
        most = fmaxf(most, out[i]);
    }
    OK(least == 1.0f && most == 1.0f, "white 1024 -> 224 is 1 everywhere");
    memset(image, 0, (size_t)MOST_STORED * MOST_STORED);
    apply(all, MOST_STORED, 224, out);
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
    apply(c, S, N, out);
    bool good = true, flipped = true;
    for (int y = 0; y < N; y++)
        for (int x = 0; x < N; x++)
            good = good && fabsf(out[y * N + x] - (float)image[(y + 3) * S + x + 3] / 255) < 1e-7f;
    OK(good, "a crop of the output's size copies pixel by pixel");
    c.flip = true;
    apply(c, S, N, other);
    for (int y = 0; y < N; y++)
        for (int x = 0; x < N; x++)
            flipped = flipped && other[y * N + x] == out[y * N + N - 1 - x];
    OK(flipped, "flip of a copy");
    struct chex_crop r = {.top = 2, .left = 5, .height = 50, .width = 61};
    apply(r, S, N, out);
    r.flip = true;
    apply(r, S, N, other);
    for (int y = 0; y < N; y++)
        for (int x = 0; x < N; x++)
            flipped = flipped && other[y * N + x] == out[y * N + N - 1 - x];
    OK(flipped, "flip of a resize");
}

static void test_draw(void) {
    const struct chex_augment_options *o = &chex_augment_defaults;
    enum { S = 256, N = 20000 };
    bool inside = true, area = true, ratio = true;
    int flips = 0;
    double mean_area = 0, mean_x = 0, mean_y = 0;
    for (uint64_t row = 0; row < N; row++) {
        struct chex_crop c = chex_augment_draw(o, 1, 2, row, S);
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
    int tenth = 0;
    bool never = true, always = true;
    for (uint64_t row = 0; row < N; row++) {
        struct chex_augment_options p = *o;
        p.hflip = 0.1;
        tenth += chex_augment_draw(&p, 1, 2, row, S).flip;
        p.hflip = 0;
        never = never && !chex_augment_draw(&p, 1, 2, row, S).flip;
        p.hflip = 1;
        always = always && chex_augment_draw(&p, 1, 2, row, S).flip;
    }
    OK(never && always, "a flip probability of 0 flips no image, and 1 flips all");
    OK(abs(tenth - N / 10) < 212, "0.1 flips one in ten (%d of %d, 5 deviations are 212)", tenth,
       N);
    OK(abs(flips - N / 2) < 350, "half are flipped (%d of %d, 5 deviations are 354)", flips, N);
    /* 20,000 draws of torchvision's RandomResizedCrop(scale=(0.5, 1)) at 256 px: 0.6931. Below 3/4
     * because large crops stick out more often and are drawn again. */
    OK(fabs(mean_area - 0.6931) < 0.005, "mean area %.4f (torchvision 0.6931)", mean_area);
    OK(fabs(mean_x - S / 2.0) < 1 && fabs(mean_y - S / 2.0) < 1, "centred on average");
    struct chex_crop a = chex_augment_draw(o, 1, 2, 3, S), b = chex_augment_draw(o, 1, 2, 3, S);
    struct chex_crop e = chex_augment_draw(o, 1, 3, 3, S), s = chex_augment_draw(o, 2, 2, 3, S);
    OK(a.top == b.top && a.width == b.width && a.flip == b.flip, "the same key, the same crop");
    OK((a.top != e.top || a.width != e.width || a.left != e.left) &&
           (a.top != s.top || a.width != s.width || a.left != s.left),
       "another epoch or seed, another crop");
}

/* An option that is switched on draws its own numbers and leaves the others' alone. */
static void test_separate_draws(void) {
    const struct chex_augment_options one[] = {
        {.crop_scale = 0.5, .hflip = 0.5, .rotate = 10},
        {.crop_scale = 0.5, .hflip = 0.5, .brightness = 0.3},
        {.crop_scale = 0.5, .hflip = 0.5, .contrast = 2},
        {.crop_scale = 0.5, .hflip = 0.5, .antialias = true}};
    const struct chex_augment_options all = {.crop_scale = 0.5,
                                             .hflip = 0.5,
                                             .rotate = 10,
                                             .brightness = 0.3,
                                             .contrast = 2,
                                             .antialias = true};
    bool same = true, inside = true;
    double rotated = 0, bright = 0, contrast = 0, together = 0;
    for (uint64_t row = 0; row < 5000; row++) {
        struct chex_crop none = chex_augment_draw(&chex_augment_defaults, 1, 2, row, 256), c[4];
        struct chex_crop every = chex_augment_draw(&all, 1, 2, row, 256);
        for (int i = 0; i < 4; i++) {
            c[i] = chex_augment_draw(&one[i], 1, 2, row, 256);
            same = same && c[i].top == none.top && c[i].left == none.left &&
                   c[i].height == none.height && c[i].width == none.width && c[i].flip == none.flip;
        }
        same = same && every.degrees == c[0].degrees && every.antialias && c[3].antialias &&
               every.brightness_more == c[1].brightness_more &&
               every.contrast_more == c[2].contrast_more && every.top == none.top;
        inside = inside && fabs(every.degrees) <= 10 && fabs(every.brightness_more) <= 0.3 &&
                 every.contrast_more >= -1 && every.contrast_more <= 2;
        rotated += every.degrees / 5000;
        bright += every.brightness_more / 5000;
        contrast += every.contrast_more / 5000;
        together += every.degrees * every.brightness_more / 5000;
    }
    OK(same, "an option does not change the draws of another");
    OK(inside, "angles and factors are within what the options say; no factor is below 0");
    /* 5 deviations of means of uniform numbers */
    OK(fabs(rotated) < 0.41 && fabs(bright) < 0.013 && fabs(contrast - 0.5) < 0.062 &&
           fabs(together) < 0.08,
       "means %.3f degrees, %.4f, %.4f and no correlation", rotated, bright, contrast);
}

/* torchvision: five_crop, center_crop with Python's round. */
static void test_ten_crop(void) {
    static const int centres[][3] = {{256, 224, 16}, {257, 224, 16}, {259, 224, 18}, {225, 224, 0},
                                     {227, 224, 2},  {224, 224, 0},  {20, 14, 3},    {229, 224, 2}};
    struct chex_crop c[CHEX_AUGMENT_TEN_CROP];
    bool good = true;
    for (size_t i = 0; i < sizeof centres / sizeof centres[0]; i++) {
        const int room = centres[i][0] - centres[i][1], at = centres[i][2];
        const int want[5][2] = {{at, at}, {0, 0}, {0, room}, {room, 0}, {room, room}};
        chex_augment_ten_crop(centres[i][0], centres[i][1], c);
        for (int k = 0; k < CHEX_AUGMENT_TEN_CROP; k++)
            good = good && c[k].top == want[k / 2][0] && c[k].left == want[k / 2][1] &&
                   c[k].flip == k % 2 && c[k].height == centres[i][1] &&
                   c[k].width == centres[i][1] && !c[k].antialias && c[k].degrees == 0;
    }
    OK(good, "ten crops lie where torchvision puts them");
}

/* As in tests/peers/record_images.py. */
static void picture(int side) {
    for (uint32_t i = 0; i < (uint32_t)side * (uint32_t)side; i++) {
        uint32_t v = i * 2654435761u;
        v ^= v >> 15;
        v *= 2246822519u;
        image[i] = (uint8_t)((v >> 25) + i % (uint32_t)side * 128u / (uint32_t)side);
    }
}

enum { RECORDED_STEP = 29 };

/* The largest difference to the recorded values that follow, in grey levels. */
static double recorded_error(FILE *in, int size) {
    double worst = 0, want;
    for (int i = 0; i < size * size; i += RECORDED_STEP) {
        BAIL_UNLESS(fscanf(in, "%lf", &want) == 1, "augment.txt: a value is missing");
        worst = fmax(worst, fabs((double)out[i] * 255 - want));
    }
    return worst;
}

/* Resizing, 8-bit vertical weights: half a unit of 2^-8 between two neighbours, which are up to 255
 * apart, is 0.50 grey levels for two taps; the sums of the noise here stay below it with more taps
 * too. torchvision's 8-bit path rounds its result, and with antialias between the passes and its
 * weights as well: half a level, or one, more. Then 0.01 of the two decimals and of 14 bits.
 * Rotating: 1/512 px each way of up to 255 grey levels is 0.5 twice, and 0.5 of rounding. */
static const double resize_bound = 0.51, bytes_bound = 1.51, rotate_bound = 1.51;

static void compare_resize(FILE *in, double *exact, double *bytes) {
    int stored, size, flip, antialias;
    struct chex_crop c = {0};
    BAIL_UNLESS(fscanf(in, "%d %d %d %d %d %d %d %d", &stored, &size, &c.top, &c.left, &c.height,
                       &c.width, &flip, &antialias) == 8,
                "augment.txt: resize");
    c.flip = flip;
    c.antialias = antialias;
    picture(stored);
    apply(c, stored, size, out);
    *exact = fmax(*exact, recorded_error(in, size));
    BAIL_UNLESS(fscanf(in, " %*1[|]") == 0, "augment.txt: resize");
    *bytes = fmax(*bytes, recorded_error(in, size));
}

static void compare_rotate(FILE *in, double *worst) {
    int stored;
    struct chex_crop c = {0};
    BAIL_UNLESS(fscanf(in, "%d %lf", &stored, &c.degrees) == 2, "augment.txt: rotate");
    c.height = c.width = stored;
    picture(stored);
    apply(c, stored, stored, out);
    *worst = fmax(*worst, recorded_error(in, stored));
}

/* With one factor alone there is nothing between the two to clamp. */
static void compare_jitter(FILE *in, double *alone, double *both) {
    int stored;
    double brightness, contrast;
    struct chex_crop c = {0};
    BAIL_UNLESS(fscanf(in, "%d %lf %lf", &stored, &brightness, &contrast) == 3,
                "augment.txt: jitter");
    c.height = c.width = stored;
    c.brightness_more = brightness - 1;
    c.contrast_more = contrast - 1;
    picture(stored);
    apply(c, stored, stored, out);
    double *worst = brightness == 1 || contrast == 1 ? alone : both;
    *worst = fmax(*worst, recorded_error(in, stored));
}

static void test_recorded(void) {
    FILE *in = fopen(TEST_DATA "/augment.txt", "r");
    BAIL_UNLESS(in, "no " TEST_DATA "/augment.txt");
    double exact = 0, bytes = 0, rotate = 0, alone = 0, both = 0;
    char kind[16];
    int lines = 0;
    for (; fscanf(in, "%15s", kind) == 1; lines++)
        if (strcmp(kind, "resize") == 0)
            compare_resize(in, &exact, &bytes);
        else if (strcmp(kind, "rotate") == 0)
            compare_rotate(in, &rotate);
        else
            compare_jitter(in, &alone, &both);
    fclose(in);
    OK(lines == 34, "%d recorded results of torchvision", lines);
    OK(exact <= resize_bound, "resize: its float path within %.2f grey levels (bound %.2f)", exact,
       resize_bound);
    OK(bytes <= bytes_bound, "resize: its 8-bit path within %.2f (bound %.2f)", bytes, bytes_bound);
    OK(rotate <= rotate_bound, "rotate within %.2f (bound %.2f)", rotate, rotate_bound);
    /* two decimals; torchvision takes the grey of three equal channels with weights that sum to
     * 0.9999, so its mean is a little lower */
    OK(alone <= 0.03 && both <= 0.03, "brightness, contrast within %.3f, both %.3f", alone, both);
}

static void test_clamp(void) {
    enum { S = 30 };
    bool good = true, black = true;
    make_image(S, 1);
    struct chex_crop c = {.height = 25, .width = 28, .brightness_more = 3, .contrast_more = 4};
    apply(c, S, 24, out);
    for (int i = 0; i < 24 * 24; i++)
        good = good && out[i] >= 0 && out[i] <= 1;
    OK(good, "strong factors are clamped to [0, 1]");
    c.brightness_more = -1;
    apply(c, S, 24, out);
    for (int i = 0; i < 24 * 24; i++)
        black = black && out[i] == 0;
    OK(black, "a brightness factor of 0 is black");
}

int main(void) {
    image = malloc((size_t)MOST_STORED * MOST_STORED);
    out = chex_alloc_aligned((size_t)MOST_SIZE * MOST_SIZE, sizeof *out);
    other = chex_alloc_aligned((size_t)MOST_SIZE * MOST_SIZE, sizeof *other);
    scratch = chex_alloc_aligned(1, MOST_SCRATCH);
    BAIL_UNLESS(image && out && other && scratch, "memory");
    for (size_t i = 0; i < SHAPES; i++)
        BAIL_UNLESS(chex_augment_scratch_bytes(shapes[i][0], shapes[i][1]) <= MOST_SCRATCH,
                    "scratch");
    test_bilinear();
    test_kernels();
    test_all_small();
    test_weights();
    test_clamp();
    test_recorded();
    test_ten_crop();
    test_separate_draws();
    test_extremes();
    test_identity();
    test_draw();
    free(image);
    free(out);
    free(other);
    free(scratch);
    return tap_done();
}
