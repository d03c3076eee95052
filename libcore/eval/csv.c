/* SPDX-License-Identifier: Apache-2.0 */
#include "eval/csv.h"

#include <stdlib.h>
#include <string.h>

void chex_csv_init(struct chex_csv *csv, const char *path, char *text) {
    if (strncmp(text, "\xef\xbb\xbf", 3) == 0)
        text += 3;
    *csv = (struct chex_csv){.path = path, .at = text};
}

void chex_csv_release(struct chex_csv *csv) {
    free(csv->fields);
    csv->fields = NULL;
    csv->count = csv->capacity = 0;
}

static enum chex_status push(struct chex_csv *csv, char *field, struct chex_error *err) {
    if (csv->count == csv->capacity) {
        size_t capacity = csv->capacity ? csv->capacity * 2 : 64;
        char **fields = realloc(csv->fields, capacity * sizeof *fields);
        if (!fields)
            return chex_error_set(err, CHEX_E_RESOURCE, "%s: out of memory", csv->path);
        csv->fields = fields;
        csv->capacity = capacity;
    }
    csv->fields[csv->count++] = field;
    return CHEX_OK;
}

/* Moves the text of a quoted field over its opening quote; *end_out is the byte behind the closing
 * one. False where none closes it. */
static bool unquote(char *open, char **end_out) {
    char *to = open;
    for (char *p = open + 1; *p; p++) {
        if (*p == '"' && p[1] != '"') {
            *end_out = p + 1;
            *to = '\0'; /* at the closing quote or before it */
            return true;
        }
        p += *p == '"';
        *to++ = *p;
    }
    return false;
}

static enum chex_status split(struct chex_csv *csv, char *line, struct chex_error *err) {
    for (char *field = line, *end;; field = end + 1) {
        if (*field != '"')
            end = field + strcspn(field, ",");
        else if (!unquote(field, &end))
            return chex_error_set(err, CHEX_E_DATA,
                                  "%s line %zu, column %zu: the quote does not close on its line",
                                  csv->path, csv->line, csv->count + 1);
        else if (*end && *end != ',')
            return chex_error_set(err, CHEX_E_DATA,
                                  "%s line %zu, column %zu: text behind the closing quote",
                                  csv->path, csv->line, csv->count + 1);
        CHEX_TRY(push(csv, field, err));
        if (!*end)
            return CHEX_OK;
        *end = '\0';
    }
}

enum chex_status chex_csv_next(struct chex_csv *csv, bool *more_out, struct chex_error *err) {
    csv->count = 0;
    while (*csv->at) {
        char *line = csv->at, *end = line + strcspn(line, "\n");
        csv->at = *end ? end + 1 : end;
        csv->line++;
        if (end > line && end[-1] == '\r')
            end--;
        *end = '\0';
        if (!*line)
            continue;
        *more_out = true;
        return split(csv, line, err);
    }
    *more_out = false;
    return CHEX_OK;
}

void chex_csv_put(FILE *to, const char *field) {
    if (!field[strcspn(field, ",\"\r\n")]) {
        fputs(field, to);
        return;
    }
    putc('"', to);
    for (; *field; field++) {
        if (*field == '"')
            putc('"', to);
        putc(*field, to);
    }
    putc('"', to);
}
