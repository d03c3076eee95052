/* SPDX-License-Identifier: Apache-2.0
 *
 * Every kernel against the plain definition: all mixes of filters, odd widths and heights, and no
 * byte read or written outside. The definition itself is held against rows filtered here.
 */
#include "image/unfilter.h"

#include <sys/mman.h>
#include <unistd.h>

#include "tap.h"

enum { MAX_WIDTH = 2100, MAX_HEIGHT = 300 };

/* The pages after and before each may not be touched. */
struct fenced {
    uint8_t *pages;
    size_t size, page;
};

static struct fenced raw_memory, out_memory;
static uint8_t *expected;
static uint64_t state = 0x9e3779b97f4a7c15u;

static uint32_t draw(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 32);
}

static void fence(struct fenced *f, size_t bytes) {
    f->page = (size_t)sysconf(_SC_PAGESIZE);
    f->size = (bytes + f->page - 1) / f->page * f->page;
    f->pages = mmap(NULL, f->size + 2 * f->page, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    BAIL_UNLESS(f->pages != MAP_FAILED, "no memory");
    mprotect(f->pages, f->page, PROT_NONE);
    mprotect(f->pages + f->page + f->size, f->page, PROT_NONE);
}

/* `bytes` at the end of the memory, or at its beginning. */
static uint8_t *place(const struct fenced *f, size_t bytes, bool at_end) {
    return f->pages + f->page + (at_end ? f->size - bytes : 0);
}

/* Bytes of a kind: noise, or steps so small that Paeth's ties are met, or only extremes. */
static void fill(uint8_t *p, size_t n, int kind) {
    static const uint8_t extremes[4] = {0, 255, 128, 127};
    for (size_t i = 0; i < n; i++) {
        uint32_t v = draw();
        p[i] = kind == 0 ? (uint8_t)v : kind == 1 ? (uint8_t)(v % 5 - 2) : extremes[v % 4];
    }
}

/* Filters of a kind: 0 to 4 all rows the same, 5 any mix, 6 as radiographs have them. */
static uint8_t filter_of(int kind) {
    uint32_t v = draw();
    if (kind < 5)
        return (uint8_t)kind;
    if (kind == 5)
        return (uint8_t)(v % 5);
    v %= 100;
    return v < 67 ? 4 : v < 86 ? 3 : v < 99 ? 2 : 1;
}

static uint8_t *make_raw(size_t w, size_t h, int filters, int kind, bool at_end) {
    uint8_t *raw = place(&raw_memory, h * (w + 1), at_end);
    fill(raw, h * (w + 1), kind);
    for (size_t y = 0; y < h; y++)
        raw[y * (w + 1)] = filter_of(filters);
    return raw;
}

/* ---- the definition ---- */

static int guess_of(int filter, int a, int b, int c) {
    int p = a + b - c, pa = abs(p - a), pb = abs(p - b), pc = abs(p - c);
    switch (filter) {
    case 1: return a;
    case 2: return b;
    case 3: return (a + b) >> 1;
    case 4: return pa <= pb && pa <= pc ? a : pb <= pc ? b : c;
    default: return 0;
    }
}

static void check_definition(const struct chex_unfilter *plain) {
    enum { W = 36, H = 50 };
    int wrong = 0;
    for (int round = 0; round < 9; round++) {
        const int bpp = round < 3 ? 1 : round < 6 ? 3 : 4;
        uint8_t pixels[H][W], out[H][W], raw[H][1 + W];
        fill(pixels[0], sizeof pixels, round % 3);
        for (int y = 0; y < H; y++) {
            raw[y][0] = filter_of(5);
            for (int x = 0; x < W; x++) {
                int a = x >= bpp ? pixels[y][x - bpp] : 0, b = y ? pixels[y - 1][x] : 0;
                int c = x >= bpp && y ? pixels[y - 1][x - bpp] : 0;
                raw[y][1 + x] = (uint8_t)(pixels[y][x] - guess_of(raw[y][0], a, b, c));
            }
        }
        plain->run(raw[0], W, H, (size_t)bpp, out[0]);
        wrong += memcmp(pixels, out, sizeof out) != 0;
    }
    OK(wrong == 0, "plain gives back what was filtered");
}

/* All (left, above, corner) that Paeth can meet: two rows of two pixels each. */
static void check_paeth(const struct chex_unfilter *u) {
    enum { LEVELS = 256 };
    int wrong = 0;
    uint8_t *raw = malloc((1 + 3 * LEVELS) * 2), *out = malloc(3 * LEVELS * 2);
    BAIL_UNLESS(raw && out, "no memory");
    for (int c = 0; c < LEVELS; c += TAP_SLOW_BUILD ? 15 : 1)
        for (int a = 0; a < LEVELS; a += TAP_SLOW_BUILD ? 5 : 1) {
            const size_t w = 3 * LEVELS;
            uint8_t *upper = raw, *lower = raw + 1 + w;
            memset(raw, 0, 2 * (1 + w));
            lower[0] = 4;
            /* c over x-1 and every level over x; the residues make x-1 of the lower row a. */
            for (size_t b = 0; b < LEVELS; b++) {
                upper[1 + 3 * b + 1] = (uint8_t)c;
                upper[1 + 3 * b + 2] = (uint8_t)b;
            }
            int left = 0, corner = 0;
            for (size_t x = 0; x < w; x++) {
                int above = upper[1 + x], want = x % 3 == 1 ? a : x % 3 == 2 ? -1 : 0;
                int guess = guess_of(4, left, above, corner);
                lower[1 + x] = want < 0 ? 0 : (uint8_t)(want - guess);
                left = want < 0 ? guess : want;
                corner = above;
            }
            u->run(raw, w, 2, 1, out);
            for (int b = 0; b < LEVELS; b++)
                wrong += out[w + 3 * (size_t)b + 2] != guess_of(4, a, b, c);
        }
    OK(wrong == 0, "%s: every left, above and corner of Paeth", u->name);
    free(raw);
    free(out);
}

/* ---- the kernels ---- */

static const struct chex_unfilter *plain;

/* Rows of `bytes`, rounded down to whole pixels of each size. */
static bool same(const struct chex_unfilter *u, size_t bytes, size_t h, int filters, int kind) {
    static const size_t pixel_bytes[] = {1, 3, 4};
    bool equal = true;
    for (int i = 0; i < 3; i++) {
        const size_t n = bytes / pixel_bytes[i] * pixel_bytes[i];
        if (!n)
            continue;
        const uint8_t *raw = make_raw(n, h, filters, kind, draw() & 1);
        uint8_t *out = place(&out_memory, n * h, draw() & 1);
        plain->run(raw, n, h, pixel_bytes[i], expected);
        memset(out, 0xa5, n * h);
        u->run(raw, n, h, pixel_bytes[i], out);
        equal = equal && !memcmp(out, expected, n * h);
    }
    return equal;
}

static void check_shapes(const struct chex_unfilter *u) {
    static const size_t odd[] = {301, 511, 512, 513, 777, 1023, 1024, 1025, 2048, 2099};
    static const size_t heights[] = {1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 200};
    enum { HEIGHTS = sizeof heights / sizeof heights[0] };
    int tried = 0, wrong = 0;
    /* Wide rows take turns at the heights: only the rest of the last vector differs there. */
    for (size_t w = 1; w <= 300; w++)
        for (int i = 0; i < HEIGHTS; i++) {
            if ((w + (size_t)i) % (TAP_SLOW_BUILD ? 4 : w > 96 ? 5 : 1))
                continue;
            wrong += !same(u, w, heights[i], 5, tried++ % 3);
        }
    OK(wrong == 0, "%s: widths 1 to 300, %d images", u->name, tried);
    tried = 0;
    for (size_t h = 1; h <= 200; h++)
        for (int i = 0; i < 3; i++, tried++)
            wrong += !same(u, 1 + draw() % 150, h, 5, tried % 3);
    OK(wrong == 0, "%s: heights 1 to 200, %d images", u->name, tried);
    tried = 0;
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++)
        for (int filters = 0; filters < 7; filters++)
            for (int kind = 0; kind < 3; kind++, tried++)
                wrong += !same(u, odd[i], 1 + draw() % (TAP_SLOW_BUILD ? 100 : 300), filters, kind);
    OK(wrong == 0, "%s: each filter alone and mixed, wide rows, %d images", u->name, tried);
}

