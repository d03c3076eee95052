/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether this process may use tile registers. The state of a thread grows by 8 KiB with them, so
 * Linux gives them to processes that ask, once and for all their threads.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/cpu.h"
#include "engine/cpu/cpu.h"

#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>

static int ask(void) {
    enum { REQUEST = 0x1023, TILE_DATA = 18 }; /* ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA */
    return syscall(SYS_arch_prctl, REQUEST, TILE_DATA) == 0 ? 0 : errno;
}

bool chex_cpu_tiles_allowed(char *why_out, size_t size) {
    if (!chex_cpu_has(CHEX_ISA_AMX)) {
        snprintf(why_out, size,
                 "this machine's processor has no AMX-BF16, or CHEX_CPU holds it back");
        return false;
    }
    int rc = ask();
    if (rc)
        snprintf(why_out, size,
                 "the system refuses tile registers to this process (%s); Linux "
                 "gives them since 5.16",
                 strerror(rc));
    return rc == 0;
}

#else
bool chex_cpu_tiles_allowed(char *why_out, size_t size) {
    snprintf(why_out, size, "only x86-64 processors under Linux have AMX");
    return false;
}
#endif
