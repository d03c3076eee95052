/* SPDX-License-Identifier: Apache-2.0
 *
 * The wavefront over groups of ROWS rows, for unfilter_*.c: ROWS bytes are one step of it, one
 * byte a row. The including file defines, before it includes this:
 *   ROWS            a multiple of 16
 *   struct step     ROWS bytes in registers
 *   struct mix      the filters of the rows
 *   struct wave     what one step leaves to the next; all zero before the first
 *   read_mix, undo, load_tile, store_tile   as their calls below show
 * A tile is ROWS rows by 16 steps, in memory row by row and in registers step by step. Step s is
 * column s - k of row k, so the rows of a tile lie one byte closer together than the rows of the
 * image, and its first and last columns may lie outside of the image.
 *
 * Rows of a power of two fall on few sets of the cache, and ROWS of them push one another out. So
 * whole lines are copied to a block of four tiles, undone there, and copied on.
 */
#include <stdbool.h>
#include <string.h>

enum { STEPS = 16, BLOCK = 4 * STEPS };

/* One group of at most ROWS rows. */
struct group {
    const uint8_t *raw, *end; /* the group's first row; behind the image's last */
    const uint8_t *above;     /* pixels above the group; NULL at the top: zeros */
    uint8_t *pixels;
    size_t width, rows;
};

struct block {
    _Alignas(64) uint8_t bytes[ROWS][BLOCK];
    uint8_t above[BLOCK];
};

/* All rows are there, and have begun, and have not ended. */
static inline bool is_inside(const struct group *g, size_t s) {
    return g->rows == ROWS && s + 1 >= ROWS && s + BLOCK <= g->width;
}

/* What lies beside a row does no harm in what is read: a row that has not begun is masked, and
 * nothing looks at a row that has ended. Only the end of the memory counts. */
static inline void gather_edge(const struct group *g, size_t s, struct block *block) {
    for (size_t k = 0; k < ROWS; k++) {
        const uint8_t *in = k < g->rows ? g->raw + 1 + s + k * g->width : g->end;
        const size_t left = in < g->end ? (size_t)(g->end - in) : 0;
        if (left >= BLOCK) {
            memcpy(block->bytes[k], in, BLOCK);
            continue;
        }
        memset(block->bytes[k], 0, BLOCK);
        if (left)
            memcpy(block->bytes[k], in, left);
    }
}

static inline void gather_above(const struct group *g, size_t s, struct block *block) {
    const size_t left = g->above && s < g->width ? g->width - s : 0;
    if (left >= BLOCK) {
        memcpy(block->above, g->above + s, BLOCK);
        return;
    }
    memset(block->above, 0, BLOCK);
    if (left)
        memcpy(block->above, g->above + s, left);
}

/* Of each row, the columns that the image has. */
static inline void scatter_edge(const struct group *g, size_t s, const struct block *block) {
    for (size_t k = 0; k < g->rows; k++) {
        const size_t begin = k > s ? k : s; // in steps
        const size_t end = g->width + k < s + BLOCK ? g->width + k : s + BLOCK;
        if (begin < end)
            memcpy(g->pixels + k * g->width + (begin - k), block->bytes[k] + (begin - s),
                   end - begin);
    }
}

static inline void undo_block(const struct mix *mix, size_t s, struct block *block,
                              struct wave *wave) {
    for (size_t t = 0; t < BLOCK; t += STEPS) {
        struct step tile[STEPS];
        load_tile(block->bytes[0] + t, BLOCK, tile);
        if (s + t < ROWS)
            undo(mix, block->above + t, tile, wave, true, s + t);
        else
            undo(mix, block->above + t, tile, wave, false, s + t);
        store_tile(block->bytes[0] + t, BLOCK, tile);
    }
}

static void undo_group(const struct group *g) {
    const size_t w = g->width, steps = w + g->rows - 1;
    struct block block;
    struct wave wave;
    struct mix mix;
    memset(&wave, 0, sizeof wave);
    read_mix(g->raw, w + 1, g->rows, &mix);
    for (size_t s = 0; s < steps; s += BLOCK) {
        const bool inside = is_inside(g, s);
        gather_above(g, s, &block);
        if (inside)
            for (size_t k = 0; k < ROWS; k++)
                memcpy(block.bytes[k], g->raw + 1 + s + k * w, BLOCK);
        else
            gather_edge(g, s, &block);
        undo_block(&mix, s, &block, &wave);
        if (inside)
            for (size_t k = 0; k < ROWS; k++)
                memcpy(g->pixels + s + k * (w - 1), block.bytes[k], BLOCK);
        else
            scatter_edge(g, s, &block);
    }
}

static void undo_image(const uint8_t *raw, size_t width, size_t height, uint8_t *pixels) {
    const uint8_t *end = raw + height * (width + 1);
    for (size_t y = 0; y < height; y += ROWS)
        undo_group(&(struct group){
            .raw = raw + y * (width + 1),
            .end = end,
            .above = y ? pixels + (y - 1) * width : NULL,
            .pixels = pixels + y * width,
            .width = width,
            .rows = height - y < ROWS ? height - y : ROWS,
        });
}
