/* SPDX-License-Identifier: Apache-2.0
 *
 * Aligned memory, and memory straight from the system.
 */
#include "base/mem.h"

#include <string.h>

#include "tap.h"

static bool all_zero(const char *p, size_t bytes) {
    return bytes == 0 || (p[0] == 0 && memcmp(p, p + 1, bytes - 1) == 0);
}

int main(void) {
    const size_t huge = (size_t)2 << 20;
    const size_t sizes[] = {0, 1, 65, huge - 1, huge, huge + 1, 3 * huge, 5 * huge + 123};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        /* Twice: a block that has been used and given back comes back as zeros. */
        for (int round = 0; round < 2; round++) {
            char *p = chex_mem_map(sizes[i]);
            size_t align = sizes[i] >= huge ? huge : CHEX_MEM_ALIGN;
            OK(p && (uintptr_t)p % align == 0 && all_zero(p, sizes[i]),
               "%zu bytes: zeros at a boundary of %zu", sizes[i], align);
            if (p)
                memset(p, 1, sizes[i]);
            chex_mem_unmap(p, sizes[i]);
        }
    }
    OK(chex_mem_map(SIZE_MAX) == NULL && chex_mem_map(SIZE_MAX / 2) == NULL,
       "more than there is: NULL");
    chex_mem_unmap(NULL, huge);
    OK(chex_mem_peak_rss_bytes() > 5 * huge, "the peak of resident memory was seen");
    return tap_done();
}
