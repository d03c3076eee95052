/* SPDX-License-Identifier: Apache-2.0
 *
 * chex-shard: makes shards from label files and images, and inspects, verifies and reshards them.
 * This file chooses the subcommand; the subcommands are in shard_*.c.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/log.h"
#include "base/pool.h"
#include "launch/launch.h"
#include "preempt.h"
#include "shard/versions.h"
#include "shard_commands.h"

/* One entry per subcommand; the first is the default. */
static const struct shard_command *const commands[] = {
    &shard_command_create,  &shard_command_info,    &shard_command_verify,
    &shard_command_audit,   &shard_command_reshard, &shard_command_import_tfrecord,
    &shard_command_phantom,
};

int shard_threads(int64_t workers) { return workers ? (int)workers : chex_cpu_count(); }

enum chex_status shard_one_word(const struct chex_opt_set *set, const char *name,
                                struct chex_error *err) {
    if (chex_opt_word_count(set) == 1)
        return CHEX_OK;
    return chex_error_set(err, CHEX_E_USAGE, "%s takes one folder or file; try '%s --help'", name,
                          name);
}

static const struct shard_command *choose(int argc, char **argv, struct chex_error *err) {
    char known[256];
    size_t used = 0;
    if (argc < 2 || argv[1][0] == '-')
        return commands[0];
    for (size_t i = 0; i < COUNT(commands); i++) {
        if (strcmp(argv[1], commands[i]->word) == 0)
            return commands[i];
        const char *gap = i == 0 ? "" : i + 1 < COUNT(commands) ? ", " : " or ";
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", gap, commands[i]->word);
        assert(used < sizeof known);
    }
    chex_error_set(err, CHEX_E_USAGE, "unknown subcommand '%s': expected %s", argv[1], known);
    return NULL;
}

/* --help, --version and --print-config. True if one of them was given: there is no work then. */
static bool print_information(const struct shard_command *sub, const struct chex_opt_set *set,
                              const struct chex_opt_common *settings) {
    char libraries[256];
    if (settings->help)
        chex_opt_print_help(sub->program, stdout);
    else if (settings->version)
        chex_opt_print_version("chex-shard", chex_data_libraries(libraries, sizeof libraries),
                               stdout);
    else if (settings->print_config)
        chex_opt_print_config(set, settings, stdout);
    else
        return false;
    return true;
}

static enum chex_status run(const struct shard_command *sub, int argc, char **argv, void *settings,
                            struct chex_opt_set **set, struct chex_error *err) {
    const struct chex_opt_common *common = settings;
    bool named = argc > 1 && strcmp(argv[1], sub->word) == 0;
    CHEX_TRY(chex_opt_parse(sub->program, argc - named, argv + named, settings, sub->settings_size,
                            set, err));
    chex_log_set_level((enum chex_log_level)common->log_level);
    if (!print_information(sub, *set, common) && !(sub->alone && chex_launch_sits_out(sub->word)))
        CHEX_TRY(sub->run(*set, settings, err));
    return chex_fs_flush_stdout(err);
}

int main(int argc, char **argv) {
    preempt_ignore();
    struct chex_error err = {0};
    struct chex_opt_set *set = NULL;
    chex_log_init("chex-shard", CHEX_LOG_INFO);
    const struct shard_command *sub = choose(argc, argv, &err);
    void *settings = sub ? malloc(sub->settings_size) : NULL;
    enum chex_status st = err.status;
    if (settings)
        st = run(sub, argc, argv, settings, &set, &err);
    else if (sub)
        st = chex_error_set(&err, CHEX_E_RESOURCE, "out of memory at the start");
    if (st != CHEX_OK && err.text[0])
        chex_err("%s", err.text);
    chex_opt_destroy(set);
    free(settings);
    return (int)st;
}
