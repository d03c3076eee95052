/* SPDX-License-Identifier: Apache-2.0
 *
 * For LD_PRELOAD: a libhdf5 that loops for ever in H5Fopen of files whose path contains $HANG_IN,
 * on the ranks of $HANG_ON (all where it is not set), as a damaged file can make it.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static int hangs_here(const char *path) {
    const char *in = getenv("HANG_IN"), *on = getenv("HANG_ON"), *rank = getenv("PMIX_RANK");
    return in && strstr(path, in) && (!on || (rank && strcmp(on, rank) == 0));
}

__attribute__((visibility("default"))) int64_t H5Fopen(const char *path, unsigned flags,
                                                       int64_t access_list);
int64_t H5Fopen(const char *path, unsigned flags, int64_t access_list) {
    int64_t (*real)(const char *, unsigned, int64_t) = NULL;
    for (volatile int turns = 0; hangs_here(path);)
        turns = !turns;
    *(void **)&real = dlsym(RTLD_NEXT, "H5Fopen");
    return real ? real(path, flags, access_list) : -1;
}
