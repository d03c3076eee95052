/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads tables of published AUROCs. report/published.h describes the format.
 */
#include "report/published.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/text.h"
#include "label/csv.h"
#include "label/table_file.h"

/* share/published-auroc.csv. libcore/CMakeLists.txt compiles it in, so that results do not depend
 * on the installation. */
extern const unsigned char chex_published_csv[];
extern const unsigned long chex_published_csv_bytes;

enum { FILE_LIMIT_BYTES = 16 << 20 };

/* Names and notes are printed in our reports, so they must be printable. */
static enum chex_status check_texts(const struct chex_csv *csv, struct chex_error *err) {
    for (size_t i = 0; i < csv->count; i++) {
        if (!chex_text_is_utf8(csv->fields[i]))
            return chex_text_encoding_fault(csv->path, csv->line, "text", csv->fields[i], "", err);
        if (!chex_text_is_printable(csv->fields[i]))
            return chex_error_set(err, CHEX_E_DATA, "%s line %zu: '%s' has control characters",
                                  csv->path, csv->line, csv->fields[i]);
    }
    return CHEX_OK;
}

/* Whether a column is a source. In an auroc.csv of ours, only `auroc` is one. */
static bool is_source(const struct chex_csv *csv, size_t i) {
    bool ours = false;
    for (size_t k = 0; k < csv->count; k++)
        ours = ours || strcmp(csv->fields[k], "auroc") == 0;
    return !ours || strcmp(csv->fields[i], "auroc") == 0;
}

static enum chex_status read_header(struct chex_csv *csv, struct chex_published *p,
                                    size_t *column_of, size_t lines, struct chex_error *err) {
    for (size_t i = 1; i < csv->count; i++) {
        if (!is_source(csv, i))
            continue;
        struct chex_published_source *s = &p->source[p->sources];
        column_of[p->sources++] = i;
        s->name = strdup(csv->fields[i]);
        s->source = strdup("");
        s->split = strdup("");
        s->auroc = chex_alloc_zeroed(lines, sizeof *s->auroc);
        CHEX_ALLOCATED(s->name && s->source && s->split && s->auroc, err, "%s", csv->path);
    }
    p->class_names = chex_alloc_zeroed(lines, sizeof *p->class_names);
    p->rows_digest = chex_alloc_zeroed(lines, sizeof *p->rows_digest);
    return p->class_names && p->rows_digest ? CHEX_OK : chex_error_memory(err, "%s", csv->path);
}

/* The index of the column rows_digest of an auroc.csv; 0: none. */
static size_t digest_column(const struct chex_csv *csv) {
    for (size_t i = 1; i < csv->count; i++)
        if (strcmp(csv->fields[i], "rows_digest") == 0)
            return i;
    return 0;
}

/* Reads the digest of the class that was added last. */
static enum chex_status read_digest(const struct chex_csv *csv, size_t column,
                                    struct chex_published *p, struct chex_error *err) {
    const char *text = csv->fields[column];
    char *end;
    if (!column || !*text)
        return CHEX_OK;
    const uint64_t digest = strtoull(text, &end, 16);
    if (strspn(text, "0123456789abcdef") != 16 || *end || !digest)
        return chex_error_set(err, CHEX_E_DATA,
                              "%s line %zu, column rows_digest: '%s', expected 16 hex digits",
                              csv->path, csv->line, text);
    p->rows_digest[p->classes - 1] = digest;
    return CHEX_OK;
}

static enum chex_status set_note(char **at, const char *text, const char *path,
                                 struct chex_error *err) {
    char *copy = strdup(text);
    CHEX_ALLOCATED(copy, err, "%s", path);
    free(*at);
    *at = copy;
    return CHEX_OK;
}

/* There is space for a class for each line of the file. */
static enum chex_status add_class(struct chex_published *p, const char *name, const char *path,
                                  struct chex_error *err) {
    if (!(p->class_names[p->classes] = strdup(name)))
        return chex_error_memory(err, "%s", path);
    for (int s = 0; s < p->sources; s++)
        p->source[s].auroc[p->classes] = NAN;
    p->classes++;
    return CHEX_OK;
}

