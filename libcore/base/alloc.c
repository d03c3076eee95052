/* SPDX-License-Identifier: Apache-2.0
 *
 * Allocation with checked sizes. Blocks of 2 MiB or more start on a 2 MiB boundary and ask the
 * kernel for huge pages: fewer TLB misses.
 */
#include "base/alloc.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "base/fs.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#endif
#ifdef SANITIZED
#include <sanitizer/asan_interface.h>
#endif

enum { HUGE_PAGE = 2 << 20, FIRST_CAPACITY = 64 };

bool chex_alloc_grow(void *array, size_t count, size_t *capacity, size_t size) {
    void *old, *grown;
    if (count < *capacity)
        return true;
    const size_t more = *capacity ? 2 * *capacity : FIRST_CAPACITY;
    memcpy(&old, array, sizeof old);
    if (!(grown = realloc(old, more * size)))
        return false;
    memcpy(array, &grown, sizeof grown);
    *capacity = more;
    return true;
}

void *chex_alloc_aligned(size_t count, size_t size) {
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes) || bytes > SIZE_MAX - HUGE_PAGE)
        return NULL;
    size_t align = bytes >= HUGE_PAGE ? HUGE_PAGE : CHEX_ALLOC_ALIGN;
    bytes = (bytes + align - 1) / align * align;
    void *p = aligned_alloc(align, bytes ? bytes : align);
    if (p && align == HUGE_PAGE)
        madvise(p, bytes, MADV_HUGEPAGE);
    return p;
}

void *chex_alloc_map(size_t bytes) {
    if (bytes < HUGE_PAGE) {
        void *p = chex_alloc_aligned(bytes, 1);
        return p ? memset(p, 0, bytes) : NULL;
    }
    if (bytes > SIZE_MAX - HUGE_PAGE)
        return NULL;
    /* Maps 2 MiB more than needed and unmaps the parts before the first boundary and after the end.
     */
    size_t all = (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE + HUGE_PAGE;
    char *p = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    size_t before = (HUGE_PAGE - (uintptr_t)p % HUGE_PAGE) % HUGE_PAGE;
    size_t after = HUGE_PAGE - before;
    if (before)
        munmap(p, before);
    munmap(p + all - after, after);
    madvise(p + before, all - HUGE_PAGE, MADV_HUGEPAGE);
    return p + before;
}

void chex_alloc_free_all(void *const *pointers, size_t count) {
    for (size_t i = 0; i < count; i++)
        free(pointers[i]);
}

void chex_mem_gap(void *p, size_t bytes) {
#ifdef SANITIZED
    __asan_poison_memory_region(p, bytes);
#else
    (void)p;
    (void)bytes;
#endif
}

void chex_alloc_unmap(void *p, size_t bytes) {
#ifdef SANITIZED
    if (p)
        __asan_unpoison_memory_region(p, bytes);
#endif
    if (p && bytes >= HUGE_PAGE)
        munmap(p, (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE);
    else
        free(p);
}

/* VmHWM first: ru_maxrss survives exec, so it can be the peak of the program that started this one.
 */
uint64_t chex_alloc_peak_rss_bytes(void) {
    uint64_t kib = 0;
    struct rusage u;
    if (!chex_fs_number("", "proc/self/status", "VmHWM:", &kib) && getrusage(RUSAGE_SELF, &u) == 0)
        kib = (uint64_t)u.ru_maxrss;
    return kib * 1024;
}
