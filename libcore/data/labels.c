/* SPDX-License-Identifier: Apache-2.0 */
#include "data/labels.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/fs.h"
#include "base/hash.h"
#include "data/labels_format.h"

static const struct chex_label_format *const formats[] = {
    &chex_label_format_nih,
    &chex_label_format_list,
};
enum { FORMATS = sizeof formats / sizeof formats[0] };

/* Label files we can name but not read: what their first line holds. */
static const struct {
    const char *holds, *name;
} foreign[] = {
    {"Frontal/Lateral", "a CheXpert label file"},
    {"subject_id,study_id", "a MIMIC-CXR label file"},
    {"rad_id", "a VinDr-CXR label file"},
    {"StudyDate_DICOM", "a PadChest label file"},
};

enum { MAX_FILE_BYTES = 1 << 30, MAX_ID_BYTES = 255 };

const char *const chex_uncertain_names[] = {"keep", "ignore", "zeros", "ones", NULL};

const char *const *chex_labels_formats(void) {
    static const char *names[FORMATS + 2];
    names[0] = "auto";
    for (int i = 0; i < FORMATS; i++)
        names[i + 1] = formats[i]->name;
    return names;
}

const char *chex_view_name(enum chex_view view) {
    switch (view) {
    case CHEX_VIEW_PA: return "PA";
    case CHEX_VIEW_AP: return "AP";
    case CHEX_VIEW_LATERAL: return "LATERAL";
    case CHEX_VIEW_UNKNOWN: break;
    }
    return "unknown";
}

/* ---- building a table ---- */

/* Growing room of a table; lives in table->strings. */
struct string_block {
    struct string_block *next;
    size_t used, capacity;
    char text[];
};

struct store {
    struct string_block *blocks;
    size_t row_capacity;
};

static enum chex_status no_memory(const char *path, struct chex_error *err) {
    return chex_error_errno(err, CHEX_E_RESOURCE, ENOMEM, "%s", path);
}

