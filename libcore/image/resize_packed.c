/* SPDX-License-Identifier: Apache-2.0
 *
 * The tables of the vector kernels, and the loop over an image (resize_private.h).
 *
 * The two passes are interleaved. Before an output row is computed, the horizontal pass handles the
 * input rows that it needs and that are not yet done. The results are in a ring of groups of four
 * rows. The ring has as many groups as one output row needs, so it stays in the cache.
 */
#include <string.h>

#include "image/resize_private.h"

enum { COLUMNS = 64 }; /* the width of the ring is a multiple of this */

static int round_up(int n, int unit) { return (n + unit - 1) / unit * unit; }

/* Returns the first input pixel of the window of output pixel i. */
static int window_start(const struct chex_resize_axis *a, int i, int window_lanes) {
    return a->first[i - i % window_lanes];
}

/* Returns the largest number of bytes from the start of a window to the end of the first group of
 * its last pixel. */
static int widest_window(const struct chex_resize_axis *a, int window_lanes) {
    int widest = 0;
    for (int i = 0; i < a->out; i++) {
        int span = a->first[i] - window_start(a, i, window_lanes) + CHEX_RESIZE_TAPS;
        widest = span > widest ? span : widest;
    }
    return widest;
}

/* Returns the first word of group g of output pixel i in the table of weights. */
static uint32_t *across_word(const struct chex_resize_across *t, int lanes, int i, int g) {
    int block = t->windows ? i / lanes : i, lane = t->windows ? i % lanes : g % lanes;
    int vector = t->windows ? g : g / lanes;
    size_t at = (size_t)block * (size_t)t->vectors + (size_t)vector;
    return t->weights + at * CHEX_RESIZE_WORDS * (size_t)lanes + lane;
}

static void fill_across_weights(struct chex_resize_across *t, const struct chex_resize_kernel *k,
                                const struct chex_resize_axis *a) {
    for (int i = 0; i < a->out; i++)
        for (int g = 0; g * CHEX_RESIZE_TAPS < a->count[i]; g++) {
            int32_t taps[CHEX_RESIZE_TAPS] = {0};
            uint32_t words[CHEX_RESIZE_WORDS], *w = across_word(t, k->lanes, i, g);
            for (int j = 0; j < CHEX_RESIZE_TAPS; j++) {
                int tap = g * CHEX_RESIZE_TAPS + j;
                taps[j] = tap < a->count[i] ? a->weights[(ptrdiff_t)i * a->pitch + tap] : 0;
            }
            k->encode(taps, words);
            for (int j = 0; j < CHEX_RESIZE_WORDS; j++)
                w[j * k->lanes] = words[j];
        }
}

static void fill_picks(struct chex_resize_across *t, const struct chex_resize_kernel *k,
                       const struct chex_resize_axis *a) {
    for (int i = 0; i < t->blocks * k->lanes; i++) {
        int last = i < a->out ? i : a->out - 1; // lanes without a pixel have weight 0
        int start = window_start(a, last, k->window_lanes);
        if (i % k->window_lanes == 0)
            t->at[i / k->window_lanes] = start;
        for (int j = 0; j < CHEX_RESIZE_TAPS; j++)
            t->pick[i * CHEX_RESIZE_TAPS + j] = (uint8_t)(i < a->out ? a->first[i] - start + j : 0);
    }
}

static bool pack_across(struct chex_resize_across *t, const struct chex_resize_kernel *k,
                        const struct chex_resize_axis *a) {
    int groups = round_up(a->max_taps, CHEX_RESIZE_TAPS) / CHEX_RESIZE_TAPS;
    int windows = round_up(widest_window(a, k->window_lanes), k->window_bytes) / k->window_bytes;
    t->out = a->out;
    t->windows = windows <= k->max_windows ? windows : 0;
    t->blocks = t->windows ? round_up(a->out, k->lanes) / k->lanes : a->out;
    t->vectors = t->windows ? groups : round_up(groups, k->lanes) / k->lanes;
    size_t lanes = (size_t)k->lanes, blocks = (size_t)t->blocks;
    size_t weights = blocks * (size_t)t->vectors * CHEX_RESIZE_WORDS * lanes;
    if (!chex_scratch_fit(&t->at_scratch, blocks * lanes, sizeof *t->at) ||
        !chex_scratch_fit(&t->pick_scratch, blocks * lanes * CHEX_RESIZE_TAPS, 1) ||
        !chex_scratch_fit(&t->weight_scratch, weights, sizeof *t->weights))
        return false;
    t->at = t->at_scratch.at;
    t->pick = t->pick_scratch.at;
    t->weights = t->weight_scratch.at;
    memset(t->weights, 0, weights * sizeof *t->weights);
    fill_across_weights(t, k, a);
    if (t->windows)
        fill_picks(t, k, a);
    else
        memcpy(t->at, a->first, (size_t)a->out * sizeof *t->at);
    int starts = t->windows ? t->blocks * k->lanes / k->window_lanes : t->blocks;
    t->reach = t->at[starts - 1] +
               (t->windows ? (groups - 1) * CHEX_RESIZE_TAPS + t->windows * k->window_bytes
                           : t->vectors * k->lanes * CHEX_RESIZE_TAPS);
    return true;
}

