/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by the subcommands of chex-shard. Each subcommand is a file shard_NAME.c and one line in
 * chex-shard.c.
 */
#ifndef CHEX_CMD_SHARD_COMMANDS_H
#define CHEX_CMD_SHARD_COMMANDS_H

#include <stdbool.h>
#include <stddef.h>

#include "option_rows.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

struct shard_command {
    const char *word;
    const struct chex_opt_program *program;
    size_t settings_size; /* of the struct that begins with struct chex_opt_common */
    enum chex_status (*run)(const struct chex_opt_set *set, const void *settings,
                            struct chex_error *err);
    bool alone; /* runs in one process: of several ranks only rank 0 does the work */
};

extern const struct shard_command shard_command_create, shard_command_info, shard_command_verify,
    shard_command_audit, shard_command_reshard, shard_command_import_tfrecord,
    shard_command_phantom;

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

/* CHEX_E_USAGE unless there is exactly one word. `name`: "chex-shard info". */
enum chex_status shard_one_word(const struct chex_opt_set *set, const char *name,
                                struct chex_error *err);

#endif
