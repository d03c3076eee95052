/* SPDX-License-Identifier: Apache-2.0
 *
 * Signals of chex-train. The handlers only set a flag. At the end of a step all ranks exchange it,
 * so they save and end at the same step.
 */
#ifndef CHEX_CMD_TRAIN_SIGNALS_H
#define CHEX_CMD_TRAIN_SIGNALS_H

#include <signal.h>
#include <stdint.h>

#include "base/error.h"

/* Non-zero after a signal to save and end. */
extern volatile sig_atomic_t train_stop_asked;

/* The first call of main. From then on USR2, TERM, INT and HUP make the run save and end; HUP only
 * if it was not ignored (nohup). A second TERM or INT, two seconds or more after the first, ends
 * the process at once. */
void train_signals_begin(void);

/* Applies --preempt-signal. If it is another signal than USR2, restores the handling of USR2 from
 * before train_signals_begin. Also ignores SIGPIPE. CHEX_E_USAGE: unknown name. */
enum chex_status train_signals_choose(const char *name, struct chex_error *err);

/* Ends the process with CHEX_E_LOST after `ms` milliseconds. A further call replaces the limit; 0
 * removes it. For the launch, before the stall watch starts. */
void train_signals_limit(uint64_t ms);

#endif
