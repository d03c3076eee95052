/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the figures of report.html come from, and the command that makes them again.
 */

#include "base/alloc.h"
#include "base/clock.h"
#include "base/textfile.h"
#include "model/training_facts.h"
#include "report/html.h"

static void put_options(FILE *to, const json_t *options) {
    CHEX_AUTO_FREE char *text = chex_training_options_text(options);
    chex_put_xml(to, text ? text : "-");
}

static void put_json(FILE *to, const json_t *v) {
    if (json_is_object(v))
        put_options(to, v);
    else if (json_is_string(v))
        chex_put_xml(to, json_string_value(v));
    else if (json_is_integer(v))
        fprintf(to, "%lld", (long long)json_integer_value(v));
    else if (json_is_real(v))
        fprintf(to, "%.6g", json_real_value(v));
    else if (json_is_boolean(v))
        fputs(json_is_true(v) ? "yes" : "no", to);
    else if (json_is_array(v)) /* members of an ensemble */
        for (size_t i = 0; i < json_array_size(v); i++)
            chex_put_xml_between(to, i ? ", " : "",
                                 json_string_value(json_object_get(json_array_get(v, i), "file")),
                                 "");
    else
        fputs("&#8211;", to);
}

enum chex_status chex_html_provenance(FILE *to, const struct chex_report *r,
                                      struct chex_error *err) {
    const char *key;
    json_t *v;
    char when[40];
    (void)err;
    fputs("<dl>\n", to);
    /* The cast is for json_object_foreach, which does not change the object. */
    json_object_foreach((json_t *)r->provenance, key, v) {
        chex_put_name_between(to, "<dt>", key, "</dt><dd>");
        put_json(to, v);
        fputs("</dd>\n", to);
    }
    fprintf(to, "<dt>made by</dt><dd>chexnet %s, %s</dd>\n</dl>\n", CHEXNET_VERSION,
            chex_clock_iso8601(when, sizeof when, chex_clock_unix_s()));
    return CHEX_OK;
}

enum chex_status chex_html_command(FILE *to, const struct chex_report *r, struct chex_error *err) {
    (void)err;
    chex_html_note(to, "Every option that is not a default, wherever it came from. Run it in the "
                       "same folder, with the number of ranks above.");
    chex_put_xml_between(to, "<pre>", r->command, "</pre>\n");
    return CHEX_OK;
}
