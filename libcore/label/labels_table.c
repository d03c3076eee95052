/* SPDX-License-Identifier: Apache-2.0
 *
 * Builds a label table row by row, and finds rows by image id. The helpers of labels_format.h.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/text.h"
#include "label/image_ids.h"
#include "label/labels_format.h"
#include "label/labels_map.h"

enum { MAX_ID_BYTES = 255 };

/* Strings of a table are in a list of blocks, so that they never move. */
struct string_block {
    struct string_block *next;
    size_t used, capacity;
    char text[];
};

/* table->strings points to this. */
struct store {
    struct string_block *blocks;
    size_t row_capacity, label_capacity; /* both count rows */
};

void chex_labels_free(struct chex_label_table *t) {
    if (!t)
        return;
    struct store *store = t->strings;
    for (struct string_block *b = store ? store->blocks : NULL, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    CHEX_FREE(store, t->rows, t->label_block, t->class_block, t->text, t->path, t);
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
    if (!chex_alloc_grow(&t->rows, t->count, &store->row_capacity, sizeof *t->rows) ||
        !chex_alloc_grow(&t->label_block, t->count, &store->label_capacity, width))
        return chex_error_memory(err, "%s", t->path);
    struct chex_label_row *row = &t->rows[t->count];
    int8_t *labels = t->label_block + t->count * width;
    *row = (struct chex_label_row){
        .line = line, .age_years = CHEX_AGE_UNKNOWN, .split = CHEX_SPLIT_NOT_STATED};
    memset(labels, 0, width);
    t->count++;
    *row_out = row;
    *labels_out = labels;
    return CHEX_OK;
}

int8_t *chex_labels_of(const struct chex_label_table *t, size_t row) {
    return t->label_block + row * (t->class_count ? t->class_count : 1);
}

enum chex_status chex_labels_new(const char *path, struct chex_label_table **table_out,
                                 struct chex_error *err) {
    struct chex_label_table *t = calloc(1, sizeof *t);
    if (t) {
        t->path = strdup(path);
        t->strings = calloc(1, sizeof(struct store));
    }
    if (!t || !t->path || !t->strings) {
        chex_labels_free(t);
        return chex_error_memory(err, "%s", path);
    }
    t->rows_path = t->path;
    t->classes = chex_class_names;
    t->class_count = CHEX_CLASS_COUNT;
    *table_out = t;
    return CHEX_OK;
}

const char *chex_labels_format(struct chex_label_table *t, const char *fmt, ...) {
    char text[4096];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return n < 0 ? NULL
                 : chex_labels_copy(t, text, (size_t)n < sizeof text ? (size_t)n : sizeof text - 1);
}

const char *chex_labels_patient(struct chex_label_table *t, const char *text) {
    size_t n = strlen(text);
    if (n == 0 || n >= 8 || strspn(text, "0123456789") != n)
        return text;
    char padded[9] = "00000000";
    memcpy(padded + 8 - n, text, n);
    return chex_labels_copy(t, padded, 8);
}

/* ---- classes ---- */

/* The canonical name of a class. */
struct naming {
    char name[CHEX_CLASS_NAME_BYTES];
    int ours; // class of the 14, or -1
};

static enum chex_status name_classes(const struct chex_label_table *t, const char *const *names,
                                     size_t count, struct naming *n, struct chex_error *err) {
    char shown[64];
    for (size_t i = 0; i < count; i++) {
        if (!chex_class_canonical(names[i], n[i].name))
            return chex_error_data(err, "%s: line 1: '%s' cannot be the name of a finding: %s",
                                   t->path, chex_text_printable(names[i], shown, sizeof shown),
                                   chex_class_name_fault(names[i]));
        if (!chex_text_is_utf8(n[i].name))
            return chex_text_encoding_fault(t->path, 1, "finding", names[i], "", err);
        n[i].ours = chex_class_find(n[i].name);
        for (size_t k = 0; k < i; k++)
            if (!strcmp(n[k].name, n[i].name))
                return chex_error_data(
                    err, "%s: line 1: '%s' and '%s' are the same finding, expected each once",
                    t->path, names[k], names[i]);
    }
    return CHEX_OK;
}

static enum chex_status put_classes(struct chex_label_table *t, const struct naming *n,
                                    size_t count, size_t *class_of, struct chex_error *err) {
    const char **classes = malloc(count * sizeof *classes);
    size_t next = 0;
    if (!classes)
        return chex_error_memory(err, "%s", t->path);
    free(t->class_block);
    t->class_block = classes;
    t->classes = classes;
    t->class_count = count;
    for (int c = 0; c <= CHEX_CLASS_COUNT; c++)
        for (size_t i = 0; i < count; i++) {
            if (n[i].ours != (c < CHEX_CLASS_COUNT ? c : -1))
                continue;
            class_of[i] = next;
            if (!(classes[next++] = chex_labels_copy(t, n[i].name, strlen(n[i].name))))
                return chex_error_memory(err, "%s", t->path);
        }
    return CHEX_OK;
}

enum chex_status chex_labels_set_classes(struct chex_label_table *t, const char *const *names,
                                         size_t count, size_t *class_of_out,
                                         struct chex_error *err) {
    if (count == 0 || count > CHEX_MAX_CLASSES)
        return chex_error_data(err, "%s: line 1: %zu findings, expected 1 to %d", t->path, count,
                               (int)CHEX_MAX_CLASSES);
    CHEX_AUTO_FREE struct naming *n = calloc(count, sizeof *n);
    if (!n)
        return chex_error_memory(err, "%s", t->path);
    CHEX_TRY(name_classes(t, names, count, n, err));
    return put_classes(t, n, count, class_of_out, err);
}

/* ---- columns that are not read ---- */

static bool is_read(const struct chex_label_format *format, const char *name, size_t column,
                    const int *used, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (used[i] == (int)column)
            return true;
    for (const char *const *known = format->unread; known && *known; known++)
        if (!strcmp(*known, name))
            return true;
    return !*name; /* empty: a column of row numbers, or a comma at the end of the line */
}

enum chex_status chex_labels_list_ignored(struct chex_label_table *t,
                                          const struct chex_label_format *format,
                                          const struct chex_csv *csv, const int *used, size_t count,
                                          struct chex_error *err) {
    enum { SHOWN = 20 };
    CHEX_AUTO_FREE char *list = NULL;
    char name[64];
    size_t size = 0, ignored = 0;
    FILE *f = open_memstream(&list, &size);
    if (!f)
        return chex_error_memory(err, "%s", t->path);
    for (size_t i = 0; i < csv->name_count; i++)
        if (!is_read(format, csv->names[i], i, used, count) && ++ignored <= SHOWN)
            fprintf(f, "%s%s", ignored > 1 ? ", " : "",
                    chex_text_printable(csv->names[i], name, sizeof name));
    if (ignored > SHOWN)
        fprintf(f, " and %zu more", ignored - SHOWN);
    if (fclose(f) != 0 || (ignored && !(t->ignored = chex_labels_copy(t, list, size))))
        return chex_error_memory(err, "%s", t->path);
    return CHEX_OK;
}

/* ---- images ---- */

/* Returns the part of a path from its last `folders` folders on; NULL if it has fewer. */
static const char *last_folders(const char *path, int folders) {
    const char *p = path + strlen(path);
    for (folders++; p > path; p--)
        if (p[-1] == '/' && --folders == 0)
            return p;
    return folders == 1 ? p : NULL;
}

/* Returns the length of a folder "WORD123" at `p`, before a '/'; else 0. */
static size_t numbered_folder(const char *p, const char *word, size_t min_digits) {
    size_t n = strlen(word);
    if (strncmp(p, word, n) != 0)
        return 0;
    size_t digits = strspn(p + n, "0123456789");
    return digits >= min_digits && p[n + digits] == '/' ? n + digits : 0;
}

static enum chex_status name_chexpert(struct chex_label_table *t, struct chex_label_row *row,
                                      const char *tail, size_t patient, struct chex_error *err) {
    char *id = (char *)chex_labels_copy(t, tail, strlen(tail));
    const char *name = chex_labels_copy(t, tail, patient);
    if (!row->study_id)
        row->study_id = chex_labels_copy(t, tail, (size_t)(strrchr(tail, '/') - tail));
    if (!id || !name || !row->study_id)
        return chex_error_memory(err, "%s", t->path);
    for (char *p = id; *p; p++)
        *p = *p == '/' ? '_' : *p;
    row->path = tail;
    row->image_id = id;
    row->patient_id = row->patient_id ? row->patient_id : name;
    return CHEX_OK;
}

/* The patient of a row without a patient column: MIMIC-CXR's folder, or else a guess from the name.
 */
static const char *patient_of(struct chex_label_table *t, struct chex_label_row *row) {
    const char *tail = last_folders(row->path, 2);
    size_t patient = tail ? numbered_folder(tail, "p", 8) : 0;
    const size_t study = patient ? numbered_folder(tail + patient + 1, "s", 8) : 0;
    if (study && !row->study_id &&
        !(row->study_id = chex_labels_copy(t, tail + patient + 2, study - 1)))
        return NULL;
    if (study)
        return chex_labels_copy(t, tail + 1, patient - 1);
    row->patient_guessed = true;
    size_t length = strlen(row->image_id), n = strcspn(row->image_id, "_");
    if (n == 0 || n == length) {
        const char *dot = strrchr(row->image_id, '.');
        n = dot && dot > row->image_id ? (size_t)(dot - row->image_id) : length;
    }
    return chex_labels_copy(t, row->image_id, n);
}

enum chex_status chex_labels_set_image(struct chex_label_table *t, struct chex_label_row *row,
                                       const char *path, size_t column, struct chex_error *err) {
    const char *tail = last_folders(path, 2);
    row->path = path;
    row->image_id = chex_fs_name(path);
    size_t patient = tail ? numbered_folder(tail, "patient", 1) : 0;
    bool chexpert = patient && numbered_folder(tail + patient + 1, "study", 1) && *row->image_id;
    size_t length = chexpert ? strlen(tail) : strlen(row->image_id);
    if (length == 0 || length > MAX_ID_BYTES)
        return chex_text_fault(t->rows_path, row->line, column, NULL, path,
                               "a file name of 1 to 255 bytes", err);
    if (chex_text_has_control(path))
        return chex_text_fault(t->rows_path, row->line, column, NULL, path,
                               "a file name without control characters", err);
    if (chexpert)
        return name_chexpert(t, row, tail, patient, err);
    if (!row->patient_id)
        row->patient_id = patient_of(t, row);
    return row->patient_id ? CHEX_OK : chex_error_memory(err, "%s", t->path);
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

/* ---- rows by image id ---- */

static enum chex_status index_rows(const struct chex_label_table *t, struct chex_label_map *map,
                                   bool refuse_twice, struct chex_error *err) {
    for (size_t i = 0, first; i < t->count; i++) {
        CHEX_TRY(chex_label_map_add(map, t->rows[i].image_id, i, &first, err));
        if (first != i && refuse_twice)
            return chex_error_data(err,
                                   "%s: line %zu, column 1: image '%s' is on line %zu already, "
                                   "expected each image once",
                                   t->rows_path, t->rows[i].line, t->rows[i].image_id,
                                   t->rows[first].line);
    }
    return CHEX_OK;
}

enum chex_status chex_labels_index(const struct chex_label_table *t, struct chex_label_map *map_out,
                                   struct chex_error *err) {
    return index_rows(t, map_out, false, err);
}

enum chex_status chex_labels_count_patients(const struct chex_label_table *t, size_t *count_out,
                                            struct chex_error *err) {
    CHEX_AUTO(chex_label_map_release) struct chex_label_map map = {0};
    for (size_t i = 0, first; i < t->count; i++)
        CHEX_TRY(chex_label_map_add(&map, t->rows[i].patient_id, i, &first, err));
    *count_out = map.count;
    return CHEX_OK;
}

/* Refuses ids that a shard cannot store, and control characters, which could reach a terminal. */
static enum chex_status check_id(const struct chex_label_table *t, const struct chex_label_row *r,
                                 const char *what, const char *id, struct chex_error *err) {
    char shown[64];
    const size_t bytes = strlen(id);
    if (bytes > CHEX_MAX_ID_BYTES)
        return chex_error_data(err, "%s: line %zu: a %s id of %zu bytes (%s), expected %d at most",
                               t->rows_path, r->line, what, bytes,
                               chex_text_printable(id, shown, sizeof shown),
                               (int)CHEX_MAX_ID_BYTES);
    if (chex_text_has_control(id))
        return chex_error_data(
            err, "%s: line %zu: %s '%s', expected an id without control characters", t->rows_path,
            r->line, what, chex_text_printable(id, shown, sizeof shown));
    return CHEX_OK;
}

/* chex_labels_set_image() has checked the image names. */
static enum chex_status check_ids(const struct chex_label_table *t, struct chex_error *err) {
    for (size_t i = 0; i < t->count; i++) {
        const struct chex_label_row *r = &t->rows[i];
        CHEX_TRY(check_id(t, r, "patient", r->patient_id, err));
        if (r->study_id)
            CHEX_TRY(check_id(t, r, "study", r->study_id, err));
    }
    return CHEX_OK;
}

/* Texts in shards and manifests must be UTF-8. */
static enum chex_status check_encoding(const struct chex_label_table *t, struct chex_error *err) {
    for (size_t i = 0; i < t->count; i++) {
        const struct chex_label_row *r = &t->rows[i];
        const struct {
            const char *what, *id, *also;
        } ids[] = {{"image", r->image_id, "; the name of the image file must be UTF-8, too"},
                   {"patient", r->patient_id, ""},
                   {"study", r->study_id ? r->study_id : "", ""}};
        for (size_t k = 0; k < sizeof ids / sizeof *ids; k++)
            if (!chex_text_is_utf8(ids[k].id))
                return chex_text_encoding_fault(t->rows_path, r->line, ids[k].what, ids[k].id,
                                                ids[k].also, err);
    }
    return CHEX_OK;
}

enum chex_status chex_labels_finish(struct chex_label_table *t, struct chex_error *err) {
    CHEX_AUTO(chex_label_map_release) struct chex_label_map map = {0};
    if (t->count == 0)
        return chex_error_data(err, "%s: no rows, expected at least one image", t->path);
    for (size_t i = 0; i < t->count; i++)
        t->rows[i].labels = chex_labels_of(t, i);
    t->file_count = t->count;
    bool repeats = false;
    CHEX_TRY(chex_image_ids_qualify(t, &repeats, err));
    CHEX_TRY(check_ids(t, err));
    CHEX_TRY(check_encoding(t, err));
    return repeats ? index_rows(t, &map, true, err) : CHEX_OK;
}
