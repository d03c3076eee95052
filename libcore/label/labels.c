/* SPDX-License-Identifier: Apache-2.0
 *
 * Loads a label file: reads the text, chooses the format, lets the format parse the rows.
 *
 * Formats are in the list of labels_format.h. Detection offers the first line to every format. The
 * special formats are asked first; a general one (csv) is asked only if none of them matches.
 * A named format (--format) is refused if the file is clearly of another one.
 */
#include "label/labels.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/text.h"
#include "label/labels_format.h"
#include "label/table_file.h"

#define ENTRY(name) &chex_label_format_##name,
static const struct chex_label_format *const formats[] = {CHEX_LABEL_FORMATS(ENTRY)};
#undef ENTRY
enum { FORMATS = sizeof formats / sizeof formats[0] };

#define NAME(name) #name,
const char *const chex_label_format_names[] = {"auto", CHEX_LABEL_FORMATS(NAME) NULL};
#undef NAME

const char *chex_label_format_mined(const char *name) {
    for (size_t i = 0; i < FORMATS; i++)
        if (strcmp(formats[i]->name, name) == 0)
            return formats[i]->mined;
    return NULL;
}

/* Creates a table with path and text, without rows. */
static enum chex_status open_table(const char *path, struct chex_label_table **table_out,
                                   size_t *size_out, struct chex_error *err) {
    CHEX_AUTO(chex_labels_free_at) struct chex_label_table *t = NULL;
    CHEX_TRY(chex_labels_new(path, &t, err));
    CHEX_TRY(chex_table_read(path, CHEX_LABELS_MAX_BYTES, &t->text, size_out, err));
    if (t->text[strspn(t->text, " \t\r\n")] == '\0' && strlen(t->text) == *size_out)
        return chex_error_data(err, "%s: empty file", path);
    *table_out = CHEX_TAKE(t);
    return CHEX_OK;
}

/* ---- detection of the format ---- */

bool chex_label_header_has(const struct chex_label_header *h, const char *name) {
    for (size_t i = 0; i < h->count; i++)
        if (!strcmp(h->names[i], name))
            return true;
    return false;
}

/* Returns the first line that is not empty, allocated; NULL if out of memory. */
static char *first_line(const char *text) {
    if (!strncmp(text, "\xEF\xBB\xBF", 3))
        text += 3;
    text += strspn(text, "\r\n");
    return strndup(text, strcspn(text, "\r\n"));
}

static enum chex_status unknown_name(const char *name, struct chex_error *err) {
    char known[128] = "auto";
    for (int i = 0, at = 4; i < FORMATS; i++)
        at += snprintf(known + at, sizeof known - (size_t)at, ", %s", formats[i]->name);
    return chex_error_set(err, CHEX_E_USAGE, "--format '%s': expected one of %s", name, known);
}

static enum chex_status unknown_file(const char *path, const struct chex_label_header *h,
                                     struct chex_error *err) {
    char known[400] = "", shown[64];
    if (h->fault)
        return chex_error_data(err, "%s", h->fault);
    for (int i = 0, at = 0; i < FORMATS; i++)
        at += snprintf(known + at, sizeof known - (size_t)at, "%s%s (%s)", i ? "; " : "",
                       formats[i]->name, formats[i]->expects);
    return chex_error_data(
        err, "%s: line 1: '%s' is not the first line of a known label format, expected one of: %s",
        path, chex_text_printable(h->line, shown, sizeof shown), known);
}

/* Returns the format that matches the header; NULL if none does. *rival_out: a second format that
 * also matches, or NULL. */
static const struct chex_label_format *detect(const struct chex_label_header *h, char *why,
                                              size_t size,
                                              const struct chex_label_format **rival_out) {
    const struct chex_label_format *found = NULL;
    char other[128];
    *rival_out = NULL;
    for (int general = 0; general <= 1 && !found; general++)
        for (int i = 0; i < FORMATS; i++) {
            if (formats[i]->general != (general == 1) ||
                !formats[i]->detect(h, found ? other : why, found ? sizeof other : size))
                continue;
            if (found)
                *rival_out = formats[i];
            else
                found = formats[i];
        }
    return found;
}

