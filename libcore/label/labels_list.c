/* SPDX-License-Identifier: Apache-2.0
 *
 * Label format of the CheXNet lists: "[images_006/]00011558_003.png 0 1 0 ...", one flag for each
 * class in the order of chex_class_names. No header; the separator is a blank.
 */
#include <stdio.h>
#include <string.h>

#include "label/labels_format.h"

#define BLANKS " \t"

/* Matches a name followed by numbers only. parse() checks how many. */
static bool detect(const struct chex_label_header *h, char *why, size_t why_size) {
    const char *line = h->line + strspn(h->line, BLANKS);
    size_t name = strcspn(line, BLANKS), flags = 0;
    if (name == 0 || memchr(line, ',', name))
        return false;
    for (const char *p = line + name; *(p += strspn(p, BLANKS)); flags++) {
        size_t n = strcspn(p, BLANKS);
        if (strspn(p, "-0123456789.") != n)
            return false;
        p += n;
    }
    if (!flags)
        return false;
    snprintf(why, why_size, "a file name and %zu flags in line 1", flags);
    return true;
}

static enum chex_status wrong_width(const struct chex_label_table *t, size_t line, size_t found,
                                    struct chex_error *err) {
    return chex_error_data(err, "%s: line %zu: %zu columns, expected %d: a file name and %d flags",
                           t->path, line, found, CHEX_CLASS_COUNT + 1, CHEX_CLASS_COUNT);
}

static enum chex_status parse_line(struct chex_label_table *t, char *line, size_t number,
                                   struct chex_error *err) {
    char *words[CHEX_CLASS_COUNT + 1], *save = NULL;
    size_t count = 0;
    for (char *w = strtok_r(line, BLANKS, &save); w; w = strtok_r(NULL, BLANKS, &save), count++)
        if (count <= CHEX_CLASS_COUNT)
            words[count] = w;
    if (count == 0)
        return CHEX_OK;
    if (count != CHEX_CLASS_COUNT + 1)
        return wrong_width(t, number, count, err);
    struct chex_label_row *row;
    int8_t *labels;
    CHEX_TRY(chex_labels_add_row(t, number, &row, &labels, err));
    CHEX_TRY(chex_labels_set_image(t, row, words[0], 1, err));
    for (size_t c = 0; c < CHEX_CLASS_COUNT; c++) {
        const char *w = words[c + 1];
        if ((w[0] != '0' && w[0] != '1') || w[1])
            return chex_text_fault(t->path, number, c + 2, t->classes[c], w, "0 or 1", err);
        labels[c] = (int8_t)(w[0] - '0');
    }
    return CHEX_OK;
}

static enum chex_status parse(struct chex_label_table *t, const struct chex_label_input *input,
                              struct chex_error *err) {
    char *at = input->text + (strncmp(input->text, "\xEF\xBB\xBF", 3) ? 0 : 3), *line;
    char *end = input->text + input->size;
    for (size_t number = 1; (line = chex_labels_next_line(&at, end)); number++)
        CHEX_TRY(parse_line(t, line, number, err));
    return CHEX_OK;
}

const struct chex_label_format chex_label_format_list = {
    .name = "list",
    .expects = "a file name and 14 zeros or ones per line",
    .detect = detect,
    .parse = parse,
};
