/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels for pairs of bf16 against plain loops, byte by byte where sums of small integers are
 * exact in any order: pixels in rows with gaps, at a distance, alone; odd counts; runs that begin
 * within a group. And the error of fp32 made of three products. Each variant that this machine
 * runs, and AMX on emulated tiles.
 */
#if !defined(__x86_64__)
#include "tap.h"

int main(void) { SKIP_ALL("the kernels for pairs are x86's"); }
#else
#include "base/alloc.h"
#include "base/rng.h"
#include "engine/cpu/cpu_engine.h"
#include "tap.h"

extern const struct cpu_kernels chex_cpu_kernels_amx_emulated;

static const struct cpu_kernels *k;

static float unit(uint64_t item, size_t i) {
    return chex_rng_unit(chex_rng(5, CHEX_RNG_TEST, item, (uint32_t)i).v[0]);
}
static int small(uint64_t item, size_t i) { return (int)(unit(item, i) * 9) - 4; }

static float round_bf16(float v) {
    uint32_t u;
    memcpy(&u, &v, sizeof u);
    u = (u + 0x7fff + ((u >> 16) & 1)) & 0xffff0000u;
    memcpy(&v, &u, sizeof v);
    return v;
}
static uint16_t half(float v) {
    uint32_t u;
    v = round_bf16(v);
    memcpy(&u, &v, sizeof u);
    return (uint16_t)(u >> 16);
}
static float whole(uint16_t h) {
    uint32_t u = (uint32_t)h << 16;
    float v;
    memcpy(&v, &u, sizeof v);
    return v;
}

/* Zeros until the end of the running check. */
static void *taken[16];
static int taken_count;
static void *take(size_t count, size_t size) {
    void *p = chex_alloc_aligned(count, size);
    BAIL_UNLESS(p && taken_count < 16, "out of memory");
    memset(p, 0, count * size);
    return taken[taken_count++] = p;
}
static void release(void) {
    while (taken_count)
        free(taken[--taken_count]);
}

static void begin(void) {
    if (k->dot2->begin)
        k->dot2->begin();
}
static void end(void) {
    if (k->dot2->end)
        k->dot2->end();
}

static void pack(int rows, int n_before, bool split) {
    const size_t panel = (size_t)k->panel, pitch = panel + (size_t)n_before;
    const size_t columns = (size_t)rows + (size_t)n_before, words = (size_t)rows / 2 * panel;
    float *w = take((size_t)rows * pitch, sizeof *w), *turned = take(panel * columns, sizeof *w);
    uint32_t *got = take(4 * words, sizeof *got), *rest = split ? got + words : NULL;
    for (size_t r = 0; r < (size_t)rows; r++)
        for (size_t j = 0; j < panel; j++)
            w[r * pitch + j] = turned[j * columns + r] = unit(9, r * panel + j) - 0.5f;
    k->dot2->pack(got, rest, w, pitch, rows);
    k->dot2->pack_columns(got + 2 * words, split ? rest + 2 * words : NULL, turned, columns, rows);
    bool same = true;
    for (size_t r = 0; r < (size_t)rows; r++)
        for (size_t j = 0; j < panel; j++) {
            const float v = w[r * pitch + j];
            const size_t at = r / 2 * panel + j, shift = r % 2 * 16;
            const uint16_t low = split ? half(v - round_bf16(v)) : 0;
            for (size_t turn = 0; turn < 2; turn++) {
                same = same && (uint16_t)(got[2 * turn * words + at] >> shift) == half(v);
                same = same && (uint16_t)(got[(2 * turn + 1) * words + at] >> shift) == low;
            }
        }
    OK(same, "%s pack and pack_columns: %d rows%s", k->name, rows, split ? ", split" : "");
    release();
}

/* What is stored as bf16 has the bits of plain C: ties, the largest, denormals (zeros, with their
 * sign), infinity, NaN. */
