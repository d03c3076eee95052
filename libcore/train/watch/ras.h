/* SPDX-License-Identifier: Apache-2.0
 *
 * What NCCL knows of a stall. Since 2.24 each process of a job listens for clients on
 * localhost:28028 (NCCL_RAS_ADDR) and describes the communicators of the job in plain text: ranks
 * that do not answer, and how many collectives each has launched.
 */
#ifndef CHEX_TRAIN_WATCH_RAS_H
#define CHEX_TRAIN_WATCH_RAS_H

#include <stdbool.h>
#include <stdint.h>

/* Asks for the status, for limit_ms, and logs the lines of the answer as warnings. Only an address
 * in NCCL_RAS_ADDR is asked if uses_nccl is false: this run does not sum by NCCL. */
void chex_ras_log(bool uses_nccl, uint64_t limit_ms);

#endif
