/* SPDX-License-Identifier: Apache-2.0
 *
 * Texts of figures (figure_text.h).
 */
#include "report/figure_text.h"

#include <math.h>

#include "base/result.h"
#include "base/text.h"

static bool add_number(json_t *o, const char *name, const char *end, double value) {
    char key[80];
    snprintf(key, sizeof key, "%s%s", name, end);
    return json_object_set_new(o, key, chex_json_real(value)) == 0;
}

bool chex_figure_add_json(json_t *object, const char *name, const char *interval,
                          const struct chex_figure *f) {
    return object && add_number(object, name, "", f->value) &&
           add_number(object, interval, "_ci_low", f->interval.low) &&
           add_number(object, interval, "_ci_high", f->interval.high);
}

bool chex_json_append(json_t *array, json_t *item) {
    return item && json_array_append_new(array, item) == 0;
}

json_t *chex_json_checked(json_t *object, bool complete) {
    if (complete)
        return object;
    json_decref(object);
    return NULL;
}

void chex_csv_put_number(FILE *to, double value) {
    if (isnan(value))
        fputs(",nan", to); /* never "-nan" */
    else
        fprintf(to, ",%.9g", value);
}

void chex_csv_put_figure(FILE *to, const struct chex_figure *f) {
    chex_csv_put_number(to, f->value);
    chex_csv_put_number(to, f->interval.low);
    chex_csv_put_number(to, f->interval.high);
}

void chex_csv_put_text(FILE *to, const char *text) {
    putc(',', to);
    chex_text_put_cell(to, text);
}

const char *chex_figure_format(const struct chex_figure *f, bool sign, char *buf, size_t size) {
    if (isnan(f->value))
        snprintf(buf, size, "-");
    else if (isnan(f->interval.low))
        snprintf(buf, size, sign ? "%+.4f" : "%.4f", f->value);
    else
        snprintf(buf, size, sign ? "%+.4f (%+.4f to %+.4f)" : "%.4f (%.4f to %.4f)", f->value,
                 f->interval.low, f->interval.high);
    return buf;
}