static enum chex_status read_record(const struct chex_csv *csv, struct chex_published *p,
                                    const size_t *column_of, struct chex_error *err) {
    const char *name = chex_text_of_cell(csv->fields[0]);
    const bool note = name[0] == '@';
    if (strcmp(name, "mean") == 0)
        return CHEX_OK; /* chex_report_shared_mean() computes the mean over the classes of both */
    if (!note) {
        for (int c = 0; c < p->classes; c++)
            if (strcmp(p->class_names[c], name) == 0)
                return chex_error_set(err, CHEX_E_DATA, "%s line %zu: finding %s appears twice",
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
        else if (!note && !chex_csv_is_missing(text)) {
            if (!chex_csv_number(csv, column_of[s], &v) || v < 0 || v > 1)
                return chex_error_set(err, CHEX_E_DATA,
                                      "%s line %zu, column %s: '%s', expected an AUROC from 0 to 1",
                                      csv->path, csv->line, to->name, text);
            to->auroc[p->classes - 1] = v;
        }
    }
    return CHEX_OK;
}

static enum chex_status read_table(struct chex_csv *csv, size_t lines, struct chex_published *p,
                                   struct chex_error *err) {
    bool more;
    CHEX_TRY(chex_csv_next(csv, &more, err));
    if (!more || csv->count < 2 || strcmp(csv->fields[0], "class") != 0)
        return chex_error_set(err, CHEX_E_DATA,
                              "%s: expected a header that begins with class and names one or more "
                              "sources",
                              csv->path);
    CHEX_TRY(check_texts(csv, err));
    const size_t width = csv->count, digests = digest_column(csv);
    p->source = chex_alloc_zeroed(width, sizeof *p->source);
    CHEX_AUTO_FREE size_t *column_of = chex_alloc_zeroed(width, sizeof *column_of);
    CHEX_TRY(p->source && column_of ? read_header(csv, p, column_of, lines, err)
                                    : chex_error_memory(err, "%s", csv->path));
    for (;;) {
        CHEX_TRY(chex_csv_next(csv, &more, err));
        if (!more)
            break;
        if (csv->count != width)
            return chex_error_set(err, CHEX_E_DATA, "%s line %zu: %zu columns, the header has %zu",
                                  csv->path, csv->line, csv->count, width);
        CHEX_TRY(check_texts(csv, err));
        CHEX_TRY(read_record(csv, p, column_of, err));
        CHEX_TRY(read_digest(csv, digests, p, err));
    }
    return p->classes ? CHEX_OK : chex_error_set(err, CHEX_E_DATA, "%s: no finding", csv->path);
}

static enum chex_status parse(const char *path, char *text, size_t size, struct chex_published *p,
                              struct chex_error *err) {
    struct chex_csv csv;
    size_t lines = 1;
    for (size_t i = 0; i < size; i++)
        lines += text[i] == '\n' || text[i] == '\r';
    chex_csv_init(&csv, path, text, size);
    chex_csv_log_separator(&csv);
    enum chex_status st = read_table(&csv, lines, p, err);
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
    CHEX_AUTO_FREE char *text = NULL;
    size_t size = chex_published_csv_bytes;
    *p_out = NULL;
    if (strcmp(which, "none") == 0)
        return CHEX_OK;
    if (!is_bundled && !chex_fs_exists(which))
        return chex_error_set(err, CHEX_E_DATA,
                              "--compare %s: no such file; expected a table of AUROCs such as "
                              "auroc.csv, or published, published:COLUMN or none",
                              which);
    if (!is_bundled)
        CHEX_TRY(chex_table_read(which, FILE_LIMIT_BYTES, &text, &size, err));
    else if ((text = malloc(size + 1)))
        memcpy(text, chex_published_csv, size);
    struct chex_published *p = chex_alloc_zeroed(1, sizeof *p);
    enum chex_status st =
        text && p ? parse(is_bundled ? "published-auroc.csv" : which, text, size, p, err)
                  : chex_error_memory(err, "%s", which);
    if (st == CHEX_OK && !is_bundled && !(p->file = strdup(which)))
        st = chex_error_memory(err, "%s", which);
    if (st == CHEX_OK && is_bundled)
        st = choose_headline(p, which[n] ? which + n + 1 : NULL, err);
    if (st == CHEX_OK)
        *p_out = p;
    else
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
    free(p->rows_digest);
    free(p->file);
    free(p->source);
    free(p);
}

double chex_published_auroc(const struct chex_published *p, int s, const char *class_name) {
    for (int c = 0; c < p->classes; c++)
        if (strcmp(p->class_names[c], class_name) == 0)
            return p->source[s].auroc[c];
    return NAN;
}