static void fill_down(struct chex_resize_down *t, const struct chex_resize_kernel *k,
                      const struct chex_resize_axis *a) {
    for (int i = 0; i < a->out; i++)
        for (int g = 0; g < t->count[i]; g++) {
            int32_t taps[CHEX_RESIZE_TAPS];
            for (int j = 0; j < CHEX_RESIZE_TAPS; j++) {
                int tap = (t->first[i] + g) * CHEX_RESIZE_TAPS + j - a->first[i];
                bool has = tap >= 0 && tap < a->count[i];
                taps[j] = has ? a->weights[(ptrdiff_t)i * a->pitch + tap] : 0;
            }
            k->encode(taps, t->weights + ((ptrdiff_t)i * t->pitch + g) * CHEX_RESIZE_WORDS);
        }
}

static bool pack_down(struct chex_resize_down *t, const struct chex_resize_kernel *k,
                      const struct chex_resize_axis *a) {
    size_t out = (size_t)a->out;
    if (!chex_scratch_fit(&t->span_scratch, 2 * out, sizeof(int32_t)))
        return false;
    t->first = t->span_scratch.at;
    t->count = t->first + out;
    t->out = a->out, t->pitch = 0;
    for (int i = 0; i < a->out; i++) {
        t->first[i] = a->first[i] / CHEX_RESIZE_TAPS;
        t->count[i] = (a->first[i] + a->count[i] - 1) / CHEX_RESIZE_TAPS - t->first[i] + 1;
        t->pitch = t->count[i] > t->pitch ? t->count[i] : t->pitch;
    }
    size_t words = out * (size_t)t->pitch * CHEX_RESIZE_WORDS;
    if (!chex_scratch_fit(&t->weight_scratch, words, sizeof *t->weights))
        return false;
    t->weights = t->weight_scratch.at;
    fill_down(t, k, a);
    return true;
}

bool chex_resize_pack(struct chex_resize_packed *p, const struct chex_resize_kernel *k,
                      const struct chex_resize_axis *x, const struct chex_resize_axis *y) {
    if (!pack_across(&p->across, k, x) || !pack_down(&p->down, k, y))
        return false;
    size_t words = (size_t)p->down.pitch * (size_t)round_up(x->out, COLUMNS);
    if (!chex_scratch_fit(&p->ring, words, sizeof(uint32_t)) ||
        !chex_scratch_fit(&p->groups, (size_t)p->down.pitch, sizeof(uint32_t *)))
        return false;
    memset(p->ring.at, 0,
           words * sizeof(uint32_t)); // columns after `out` are read, but never written
    return true;
}

/* Copies the last rows to a padded buffer, because a kernel reads `reach` bytes from the start of a
 * row and would read beyond the image. Rows that the last group lacks are zeros; their weights are
 * 0. *first_out: the first group in the copy. */
static bool copy_tail(struct chex_resize_packed *p, const struct chex_resize_axis *x,
                      const struct chex_resize_axis *y, const uint8_t *src, int *first_out) {
    size_t pitch = (size_t)x->in, rows = (size_t)y->in, reach = (size_t)p->across.reach;
    size_t safe = rows * pitch < reach ? 0 : (rows * pitch - reach) / pitch + 1;
    safe = (safe < rows ? safe : rows) / CHEX_RESIZE_TAPS * CHEX_RESIZE_TAPS;
    size_t tail = (rows - safe) * pitch;
    size_t bytes = tail + CHEX_RESIZE_TAPS * pitch + reach;
    *first_out = (int)(safe / CHEX_RESIZE_TAPS);
    if (!chex_scratch_fit(&p->tail, bytes, 1))
        return false;
    memcpy(p->tail.at, src + safe * pitch, tail);
    memset((uint8_t *)p->tail.at + tail, 0, bytes - tail);
    return true;
}

bool chex_resize_run(struct chex_resize_packed *p, const struct chex_resize_kernel *k,
                     const struct chex_resize_axis *x, const struct chex_resize_axis *y,
                     const uint8_t *src, uint8_t *dst) {
    const struct chex_resize_down *down = &p->down;
    const uint32_t **groups = p->groups.at;
    size_t pitch = (size_t)x->in, group_bytes = pitch * CHEX_RESIZE_TAPS;
    size_t ring_pitch = (size_t)round_up(x->out, COLUMNS);
    int tail, done = 0;
    if (!copy_tail(p, x, y, src, &tail))
        return false;
    for (int i = 0; i < y->out; i++, dst += x->out) {
        for (; done < down->first[i] + down->count[i]; done++) {
            const uint8_t *rows =
                done < tail ? src + (size_t)done * group_bytes
                            : (const uint8_t *)p->tail.at + (size_t)(done - tail) * group_bytes;
            size_t slot = (size_t)(done % down->pitch);
            k->across(&p->across, rows, pitch, (uint32_t *)p->ring.at + slot * ring_pitch);
        }
        for (int g = 0; g < down->count[i]; g++) {
            size_t slot = (size_t)((down->first[i] + g) % down->pitch);
            groups[g] = (const uint32_t *)p->ring.at + slot * ring_pitch;
        }
        k->down(groups, down->count[i],
                down->weights + (ptrdiff_t)i * down->pitch * CHEX_RESIZE_WORDS, x->out, dst);
    }
    return true;
}

void chex_resize_release(struct chex_resize_packed *p) {
    chex_scratch_release(&p->across.at_scratch);
    chex_scratch_release(&p->across.pick_scratch);
    chex_scratch_release(&p->across.weight_scratch);
    chex_scratch_release(&p->down.span_scratch);
    chex_scratch_release(&p->down.weight_scratch);
    chex_scratch_release(&p->ring);
    chex_scratch_release(&p->groups);
    chex_scratch_release(&p->tail);
}