static void store(void) {
    static const uint32_t odd[] = {0x3f808000, 0x3f818000, 0x3f808001, 0xbf807fff, 0x7f7fffff,
                                   0x7f800000, 0xff800000, 0x7fc00000, 0x00000000, 0x80000000,
                                   0x00000001, 0x807fffff, 0x007fffff, 0x00800000, 0x80800000};
    enum { COUNT = 32 };
    float own[COUNT];
    uint16_t at[2][COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        own[i] = unit(10, i) - 0.5f;
        if (i < sizeof odd / sizeof odd[0])
            memcpy(&own[i], &odd[i], sizeof own[i]);
    }
    k->store(&(struct cpu_stored){at[0], COUNT, true}, own, COUNT, 1, COUNT, NULL);
    chex_cpu_kernels_generic.store(&(struct cpu_stored){at[1], COUNT, true}, own, COUNT, 1, COUNT,
                                   NULL);
    OK(memcmp(at[0], at[1], sizeof at[0]) == 0 && at[0][0] == 0x3f80 && at[0][1] == 0x3f82 &&
           at[0][11] == 0x8000 && at[0][13] == 0x0080,
       "%s store: bf16 as plain C rounds it, denormals to zeros", k->name);
}

enum { STORED = 45, CHANNELS = 96 };

/* Stores src in two calls and gathers its moments: (3, CHANNELS). */
static void gather(const struct cpu_kernels *kernels, const float *src, bool bf16, void *dst,
                   float *out) {
    enum { FIRST = 13, STEP = CHANNELS + 32 };
    struct cpu_moments m = {out, out + CHANNELS, out + 2 * CHANNELS, false};
    kernels->store(&(struct cpu_stored){dst, STEP, bf16}, src, CHANNELS, FIRST, CHANNELS, &m);
    m.begun = true;
    void *rest = (char *)dst + (size_t)FIRST * STEP * (bf16 ? 2 : 4);
    kernels->store(&(struct cpu_stored){rest, STEP, bf16}, src + FIRST * CHANNELS, CHANNELS,
                   STORED - FIRST, CHANNELS, &m);
}

/* Moments of stored values have the bits of plain C, and the variance made of them is that of
 * doubles: channels of large means, one of equal values, one whose first pixel is far off. */
static void moments(bool bf16) {
    static float src[STORED * CHANNELS], dst[2][STORED * (CHANNELS + 32)], m[2][3 * CHANNELS];
    for (size_t i = 0; i < STORED * CHANNELS; i++)
        src[i] = (float)(i % CHANNELS) + unit(11, i);
    for (size_t p = 0; p < STORED; p++)
        src[p * CHANNELS + 7] = 3, src[p * CHANNELS + 8] *= p ? 1 : 1000;
    memset(dst, 0, sizeof dst);
    gather(k, src, bf16, dst[0], m[0]);
    gather(&chex_cpu_kernels_generic, src, bf16, dst[1], m[1]);
    double worst = 0;
    for (size_t c = 0; c < CHANNELS; c++) {
        double sum = 0, square = 0, own = m[0][2 * CHANNELS + c], mean = m[0][CHANNELS + c];
        for (size_t p = 0; p < STORED; p++) {
            uint32_t bits = 0;
            float v = dst[0][p * (CHANNELS + 32) + c];
            if (bf16) {
                bits = (uint32_t)((uint16_t *)dst[0])[p * (CHANNELS + 32) + c] << 16;
                memcpy(&v, &bits, sizeof v);
            }
            sum += (double)v;
            square += (double)v * (double)v;
        }
        double truth = square - sum * sum / STORED, got = own - mean * mean / STORED;
        double off = truth > 0 ? fabs(got - truth) / truth : got;
        worst = off > worst ? off : worst;
    }
    OK(memcmp(m[0], m[1], sizeof m[0]) == 0 && memcmp(dst[0], dst[1], sizeof dst[0]) == 0,
       "%s store, %s: moments as in plain C", k->name, bf16 ? "bf16" : "fp32");
    /* each of STORED additions rounds, and the worst first pixel multiplies that by STORED */
    OK(worst < STORED * STORED * 6e-8 / 4, "%s store, %s: variances within %.1e", k->name,
       bf16 ? "bf16" : "fp32", worst);
}

/* A map of `width` columns; `inner` of them are pixels, `step` columns apart. */
struct map {
    int rows, width, inner, step;
};

static int list(struct map m, size_t pitch, int32_t *off) {
    int count = 0;
    for (int y = 0; y < m.rows; y++)
        for (int x = 0; x < m.inner; x++)
            off[count++] = (int32_t)((size_t)(y * m.width + x * m.step) * pitch);
    return count;
}

