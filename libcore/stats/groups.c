/* SPDX-License-Identifier: Apache-2.0
 *
 * Partitions of rows (groups.h): each row gets a value, then empty groups are removed.
 */
#include "stats/groups.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/text.h"
#include "base/units.h"
#include "label/labels.h"

const char *const chex_attribute_names[] = {"sex", "age", "view", "source", "size", "fold", NULL};

/* ---- options ---- */

enum chex_status chex_age_bands_parse(const char *text, struct chex_age_bands *bands_out,
                                      struct chex_error *err) {
    struct chex_age_bands b = {.count = 0};
    for (const char *p = text; b.count < CHEX_GROUPS_MAX - 1; p++) {
        const size_t n = strcspn(p, ",");
        char word[16] = "";
        int64_t age;
        if (n < sizeof word)
            memcpy(word, p, n);
        if (!chex_parse_i64(word, &age) || age < 1 || age > CHEX_GROUP_MAX_AGE)
            return chex_error_set(
                err, CHEX_E_USAGE,
                "--age-bands '%s': '%.*s', expected whole years from 1 to %d with "
                "commas between them",
                text, (int)n, p, (int)CHEX_GROUP_MAX_AGE);
        if (b.count && age <= b.from[b.count - 1])
            return chex_error_set(err, CHEX_E_USAGE,
                                  "--age-bands '%s': %d after %d, expected increasing ages", text,
                                  (int)age, b.from[b.count - 1]);
        b.from[b.count++] = (int)age;
        p += n;
        if (!*p) {
            *bands_out = b;
            return CHEX_OK;
        }
    }
    return chex_error_set(err, CHEX_E_USAGE, "--age-bands: more than %d bands",
                          (int)CHEX_GROUPS_MAX);
}

enum chex_status chex_attributes_parse(const char *text, unsigned *mask_out,
                                       struct chex_error *err) {
    if (!strcmp(text, "all") || !strcmp(text, "none")) {
        *mask_out = text[0] == 'a' ? (1u << CHEX_ATTRIBUTE_COUNT) - 1 : 0;
        return CHEX_OK;
    }
    const char *bad = chex_text_mask(text, chex_attribute_names, mask_out);
    return bad ? chex_error_set(err, CHEX_E_USAGE,
                                "--subgroups '%s': '%.*s', expected all, none or some of sex, "
                                "age, view, source, size, fold with commas between them",
                                text, (int)strcspn(bad, ","), bad)
               : CHEX_OK;
}

/* ---- values ---- */

static int age_value(int age, const struct chex_age_bands *bands) {
    int band = 0;
    if (age < 0 || age > CHEX_GROUP_MAX_AGE)
        return CHEX_GROUP_NONE;
    while (band < bands->count && age >= bands->from[band])
        band++;
    return band;
}

static const int size_from[] = {1024, 2048, 3072};
enum { SIZE_BANDS = CHEX_COUNT(size_from) + 1 };

static int size_value(const struct chex_row_facts *f) {
    const int side = f->width_px > f->height_px ? f->width_px : f->height_px;
    int band = 0;
    while (band < SIZE_BANDS - 1 && side >= size_from[band])
        band++;
    return side ? band : CHEX_GROUP_NONE;
}

/* The number of a source, in order of first appearance; -1: there are too many. */
static int source_value(const char *source, const char **sources, int *count) {
    int i = 0;
    if (!source || !*source)
        return CHEX_GROUP_NONE;
    while (i < *count && strcmp(sources[i], source) != 0)
        i++;
    if (i == *count && i == CHEX_GROUPS_MAX)
        return -1;
    if (i == *count)
        sources[(*count)++] = source;
    return i;
}

static char *band_name(int band, const int *from, int count, const char *unit) {
    if (band == count)
        return chex_fs_format("%d+%s", from[count - 1], unit);
    return chex_fs_format("%d-%d%s", band ? from[band - 1] : 0, from[band] - 1, unit);
}

