/* SPDX-License-Identifier: Apache-2.0
 *
 * The emulation of tiles on hand-made ones: which pair meets which, where sums are rounded, and
 * denormals.
 */
#define CHEX_AMX_EMULATED
#include "engine/cpu/amx.h"
#include "tap.h"

enum { ROWS = AMX_ROWS, COLUMNS = AMX_ROW_BYTES / 4 };

/* bf16 of a value that it holds exactly. */
static uint16_t half(float v) {
    uint32_t u;
    memcpy(&u, &v, sizeof u);
    BAIL_UNLESS((u & 0xffff) == 0, "%g is no bf16", (double)v);
    return (uint16_t)(u >> 16);
}

struct tiles {
    uint16_t a[ROWS][2 * COLUMNS], b[ROWS][2 * COLUMNS];
    float c[ROWS][COLUMNS];
};

static void multiply(struct tiles *t) {
    AMX_CONFIGURE();
    AMX_LOAD(4, t->a, sizeof t->a[0]);
    AMX_LOAD(6, t->b, sizeof t->b[0]);
    AMX_LOAD(0, t->c, sizeof t->c[0]);
    AMX_DOT(0, 4, 6);
    AMX_STORE(0, t->c, sizeof t->c[0]);
    AMX_RELEASE();
}

/* Small integers: every sum is exact, so any order gives this. */
static void pairs_meet(void) {
    struct tiles t = {0};
    float want[ROWS][COLUMNS];
    for (int m = 0; m < ROWS; m++)
        for (int n = 0; n < 2 * COLUMNS; n++) {
            t.a[m][n] = half((float)((m * 7 + n * 3) % 11 - 5));
            t.b[m][n] = half((float)((m * 5 + n * 13) % 9 - 4));
        }
    for (int m = 0; m < ROWS; m++)
        for (int n = 0; n < COLUMNS; n++) {
            t.c[m][n] = want[m][n] = (float)(m - n);
            for (int k = 0; k < 2 * ROWS; k++)
                want[m][n] += (float)(((m * 7 + k * 3) % 11 - 5) *
                                      ((k / 2 * 5 + (2 * n + k % 2) * 13) % 9 - 4));
        }
    multiply(&t);
    OK(memcmp(t.c, want, sizeof want) == 0, "pairs of integers: c += a * b");
}

static float one_sum(const float *first, const float *second, float c) {
    struct tiles t = {.c[3][5] = c};
    for (int k = 0; k < ROWS; k++) {
        t.a[3][2 * k] = half(first[k]);
        t.a[3][2 * k + 1] = half(second[k]);
        t.b[k][10] = t.b[k][11] = half(1);
    }
    multiply(&t);
    return t.c[3][5];
}

static void roundings(void) {
    const float big = 16777216; /* 2^24: the next fp32 is 2 more */
    const float none[ROWS] = {0}, ones[ROWS] = {1, 1, 1, 1};
    OK(one_sum(ones, none, big) == big + 4, "products are summed before the accumulator is met");
    const float huge_first[ROWS] = {big, 1, 1, 1, 1};
    OK(one_sum(huge_first, none, 0) == big, "each product is rounded into its sum, to even");
    const float huge[ROWS] = {big}, small[ROWS] = {0, 1, 1, 1, 1};
    OK(one_sum(huge, small, 0) == big + 4, "the first and the second of pairs have their own sums");
    OK(one_sum((float[ROWS]){big, 3}, none, 0) == big + 4, "to nearest even: 3 becomes 4");
    OK(isnan(one_sum((float[ROWS]){INFINITY, -INFINITY}, none, 0)), "infinities that meet");
}

static void denormals(void) {
    const float least = 0x1p-126f, none[ROWS] = {0};
    OK(one_sum((float[ROWS]){0x1p-127f}, none, 0) == 0, "a denormal operand is zero");
    OK(one_sum((float[ROWS]){least}, none, 0) == least, "the least normal is not");
    OK(one_sum((float[ROWS]){1.5f * least, -least}, none, 0) == 0, "a denormal sum is zero");
    OK(one_sum(none, none, 0x1p-130f) == 0, "a denormal accumulator is zero");
    float sum = one_sum((float[ROWS]){-1.5f * least, least}, (float[ROWS]){-least, least}, 0);
    OK(sum == 0, "and so is one of either sign");
}

static void steps(void) {
    uint16_t rows[ROWS][40] = {0}, out[ROWS][36];
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < 40; j++)
            rows[i][j] = (uint16_t)(i * 40 + j);
    memset(out, 0xff, sizeof out);
    AMX_CONFIGURE();
    AMX_LOAD(5, &rows[0][3], sizeof rows[0]);
    AMX_STORE(5, out, sizeof out[0]);
    bool same = true, outside = true;
    for (int i = 0; i < ROWS; i++) {
        same = same && memcmp(out[i], &rows[i][3], AMX_ROW_BYTES) == 0;
        outside = outside && out[i][32] == 0xffff && out[i][35] == 0xffff;
    }
    OK(same && outside, "rows at any distance and address, 64 bytes of each");
    AMX_LOAD(5, rows, 0);
    AMX_STORE(5, out, sizeof out[0]);
    OK(memcmp(out[15], rows[0], AMX_ROW_BYTES) == 0, "a distance of 0 repeats a row");
    AMX_ZERO(5);
    AMX_STORE(5, out, sizeof out[0]);
    OK(out[0][0] == 0 && out[15][31] == 0, "zero");
    AMX_RELEASE();
}

int main(void) {
    pairs_meet();
    roundings();
    denormals();
    steps();
    return tap_done();
}