/* Something to ask for meanwhile: all of it is asked for in one call, and no value changes. */
static struct cpu_prefetch some_prefetch(const uint16_t *at, int rows) {
    const char *from = (const char *)at;
    return (struct cpu_prefetch){
        .part = {{from, 0, rows, 1}, {from, 0, rows / 2, 2}}, .rows = rows, .calls = 1};
}

static void gemm(struct map m, int kernel, int depth, int n) {
    size_t pitch = (size_t)depth + 32, c_pitch = (size_t)n + 16, panel = (size_t)k->panel;
    int taps = kernel * kernel, spare = k->dot2->spare_rows * (m.inner > 1 ? m.step : m.width);
    size_t places = (size_t)((m.rows + kernel) * m.width + spare);
    int32_t *off = take((size_t)(m.rows * m.inner), sizeof *off);
    uint16_t *a = take(places * pitch, sizeof *a);
    uint16_t *b = take((size_t)taps * (size_t)depth * (size_t)n, sizeof *b);
    int count = list(m, pitch, off);
    float *c = take((size_t)count * c_pitch, sizeof *c);
    for (size_t i = 0; i < places * pitch; i++)
        a[i] = half((float)small(1, i));
    size_t b_panel = (size_t)taps * (size_t)depth * panel;
    struct cpu_tap tap[9];
    for (int t = 0; t < taps; t++) {
        tap[t] = (struct cpu_tap){(t / kernel * m.width + t % kernel) * (ptrdiff_t)pitch,
                                  (ptrdiff_t)t * depth * k->panel};
        for (int d = 0; d < depth; d++)
            for (int j = 0; j < n; j++)
                b[(size_t)j / panel * b_panel + (size_t)(t * depth + d / 2 * 2) * panel +
                  (size_t)j % panel * 2 + (size_t)(d % 2)] =
                    half((float)small(2, (size_t)((t * depth + d) * n + j)));
    }
    struct cpu_prefetch prefetch = some_prefetch(a, count);
    begin();
    k->dot2->gemm(a, off, count, tap, taps, depth, b, b_panel, n, c, c_pitch, &prefetch);
    end();
    bool same = prefetch.row == prefetch.rows;
    for (int i = 0; i < count; i++)
        for (int j = 0; j < n; j++) {
            float sum = 0;
            for (int t = 0; t < taps; t++)
                for (int d = 0; d < depth; d++)
                    sum += whole(a[off[i] + tap[t].a + d]) *
                           (float)small(2, (size_t)((t * depth + d) * n + j));
            same = same && c[(size_t)i * c_pitch + (size_t)j] == sum;
        }
    for (int i = 0; i < count; i++)
        for (size_t j = (size_t)n; j < c_pitch; j++)
            same = same && c[(size_t)i * c_pitch + j] == 0;
    OK(same, "%s gemm: %d rows of %d pixels in %d, %d apart, kernel %d, depth %d, %d columns",
       k->name, m.rows, m.inner, m.width, m.step, kernel, depth, n);
    release();
}

static size_t in_group(size_t i, size_t r, size_t pitch) {
    size_t group = (size_t)k->dot2->group;
    return i / group * pitch + r * group + i % group;
}

static void outer(int count, int rows, int n, int gap) {
    size_t group = (size_t)k->dot2->group, groups = ((size_t)count + group - 1) / group;
    size_t pitch = (size_t)rows * group + 32, d_pitch = (size_t)n + 32;
    uint16_t *v = take(groups * pitch, sizeof *v);
    uint16_t *d = take((size_t)(count + count / 7 * gap) * d_pitch, sizeof *d);
    int32_t *off = take((size_t)count, sizeof *off);
    float *w = take((size_t)(rows * n), sizeof *w), *want = take((size_t)(rows * n), sizeof *w);
    for (int i = 0; i < count; i++) {
        off[i] = (int32_t)((size_t)(i + i / 7 * gap) * d_pitch);
        for (int r = 0; r < rows; r++)
            v[in_group((size_t)i, (size_t)r, pitch)] =
                half((float)small(3, (size_t)(i * rows + r)));
        for (int j = 0; j < n; j++)
            d[off[i] + j] = half((float)small(4, (size_t)(i * n + j)));
    }
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < n; j++) {
            float sum = w[r * n + j] = (float)(r - j);
            for (int i = 0; i < count; i++)
                sum += (float)(small(3, (size_t)(i * rows + r)) * small(4, (size_t)(i * n + j)));
            want[r * n + j] = sum;
        }
    struct cpu_prefetch prefetch = some_prefetch(v, count);
    begin();
    k->dot2->outer(v, pitch, d, off, count, rows, n, w, (size_t)n, false, &prefetch);
    end();
    bool added = memcmp(w, want, (size_t)(rows * n) * sizeof *w) == 0;
    for (int i = 0; i < rows * n; i++) {
        want[i] -= (float)(i / n - i % n);
        w[i] = NAN;
    }
    begin();
    k->dot2->outer(v, pitch, d, off, count, rows, n, w, (size_t)n, true, NULL);
    end();
    bool fresh = memcmp(w, want, (size_t)(rows * n) * sizeof *w) == 0;
    OK(prefetch.row == prefetch.rows && added && fresh,
       "%s outer: %d pixels, %d rows, %d columns, gaps of %d: added and fresh", k->name, count,
       rows, n, gap);
    release();
}

