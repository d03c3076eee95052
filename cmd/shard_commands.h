/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by the subcommands of chex-shard. Each subcommand is a file shard_NAME.c and one line in
 * chex-shard.c.
 */
#ifndef CHEX_CMD_SHARD_COMMANDS_H
#define CHEX_CMD_SHARD_COMMANDS_H

#include <stddef.h>

#include "base/error.h"
#include "option_rows.h"

/* create is the command itself. */
extern const struct chex_opt_program shard_create_program, shard_info_program, shard_verify_program,
    shard_audit_program, shard_reshard_program, shard_relabel_program, shard_import_program,
    shard_phantom_program;
extern const struct chex_opt_program *const shard_subcommands[];

/* Options of several subcommands. at: offset of the value in the settings. */
#define SHARD_WORKERS_ROW(at)                                                                      \
    OPTION("workers", INT, at, .letter = 'j', .def = "0", .metavar = "N", .min = 0, .max = 1024,   \
           .help = "threads; 0 is one for each CPU this process may use")
#define SHARD_SEED_ROW(at, what)                                                                   \
    OPTION("seed", INT, at, .def = "1", .metavar = "N", .min = 0, .max = 9e15, .help = what)

#define SHARD_EXIT_STATUS                                                                          \
    "Exit status: 0 done, 1 failure of ours, 2 usage, 3 bad input data, 4 environment,\n"          \
    "7 a rank was lost, 9 out of memory or disk.\n"

/* The value of --workers as a number of threads. */
int shard_threads(int64_t workers);

#endif
