/* SPDX-License-Identifier: Apache-2.0
 *
 * chex-eval card: writes a model card from the results folder of an evaluation.
 */
#include <string.h>

#include "base/fs.h"
#include "base/log.h"
#include "base/textfile.h"
#include "eval_commands.h"
#include "report/card.h"

static const struct chex_opt card_opts[] = {
    CHEX_OPT_COMMON,
    OPTION_GROUP("Files"),
    OPTION("evaluation", STRING, EVAL_AT(evaluation), .metavar = "DIR",
           .help = "results folder of chex-eval or chex-eval score"),
    EVAL_OUTPUT_ROW("FILE", "the new file, Markdown; its name ends in .md"),
    EVAL_FORCE_ROW,
};

static enum chex_status check_output(const struct eval_settings *s, struct chex_error *err) {
    const size_t n = strlen(s->output);
    if (n < 4 || strcmp(s->output + n - 3, ".md") != 0)
        return chex_error_set(err, CHEX_E_USAGE,
                              "--output %s: expected the name of a file that ends in .md",
                              s->output);
    if (chex_fs_is_dir(s->output))
        return chex_error_set(err, CHEX_E_USAGE, "--output %s is a folder: name a file in it",
                              s->output);
    if (chex_fs_exists(s->output) && !s->force)
        return chex_error_set(err, CHEX_E_USAGE, "--output %s exists: say --force to replace it",
                              s->output);
    return chex_fs_check_create(s->output, err);
}

static enum chex_status write_card(const char *path, const struct chex_card *card,
                                   struct chex_error *err) {
    struct chex_textfile file;
    CHEX_TRY(chex_textfile_open(path, &file, err));
    chex_card_write(file.f, card);
    return chex_textfile_close(&file, CHEX_OK, err);
}

static enum chex_status run_card(struct chex_opt_set *set, void *settings, struct chex_error *err) {
    const struct eval_settings *s = settings;
    struct chex_card card = {0};
    int lock = -1;
    (void)set;
    if (!s->evaluation || !s->output)
        return chex_error_set(err, CHEX_E_USAGE, "chex-eval card needs --%s",
                              s->evaluation ? "output FILE.md" : "evaluation DIR");
    CHEX_TRY(check_output(s, err));
    enum chex_status st = chex_card_read(s->evaluation, &card, err);
    if (st == CHEX_OK)
        st = eval_file_lock(s->output, &lock, err);
    if (st == CHEX_OK)
        st = write_card(s->output, &card, err);
    eval_file_unlock(s->output, lock);
    if (st == CHEX_OK)
        chex_info("%s: lines with \"%s\" are questions that the files cannot answer", s->output,
                  CHEX_CARD_ASK);
    chex_card_release(&card);
    return st;
}

const struct chex_opt_program eval_card_program = {
    .name = "chex-eval card",
    .summary = "a model card from the results of an evaluation",
    .usage = "chex-eval card --evaluation DIR --output FILE.md [--force]",
    .opts = card_opts,
    .count = COUNT(card_opts),
    .epilog = "Examples\n"
              "  chex-eval card --evaluation run/eval --output run/README.md\n\n" EVAL_EXIT_STATUS,
    .settings_size = sizeof(struct eval_settings),
    .run = run_card,
    .alone = true,
    .word = "card",
};
