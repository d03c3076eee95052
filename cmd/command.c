/* SPDX-License-Identifier: Apache-2.0
 *
 * The common main of the commands.
 */
#include "command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/log.h"
#include "launch/launch.h"
#include "shard/versions.h"

static enum chex_status run(const struct chex_opt_program *program, int argc, char **argv,
                            void *settings, struct chex_opt_set **set, struct chex_error *err) {
    const struct chex_opt_common *common = settings;
    CHEX_ALLOCATED(settings, err, NULL);
    CHEX_TRY(chex_opt_parse(program, argc, argv, settings, program->settings_size, set, err));
    chex_log_set_level((enum chex_log_level)common->log_level);
    if (!chex_opt_inform(*set, settings, chex_data_libraries) &&
        !(program->alone && chex_launch_sits_out(program->word))) {
        CHEX_TRY(chex_opt_check_words(*set, err));
        CHEX_TRY(program->run(*set, settings, err));
    }
    return chex_fs_flush_stdout(err);
}

enum chex_status command_report_end(enum chex_status status) {
    struct chex_error err = {0};
    char text[16];
    const char *path = getenv("CHEX_STATUS_FILE");
    if (!path || !*path || chex_launch_env_rank() != 0)
        return status;
    snprintf(text, sizeof text, "%d\n", (int)status);
    const enum chex_status written = chex_fs_write(path, text, strlen(text), &err);
    if (status != CHEX_OK || written == CHEX_OK)
        return status;
    chex_err("CHEX_STATUS_FILE: %s", err.text);
    return written;
}

int command_main(const struct chex_opt_program *command, int argc, char **argv,
                 void (*refuse)(const struct chex_error *err)) {
    struct chex_error err = {0};
    struct chex_opt_set *set = NULL;
    chex_log_init(command->name, CHEX_LOG_INFO);
    const struct chex_opt_program *program = chex_opt_choose(command, argc, argv, &err);
    void *settings = program ? malloc(program->settings_size) : NULL;
    const enum chex_status st =
        program ? run(program, argc, argv, settings, &set, &err) : err.status;
    if (st == CHEX_E_USAGE && err.text[0] && refuse && !(program && program->alone))
        refuse(&err);
    else if (st != CHEX_OK && err.text[0])
        chex_err("%s", err.text);
    chex_opt_destroy(set);
    free(settings);
    return (int)command_report_end(st);
}