void chex_labels_free(struct chex_label_table *t) {
    if (!t)
        return;
    struct store *store = t->strings;
    for (struct string_block *b = store ? store->blocks : NULL, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    free(store);
    free(t->rows);
    free(t->label_block);
    free(t->text);
    free(t->path);
    free(t);
}

const char *chex_labels_copy(struct chex_label_table *t, const char *text, size_t size) {
    struct store *store = t->strings;
    struct string_block *b = store->blocks;
    if (!b || b->capacity - b->used < size + 1) {
        size_t capacity = size + 1 > (64 << 10) ? size + 1 : (64 << 10);
        b = malloc(sizeof *b + capacity);
        if (!b)
            return NULL;
        *b = (struct string_block){.next = store->blocks, .capacity = capacity};
        store->blocks = b;
    }
    char *copy = b->text + b->used;
    memcpy(copy, text, size);
    copy[size] = '\0';
    b->used += size + 1;
    return copy;
}

enum chex_status chex_labels_add_row(struct chex_label_table *t, size_t line,
                                     struct chex_label_row **row_out, int8_t **labels_out,
                                     struct chex_error *err) {
    struct store *store = t->strings;
    size_t width = t->class_count ? t->class_count : 1;
    if (t->count == store->row_capacity) {
        size_t capacity = store->row_capacity ? 2 * store->row_capacity : 256;
        struct chex_label_row *rows = realloc(t->rows, capacity * sizeof *rows);
        if (rows)
            t->rows = rows;
        int8_t *labels = rows ? realloc(t->label_block, capacity * width) : NULL;
        if (!labels)
            return no_memory(t->path, err);
        t->label_block = labels;
        store->row_capacity = capacity;
    }
    struct chex_label_row *row = &t->rows[t->count];
    int8_t *labels = t->label_block + t->count * width;
    *row = (struct chex_label_row){.line = line, .age_years = CHEX_AGE_UNKNOWN};
    memset(labels, 0, width);
    t->count++;
    *row_out = row;
    *labels_out = labels;
    return CHEX_OK;
}

enum chex_status chex_labels_set_image(struct chex_label_table *t, struct chex_label_row *row,
                                       const char *path, struct chex_error *err) {
    const char *slash = strrchr(path, '/');
    row->path = path;
    row->image_id = slash ? slash + 1 : path;
    size_t length = strlen(row->image_id);
    if (length == 0 || length > MAX_ID_BYTES)
        return chex_labels_fault(t, row->line, 1, NULL, path, "a file name of 1 to 255 bytes", err);
    for (const char *p = path; *p; p++)
        if (iscntrl((unsigned char)*p))
            return chex_labels_fault(t, row->line, 1, NULL, path,
                                     "a file name without control characters", err);
    if (row->patient_id)
        return CHEX_OK;
    size_t n = strcspn(row->image_id, "_");
    if (n == 0 || n == length) {
        const char *dot = strrchr(row->image_id, '.');
        n = dot && dot > row->image_id ? (size_t)(dot - row->image_id) : length;
    }
    row->patient_id = chex_labels_copy(t, row->image_id, n);
    return row->patient_id ? CHEX_OK : no_memory(t->path, err);
}

enum chex_status chex_labels_fault(const struct chex_label_table *t, size_t line, size_t column,
                                   const char *name, const char *value, const char *expected,
                                   struct chex_error *err) {
    /* The value may be anything: shorten it and take the unprintable out. */
    char shown[61];
    size_t n = 0;
    for (; value[n] && n < sizeof shown - 1; n++)
        shown[n] = isprint((unsigned char)value[n]) ? value[n] : '?';
    shown[n] = '\0';
    return chex_error_set(err, CHEX_E_DATA, "%s: line %zu, column %zu%s%s%s: '%s%s', expected %s",
                          t->path, line, column, name ? " (" : "", name ? name : "",
                          name ? ")" : "", shown, value[n] ? "..." : "", expected);
}

char *chex_labels_next_line(char **at, char *end) {
    char *line = *at;
    if (line >= end)
        return NULL;
    char *stop = memchr(line, '\n', (size_t)(end - line));
    *at = stop ? stop + 1 : end;
    stop = stop ? stop : end;
    if (stop > line && stop[-1] == '\r')
        stop--;
    *stop = '\0';
    return line;
}

/* ---- image ids ---- */

struct chex_label_index {
    const struct chex_label_table *table;
    size_t *slots; /* row + 1; 0 is free */
    size_t mask;
};

static size_t *find_slot(const struct chex_label_index *index, const char *id) {
    size_t at = (size_t)chex_hash64(id, strlen(id)) & index->mask;
    while (index->slots[at] && strcmp(index->table->rows[index->slots[at] - 1].image_id, id) != 0)
        at = (at + 1) & index->mask;
    return &index->slots[at];
}

/* Fills the index; *twice_out is the first row whose id an earlier row (*first_out) has too. */
static enum chex_status build_index(const struct chex_label_table *t,
                                    struct chex_label_index **index_out, size_t *first_out,
                                    size_t *twice_out, struct chex_error *err) {
    struct chex_label_index *index = calloc(1, sizeof *index);
    size_t slots = 16;
    while (slots < 2 * t->count)
        slots *= 2;
    if (index)
        index->slots = calloc(slots, sizeof *index->slots);
    if (!index || !index->slots) {
        chex_label_index_destroy(index);
        return no_memory(t->path, err);
    }
    index->table = t;
    index->mask = slots - 1;
    *twice_out = SIZE_MAX;
    for (size_t i = 0; i < t->count; i++) {
        size_t *slot = find_slot(index, t->rows[i].image_id);
        if (!*slot)
            *slot = i + 1;
        else if (*twice_out == SIZE_MAX)
            *first_out = *slot - 1, *twice_out = i;
    }
    *index_out = index;
    return CHEX_OK;
}

enum chex_status chex_label_index_create(const struct chex_label_table *table,
                                         struct chex_label_index **index_out,
                                         struct chex_error *err) {
    size_t first, twice;
    return build_index(table, index_out, &first, &twice, err);
}

void chex_label_index_destroy(struct chex_label_index *index) {
    if (!index)
        return;
    free(index->slots);
    free(index);
}

const struct chex_label_row *chex_label_index_find(const struct chex_label_index *index,
                                                   const char *image_id) {
    size_t row = *find_slot(index, image_id);
    return row ? &index->table->rows[row - 1] : NULL;
}

static enum chex_status refuse_duplicates(const struct chex_label_table *t,
                                          struct chex_error *err) {
    struct chex_label_index *index;
    size_t first = 0, twice;
    CHEX_TRY(build_index(t, &index, &first, &twice, err));
    chex_label_index_destroy(index);
    if (twice == SIZE_MAX)
        return CHEX_OK;
    return chex_error_set(err, CHEX_E_DATA,
                          "%s: line %zu, column 1: image '%s' stands on line %zu already, expected "
                          "each image once",
                          t->path, t->rows[twice].line, t->rows[twice].image_id,
                          t->rows[first].line);
}

/* ---- loading ---- */

enum chex_status chex_labels_new(const char *path, struct chex_label_table **table_out,
                                 struct chex_error *err) {
    struct chex_label_table *t = calloc(1, sizeof *t);
    if (t) {
        t->path = strdup(path);
        t->strings = calloc(1, sizeof(struct store));
    }
    if (!t || !t->path || !t->strings) {
        chex_labels_free(t);
        return no_memory(path, err);
    }
    *table_out = t;
    return CHEX_OK;
}

/* A table with path and text, and no rows. */
static enum chex_status open_table(const char *path, struct chex_label_table **table_out,
                                   size_t *size_out, struct chex_error *err) {
    struct chex_label_table *t = NULL;
    CHEX_TRY(chex_labels_new(path, &t, err));
    enum chex_status st = chex_fs_read(path, MAX_FILE_BYTES, &t->text, size_out, err);
    if (st == CHEX_OK && t->text[strspn(t->text, " \t\r\n")] == '\0' &&
        strlen(t->text) == *size_out)
        st = chex_error_set(err, CHEX_E_DATA, "%s: empty file", path);
    if (st != CHEX_OK) {
        chex_labels_free(t);
        return st;
    }
    *table_out = t;
    return CHEX_OK;
}

enum chex_status chex_labels_finish(struct chex_label_table *t, struct chex_error *err) {
    if (t->count == 0)
        return chex_error_set(err, CHEX_E_DATA, "%s: no rows, expected at least one image",
                              t->path);
    for (size_t i = 0; i < t->count; i++)
        t->rows[i].labels = t->label_block + i * t->class_count;
    return refuse_duplicates(t, err);
}

/* The first line that is not blank, shortened to what an error text can show. */
static void first_line(const char *text, char *out, size_t size) {
    if (!strncmp(text, "\xEF\xBB\xBF", 3))
        text += 3;
    text += strspn(text, "\r\n");
    size_t n = strcspn(text, "\r\n");
    n = n < size - 1 ? n : size - 1;
    memcpy(out, text, n);
    out[n] = '\0';
}

static enum chex_status not_known(const char *path, const char *what, struct chex_error *err) {
    return chex_error_set(err, CHEX_E_DATA,
                          "%s: line 1: this is %s, expected one of: nih (%s); "
                          "list (%s)",
                          path, what, chex_label_format_nih.expects,
                          chex_label_format_list.expects);
}

static enum chex_status unknown_name(const char *name, struct chex_error *err) {
    char known[128] = "auto";
    for (int i = 0, at = 4; i < FORMATS; i++)
        at += snprintf(known + at, sizeof known - (size_t)at, ", %s", formats[i]->name);
    return chex_error_set(err, CHEX_E_USAGE, "label format '%s', expected one of: %s", name, known);
}

static enum chex_status choose(const char *path, const char *text, const char *name, char *why,
                               size_t why_size, const struct chex_label_format **format_out,
                               struct chex_error *err) {
    char line[4096];
    first_line(text, line, sizeof line);
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++)
        if (strstr(line, foreign[i].holds))
            return not_known(path, foreign[i].name, err);
    bool automatic = !name || !strcmp(name, "auto");
    for (int i = 0; i < FORMATS; i++) {
        bool named = !automatic && !strcmp(formats[i]->name, name);
        if (!named && !(automatic && formats[i]->detect(line, why, why_size)))
            continue;
        if (named)
            snprintf(why, why_size, "as asked");
        *format_out = formats[i];
        return CHEX_OK;
    }
    if (!automatic)
        return unknown_name(name, err);
    return not_known(path, "no label file of a known kind", err);
}

