/* SPDX-License-Identifier: Apache-2.0
 *
 * The CSV parser of csv.h.
 *
 * Fields are not copied. The parser overwrites the separator after a field with a NUL and moves the
 * content of a quoted field forward over its opening quote. So a text can be parsed only once.
 */
#include "label/csv.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/text.h"
#include "base/units.h"

static const struct {
    char separator;
    const char *plural;
} separators[] = {{',', "commas"}, {';', "semicolons"}, {'\t', "tabs"}};
enum { SEPARATORS = sizeof separators / sizeof separators[0] };

/* Counts the separators of the first line that is not empty. Names of the NIH's table hold commas
 * in brackets. */
static char find_separator(const char *p, const char *end) {
    size_t found[SEPARATORS] = {0}, best = 0;
    bool quoted = false, bracket = false;
    while (p < end && (*p == '\n' || *p == '\r'))
        p++;
    for (; p < end && (quoted || (*p != '\n' && *p != '\r')); p++) {
        quoted ^= *p == '"';
        bracket = !quoted && (*p == '[' || (bracket && *p != ']'));
        for (size_t i = 0; i < SEPARATORS && !quoted && !bracket; i++)
            found[i] += *p == separators[i].separator;
    }
    for (size_t i = 1; i < SEPARATORS; i++)
        if (found[i] > found[best])
            best = i;
    return separators[best].separator;
}

void chex_csv_init(struct chex_csv *csv, const char *path, char *text, size_t size) {
    *csv = (struct chex_csv){.path = path, .at = text, .end = text + size, .next_line = 1};
    if (size >= 3 && !memcmp(text, "\xEF\xBB\xBF", 3))
        csv->at += 3;
    csv->separator = find_separator(csv->at, csv->end);
}

void chex_csv_release(struct chex_csv *csv) {
    free(csv->fields);
    free(csv->names);
    *csv = (struct chex_csv){0};
}

static enum chex_status fault(const struct chex_csv *csv, struct chex_error *err,
                              const char *what) {
    return chex_error_data(err, "%s: line %zu, column %zu: %s", csv->path, csv->next_line,
                           csv->count + 1, what);
}

static enum chex_status add_field(struct chex_csv *csv, char *field, struct chex_error *err) {
    if (!chex_alloc_grow(&csv->fields, csv->count, &csv->capacity, sizeof field))
        return chex_error_memory(err, "%s", csv->path);
    csv->fields[csv->count++] = field;
    return CHEX_OK;
}

/* Moves the content of a quoted field over its opening quote and unescapes "". Leaves `at` after
 * the closing quote. */
static enum chex_status read_quoted(struct chex_csv *csv, char **field_out, char **field_end_out,
                                    struct chex_error *err) {
    char *out = csv->at, *field = out;
    size_t opened = csv->next_line;
    for (char *p = csv->at + 1;; p++) {
        if (p == csv->end) {
            csv->next_line = opened;
            return fault(csv, err, "a quote opens here and never closes");
        }
        if (*p == '\0')
            return fault(csv, err, "a NUL byte, expected text");
        if (*p == '"' && p + 1 < csv->end && p[1] == '"')
            p++;
        else if (*p == '"') {
            csv->at = p + 1;
            break;
        }
        csv->next_line += *p == '\n';
        *out++ = *p;
    }
    *field_out = field;
    *field_end_out = out;
    return CHEX_OK;
}

static enum chex_status read_unquoted(struct chex_csv *csv, char **field_out, char **field_end_out,
                                      struct chex_error *err) {
    char *p = csv->at;
    for (; p < csv->end && *p != csv->separator && *p != '\n' && *p != '\r'; p++) {
        if (*p == '"')
            return fault(csv, err, "a quote inside a field that does not begin with one");
        if (*p == '\0')
            return fault(csv, err, "a NUL byte, expected text");
    }
    *field_out = csv->at;
    *field_end_out = csv->at = p;
    return CHEX_OK;
}

/* Reads one field and what ends it: a separator (*last_out is false), the end of the line or the
 * end of the text. */
static enum chex_status read_field(struct chex_csv *csv, bool *last_out, struct chex_error *err) {
    char *field = NULL, *end = NULL;
    bool quoted = csv->at < csv->end && *csv->at == '"';
    CHEX_TRY(quoted ? read_quoted(csv, &field, &end, err) : read_unquoted(csv, &field, &end, err));
    char *next = csv->at;
    bool cr = next < csv->end && *next == '\r';
    next += cr;
    *last_out = true;
    if (next == csv->end) {
        csv->at = next;
    } else if (*next == '\n') {
        csv->at = next + 1;
    } else if (cr) {
        return fault(csv, err, "a carriage return without a line feed");
    } else if (*next == csv->separator) {
        csv->at = next + 1;
        *last_out = false;
    } else {
        return fault(csv, err, "text after a closing quote, expected a separator or a new line");
    }
    bool ended = *last_out && csv->at > next;
    *end = '\0';
    CHEX_TRY(add_field(csv, field, err));
    csv->next_line += ended;
    return CHEX_OK;
}

