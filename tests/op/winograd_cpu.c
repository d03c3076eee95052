/* SPDX-License-Identifier: Apache-2.0
 *
 * The transforms of cpu_winograd.c in every variant that this machine runs: against the matrices
 * they stand for in double, with strides and without; as a convolution, whose error is bounded by
 * that of plain sums; and its two derivatives against those of the plain form. Whole operations on
 * odd maps are in conv_cpu.c.
 */
#include <math.h>

#include "base/cpu_features.h"
#include "base/rng.h"
#include "engine/cpu/cpu_engine.h"
#include "tap.h"

enum { LANES = 64, SIDE = 6, SQUARE = 4, KERNEL = 3, DEPTH = 128, SQUARES = 24 };

static const struct cpu_kernels *k;

static float unit(uint64_t item, size_t i) {
    return chex_rng_unit(chex_rng(7, CHEX_RNG_TEST, item, (uint32_t)i).v[0]);
}

/* The polynomials at the points 0, a, -a, b, -b and infinity, with a * a = 1/2 and b * b = 2. */
struct matrix {
    int rows, columns;
    double at[SIDE][SIDE];
};

static struct matrix turned(struct matrix m) {
    struct matrix t = {m.columns, m.rows, {{0}}};
    for (int i = 0; i < m.rows; i++)
        for (int j = 0; j < m.columns; j++)
            t.at[j][i] = m.at[i][j];
    return t;
}

/* A: row p holds the powers of point p. */
static struct matrix output_back(void) {
    const double points[] = {0, sqrt(0.5), -sqrt(0.5), sqrt(2), -sqrt(2)};
    struct matrix m = {SIDE, SQUARE, {{0}}};
    for (int p = 0; p < 5; p++)
        for (int i = 0; i < SQUARE; i++)
            m.at[p][i] = pow(points[p], i);
    m.at[5][SQUARE - 1] = 1;
    return m;
}

/* G: the powers of a point over the product of its distances from the others. */
static struct matrix weight(void) {
    const double points[] = {0, sqrt(0.5), -sqrt(0.5), sqrt(2), -sqrt(2)};
    struct matrix m = {SIDE, KERNEL, {{0}}};
    for (int p = 0; p < 5; p++) {
        double distances = 1;
        for (int q = 0; q < 5; q++)
            distances *= q == p ? 1 : points[p] - points[q];
        for (int i = 0; i < KERNEL; i++)
            m.at[p][i] = pow(points[p], i) / distances;
    }
    m.at[5][KERNEL - 1] = 1;
    return m;
}

/* B': row p holds the coefficients of the product of x - q over the points q other than p; the last
 * row that over all of them. */
static struct matrix input(void) {
    const double points[] = {0, sqrt(0.5), -sqrt(0.5), sqrt(2), -sqrt(2)};
    struct matrix m = {SIDE, SIDE, {{0}}};
    for (int p = 0; p < SIDE; p++) {
        m.at[p][0] = 1;
        for (int q = 0, degree = 0; q < 5; q++) {
            if (q == p)
                continue;
            degree++;
            for (int i = degree; i >= 0; i--)
                m.at[p][i] = (i > 0 ? m.at[p][i - 1] : 0) - points[q] * m.at[p][i];
        }
    }
    return m;
}

/* m x m', in double, of lane c. */
static void expected(struct matrix m, const float *x, size_t row, size_t column, size_t c,
                     double out[SIDE][SIDE]) {
    double half[SIDE][SIDE] = {{0}};
    for (int i = 0; i < m.rows; i++)
        for (int j = 0; j < m.columns; j++)
            for (int l = 0; l < m.columns; l++)
                half[i][j] += m.at[i][l] * (double)x[(size_t)l * row + (size_t)j * column + c];
    for (int i = 0; i < m.rows; i++)
        for (int j = 0; j < m.rows; j++) {
            out[i][j] = 0;
            for (int l = 0; l < m.columns; l++)
                out[i][j] += half[i][l] * m.at[j][l];
        }
}