enum chex_status chex_labels_load(const char *path, const char *format,
                                  struct chex_label_table **table_out, struct chex_error *err) {
    struct chex_label_table *t = NULL;
    size_t size;
    const struct chex_label_format *chosen = NULL;
    char why[128] = "";
    CHEX_TRY(open_table(path, &t, &size, err));
    enum chex_status st = choose(path, t->text, format, why, sizeof why, &chosen, err);
    if (st == CHEX_OK) {
        t->format = chosen->name;
        t->classes = chex_class_names;
        t->class_count = CHEX_CLASS_COUNT;
        snprintf(t->detected, sizeof t->detected, "%s (%s)", chosen->name, why);
        st = chosen->parse(t, t->text, size, err);
    }
    if (st == CHEX_OK)
        st = chex_labels_finish(t, err);
    if (st != CHEX_OK) {
        chex_labels_free(t);
        return st;
    }
    *table_out = t;
    return CHEX_OK;
}

/* A name, or a line of the CheXNet lists, whose flags are not looked at. */
static enum chex_status add_name(struct chex_label_table *t, char *line, size_t number,
                                 struct chex_error *err) {
    char *name = line + strspn(line, " \t");
    char *stop = name + strcspn(name, " \t");
    if (!*name)
        return CHEX_OK;
    for (const char *p = stop; *p; p++)
        if (!strchr(" \t01", *p))
            return chex_labels_fault(t, number, 1, NULL, name, "one file name a line", err);
    *stop = '\0';
    struct chex_label_row *row;
    int8_t *labels;
    CHEX_TRY(chex_labels_add_row(t, number, &row, &labels, err));
    return chex_labels_set_image(t, row, name, err);
}

