/* SPDX-License-Identifier: Apache-2.0
 *
 * A model card of an evaluation, in the form of the Hugging Face Hub: YAML front matter with a
 * model-index, then Markdown (Mitchell et al., Model Cards for Model Reporting, FAT* 2019).
 *
 * Every number comes from auroc.json of one evaluation folder. The card names the key of each
 * column, and the digests of the files of the folder, so that a number can be traced to its file.
 * Questions that only a person can answer are marked with CHEX_CARD_ASK.
 */
#ifndef CHEX_REPORT_CARD_H
#define CHEX_REPORT_CARD_H

#include <jansson.h>
#include <stdio.h>

#include "base/error.h"

#define CHEX_CARD_ASK "TO BE COMPLETED BY A PERSON"

/* A file of the folder. */
struct chex_card_file {
    const char *name;
    size_t bytes;
    char digest[33]; /* XXH3-128, as xxh128sum prints it; "": there is no such file */
};
enum { CHEX_CARD_FILES = 8 };

struct chex_card {
    char *dir;
    json_t *figures; /* auroc.json */
    struct chex_card_file file[CHEX_CARD_FILES];
};

/* Reads a folder of chex-eval or chex-eval score.
 * - The caller calls chex_card_release, after an error too.
 * - CHEX_E_DATA: no such folder, no auroc.json in it, or one that chex-eval has not written. */
enum chex_status chex_card_read(const char *dir, struct chex_card *card, struct chex_error *err);
void chex_card_release(struct chex_card *card);

/* Writes the card. Write errors: ferror(to). */
void chex_card_write(FILE *to, const struct chex_card *card);

#endif
