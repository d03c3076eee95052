/* SPDX-License-Identifier: Apache-2.0
 *
 * Allocation with checked sizes. Everything from here is released with free().
 */
#ifndef CHEX_BASE_MEM_H
#define CHEX_BASE_MEM_H

#include <stdint.h>
#include <stdlib.h>

enum { CHEX_MEM_ALIGN = 64 };

/* count * size bytes, zeroed; NULL on overflow or lack of memory. */
static inline void *chex_mem_zalloc(size_t count, size_t size) {
    return calloc(count ? count : 1, size);
}

/* count * size bytes at a 64-byte boundary, content undefined; NULL on overflow or lack of
 * memory. From 2 MiB on the start lies on a 2 MiB boundary, for huge pages. */
void *chex_mem_alloc_aligned(size_t count, size_t size);

/* `bytes` bytes of zeros at a 64-byte boundary (2 MiB: as above), for what lives long: large
 * ones come from the system page by page as they are first used, near the thread that does.
 * Released with chex_mem_unmap of the same size. NULL on overflow or lack of memory. */
void *chex_mem_map(size_t bytes);
void chex_mem_unmap(void *p, size_t bytes); /* NULL allowed */

/* VmHWM: the largest resident set of this process so far, in bytes; 0 where it is unknown. */
uint64_t chex_mem_peak_rss_bytes(void);

#endif
