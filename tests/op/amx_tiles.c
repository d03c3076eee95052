/* SPDX-License-Identifier: Apache-2.0
 *
 * Tiles on hand-made ones: which pair meets which, where sums are rounded, and denormals. First
 * their emulation; then, where the processor and the system have them, the instructions, which must
 * give the emulation's bits, and keep a tile's contents while other threads and signal handlers use
 * tiles too.
 */
#define CHEX_AMX_EMULATED
#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include "base/cpu_features.h"
#include "base/rng.h"
#include "engine/cpu/cpu_engine.h"
#include "op/tiles/tiles.h"
#include "tap.h"

enum { ROWS = AMX_ROWS, COLUMNS = AMX_ROW_BYTES / 4 };

static const struct tile_ops emulated = {"emulated", tiles_multiply, tiles_copy, tiles_zero};
static const struct tile_ops *ops = &emulated;

/* bf16 of a value that it holds exactly. */
static uint16_t half(float v) {
    uint32_t u;
    memcpy(&u, &v, sizeof u);
    BAIL_UNLESS((u & 0xffff) == 0, "%g is no bf16", (double)v);
    return (uint16_t)(u >> 16);
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
    ops->multiply(&t);
    OK(memcmp(t.c, want, sizeof want) == 0, "%s: pairs of integers: c += a * b", ops->name);
}

static float one_sum(const float *first, const float *second, float c) {
    struct tiles t = {.c[3][5] = c};
    for (int k = 0; k < ROWS; k++) {
        t.a[3][2 * k] = half(first[k]);
        t.a[3][2 * k + 1] = half(second[k]);
        t.b[k][10] = t.b[k][11] = half(1);
    }
    ops->multiply(&t);
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
    ops->copy(&rows[0][3], sizeof rows[0], out, sizeof out[0], NULL);
    bool same = true, outside = true;
    for (int i = 0; i < ROWS; i++) {
        same = same && memcmp(out[i], &rows[i][3], AMX_ROW_BYTES) == 0;
        outside = outside && out[i][32] == 0xffff && out[i][35] == 0xffff;
    }
    OK(same && outside, "rows at any distance and address, 64 bytes of each");
    ops->copy(rows, 0, out, sizeof out[0], NULL);
    OK(memcmp(out[15], rows[0], AMX_ROW_BYTES) == 0, "a distance of 0 repeats a row");
    ops->zero(out, sizeof out[0]);
    OK(out[0][0] == 0 && out[15][31] == 0, "zero");
}

static void let_others(void) {
    for (int i = 0; i < 20; i++)
        sched_yield();
}

/* *arg: of the thread's own numbers the first; then how often it found others in its tile. */
static void *keep(void *arg) {
    uint32_t rows[ROWS][COLUMNS], out[ROWS][COLUMNS], *wrong = arg, own = *wrong;
    *wrong = 0;
    for (uint32_t turn = 0; turn < 50; turn++) {
        for (uint32_t i = 0; i < ROWS * COLUMNS; i++)
            rows[i / COLUMNS][i % COLUMNS] = own + turn * 1000 + i;
        ops->copy(rows, sizeof rows[0], out, sizeof out[0], let_others);
        *wrong += memcmp(rows, out, sizeof rows) != 0;
    }
    return NULL;
}

static void threads(void) {
    uint32_t wrong[3] = {1u << 24, 2u << 24, 3u << 24};
    pthread_t thread[3];
    for (int i = 0; i < 3; i++)
        BAIL_UNLESS(pthread_create(&thread[i], NULL, keep, &wrong[i]) == 0, "no thread");
    for (int i = 0; i < 3; i++)
        pthread_join(thread[i], NULL);
    OK(wrong[0] + wrong[1] + wrong[2] == 0, "%s: three threads in turns keep their tiles",
       ops->name);
}

static void checks(void) {
    pairs_meet();
    roundings();
    denormals();
    steps();
    threads();
}

#if defined(__x86_64__)
static volatile sig_atomic_t handled;

static void handler(int signal) {
    static struct tiles t;
    (void)signal;
    ops->multiply(&t);
    handled++;
}

