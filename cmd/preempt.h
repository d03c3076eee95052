/* SPDX-License-Identifier: Apache-2.0
 *
 * SIGUSR2 makes chex-train save. A batch job's `#SBATCH --signal=USR2@180` reaches every running
 * step, so commands that have nothing to save ignore it.
 *
 * SIGXFSZ is ignored by all commands: a write beyond `ulimit -f` then fails with EFBIG, which is
 * reported, and does not end the process.
 */
#ifndef CHEX_CMD_PREEMPT_H
#define CHEX_CMD_PREEMPT_H

#include <signal.h>

/* The first call of main. Before it USR2 ends the process, unless the parent ignores USR2
 * (trap '' USR2). */
static inline void preempt_ignore(void) {
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    sigaction(SIGUSR2, &ignore, NULL);
    sigaction(SIGXFSZ, &ignore, NULL);
}

#endif