static void skip_empty_lines(struct chex_csv *csv) {
    for (;;) {
        size_t left = (size_t)(csv->end - csv->at);
        if (left >= 1 && csv->at[0] == '\n')
            csv->at += 1;
        else if (left >= 2 && csv->at[0] == '\r' && csv->at[1] == '\n')
            csv->at += 2;
        else
            return;
        csv->next_line++;
    }
}

enum chex_status chex_csv_next(struct chex_csv *csv, bool *more_out, struct chex_error *err) {
    csv->count = 0;
    skip_empty_lines(csv);
    csv->line = csv->next_line;
    bool more = csv->at < csv->end;
    for (bool last = !more; !last;)
        CHEX_TRY(read_field(csv, &last, err));
    *more_out = more;
    return CHEX_OK;
}

/* ---- tables ---- */

enum chex_status chex_csv_header(struct chex_csv *csv, struct chex_error *err) {
    bool more;
    CHEX_TRY(chex_csv_next(csv, &more, err));
    if (!more)
        return chex_error_data(err, "%s: empty file, expected a header", csv->path);
    char **names = malloc(csv->count * sizeof *names);
    if (!names)
        return chex_error_memory(err, "%s", csv->path);
    memcpy(names, csv->fields, csv->count * sizeof *names);
    free(csv->names);
    csv->names = names;
    csv->name_count = csv->count;
    return CHEX_OK;
}

enum chex_status chex_csv_find(const struct chex_csv *csv, const char *name, const char *expects,
                               int *column_out, struct chex_error *err) {
    int found = -1;
    for (size_t i = 0; i < csv->name_count; i++) {
        if (strcmp(csv->names[i], name) != 0)
            continue;
        if (found >= 0)
            return chex_error_data(err,
                                   "%s: line 1: columns %d and %zu are both '%s', expected one",
                                   csv->path, found + 1, i + 1, name);
        found = (int)i;
    }
    if (found < 0 && expects)
        return chex_error_data(err, "%s: line 1: the header has no column '%s', expected %s",
                               csv->path, name, expects);
    *column_out = found;
    return CHEX_OK;
}

static bool is_header(const struct chex_csv *csv) {
    for (size_t i = 0; i < csv->count; i++)
        if (strcmp(csv->fields[i], csv->names[i]) != 0)
            return false;
    return true;
}

enum chex_status chex_csv_row(struct chex_csv *csv, bool *more_out, struct chex_error *err) {
    do
        CHEX_TRY(chex_csv_next(csv, more_out, err));
    while (*more_out && csv->count == csv->name_count && is_header(csv));
    if (!*more_out || csv->count == csv->name_count)
        return CHEX_OK;
    return chex_error_data(err, "%s: line %zu: %zu columns, expected %zu as in the header",
                           csv->path, csv->line, csv->count, csv->name_count);
}

const char *chex_csv_separators(const struct chex_csv *csv) {
    for (size_t i = 1; i < SEPARATORS; i++)
        if (separators[i].separator == csv->separator)
            return separators[i].plural;
    return separators[0].plural;
}

void chex_csv_log_separator(const struct chex_csv *csv) {
    if (csv->separator != ',')
        chex_info("%s: fields with %s between", csv->path, chex_csv_separators(csv));
}

bool chex_csv_number(const struct chex_csv *csv, size_t column, double *out) {
    const char *field = csv->fields[column], *comma = strchr(field, ',');
    char copy[64];
    const size_t n = strlen(field);
    if (csv->separator == ',' || !comma || strchr(field, '.') || n >= sizeof copy)
        return chex_parse_f64(field, out);
    memcpy(copy, field, n + 1);
    copy[comma - field] = '.';
    return chex_parse_f64(copy, out);
}

bool chex_csv_is_missing(const char *cell) {
    return !*cell || !strcmp(cell, "NA") || !strcasecmp(cell, "nan");
}

enum chex_status chex_csv_fault(const struct chex_csv *csv, int column, const char *expected,
                                struct chex_error *err) {
    size_t c = (size_t)column;
    return chex_text_fault(csv->path, csv->line, c + 1, c < csv->name_count ? csv->names[c] : NULL,
                           csv->fields[c], expected, err);
}

enum chex_status chex_text_fault(const char *path, size_t line, size_t column, const char *name,
                                 const char *value, const char *expected, struct chex_error *err) {
    char shown[64], shown_name[64];
    return chex_error_data(
        err, "%s: line %zu, column %zu%s%s%s: '%s', expected %s", path, line, column,
        name ? " (" : "", name ? chex_text_printable(name, shown_name, sizeof shown_name) : "",
        name ? ")" : "", chex_text_printable(value, shown, sizeof shown), expected);
}

enum chex_status chex_text_encoding_fault(const char *path, size_t line, const char *what,
                                          const char *value, const char *also,
                                          struct chex_error *err) {
    char shown[64];
    const unsigned char *p = (const unsigned char *)value;
    while (*p && *p < 0x80)
        p++;
    return chex_error_data(err,
                           "%s: line %zu: %s '%s': byte 0x%02X, as in Windows-1252 or Latin-1, "
                           "expected UTF-8: convert the file with iconv -f WINDOWS-1252 -t UTF-8%s",
                           path, line, what, chex_text_printable(value, shown, sizeof shown), *p,
                           also);
}