/* Runs of pixels, and what is after the last. */
static void load_pairs(const int *runs, int run_count, int channels, bool norm, bool split) {
    size_t group = (size_t)k->dot2->group, total = 0, halves = split ? 2 : 1;
    for (int i = 0; i < run_count; i++)
        total += (size_t)runs[i];
    size_t groups = (total + group - 1) / group, pitch = (size_t)channels * halves * group + 32;
    uint16_t *v = take(groups * pitch, sizeof *v), *want = take(groups * pitch, sizeof *want);
    size_t step = (size_t)channels + 16;
    float *src32 = take(total * step, sizeof *src32), *scale = take((size_t)channels, 4);
    uint16_t *src16 = take(total * step, sizeof *src16);
    float *shift = take((size_t)channels, 4);
    memset(v, 0xff, groups * pitch * sizeof *v);
    memset(want, 0xff, groups * pitch * sizeof *want);
    for (int c = 0; c < channels; c++) {
        scale[c] = unit(5, (size_t)c) - 0.3f;
        shift[c] = unit(6, (size_t)c) - 0.5f;
    }
    for (size_t i = 0; i < groups * group; i++)
        for (int c = 0; c < channels; c++) {
            float x = 0;
            if (i < total) {
                size_t at = i * step + (size_t)c;
                src32[at] = 4 * (unit(7, at) - 0.5f);
                src16[at] = half(src32[at]);
                x = split ? src32[at] : whole(src16[at]);
                if (norm) {
                    x = fmaf(x, scale[c], shift[c]);
                    x = x > 0 ? x : 0;
                }
            }
            want[in_group(i, (size_t)c, pitch)] = half(x);
            if (split)
                want[in_group(i, (size_t)(channels + c), pitch)] = half(x - round_bf16(x));
        }
    size_t at = 0;
    for (int i = 0; i < run_count; at += (size_t)runs[i++]) {
        struct cpu_stored src = {split ? (void *)(src32 + at * step) : (void *)(src16 + at * step),
                                 step, !split};
        k->dot2->load_pairs(v, pitch, (int)at, &src, runs[i], channels, norm ? scale : NULL,
                            norm ? shift : NULL,
                            (norm ? CPU_RELU : 0) | (split ? CPU_SPLIT : CPU_ROUND));
    }
    OK(memcmp(v, want, groups * pitch * sizeof *v) == 0,
       "%s load_pairs: %d runs, %zu pixels, %d channels%s%s", k->name, run_count, total, channels,
       norm ? ", normalised" : "", split ? ", split" : "");
    release();
}

/* Dot products of 1152 values, as of a 3x3 kernel over 128 channels: inputs after a ReLU, weights
 * of both signs. The error is relative to the mean magnitude of the results. */