enum chex_status chex_labels_load_names(const char *path, struct chex_label_table **table_out,
                                        struct chex_error *err) {
    struct chex_label_table *t = NULL;
    size_t size, number = 0;
    CHEX_TRY(open_table(path, &t, &size, err));
    t->format = "names";
    t->classes = chex_class_names + CHEX_CLASS_COUNT;
    snprintf(t->detected, sizeof t->detected, "names (one file name a line)");
    char *at = t->text + (strncmp(t->text, "\xEF\xBB\xBF", 3) ? 0 : 3), *end = t->text + size;
    enum chex_status st = CHEX_OK;
    for (char *line; st == CHEX_OK && (line = chex_labels_next_line(&at, end));)
        st = add_name(t, line, ++number, err);
    if (st == CHEX_OK)
        st = chex_labels_finish(t, err);
    if (st != CHEX_OK) {
        chex_labels_free(t);
        return st;
    }
    *table_out = t;
    return CHEX_OK;
}

/* ---- views and uncertain labels ---- */

enum chex_status chex_labels_parse_views(const char *text, unsigned *mask_out,
                                         struct chex_error *err) {
    unsigned mask = 0;
    for (const char *p = text;; p++) {
        size_t n = strcspn(p, ",");
        unsigned bit = 0;
        for (unsigned v = CHEX_VIEW_UNKNOWN; v <= CHEX_VIEW_LATERAL; v++) {
            const char *name = chex_view_name((enum chex_view)v);
            if (strlen(name) == n && !strncasecmp(p, name, n))
                bit = 1u << v;
        }
        if (!bit)
            return chex_error_set(err, CHEX_E_USAGE,
                                  "views '%s': '%.*s', expected some of PA, AP, lateral, unknown "
                                  "with commas between them",
                                  text, (int)n, p);
        mask |= bit;
        p += n;
        if (!*p)
            break;
    }
    *mask_out = mask;
    return CHEX_OK;
}

size_t chex_labels_keep_views(struct chex_label_table *t, unsigned mask) {
    size_t kept = 0;
    for (size_t i = 0; i < t->count; i++)
        if (mask >> t->rows[i].view & 1)
            t->rows[kept++] = t->rows[i];
    size_t dropped = t->count - kept;
    t->count = kept;
    return dropped;
}

size_t chex_labels_apply_uncertain(struct chex_label_table *t, enum chex_uncertain policy) {
    static const int8_t becomes[] = {[CHEX_UNCERTAIN_KEEP] = CHEX_LABEL_UNCERTAIN,
                                     [CHEX_UNCERTAIN_IGNORE] = CHEX_LABEL_NOT_STATED,
                                     [CHEX_UNCERTAIN_ZEROS] = 0,
                                     [CHEX_UNCERTAIN_ONES] = 1};
    size_t found = 0;
    for (size_t i = 0; i < t->count; i++)
        for (size_t c = 0; c < t->class_count; c++)
            if (t->rows[i].labels[c] == CHEX_LABEL_UNCERTAIN) {
                t->rows[i].labels[c] = becomes[policy];
                found++;
            }
    return found;
}
