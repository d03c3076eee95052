/* SPDX-License-Identifier: Apache-2.0
 *
 * Result tables: the JSON and the text of each kind of value.
 */
#include "base/result.h"

#include "tap.h"

static struct chex_error err;

/* Whether the template gives this text. */
static bool gives(const json_t *o, const char *template, const char *want) {
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    chex_result_text(f, o, template);
    fclose(f);
    const bool same = strcmp(text, want) == 0;
    if (!same)
        fprintf(stderr, "# %s: '%s', expected '%s'\n", template, text, want);
    free(text);
    return same;
}

static bool is_json(json_t *o, const char *want) {
    char *text = o ? json_dumps(o, JSON_COMPACT) : NULL;
    const bool same = text && strcmp(text, want) == 0;
    if (!same)
        fprintf(stderr, "# '%s', expected '%s'\n", text ? text : "NULL", want);
    free(text);
    json_decref(o);
    return same;
}

static json_t *sample(void) {
    const struct {
        size_t rows;
        const char *none;
    } set = {1, NULL};
    char mass[] = "Mass", hernia[] = "Hernia", *classes[] = {mass, hernia};
    const size_t counts[] = {3, 0};
    return chex_result(CHEX_MEMBER(&set, rows), CHEX_FIELD("shards", (int64_t)-2),
                       CHEX_FIELD("bytes", UINT64_C(1) << 34), CHEX_FIELD("rate", 1234.5678),
                       CHEX_FIELD("half", 0.5f), CHEX_FIELD("sound", (bool)true),
                       CHEX_FIELD("name", "set"), CHEX_MEMBER(&set, none),
                       CHEX_FIELD_IF(false, "absent", 7), CHEX_FIELD("undefined", (double)NAN),
                       CHEX_FIELD("classes", chex_result_texts(classes, 2)),
                       CHEX_FIELD("counts", chex_result_counts(classes, counts, 2)));
}

static void check_json(void) {
    OK(is_json(sample(), "{\"rows\":1,\"shards\":-2,\"bytes\":17179869184,\"rate\":1234.5678,"
                         "\"half\":0.5,\"sound\":true,\"name\":\"set\",\"none\":null,"
                         "\"absent\":null,\"undefined\":null,\"classes\":[\"Mass\",\"Hernia\"],"
                         "\"counts\":{\"Mass\":3,\"Hernia\":0}}"),
       "each type of value has its JSON; what is absent or not finite is null");
    OK(is_json(chex_result(CHEX_FIELD("path", "a\xff")), "{\"path\":\"a\\\\xFF\"}"),
       "text that is not UTF-8 is written in its printable form");
    json_t *kept = json_string("kept");
    OK(!chex_result(CHEX_FIELD("kept", json_incref(kept)), CHEX_FIELD("lost", (json_t *)NULL)) &&
           kept->refcount == 1,
       "a value that could not be made gives no object and releases the others");
    json_decref(kept);
}

static void check_text(void) {
    json_t *o = sample();
    OK(gives(o, "{name}: {rows} in {shards}, {rate}, {sound}", "set: 1 in -2, 1234.57, true"),
       "plain values");
    OK(gives(o, "{rate:.1f} {rate:9.3f} {rate:.0f} {rows:4d} {name:-5s}|{name:5s}|",
             "1234.6  1234.568 1235    1 set  |  set|"),
       "width and digits are printf's");
    OK(gives(o, "{bytes:B}, {rate:t}, {half:.1%} %, {rate:.4M} M, {bytes:.2G} G",
             "16.0 GiB, 20m34s, 50.0 %, 0.0012 M, 17.18 G"),
       "bytes, durations, shares, millions and thousand millions");
    OK(gives(o, "{rows image}, {shards shard}, {classes class/classes}, {rows:3d is/are}",
             "1 image, -2 shards, 2 classes,   1 is"),
       "nouns have their plural");
    OK(gives(o, "{none} {absent:.1f} {undefined:B}", "unknown unknown unknown"),
       "absent values are unknown");
    OK(gives(o, "{name?a}{none?b}{absent!c}{undefined!d}{counts?e}{counts.Hernia!f}{rows?g}",
             "acdefg"),
       "a part is printed if its value is present, or if it is not");
    OK(gives(o, "{name=set?a}{name=other?b}{name=other!c}{rows=1?d}{rows=2!e}{none=0?f}", "acde"),
       "a part is printed if its value is a certain text or integer");
    OK(gives(o, "{name?{counts.Mass?<{counts.Mass image}>}{none?no}}!", "<3 images>!"),
       "parts and paths nest");
    OK(gives(o, "{nmae}", "{nmae}"), "a path that does not exist is seen");
    json_decref(o);
    json_t *slash = chex_result(CHEX_FIELD("output", "out/"));
    OK(gives(slash, "{output}/x, {output}", "out/x, out/"),
       "a slash after a folder is not repeated");
    json_decref(slash);
}

static void check_print(void) {
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    enum chex_status st = chex_result_print(f, chex_result(CHEX_FIELD("a", 1)), NULL, 0, &err);
    if (st == CHEX_OK)
        st = chex_result_print(f, chex_result(CHEX_FIELD("a", 1)), "{a step}\n", 0, &err);
    fclose(f);
    OK(st == CHEX_OK && strcmp(text, "{\"a\": 1}\n1 step\n") == 0,
       "an object is printed both ways");
    OK(chex_result_print(stdout, NULL, NULL, 0, &err) == CHEX_E_RESOURCE,
       "an object that could not be made is out of memory");
    free(text);
}

int main(void) {
    check_json();
    check_text();
    check_print();
    return tap_done();
}