static void transform(enum cpu_winograd which, struct matrix m, const char *name) {
    enum { GAP = 16, ROW = SIDE * (LANES + GAP) + GAP };
    static float x[SIDE * ROW], y[SIDE * ROW];
    double worst = 0, size = 0, out[SIDE][SIDE];
    bool kept = true;
    for (size_t i = 0; i < SIDE * ROW; i++) {
        x[i] = unit(1, i) - 0.5f;
        y[i] = 7;
    }
    k->winograd[which]((struct cpu_square){y, ROW, LANES + GAP},
                       (struct cpu_square){x, ROW, LANES + GAP}, LANES);
    for (size_t c = 0; c < LANES; c++) {
        expected(m, x, ROW, LANES + GAP, c, out);
        for (int i = 0; i < m.rows; i++)
            for (int j = 0; j < m.rows; j++) {
                double d =
                    fabs((double)y[(size_t)i * ROW + (size_t)j * (LANES + GAP) + c] - out[i][j]);
                worst = d > worst ? d : worst;
                size = fabs(out[i][j]) > size ? fabs(out[i][j]) : size;
            }
    }
    for (size_t i = 0; i < SIDE * ROW; i++) {
        size_t row = i / ROW, column = i % ROW / (LANES + GAP), lane = i % ROW % (LANES + GAP);
        bool written = row < (size_t)m.rows && column < (size_t)m.rows && lane < LANES;
        kept = kept && (written || y[i] == 7);
    }
    /* two passes of at most six roundings of 6e-8 each, of terms as large as the largest result */
    OK(worst < 12 * 6e-8 * size && kept, "%s %s: within %.1e of the matrices, nothing else written",
       k->name, name, worst / size);
}

/* Inputs after a ReLU, kernels of both signs, their sums over DEPTH channels in fp32; errors
 * relative to the mean magnitude of the results. */
static float d[SQUARES][SIDE * SIDE][DEPTH], g[KERNEL * KERNEL][DEPTH];
static float v[SIDE * SIDE][DEPTH], u[SIDE * SIDE][DEPTH];

static void convolution(void) {
    static float m[SIDE * SIDE][CPU_CHANNELS], y[SQUARE * SQUARE][CPU_CHANNELS];
    double error = 0, plain_error = 0, size = 0;
    for (size_t i = 0; i < sizeof d / sizeof(float); i++)
        ((float *)d)[i] = unit(2, i) < 0.5f ? 0 : 2 * unit(3, i);
    for (size_t i = 0; i < sizeof g / sizeof(float); i++)
        ((float *)g)[i] = 0.1f * (unit(4, i) - 0.5f);
    k->winograd[CPU_WINOGRAD_WEIGHT]((struct cpu_square){u[0], SIDE * DEPTH, DEPTH},
                                     (struct cpu_square){g[0], KERNEL * DEPTH, DEPTH}, DEPTH);
    for (size_t s = 0; s < SQUARES; s++) {
        k->winograd[CPU_WINOGRAD_INPUT]((struct cpu_square){v[0], SIDE * DEPTH, DEPTH},
                                        (struct cpu_square){d[s][0], SIDE * DEPTH, DEPTH}, DEPTH);
        for (size_t p = 0; p < SIDE * SIDE; p++) {
            float sum = 0;
            for (size_t c = 0; c < DEPTH; c++)
                sum += v[p][c] * u[p][c];
            m[p][0] = sum;
        }
        k->winograd[CPU_WINOGRAD_OUTPUT](
            (struct cpu_square){y[0], SQUARE * CPU_CHANNELS, CPU_CHANNELS},
            (struct cpu_square){m[0], SIDE * CPU_CHANNELS, CPU_CHANNELS}, CPU_CHANNELS);
        for (size_t p = 0; p < SQUARE * SQUARE; p++) {
            double want = 0;
            float plain = 0;
            for (size_t t = 0; t < KERNEL * KERNEL; t++)
                for (size_t c = 0; c < DEPTH; c++) {
                    size_t at = (p / SQUARE + t / KERNEL) * SIDE + p % SQUARE + t % KERNEL;
                    want += (double)d[s][at][c] * (double)g[t][c];
                    plain += d[s][at][c] * g[t][c];
                }
            error += fabs((double)y[p][0] - want);
            plain_error += fabs((double)plain - want);
            size += fabs(want);
        }
    }
    /* 2 to 2.5 times that of plain sums is what these points give, 3 to 4 what 0, +-1, +-2 would.
     */
    OK(error < 3 * plain_error && error / size < 5e-6,
       "%s: convolutions over %d channels: mean error %.1e of the mean magnitude; of plain sums "
       "%.1e",
       k->name, DEPTH, error / size, plain_error / size);
}

