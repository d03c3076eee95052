/* SPDX-License-Identifier: Apache-2.0
 *
 * Allocation with checked sizes. Release with free(), except memory of chex_alloc_map.
 */
#ifndef CHEX_BASE_ALLOC_H
#define CHEX_BASE_ALLOC_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { CHEX_ALLOC_ALIGN = 64 };

/* count * size bytes, zeroed; NULL on overflow or lack of memory. */
static inline void *chex_alloc_zeroed(size_t count, size_t size) {
    return calloc(count ? count : 1, size);
}

/* Makes space for one more element of a growing array. array: address of the pointer to its
 * elements of `size` bytes; `count` of them are used. False: out of memory; nothing is changed. */
bool chex_alloc_grow(void *array, size_t count, size_t *capacity, size_t size);

/* count * size bytes at a 64-byte boundary, content undefined. From 2 MiB on the start is on a 2
 * MiB boundary, for huge pages. NULL on overflow or lack of memory. */
void *chex_alloc_aligned(size_t count, size_t size);

/* `bytes` zeroed bytes at a 64-byte boundary (from 2 MiB on: 2 MiB), for long-lived buffers.
 * - From 2 MiB on the kernel allocates each page at first use, on the NUMA node of the thread that
 *   uses it.
 * - Release with chex_alloc_unmap and the same size.
 * - NULL on overflow or lack of memory. */
void *chex_alloc_map(size_t bytes);
void chex_alloc_unmap(void *p, size_t bytes); /* NULL allowed */

/* Marks `bytes` bytes at an 8-byte boundary inside such memory as a gap between two buffers. With
 * the address sanitizer, an access to a gap ends the process; other builds do nothing.
 * chex_alloc_unmap removes the mark. */
void chex_mem_gap(void *p, size_t bytes);

/* `CHEX_AUTO_FREE char *text = NULL;`: freed when the variable goes out of scope. json_auto_t of
 * jansson.h does the same for JSON. */
#define CHEX_AUTO_FREE __attribute__((cleanup(chex_alloc_auto_free)))
static inline void chex_alloc_auto_free(void *variable) {
    void *p;
    memcpy(&p, variable, sizeof p);
    free(p);
}

/* Frees each of the pointers; NULL allowed: CHEX_FREE(s->labels, s->path, s). */
#define CHEX_FREE(...)                                                                             \
    chex_alloc_free_all((void *[]){__VA_ARGS__}, sizeof((void *[]){__VA_ARGS__}) / sizeof(void *))
void chex_alloc_free_all(void *const *pointers, size_t count);

/* Peak resident set of this process (VmHWM) in bytes; 0 if unknown. */
uint64_t chex_alloc_peak_rss_bytes(void);

#endif
