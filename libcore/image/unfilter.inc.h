/* SPDX-License-Identifier: Apache-2.0
 *
 * The wavefront over groups of ROWS rows, shared by the kernels unfilter_*.c.
 *
 * A step handles ROWS bytes, one of each row: step s is byte s - k of row k. So the left neighbour
 * of a byte is the result of the same row pixel_bytes steps ago. The including file first defines:
 *   ROWS            a multiple of 16, at most BLOCK
 *   struct block    ROWS rows by BLOCK steps
 *   struct mix      the filters of the rows
 *   struct wave     state carried from step to step; all zero before the first
 *   read_mix, undo, load_block, store_block   as their calls below show
 * The rows of a block lie one byte closer together than the rows of the image, and its first and
 * last columns may lie outside of the image.
 */
#include <stdbool.h>
#include <string.h>

/* One group of at most ROWS rows. */
struct group {
    const uint8_t *raw, *end; /* first row of the group; end of the image's last row */
    const uint8_t *above;     /* pixels above the group; NULL at the top (zeros) */
    uint8_t *pixels;
    size_t row_bytes, rows;
};

/* A copy of a block at the border, row by row, and the pixels above a block. */
struct edge {
    _Alignas(64) uint8_t bytes[ROWS][BLOCK];
    uint8_t above[BLOCK];
};

/* True if no row of the block reads beyond the end of `raw`. */
static inline bool can_load(const struct group *g, size_t s) {
    const size_t last = 1 + s + (ROWS - 1) * g->row_bytes;
    return g->rows == ROWS && last + BLOCK <= (size_t)(g->end - g->raw);
}

/* True if no row ends in this block. Bytes written before the start of a row belong to the end of
 * the row above; a later block writes them again with their right values. */
static inline bool can_store(const struct group *g, size_t s) {
    return g->rows == ROWS && s + BLOCK <= g->row_bytes && BLOCK < g->row_bytes;
}

/* Copies a block that would read beyond `raw`. Bytes before and after a row may have any value:
 * rows that have not begun are masked, and results of rows that have ended are not used. */
static inline void gather_edge(const struct group *g, size_t s, struct edge *edge) {
    for (size_t k = 0; k < ROWS; k++) {
        const uint8_t *in = k < g->rows ? g->raw + 1 + s + k * g->row_bytes : g->end;
        const size_t left = in < g->end ? (size_t)(g->end - in) : 0;
        if (left >= BLOCK) {
            memcpy(edge->bytes[k], in, BLOCK);
            continue;
        }
        memset(edge->bytes[k], 0, BLOCK);
        if (left)
            memcpy(edge->bytes[k], in, left);
    }
}

static inline void gather_above(const struct group *g, size_t s, struct edge *edge) {
    const size_t left = g->above && s < g->row_bytes ? g->row_bytes - s : 0;
    if (left >= BLOCK) {
        memcpy(edge->above, g->above + s, BLOCK);
        return;
    }
    memset(edge->above, 0, BLOCK);
    if (left)
        memcpy(edge->above, g->above + s, left);
}

/* Copies from each row of the block the columns that are inside the image. */
static inline void scatter_edge(const struct group *g, size_t s, const struct edge *edge) {
    for (size_t k = 0; k < g->rows; k++) {
        const size_t begin = k > s ? k : s; // in steps
        const size_t end = g->row_bytes + k < s + BLOCK ? g->row_bytes + k : s + BLOCK;
        if (begin < end)
            memcpy(g->pixels + k * g->row_bytes + (begin - k), edge->bytes[k] + (begin - s),
                   end - begin);
    }
}

static inline __attribute__((always_inline)) void undo_group(const struct group *g,
                                                             size_t pixel_bytes) {
    const size_t n = g->row_bytes, steps = n + g->rows - 1;
    struct edge edge;
    struct block block;
    struct wave wave = {0};
    struct mix mix;
    read_mix(g->raw, n + 1, g->rows, &mix);
    for (size_t s = 0; s < steps; s += BLOCK) {
        gather_above(g, s, &edge);
        if (can_load(g, s)) {
            load_block(g->raw + 1 + s, n, &block);
        } else {
            gather_edge(g, s, &edge);
            load_block(edge.bytes[0], BLOCK, &block);
        }
        if (s == 0)
            undo(&mix, edge.above, &block, &wave, pixel_bytes, true);
        else
            undo(&mix, edge.above, &block, &wave, pixel_bytes, false);
        if (can_store(g, s)) {
            store_block(g->pixels + s, n - 1, &block);
        } else {
            store_block(edge.bytes[0], BLOCK, &block);
            scatter_edge(g, s, &edge);
        }
    }
}

static inline __attribute__((always_inline)) void undo_groups(const uint8_t *raw, size_t row_bytes,
                                                              size_t height, size_t pixel_bytes,
                                                              uint8_t *pixels) {
    const uint8_t *end = raw + height * (row_bytes + 1);
    for (size_t y = 0; y < height; y += ROWS)
        undo_group(
            &(struct group){
                .raw = raw + y * (row_bytes + 1),
                .end = end,
                .above = y ? pixels + (y - 1) * row_bytes : NULL,
                .pixels = pixels + y * row_bytes,
                .row_bytes = row_bytes,
                .rows = height - y < ROWS ? height - y : ROWS,
            },
            pixel_bytes);
}

static void undo_image(const uint8_t *raw, size_t row_bytes, size_t height, size_t pixel_bytes,
                       uint8_t *pixels) {
    switch (pixel_bytes) {
    case 1: undo_groups(raw, row_bytes, height, 1, pixels); break;
    case 3: undo_groups(raw, row_bytes, height, 3, pixels); break;
    case 4: undo_groups(raw, row_bytes, height, 4, pixels); break;
    }
}