static char *name_of(enum chex_attribute a, int value, const struct chex_age_bands *bands,
                     const char *const *sources) {
    switch (a) {
    case CHEX_ATTRIBUTE_SEX: return chex_fs_format("%c", value ? 'M' : 'F');
    case CHEX_ATTRIBUTE_AGE: return band_name(value, bands->from, bands->count, "");
    case CHEX_ATTRIBUTE_VIEW: return chex_fs_format("%s", chex_view_name((enum chex_view)value));
    case CHEX_ATTRIBUTE_SOURCE: return chex_fs_format("%s", sources[value]);
    case CHEX_ATTRIBUTE_SIZE: return band_name(value, size_from, SIZE_BANDS - 1, " px");
    case CHEX_ATTRIBUTE_FOLD: return chex_fs_format("%d", value + 1);
    case CHEX_ATTRIBUTE_COUNT: break;
    }
    return NULL;
}

static int value_of(enum chex_attribute a, const struct chex_row_facts *f,
                    const struct chex_age_bands *bands, const char **sources, int *source_count) {
    switch (a) {
    case CHEX_ATTRIBUTE_SEX: return f->sex ? f->sex == 'M' : CHEX_GROUP_NONE;
    case CHEX_ATTRIBUTE_AGE: return age_value(f->age_years, bands);
    case CHEX_ATTRIBUTE_VIEW: return f->view == CHEX_VIEW_UNKNOWN ? CHEX_GROUP_NONE : (int)f->view;
    case CHEX_ATTRIBUTE_SOURCE: return source_value(f->source, sources, source_count);
    case CHEX_ATTRIBUTE_SIZE: return size_value(f);
    case CHEX_ATTRIBUTE_FOLD: return f->fold ? f->fold - 1 : CHEX_GROUP_NONE;
    case CHEX_ATTRIBUTE_COUNT: break;
    }
    return CHEX_GROUP_NONE;
}

/* Numbers the values that occur, and names them. */
static enum chex_status number_groups(struct chex_groups *g, size_t rows, const size_t *seen,
                                      enum chex_attribute a, const struct chex_age_bands *bands,
                                      const char *const *sources, struct chex_error *err) {
    uint8_t group_of[CHEX_GROUPS_MAX];
    for (int v = 0; v < CHEX_GROUPS_MAX; v++) {
        if (!seen[v])
            continue;
        group_of[v] = (uint8_t)g->count;
        g->rows[g->count] = seen[v];
        if (!(g->name[g->count++] = name_of(a, v, bands, sources)))
            return chex_error_memory(err, "the subgroups");
    }
    for (size_t i = 0; i < rows; i++)
        if (g->of_row[i] != CHEX_GROUP_NONE)
            g->of_row[i] = group_of[g->of_row[i]];
    return CHEX_OK;
}

enum chex_status chex_groups_create(const struct chex_predictions *table,
                                    enum chex_attribute attribute,
                                    const struct chex_age_bands *bands, struct chex_groups *out,
                                    struct chex_error *err) {
    size_t seen[CHEX_GROUPS_MAX] = {0};
    const char *sources[CHEX_GROUPS_MAX];
    int source_count = 0;
    *out = (struct chex_groups){.name = chex_alloc_zeroed(CHEX_GROUPS_MAX, sizeof *out->name),
                                .of_row = chex_alloc_zeroed(table->rows, 1),
                                .rows = chex_alloc_zeroed(CHEX_GROUPS_MAX, sizeof *out->rows)};
    CHEX_ALLOCATED(out->name && out->of_row && out->rows, err, "the subgroups");
    for (size_t i = 0; i < table->rows; i++) {
        const int value = table->facts
                              ? value_of(attribute, &table->facts[i], bands, sources, &source_count)
                              : CHEX_GROUP_NONE;
        if (value < 0)
            return chex_error_set(err, CHEX_E_DATA, "more than %d sources, expected at most %d",
                                  (int)CHEX_GROUPS_MAX, (int)CHEX_GROUPS_MAX);
        out->of_row[i] = (uint8_t)value;
        if (value == CHEX_GROUP_NONE)
            out->unknown++;
        else
            seen[value]++;
    }
    return number_groups(out, table->rows, seen, attribute, bands, sources, err);
}

void chex_groups_release(struct chex_groups *g) {
    for (int i = 0; g->name && i < g->count; i++)
        free(g->name[i]);
    free(g->name);
    free(g->of_row);
    free(g->rows);
    *g = (struct chex_groups){0};
}
