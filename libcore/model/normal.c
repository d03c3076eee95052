/* SPDX-License-Identifier: Apache-2.0
 *
 * The Box-Muller transform (1958): sqrt(-2 log u) times the cosine and the sine of 2 pi v. The
 * logarithm, cosine and sine of libm depend on its version and on the processor's FMA, and are
 * calls for single values. Here they are series of a dozen terms, in loops without a branch that
 * compilers vectorise. Their relative error is below 1e-15; a value is rounded to fp32.
 */
#include "model/normal.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"

enum { BLOCK = 256 }; /* pairs at a time: all arrays stay in the first-level cache */

/* log(u) for u = n * 2^-32 with n in [1, 2^32]. u = 2^e m, m in [sqrt(1/2), sqrt(2)); log(m) = 2
 * atanh(s), s = (m - 1) / (m + 1), so |s| < 0.172. */
static inline double log_of(double n) {
    uint64_t bits, half = 0x3fe6a09e667f3bcdu; /* of sqrt(1/2) */
    memcpy(&bits, &n, sizeof bits);
    const uint64_t up = bits - half;
    const double e = (double)(int32_t)(up >> 52) - 32.0;
    bits -= up & 0xfff0000000000000u;
    double m, tail = 0;
    memcpy(&m, &bits, sizeof m);
    const double s = (m - 1) / (m + 1), s2 = s * s;
    for (int k = 21; k >= 3; k -= 2)
        tail = (tail + 1.0 / k) * s2;
    return e * 0.693147180559945309417 + 2 * (s + s * tail);
}

/* Taylor series of sin(a) and cos(a) for |a| <= pi / 4. */
static inline double sin_of(double a) {
    const double a2 = a * a;
    double sum = 1;
    for (int k = 16; k >= 2; k -= 2)
        sum = 1 - sum * a2 * (1.0 / (k * (k + 1)));
    return sum * a;
}
static inline double cos_of(double a) {
    const double a2 = a * a;
    double sum = 1;
    for (int k = 17; k >= 1; k -= 2)
        sum = 1 - sum * a2 * (1.0 / (k * (k + 1)));
    return sum;
}

/* `turn` counts in 2^-32 of a circle. The nearest quarter is taken off, so that the series
 * converge. */
static inline void turned(uint32_t turn, double *cos_out, double *sin_out) {
    const uint32_t quarter = (turn + 0x20000000u) >> 30;
    const double a = (double)(int32_t)(turn - (quarter << 30)) * (6.28318530717958647693 * 0x1p-32);
    const double c = cos_of(a), s = sin_of(a);
    const double x = quarter & 1 ? s : c, y = quarter & 1 ? c : s;
    *cos_out = (quarter + 1) & 2 ? -x : x;
    *sin_out = quarter & 2 ? -y : y;
}

void chex_normal_fill(uint64_t seed, uint64_t item, float std, float *w, size_t from, size_t to) {
    for (; from < to; from += 2 * BLOCK) {
        const size_t count = to - from < 2 * BLOCK ? to - from : 2 * BLOCK, pairs = (count + 1) / 2;
        uint32_t turn[BLOCK];
        double n[BLOCK];
        float value[2 * BLOCK] = {0};
        for (size_t i = 0; i < pairs; i++) {
            const struct chex_rng4 r =
                chex_rng(seed, CHEX_RNG_INIT, item, (uint32_t)(from / 2 + i));
            n[i] = (double)r.v[0] + 1.0;
            turn[i] = r.v[1];
        }
        for (size_t i = 0; i < pairs; i++) {
            const double radius = sqrt(-2.0 * log_of(n[i]));
            double c, s;
            turned(turn[i], &c, &s);
            value[2 * i] = std * (float)(radius * c);
            value[2 * i + 1] = std * (float)(radius * s);
        }
        memcpy(w + from, value, count * sizeof *w);
    }
}