static enum chex_status choose(const char *path, const struct chex_label_header *h,
                               const char *name, const char *columns, char *why, size_t why_size,
                               const struct chex_label_format **format_out,
                               struct chex_error *err) {
    const struct chex_label_format *rival, *named = NULL;
    const struct chex_label_format *found = detect(h, why, why_size, &rival);
    bool automatic = !name || !strcmp(name, "auto");
    for (int i = 0; i < FORMATS; i++)
        if (automatic ? columns && formats[i]->takes_columns : !strcmp(formats[i]->name, name))
            named = formats[i];
    if (!automatic && !named)
        return unknown_name(name, err);
    if (named && columns && !named->takes_columns)
        return chex_error_set(err, CHEX_E_USAGE, "--columns is not for label format '%s'",
                              named->name);
    if (named && !named->general && found && found != named && !rival)
        return chex_error_data(
            err, "%s: line 1: this is a label file of format %s (%s), expected %s (%s)", path,
            found->name, why, named->name, named->expects);
    if (!named && !found)
        return unknown_file(path, h, err);
    if (!named && rival)
        return chex_error_data(err,
                               "%s: line 1: this may be format %s (%s) or %s (%s), expected one of "
                               "them: say which by --format",
                               path, found->name, found->expects, rival->name, rival->expects);
    if (named)
        snprintf(why, why_size, columns ? "chosen by --columns" : "chosen by --format");
    *format_out = named ? named : found;
    return CHEX_OK;
}

/* Parses the first line and chooses the format. A line that is not CSV has no column names. */
static enum chex_status choose_format(const struct chex_label_table *t, const char *name,
                                      const char *columns, char *why, size_t why_size,
                                      const struct chex_label_format **format_out,
                                      struct chex_error *err) {
    CHEX_AUTO_FREE char *line = first_line(t->text), *copy = line ? strdup(line) : NULL;
    CHEX_AUTO(chex_csv_release) struct chex_csv csv = {0};
    struct chex_error fault = {0};
    if (!copy)
        return chex_error_memory(err, "%s", t->path);
    chex_csv_init(&csv, t->path, copy, strlen(copy));
    struct chex_label_header h = {.line = line};
    if (chex_csv_header(&csv, &fault) == CHEX_OK)
        h.names = csv.names, h.count = csv.name_count;
    else
        h.fault = fault.text;
    return choose(t->path, &h, name, columns, why, why_size, format_out, err);
}

/* ---- loading ---- */

enum chex_status chex_labels_load(const char *path, const char *format, const char *columns,
                                  struct chex_label_table **table_out, struct chex_error *err) {
    CHEX_AUTO(chex_labels_free_at) struct chex_label_table *t = NULL;
    CHEX_AUTO(chex_csv_release) struct chex_csv csv = {0};
    size_t size;
    const struct chex_label_format *chosen = NULL;
    char why[160] = "";
    CHEX_TRY(open_table(path, &t, &size, err));
    CHEX_TRY(choose_format(t, format, columns, why, sizeof why, &chosen, err));
    t->format = chosen->name;
    chex_csv_init(&csv, path, t->text, size);
    snprintf(t->detected, sizeof t->detected, "%s (%s%s%s)", chosen->name, why,
             csv.separator == ',' ? "" : ", fields separated by ",
             csv.separator == ',' ? "" : chex_csv_separators(&csv));
    CHEX_TRY(chosen->parse(t, &(struct chex_label_input){t->text, size, &csv, columns}, err));
    CHEX_TRY(chex_labels_finish(t, err));
    *table_out = CHEX_TAKE(t);
    return CHEX_OK;
}

/* Adds a name, or the name in a line of the CheXNet lists. Flags after the name are ignored. */
static enum chex_status add_name(struct chex_label_table *t, char *line, size_t number,
                                 struct chex_error *err) {
    char *name = line + strspn(line, " \t");
    char *stop = name + strcspn(name, " \t");
    if (!*name)
        return CHEX_OK;
    for (const char *p = stop; *p; p++)
        if (!strchr(" \t01", *p))
            return chex_text_fault(t->path, number, 1, NULL, name, "one file name a line", err);
    *stop = '\0';
    struct chex_label_row *row;
    int8_t *labels;
    CHEX_TRY(chex_labels_add_row(t, number, &row, &labels, err));
    return chex_labels_set_image(t, row, name, 1, err);
}

enum chex_status chex_labels_load_names(const char *path, struct chex_label_table **table_out,
                                        struct chex_error *err) {
    CHEX_AUTO(chex_labels_free_at) struct chex_label_table *t = NULL;
    size_t size, number = 0;
    CHEX_TRY(open_table(path, &t, &size, err));
    t->format = "names";
    t->classes = chex_class_names + CHEX_CLASS_COUNT;
    t->class_count = 0;
    snprintf(t->detected, sizeof t->detected, "names (one file name a line)");
    char *at = t->text + (strncmp(t->text, "\xEF\xBB\xBF", 3) ? 0 : 3), *end = t->text + size;
    for (char *line; (line = chex_labels_next_line(&at, end));)
        CHEX_TRY(add_name(t, line, ++number, err));
    CHEX_TRY(chex_labels_finish(t, err));
    *table_out = CHEX_TAKE(t);
    return CHEX_OK;
}
