/* SPDX-License-Identifier: Apache-2.0
 *
 * Binary cross-entropy with logits: loss(z, t) = -t log s(z) - (1 - t) log(1 - s(z)), s the
 * logistic function. It is computed as max(z, 0) - z t + log(1 + exp(-|z|)), which neither
 * overflows nor cancels. Its derivative is s(z) - t.
 */
#include <math.h>

#include "engine/ref/ref_ops.h"

static double logistic(double z) {
    double e = exp(-fabs(z));
    return z < 0 ? e / (1 + e) : 1 / (1 + e);
}

double chex_ref_bce(const float *logits, const int8_t *labels, size_t count, float *dlogits) {
    double sum = 0;
    for (size_t i = 0; i < count; i++) {
        double z = (double)logits[i], t = labels[i] > 0 ? 1 : 0, d = 0;
        if (labels[i] >= 0) {
            sum += (z > 0 ? z : 0) - z * t + log1p(exp(-fabs(z)));
            d = (logistic(z) - t) / (double)count;
        }
        if (dlogits)
            dlogits[i] = (float)d;
    }
    return sum / (double)count;
}
