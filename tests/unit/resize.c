/* SPDX-License-Identifier: Apache-2.0
 *
 * Pillow's BILINEAR bit for bit: digests recorded by tests/peers/record_images.py. Plain C and each
 * kernel of this CPU are held to them, and to the definition in this file over many more shapes.
 */
#include <inttypes.h>

#include "base/rng.h"
#include "image/resize_private.h"

#include "tap.h"

static struct chex_error err;

/* As in the recording script. */
static uint8_t *picture(int w, int h) {
    size_t n = (size_t)w * (size_t)h;
    uint8_t *p = malloc(n);
    BAIL_UNLESS(p, "no memory");
    for (uint32_t i = 0; i < n; i++) {
        uint32_t v = i * 2654435761u;
        v ^= v >> 15;
        v *= 2246822519u;
        p[i] = (uint8_t)((v >> 25) + i % (uint32_t)w * 128u / (uint32_t)w);
    }
    return p;
}

static uint64_t fnv(const uint8_t *data, size_t n) {
    uint64_t h = 0xCBF29CE484222325u;
    for (size_t i = 0; i < n; i++)
        h = (h ^ data[i]) * 0x100000001B3u;
    return h;
}

static uint64_t resized(struct chex_resizer *r, int w, int h, int dw, int dh) {
    uint8_t *src = picture(w, h), *dst = malloc((size_t)dw * (size_t)dh);
    BAIL_UNLESS(dst && chex_resize(r, src, w, h, dst, dw, dh, &err) == CHEX_OK, "%s", err.text);
    uint64_t digest = fnv(dst, (size_t)dw * (size_t)dh);
    free(src);
    free(dst);
    return digest;
}

/* A flat picture stays flat to the last bit, at the borders too. */
static void check_flat(struct chex_resizer *r) {
    static const int sides[] = {1, 2, 3, 17, 64, 100, 255};
    bool flat = true;
    for (size_t i = 0; i < 7; i++)
        for (size_t j = 0; j < 7; j++)
            for (int v = 0; v < 256; v += 51) {
                size_t n = (size_t)sides[i] * (size_t)sides[i];
                size_t m = (size_t)sides[j] * (size_t)sides[j];
                uint8_t *src = malloc(n), *dst = malloc(m);
                memset(src, v, n);
                flat = flat && chex_resize(r, src, sides[i], sides[i], dst, sides[j], sides[j],
                                           &err) == CHEX_OK;
                for (size_t k = 0; k < m; k++)
                    flat = flat && dst[k] == v;
                free(src);
                free(dst);
            }
    OK(flat, "a flat picture stays flat");
}

/* Recorded from Pillow 13.0.0, which begins with the columns here; Pillow 10.4.0 and 12.2.0 give
 * what resize.txt has of these sizes. */
static void check_versions(struct chex_resizer *r, const char *name) {
    OK(resized(r, 1024, 2048, 256, 256) != UINT64_C(0x0cb1626765bcad5b) &&
           resized(r, 700, 3001, 256, 256) != UINT64_C(0x0bf9cb5bd8c14bbc),
       "%s: tall images are those of Pillow up to 12.2, not of 13.0", name);
}

static void check_recorded(struct chex_resizer *r, const char *name) {
    FILE *in = fopen(TEST_DATA "/resize.txt", "r");
    BAIL_UNLESS(in, "no " TEST_DATA "/resize.txt");
    int w, h, dw, dh, rows = 0;
    uint64_t want;
    for (; fscanf(in, "%d %d %d %d %" SCNx64, &w, &h, &dw, &dh, &want) == 5; rows++) {
        uint64_t got = resized(r, w, h, dw, dh);
        OK(got == want, "%s: %d x %d to %d x %d equals Pillow (%016" PRIx64 ")", name, w, h, dw, dh,
           got);
    }
    fclose(in);
    OK(rows > 20, "%d recorded sizes", rows);
    OK(resized(r, 64, 64, 32, 32) == resized(r, 64, 64, 32, 32),
       "a warm resizer does not change the result");
    check_versions(r, name);
    check_flat(r);
}

struct shape {
    int w, h, dw, dh;
};

/* Borders of the kernels: one to four windows and beyond, vectors full and cut, one group of taps
 * and many, last rows that no whole vector may read, and sides too long for packed tables. */
static const struct shape edges[] = {
    {1024, 1024, 256, 256}, {1024, 1024, 224, 224}, {1024, 1024, 320, 320}, {1024, 1024, 512, 512},
    {2828, 2320, 256, 256}, {2320, 2828, 256, 256}, {2048, 2048, 256, 256}, {2500, 2048, 224, 224},
    {512, 9, 64, 3},        {513, 9, 64, 3},        {1025, 5, 256, 5},      {1020, 7, 255, 3},
    {1088, 6, 64, 2},       {1104, 6, 64, 2},       {1300, 6, 64, 2},       {3001, 13, 17, 2},
    {3000, 30, 250, 250},   {6144, 31, 512, 30},    {65500, 1, 4093, 1},    {65500, 2, 256, 3},
    {1, 65500, 3, 256},     {65500, 1, 1, 1},       {1, 65500, 1, 1},       {65500, 3, 8, 2},
    {3, 65500, 2, 7},       {65499, 1, 65500, 1},   {1, 300, 1, 65500},     {300, 1, 65500, 1},
    {1, 1, 33, 65},         {2, 2, 15, 17},         {3, 5, 64, 64},         {63, 63, 65, 65},
    {64, 64, 63, 63},       {17, 1000, 17, 100},    {1000, 17, 100, 17},    {15, 4, 16, 5},
};
enum { EDGES = sizeof edges / sizeof edges[0], RANDOM_SHAPES = 64 };

