/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"

#include <sys/mman.h>
#include <sys/resource.h>

void *chex_mem_alloc_aligned(size_t count, size_t size) {
    const size_t huge = (size_t)2 << 20;
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes) || bytes > SIZE_MAX - huge)
        return NULL;
    size_t align = bytes >= huge ? huge : CHEX_MEM_ALIGN;
    bytes = (bytes + align - 1) / align * align;
    void *p = aligned_alloc(align, bytes ? bytes : align);
    if (p && align == huge)
        madvise(p, bytes, MADV_HUGEPAGE);
    return p;
}

uint64_t chex_mem_peak_rss_bytes(void) {
    struct rusage u;
    return getrusage(RUSAGE_SELF, &u) == 0 ? (uint64_t)u.ru_maxrss * 1024 : 0;
}
