/* SPDX-License-Identifier: Apache-2.0
 *
 * What the subcommands of chex-shard share: one file shard_NAME.c and one line in chex-shard.c
 * each.
 */
#ifndef CHEX_CMD_SHARD_COMMANDS_H
#define CHEX_CMD_SHARD_COMMANDS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/opt.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

struct shard_command {
    const char *word;
    const struct chex_opt_program *program;
    size_t settings_size; /* of the struct that begins with struct chex_opt_common */
    enum chex_status (*run)(const struct chex_opt_set *set, const void *settings,
                            struct chex_error *err);
    bool alone; /* work for one process: under srun or mpirun rank 0 does it */
};

extern const struct shard_command shard_command_create, shard_command_info, shard_command_verify,
    shard_command_audit, shard_command_reshard, shard_command_import_tfrecord,
    shard_command_phantom;

/* One place for options that several subcommands have. at: where the value goes. */
#define SHARD_WORKERS_ROW(at)                                                                      \
    {                                                                                              \
        "workers", 'j', CHEX_OPT_INT, at, "0", "N",                                                \
            "threads; 0 is one for each CPU this process may use", .min = 0, .max = 1024           \
    }
#define SHARD_SEED_ROW(at, what)                                                                   \
    { "seed", 0, CHEX_OPT_INT, at, "1", "N", what, .min = 0, .max = 9e15 }

#define SHARD_EXIT_STATUS                                                                          \
    "Exit status: 0 done, 1 failure of ours, 2 usage, 3 bad input data, 4 environment,\n"          \
    "7 a rank was lost, 9 out of memory or disk.\n"

/* The value of --workers as a number of threads. */
int shard_threads(int64_t workers);

/* Prints and frees the object; NULL is lack of memory. */
enum chex_status shard_print_json(json_t *object, struct chex_error *err);

/* CHEX_E_USAGE unless there is exactly one word. `name`: "chex-shard info". */
enum chex_status shard_one_word(const struct chex_opt_set *set, const char *name,
                                struct chex_error *err);

#endif