/* Every mix of filters in five rows that follow one another, across a group's border too. */
static void check_mixes(const struct chex_unfilter *u) {
    const size_t w = 19, h = 70;
    int wrong = 0;
    for (int mix = 0; mix < 3125; mix += TAP_SLOW_BUILD ? 7 : 1) {
        uint8_t *raw = make_raw(w, h, 4, mix % 3, true), *out = place(&out_memory, w * h, true);
        for (size_t y = 0; y < h; y++) {
            static const int power[5] = {1, 5, 25, 125, 625};
            raw[y * (w + 1)] = (uint8_t)(mix / power[y % 5] % 5);
        }
        plain->run(raw, w, h, 1, expected);
        u->run(raw, w, h, 1, out);
        wrong += memcmp(out, expected, w * h) != 0;
    }
    OK(wrong == 0, "%s: every mix of five filters", u->name);
}

static void check_run(const struct chex_unfilter *u) {
    uint8_t raw[2 * 5] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, out[8];
    memset(out, 0x77, sizeof out);
    bool done = chex_unfilter_run(u, raw, 4, 2, 1, out);
    OK(!done && out[0] == 0x77 && out[7] == 0x77, "%s: a filter 5 is refused", u->name);
    raw[5] = 4;
    OK(chex_unfilter_run(u, raw, 4, 2, 1, out) && out[3] == 4, "%s: and a filter 4 is not",
       u->name);
}

int main(void) {
    fence(&raw_memory, MAX_HEIGHT * (MAX_WIDTH + 1));
    fence(&out_memory, MAX_HEIGHT * MAX_WIDTH);
    expected = malloc(MAX_HEIGHT * MAX_WIDTH);
    plain = chex_unfilter_find("plain");
    BAIL_UNLESS(expected && plain, "no memory");
    check_definition(plain);
    for (const struct chex_unfilter *const *u = chex_unfilters; *u; u++) {
        if (!(*u)->usable()) {
            printf("# %s: not on this machine\n", (*u)->name);
            continue;
        }
        check_run(*u);
        check_paeth(*u);
        check_mixes(*u);
        check_shapes(*u);
    }
    OK(!chex_unfilter_find("none such"), "an unknown kernel is not found");
    OK(chex_unfilter_find(NULL) && chex_unfilters[0], "there is a fastest one");
    free(expected);
    return tap_done();
}
