/* SPDX-License-Identifier: Apache-2.0
 *
 * Parses and applies the conditions of --where. Conditions on view, sex and source become a set of
 * admitted values; conditions on the age become a range and `unknown`.
 */
#include "shard/where.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/text.h"

enum { AGE_UNKNOWN = -1, AGE_MOST = 200, SEX_UNKNOWN = 0, SEX_F = 1, SEX_M = 2 };

/* Admitted values. Bit 0 of views and sexes is `unknown`. */
struct chex_where {
    unsigned views, sexes;
    bool ages[AGE_MOST + 2]; /* [age + 1]; [0]: unknown. Ages above AGE_MOST count as AGE_MOST */
    bool row_conditions;
    int source_count;
    bool sources[];
};

enum { EVERY_VIEW = (1u << (CHEX_VIEW_LATERAL + 1)) - 1, EVERY_SEX = 7 };

enum operation { EQUAL, NOT_EQUAL, LESS, AT_MOST, MORE, AT_LEAST };

/* One condition of the text, cut into its parts. */
struct condition {
    const char *text; /* --where, for errors */
    char word[512];   /* the condition */
    char *value;      /* in `word`; the name before it ends in NUL */
    enum operation op;
};

static enum chex_status bad(const struct condition *c, const char *what, const char *expected,
                            struct chex_error *err) {
    return chex_error_set(err, CHEX_E_USAGE, "--where '%.200s': '%.60s', expected %s", c->text,
                          what, expected);
}

static enum chex_status cut(struct condition *c, const char *from, size_t n,
                            struct chex_error *err) {
    static const char form[] = "conditions such as view=PA, age>=18, sex=F or source=NAME, with "
                               "commas between them";
    static const struct {
        const char *sign;
        enum operation op;
    } operations[] = {{"!=", NOT_EQUAL}, {"<=", AT_MOST}, {">=", AT_LEAST},
                      {"=", EQUAL},      {"<", LESS},     {">", MORE}};
    snprintf(c->word, sizeof c->word, "%.*s", (int)n, from);
    char *sign = strpbrk(c->word, "!<>=");
    if (n >= sizeof c->word || !sign || sign == c->word)
        return bad(c, c->word, form, err);
    for (size_t i = 0; i < sizeof operations / sizeof operations[0]; i++) {
        const size_t length = strlen(operations[i].sign);
        if (strncmp(sign, operations[i].sign, length) != 0)
            continue;
        c->op = operations[i].op;
        c->value = sign + length;
        if (!*c->value || strpbrk(c->value, "!<>="))
            return bad(c, c->word, form, err);
        *sign = '\0';
        return CHEX_OK;
    }
    return bad(c, c->word, form, err);
}

static enum chex_status only_equality(const struct condition *c, struct chex_error *err) {
    return c->op <= NOT_EQUAL ? CHEX_OK : bad(c, c->word, "= or != after it", err);
}

/* The next value of a list with | between; cuts it off at its end. NULL: there is none. */
static char *next_value(char **rest) {
    char *value = *rest, *end = value ? strchr(value, '|') : NULL;
    if (end)
        *end = '\0';
    *rest = end ? end + 1 : NULL;
    return value;
}

/* Restricts `admitted` to the values of the condition. Bit 0: the row does not state the value.
 * names: of bits 0, 1, ... */
static enum chex_status admit(const struct condition *c, const char *const *names,
                              const char *expected, unsigned *admitted, struct chex_error *err) {
    unsigned listed = 0;
    char *rest = c->value;
    CHEX_TRY(only_equality(c, err));
    for (char *value; (value = next_value(&rest));) {
        int i = 0;
        while (names[i] && strcasecmp(names[i], value) != 0)
            i++;
        if (!names[i])
            return bad(c, value, expected, err);
        listed |= 1u << i;
    }
    *admitted &= c->op == EQUAL ? listed : ~(listed | 1u);
    return CHEX_OK;
}

static bool compare(int age, enum operation op, int with) {
    switch (op) {
    case EQUAL: return age == with;
    case NOT_EQUAL: return age != with;
    case LESS: return age < with;
    case AT_MOST: return age <= with;
    case MORE: return age > with;
    case AT_LEAST: return age >= with;
    }
    return false;
}

