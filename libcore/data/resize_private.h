/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of the resize. Plain C goes over the image in two passes. The vector kernels give the same
 * bytes from packed tables:
 *
 * Four rows go along x together and leave one 32-bit word a column, with the byte of row 0 lowest.
 * Four taps of a weight table meet such a word in one lane, along x (four neighbours picked out of
 * a row) as well as along y (the four rows of a word). A weight of 22 bits does not fit the
 * multipliers of bytes, so a kernel cuts it into limbs: four weights make three words. All sums are
 * modulo 2^32 and the true sum is below that, so the order of additions and what becomes of the
 * limbs on the way do not matter.
 */
#ifndef CHEX_DATA_RESIZE_PRIVATE_H
#define CHEX_DATA_RESIZE_PRIVATE_H

#include <stdbool.h>
#include <stddef.h>

#include "data/resize.h"

enum {
    CHEX_RESIZE_WEIGHT_BITS = 22,
    CHEX_RESIZE_HALF = 1 << (CHEX_RESIZE_WEIGHT_BITS - 1),
    CHEX_RESIZE_TAPS = 4,  /* of a group: those of one lane */
    CHEX_RESIZE_WORDS = 3, /* of a group of weights */
    /* Each weight is rounded by at most a half. With no more taps than this a white picture cannot
     * come out above 255, and a packed kernel needs no clamp. */
    CHEX_RESIZE_PACKED_TAPS = 16384,
};

/* Memory that is kept and only grows. */
struct chex_room {
    void *at; /* at a 64-byte boundary */
    size_t bytes;
};
/* Room for count * size bytes, content undefined; false for lack of memory (then it is empty). */
bool chex_room_fit(struct chex_room *room, size_t count, size_t size);
void chex_room_release(struct chex_room *room);

/* The taps of every output pixel along one side. */
struct chex_resize_axis {
    int in, out;
    int pitch;        /* weights kept for each output pixel */
    int most;         /* taps of the output pixel that has most */
    int32_t *first;   /* (out) */
    int32_t *count;   /* (out) */
    int32_t *weights; /* (out, pitch), zeros behind the last tap */
    struct chex_room room;
};

/* An axis packed for rows. With windows > 0 a vector holds one group of `lanes` output pixels: byte
 * j of it is byte pick[j] behind its window's start. With windows == 0 a vector holds `lanes`
 * groups of one output pixel, as they lie in the row. */
struct chex_resize_across {
    int out;
    int windows;       /* of kernel->window_bytes each, beside each other */
    int blocks;        /* vectors of output pixels; windows == 0: output pixels */
    int vectors;       /* to add up for each block */
    int reach;         /* bytes read from the start of a row on: may pass its end */
    int32_t *at;       /* (blocks, lanes / window_lanes), or (out): where window or taps begin */
    uint8_t *pick;     /* (blocks, lanes * 4) */
    uint32_t *weights; /* (blocks, vectors, 3, lanes) */
    struct chex_room at_room, pick_room, weight_room;
};

/* An axis packed for columns: groups are those of the input rows, 4g to 4g + 3. */
struct chex_resize_down {
    int out, pitch;    /* pitch: groups kept for each output row */
    int32_t *first;    /* (out) */
    int32_t *count;    /* (out) */
    uint32_t *weights; /* (out, pitch, 3) */
    struct chex_room span_room, weight_room;
};

struct chex_resize_kernel {
    const char *name;
    int lanes;        /* of a vector, 32 bits each */
    int window_lanes; /* output pixels that are picked out of one window */
    int window_bytes;
    int max_windows; /* beyond this the taps of one pixel share a vector */
    void (*encode)(const int32_t weights[CHEX_RESIZE_TAPS], uint32_t words[CHEX_RESIZE_WORDS]);
    /* Four rows, `pitch` bytes apart, to dst (out rounded up to lanes). */
    void (*across)(const struct chex_resize_across *table, const uint8_t *src, size_t pitch,
                   uint32_t *dst);
    /* One output row: groups[count] of packed rows, each readable to width rounded up to 64. */
    void (*down)(const uint32_t *const *groups, int count, const uint32_t *weights, int width,
                 uint8_t *dst);
};

/* Tables and scratch of the packed kernels. */
struct chex_resize_packed {
    struct chex_resize_across across;
    struct chex_resize_down down;
    struct chex_room ring;   /* (down.pitch, out rounded up to 64) packed rows */
    struct chex_room groups; /* (down.pitch) where the rows of one output row lie in it */
    struct chex_room tail;   /* the last rows of the image with room behind them */
};

#if defined(__x86_64__)
extern const struct chex_resize_kernel chex_resize_avx2;
extern const struct chex_resize_kernel chex_resize_avx512vnni;
#endif
/* The i-th packed kernel that this CPU can run, best first; NULL behind the last. */
const struct chex_resize_kernel *chex_resize_kernel(int i);

/* kernel NULL: plain C. */
enum chex_status chex_resizer_create_with(const struct chex_resize_kernel *kernel,
                                          struct chex_resizer **resizer_out,
                                          struct chex_error *err);

/* Packs the tables anew; false for lack of memory. */
bool chex_resize_pack(struct chex_resize_packed *p, const struct chex_resize_kernel *kernel,
                      const struct chex_resize_axis *x, const struct chex_resize_axis *y);
/* With the tables of x and y; false for lack of memory. */
bool chex_resize_run(struct chex_resize_packed *p, const struct chex_resize_kernel *kernel,
                     const struct chex_resize_axis *x, const struct chex_resize_axis *y,
                     const uint8_t *src, uint8_t *dst);
void chex_resize_release(struct chex_resize_packed *p);

#endif
