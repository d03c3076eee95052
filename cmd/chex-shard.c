/* SPDX-License-Identifier: Apache-2.0
 *
 * chex-shard: makes shards from label files and images, and inspects, verifies, reshards and
 * relabels them. The subcommands are in shard_*.c; create is also what runs without the name of
 * one.
 */
#include "base/pool.h"
#include "command.h"
#include "preempt.h"
#include "shard_commands.h"

const struct chex_opt_program *const shard_subcommands[] = {
    &shard_create_program, &shard_info_program,    &shard_verify_program,
    &shard_audit_program,  &shard_reshard_program, &shard_relabel_program,
    &shard_import_program, &shard_phantom_program, NULL};

int shard_threads(int64_t workers) { return workers ? (int)workers : chex_cpu_count(); }

int main(int argc, char **argv) {
    preempt_ignore();
    return command_main(&shard_create_program, argc, argv, NULL);
}