/* Any source side up to 1200, enlarged or made smaller by up to 12; one in four a square. */
static struct shape random_shape(int i) {
    struct chex_rng4 r = chex_rng(5, CHEX_RNG_TEST, (uint64_t)i, 0);
    struct chex_rng4 q = chex_rng(5, CHEX_RNG_TEST, (uint64_t)i, 1);
    struct shape s = {1 + (int)chex_rng_below(r.v[0], 1200), 1 + (int)chex_rng_below(r.v[1], 1200),
                      0, 0};
    s.dw = 1 + s.w / 12 + (int)chex_rng_below(q.v[0], 400);
    s.dh = i % 4 ? 1 + s.h / 12 + (int)chex_rng_below(q.v[1], 400) : s.dw;
    return s;
}

/* Grey noise with many black and white pixels. */
static uint8_t *noise(size_t n, uint32_t seed) {
    uint8_t *p = malloc(n);
    BAIL_UNLESS(p, "no memory");
    for (size_t i = 0; i < n; i++) {
        uint32_t v = ((uint32_t)i + seed) * 2654435761u;
        v ^= v >> 15;
        v *= 2246822519u;
        v = (v >> 16) % 320;
        p[i] = (uint8_t)(v < 32 ? 0 : v >= 288 ? 255 : v - 32);
    }
    return p;
}

/* The definition, one pixel after the other: `src` (rows, in) to `dst` (out, rows), turned over, so
 * that calling it twice does both sides. */
static void define(const uint8_t *src, int in, int rows, uint8_t *dst, int out) {
    double scale = (double)in / out, support = scale < 1.0 ? 1.0 : scale;
    double *share = malloc((size_t)(2 * support + 3) * sizeof *share);
    BAIL_UNLESS(share, "no memory");
    for (int i = 0; i < out; i++) {
        double centre = (i + 0.5) * scale, total = 0.0;
        int from = (int)fmax(centre - support + 0.5, 0.0);
        int to = (int)fmin(centre + support + 0.5, in);
        for (int k = from; k < to; k++) {
            double away = fabs((k - centre + 0.5) * (1.0 / support));
            total += share[k - from] = away < 1.0 ? 1.0 - away : 0.0;
        }
        for (int k = from; k < to; k++)
            share[k - from] = floor(0.5 + share[k - from] / total * 4194304.0);
        for (int y = 0; y < rows; y++) {
            double sum = 2097152.0; // whole numbers below 2^53: exact
            for (int k = from; k < to; k++)
                sum += share[k - from] * src[(size_t)y * (size_t)in + (size_t)k];
            dst[(size_t)i * (size_t)rows + (size_t)y] = (uint8_t)fmin(floor(sum / 4194304.0), 255);
        }
    }
    free(share);
}

/* The source ends with its memory, so a sanitizer sees any byte read beyond. */
static void check_shape(struct shape s, struct chex_resizer **resizers, const char **names,
                        int count) {
    size_t n = (size_t)s.w * (size_t)s.h, m = (size_t)s.dw * (size_t)s.dh;
    uint8_t *src = noise(n, (uint32_t)s.w), *half = malloc((size_t)s.h * (size_t)s.dw);
    uint8_t *want = malloc(m), *got = malloc(m + 1);
    BAIL_UNLESS(half && want && got, "no memory");
    define(src, s.w, s.h, half, s.dw);
    define(half, s.h, s.dw, want, s.dh);
    for (int i = 0; i < count; i++) {
        memset(got, 0xA5, m + 1);
        enum chex_status st = chex_resize(resizers[i], src, s.w, s.h, got, s.dw, s.dh, &err);
        OK(st == CHEX_OK && !memcmp(want, got, m) && got[m] == 0xA5,
           "%s: %d x %d to %d x %d equals the definition", names[i], s.w, s.h, s.dw, s.dh);
    }
    free(src);
    free(half);
    free(want);
    free(got);
}

int main(void) {
    enum { MAX = 8 };
    struct chex_resizer *resizers[MAX] = {NULL};
    const char *names[MAX];
    const struct chex_resize_kernel *kernel = NULL;
    int count = 0;
    do {
        enum chex_status st = chex_resizer_create_with(kernel, &resizers[count], &err);
        MUST(st);
        names[count] = kernel ? kernel->name : "plain C";
        check_recorded(resizers[count], names[count]);
        kernel = chex_resize_kernel(count++);
    } while (kernel && count < MAX);
    for (int i = 0; i < EDGES + RANDOM_SHAPES; i++)
        check_shape(i < EDGES ? edges[i] : random_shape(i), resizers, names, count);
    for (int i = 0; i < count; i++)
        chex_resizer_destroy(resizers[i]);
    chex_resizer_destroy(NULL);
    return tap_done();
}
