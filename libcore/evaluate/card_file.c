/* SPDX-License-Identifier: Apache-2.0
 *
 * chex-eval card: writes a model card from the results folder of an evaluation.
 */
#include <string.h>

#include "base/log.h"
#include "base/textfile.h"
#include "evaluate/output.h"
#include "evaluate/subcommands.h"
#include "report/card.h"

static enum chex_status check_output(const struct chex_eval_settings *s, struct chex_error *err) {
    const size_t n = strlen(s->output);
    if (n < 4 || strcmp(s->output + n - 3, ".md") != 0)
        return chex_error_set(err, CHEX_E_USAGE,
                              "--output %s: expected the name of a file that ends in .md",
                              s->output);
    return chex_eval_file_check(s, s->output, (const char *const[]){NULL}, err);
}

static enum chex_status write_card(const char *path, const struct chex_card *card,
                                   struct chex_error *err) {
    struct chex_textfile file;
    CHEX_TRY(chex_textfile_open(path, &file, err));
    chex_card_write(file.f, card);
    return chex_textfile_close(&file, CHEX_OK, err);
}

enum chex_status chex_evaluate_card(const struct chex_eval_settings *s, struct chex_error *err) {
    struct chex_card card = {0};
    int lock = -1;
    if (!s->evaluation || !s->output)
        return chex_error_set(err, CHEX_E_USAGE, "chex-eval card needs --%s",
                              s->evaluation ? "output FILE.md" : "evaluation DIR");
    CHEX_TRY(check_output(s, err));
    enum chex_status st = chex_card_read(s->evaluation, &card, err);
    if (st == CHEX_OK)
        st = chex_eval_file_lock(s->output, &lock, err);
    if (st == CHEX_OK)
        st = write_card(s->output, &card, err);
    chex_eval_file_unlock(s->output, lock);
    if (st == CHEX_OK)
        chex_info("%s: lines with \"%s\" are questions that the files cannot answer", s->output,
                  CHEX_CARD_ASK);
    chex_card_release(&card);
    return st;
}
