/* SPDX-License-Identifier: Apache-2.0
 *
 * The head numbers of report.html, and what was evaluated with what.
 */
#include <math.h>
#include <stdarg.h>

#include "base/textfile.h"
#include "label/labels.h"
#include "report/html.h"

static void put_card(FILE *to, const char *kind, const char *what, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

static void put_card(FILE *to, const char *kind, const char *what, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    fprintf(to, "<div class=\"card%s\"><b>", kind);
    vfprintf(to, fmt, args);
    fprintf(to, "</b>%s</div>\n", what);
    va_end(args);
}

static void put_cards(FILE *to, const struct chex_scores *s) {
    char what[96] = "mean AUROC";
    fputs("<div class=\"cards\">\n", to);
    if (!isnan(s->mean_interval.low))
        snprintf(what, sizeof what, "mean AUROC, 95 %% interval %.3f to %.3f", s->mean_interval.low,
                 s->mean_interval.high);
    put_card(to, " main", what, isnan(s->mean) ? "undefined" : "%.4f", s->mean);
    put_card(to, "", "findings defined", "%d of %d", s->defined, s->classes);
    put_card(to, "", "images, each counted once", "%zu", s->table->rows);
    if (s->patients)
        put_card(to, "", "patients", "%zu", s->patients);
    fputs("</div>\n", to);
}

/* The facts of the provenance that a reader needs first. */
static void put_facts(FILE *to, const json_t *provenance) {
    static const struct {
        const char *key, *name;
    } facts[] = {
        {"data", "set"},
        {"split", "split"},
        {"where", "images"},
        {"model", "network"},
        {"checkpoint", "file"},
        {"predictions", "predictions"},
        {"overlap_with_training", "overlap with training data"},
        {"training_loss", "training loss"},
    };
    fputs("<dl>\n", to);
    for (size_t i = 0; i < CHEX_COUNT(facts); i++) {
        const char *text = json_string_value(json_object_get(provenance, facts[i].key));
        if (!text)
            continue;
        fprintf(to, "<dt>%s</dt><dd>", facts[i].name);
        chex_put_xml(to, text);
        fputs("</dd>\n", to);
    }
    fputs("</dl>\n", to);
}

enum chex_status chex_html_summary(FILE *to, const struct chex_report *r, struct chex_error *err) {
    const char *format = json_string_value(json_object_get(r->provenance, "label_format"));
    const char *mined = format ? chex_label_format_mined(format) : NULL;
    (void)err;
    put_cards(to, r->scores);
    put_facts(to, r->provenance);
    if (json_object_get(r->provenance, "training_loss"))
        fputs(
            "<p class=\"mut\">The training loss shifts the probabilities. AUROCs do not depend on "
            "it; for thresholds and risks see the calibration, and recalibrate.</p>\n",
            to);
    fprintf(to,
            "<p class=\"mut\">%s%sAUROC says how well the network orders images by these labels, "
            "not whether the labels are right.</p>\n",
            mined ? mined : "", mined ? " were mined from radiology reports by a program. " : "");
    return CHEX_OK;
}
