/* SPDX-License-Identifier: Apache-2.0
 *
 * What main does in every command: chooses the subcommand, parses, informs or works, and prints the
 * error.
 */
#ifndef CHEX_CMD_COMMAND_H
#define CHEX_CMD_COMMAND_H

#include "base/opt.h"

/* Runs the command or the subcommand that the command line names. Returns the exit status.
 * refuse: prints usage errors of work that all ranks share, before they are connected; NULL: each
 * rank prints its own. */
int command_main(const struct chex_opt_program *command, int argc, char **argv,
                 void (*refuse)(const struct chex_error *err));

/* The last act of every command. If CHEX_STATUS_FILE is set, rank 0 writes the exit status into
 * that file: srun may end with 0 without having started a task, so a batch script needs the
 * command's own word. Returns the exit status: a file that cannot be written makes a failure of a
 * success. */
enum chex_status command_report_end(enum chex_status status);

#endif