static void interrupt(void) { raise(SIGUSR1); }

static void signals(void) {
    struct sigaction action = {.sa_handler = handler};
    uint32_t rows[ROWS][COLUMNS], out[ROWS][COLUMNS];
    BAIL_UNLESS(sigaction(SIGUSR1, &action, NULL) == 0, "sigaction");
    for (uint32_t i = 0; i < ROWS * COLUMNS; i++)
        rows[i / COLUMNS][i % COLUMNS] = i * 0x01010101;
    ops->copy(rows, sizeof rows[0], out, sizeof out[0], interrupt);
    OK(handled == 1 && memcmp(rows, out, sizeof rows) == 0,
       "%s: a signal handler with tiles of its own leaves those of the thread alone", ops->name);
}

/* A thread that is there before tiles are asked for has them too. */
static void *wait_and_keep(void *arg) {
    uint32_t wrong = 5u << 24;
    pthread_barrier_wait(arg);
    keep(&wrong);
    return (void *)(uintptr_t)wrong;
}

/* The exponents' bits lie in [low, high]; 0: denormals and zeros. */
static uint16_t any_bf16(uint64_t item, uint32_t i, uint32_t low, uint32_t high) {
    const struct chex_rng4 w = chex_rng(1, CHEX_RNG_TEST, item, i);
    uint32_t exponent = low + chex_rng_below(w.v[0], high - low + 1);
    return (uint16_t)((w.v[1] & 0x807f) | exponent << 7);
}

/* Any bits that are numbers: with exponents far apart nearly every sum rounds. */
static void bits_of_emulation(uint32_t low, uint32_t high, uint32_t low_c, uint32_t high_c) {
    int wrong = 0, zeros = 0;
    for (uint64_t turn = 0; turn < 20; turn++) {
        struct tiles real, want;
        for (uint32_t i = 0; i < ROWS * COLUMNS * 2; i++) {
            real.a[i / (2 * COLUMNS)][i % (2 * COLUMNS)] = any_bf16(3 * turn, i, low, high);
            real.b[i / (2 * COLUMNS)][i % (2 * COLUMNS)] = any_bf16(3 * turn + 1, i, low, high);
        }
        for (uint32_t i = 0; i < ROWS * COLUMNS; i++) {
            uint32_t c = any_bf16(3 * turn + 2, i, low_c, high_c);
            c = c << 16 | i * 251;
            memcpy(&real.c[i / COLUMNS][i % COLUMNS], &c, sizeof c);
        }
        want = real;
        tile_ops_real.multiply(&real);
        emulated.multiply(&want);
        wrong += memcmp(&real, &want, sizeof real) != 0;
        for (int i = 0; i < ROWS * COLUMNS; i++)
            zeros += real.c[i / COLUMNS][i % COLUMNS] == 0;
    }
    OK(wrong == 0, "amx: the bits of the emulation, exponents %d to %d and %d to %d (%d zeros)",
       (int)low - 127, (int)high - 127, (int)low_c - 127, (int)high_c - 127, zeros);
}

static void real(void) {
    char why[128];
    pthread_t before;
    pthread_barrier_t asked;
    void *wrong = NULL;
    ops = &tile_ops_real;
    pthread_barrier_init(&asked, NULL, 2);
    BAIL_UNLESS(!chex_cpu_has(CHEX_ISA_AMX) ||
                    pthread_create(&before, NULL, wait_and_keep, &asked) == 0,
                "no thread");
    if (!chex_cpu_tiles_allowed(why, sizeof why)) {
        printf("# skipped: the instructions themselves: %s\n", why);
        return;
    }
    pthread_barrier_wait(&asked);
    pthread_join(before, &wrong);
    OK(!wrong, "%s: a thread from before the question has tiles", ops->name);
    checks();
    signals();
    bits_of_emulation(123, 131, 123, 131);
    bits_of_emulation(97, 157, 97, 157);
    bits_of_emulation(0, 187, 0, 187);
    bits_of_emulation(40, 65, 0, 3); /* nearly all sums are about the least normal number */
}
#endif

int main(void) {
    checks();
#if defined(__x86_64__)
    real();
#endif
    return tap_done();
}
