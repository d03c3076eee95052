/* SPDX-License-Identifier: Apache-2.0
 *
 * Ends the process if a library hangs because the launcher has ended.
 *
 * MPI_Init and MPI_Finalize talk to the launcher's server without a time limit. If mpirun is killed
 * meanwhile, they may never return, and no other thread can interrupt them.
 */
#ifndef CHEX_LAUNCH_GUARD_H
#define CHEX_LAUNCH_GUARD_H

#include "launch/launch.h"

struct chex_guard;

/* Watches the call that follows. `what` names it in the message. The process ends with an error and
 * CHEX_E_LOST 10 s after the launcher has ended, or after 10 minutes. NULL if there is nothing to
 * watch or no thread can start. */
struct chex_guard *chex_guard_begin(const struct chex_launch_method *method, const char *what);
void chex_guard_end(struct chex_guard *g); /* NULL allowed */

#endif
