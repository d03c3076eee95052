/* SPDX-License-Identifier: Apache-2.0
 *
 * The instructions of amx.h as functions for op/amx_tiles.c, once in plain C and once as
 * themselves. Each configures the calling thread's tiles and releases them again.
 */
#ifndef CHEX_TESTS_OP_TILES_TILES_H
#define CHEX_TESTS_OP_TILES_TILES_H

#include "engine/cpu/amx.h"

struct tiles {
    uint16_t a[AMX_ROWS][AMX_ROW_BYTES / 2], b[AMX_ROWS][AMX_ROW_BYTES / 2];
    float c[AMX_ROWS][AMX_ROW_BYTES / 4];
};

struct tile_ops {
    const char *name;
    /* c += a * b */
    void (*multiply)(struct tiles *t);
    /* Rows of 64 bytes at these distances through a tile, in which they are kept meanwhile. */
    void (*copy)(const void *from, size_t from_step, void *to, size_t to_step,
                 void (*meanwhile)(void));
    void (*zero)(void *to, size_t step);
};

extern const struct tile_ops tile_ops_real;

static void tiles_multiply(struct tiles *t) {
    AMX_CONFIGURE();
    AMX_FENCE();
    AMX_LOAD(4, t->a, sizeof t->a[0]);
    AMX_LOAD(6, t->b, sizeof t->b[0]);
    AMX_LOAD(0, t->c, sizeof t->c[0]);
    AMX_DOT(0, 4, 6);
    AMX_STORE(0, t->c, sizeof t->c[0]);
    AMX_FENCE();
    AMX_RELEASE();
}

static void tiles_copy(const void *from, size_t from_step, void *to, size_t to_step,
                       void (*meanwhile)(void)) {
    AMX_CONFIGURE();
    AMX_FENCE();
    AMX_LOAD(5, from, from_step);
    if (meanwhile)
        meanwhile();
    AMX_STORE(5, to, to_step);
    AMX_FENCE();
    AMX_RELEASE();
}

static void tiles_zero(void *to, size_t step) {
    AMX_CONFIGURE();
    AMX_FENCE();
    AMX_ZERO(5);
    AMX_STORE(5, to, step);
    AMX_FENCE();
    AMX_RELEASE();
}

#endif
