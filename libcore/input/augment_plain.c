/* SPDX-License-Identifier: Apache-2.0
 *
 * The reference kernels: plain loops that define the result. All other kernels must give the same
 * bits; unit-augment compares them.
 */
#include "input/augment_private.h"

static bool always(void) { return true; }

static void vertical_pass(const uint8_t *from, size_t pitch, const int16_t *weights, int taps,
                          int width, int16_t *to) {
    for (int x = 0; x < width; x++) {
        int sum = -32768;
        for (int t = 0; t < taps; t++)
            sum += from[(size_t)t * pitch + (size_t)x] * weights[t];
        to[x] = (int16_t)sum;
    }
}

static float colour_of(int32_t sum, const struct chex_augment_colour *c) {
    float value = (float)sum * c->k + c->b;
    value = value > 0 ? value : 0;
    return value < 1 ? value : 1;
}

static void horizontal_pass(const struct chex_augment_horizontal *p) {
    const struct chex_augment_taps *taps = &p->columns->taps;
    for (int y = 0; y < p->rows; y++)
        for (int x = 0; x < p->size; x++) {
            const int16_t *row = p->tile + (size_t)y * p->stride + taps->first[x];
            int32_t sum = 1 << 29;
            for (int t = 0; t < taps->taps; t++)
                sum += row[t] *
                       taps->weights[(size_t)t / 2 * taps->pair_stride + 2 * (size_t)x + t % 2];
            p->out[(size_t)y * (size_t)p->size + (size_t)x] = colour_of(sum, &p->colour);
        }
}

static void rotate(const struct chex_augment_rotate *t, int count, uint8_t *to) {
    for (int i = 0; i < count; i++) {
        int32_t x = chex_augment_within(t->x + i * t->dx, t->max);
        int32_t y = chex_augment_within(t->y + i * t->dy, t->max);
        const uint8_t *at = t->plane + (size_t)(y >> 16) * (size_t)t->pitch + (x >> 16);
        to[i] = chex_augment_between(y, x, at[0], at[1], at[t->pitch], at[t->pitch + 1]);
    }
}

const struct chex_augment_kernels chex_augment_plain = {.name = "plain",
                                                        .supported = always,
                                                        .vertical_pass = vertical_pass,
                                                        .horizontal_pass = horizontal_pass,
                                                        .rotate = rotate};