static void three_products(void) {
    enum { PIXELS = 64, DEPTH = 1152, N = 32, PITCH = 2 * DEPTH };
    float *a = take(PIXELS * DEPTH, sizeof *a), *c = take(PIXELS * N, sizeof *c);
    float *w = take(DEPTH * N, sizeof *w);
    uint16_t *ops = take((size_t)(PIXELS + k->dot2->spare_rows) * PITCH, sizeof *ops);
    uint16_t *b = take(2 * DEPTH * N, sizeof *b);
    int32_t off[PIXELS];
    for (size_t i = 0; i < PIXELS * DEPTH; i++)
        a[i] = unit(8, i) < 0.5f ? 0 : 2 * unit(9, i);
    for (size_t i = 0; i < DEPTH * N; i++)
        w[i] = 0.1f * (unit(10, i) - 0.5f);
    for (size_t i = 0; i < DEPTH; i++)
        for (size_t j = 0; j < N; j++) {
            size_t at = i / 2 * 2 * N + 2 * j + i % 2;
            float v = w[i * N + j];
            b[at] = half(v);
            b[DEPTH * N + at] = half(v - round_bf16(v));
        }
    struct cpu_stored src = {a, DEPTH, false};
    k->dot2->load(ops, PITCH, &src, PIXELS, DEPTH, NULL, NULL, CPU_SPLIT);
    for (int i = 0; i < PIXELS; i++)
        off[i] = i * PITCH;
    const struct cpu_tap taps[] = {{0, 0}, {0, DEPTH * N}, {DEPTH, 0}};
    double error[3] = {0}, size = 0;
    for (int count = 3; count >= 1; count -= 2) {
        begin();
        k->dot2->gemm(ops, off, PIXELS, taps, count, DEPTH, b, 2 * DEPTH * N, N, c, N, NULL);
        end();
        for (size_t i = 0; i < PIXELS; i++)
            for (size_t j = 0; j < N; j++) {
                double want = 0;
                for (size_t d = 0; d < DEPTH; d++)
                    want += (double)a[i * DEPTH + d] * (double)w[d * N + j];
                error[count - 1] += fabs((double)c[i * N + j] - want);
                size += count == 3 ? fabs(want) : 0;
            }
    }
    /* Each operand is kept to 2^-17 or so, and the errors of 1152 products are independent. */
    OK(error[2] / size < 5e-6,
       "%s: dot products of %d: mean error %.1e of the mean magnitude; "
       "with one product %.1e",
       k->name, DEPTH, error[2] / size, error[0] / size);
    release();
}

static void check(const struct cpu_kernels *kernels) {
    k = kernels;
    gemm((struct map){1, 1, 1, 1}, 1, 32, 32);
    gemm((struct map){1, 50, 50, 1}, 1, 96, 64);
    gemm((struct map){7, 9, 7, 1}, 3, 32, 32);
    gemm((struct map){4, 16, 14, 1}, 3, 64, 32);
    gemm((struct map){2, 30, 28, 1}, 3, 32, 96);
    gemm((struct map){1, 58, 56, 1}, 3, 32, 32);
    gemm((struct map){3, 30, 14, 2}, 3, 32, 32);
    gemm((struct map){5, 9, 4, 2}, 3, 32, 32);
    gemm((struct map){4, 5, 1, 1}, 3, 32, 32);
    gemm((struct map){2, 19, 17, 1}, 3, 32, 32);
    gemm((struct map){3, 40, 5, 3}, 1, 32, 32);
    for (int count = 1; count <= 5; count++)
        outer(count, 32, 32, 1);
    outer(31, 64, 32, 2);
    outer(33, 32, 96, 0);
    outer(160, 128, 32, 2);
    outer(545, 32, 64, 1);
    store();
    moments(false);
    moments(true);
    pack(32, 0, false);
    pack(96, 64, false);
    pack(96, 32, true);
    static const int runs[][4] = {{1}, {32}, {77}, {7, 7, 7, 7}, {28, 28}, {31, 1, 1}, {64, 3}};
    static const int counts[] = {1, 1, 1, 4, 2, 3, 2};
    for (int i = 0; i < 7; i++) {
        load_pairs(runs[i], counts[i], 32, true, false);
        load_pairs(runs[i], counts[i], 96, false, false);
        if (k->dot2->three_products)
            load_pairs(runs[i], counts[i], 64, true, true);
    }
    if (k->dot2->three_products)
        three_products();
}

int main(void) {
    char why[128];
    if (!__builtin_cpu_supports("avx512bf16"))
        SKIP_ALL("this machine's processor has no avx512bf16");
    check(&chex_cpu_kernels_avx512bf16);
    check(&chex_cpu_kernels_amx_emulated);
    if (chex_cpu_tiles_allowed(why, sizeof why))
        check(&chex_cpu_kernels_amx);
    else
        printf("# skipped: amx: %s\n", why);
    return tap_done();
}
#endif
