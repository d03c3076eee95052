/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the files of an evaluation for the model card. card_text.c writes the card.
 */
#include "report/card.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/hash.h"

static const char *const names[CHEX_CARD_FILES] = {
    "auroc.json",    "auroc.csv",     "figures.csv",     "curves.csv",
    "subgroups.csv", "shortcuts.csv", "predictions.csv", "report.html"};

/* The greatest file that is read: predictions of some ten million images. */
#define MAX_BYTES ((uint64_t)8 << 30)

static enum chex_status read_file(const struct chex_card *card, struct chex_card_file *f,
                                  char **text_out, struct chex_error *err) {
    const struct chex_path path = chex_path(card->dir, f->name);
    CHEX_AUTO_FREE char *text = NULL;
    if (!chex_fs_exists(path.text))
        return CHEX_OK;
    CHEX_TRY(chex_fs_read(path.text, MAX_BYTES, &text, &f->bytes, err));
    chex_hash128_hex(text, f->bytes, f->digest);
    if (text_out) {
        *text_out = text;
        text = NULL;
    }
    return CHEX_OK;
}

static bool is_number_or_null(const json_t *o, const char *key) {
    const json_t *v = json_object_get(o, key);
    return json_is_number(v) || json_is_null(v);
}

/* What is wrong with auroc.json. NULL: nothing. */
static const char *fault_of(const json_t *o) {
    const json_t *classes = json_object_get(o, "classes"), *k;
    size_t i;
    if (json_integer_value(json_object_get(o, "schema")) != 1)
        return "no \"schema\": 1";
    if (!json_is_array(classes) || json_array_size(classes) == 0)
        return "no list of findings";
    if (!is_number_or_null(o, "mean") || !json_is_object(json_object_get(o, "provenance")))
        return "no mean or no provenance";
    json_array_foreach((json_t *)classes, i, k) {
        if (!json_string_value(json_object_get(k, "name")) || !is_number_or_null(k, "auroc") ||
            !json_is_integer(json_object_get(k, "positives")))
            return "a finding without name, auroc or positives";
    }
    return NULL;
}

static enum chex_status parse(struct chex_card *card, const char *text, struct chex_error *err) {
    json_error_t e;
    if (!text)
        return chex_error_set(
            err, CHEX_E_DATA,
            "%s: no auroc.json, expected a results folder of chex-eval; of several "
            "sets, name the folder of one",
            card->dir);
    card->figures = json_loads(text, 0, &e);
    if (!card->figures)
        return chex_error_set(err, CHEX_E_DATA, "%s/auroc.json: line %d: %s", card->dir, e.line,
                              e.text);
    const char *fault = fault_of(card->figures);
    return fault ? chex_error_set(err, CHEX_E_DATA,
                                  "%s/auroc.json: %s, expected the file that chex-eval writes",
                                  card->dir, fault)
                 : CHEX_OK;
}

enum chex_status chex_card_read(const char *dir, struct chex_card *card, struct chex_error *err) {
    CHEX_AUTO_FREE char *text = NULL;
    *card = (struct chex_card){.dir = strdup(dir)};
    CHEX_ALLOCATED(card->dir, err, "%s", dir);
    for (int i = 0; i < CHEX_CARD_FILES; i++)
        card->file[i].name = names[i];
    if (!chex_fs_is_dir(dir))
        return chex_error_set(err, CHEX_E_DATA, "%s: %s, expected a results folder of chex-eval",
                              dir, chex_fs_exists(dir) ? "no folder" : "no such folder");
    CHEX_TRY(read_file(card, &card->file[0], &text, err));
    CHEX_TRY(parse(card, text, err));
    for (int i = 1; i < CHEX_CARD_FILES; i++)
        CHEX_TRY(read_file(card, &card->file[i], NULL, err));
    return CHEX_OK;
}

void chex_card_release(struct chex_card *card) {
    json_decref(card->figures);
    free(card->dir);
    *card = (struct chex_card){0};
}
