/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory for HDF5 after the process has none left.
 *
 * HDF5 does not survive a failed allocation: depending on the place it crashes, calls exit(), or
 * reports something else. So its allocations do not fail: this file replaces malloc and its
 * siblings in the whole process, and inside of an HDF5 section a request that the C library refuses
 * is served from a reserve. CHEX_H5 then fails, the section closes what it has opened, and
 * chex_h5_finish reports that memory is out; after that the process ends. The reserve is part of
 * the program's zeroed data: it takes no memory until it is used, and no block of it is used again.
 *
 * Large requests are refused: HDF5 reports them well, and in a damaged file a length may be absurd.
 * One thread at a time is in a section, so the reserve needs no lock.
 */
#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "base/h5_private.h"

static _Thread_local bool inside, used;
static _Thread_local size_t refused, requests, refuse_from; /* refuse_from: 0, or of the tests */

void chex_h5_memory_enter(void) {
    inside = true;
    used = false;
    refused = requests = 0;
}
void chex_h5_memory_leave(void) { inside = false; }
bool chex_h5_memory_used(void) { return used; }
size_t chex_h5_memory_refused(void) { return refused; }
bool chex_h5_memory_inside(void) { return inside; }
void chex_h5_memory_refuse(size_t from) { refuse_from = from; }

/* Sanitizers replace malloc themselves. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define OWN_MALLOC 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(memory_sanitizer)
#define OWN_MALLOC 0
#endif
#endif
#ifndef OWN_MALLOC
#ifdef __GLIBC__
#define OWN_MALLOC 1
#else
#define OWN_MALLOC 0
#endif
#endif

bool chex_h5_memory_has_reserve(void) { return OWN_MALLOC; }

#if OWN_MALLOC
/* A file takes 2 MiB, most of it one table of 512 KiB. */
enum { RESERVE_BYTES = 16 << 20, LARGEST = 1 << 20, HEAD = 16 };

static _Alignas(HEAD) unsigned char reserve[RESERVE_BYTES];
static size_t taken;

/* Visible, so that shared libraries call these four. */
#pragma GCC visibility push(default)
void *malloc(size_t bytes);
void *calloc(size_t count, size_t bytes);
void *realloc(void *p, size_t bytes);
void free(void *p);
#pragma GCC visibility pop

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *p, size_t bytes);
void __libc_free(void *p);

static bool is_refused(void) { return inside && refuse_from && ++requests >= refuse_from; }

static bool is_of_reserve(const void *p) {
    return (const unsigned char *)p >= reserve &&
           (const unsigned char *)p < reserve + RESERVE_BYTES;
}

/* Zeroed; its size is in the HEAD before it. */
static void *take(size_t bytes) {
    const size_t whole = (bytes + 2 * HEAD - 1) / HEAD * HEAD;
    if (!inside || bytes > LARGEST || whole > RESERVE_BYTES - taken) {
        refused = inside && bytes > refused ? bytes : refused;
        errno = ENOMEM;
        return NULL;
    }
    unsigned char *p = reserve + taken + HEAD;
    memcpy(p - HEAD, &bytes, sizeof bytes);
    taken += whole;
    used = true;
    return p;
}

static size_t size_of(void *p) {
    size_t bytes;
    if (!is_of_reserve(p))
        return malloc_usable_size(p);
    memcpy(&bytes, (unsigned char *)p - HEAD, sizeof bytes);
    return bytes;
}

void *malloc(size_t bytes) {
    void *p = is_refused() ? NULL : __libc_malloc(bytes);
    return p ? p : take(bytes);
}

void *calloc(size_t count, size_t bytes) {
    void *p = is_refused() ? NULL : __libc_calloc(count, bytes);
    return p || (bytes && count > LARGEST / bytes) ? p : take(count * bytes);
}

void *realloc(void *p, size_t bytes) {
    if (!is_of_reserve(p) && !is_refused()) {
        void *q = __libc_realloc(p, bytes);
        if (q || bytes == 0)
            return q;
    }
    void *q = is_of_reserve(p) ? malloc(bytes) : take(bytes);
    if (q && p) {
        const size_t before = size_of(p);
        memcpy(q, p, before < bytes ? before : bytes);
        free(p);
    }
    return q;
}

void free(void *p) {
    if (!is_of_reserve(p))
        __libc_free(p);
}
#endif