static double product(const float *a, const float *b, size_t count) {
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

/* <dy, conv(d, g)> = <dg, g> for the weight gradient dg = G' [(A dy A') * (B' d B)] G. */
static void weight_gradient(void) {
    static float dy[SQUARE * SQUARE][DEPTH], spread[SIDE * SIDE][DEPTH], dg[KERNEL * KERNEL][DEPTH];
    double want = 0;
    for (size_t i = 0; i < sizeof dy / sizeof(float); i++)
        ((float *)dy)[i] = unit(5, i) - 0.5f;
    k->winograd[CPU_WINOGRAD_OUTPUT_BACK]((struct cpu_square){spread[0], SIDE * DEPTH, DEPTH},
                                          (struct cpu_square){dy[0], SQUARE * DEPTH, DEPTH}, DEPTH);
    k->winograd[CPU_WINOGRAD_INPUT]((struct cpu_square){v[0], SIDE * DEPTH, DEPTH},
                                    (struct cpu_square){d[0][0], SIDE * DEPTH, DEPTH}, DEPTH);
    for (size_t p = 0; p < SIDE * SIDE; p++)
        for (size_t c = 0; c < DEPTH; c++)
            u[p][c] = spread[p][c] * v[p][c];
    k->winograd[CPU_WINOGRAD_WEIGHT_BACK]((struct cpu_square){dg[0], KERNEL * DEPTH, DEPTH},
                                          (struct cpu_square){u[0], SIDE * DEPTH, DEPTH}, DEPTH);
    for (size_t p = 0; p < SQUARE * SQUARE; p++)
        for (size_t t = 0; t < KERNEL * KERNEL; t++)
            for (size_t c = 0; c < DEPTH; c++)
                want += (double)dy[p][c] * (double)g[t][c] *
                        (double)d[0][(p / SQUARE + t / KERNEL) * SIDE + p % SQUARE + t % KERNEL][c];
    double got = product(dg[0], g[0], sizeof dg / sizeof(float));
    double size = sqrt(product(dg[0], dg[0], sizeof dg / sizeof(float)) *
                       product(g[0], g[0], sizeof g / sizeof(float)));
    OK(fabs(got - want) < 1e-6 * size, "%s: the weight gradient is the derivative: %.1e off",
       k->name, fabs(got - want) / size);
}

static void check(const struct cpu_kernels *kernels) {
    k = kernels;
    transform(CPU_WINOGRAD_INPUT, input(), "input");
    transform(CPU_WINOGRAD_OUTPUT, turned(output_back()), "output");
    transform(CPU_WINOGRAD_OUTPUT_BACK, output_back(), "output_back");
    transform(CPU_WINOGRAD_WEIGHT, weight(), "weight");
    transform(CPU_WINOGRAD_WEIGHT_BACK, turned(weight()), "weight_back");
    convolution();
    weight_gradient();
}

int main(void) {
    check(&chex_cpu_kernels_generic);
#if defined(__x86_64__)
    if (chex_cpu_has(CHEX_ISA_AVX2))
        check(&chex_cpu_kernels_avx2);
    if (chex_cpu_has(CHEX_ISA_AVX512))
        check(&chex_cpu_kernels_avx512);
#endif
    return tap_done();
}
