/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests permission to use AMX tile registers. They add 8 KiB to the state of a thread, so Linux
 * grants them only on request. One request covers all threads of the process.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/cpu_features.h"
#include "engine/cpu/cpu_engine.h"

#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>

/* 0, or the errno of the refusal. */
static int request_tiles(void) {
    enum { REQUEST = 0x1023, TILE_DATA = 18 }; /* ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA */
    return syscall(SYS_arch_prctl, REQUEST, TILE_DATA) == 0 ? 0 : errno;
}

bool chex_cpu_tiles_allowed(char *why_out, size_t size) {
    if (!chex_cpu_has(CHEX_ISA_AMX)) {
        snprintf(why_out, size,
                 "this machine's processor has no AMX-BF16, or CHEX_CPU holds it back");
        return false;
    }
    int rc = request_tiles();
    if (rc)
        snprintf(why_out, size,
                 "the system refuses tile registers to this process (%s); they need "
                 "Linux 5.16 or later",
                 strerror(rc));
    return rc == 0;
}

#else
bool chex_cpu_tiles_allowed(char *why_out, size_t size) {
    snprintf(why_out, size, "only x86-64 processors under Linux have AMX");
    return false;
}
#endif
