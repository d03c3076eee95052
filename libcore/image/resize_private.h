/* SPDX-License-Identifier: Apache-2.0
 *
 * Internals of the resize (resize.h). Plain C runs a horizontal and a vertical pass over the image.
 * The vector kernels compute the same bytes with packed tables.
 *
 * Layout: the horizontal pass ("across") handles four rows together. It writes one 32-bit word per
 * column, with the byte of row 0 lowest. Four taps (weights) are multiplied with four bytes in one
 * 32-bit lane: in the horizontal pass with four neighbours in a row, in the vertical pass ("down")
 * with the four rows of a word.
 *
 * Exactness: a weight of 22 bits does not fit the multipliers of bytes. A kernel therefore splits
 * it into limbs: four weights become three words. All sums are modulo 2^32, and the true sum is
 * below 2^32. So neither the order of additions nor a wrap-around of 32-bit sums changes the
 * result.
 */
#ifndef CHEX_IMAGE_RESIZE_PRIVATE_H
#define CHEX_IMAGE_RESIZE_PRIVATE_H

#include <stdbool.h>
#include <stddef.h>

#include "image/resize.h"

enum {
    CHEX_RESIZE_WEIGHT_BITS = 22,
    CHEX_RESIZE_HALF = 1 << (CHEX_RESIZE_WEIGHT_BITS - 1),
    CHEX_RESIZE_TAPS = 4,  /* taps of a group: those in one lane */
    CHEX_RESIZE_WORDS = 3, /* words that hold the weights of a group */
    /* Rounding changes a weight by at most one half. Up to this number of taps a white image cannot
     * exceed 255, and a packed kernel needs no clamp. */
    CHEX_RESIZE_PACKED_TAPS = 16384,
};

/* A buffer that is reused and only grows. */
struct chex_scratch {
    void *at; /* at a 64-byte boundary */
    size_t bytes;
};
/* Grows the buffer to count * size bytes; the content is undefined. False: out of memory; the
 * buffer is then empty. */
bool chex_scratch_fit(struct chex_scratch *scratch, size_t count, size_t size);
void chex_scratch_release(struct chex_scratch *scratch);

/* The taps of every output pixel along one side. */
struct chex_resize_axis {
    int in, out;
    int pitch;        /* weights kept for each output pixel */
    int max_taps;     /* the largest number of taps of an output pixel */
    int32_t *first;   /* (out) */
    int32_t *count;   /* (out) */
    int32_t *weights; /* (out, pitch), zeros after the last tap */
    struct chex_scratch scratch;
};

/* The table of the horizontal pass.
 * - windows > 0 (few taps): a vector has one group of each of `lanes` output pixels. Its byte j is
 *   the byte at pick[j] after the start of the window.
 * - windows == 0 (many taps): a vector has `lanes` consecutive groups of one output pixel. */
struct chex_resize_across {
    int out;
    int windows;       /* adjacent windows of kernel->window_bytes bytes each */
    int blocks;        /* vectors of output pixels; windows == 0: output pixels */
    int vectors;       /* vectors to add for each block */
    int reach;         /* bytes read from the start of a row; may exceed the row */
    int32_t *at;       /* (blocks, lanes / window_lanes), or (out): start of window or taps */
    uint8_t *pick;     /* (blocks, lanes * 4) */
    uint32_t *weights; /* (blocks, vectors, 3, lanes) */
    struct chex_scratch at_scratch, pick_scratch, weight_scratch;
};

/* The table of the vertical pass. Group g is the input rows 4g to 4g + 3. */
struct chex_resize_down {
    int out, pitch;    /* pitch: groups kept for each output row */
    int32_t *first;    /* (out) */
    int32_t *count;    /* (out) */
    uint32_t *weights; /* (out, pitch, 3) */
    struct chex_scratch span_scratch, weight_scratch;
};

struct chex_resize_kernel {
    const char *name;
    int lanes;        /* 32-bit lanes of a vector */
    int window_lanes; /* output pixels that share a window */
    int window_bytes;
    int max_windows; /* if more are needed, a vector has the taps of one pixel */
    void (*encode)(const int32_t weights[CHEX_RESIZE_TAPS], uint32_t words[CHEX_RESIZE_WORDS]);
    /* Horizontal pass: four rows, `pitch` bytes apart, to dst (out rounded up to lanes). */
    void (*across)(const struct chex_resize_across *table, const uint8_t *src, size_t pitch,
                   uint32_t *dst);
    /* Vertical pass for one output row. groups (count): packed rows, each readable up to width
     * rounded up to 64. */
    void (*down)(const uint32_t *const *groups, int count, const uint32_t *weights, int width,
                 uint8_t *dst);
};

/* Tables and scratch of the packed kernels. */
struct chex_resize_packed {
    struct chex_resize_across across;
    struct chex_resize_down down;
    struct chex_scratch ring;   /* (down.pitch, out rounded up to 64) packed rows */
    struct chex_scratch groups; /* (down.pitch) pointers into the ring for one output row */
    struct chex_scratch tail;   /* copy of the last rows of the image, with padding after them */
};

#if defined(__x86_64__)
extern const struct chex_resize_kernel chex_resize_avx2;
extern const struct chex_resize_kernel chex_resize_avx512vnni;
#endif
/* Returns the i-th kernel that this CPU can run, fastest first; NULL after the last. */
const struct chex_resize_kernel *chex_resize_kernel(int i);

/* As chex_resizer_create() with a given kernel. NULL: plain C. */
enum chex_status chex_resizer_create_with(const struct chex_resize_kernel *kernel,
                                          struct chex_resizer **resizer_out,
                                          struct chex_error *err);

/* Computes the tables of the axes x and y. False: out of memory. */
bool chex_resize_pack(struct chex_resize_packed *p, const struct chex_resize_kernel *kernel,
                      const struct chex_resize_axis *x, const struct chex_resize_axis *y);
/* Resizes an image with the tables of x and y. False: out of memory. */
bool chex_resize_run(struct chex_resize_packed *p, const struct chex_resize_kernel *kernel,
                     const struct chex_resize_axis *x, const struct chex_resize_axis *y,
                     const uint8_t *src, uint8_t *dst);
void chex_resize_release(struct chex_resize_packed *p);

#endif