static enum chex_status admit_ages(const struct condition *c, struct chex_where *w,
                                   struct chex_error *err) {
    char *end;
    const bool unknown = strcasecmp(c->value, "unknown") == 0 && c->op <= NOT_EQUAL;
    const long number = strtol(c->value, &end, 10);
    if (!unknown && (*end || c->value[0] < '0' || c->value[0] > '9' || number > AGE_MOST))
        return bad(c, c->value, "an age from 0 to 200 years, or =unknown", err);
    const int with = unknown ? AGE_UNKNOWN : (int)number;
    for (int age = AGE_UNKNOWN; age <= AGE_MOST; age++) {
        const bool admitted = (age != AGE_UNKNOWN || unknown) && compare(age, c->op, with);
        w->ages[age + 1] = w->ages[age + 1] && admitted;
    }
    return CHEX_OK;
}

static enum chex_status admit_sources(const struct condition *c, const struct chex_sources *s,
                                      struct chex_where *w, struct chex_error *err) {
    char *rest = c->value;
    CHEX_AUTO_FREE bool *listed = chex_alloc_zeroed((size_t)s->count, sizeof *listed);
    if (!listed)
        return chex_error_memory(err, "--where");
    CHEX_TRY(only_equality(c, err));
    for (char *value; (value = next_value(&rest));) {
        struct chex_text_nearest nearest = {.word = value};
        int i = 0;
        while (i < s->count && strcmp(s->set[i].name, value) != 0)
            chex_text_offer(&nearest, s->set[i++].name);
        if (i == s->count)
            return chex_error_set(
                err, CHEX_E_USAGE, "--where '%.200s': '%.60s' is no set of --data (%s '%.60s'%s)",
                c->text, value, nearest.best ? "did you mean" : "the first one is",
                nearest.best ? nearest.best : s->set[0].name, nearest.best ? "?" : "");
        listed[i] = true;
    }
    for (int i = 0; i < s->count; i++)
        w->sources[i] = w->sources[i] && listed[i] == (c->op == EQUAL);
    return CHEX_OK;
}

static enum chex_status add(const struct condition *c, const struct chex_sources *sources,
                            struct chex_where *w, struct chex_error *err) {
    static const char *const views[] = {"unknown", "PA", "AP", "lateral", NULL};
    static const char *const sexes[] = {"unknown", "F", "M", NULL};
    const bool of_rows = strcmp(c->word, "source") != 0;
    w->row_conditions = w->row_conditions || of_rows;
    if (!of_rows && sources)
        return admit_sources(c, sources, w, err);
    if (strcmp(c->word, "view") == 0)
        return admit(c, views, "PA, AP, lateral or unknown", &w->views, err);
    if (strcmp(c->word, "sex") == 0)
        return admit(c, sexes, "F, M or unknown", &w->sexes, err);
    if (strcmp(c->word, "age") == 0)
        return admit_ages(c, w, err);
    return bad(c, c->word, sources ? "view, age, sex or source" : "view, age or sex", err);
}

static enum chex_status parse(const char *text, const struct chex_sources *sources,
                              struct chex_where *w, struct chex_error *err) {
    for (const char *at = text; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        struct condition c = {.text = text};
        CHEX_TRY(cut(&c, at, strcspn(at, ","), err));
        CHEX_TRY(add(&c, sources, w, err));
    }
    return CHEX_OK;
}

enum chex_status chex_where_parse(const char *text, const struct chex_sources *sources,
                                  struct chex_where **where_out, struct chex_error *err) {
    const size_t count = sources ? (size_t)sources->count : 0;
    CHEX_AUTO_FREE struct chex_where *w =
        chex_alloc_zeroed(1, sizeof *w + count * sizeof w->sources[0]);
    if (!w)
        return chex_error_memory(err, "--where");
    w->views = EVERY_VIEW;
    w->sexes = EVERY_SEX;
    w->source_count = (int)count;
    memset(w->ages, true, sizeof w->ages);
    memset(w->sources, true, count * sizeof w->sources[0]);
    if (text && *text)
        CHEX_TRY(parse(text, sources, w, err));
    *where_out = CHEX_TAKE(w);
    return CHEX_OK;
}

void chex_where_free(struct chex_where *where) { free(where); }

bool chex_where_admits_source(const struct chex_where *w, int source) {
    return source >= w->source_count || w->sources[source];
}

bool chex_where_has_row_conditions(const struct chex_where *w) { return w->row_conditions; }

bool chex_where_admits_row(const struct chex_where *w, const struct chex_shard *s, size_t row) {
    const int age = chex_shard_age_years(s, row);
    const char sex = chex_shard_sex(s, row);
    const int sex_bit = sex == 'F' ? SEX_F : sex == 'M' ? SEX_M : SEX_UNKNOWN;
    return w->views >> chex_shard_view(s, row) & 1 && w->sexes >> sex_bit & 1 &&
           w->ages[(age < AGE_MOST ? age : AGE_MOST) + 1];
}
