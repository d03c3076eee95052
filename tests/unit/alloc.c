/* SPDX-License-Identifier: Apache-2.0
 *
 * Aligned memory, and memory straight from the system.
 */
#include "base/alloc.h"

#include <sys/wait.h>
#include <unistd.h>

#include "tap.h"

static bool all_zero(const char *p, size_t bytes) {
    return bytes == 0 || (p[0] == 0 && memcmp(p, p + 1, bytes - 1) == 0);
}

/* A small program that a large one starts; its exit status is the verdict. */
static bool own_peak_alone(const char *program, size_t large) {
    int status = -1;
    pid_t child = fork();
    if (child == 0) {
        execl(program, program, "small", (char *)NULL);
        _exit(127);
    }
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
           WEXITSTATUS(status) < 127 && (size_t)WEXITSTATUS(status) << 20 < large / 2;
}

int main(int argc, char **argv) {
    if (argc > 1) /* the small program */
        return (int)fmin((double)(chex_alloc_peak_rss_bytes() >> 20), 126);
    const size_t huge = (size_t)2 << 20;
    const size_t sizes[] = {0, 1, 65, huge - 1, huge, huge + 1, 3 * huge, 5 * huge + 123};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        /* Twice: a block that has been used and given back comes back as zeros. */
        for (int round = 0; round < 2; round++) {
            char *p = chex_alloc_map(sizes[i]);
            size_t align = sizes[i] >= huge ? huge : CHEX_ALLOC_ALIGN;
            OK(p && (uintptr_t)p % align == 0 && all_zero(p, sizes[i]),
               "%zu bytes: zeros at a boundary of %zu", sizes[i], align);
            if (p)
                memset(p, 1, sizes[i]);
            chex_alloc_unmap(p, sizes[i]);
        }
    }
    OK(chex_alloc_map(SIZE_MAX) == NULL && chex_alloc_map(SIZE_MAX / 2) == NULL,
       "more than there is: NULL");
    chex_alloc_unmap(NULL, huge);
    OK(chex_alloc_peak_rss_bytes() > 5 * huge, "the peak of resident memory was seen");
    const size_t large = (size_t)240 << 20;
    char *p = chex_alloc_map(large);
    BAIL_UNLESS(p, "out of memory");
    memset(p, 1, large);
    OK(own_peak_alone(argv[0], large), "a program's peak is not that of the one that started it");
    chex_alloc_unmap(p, large);
    return tap_done();
}
