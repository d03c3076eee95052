/* SPDX-License-Identifier: Apache-2.0
 *
 * chex-eval: computes AUROCs with confidence intervals from a checkpoint and a split of shards.
 * This file chooses the subcommand; the work is in eval_*.c.
 */
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/log.h"
#include "eval_commands.h"
#include "launch/launch.h"
#include "launch/world.h"
#include "preempt.h"
#include "shard/versions.h"

static const struct eval_command *const subcommands[] = {&eval_command_score, &eval_command_cam,
                                                         &eval_command_export};

static const struct eval_command *find(const char *word) {
    for (size_t i = 0; i < COUNT(subcommands); i++)
        if (strcmp(word, subcommands[i]->word) == 0)
            return subcommands[i];
    return NULL;
}

/* The first argument is a subcommand if it is not an option. */
static enum chex_status choose(int argc, char **argv, const struct eval_command **out,
                               struct chex_error *err) {
    *out = argc < 2 || argv[1][0] == '-' ? &eval_command_evaluate : find(argv[1]);
    if (!*out)
        return chex_error_set(err, CHEX_E_USAGE,
                              "unknown subcommand '%s': expected score, cam or export, "
                              "or none with --data and --checkpoint",
                              argv[1]);
    return CHEX_OK;
}

static enum chex_status no_words(const struct chex_opt_set *set, const char *program,
                                 struct chex_error *err) {
    const char *word = chex_opt_word(set, 0);
    if (!word)
        return CHEX_OK;
    if (find(word))
        return chex_error_set(err, CHEX_E_USAGE, "'%s' comes first: chex-eval %s, then its options",
                              word, word);
    return chex_error_set(err, CHEX_E_USAGE,
                          "'%s' is one word too many: files are named by options; try '%s --help'",
                          word, program);
}

static enum chex_status run(const struct eval_command *command, int argc, char **argv,
                            struct eval_settings *s, struct chex_opt_set **set,
                            struct chex_error *err) {
    const int skip = command->word != NULL;
    char libraries[256];
    CHEX_TRY(chex_opt_parse(command->program, argc - skip, argv + skip, s, sizeof *s, set, err));
    chex_log_set_level((enum chex_log_level)s->common.log_level);
    if (s->common.help)
        chex_opt_print_help(command->program, stdout);
    else if (s->common.version)
        chex_opt_print_version(command->program->name,
                               chex_data_libraries(libraries, sizeof libraries), stdout);
    else if (s->common.print_config)
        chex_opt_print_config(*set, s, stdout);
    else {
        CHEX_TRY(no_words(*set, command->program->name, err));
        if (!command->alone || !chex_launch_sits_out(command->word))
            CHEX_TRY(command->run(s, *set, err));
    }
    return chex_fs_flush_stdout(err);
}

int main(int argc, char **argv) {
    preempt_ignore();
    struct eval_settings s;
    struct chex_opt_set *set = NULL;
    struct chex_error err = {0};
    const struct eval_command *command = NULL;
    chex_log_init("chex-eval", CHEX_LOG_INFO);
    enum chex_status st = choose(argc, argv, &command, &err);
    if (st == CHEX_OK)
        st = run(command, argc, argv, &s, &set, &err);
    if (st == CHEX_E_USAGE && err.text[0] && !(command && command->alone))
        chex_world_refuse(&err);
    else if (st != CHEX_OK && err.text[0])
        chex_err("%s", err.text);
    chex_opt_destroy(set);
    return (int)st;
}
