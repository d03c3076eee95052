/* SPDX-License-Identifier: Apache-2.0
 *
 * chex-eval: computes AUROCs with confidence intervals from a checkpoint and a split of shards. The
 * work is in libcore/evaluate.
 */
#include "base/result.h"
#include "base/text.h"
#include "command.h"
#include "eval_commands.h"
#include "launch/world.h"
#include "preempt.h"

const struct chex_opt_program *const eval_subcommands[] = {
    &eval_score_program, &eval_compare_program, &eval_predict_program, &eval_deploy_program,
    &eval_cam_program,   &eval_export_program,  &eval_card_program,    NULL,
};

enum chex_status eval_write_file(const struct chex_eval_settings *s, const char *schema,
                                 enum chex_status (*write)(const struct chex_eval_settings *s,
                                                           struct chex_error *err),
                                 struct chex_error *err) {
    if (s->common.json && s->output)
        CHEX_TRY(chex_text_for_json("--output", s->output, "--json", err));
    CHEX_TRY(write(s, err));
    return eval_print_file(s, schema, s->output, err);
}

enum chex_status eval_print_file(const struct chex_eval_settings *s, const char *schema,
                                 const char *path, struct chex_error *err) {
    if (!s->common.json)
        return CHEX_OK;
    json_t *result = chex_result(CHEX_FIELD("schema", schema), CHEX_FIELD("version", 1),
                                 CHEX_FIELD("output", path));
    return chex_result_print(stdout, result, NULL, JSON_INDENT(1), err);
}

enum chex_status eval_refuse(const struct chex_opt_set *set, const char *const *names,
                             const char *why, struct chex_error *err) {
    for (; *names; names++)
        if (chex_opt_origin(set, *names) == CHEX_FROM_COMMAND_LINE)
            return chex_error_set(err, CHEX_E_USAGE, "--%s: %s", *names, why);
    return CHEX_OK;
}

int main(int argc, char **argv) {
    preempt_ignore();
    return command_main(&eval_program, argc, argv, chex_world_refuse);
}
