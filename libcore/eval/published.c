/* SPDX-License-Identifier: Apache-2.0 */
#include "eval/published.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/mem.h"
#include "base/units.h"
#include "data/csv.h"

/* share/published-auroc.csv, compiled in by libcore/CMakeLists.txt: results must not depend on
 * where the tree was installed. */
extern const unsigned char chex_published_csv[];
extern const unsigned long chex_published_csv_bytes;

enum { FILE_LIMIT_BYTES = 16 << 20 };

static enum chex_status no_memory(const char *path, struct chex_error *err) {
    return chex_error_set(err, CHEX_E_RESOURCE, "%s: out of memory", path);
}

/* Columns of our own auroc.csv that are no AUROC are passed over. */
static bool takes_column(const struct chex_csv *csv, size_t i) {
    bool ours = false;
    for (size_t k = 0; k < csv->count; k++)
        ours = ours || strcmp(csv->fields[k], "auroc") == 0;
    return !ours || strcmp(csv->fields[i], "auroc") == 0;
}

static enum chex_status read_header(struct chex_csv *csv, struct chex_published *p,
                                    size_t *column_of, struct chex_error *err) {
    for (size_t i = 1; i < csv->count; i++) {
        if (!takes_column(csv, i))
            continue;
        struct chex_published_source *s = &p->source[p->sources];
        column_of[p->sources++] = i;
        s->name = strdup(csv->fields[i]);
        s->source = strdup("");
        s->split = strdup("");
        if (!s->name || !s->source || !s->split)
            return no_memory(csv->path, err);
    }
    return CHEX_OK;
}

static enum chex_status set_note(char **at, const char *text, const char *path,
                                 struct chex_error *err) {
    char *copy = strdup(text);
    if (!copy)
        return no_memory(path, err);
    free(*at);
    *at = copy;
    return CHEX_OK;
}

static enum chex_status add_class(struct chex_published *p, const char *name, const char *path,
                                  struct chex_error *err) {
    const size_t n = (size_t)p->classes + 1;
    char **names = realloc(p->class_names, n * sizeof *names);
    if (!names)
        return no_memory(path, err);
    p->class_names = names;
    for (int s = 0; s < p->sources; s++) {
        double *v = realloc(p->source[s].auroc, n * sizeof *v);
        if (!v)
            return no_memory(path, err);
        p->source[s].auroc = v;
        v[n - 1] = NAN;
    }
    if (!(names[n - 1] = strdup(name)))
        return no_memory(path, err);
    p->classes++;
    return CHEX_OK;
}

static enum chex_status read_record(const struct chex_csv *csv, struct chex_published *p,
                                    const size_t *column_of, struct chex_error *err) {
    const char *name = csv->fields[0];
    const bool note = name[0] == '@';
    if (strcmp(name, "mean") == 0)
        return CHEX_OK; /* ours is over the classes that both have */
    if (!note) {
        for (int c = 0; c < p->classes; c++)
            if (strcmp(p->class_names[c], name) == 0)
                return chex_error_set(err, CHEX_E_DATA, "%s line %zu: class %s stands twice",
                                      csv->path, csv->line, name);
        CHEX_TRY(add_class(p, name, csv->path, err));
    }
    for (int s = 0; s < p->sources; s++) {
        const char *text = csv->fields[column_of[s]];
        struct chex_published_source *to = &p->source[s];
        double v;
        if (strcmp(name, "@source") == 0)
            CHEX_TRY(set_note(&to->source, text, csv->path, err));
        else if (strcmp(name, "@split") == 0)
            CHEX_TRY(set_note(&to->split, text, csv->path, err));
        else if (strcmp(name, "@official") == 0)
            to->official = strcmp(text, "1") == 0;
        else if (!note && *text && strcmp(text, "nan") != 0) {
            if (!chex_parse_f64(text, &v) || v < 0 || v > 1)
                return chex_error_set(err, CHEX_E_DATA,
                                      "%s line %zu, column %s: '%s', expected an AUROC from 0 to 1",
                                      csv->path, csv->line, to->name, text);
            to->auroc[p->classes - 1] = v;
        }
    }
    return CHEX_OK;
}

