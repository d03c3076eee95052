/* SPDX-License-Identifier: Apache-2.0
 *
 * chex-eval export: writes the parameters of a checkpoint as a safetensors file, with the
 * checkpoint's description as metadata.
 */
#include "base/fs.h"
#include "base/log.h"
#include "eval_commands.h"

static const struct chex_opt export_opts[] = {
    CHEX_OPT_COMMON,
    OPTION_GROUP("Files"),
    OPTION("checkpoint", STRING, EVAL_AT(checkpoint), .letter = 'c', .metavar = "FILE",
           .help = "checkpoint of chex-train (.h5)"),
    EVAL_OUTPUT_ROW("FILE", "the new file; its name ends in .safetensors"),
    EVAL_FORCE_ROW,
};

static enum chex_status run_export(struct chex_opt_set *set, void *settings,
                                   struct chex_error *err) {
    const struct eval_settings *s = settings;
    (void)set;
    if (!s->checkpoint || !s->output)
        return chex_error_set(err, CHEX_E_USAGE, "chex-eval export needs --%s",
                              s->checkpoint ? "output FILE.safetensors" : "checkpoint FILE");
    if (!eval_is_safetensors(s->output) || eval_is_safetensors(s->checkpoint))
        return chex_error_set(err, CHEX_E_USAGE,
                              "chex-eval export makes --output FILE.safetensors of a checkpoint of "
                              "chex-train, not %s of %s",
                              s->output, s->checkpoint);
    if (chex_fs_exists(s->output) && !s->force)
        return chex_error_set(err, CHEX_E_USAGE, "--output %s exists: say --force to replace it",
                              s->output);
    CHEX_TRY(chex_fs_check_create(s->output, err));
    struct eval_network n = {0};
    int lock = -1;
    enum chex_status st = eval_network_open(s, 0, &n, err);
    if (st == CHEX_OK)
        st = eval_file_lock(s->output, &lock, err);
    if (st == CHEX_OK)
        st = chex_safetensors_write(s->output, n.net, n.state, n.step, &n.about, err);
    eval_file_unlock(s->output, lock);
    if (st == CHEX_OK)
        chex_info("%s: %zu parameters of %s", s->output, n.net->param_count, n.net->model);
    eval_network_release(&n);
    return st;
}

const struct chex_opt_program eval_export_program = {
    .name = "chex-eval export",
    .summary = "parameters of a checkpoint as safetensors, by torchvision's names",
    .usage = "chex-eval export --checkpoint FILE --output FILE.safetensors [--force]",
    .opts = export_opts,
    .count = COUNT(export_opts),
    .epilog = "Examples\n"
              "  chex-eval export --checkpoint run/best.h5 --output "
              "best.safetensors\n\n" EVAL_EXIT_STATUS,
    .settings_size = sizeof(struct eval_settings),
    .run = run_export,
    .alone = true,
    .word = "export",
};
