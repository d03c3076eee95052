/* SPDX-License-Identifier: Apache-2.0
 *
 * Results of commands. A list of typed fields gives a JSON object; templates of text name the
 * fields of that object. So the JSON and the text for people have one source:
 *
 *   json_t *o = chex_result(CHEX_FIELD("rows", set->rows), CHEX_FIELD("seconds", time_s));
 *   chex_result_text(stdout, o, "{rows image} in {seconds:t}\n");
 */
#ifndef CHEX_BASE_RESULT_H
#define CHEX_BASE_RESULT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/error.h"

struct chex_result_field {
    const char *key;
    json_t *value; /* NULL: no memory */
};

/* An object with these fields, in this order. NULL: no memory for it or for one of the values,
 * which are all released. The caller releases the object. */
#define chex_result(...)                                                                           \
    chex_result_of_fields((const struct chex_result_field[]){__VA_ARGS__, {NULL, NULL}})
json_t *chex_result_of_fields(const struct chex_result_field *fields);

/* A field. The type of the value decides the kind:
 * - bool: true or false. Comparisons are int in C: write (bool)(a == b).
 * - integers: a number.
 * - float, double: a number; null if it is not finite.
 * - text: a string; null for NULL. Text that is not UTF-8 in its printable form.
 * - json_t *: itself; takes the reference. */
#define CHEX_FIELD(key, value)                                                                     \
    { key, CHEX_JSON(value) }

/* null unless `known`; the value is evaluated only then. */
#define CHEX_FIELD_IF(known, key, value)                                                           \
    { key, (known) ? CHEX_JSON(value) : json_null() }

/* The key is the name of the member. */
#define CHEX_MEMBER(pointer, member) CHEX_FIELD(#member, (pointer)->member)

#define CHEX_JSON(value)                                                                           \
    _Generic((value),                                                                              \
        bool: chex_json_bool,                                                                      \
        int: chex_json_signed,                                                                     \
        long: chex_json_signed,                                                                    \
        long long: chex_json_signed,                                                               \
        unsigned: chex_json_unsigned,                                                              \
        unsigned long: chex_json_unsigned,                                                         \
        unsigned long long: chex_json_unsigned,                                                    \
        float: chex_json_real,                                                                     \
        double: chex_json_real,                                                                    \
        char *: chex_json_text,                                                                    \
        const char *: chex_json_text,                                                              \
        json_t *: chex_json_same)(value)
json_t *chex_json_text(const char *text);
json_t *chex_json_real(double value);
static inline json_t *chex_json_bool(bool value) { return json_boolean(value); }
static inline json_t *chex_json_signed(int64_t value) { return json_integer(value); }
static inline json_t *chex_json_unsigned(uint64_t value) { return json_integer((json_int_t)value); }
static inline json_t *chex_json_same(json_t *value) { return value; }

/* Objects and arrays that are built in a loop: append and set take the reference of `value`. If it
 * is NULL or there is no memory, they release the container and make it NULL; on NULL they only
 * release the value. So only the end result needs a check, as chex_result() does for its fields. */
void chex_json_append(json_t **array, json_t *value);
void chex_json_set(json_t **object, const char *key, json_t *value);

/* An array of strings; an object with a number for each name. */
json_t *chex_result_texts(char *const *texts, size_t count);
json_t *chex_result_counts(char *const *names, const size_t *numbers, size_t count);

/* Prints the object and releases it: by the template `text` of chex_result_text(), or with NULL as
 * JSON and a line feed. flags: of json_dumps. An object that is NULL counts as out of memory. Write
 * errors: ferror(to). */
enum chex_status chex_result_print(FILE *to, json_t *object, const char *text, size_t flags,
                                   struct chex_error *err);

/* Prints a template, in which PATH ("memory.host_bytes") is a value of the object:
 *   {PATH}           text, or a number as JSON has it; the length of an array
 *   {PATH:FORMAT}    as printf prints it ("8d", ".1f", "-5s"), or with one of these letters
 *                    instead of f: B bytes, t a duration in seconds (both as in base/units.h),
 *                    % a share in percent, M millions, G thousand millions
 *   {PATH image}     "1 image", "2 images"; {PATH class/classes} for other plurals. A FORMAT may
 *                    stand before the noun: {PATH:8d image}
 *   {PATH?TEMPLATE}  the template if the value is present: not null, empty, 0 or false
 *   {PATH!TEMPLATE}  the template if it is not
 *   {PATH=TEXT?TEMPLATE}  the template if the value is that text or integer; with ! if it is
 * another null prints as "unknown". A path that does not exist is absent, and prints as the path
 * itself. */
void chex_result_text(FILE *to, const json_t *object, const char *template);

#endif