static enum chex_status read_table(struct chex_csv *csv, struct chex_published *p,
                                   struct chex_error *err) {
    bool more;
    size_t *column_of = NULL, width;
    CHEX_TRY(chex_csv_next(csv, &more, err));
    if (!more || csv->count < 2 || strcmp(csv->fields[0], "class") != 0)
        return chex_error_set(err, CHEX_E_DATA,
                              "%s: expected a header that begins with class and names one or more "
                              "sources",
                              csv->path);
    width = csv->count;
    p->source = chex_mem_zalloc(width, sizeof *p->source);
    column_of = chex_mem_zalloc(width, sizeof *column_of);
    enum chex_status st =
        p->source && column_of ? read_header(csv, p, column_of, err) : no_memory(csv->path, err);
    while (st == CHEX_OK) {
        st = chex_csv_next(csv, &more, err);
        if (st != CHEX_OK || !more)
            break;
        if (csv->count != width)
            st = chex_error_set(err, CHEX_E_DATA, "%s line %zu: %zu columns, the header has %zu",
                                csv->path, csv->line, csv->count, width);
        else
            st = read_record(csv, p, column_of, err);
    }
    if (st == CHEX_OK && p->classes == 0)
        st = chex_error_set(err, CHEX_E_DATA, "%s: no class", csv->path);
    free(column_of);
    return st;
}

static enum chex_status parse(const char *path, char *text, size_t size, struct chex_published *p,
                              struct chex_error *err) {
    struct chex_csv csv;
    chex_csv_init(&csv, path, text, size);
    enum chex_status st = read_table(&csv, p, err);
    chex_csv_release(&csv);
    return st;
}

static enum chex_status choose_headline(struct chex_published *p, const char *name,
                                        struct chex_error *err) {
    char all[256] = "";
    for (int s = p->sources; s-- > 0;) {
        if (!name && p->source[s].official)
            p->headline = s;
        if (name && strcmp(p->source[s].name, name) == 0) {
            p->headline = s;
            return CHEX_OK;
        }
    }
    for (int s = 0; s < p->sources; s++) {
        size_t n = strlen(all);
        snprintf(all + n, sizeof all - n, "%s%s", s ? ", " : "", p->source[s].name);
    }
    return name ? chex_error_set(err, CHEX_E_USAGE,
                                 "--compare published:%s: no such column, expected one of %s", name,
                                 all)
                : CHEX_OK;
}

enum chex_status chex_published_read(const char *which, struct chex_published **p_out,
                                     struct chex_error *err) {
    static const char bundled[] = "published";
    const size_t n = sizeof bundled - 1;
    const bool is_bundled =
        strncmp(which, bundled, n) == 0 && (which[n] == ':' || which[n] == '\0');
    char *text = NULL;
    size_t size = 0;
    struct chex_published *p = chex_mem_zalloc(1, sizeof *p);
    enum chex_status st = p ? CHEX_OK : no_memory(which, err);
    if (st == CHEX_OK && is_bundled) {
        size = chex_published_csv_bytes;
        text = malloc(size + 1);
        if (text)
            memcpy(text, chex_published_csv, size);
        else
            st = no_memory(which, err);
    } else if (st == CHEX_OK) {
        st = chex_fs_read(which, FILE_LIMIT_BYTES, &text, &size, err);
    }
    if (st == CHEX_OK)
        st = parse(is_bundled ? "published-auroc.csv" : which, text, size, p, err);
    if (st == CHEX_OK && is_bundled)
        st = choose_headline(p, which[n] ? which + n + 1 : NULL, err);
    if (st == CHEX_OK) {
        *p_out = p;
        p = NULL;
    }
    free(text);
    chex_published_destroy(p);
    return st;
}

void chex_published_destroy(struct chex_published *p) {
    if (!p)
        return;
    for (int s = 0; s < p->sources; s++) {
        free(p->source[s].name);
        free(p->source[s].source);
        free(p->source[s].split);
        free(p->source[s].auroc);
    }
    for (int c = 0; c < p->classes; c++)
        free(p->class_names[c]);
    free(p->class_names);
    free(p->source);
    free(p);
}

double chex_published_auroc(const struct chex_published *p, int s, const char *class_name) {
    for (int c = 0; c < p->classes; c++)
        if (strcmp(p->class_names[c], class_name) == 0)
            return p->source[s].auroc[c];
    return NAN;
}
