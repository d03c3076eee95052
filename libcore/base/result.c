/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes JSON objects from lists of fields, and text from such objects and templates.
 */
#include "base/result.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "base/units.h"

/* ---- JSON ---- */

json_t *chex_json_text(const char *text) {
    char printable[4096];
    json_t *value = text ? json_string(text) : json_null();
    return value ? value : json_string(chex_text_printable(text, printable, sizeof printable));
}

json_t *chex_json_real(double value) { return isfinite(value) ? json_real(value) : json_null(); }

json_t *chex_result_of_fields(const struct chex_result_field *f) {
    json_t *object = json_object();
    bool whole = object != NULL;
    for (; f->key; f++) /* to the end: this releases the values of an object that is not whole */
        whole = json_object_set_new(object, f->key, f->value) == 0 && whole;
    if (whole)
        return object;
    json_decref(object);
    return NULL;
}

void chex_json_append(json_t **array, json_t *value) {
    if (!*array)
        json_decref(value);
    else if (json_array_append_new(*array, value) != 0) {
        json_decref(*array);
        *array = NULL;
    }
}

void chex_json_set(json_t **object, const char *key, json_t *value) {
    if (!*object)
        json_decref(value);
    else if (json_object_set_new(*object, key, value) != 0) {
        json_decref(*object);
        *object = NULL;
    }
}

json_t *chex_result_texts(char *const *texts, size_t count) {
    json_t *array = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(array, json_string(texts[i]));
    return array;
}

json_t *chex_result_counts(char *const *names, const size_t *numbers, size_t count) {
    json_t *object = json_object();
    for (size_t i = 0; i < count; i++)
        json_object_set_new(object, names[i], chex_json_unsigned(numbers[i]));
    return object;
}

enum chex_status chex_result_print(FILE *to, json_t *object, const char *text, size_t flags,
                                   struct chex_error *err) {
    char *json = object && !text ? json_dumps(object, flags) : NULL;
    const bool whole = object && (text || json);
    if (whole && text)
        chex_result_text(to, object, text);
    else if (whole)
        fprintf(to, "%s\n", json);
    free(json);
    json_decref(object);
    return whole ? CHEX_OK : chex_error_memory(err, "the result");
}

/* ---- text ---- */

static const json_t *at(const json_t *o, const char *path, size_t bytes) {
    for (const char *end = path + bytes; o && path < end;) {
        char key[64];
        const char *dot = memchr(path, '.', (size_t)(end - path));
        const size_t n = (size_t)((dot ? dot : end) - path);
        snprintf(key, sizeof key, "%.*s", (int)n, path);
        o = json_object_get(o, key);
        path += n + 1;
    }
    return o;
}

static bool present(const json_t *v) {
    if (json_is_string(v) || json_is_array(v))
        return json_is_string(v) ? json_string_length(v) > 0 : json_array_size(v) > 0;
    return json_is_number(v) ? json_number_value(v) != 0 : json_is_true(v) || json_is_object(v);
}

static void put_value(FILE *to, const json_t *v) {
    if (json_is_string(v))
        chex_text_printf(to, "%s", json_string_value(v));
    else if (json_is_array(v))
        fprintf(to, "%zu", json_array_size(v));
    else if (json_is_integer(v))
        fprintf(to, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
    else if (json_is_real(v))
        fprintf(to, "%g", json_real_value(v));
    else
        fputs(json_is_boolean(v) ? (json_is_true(v) ? "true" : "false") : "unknown", to);
}

/* format: "8d", ".1f": as in the header. */
static void put_formatted(FILE *to, const json_t *v, const char *format) {
    char text[32];
    char *end;
    const int width = (int)strtol(format, &end, 10);
    const int digits = *end == '.' ? (int)strtol(end + 1, &end, 10) : -1; /* -1: printf's usual */
    const double n = json_number_value(v);
    if (json_is_null(v))
        put_value(to, v);
    else if (*end == 's')
        chex_text_printf(to, "%*s", width, json_string_value(v));
    else if (*end == 'B')
        fputs(chex_format_bytes(text, sizeof text, (uint64_t)json_integer_value(v)), to);
    else if (*end == 't')
        fprintf(to, "%*s", width, chex_format_duration(text, sizeof text, n));
    else if (*end == 'd')
        fprintf(to, "%*lld", width, (long long)json_integer_value(v));
    else
        fprintf(to, "%*.*f", width, digits,
                *end == '%'   ? n * 100
                : *end == 'M' ? n / 1e6
                : *end == 'G' ? n / 1e9
                              : n);
}

/* The noun after a count. noun: "image" or "class/classes". */
static void put_noun(FILE *to, const json_t *v, const char *noun, const char *end) {
    const char *slash = memchr(noun, '/', (size_t)(end - noun));
    const size_t count = json_is_array(v) ? json_array_size(v) : (size_t)json_integer_value(v);
    if (slash && count != 1)
        noun = slash + 1;
    else if (slash)
        end = slash;
    fprintf(to, " %.*s%s", (int)(end - noun), noun, slash || count == 1 ? "" : "s");
}

static void put_template(FILE *to, const json_t *o, const char *t, const char *end);

/* [t, end): what is between two braces. */
static void put_field(FILE *to, const json_t *o, const char *t, const char *end) {
    const char *rest = t + strcspn(t, ":?! =}");
    const json_t *v = at(o, t, (size_t)(rest - t));
    bool is = present(v);
    if (*rest == '=') {
        const char *text = rest + 1;
        rest += strcspn(rest, "?!");
        char number[24] = "";
        if (json_is_integer(v))
            snprintf(number, sizeof number, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
        const char *now = json_is_string(v) ? json_string_value(v) : number;
        is = strlen(now) == (size_t)(rest - text) && memcmp(now, text, strlen(now)) == 0;
    }
    if (*rest == '?' || *rest == '!') {
        if (is == (*rest == '?'))
            put_template(to, o, rest + 1, end);
        return;
    }
    const size_t format = *rest == ':' ? strcspn(rest, " }") : 0;
    if (!v)
        fprintf(to, "{%.*s}", (int)(end - t), t);
    else if (format)
        put_formatted(to, v, rest + 1);
    else
        put_value(to, v);
    if (rest[format] == ' ')
        put_noun(to, v, rest + format + 1, end);
}

static void put_template(FILE *to, const json_t *o, const char *t, const char *end) {
    while (t < end) {
        const char *open = memchr(t, '{', (size_t)(end - t));
        fwrite(t, 1, (size_t)((open ? open : end) - t), to);
        if (!open)
            return;
        int depth = 1;
        for (t = open + 1; t < end && depth; t++)
            depth += (*t == '{') - (*t == '}');
        put_field(to, o, open + 1, t - 1);
        const json_t *v = at(o, open + 1, strcspn(open + 1, ":?! =}"));
        const size_t n = json_string_length(v);
        if (t < end && *t == '/' && n && json_string_value(v)[n - 1] == '/')
            t++; /* "{output}/FILE" with the folder "out/" */
    }
}

void chex_result_text(FILE *to, const json_t *object, const char *template) {
    put_template(to, object, template, template + strlen(template));
}
