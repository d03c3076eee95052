/* SPDX-License-Identifier: Apache-2.0
 *
 * chex-eval: computes AUROCs with confidence intervals from a checkpoint and a split of shards. The
 * work is in libcore/evaluate.
 */
#include "command.h"
#include "eval_commands.h"
#include "launch/world.h"
#include "preempt.h"

const struct chex_opt_program *const eval_subcommands[] = {
    &eval_score_program, &eval_compare_program, &eval_predict_program, &eval_deploy_program,
    &eval_cam_program,   &eval_export_program,  &eval_card_program,    NULL,
};

int main(int argc, char **argv) {
    preempt_ignore();
    return command_main(&eval_program, argc, argv, chex_world_refuse);
}
