/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes the taps (source pixels and weights) of all outputs along one axis. The formulas are in
 * augment_index.h.
 */
#include "input/augment_private.h"

static void copy_output(const struct chex_augment_taps *taps, int from, int to) {
    taps->first[to] = taps->first[from];
    for (int t = 0; t < taps->taps; t++) {
        int16_t *pair = taps->weights + (size_t)t / 2 * taps->pair_stride + t % 2;
        pair[(size_t)to * taps->output_stride] = pair[(size_t)from * taps->output_stride];
    }
}

void chex_augment_make_taps(int length, int size, bool antialias, bool flip, int bits,
                            struct chex_augment_taps *taps) {
    const bool many = antialias && length > size;
    for (int i = 0; i < size; i++) {
        int at = flip ? size - 1 - i : i;
        int16_t *weights = taps->weights + (size_t)at * taps->output_stride;
        if (many) {
            chex_augment_many_taps(length, size, bits, i, taps->taps, taps->pair_stride, 1,
                                   &taps->first[at], weights);
        } else {
            const int share = chex_augment_two_taps(length, size, bits, i, &taps->first[at]);
            weights[0] = (int16_t)((1 << bits) - share);
            weights[1] = (int16_t)share;
        }
    }
    for (int i = size; i < taps->outputs; i++)
        copy_output(taps, size - 1, i);
}
