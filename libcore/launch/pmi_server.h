/* SPDX-License-Identifier: Apache-2.0
 *
 * A PMI server for the MPI library of this process. MPICH and its relatives find their ranks by
 * PMI-1.1: text lines over a descriptor that the launcher gives them. Here a thread of the process
 * answers, so these libraries work with every launch method. At a barrier the servers of all ranks
 * exchange what their ranks have put (chex_launch_exchange).
 */
#ifndef CHEX_LAUNCH_PMI_SERVER_H
#define CHEX_LAUNCH_PMI_SERVER_H

#include "launch/launch.h"

struct chex_pmi_server;

/* Starts the server, and sets the environment so that MPI_Init finds it. Collective.
 * - Until the server ends, its thread alone makes exchanges of `launch`, which is borrowed.
 * - If a rank is lost in a barrier, or MPI aborts, the job ends with a message. */
enum chex_status chex_pmi_server_start(struct chex_launch *launch,
                                       struct chex_pmi_server **server_out, struct chex_error *err);

/* `launch` is used no more. The thread answers until the process ends. NULL allowed. */
void chex_pmi_server_end(struct chex_pmi_server *server);

#endif
